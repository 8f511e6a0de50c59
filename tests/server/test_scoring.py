"""Scores of evaluators at a real server: who may report what, that they are durable, and where they are shown."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hushgrad.server import scoring
from hushgrad.server.plain_status import plain_status
from hushgrad.server.records import Score
from hushgrad.server.scoring import Scoreboard
from hushgrad.v1 import common_pb2, membership_pb2, status_pb2, terms_pb2

from tests.support.federations import Sender, make_terms
from tests.support.pki import Pki
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(participants=1)
ACCEPTED = common_pb2.ANSWER_ACCEPTED


def score(version: int, evaluator: str = "evaluator", accuracy: float = 0.9) -> Score:
    return Score(evaluator, version, accuracy, None, 100, 1e9)


def report(client: Client, version: int, **changes: object) -> status_pb2.ReportEvaluationResponse:
    fields: dict = {"caller": client.caller, "version": version, "accuracy": 0.9, "examples": 100, **changes}
    return client.status_stub.ReportEvaluation(status_pb2.ReportEvaluationRequest(**fields), timeout=10)


def shown(server: ServerProcess, path: str) -> dict:
    url = server.events("listening_for_web")[0]["url"] + path
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def published(client: Client, rounds: range) -> None:
    for round_ in rounds:
        assert client.submit(client.sender.seal(round_)).verdict.answer == ACCEPTED
        client.wait_for_version(round_ + 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("scoring")
    make_state(root, TERMS)
    configure(root, web_listen="127.0.0.1:0")
    return root


@pytest.fixture(scope="module")
def started(root: Path) -> Iterator[tuple[ServerProcess, Client, Client]]:
    with ServerProcess(root) as server:
        client = Client(server.address, Sender("client-1", TERMS))
        client.join()
        client.start()
        yield server, client, Client(server.address, Sender("evaluator", TERMS))


@pytest.mark.e2e
def test_what_cannot_be_a_score_is_refused_and_not_shown(started: tuple[ServerProcess, Client, Client]) -> None:
    server, _, evaluator = started
    for changes in ({"version": 1}, {"accuracy": 1.5}, {"accuracy": float("nan")}, {"examples": 0}):
        with pytest.raises(grpc.RpcError) as refused:
            report(evaluator, **{"version": 0, **changes})
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    stranger = Client(server.address, Sender("evaluator", TERMS, bytes(32)))
    assert report(stranger, 0).verdict.answer == common_pb2.ANSWER_WRONG_TERMS
    assert shown(server, "api/overview")["overview"]["scores"] == []


@pytest.mark.e2e
def test_what_is_no_claim_is_refused(started: tuple[ServerProcess, Client, Client]) -> None:
    _, client, _ = started
    bad = membership_pb2.StartRequest(caller=client.caller, claim=membership_pb2.DeclaredClaim())
    with pytest.raises(grpc.RpcError) as refused:
        client.membership.Start(bad, timeout=10)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.e2e
def test_scores_and_claims_are_shown_and_survive_a_crash(
    root: Path, started: tuple[ServerProcess, Client, Client]
) -> None:
    server, client, evaluator = started
    claim = {
        "epsilon": 0.4,
        "delta": 1e-6,
        "adjacency": "add-remove",
        "unit": "record",
        "method": "pld",
        "method_version": "1",
        "planned_rounds": 4,
    }
    declared = membership_pb2.DeclaredClaim(sampler=terms_pb2.SAMPLER_POISSON, **claim)
    ask = membership_pb2.StartRequest(caller=client.caller, claim=declared)
    assert client.membership.Start(ask, timeout=10).verdict.answer == ACCEPTED
    published(client, range(2))
    for version, accuracy in ((0, 0.5), (1, 0.8), (2, 0.7)):
        assert report(evaluator, version, accuracy=accuracy).verdict.answer == ACCEPTED
    assert report(evaluator, 2, accuracy=0.9, averaged_accuracy=0.95).verdict.answer == ACCEPTED
    curve = [[0, 0.5, None], [1, 0.8, None], [2, 0.9, 0.95]]
    assert shown(server, "api/curves")["scores"]["evaluator"]["points"] == curve
    server.process.kill()
    server.process.wait()
    with ServerProcess(root) as again:
        picture = shown(again, "api/overview")["overview"]
        (latest,), (one,) = picture["scores"], picture["participants"]
        assert latest["reported_at"] == pytest.approx(time.time(), abs=60)
        assert {**latest, "reported_at": 0} == {
            "evaluator": "evaluator",
            "version": 2,
            "accuracy": 0.9,
            "averaged_accuracy": 0.95,
            "examples": 100,
            "reported_at": 0,
        }
        (told,) = plain_status(Client(again.address, evaluator.sender).status())["scores"]
        assert told == {key: value for key, value in latest.items() if key != "reported_at"}
        assert one["claim"] == {**claim, "sampler": "poisson", "timing_covered": False}
        assert one["budget_used"] == 0.5
        found = shown(again, "api/curves")
        assert found["scores"]["evaluator"]["points"] == curve
        times = [at for _, at in found["versions"]["points"]]
        assert [version for version, _ in found["versions"]["points"]] == [0, 1, 2]
        assert times[1:] == sorted(times[1:])
        assert times[-1] == pytest.approx(time.time(), abs=60)


@pytest.mark.e2e
def test_with_certificates_the_listener_at_the_machine_takes_no_scores(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    pki = Pki(tmp_path)
    configure(tmp_path, admin_listen="127.0.0.1:0")
    with open(tmp_path / "server.toml", "a") as file:
        file.write(pki.table())
    with ServerProcess(tmp_path) as server:
        inside = Client(server.events("listening_for_admin")[0]["address"], Sender("evaluator", TERMS))
        with pytest.raises(grpc.RpcError) as refused:
            report(inside, 0)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        evaluator = Client(server.address, Sender("evaluator", TERMS))
        evaluator.use(pki.channel(server.address, pki.member("evaluator", "evaluator")))
        assert report(evaluator, 0).verdict.answer == ACCEPTED


def test_an_older_score_does_not_hide_a_newer_one():
    board = Scoreboard((score(5),))
    board.put(score(3))
    assert board.scores == (score(5),)
    board.put(score(5, accuracy=0.7))
    assert board.scores == (score(5, accuracy=0.7),)


def test_only_so_many_names_find_room():
    board = Scoreboard()
    for number in range(scoring.MOST_EVALUATORS):
        assert board.has_room_for(f"evaluator-{number}")
        board.put(score(1, f"evaluator-{number}"))
    assert not board.has_room_for("one-more")
    assert board.has_room_for("evaluator-3")
