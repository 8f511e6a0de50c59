"""What a restart of the server costs, and what it must never show: another content for a version that was seen."""

import random
import signal
import statistics
import threading
import time
from datetime import datetime
from pathlib import Path

import grpc
import pytest
from hushgrad.server import aggregation
from hushgrad.server.aggregation import Aggregate
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder
from hushgrad.server.records import Disposition, ParticipantRecord, Receipt, State
from hushgrad.v1 import common_pb2, models_pb2, models_pb2_grpc

from tests.faults import crowd
from tests.support.federations import Sender, digest_of, make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

pytestmark = pytest.mark.e2e


class Watching:
    """A watcher that comes back after every interruption, and remembers what it saw of each version."""

    def __init__(self, terms_digest: bytes) -> None:
        self._caller = common_pb2.Caller(terms_digest=terms_digest, participant="watcher")
        self._address = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: dict[int, bytes] = {}
        self.changed: list[int] = []
        self.interruptions = 0

    def at(self, address: str) -> None:
        """Names the server's present address."""
        self._address = address
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stopped.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                models = models_pb2_grpc.ModelServiceStub(channel)
                try:
                    # From nothing each time: the newest version comes again, and must be the one that was seen.
                    for event in models.WatchModels(models_pb2.WatchModelsRequest(caller=self._caller), timeout=60):
                        if event.HasField("published"):
                            self._note(event.published.version, event.published.sha256)
                        if self._stopped.is_set():
                            return
                except grpc.RpcError:
                    self.interruptions += 1
                    time.sleep(0.01)

    def _note(self, version: int, sha256: bytes) -> None:
        if self.seen.setdefault(version, sha256) != sha256:
            self.changed.append(version)


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=[pytest.mark.faults, pytest.mark.timeout(300)])])
def test_a_watcher_never_sees_other_content_for_a_version_that_it_has_seen(tmp_path: Path, kills: int) -> None:
    terms = make_terms(participants=2, final_version=20_000, window=8, max_delay=2)
    make_state(tmp_path, terms)
    configure(tmp_path, keep_last=0)
    senders = senders_of(terms)
    watcher = Watching(digest_of(terms))
    chance = random.Random(kills)
    round_ = 0
    for _ in range(kills):
        with ServerProcess(tmp_path) as server:
            watcher.at(server.address)
            timer = threading.Timer(chance.uniform(0.05, 0.4), server.stop, args=(signal.SIGKILL,))
            timer.start()
            round_ = play(server, senders, round_)
            timer.join()
    with ServerProcess(tmp_path) as server:
        watcher.at(server.address)
        client = Client(server.address, senders[0])
        client.join(b"the last process")
        newest = client.status().server.newest_version
        assert max(dict(watcher.seen)) <= newest
        for version, sha256 in dict(watcher.seen).items():
            assert client.model(version)[0].sha256 == sha256
        client.close()
        watcher.stop()
    assert watcher.changed == []
    assert watcher.interruptions >= kills
    assert len(watcher.seen) > kills


def play(server: ServerProcess, senders: list[Sender], round_: int) -> int:
    """Sends rounds until the server dies; returns the round that it came to."""
    clients = [Client(server.address, sender) for sender in senders]
    try:
        for client in clients:
            client.join(server.log_path.name[-16:].encode())
        for client in clients:
            view = client.start(round_).participation
            for lost in {*view.wanted_rounds, *(each for each in client.sender.sealed if each >= round_ - 2)}:
                client.submit(client.sender.sealed[lost])
        while True:
            for client in clients:
                client.submit(client.sender.sealed.get(round_) or client.sender.seal(round_))
            clients[0].wait_for_version(round_ + 1)
            round_ += 1
    except grpc.RpcError:
        return round_
    finally:
        for client in clients:
            client.close()


@pytest.mark.faults
def test_with_ten_thousand_versions_in_its_store_a_server_serves_within_two_seconds(tmp_path: Path) -> None:
    terms = make_terms(participants=2, final_version=20_000, window=8)
    make_state(tmp_path, terms)
    configure(tmp_path, keep_last=0)
    fill(tmp_path, terms, versions=10_000)
    seconds = []
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        with ServerProcess(tmp_path) as server:
            seconds.append(server.ready_seconds)
            client = Client(server.address, senders_of(terms)[0])
            assert client.status().server.newest_version == 10_000
            assert client.model(5_000)[0].total_bytes == 20
            client.close()
            server.stop(how)
    print(f"serving after {', '.join(f'{each:.2f}' for each in seconds)} s")
    assert statistics.median(seconds) < 2


def fill(root: Path, terms, *, versions: int) -> None:
    """Writes so many versions of two participants, as a server would have, in few transactions."""
    database = Database.open(StateFolder(root / "server"))
    grids = {"grid_exponent": terms.grid_exponent, "step_exponent": terms.step_exponent}
    aggregate = Aggregate(database.snapshot(terms).array, final_version=terms.final_version, **grids)
    names = ("client-1", "client-2")
    database.begin()
    for name in names:
        database.write([ParticipantRecord(name, State.ACTIVE, 1, (), ((0, None),), 0, 0)])
    for version in range(1, versions + 1):
        digest = version.to_bytes(32, "big")
        for name in names:
            aggregate.fold(version.to_bytes(4, "little") * terms.parameters, terms.step_numerator(version - 1))
            database.write(
                [Receipt(name, version - 1, digest, version, digest, digest, Disposition.INCLUDED, "", version)]
            )
        published = aggregate.freeze(version).publish()
        aggregate.published(published)
        database.checkpoint(published, version - 1, [(name, version - 1) for name in names], (), 0)
        if version % 1000 == 0:
            database.commit()
            database.begin()
    database.commit()
    database.close()
    assert aggregation.defect(bytes(4 * terms.parameters), terms.parameters) is None


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_after_an_outage_clients_are_back_within_a_second_at_the_median(tmp_path: Path) -> None:
    with crowd.crowd(tmp_path / "run", clients=5, rounds=2000, round_seconds=0.05) as federation:
        federation.start_server()
        federation.start_clients()
        federation.wait(lambda: federation.version >= 3, 90, "version 3")
        medians = {}
        for outage in (1.0, 5.0, 30.0):
            times = []
            for _ in range(1 if outage > 10 else 2):
                federation.kill("server")
                time.sleep(outage)
                before = {name: len(answers(federation, name)) for name in federation.names}
                federation.start_server()
                served = stamp(federation.events("server", "listening")[-1])
                federation.wait(
                    lambda before=before: all(
                        len(answers(federation, name)) > before[name] for name in federation.names
                    ),
                    30,
                    "an answer for everybody",
                )
                times += [stamp(answers(federation, name)[before[name]]) - served for name in federation.names]
                time.sleep(1)
            medians[outage] = statistics.median(times)
            print(f"outage {outage:g} s: back after {medians[outage]:.2f} s at the median, {max(times):.2f} s at most")
        assert all(each < 1 for each in medians.values()), medians
        for name in federation.names:
            assert federation.kill(name, signal.SIGTERM) == 0


def answers(federation: crowd.Crowd, name: str) -> list[dict]:
    """Returns the events by which a client says that the server answers: after an outage, its first word."""
    return federation.events(name, "server_answers_again")


def stamp(event: dict) -> float:
    """Returns when an event was logged, in seconds."""
    return datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
