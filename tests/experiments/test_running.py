"""Child processes end together, the board shows what was logged, and the odometer never runs backwards."""

import itertools
import time
from pathlib import Path

import pytest
from hushgrad.experiments import odometer, processes
from hushgrad.experiments.board import Board, ClientView
from hushgrad.experiments.errors import ExperimentError


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A group whose children may be the modules below."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sleeper.py").write_text(
        'import sys, time\nprint(\'{"event": "awake"}\', file=sys.stderr, flush=True)\ntime.sleep(60)\n'
    )
    (modules / "failing.py").write_text("import sys\nprint('no such thing', file=sys.stderr)\nsys.exit(3)\n")
    (modules / "stubborn.py").write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        'print(\'{"event": "awake"}\', file=sys.stderr, flush=True)\ntime.sleep(60)\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.5)
    made = processes.Group(tmp_path, processes.environment(tmp_path / "home"))
    yield made
    made.stop()


def await_event(group: processes.Group) -> list[processes.Event]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if events := group.events(0.1):
            return events
    raise AssertionError("no event came")


def test_a_failed_child_is_named_with_its_log_and_last_words(group: processes.Group, tmp_path: Path) -> None:
    group.start("good", "sleeper", [])
    group.start("bad", "failing", [])
    with pytest.raises(ExperimentError) as caught:
        group.wait(["bad"], 20)
    assert str(caught.value) == (f"bad ended with exit code 3; its log is {tmp_path / 'bad.log'}\n  no such thing")


def test_lines_that_are_json_objects_arrive_as_events(group: processes.Group, tmp_path: Path) -> None:
    group.start("one", "sleeper", [])
    assert await_event(group) == [("one", {"event": "awake"})]
    assert (tmp_path / "one.log").read_text() == '{"event": "awake"}\n'


def test_stop_ends_even_a_child_that_will_not(group: processes.Group) -> None:
    group.start("willing", "sleeper", [])
    group.start("unwilling", "stubborn", [])
    while len(await_event(group)) < 1:
        pass
    group.stop()
    assert group.running() == []


def test_waiting_too_long_is_an_error(group: processes.Group) -> None:
    group.start("one", "sleeper", [])
    with pytest.raises(ExperimentError, match="did not end within"):
        group.wait(["one"], 0.2)


def test_children_do_not_inherit_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAD_PARTICIPANT", "somebody-else")
    environment = processes.environment(tmp_path)
    assert [key for key in environment if key.startswith("HUSHGRAD_")] == ["HUSHGRAD_HOME"]
    assert environment["OMP_NUM_THREADS"] == "1"


def test_board_follows_the_logged_events() -> None:
    board = Board(10, {"client-1": ClientView(), "client-2": ClientView()})
    board.apply("server", {"event": "listening", "address": "127.0.0.1:1"})
    board.apply("client-1", {"event": "committed", "rounds": 10, "claim": {"epsilon": 0.5}})
    board.apply("client-1", {"event": "round_sealed", "round": 3, "version": 2, "staleness": 1})
    board.apply("client-1", {"event": "an event of a later release"})
    board.apply("server", {"event": "published", "version": 4})
    board.apply("server", {"event": "published", "version": 3})  # read late
    board.apply("evaluator", {"event": "scored", "version": 4, "accuracy": 0.9, "accuracy_averaged": None})
    view = board.clients["client-1"]
    assert (view.round, view.version, view.staleness, view.rounds_sealed, view.epsilon) == (3, 2, 1, 1, 0.5)
    assert board.clients["client-2"] == ClientView()
    assert (board.address, board.version, board.accuracy, board.accuracy_averaged) == ("127.0.0.1:1", 4, 0.9, None)


def test_the_odometer_never_falls_and_ends_at_the_price_of_the_schedule() -> None:
    curve = odometer.curve([(0.1, 4.0)] * 6 + [(0.2, 4.0)] * 2, sampling="poisson", delta=1e-5, claimed=9.0)
    assert curve[0] == 0.0
    assert all(before < after for before, after in itertools.pairwise(curve))
    groups = (((0.1, 4.0), 6), ((0.2, 4.0), 2))
    capped = odometer.curve([(0.1, 4.0)] * 6, sampling="poisson", delta=1e-5, claimed=curve[4])
    assert capped == [*curve[:5], curve[4], curve[4]]
    assert curve[-1] == odometer.reading(groups, sampling="poisson", delta=1e-5)
