"""The evaluator against a small honest server."""

import csv
import threading
from pathlib import Path

import numpy as np
import pytest
from hushgrad.client import data, models
from hushgrad.client.errors import InputError
from hushgrad.client.evaluator import Evaluator, Score
from hushgrad.client.transport import Transport
from hushgrad.wire import header

from tests.support import client_world
from tests.support.client_world import PARTICIPANT
from tests.support.fake_server import FakeServer


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(client_world.make_terms(features=2, final_version=4))


def make(address: str, server: FakeServer, output: Path) -> Evaluator:
    transport = Transport(address, "evaluator")
    transport.use_terms(server.digest, server.terms.limits)
    # Class 1 exactly where the first feature is 1: weights (1, 0) with bias -0.5 are right everywhere.
    test_set = data.dataset(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]), np.array([1, 1, 0, 0]))
    return Evaluator(
        transport=transport,
        model=models.make("logistic", features=2),
        dataset=test_set,
        output=output,
        final_version=server.terms.final_version,
    )


def send_rounds(server: FakeServer, address: str, rounds: range) -> None:
    transport = Transport(address, PARTICIPANT)
    transport.use_terms(server.digest, server.terms.limits)
    for round_ in rounds:
        update = (np.array([-1.0, 0.0, 0.5]) * 2.0**-server.terms.grid_exponent).astype("<i4").tobytes()
        head = header.UpdateHeader(server.digest, PARTICIPANT, round_, 1, "poisson", 2.0, 0.5, 3, bytes(32), 0, 12)
        server.SubmitUpdate(_Request(head.pack(), update), None)
    transport.close()


class _Request:
    def __init__(self, head: bytes, payload: bytes) -> None:
        self.header, self.payload = head, payload


def test_it_scores_what_is_published_and_ends_with_the_run(tmp_path: Path, server: FakeServer) -> None:
    with server.serving() as address:
        evaluator = make(address, server, tmp_path / "out" / "curve.csv")
        threading.Timer(0.3, send_rounds, (server, address, range(4))).start()
        last = evaluator.run()
    assert isinstance(last, Score)
    assert (last.version, last.accuracy, last.accuracy_averaged) == (4, 1.0, 1.0)
    with (tmp_path / "out" / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["version", "accuracy", "log_loss", "accuracy_averaged", "seconds"]
    versions = [int(row["version"]) for row in rows]
    assert versions == sorted(set(versions))
    assert (versions[0], versions[-1]) == (0, 4)
    # All scores 0: every probability is 1/2, so the loss is ln 2, and class 0 wins the tie.
    assert float(rows[0]["log_loss"]) == pytest.approx(np.log(2))
    assert (float(rows[0]["accuracy"]), rows[0]["accuracy_averaged"]) == (0.5, "")
    assert {name for name, _ in server.seen} <= {"WatchModels", "GetModel", "SubmitUpdate"}


def test_log_loss_and_accuracy_are_those_of_the_closed_form(tmp_path: Path, server: FakeServer) -> None:
    send_rounds(server, "127.0.0.1:1", range(1))
    with server.serving() as address:
        evaluator = make(address, server, tmp_path / "curve.csv")
        threading.Timer(0.5, evaluator.stop).start()
        last = evaluator.run()
    assert last is not None
    assert last.version == 1
    step = server.terms.step_size(0)
    # w = eta (1, 0), bias -eta / 2: scores are +-eta / 2, always with the right sign: ln(1 + exp(-eta / 2)).
    assert last.log_loss == pytest.approx(np.log1p(np.exp(-step / 2)), rel=1e-5)
    assert last.accuracy == 1.0


def test_a_curve_that_cannot_be_written_is_one_sentence(tmp_path: Path, server: FakeServer) -> None:
    (tmp_path / "file").write_text("not a folder")
    with server.serving() as address:
        evaluator = make(address, server, tmp_path / "file" / "curve.csv")
        with pytest.raises(InputError, match="the curve cannot be written to"):
            evaluator.run()
