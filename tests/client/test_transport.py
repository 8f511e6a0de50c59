"""The calls against a small honest server with faults on request."""

import threading
import time
from collections.abc import Iterator
from concurrent import futures

import grpc
import numpy as np
import pytest
from hushgrad.client.messages import ServerState
from hushgrad.client.outbox import SealedUpdate
from hushgrad.client.transport import (
    CHANNEL_OPTIONS,
    Ended,
    FatalError,
    GoingAway,
    GoneError,
    Heartbeat,
    Published,
    RetryableError,
    Transport,
)
from hushgrad.v1 import common_pb2, membership_pb2
from hushgrad.wire import header
from hushgrad.wire.terms import Limits

from tests.support import client_world
from tests.support.client_world import PARTICIPANT
from tests.support.fake_server import FakeServer

LARGE = client_world.make_terms(
    features=50_000, limits=Limits(max_unary_bytes=65_536, max_chunk_bytes=65_536, max_inline_model_bytes=0)
)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(client_world.make_terms())


@pytest.fixture
def transport(server: FakeServer) -> Iterator[Transport]:
    with server.serving() as address:
        transport = Transport(address, PARTICIPANT)
        transport.use_terms(server.digest, server.terms.limits)
        yield transport
        transport.close()


@pytest.fixture
def large() -> Iterator[tuple[FakeServer, Transport]]:
    server = FakeServer(LARGE)
    with server.serving() as address:
        transport = Transport(address, PARTICIPANT)
        transport.use_terms(server.digest, server.terms.limits)
        yield server, transport
        transport.close()


def sealed(server: FakeServer, round_: int = 0) -> SealedUpdate:
    payload = np.arange(server.terms.parameters, dtype="<i4").tobytes()
    head = header.UpdateHeader(
        server.digest, PARTICIPANT, round_, 1, "poisson", 2.0, 0.5, 3, bytes(32), 0, len(payload)
    ).pack()
    return SealedUpdate(round_, head, payload, header.digest(head, payload))


def test_the_channel_has_the_settings_that_bite() -> None:
    options = dict(CHANNEL_OPTIONS)
    assert options["grpc.enable_retries"] == 0
    backoff = ("initial", "min", "max")
    assert [options[f"grpc.{word}_reconnect_backoff_ms"] for word in backoff] == [200, 200, 1000]
    assert (options["grpc.keepalive_time_ms"], options["grpc.keepalive_timeout_ms"]) == (30_000, 10_000)
    assert not any("message_length" in key for key in options)


def test_terms_come_as_the_bytes_that_were_made(server: FakeServer, transport: Transport) -> None:
    assert transport.get_terms() == (server.terms_bytes, server.digest)


def test_terms_with_another_digest_are_refused(server: FakeServer, transport: Transport) -> None:
    def other(answer: object) -> object:
        answer.terms_digest = bytes(32)  # type: ignore[attr-defined]
        return answer

    server.faults["GetTerms"] = [other]
    with pytest.raises(FatalError, match="do not have the digest"):
        transport.get_terms()


def test_join_names_the_session_in_later_calls(server: FakeServer, transport: Transport) -> None:
    server.anchors[PARTICIPANT] = (7, b"h" * 32)
    answer = transport.join(b"j" * 16)
    assert (answer.verdict.answer, answer.session, answer.participation.state) == ("ACCEPTED", 1, "observing")
    assert (answer.anchor_sequence, answer.anchor_head) == (7, b"h" * 32)
    verdict, participation = transport.start(0)
    assert (verdict.answer, participation.state) == ("ACCEPTED", "active")
    (join,), (start,) = server.calls("Join"), server.calls("Start")
    assert (join.caller.session, join.join_id, join.caller.terms_digest) == (0, b"j" * 16, server.digest)
    assert start.caller.session == 1


def test_reports_name_round_fate_and_digest(server: FakeServer, transport: Transport) -> None:
    transport.report_rounds([(3, "void", b""), (4, "held", b"d" * 32), (5, "skipped", b"")])
    (request,) = server.calls("ReportRounds")
    fate = membership_pb2.RoundReport
    assert [(report.round, report.fate, report.digest) for report in request.reports] == [
        (3, fate.FATE_VOID, b""),
        (4, fate.FATE_HELD, b"d" * 32),
        (5, fate.FATE_SKIPPED, b""),
    ]


def test_an_update_goes_in_one_message_and_a_repeat_is_a_duplicate(server: FakeServer, transport: Transport) -> None:
    update = sealed(server)
    first, second = transport.submit(update), transport.submit(update)
    assert (first.verdict.answer, first.included_in) == ("ACCEPTED", 1)
    assert (second.verdict.answer, second.first_answer, second.included_in) == ("DUPLICATE", "ACCEPTED", 1)
    requests = server.calls("SubmitUpdate")
    assert requests[0] == requests[1]


def test_a_large_update_goes_in_chunks(large: tuple[FakeServer, Transport]) -> None:
    server, transport = large
    update = sealed(server)
    assert transport.submit(update).verdict.answer == "ACCEPTED"
    assert server.calls("SubmitUpdate") == []
    assert server.receipts[PARTICIPANT, 0][0] == update.digest


def test_a_broken_upload_goes_on_where_it_broke(large: tuple[FakeServer, Transport]) -> None:
    server, transport = large
    server.faults["UploadChunk"] = [None, None, grpc.StatusCode.UNAVAILABLE]
    update = sealed(server)
    with pytest.raises(RetryableError):
        transport.submit(update)
    assert transport.submit(update).verdict.answer == "ACCEPTED"
    assert [start.offset for start in server.calls("UploadUpdate")] == [0, 2 * 65_536]


def test_a_model_comes_in_chunks_and_goes_on_where_it_broke(large: tuple[FakeServer, Transport]) -> None:
    server, transport = large
    server.faults["GetModel"] = [None, grpc.StatusCode.UNAVAILABLE]
    held = bytearray()
    with pytest.raises(RetryableError):
        transport.get_model(0, held=held)
    assert len(held) == 65_536
    assert transport.get_model(0, held=held) == server.versions[0]
    assert [request.offset for request in server.calls("GetModel")] == [0, 65_536]


def test_a_damaged_chunk_is_not_taken(large: tuple[FakeServer, Transport]) -> None:
    server, transport = large

    def flip(message: object) -> object:
        message.crc32c ^= 1  # type: ignore[attr-defined]
        return message

    server.faults["GetModel"] = [None, flip]
    held = bytearray()
    with pytest.raises(RetryableError, match="damaged or out of place"):
        transport.get_model(0, held=held)
    assert transport.get_model(0, held=held) == server.versions[0]


def test_a_model_with_another_checksum_is_fetched_from_the_beginning(large: tuple[FakeServer, Transport]) -> None:
    _, transport = large
    held = bytearray()
    with pytest.raises(RetryableError, match="arrived damaged"):
        transport.get_model(0, held=held, sha256=bytes(32))
    assert held == b""


def test_a_version_that_is_not_kept_is_gone(transport: Transport) -> None:
    with pytest.raises(GoneError):
        transport.get_model(5)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, RetryableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, RetryableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, RetryableError),
        (grpc.StatusCode.CANCELLED, RetryableError),
        (grpc.StatusCode.ABORTED, RetryableError),
        (grpc.StatusCode.DATA_LOSS, RetryableError),
        (grpc.StatusCode.NOT_FOUND, GoneError),
        (grpc.StatusCode.INVALID_ARGUMENT, FatalError),
        (grpc.StatusCode.UNKNOWN, FatalError),
        (grpc.StatusCode.INTERNAL, FatalError),
        (grpc.StatusCode.UNIMPLEMENTED, FatalError),
        (grpc.StatusCode.PERMISSION_DENIED, FatalError),
        (grpc.StatusCode.UNAUTHENTICATED, FatalError),
    ],
)
def test_faults_mean_what_the_contract_says(
    server: FakeServer, transport: Transport, status: grpc.StatusCode, expected: type[Exception]
) -> None:
    server.faults["GetParticipation"] = [status]
    with pytest.raises(expected, match=status.name):
        transport.get_participation()


def test_every_answer_of_the_contract_has_its_word(server: FakeServer, transport: Transport) -> None:
    words = []
    for name, value in common_pb2.Answer.items():

        def say(answer: object, value: int = value) -> object:
            answer.verdict.answer = value  # type: ignore[attr-defined]
            return answer

        server.faults["GetParticipation"] = [say]
        words.append((transport.get_participation()[0].answer, name.removeprefix("ANSWER_")))
    assert all(found == expected for found, expected in words)
    assert len(words) == 12


def test_a_retry_hint_is_capped_at_a_minute(server: FakeServer, transport: Transport) -> None:
    def busy(answer: object) -> object:
        answer.verdict.answer = common_pb2.ANSWER_BUSY  # type: ignore[attr-defined]
        answer.verdict.retry_after_milliseconds = 10**9  # type: ignore[attr-defined]
        return answer

    server.faults["GetParticipation"] = [busy]
    assert transport.get_participation()[0].retry_after_seconds == 60.0


def test_nobody_there_is_worth_retrying() -> None:
    transport = Transport("127.0.0.1:1", PARTICIPANT)
    with pytest.raises(RetryableError, match="UNAVAILABLE"):
        transport.get_terms()
    transport.close()


def test_a_watch_gives_models_heartbeats_and_a_definite_end(server: FakeServer, transport: Transport) -> None:
    news = transport.watch(None)
    state, first = next(news)
    assert state == ServerState(1, 0, 0)
    assert isinstance(first, Published)
    assert (first.version, first.model) == (0, server.versions[0])
    assert isinstance(next(news)[1], Heartbeat)
    for round_ in range(server.terms.final_version):
        transport.submit(sealed(server, round_))
    rest = [event for _, event in news]
    assert rest[-1] == Ended(server.terms.final_version, "")
    assert any(isinstance(event, Published) and event.version == server.terms.final_version for event in rest)


def test_a_watch_resumes_after_the_version_at_hand(server: FakeServer, transport: Transport) -> None:
    news = transport.watch(0)
    assert isinstance(next(news)[1], Heartbeat)
    server.going_away = True
    assert GoingAway(0.01) in [event for _, event in news]


def test_a_damaged_model_in_the_watch_is_not_taken(server: FakeServer, transport: Transport) -> None:
    def flip(message: object) -> object:
        model = message.published.model  # type: ignore[attr-defined]
        message.published.model = bytes([model[0] ^ 1]) + model[1:]  # type: ignore[attr-defined]
        return message

    server.faults["WatchMessage"] = [flip]
    with pytest.raises(RetryableError, match="version 0 arrived damaged"):
        next(transport.watch(None))


def test_a_watch_that_falls_silent_is_broken_off(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgrad.client.transport._FIRST_HEARTBEAT_SECONDS", 0.05)
    released = threading.Event()
    monkeypatch.setattr(FakeServer, "WatchModels", lambda self, request, context: _silence(released))
    with server.serving() as address:
        transport = Transport(address, PARTICIPANT)
        since = time.monotonic()
        with pytest.raises(RetryableError, match="CANCELLED"):
            list(transport.watch(None))
        assert time.monotonic() - since < 5
        released.set()
        transport.close()


def _silence(released: threading.Event) -> Iterator[object]:
    released.wait(20)
    yield from ()


def test_a_wait_ends_early_when_the_connection_comes_about_and_not_while_it_stands() -> None:
    server = FakeServer(client_world.make_terms())
    with server.serving() as address:
        transport = Transport(address, PARTICIPANT)
        transport.get_terms()
        began = time.monotonic()
        transport.wait_for_connection(0.4)  # it stands: whatever failed was not the connection
        assert time.monotonic() - began >= 0.4
        transport.close()
    transport = Transport(address, PARTICIPANT)
    began = time.monotonic()
    transport.wait_for_connection(0.3)  # nobody is there
    assert time.monotonic() - began >= 0.3
    later = grpc.server(futures.ThreadPoolExecutor(1))
    threading.Timer(0.3, lambda: (later.add_insecure_port(address), later.start())).start()
    began = time.monotonic()
    transport.wait_for_connection(8.0)
    assert 0.3 <= time.monotonic() - began < 4
    later.stop(0)
    transport.close()
    transport.wait_for_connection(8.0)  # closed: nothing to wait for
    assert time.monotonic() - began < 6
