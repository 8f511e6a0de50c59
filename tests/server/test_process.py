"""Whole processes: killed, stopped, doubled, out of disk, and done."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder
from hushgrad.v1 import common_pb2

from tests.support.federations import Owner, Sender, make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(participants=2, final_version=30, window=6, max_delay=2)
ACCEPTED = common_pb2.ANSWER_ACCEPTED


def clients_of(server: ServerProcess, senders: list) -> list[Client]:
    clients = [Client(server.address, sender) for sender in senders]
    for client in clients:
        assert client.join().verdict.answer in (ACCEPTED, common_pb2.ANSWER_RUN_ENDED)
    return clients


def test_killed_again_and_again_the_server_ends_with_the_model_of_a_quiet_run(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    senders = senders_of(TERMS)
    included: dict[tuple[str, int], int] = {}
    round_, kills, wanted = 0, 0, 0
    while round_ < TERMS.final_version:
        with ServerProcess(tmp_path) as server:
            clients = clients_of(server, senders)
            for client in clients:
                view = client.start(round_).participation
                wanted += len(view.wanted_rounds)
                for lost in view.wanted_rounds:
                    # Accepted before the kill, not in a checkpoint: wanted again, and the same bytes are taken.
                    assert client.submit(client.sender.sealed[lost]).verdict.answer == ACCEPTED
            for client in clients:
                # Everything whose version is published is there, whatever was killed.
                for sealed in client.sender.sealed.values():
                    answer = client.submit(sealed)
                    if answer.verdict.answer == common_pb2.ANSWER_DUPLICATE:
                        assert answer.first_answer == ACCEPTED
            last = min(round_ + 5, TERMS.final_version)
            while round_ < last:
                for client in clients:
                    sealed = client.sender.sealed.get(round_) or client.sender.seal(round_)
                    answer = client.submit(sealed)
                    assert answer.verdict.answer in (ACCEPTED, common_pb2.ANSWER_DUPLICATE)
                    included[client.sender.name, round_] = answer.included_in
                if round_ + 1 < last:
                    clients[0].wait_for_version(round_ + 1)
                round_ += 1
            # Half of a round more, then the end without warning.
            if round_ < TERMS.final_version:
                clients[1].submit(clients[1].sender.seal(round_))
            else:
                clients[0].wait_for_version(round_)
            assert server.stop(signal.SIGKILL) == -signal.SIGKILL
            kills += 1
            for client in clients:
                client.close()
    assert kills == 6
    # The twin: kills did lose content that had been accepted.
    assert wanted >= 5
    quiet = Owner(TERMS)
    others = senders_of(TERMS)
    quiet.begin(others)
    for at in range(TERMS.final_version):
        for sender in others:
            quiet.submit(sender, sender.seal(at))
    database = Database.open(StateFolder(tmp_path / "server"))
    assert database.model(30)[0] == quiet.models[30].model
    for version in range(1, 31):
        assert {one.round for one in database.manifest(version)[1]} == {version - 1}
        assert database.model(version)[0] == quiet.models[version].model


def run_again(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hushgrad.server", "run", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=20,
    )


def test_a_second_server_on_the_same_state_or_port_is_refused(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    other = tmp_path / "other"
    other.mkdir()
    make_state(other, TERMS)
    with ServerProcess(tmp_path) as server:
        assert server.ready_seconds < 10
        same_state = run_again(tmp_path)
        same_port = run_again(other, "--listen", server.address)
        client = Client(server.address, senders_of(TERMS)[0])
        assert client.status().server.newest_version == 0
        client.close()
    for result, word in ((same_state, "in use by another server"), (same_port, "another program uses the port")):
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
        assert word in result.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sends_watchers_away_keeps_what_was_accepted_and_exits_with_zero(
    tmp_path: Path, how: signal.Signals
) -> None:
    make_state(tmp_path, TERMS)
    with ServerProcess(tmp_path) as server:
        one, two = clients_of(server, senders_of(TERMS))
        watch = one.watch()
        assert next(watch).published.version == 0
        one.start()
        two.start()
        one.submit(one.sender.seal(0))
        began = time.monotonic()
        assert server.stop(how) == 0
        assert time.monotonic() - began < 3
        assert [event.WhichOneof("event") for event in watch if not event.HasField("heartbeat")] == ["going_away"]
        with pytest.raises(grpc.RpcError):
            two.submit(two.sender.seal(0))
    with ServerProcess(tmp_path) as server:
        again = Client(server.address, one.sender)
        assert again.start().participation.wanted_rounds == [0]
        for client in (one, two, again):
            client.close()


def test_a_store_that_fails_ends_the_process_and_no_answer_rests_on_it(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    database = Database.open(StateFolder(tmp_path / "server"))
    database.close()

    def limit() -> None:
        # The write-ahead log cannot grow beyond this: writes fail as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))

    accepted: list[tuple[str, int]] = []

    def submit_all(clients: list[Client]) -> None:
        for round_ in range(TERMS.final_version):
            for client in clients:
                assert client.submit(client.sender.seal(round_)).verdict.answer == ACCEPTED
                accepted.append((client.sender.name, round_))
            clients[0].wait_for_version(round_ + 1)

    with ServerProcess(tmp_path, preexec=limit) as server:
        clients = clients_of(server, senders_of(TERMS))
        for client in clients:
            client.start()
        with pytest.raises(grpc.RpcError) as caught:
            submit_all(clients)
        failed_at = time.monotonic()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert server.process.wait(timeout=10) == 1
        assert time.monotonic() - failed_at < 2
        assert "hushgrad-server: the store failed" in server.log_path.read_text().splitlines()[-1]
        for client in clients:
            client.close()
    assert len(accepted) > 5
    database = Database.open(StateFolder(tmp_path / "server"))
    stored = {(one.participant, one.round) for one in database.receipts()}
    assert set(accepted) <= stored


def test_after_the_end_the_server_stays_until_everybody_knows_and_then_exits(tmp_path: Path) -> None:
    terms = make_terms(participants=2, final_version=2)
    make_state(tmp_path, terms)
    configure(tmp_path, keep_sealed=True)
    with ServerProcess(tmp_path) as server:
        one, two = clients_of(server, senders_of(terms))
        watches = [client.watch() for client in (one, two)]
        one.start()
        two.start()
        for round_ in range(2):
            for client in (one, two):
                client.submit(client.sender.seal(round_))
        one.wait_for_version(2)
        assert list(watches[0])[-1].HasField("run_ended")
        time.sleep(1.5)
        # The second watch has not been read to its end... but its messages are on their way; both are told.
        assert list(watches[1])[-1].HasField("run_ended")
        assert server.process.wait(timeout=5) == 0
        assert [event["version"] for event in server.events("published")] == [1, 2]
        assert server.events("ended")[0]["final_version"] == 2
        for client in (one, two):
            client.close()
    sealed = tmp_path / "server" / "sealed" / "client-1" / "1.update"
    assert sealed.read_bytes() == one.sender.sealed[1].header + one.sender.sealed[1].payload


def test_after_the_end_an_absent_participant_is_waited_for_only_so_long(tmp_path: Path) -> None:
    terms = make_terms(participants=1, final_version=1)
    make_state(tmp_path, terms)
    configure(tmp_path, linger_seconds=2.5)
    with ServerProcess(tmp_path) as server:
        (one,) = clients_of(server, senders_of(terms))
        one.start()
        one.submit(one.sender.seal(0))
        began = time.monotonic()
        one.close()
        assert server.process.wait(timeout=10) == 0
        assert 2.0 < time.monotonic() - began < 4.5


def test_a_watcher_that_was_cut_off_before_the_end_is_waited_for(tmp_path: Path) -> None:
    terms = make_terms(participants=1, final_version=1)
    make_state(tmp_path, terms)
    with ServerProcess(tmp_path) as server:
        (one,) = clients_of(server, senders_of(terms))
        onlooker = Client(server.address, Sender("onlooker", terms))
        watch = onlooker.watch()
        next(watch)
        watch.cancel()
        one.start()
        one.submit(one.sender.seal(0))
        assert list(one.watch())[-1].HasField("run_ended")
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(timeout=4)
        # Its next try, after the longest wait between two of them.
        assert list(onlooker.watch())[-1].HasField("run_ended")
        assert server.process.wait(timeout=4) == 0
        one.close()
        onlooker.close()


def test_a_server_that_was_killed_waits_after_the_end_for_those_it_does_not_know(tmp_path: Path) -> None:
    terms = make_terms(participants=1, final_version=2)
    make_state(tmp_path, terms)
    senders = senders_of(terms)
    with ServerProcess(tmp_path) as server:
        (one,) = clients_of(server, senders)
        one.start()
        one.submit(one.sender.seal(0))
        one.wait_for_version(1)
        one.close()
        server.stop(signal.SIGKILL)
    with ServerProcess(tmp_path) as server:
        began = time.monotonic()
        (one,) = clients_of(server, senders)
        one.start(1)
        one.submit(one.sender.seal(1))
        assert list(one.watch())[-1].HasField("run_ended")
        one.close()
        assert server.process.wait(timeout=20) == 0
        assert time.monotonic() - began > 8


def test_a_straggler_is_suspended_by_the_clock_of_a_real_server(tmp_path: Path) -> None:
    terms = make_terms(participants=3, final_version=10, straggler_timeout_seconds=0.4)
    make_state(tmp_path, terms)
    with ServerProcess(tmp_path) as server:
        clients = clients_of(server, senders_of(terms))
        for client in clients:
            client.start()
        for client in clients:
            client.submit(client.sender.seal(0))
        for client in clients[1:]:
            client.submit(client.sender.seal(1))
        clients[0].wait_for_version(2, seconds=3)
        assert server.events("suspended")[0]["participant"] == "client-1"
        assert clients[0].submit(clients[0].sender.seal(1)).included_in == 3
        for client in clients:
            client.close()
