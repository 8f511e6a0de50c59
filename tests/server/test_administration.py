"""Orders at real servers: who may give them and where, that a restart obeys them, and that a kill makes none twice."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from hushgrad.server import administration_service
from hushgrad.v1 import admin_pb2, admin_pb2_grpc, common_pb2, models_pb2

from tests.support.federations import Sender, make_terms
from tests.support.pki import Pki
from tests.support.servers import Client, ServerProcess, configure, make_state

NAMES = ("a", "b", "c")
TERMS = make_terms(names=NAMES)


def order(reason: str = "") -> admin_pb2.Order:
    return admin_pb2.Order(request_id=os.urandom(16), reason=reason)


class Desk:
    """An operator of one server."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.stub = admin_pb2_grpc.AdministrationServiceStub(channel)

    def acts(self) -> list[admin_pb2.Act]:
        return list(self.stub.GetAdministration(admin_pb2.GetAdministrationRequest(), timeout=10).acts)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_state(tmp_path, TERMS)
    return tmp_path


@pytest.fixture
def senders() -> list[Sender]:
    return [Sender(name, TERMS) for name in NAMES]


def at(address: str) -> Desk:
    return Desk(grpc.insecure_channel(address))


def clients(address: str, senders: list[Sender]) -> list[Client]:
    found = [Client(address, sender) for sender in senders]
    for client in found:
        client.join()
        client.start()
    return found


def submit(members: list[Client], round_: int) -> None:
    for client in members:
        sealed = client.sender.sealed.get(round_) or client.sender.seal(round_)
        assert client.submit(sealed).verdict.answer == common_pb2.ANSWER_ACCEPTED


@pytest.mark.e2e
def test_a_pause_outlives_a_kill_and_the_version_holds_what_came_meanwhile(root: Path, senders: list[Sender]) -> None:
    with ServerProcess(root) as server:
        members = clients(server.address, senders)
        submit(members, 0)
        members[0].wait_for_version(1)
        paused = at(server.address).stub.Pause(admin_pb2.PauseRequest(order=order("disk")), timeout=10)
        assert (paused.verdict.answer, paused.act.who) == (common_pb2.ANSWER_ACCEPTED, "(loopback)")
        assert paused.standing.paused_by == paused.act
        assert abs(paused.act.unix_seconds - time.time()) < 60
        submit(members, 1)
        server.stop(signal.SIGKILL)
    with ServerProcess(root) as server:
        desk = at(server.address)
        members = clients(server.address, senders)
        submit(members, 1)
        status = members[0].status()
        assert (status.server.newest_version, status.is_paused) == (1, True)
        assert "paused by (loopback)" in status.waiting_for
        desk.stub.Resume(admin_pb2.ResumeRequest(order=order()), timeout=10)
        members[0].wait_for_version(2)
        assert {(one.participant, one.round) for one in members[0].manifest(2).entries} == {(n, 1) for n in NAMES}


@pytest.mark.faults
def test_a_kill_around_an_order_leaves_it_done_once_or_not_at_all(root: Path) -> None:
    """Killed up to 4 ms after it was sent: before its row, after it, or after its answer. Then it is sent again."""
    chance = random.Random(5)
    orders = [order() for _ in range(20)]
    for number, one in enumerate(orders):
        with ServerProcess(root) as server:
            desk = at(server.address)
            desk.stub.GetAdministration(admin_pb2.GetAdministrationRequest(), timeout=10)  # the connection is there
            sent = threading.Thread(
                target=lambda desk=desk, one=one: _ignore(lambda: desk.stub.Pause(admin_pb2.PauseRequest(order=one)))
            )
            sent.start()
            time.sleep(0.004 * chance.random())
            server.stop(signal.SIGKILL)
            sent.join()
        with ServerProcess(root) as server:
            desk = at(server.address)
            repeated = desk.stub.Pause(admin_pb2.PauseRequest(order=one), timeout=10)
            assert repeated.verdict.answer == common_pb2.ANSWER_ACCEPTED
            assert repeated.act.id == len(desk.acts()) == number + 1


@pytest.mark.e2e
def test_an_end_tells_every_watcher_and_the_server_goes(root: Path, senders: list[Sender]) -> None:
    with ServerProcess(root) as server:
        members = clients(server.address, senders)
        submit(members, 0)
        members[0].wait_for_version(1)
        submit(members[:1], 1)
        streams = [client.watch(after=1) for client in members]
        last: list[models_pb2.WatchModelsResponse] = []
        threads = [threading.Thread(target=lambda stream=stream: last.append(list(stream)[-1])) for stream in streams]
        for thread in threads:
            thread.start()
        ended = at(server.address).stub.End(admin_pb2.EndRequest(order=order("enough")), timeout=10)
        assert (ended.act.final_version, ended.act.at_once) == (2, True)
        for thread in threads:
            thread.join(10)
        reason = "an operator ended the federation with version 2 (enough)"
        assert [(one.run_ended.final_version, one.run_ended.reason) for one in last] == [(2, reason)] * 3
        assert [(one.participant, one.round) for one in members[0].manifest(2).entries] == [("a", 1)]
        late = members[1].submit(senders[1].seal(1))
        assert late.verdict.answer == common_pb2.ANSWER_RUN_ENDED
        server.stop()
    with ServerProcess(root) as server:
        status = Client(server.address, senders[0]).status()
        assert (status.final_version, status.waiting_for) == (2, "")
        assert next(iter(Client(server.address, senders[0]).watch(after=2))).run_ended.final_version == 2


@pytest.mark.e2e
def test_a_drained_server_makes_one_more_version_and_ends_by_itself(root: Path, senders: list[Sender]) -> None:
    with ServerProcess(root) as server:
        members = clients(server.address, senders)
        submit(members, 0)
        members[0].wait_for_version(1)
        submit(members[:1], 1)
        drained = at(server.address).stub.Drain(admin_pb2.DrainRequest(order=order()), timeout=10)
        assert drained.standing.is_draining
        submit(members[1:], 1)
        assert server.process.wait(10) == 0
        assert [event["version"] for event in server.events("published")] == [1, 2]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (admin_pb2.PauseRequest(), "order.request_id must be 16 bytes, found 0"),
        (admin_pb2.PauseRequest(order={"request_id": bytes(15)}), "found 15"),
        (admin_pb2.PauseRequest(order={"request_id": bytes(16), "reason": "x" * 501}), "at most 500 characters"),
        (admin_pb2.PauseRequest(order={"request_id": bytes(16), "reason": "a\x1b[2Jb"}), "without control characters"),
    ],
)
def test_malformed_orders_are_refused_and_not_in_the_log(
    shared: ServerProcess, request_: admin_pb2.PauseRequest, expected: str
) -> None:
    desk = at(shared.address)
    with pytest.raises(grpc.RpcError) as failed:
        desk.stub.Pause(request_, timeout=10)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert expected in failed.value.details()
    assert desk.acts() == []


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("orders")
    make_state(root, TERMS)
    configure(root, admin_listen="127.0.0.1:0")
    with ServerProcess(root) as server:
        yield server


@pytest.mark.e2e
def test_the_listener_for_people_takes_orders(shared: ServerProcess) -> None:
    assert at(shared.events("listening_for_admin")[0]["address"]).acts() == []


@pytest.mark.e2e
def test_with_certificates_the_log_names_the_operator(root: Path) -> None:
    pki = Pki(root)
    with open(root / "server.toml", "a") as file:
        file.write(pki.table())
    with ServerProcess(root) as server:
        desk = Desk(pki.channel(server.address, pki.member("carol", "operator")))
        paused = desk.stub.Pause(admin_pb2.PauseRequest(order=order()), timeout=10)
        assert paused.act.who == "carol"
        stranger = Desk(pki.channel(server.address, pki.member("a", "participant")))
        with pytest.raises(grpc.RpcError) as failed:
            stranger.stub.Resume(admin_pb2.ResumeRequest(order=order()), timeout=10)
        assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert [act.who for act in desk.acts()] == ["carol"]
        desk.stub.Resume(admin_pb2.ResumeRequest(order=order()), timeout=10)
        page = desk.stub.GetAdministration(admin_pb2.GetAdministrationRequest(after_id=1, page_size=1), timeout=10)
        assert ([act.id for act in page.acts], page.last_id) == ([2], 2)
        assert page.acts[0].verb == admin_pb2.VERB_RESUME


@pytest.mark.parametrize(
    ("listen", "has_tls", "is_served"),
    [
        ("127.0.0.1:7443", False, True),
        ("[::1]:7443", False, True),
        ("0.0.0.0:7443", False, False),
        ("0.0.0.0:7443", True, True),
    ],
)
def test_orders_are_taken_where_strangers_cannot_give_them(listen: str, has_tls: bool, is_served: bool) -> None:
    assert administration_service.is_served_on(listen, has_tls=has_tls) is is_served


def _ignore(call: Callable[[], object]) -> None:
    with contextlib.suppress(grpc.RpcError):
        call()
