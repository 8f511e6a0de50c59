"""The evaluator against a small honest server."""

import csv
import threading
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hushgrad.client import data, models
from hushgrad.client.errors import InputError
from hushgrad.client.evaluator import Evaluator, Score
from hushgrad.client.transport import Transport
from hushgrad.v1 import status_pb2, status_pb2_grpc
from hushgrad.wire import header

from tests.support import client_world
from tests.support.client_world import PARTICIPANT
from tests.support.fake_server import FakeServer


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(client_world.make_terms(features=2, final_version=4))


def make(address: str, server: FakeServer, output: Path, *, report: bool = False) -> Evaluator:
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
        report=report,
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


class _Listener(status_pb2_grpc.StatusServiceServicer):
    """Takes scores, or answers with a fault."""

    def __init__(self, server: FakeServer, code: grpc.StatusCode | None = None) -> None:
        self._server = server
        self._code = code
        self.heard: list[status_pb2.ReportEvaluationRequest] = []

    def ReportEvaluation(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.heard.append(request)
        if self._code is not None:
            context.abort(self._code, "on purpose")
        return status_pb2.ReportEvaluationResponse(verdict=self._server._verdict())


def listened(server: FakeServer, tmp_path: Path, listener: _Listener | None, *, report: bool = True) -> Score | None:
    services = () if listener is None else (partial(status_pb2_grpc.add_StatusServiceServicer_to_server, listener),)
    with server.serving(*services) as address:
        evaluator = make(address, server, tmp_path / "curve.csv", report=report)
        threading.Timer(0.3, send_rounds, (server, address, range(4))).start()
        return evaluator.run()


def test_it_tells_the_server_what_it_writes_down(tmp_path: Path, server: FakeServer) -> None:
    listener = _Listener(server)
    listened(server, tmp_path, listener)
    with (tmp_path / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(one.version, one.accuracy) for one in listener.heard] == [
        (int(row["version"]), float(row["accuracy"])) for row in rows
    ]
    last = listener.heard[-1]
    assert (last.caller.participant, last.caller.terms_digest, last.caller.session) == ("evaluator", server.digest, 0)
    assert (last.examples, last.averaged_accuracy) == (4, 1.0)
    assert not listener.heard[0].HasField("averaged_accuracy")


def test_it_tells_nobody_when_its_owner_says_so(tmp_path: Path, server: FakeServer) -> None:
    listener = _Listener(server)
    last = listened(server, tmp_path, listener, report=False)
    assert (last.version if last else None, listener.heard) == (4, [])


@pytest.mark.parametrize("code", [None, grpc.StatusCode.PERMISSION_DENIED])
def test_a_server_that_takes_no_scores_is_asked_once_and_scoring_goes_on(
    tmp_path: Path, server: FakeServer, code: grpc.StatusCode | None
) -> None:
    # None: an older server, which does not know the call.
    listener = None if code is None else _Listener(server, code)
    last = listened(server, tmp_path, listener)
    assert last is not None
    assert last.version == 4
    assert listener is None or len(listener.heard) == 1


def test_a_server_that_is_busy_hears_the_next_score(tmp_path: Path, server: FakeServer) -> None:
    listener = _Listener(server, grpc.StatusCode.UNAVAILABLE)
    last = listened(server, tmp_path, listener)
    assert last is not None
    assert (last.version, len(listener.heard) > 1) == (4, True)
