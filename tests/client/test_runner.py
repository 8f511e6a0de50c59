"""Whole runs of one client against a small honest server: what reaches the wire, and what a restart does."""

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from hushgrad.client import delay, dpsgd, events, ledger, retry, store, watcher
from hushgrad.client.errors import ConflictError, InputError
from hushgrad.client.ledger import Ledger, LedgerWriteError
from hushgrad.client.messages import ServerState
from hushgrad.client.runner import Outcome, Runner
from hushgrad.client.session import Facts
from hushgrad.client.stream import RandomStream
from hushgrad.client.transport import Transport
from hushgrad.v1 import common_pb2, membership_pb2
from hushgrad.wire import header
from hushgrad.wire.terms import Limits

from tests.support import client_world
from tests.support.client_world import PARTICIPANT
from tests.support.fake_server import FakeServer


class Training:
    """Makes updates that nobody has made before, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, npt.NDArray[np.float64]]] = []
        self.first_words: list[int] = []
        self.updates: list[npt.NDArray[np.int32]] = []

    def __call__(self, parameters: npt.NDArray[np.float64], round_: int, stream: RandomStream) -> npt.NDArray[np.int32]:
        words = stream.uint64("noise", parameters.size)
        self.calls.append((round_, parameters))
        self.first_words.append(int(words[0]))
        self.updates.append((words % 1000).astype(np.int32))
        return self.updates[-1]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.01)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(client_world.make_terms())


@pytest.fixture
def address(server: FakeServer) -> Iterator[str]:
    with server.serving() as found:
        yield found


def make_book(folder: Path, server: FakeServer) -> Ledger:
    terms = server.terms
    return client_world.make_ledger(
        folder, rounds=terms.final_version, parameters=terms.parameters, terms_digest=server.digest
    )


def make_runner(server: FakeServer, address: str, book: Ledger, training: Any, *, leaving: bool = False) -> Runner:
    terms = server.terms
    transport = Transport(address, PARTICIPANT)
    transport.use_terms(server.digest, terms.limits)
    committed = book.committed(server.digest)
    assert committed is not None
    return Runner(
        transport=transport,
        ledger=book,
        committed=committed,
        terms=terms,
        make_update=training,
        facts=Facts(terms.final_version, terms.window, terms.straggler_timeout_seconds, delay.of(terms)),
        leaving=leaving,
    )


def run(server: FakeServer, address: str, book: Ledger, training: Any) -> Outcome:
    return make_runner(server, address, book, training).run()


def stop_when(runner: Runner, condition: Any) -> None:
    """Asks the runner to stop as soon as the condition holds."""

    def wait() -> None:
        pause = threading.Event()
        for _ in range(1000):
            if condition():
                break
            pause.wait(0.01)
        runner.stop()

    threading.Thread(target=wait, daemon=True).start()


def test_a_newer_model_is_taken_only_when_the_core_hears_of_it(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    # The news of a version come as two events, and after the first the core may still order a round from the old one.
    with make_book(tmp_path, server) as book:
        runner = make_runner(server, address, book, Training())
        runner._model = (1, b"old")
        steps = runner._translate(watcher.ModelReceived(ServerState(1, 2, 2), 2, b"new", False))
        assert next(steps) == events.ServerSeen(ServerState(1, 2, 2))
        assert runner._model == (1, b"old")
        assert next(steps) == events.ModelArrived(2)
        assert runner._model == (2, b"new")


def test_a_run_seals_every_round_once_and_ends_with_the_federation(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    training = Training()
    with make_book(tmp_path, server) as book:
        outcome = run(server, address, book, training)
        assert outcome == Outcome("ended", 6, 6)
        assert [round_ for round_, _ in training.calls] == list(range(6))
        digests = {(PARTICIPANT, entry.round): entry.digest for entry in book.entries(server.digest)}
        assert {key: digest for key, (digest, _) in server.receipts.items()} == digests
    ledger.verify(tmp_path)


def test_no_two_rounds_draw_from_one_key(tmp_path: Path, server: FakeServer, address: str) -> None:
    training = Training()
    with make_book(tmp_path, server) as book:
        run(server, address, book, training)
    # 64-bit words: two equal ones among six by chance have probability 15 * 2^-64.
    assert len(set(training.first_words)) == 6


def test_a_client_that_leaves_sends_what_is_sealed_and_draws_nothing(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    with make_book(tmp_path, server) as book:
        book.seal(server.digest, 0, bytes(4 * server.terms.parameters))
        training = Training()
        outcome = make_runner(server, address, book, training, leaving=True).run()
        assert outcome.reason == "left"
        assert training.calls == []
        assert set(server.receipts) == {(PARTICIPANT, 0)}
        assert [request.exit_round for request in server.calls("Leave")] == [1]


def test_the_client_takes_its_own_step_at_once(tmp_path: Path, server: FakeServer, address: str) -> None:
    server.hold_versions = True
    training = Training()
    with make_book(tmp_path, server) as book:
        runner = make_runner(server, address, book, training)
        stop_when(runner, lambda: len(server.receipts) == 2)
        runner.run()
    (first, start), (second, stepped) = training.calls
    assert (first, second) == (0, 1)
    assert start.tolist() == [0.0] * server.terms.parameters
    expected = dpsgd.apply(
        start,
        training.updates[0],
        step_numerator=server.terms.step_numerator(0),
        step_exponent=server.terms.step_exponent,
        grid_exponent=server.terms.grid_exponent,
    )
    assert stepped.tolist() == expected.tolist()


def test_a_stopped_run_goes_on_where_it_was_and_never_seals_a_round_again(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    server.hold_versions = True
    training = Training()
    with make_book(tmp_path, server) as book:
        runner = make_runner(server, address, book, training)
        stop_when(runner, lambda: len(server.receipts) == 2)
        assert runner.run().reason == "stopped"
        before = {entry.round: entry.digest for entry in book.entries(server.digest)}
    server.release()
    with Ledger(tmp_path) as book:
        assert run(server, address, book, training).reason == "ended"
        after = {entry.round: entry.digest for entry in book.entries(server.digest)}
    assert before.items() <= after.items()
    assert [round_ for round_, _ in training.calls] == list(range(6))
    joins = server.calls("Join")
    assert len(joins) == 2
    assert joins[0].join_id != joins[1].join_id
    ledger.verify(tmp_path)


def test_a_lost_answer_is_followed_by_the_same_bytes(tmp_path: Path, server: FakeServer, address: str) -> None:
    server.faults["SubmitUpdate"] = ["answer lost", grpc.StatusCode.UNAVAILABLE, None, "answer lost"]
    server.faults["Join"] = ["answer lost"]
    server.faults["Start"] = [grpc.StatusCode.DEADLINE_EXCEEDED]
    with make_book(tmp_path, server) as book:
        assert run(server, address, book, Training()).reason == "ended"
    sent: dict[int, set[bytes]] = {}
    for request in server.calls("SubmitUpdate"):
        sent.setdefault(header.unpack(request.header).round, set()).add(request.header + request.payload)
    assert {round_: len(payloads) for round_, payloads in sent.items()} == dict.fromkeys(range(6), 1)
    assert len(server.calls("SubmitUpdate")) == 6 + 3
    first, second = server.calls("Join")
    assert first.join_id == second.join_id


def test_busy_is_waited_for(tmp_path: Path, server: FakeServer, address: str) -> None:
    def busy(answer: Any) -> Any:
        answer.verdict.answer = common_pb2.ANSWER_BUSY
        answer.verdict.retry_after_milliseconds = 20
        return answer

    server.faults["Join"] = [busy]
    server.faults["Start"] = [busy]
    with make_book(tmp_path, server) as book:
        assert run(server, address, book, Training()) == Outcome("ended", 6, 6)


def test_large_models_and_updates_travel_in_chunks_through_interruptions(tmp_path: Path) -> None:
    limits = Limits(max_unary_bytes=65_536, max_chunk_bytes=65_536, max_inline_model_bytes=0)
    server = FakeServer(client_world.make_terms(features=300_000, final_version=2, limits=limits))
    server.faults["GetModel"] = [None, grpc.StatusCode.UNAVAILABLE]
    server.faults["UploadChunk"] = [None, None, grpc.StatusCode.UNAVAILABLE]
    with server.serving() as address, make_book(tmp_path, server) as book:
        assert run(server, address, book, Training()) == Outcome("ended", 2, 2)
        assert [start.offset for start in server.calls("UploadUpdate")][:2] == [0, 2 * 65_536]
        assert list((tmp_path / store.PAYLOAD_FOLDER).iterdir()) == []  # covered by the watermark
    ledger.verify(tmp_path)


def test_a_ledger_that_was_rolled_back_halts_before_anything_is_drawn(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    server.anchors[PARTICIPANT] = (9, b"h" * 32)
    training = Training()
    with make_book(tmp_path, server) as book:
        with pytest.raises(ConflictError, match="rolled back, copied or made anew") as caught:
            run(server, address, book, training)
        assert caught.value.exit_code == 5
        assert book.position[0] == 2
    assert training.calls == []


@pytest.mark.parametrize("word", ["CONFLICT", "STALE_SESSION", "WRONG_TERMS", "UNKNOWN_PARTICIPANT"])
def test_conflicts_end_the_process_and_keep_the_bytes(
    tmp_path: Path, server: FakeServer, address: str, word: str
) -> None:
    def say(answer: Any) -> Any:
        answer.verdict.answer = common_pb2.Answer.Value(f"ANSWER_{word}")
        return answer

    server.hold_versions = True
    server.faults["SubmitUpdate"] = [say]
    with make_book(tmp_path, server) as book:
        with pytest.raises(ConflictError, match=word):
            run(server, address, book, Training())
        assert book.sendable(server.digest, 0).round == 0
    assert len(server.calls("SubmitUpdate")) == 1


def test_a_suspended_client_starts_again_before_it_spends(tmp_path: Path, server: FakeServer, address: str) -> None:
    def suspend(answer: Any) -> Any:
        server.states[PARTICIPANT] = membership_pb2.PARTICIPATION_STATE_SUSPENDED
        answer.participation.state = server.states[PARTICIPANT]
        return answer

    server.faults["SubmitUpdate"] = [suspend]
    with make_book(tmp_path, server) as book:
        assert run(server, address, book, Training()).reason == "ended"
    first, second = server.calls("Start")
    assert first.next_round == 0
    assert second.next_round > 0


def test_bytes_that_rot_on_disk_become_void_and_the_federation_goes_on(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    server.faults["SubmitUpdate"] = [grpc.StatusCode.UNAVAILABLE] * 1000
    with make_book(tmp_path, server) as book:
        runner = make_runner(server, address, book, Training())
        stop_when(runner, lambda: len(book.spent(server.digest)) == 2)
        runner.run()
    server.faults["SubmitUpdate"] = []
    connection = sqlite3.connect(tmp_path / store.LEDGER_NAME)
    connection.execute("UPDATE outbox SET payload = zeroblob(length(payload)) WHERE round = 0")
    connection.commit()
    connection.close()

    training = Training()
    with Ledger(tmp_path) as book:
        assert run(server, address, book, training).reason == "ended"
        assert {entry.round: entry.reason for entry in book.entries(server.digest)}[0] == "VOID"
    assert [round_ for round_, _ in training.calls] == [2, 3, 4, 5]
    (report,) = server.calls("ReportRounds")
    assert [(entry.round, entry.fate) for entry in report.reports] == [(0, membership_pb2.RoundReport.FATE_VOID)]
    ledger.verify(tmp_path)


def test_a_restarted_server_gets_the_same_bytes_of_what_it_wants(
    tmp_path: Path, server: FakeServer, address: str
) -> None:
    server.hold_versions = True
    with make_book(tmp_path, server) as book:
        runner = make_runner(server, address, book, Training())
        stop_when(runner, lambda: [entry.state for entry in book.entries(server.digest)] == ["accepted"] * 2)
        runner.run()
    server.wanted[PARTICIPANT] = [0, 1]
    server.release()
    before = {header.unpack(request.header).round: request.payload for request in server.calls("SubmitUpdate")}
    with Ledger(tmp_path) as book:
        assert run(server, address, book, Training()).reason == "ended"
    repeats = [header.unpack(request.header).round for request in server.calls("SubmitUpdate")]
    assert repeats.count(0) == 2
    assert repeats.count(1) == 2
    for request in server.calls("SubmitUpdate"):
        round_ = header.unpack(request.header).round
        assert round_ not in before or request.payload == before[round_]


def test_another_initial_model_than_the_terms_is_refused(tmp_path: Path, server: FakeServer, address: str) -> None:
    server.versions[0] = np.ones(server.terms.parameters, "<f4").tobytes()
    training = Training()
    with make_book(tmp_path, server) as book, pytest.raises(InputError, match="initial model has SHA-256"):
        run(server, address, book, training)
    assert training.calls == []


def test_a_model_of_another_size_halts(tmp_path: Path, server: FakeServer, address: str) -> None:
    server.versions[0] = bytes(8)
    with make_book(tmp_path, server) as book, pytest.raises(ConflictError, match="must have 16 bytes"):
        run(server, address, book, Training())


def test_a_full_disk_ends_the_process_and_nothing_leaves(tmp_path: Path, server: FakeServer, address: str) -> None:
    make_book(tmp_path, server).close()

    def full(step: str) -> None:
        if step == "before commit":
            raise sqlite3.OperationalError("database or disk is full")

    with Ledger(tmp_path, failpoint=full) as book, pytest.raises(LedgerWriteError, match="disk is full"):
        run(server, address, book, Training())
    assert server.calls("SubmitUpdate") == []
    with Ledger(tmp_path) as book:
        assert book.spent(server.digest) == frozenset()


def test_a_mistake_in_training_ends_the_process(tmp_path: Path, server: FakeServer, address: str) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a mistake")

    with make_book(tmp_path, server) as book, pytest.raises(ZeroDivisionError):
        run(server, address, book, broken)


def test_backoff_doubles_up_to_its_limit_and_takes_hints() -> None:
    backoff = retry.Backoff(chance=lambda: 0.0)
    backoff._seconds = 0.2
    assert [backoff.next() for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.next(hint_seconds=9.0) == 9.0
    jittered = retry.Backoff(chance=itertools.cycle([0.999]).__next__)
    jittered._seconds = 1.0
    assert 0.5 <= jittered.next() < 0.51
