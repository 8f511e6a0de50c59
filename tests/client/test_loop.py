"""Loops that people write: what they may do, what they may do wrong, and that the ledger tells the truth either way."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hushgrad.client
import numpy as np
import pytest
import structlog
from hushgrad.client import clipping, ledger, models, retry
from hushgrad.client.clipping import GradientError
from hushgrad.client.errors import ConflictError, InputError
from hushgrad.client.ledger import LedgerWriteError
from hushgrad.client.loop import LoopSession
from hushgrad.client.rounds import LoopError, Round
from hushgrad.client.rows import Committed
from hushgrad.v1 import models_pb2
from hushgrad.wire import header
from hushgrad.wire.arrays import ArraySpec

from tests.support import client_world
from tests.support.fake_server import FakeServer

CONFIG = """
participant = "client-1"
server = "{server}"
state = "state"
connect_timeout_seconds = 0.5
[model]
kind = "own-loop"
[privacy]
records = 100
clip_norm = 0.5
noise_multiplier = 4.0
sampler = "poisson"
epsilon = {epsilon}
delta = 1e-5
lifetime_epsilon = {epsilon}
lifetime_delta = 1e-5
"""
RNG = np.random.default_rng(5)
X = RNG.random((100, 3))
Y = (X[:, 0] > 0.5).astype(np.int64)
DATA = {"X": X, "y": Y}
D = 4


def gradients(round_: Round) -> np.ndarray:
    """Per-example gradients of logistic regression, shape (n, 4): weights, then bias."""
    w, b = round_.arrays["weights"], round_.arrays["bias"]
    x, sign = X[round_.rows], 2.0 * Y[round_.rows] - 1
    residual = -sign / (1 + np.exp(sign * (x @ w + b)))
    return residual[:, np.newaxis] * np.column_stack([x, np.ones(len(x))])


class World:
    """A folder with a configuration, a ledger for DATA, and a server."""

    def __init__(self, folder: Path, server: FakeServer, address: str, *, epsilon: float = 1.0) -> None:
        self.folder, self.server = folder, server
        self.config = folder / "client.toml"
        self.config.write_text(CONFIG.format(server=address, epsilon=epsilon))
        hushgrad.client.make_ledger(self.config, data=DATA)

    def connect(self, **keywords: object) -> LoopSession:
        keywords = {"gradient_error": 0.0, "data": DATA, **keywords}
        return hushgrad.client.connect(self.config, **keywords)  # type: ignore[arg-type]

    def rows(self, kind: str) -> list[int | None]:
        """The rounds of the ledger's rows of that kind; the whole chain is verified on the way."""
        return [row.round for row in ledger.verify(self.folder / "state").rows if row.kind == kind]

    def committed(self) -> Committed:
        return ledger.read(self.folder / "state").runs[0]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HUSHGRAD_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.01)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    server = FakeServer(client_world.make_terms())
    with server.serving() as address:
        yield World(tmp_path, server, address)


# The good way.


def test_a_loop_seals_every_round_once_and_ends_with_the_federation(world: World) -> None:
    numbers = []
    with world.connect() as session:
        for round_ in session.rounds():
            numbers.append(round_.number)
            assert round_.submit(per_example_gradients=gradients(round_))
    assert numbers == list(range(6))
    assert session.outcome is not None
    assert session.outcome.reason == "ended"
    assert world.rows("update") == numbers
    assert {round_ for _, round_ in world.server.receipts} == set(numbers)


def test_what_is_released_is_the_clipped_sum_plus_noise_of_the_declared_scale(tmp_path: Path) -> None:
    # 100 rounds of 4 coordinates: a chi-square variable with 400 degrees of freedom. It leaves 400 +- 6 standard
    # deviations with probability below 1e-7. The twin: sums of unclipped gradients are far outside.
    terms = client_world.make_terms(final_version=100)
    sums, unclipped = [], []
    server = FakeServer(terms)
    with server.serving() as address:
        world = World(tmp_path, server, address, epsilon=9.0)
        with world.connect() as session:
            for round_ in session.rounds():
                rows = 3.0 * gradients(round_)
                factors = np.minimum(1.0, 0.5 / np.linalg.norm(rows, axis=1))
                sums.append(factors @ rows)
                unclipped.append(rows.sum(axis=0))
                round_.submit(per_example_gradients=rows)
    requests = {header.unpack(request.header).round: request.payload for request in server.calls("SubmitUpdate")}
    payloads = [np.frombuffer(requests[number], "<i4") for number in range(100)]
    released = np.ldexp(np.array(payloads, np.float64), terms.grid_exponent)
    scale = 4.0 * 0.5
    assert abs(float((((released - np.array(sums)) / scale) ** 2).sum()) - 400) < 6 * np.sqrt(2 * 400)
    assert abs(float((((released - np.array(unclipped)) / scale) ** 2).sum()) - 400) > 12 * np.sqrt(2 * 400)


@pytest.mark.parametrize("form", ["array", "float32", "mapping", "chunks", "generator", "mappings"])
def test_gradients_may_come_in_any_form(form: str) -> None:
    arrays = (ArraySpec("weights", (3,)), ArraySpec("bias", ()))
    rows = RNG.standard_normal((7, D)).astype(np.float32)
    named = {"bias": rows[:, 3], "weights": rows[:, :3]}
    forms = {
        "array": rows.astype(np.float64),
        "float32": rows,
        "mapping": named,
        "chunks": [rows[:2], rows[2:2], rows[2:]],
        "generator": (rows[at : at + 3] for at in range(0, 7, 3)),
        "mappings": [{name: part[:4] for name, part in named.items()}, {n: part[4:] for n, part in named.items()}],
    }
    exact = rows.astype(np.float64)
    expected = (np.minimum(1, 0.5 / np.linalg.norm(exact, axis=1))[:, np.newaxis] * exact).sum(axis=0)
    found = clipping.clipped_sum(clipping.chunks_of(forms[form]), arrays=arrays, examples=7, clip_norm=0.5)
    np.testing.assert_allclose(found.total, expected, rtol=1e-13)


def test_a_loop_waits_as_the_permissible_delay_asks(world: World) -> None:
    world.server.hold_versions = True  # version 0 and a delay of 1: rounds 0 and 1 may be made, round 2 may not
    made: list[tuple[int, int]] = []
    session = world.connect()

    def loop() -> None:
        with session:
            for round_ in session.rounds():
                made.append((round_.number, len(world.server.versions) - 1))
                round_.submit(per_example_gradients=gradients(round_))

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while len(world.server.receipts) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.join(0.3)
    assert [number for number, _ in made] == [0, 1]
    world.server.release()
    thread.join(60)
    assert not thread.is_alive()
    assert [number for number, _ in made] == list(range(6))
    assert all(version >= number - 1 for number, version in made)


def test_rows_are_drawn_anew_for_every_round_and_as_often_as_declared(tmp_path: Path) -> None:
    # 60 rounds of 100 rows with q = 0.08: 480 +- 21 chosen rows; six of them leave a false alarm of 2e-9.
    server = FakeServer(client_world.make_terms(final_version=60))
    with server.serving() as address:
        world, chosen = World(tmp_path, server, address, epsilon=9.0), []
        with world.connect() as session:
            for round_ in session.rounds():
                chosen.append(tuple(round_.rows.tolist()))
                round_.submit(per_example_gradients=gradients(round_))
    assert abs(sum(map(len, chosen)) - 480) < 6 * 21
    assert len(set(chosen)) > 55


def test_a_loop_gives_the_same_sums_as_the_built_in_model(world: World) -> None:
    model = models.make("logistic", features=3)
    with world.connect() as session:
        for round_ in session.rounds():
            own = clipping.clipped_sum(
                [gradients(round_)], arrays=session.arrays, examples=len(round_.rows), clip_norm=0.5
            )
            built_in = model.clipped_sum(round_.parameters, X[round_.rows], Y[round_.rows], 0.5)
            np.testing.assert_allclose(own.total, built_in.total, atol=1e-12)
            round_.submit(per_example_gradients=gradients(round_))


def test_errors_of_the_caller_s_arithmetic_are_charged(world: World) -> None:
    with world.connect(gradient_error=1e-3) as session:
        claim = session.claim
    (group,) = world.committed().schedule
    # Delta / C = 1 + 2 * 64 * 1e-3 (n_max is 64), the grid and float64 far below 1e-4 of it.
    assert group.charged_noise_multiplier == pytest.approx(4.0 / (1 + 2 * 64 * 1e-3), rel=1e-4)
    assert claim.epsilon == world.committed().epsilon
    with pytest.raises(InputError, match="charged_noise_multiplier"):
        world.connect(gradient_error=0.0)
    with pytest.raises(GradientError, match="gradient_error must be"):
        world.connect(gradient_error=0.5)


def test_gradients_longer_than_the_clip_norm_weigh_the_clip_norm_exactly() -> None:
    arrays = (ArraySpec("w", (1000,)),)
    for length in (1e-300, 1e-160, 1e-8, 0.4999999, 0.5, 0.5000001, 1.0, 1e8, 1e150):
        row = RNG.standard_normal((1, 1000))
        row *= length / np.linalg.norm(row)
        total = clipping.clipped_sum([row], arrays=arrays, examples=1, clip_norm=0.5).total
        # The norm in exact integers, so that no rounding of this test's own hides one.
        square = sum(int(np.ldexp(value, 200)) ** 2 for value in total)
        limit = int(np.ldexp(0.5 * (1 + clipping.CLIP_ERROR), 200)) ** 2
        assert square <= limit
        assert np.linalg.norm(total) == pytest.approx(min(length, 0.5), rel=1e-11)


# What is private is no reason to stop.


def test_a_gradient_that_is_not_finite_counts_as_zero_and_the_round_is_sent(world: World) -> None:
    with world.connect() as session:
        for round_ in session.rounds():
            rows = gradients(round_)
            if len(rows):
                rows[0, 1] = np.nan
            assert round_.submit(per_example_gradients=rows)
            assert round_.zeroed == min(1, len(rows))
    assert world.rows("update") == list(range(6))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_bad_row_leaves_the_others_as_they_are(bad: float) -> None:
    arrays = (ArraySpec("w", (3,)),)
    rows = RNG.standard_normal((5, 3))
    rows[2] = [bad, 1.0, bad]
    found = clipping.clipped_sum([rows], arrays=arrays, examples=5, clip_norm=0.5)
    without = clipping.clipped_sum([np.delete(rows, 2, axis=0)], arrays=arrays, examples=4, clip_norm=0.5)
    np.testing.assert_allclose(found.total, without.total, rtol=1e-15)
    assert found.zeroed == 1


def test_a_round_without_rows_is_sent_like_any_other(tmp_path: Path) -> None:
    server = FakeServer(client_world.make_terms(sample_size=1))
    with server.serving() as address:
        world = World(tmp_path, server, address)
        with world.connect() as session:
            for round_ in session.rounds():
                assert round_.submit(per_example_gradients=np.zeros((len(round_.rows), D)))
        assert world.rows("update") == list(range(6))
    assert clipping.clipped_sum([], arrays=(ArraySpec("w", (3,)),), examples=0, clip_norm=1.0).total.tolist() == [0] * 3


# Misuse: nothing is spent, and the session is usable or says that it is not.

WRONG = {
    "one row too few": (lambda g: g[1:], "found"),
    "one row too many": (lambda g: np.concatenate([g, g[:1]]), "found more"),
    "another width": (lambda g: g[:, :3], r"shape \(n, 4\)"),
    "summed already": (lambda g: g.sum(axis=0), r"shape \(n, 4\)"),
    "whole numbers": (lambda g: g.astype(np.int32), "float16, float32 or float64, found int32"),
    "objects": (lambda g: g.astype(object), "found object"),
    "other names": (lambda g: {"w": g[:, :3], "bias": g[:, 3]}, "must be named"),
    "other shapes": (lambda g: {"weights": g, "bias": g[:, 3]}, r"'weights' must have shape \(n, 3\)"),
    "unequal parts": (lambda g: {"weights": g[1:, :3], "bias": g[:, 3]}, "as many examples"),
    "nothing": (lambda g: [], "found 0"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_submission_is_refused_and_the_round_stays_open(world: World, mistake: str) -> None:
    spoil, complaint = WRONG[mistake]
    tried = False
    with world.connect() as session:
        for round_ in session.rounds():
            good = gradients(round_)
            if len(good) >= 2 and not tried:
                tried, before = True, world.rows("update")
                with pytest.raises(GradientError, match=complaint):
                    round_.submit(per_example_gradients=spoil(good))
                assert world.rows("update") == before
            assert round_.submit(per_example_gradients=good)
    assert tried
    assert world.rows("update") == list(range(6))


def test_a_second_submission_and_one_of_an_old_round_are_refused(world: World) -> None:
    old: Round | None = None
    with world.connect() as session:
        for round_ in session.rounds():
            if old is not None:
                with pytest.raises(LoopError, match=f"round {old.number} was submitted before"):
                    old.submit(per_example_gradients=np.zeros((len(old.rows), D)))
            round_.submit(per_example_gradients=gradients(round_))
            with pytest.raises(LoopError, match=f"round {round_.number} was submitted before"):
                round_.submit(per_example_gradients=gradients(round_))
            old = round_
    assert world.rows("update") == list(range(6))


def test_a_submission_inside_a_submission_is_refused(world: World) -> None:
    with world.connect() as session:
        round_ = next(session.rounds())

        def chunks() -> Iterator[np.ndarray]:
            with pytest.raises(LoopError, match="is being submitted"):
                round_.submit(per_example_gradients=gradients(round_))
            yield gradients(round_)

        assert round_.submit(per_example_gradients=chunks())
    assert world.rows("update") == [0]


def test_a_loop_that_forgets_to_submit_is_told_and_gets_the_round_again(world: World) -> None:
    with world.connect() as session:
        rounds = session.rounds()
        forgotten = next(rounds)
        with pytest.raises(LoopError, match="round 0 was not submitted"):
            next(rounds)
        again = next(session.rounds())
        assert again is forgotten
        assert again.submit(per_example_gradients=gradients(again))
    assert world.rows("update") == [0]


def test_an_error_in_the_loop_spends_nothing_and_the_round_comes_again_with_the_same_rows(world: World) -> None:
    seen = []

    def faulty(session: LoopSession) -> None:
        for round_ in session.rounds():
            seen.append(round_)
            raise ZeroDivisionError

    with world.connect() as session:
        with pytest.raises(ZeroDivisionError):
            faulty(session)
        assert world.rows("update") == []
        for round_ in session.rounds():
            if round_.number == 0:
                assert round_.rows is seen[0].rows
            round_.submit(per_example_gradients=gradients(round_))
    assert world.rows("update") == list(range(6))


def test_an_error_in_a_generator_of_chunks_spends_nothing(world: World) -> None:
    def chunks(round_: Round) -> Iterator[np.ndarray]:
        yield gradients(round_)[:1]
        raise ZeroDivisionError

    with world.connect() as session:
        round_ = next(session.rounds())
        with pytest.raises(ZeroDivisionError):
            round_.submit(per_example_gradients=chunks(round_))
        assert world.rows("update") == []
        assert round_.submit(per_example_gradients=gradients(round_))
    assert world.rows("update") == [0]


def test_leaving_the_block_by_an_error_closes_the_session_and_the_next_one_goes_on(world: World) -> None:
    session = world.connect()

    def faulty() -> None:
        with session:
            for round_ in session.rounds():
                if round_.number == 2:
                    raise ZeroDivisionError
                round_.submit(per_example_gradients=gradients(round_))

    with pytest.raises(ZeroDivisionError):
        faulty()
    assert session.outcome is not None
    assert session.outcome.reason == "stopped"
    assert world.rows("update") == [0, 1]
    with world.connect() as session:
        numbers = [
            round_.number for round_ in session.rounds() if round_.submit(per_example_gradients=gradients(round_))
        ]
    assert numbers == [2, 3, 4, 5]


def test_a_round_kept_after_the_session_was_closed_is_not_sealed(world: World) -> None:
    with world.connect() as session:
        round_ = next(session.rounds())
    assert round_.submit(per_example_gradients=gradients(round_)) is False
    assert list(session.rounds()) == []
    session.close()
    assert world.rows("update") == []


def test_a_federation_that_ends_meanwhile_ends_the_loop_and_spends_nothing(world: World) -> None:
    def end(message: Any) -> Any:
        return models_pb2.WatchModelsResponse(server=message.server, run_ended=models_pb2.RunEnded(final_version=6))

    with world.connect() as session:
        for round_ in session.rounds():
            if round_.number == 3:
                world.server.faults["WatchMessage"] += [None, end]
                deadline = time.monotonic() + 60
                while session.outcome is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert round_.submit(per_example_gradients=gradients(round_)) is False
            else:
                assert round_.submit(per_example_gradients=gradients(round_))
    assert session.outcome is not None
    assert session.outcome.reason == "ended"
    assert world.rows("update") == [0, 1, 2]


def test_rows_and_parameters_cannot_be_written_to(world: World) -> None:
    with world.connect() as session:
        round_ = next(session.rounds())
        for array in (round_.rows, round_.parameters, round_.arrays["weights"]):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


# Crashes.


@pytest.mark.parametrize("step", ["before payload", "before row", "between row and outbox", "before commit"])
def test_a_crash_before_the_seal_has_spent_nothing(world: World, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(BaseException):
        pass

    def fail(at: str) -> None:
        if at == step:
            raise Crash

    with world.connect() as session:
        round_ = next(session.rounds())
        monkeypatch.setattr(session._worker._ledger, "_failpoint", fail)
        with pytest.raises(Crash):
            round_.submit(per_example_gradients=gradients(round_))
        with pytest.raises(Crash):
            next(session.rounds())
    assert world.rows("update") == []


def test_a_crash_after_the_seal_sends_the_same_bytes_and_draws_nothing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def fail(at: str) -> None:
        if at == "after commit":
            raise Crash

    with world.connect() as session:
        round_ = next(session.rounds())
        monkeypatch.setattr(session._worker._ledger, "_failpoint", fail)
        with pytest.raises(Crash):
            round_.submit(per_example_gradients=gradients(round_))
    (row,) = [row for row in ledger.verify(world.folder / "state").rows if row.kind == "update"]
    with world.connect() as session:
        for round_ in session.rounds():
            assert round_.number > 0
            round_.submit(per_example_gradients=gradients(round_))
    assert world.server.receipts["client-1", 0][0] == row.digest
    assert world.rows("update") == list(range(6))


def test_a_full_disk_ends_the_session_with_what_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.connect() as session:
        round_ = next(session.rounds())

        def full(*_: object) -> None:
            raise LedgerWriteError("no space")

        monkeypatch.setattr(session._worker._ledger, "seal", full)
        with pytest.raises(LedgerWriteError, match="no space"):
            round_.submit(per_example_gradients=gradients(round_))
        with pytest.raises(LedgerWriteError, match="no space"):
            next(session.rounds())
    assert world.rows("update") == []


# Who may take part, and what is charged.


def test_other_data_than_the_ledger_s_is_refused(world: World) -> None:
    changed = {"X": X.copy(), "y": Y}
    changed["X"][17, 1] = np.nextafter(changed["X"][17, 1], 2.0)
    with pytest.raises(InputError, match="other data"):
        world.connect(data=changed)
    assert not world.server.calls("Join")


def test_more_rows_than_declared_are_refused_and_nothing_is_committed(tmp_path: Path, world: World) -> None:
    more = {"X": RNG.random((101, 3))}
    world.config.write_text(world.config.read_text().replace('state = "state"', 'state = "other"'))
    hushgrad.client.make_ledger(world.config, data=more)
    with pytest.raises(InputError, match="more rows than the 100 declared records"):
        world.connect(data=more)
    assert ledger.read(world.folder / "other").runs == ()


def test_a_second_session_on_the_same_ledger_is_refused(world: World) -> None:
    with world.connect(), pytest.raises(InputError, match=r"in use|another process"):
        world.connect()


def test_a_second_ledger_for_the_same_arrays_is_noticed(world: World) -> None:
    world.config.write_text(world.config.read_text().replace('state = "state"', 'state = "other"'))
    with pytest.raises(InputError, match="has had a ledger already"):
        hushgrad.client.make_ledger(world.config, data={name: array.copy() for name, array in DATA.items()})
    made = hushgrad.client.make_ledger(world.config, data=DATA, accept_new_budget=True)
    assert made.is_file()


def test_a_conflict_is_raised_where_the_loop_waits(world: World) -> None:
    with world.connect() as session:
        for round_ in session.rounds():
            round_.submit(per_example_gradients=gradients(round_))
            if round_.number == 2:
                break
    world.server.anchors["client-1"] = (4, b"x" * 32)
    with world.connect() as session, pytest.raises(ConflictError, match="rolled back"):
        next(session.rounds())


# Sums that the caller clipped.


def test_a_presummed_round_is_marked_on_ledger_update_and_claim(world: World) -> None:
    with world.connect(clipping="caller") as session:
        assert session.claim_notes["clipping"] == "declared by caller"
        assert session.claim_text.endswith("; timing not covered; clipping: declared by caller.")
        for round_ in session.rounds():
            rows = gradients(round_)
            factors = np.minimum(1.0, 0.5 / np.maximum(np.linalg.norm(rows, axis=1), 1e-12))
            assert round_.submit_presummed(factors @ rows)
    assert world.committed().flags == header.FLAG_CLIPPING_DECLARED
    for row in ledger.verify(world.folder / "state").rows:
        if row.kind == "update":
            assert header.unpack(row.body).flags == header.FLAG_CLIPPING_DECLARED
    assert world.rows("update") == list(range(6))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda total, n: total / np.linalg.norm(total) * (n * 0.5 * (1 + 1e-9)), "has norm at most"),
        (lambda total, n: np.full(D, np.nan), "found nan"),
        (lambda total, n: total[:3], r"shape \(4,\)"),
    ],
)
def test_a_sum_that_cannot_be_one_of_clipped_gradients_is_refused(world: World, spoil: object, complaint: str) -> None:
    with world.connect(clipping="caller") as session:
        for round_ in session.rounds():
            rows = gradients(round_)
            total = (np.minimum(1.0, 0.5 / np.maximum(np.linalg.norm(rows, axis=1), 1e-12))) @ rows
            if len(rows):
                with pytest.raises(GradientError, match=complaint):
                    round_.submit_presummed(spoil(total, len(rows)))  # type: ignore[operator]
            named = {"weights": total[:3], "bias": total[3]}
            assert round_.submit_presummed(named)
    assert world.rows("update") == list(range(6))


def test_the_longest_possible_sum_is_taken() -> None:
    arrays = (ArraySpec("w", (3,)),)
    total = np.array([0.0, 5 * 0.5, 0.0])
    found = clipping.checked_total(total, arrays=arrays, examples=5, clip_norm=0.5, gradient_error=0.0)
    np.testing.assert_array_equal(found, total)


def test_presummed_needs_to_be_asked_for_from_the_beginning(world: World) -> None:
    with world.connect() as session:
        round_ = next(session.rounds())
        with pytest.raises(LoopError, match='clipping="caller"'):
            round_.submit_presummed(np.zeros(D))
        round_.submit(per_example_gradients=gradients(round_))
    with pytest.raises(InputError, match="flags"):
        world.connect(clipping="caller")


def test_a_federation_may_forbid_clipping_by_the_caller(tmp_path: Path) -> None:
    terms = client_world.make_terms()
    privacy = dataclasses.replace(terms.privacy, caller_clipping_forbidden=True)
    server = FakeServer(dataclasses.replace(terms, privacy=privacy))
    with server.serving() as address:
        world = World(tmp_path, server, address)
        with pytest.raises(InputError, match="forbid clipping that is declared by the caller"):
            world.connect(clipping="caller")
        assert ledger.read(world.folder / "state").runs == ()
        with world.connect() as session:
            assert next(session.rounds()).number == 0


# Measuring.


def test_the_spread_of_gradients_that_depend_on_their_neighbours_is_found() -> None:
    def alone(rows: np.ndarray) -> np.ndarray:
        return np.stack([X[row] for row in rows])

    def mixed(rows: np.ndarray) -> np.ndarray:
        return X[rows] * (1 + 1e-6 * np.arange(len(rows)))[:, np.newaxis]

    assert hushgrad.client.gradient_spread(alone, rows=100, clip_norm=10.0) == 0.0
    found = hushgrad.client.gradient_spread(mixed, rows=100, clip_norm=1.0)
    assert 1e-6 < found < 1e-4


def test_names_are_found_where_they_are_promised() -> None:
    for name in hushgrad.client.__all__:
        assert getattr(hushgrad.client, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        hushgrad.client.conect  # noqa: B018
    assert threading.active_count() < 100
