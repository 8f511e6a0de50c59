"""The services over real gRPC: what is malformed, uploads in pieces, watches that resume, models and manifests."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hushgrad.v1 import common_pb2, membership_pb2, models_pb2, status_pb2, updates_pb2

from tests.support.federations import make_terms, senders_of
from tests.support.servers import Client, ServerProcess, make_state

LARGE = make_terms(parameters=100_000, participants=2, final_version=4, window=4, max_unary_bytes=1000)
SMALL = make_terms(participants=2, final_version=4, window=4)

ACCEPTED, DUPLICATE, BUSY = common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_DUPLICATE, common_pb2.ANSWER_BUSY


def serving(root: Path, terms: object) -> Iterator[list[Client]]:
    make_state(root, terms)
    with ServerProcess(root) as server:
        clients = [Client(server.address, sender) for sender in senders_of(terms)]
        for client in clients:
            assert client.join().verdict.answer == ACCEPTED
            assert client.start().verdict.answer == ACCEPTED
        yield clients
        for client in clients:
            client.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[list[Client]]:
    yield from serving(tmp_path, SMALL)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[list[Client]]:
    yield from serving(tmp_path, LARGE)


def code_of(call: object, *args: object) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value.code()


def test_a_whole_federation_over_unary_calls(small: list[Client]) -> None:
    one, two = small
    terms = one.get_terms()
    assert hashlib.sha256(terms.terms).digest() == terms.terms_digest == one.sender.terms_digest
    assert terms.terms == SMALL.to_bytes()
    for round_ in range(4):
        for client in small:
            answer = client.submit(client.sender.seal(round_))
            assert (answer.verdict.answer, answer.included_in) == (ACCEPTED, round_ + 1)
            assert answer.participation.state == membership_pb2.PARTICIPATION_STATE_ACTIVE
        one.wait_for_version(round_ + 1)
    status = one.status()
    assert (status.phase, status.waiting_for) == (status_pb2.PHASE_ENDED, "")
    assert [(p.participant, p.updates_accepted) for p in status.participants] == [("client-1", 4), ("client-2", 4)]
    news = list(two.watch())
    assert [event.WhichOneof("event") for event in news] == ["published", "run_ended"]
    published = news[0].published
    total = [0] * SMALL.parameters
    for client in small:
        for round_, sealed in client.sender.sealed.items():
            for at, element in enumerate(np.frombuffer(sealed.payload, "<i4").tolist()):
                total[at] -= SMALL.step_numerator(round_) * element
    expected = [np.float32(np.float64(x) * 2.0 ** (SMALL.grid_exponent - SMALL.step_exponent)) for x in total]
    assert np.frombuffer(published.model, "<f4").tolist() == expected
    assert news[0].server.retention_watermark == news[0].server.newest_version == 4
    manifest = one.manifest(2)
    assert [(entry.participant, entry.round) for entry in manifest.entries] == [("client-1", 1), ("client-2", 1)]
    assert (manifest.previous_version, one.manifest(0).previous_version) == (1, 0)
    assert one.submit(one.sender.seal(4)).verdict.answer == common_pb2.ANSWER_RUN_ENDED


def test_health_says_serving_for_the_whole_and_each_service(small: list[Client]) -> None:
    stub = health_pb2_grpc.HealthStub(small[0].channel)
    for name in ("", "hushgrad.v1.UpdateService", "hushgrad.v1.ModelService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_two_copies_at_once_are_accepted_once(small: list[Client]) -> None:
    one, _ = small
    request = one.request(one.sender.seal(0))
    barrier = threading.Barrier(8)

    def send() -> updates_pb2.SubmitUpdateResponse:
        barrier.wait()
        return one.updates.SubmitUpdate(request, timeout=10)

    with ThreadPoolExecutor(8) as pool:
        answers = [future.result() for future in [pool.submit(send) for _ in range(8)]]
    assert sorted(answer.verdict.answer for answer in answers) == [ACCEPTED] + [DUPLICATE] * 7
    assert {answer.first_answer for answer in answers} == {common_pb2.ANSWER_UNSPECIFIED, ACCEPTED}
    assert one.status().participants[0].updates_duplicate == 7


def test_a_deadline_that_ends_the_waiting_does_not_end_the_commit(small: list[Client]) -> None:
    one, _ = small
    sealed = one.sender.seal(0)
    call = one.updates.SubmitUpdate.future(one.request(sealed))
    while one.status().participants[0].rounds_received == 0:
        pass
    call.cancel()
    answer = one.submit(sealed)
    assert (answer.verdict.answer, answer.first_answer) == (DUPLICATE, ACCEPTED)


def test_malformed_requests_are_refused_before_anything_happens(small: list[Client]) -> None:
    one, _ = small
    good = one.request(one.sender.seal(0))
    invalid = grpc.StatusCode.INVALID_ARGUMENT

    def changed(**fields: object) -> updates_pb2.SubmitUpdateRequest:
        request = updates_pb2.SubmitUpdateRequest()
        request.CopyFrom(good)
        for name, value in fields.items():
            target = request.caller if name in ("terms_digest", "participant") else request
            setattr(target, name, value)
        return request

    submit = one.updates.SubmitUpdate
    assert code_of(submit, changed(terms_digest=b"")) == invalid
    assert code_of(submit, changed(terms_digest=bytes(31))) == invalid
    assert code_of(submit, changed(participant="Client 1")) == invalid
    assert code_of(submit, changed(header=bytes(191))) == invalid
    assert code_of(one.join, bytes(15)) == invalid
    report = membership_pb2.RoundReport
    for reports in ([report(round=1)], [report(round=1, fate=report.FATE_HELD)], [report(round=1, fate=2)] * 1001):
        request = membership_pb2.ReportRoundsRequest(caller=one.caller, reports=reports)
        assert code_of(one.membership.ReportRounds, request) == invalid
    damaged = submit(changed(crc32c=1))
    assert (damaged.verdict.answer, damaged.participation.state) == (BUSY, 2)
    wrong = models_pb2.WatchModelsRequest(caller=common_pb2.Caller(terms_digest=bytes(32), participant="x"))
    assert code_of(lambda: next(one.models.WatchModels(wrong))) == invalid
    assert submit(good).verdict.answer == ACCEPTED


def test_refusals_name_the_path_of_the_field(small: list[Client]) -> None:
    one, _ = small
    good = one.request(one.sender.seal(0))
    report = membership_pb2.RoundReport

    def refusal(call: object, request: object) -> str:
        with pytest.raises(grpc.RpcError) as caught:
            call(request)  # type: ignore[operator]
        return caught.value.details()

    def submit(**fields: object) -> updates_pb2.SubmitUpdateRequest:
        return updates_pb2.SubmitUpdateRequest(
            **{"caller": good.caller, "header": good.header, "payload": good.payload, **fields}
        )

    def reports(*entries: object) -> membership_pb2.ReportRoundsRequest:
        return membership_pb2.ReportRoundsRequest(caller=one.caller, reports=entries)

    skipped = report(round=1, fate=report.FATE_SKIPPED)
    found = {
        "caller.terms_digest": refusal(one.updates.SubmitUpdate, submit(caller=common_pb2.Caller(participant="x"))),
        "header": refusal(one.updates.SubmitUpdate, submit(header=b"short")),
        "payload": refusal(one.updates.SubmitUpdate, submit(payload=bytes(2**20 + 1))),
        "reports[1].fate": refusal(one.membership.ReportRounds, reports(skipped, report(round=2))),
        "reports[0].round": refusal(one.membership.ReportRounds, reports(report(round=9, fate=1))),
        "reports[1].digest": refusal(one.membership.ReportRounds, reports(skipped, report(round=2, fate=3))),
        "reports": refusal(one.membership.ReportRounds, reports(*[skipped] * 1001)),
    }
    assert {path: detail for path, detail in found.items() if not detail.startswith(f"{path} must be")} == {}


def test_bytes_that_are_no_message_do_not_hurt(small: list[Client]) -> None:
    one, _ = small
    raw = one.channel.unary_unary("/hushgrad.v1.UpdateService/SubmitUpdate")
    generator = np.random.default_rng(3)
    for size in (1, 10, 500):
        with pytest.raises(grpc.RpcError):
            raw(generator.bytes(size), timeout=5)
    assert one.submit(one.sender.seal(0)).verdict.answer == ACCEPTED


def test_an_upload_in_pieces_survives_a_broken_stream(large: list[Client]) -> None:
    one, two = large
    sealed = one.sender.seal(0)
    assert code_of(one.submit, sealed) == grpc.StatusCode.INVALID_ARGUMENT
    assert one.received(sealed) == 0
    cut = one.updates.UploadUpdate(one.pieces(sealed, end=200_000), timeout=10).result
    assert (cut.verdict.answer, one.received(sealed)) == (BUSY, 200_000)

    def breaking() -> Iterator[updates_pb2.UploadUpdateRequest]:
        pieces = list(one.pieces(sealed, offset=200_000))
        yield from pieces[:2]
        pieces[2].chunk.crc32c ^= 1
        yield pieces[2]

    assert code_of(one.updates.UploadUpdate, breaking()) == grpc.StatusCode.DATA_LOSS
    assert one.received(sealed) == 200_000 + 2**16
    whole = one.updates.UploadUpdate(one.pieces(sealed, offset=one.received(sealed)), timeout=10).result
    assert (whole.verdict.answer, whole.included_in) == (ACCEPTED, 1)
    assert one.received(sealed) == 0
    again = one.updates.UploadUpdate(one.pieces(sealed), timeout=10).result
    assert (again.verdict.answer, again.first_answer) == (DUPLICATE, ACCEPTED)
    other = two.sender.seal(0)
    assert two.updates.UploadUpdate(two.pieces(other), timeout=10).result.verdict.answer == ACCEPTED
    one.wait_for_version(1)
    # The model of 400 kB is not in the event; it comes in chunks, from any offset.
    published = next(one.watch()).published
    assert (published.version, published.model, published.total_bytes) == (1, b"", 400_000)
    chunks = one.model(1)
    assert len(chunks) == 7
    data = b"".join(chunk.data for chunk in chunks)
    assert hashlib.sha256(data).digest() == chunks[0].sha256 == published.sha256
    assert b"".join(chunk.data for chunk in one.model(1, offset=123_456)) == data[123_456:]
    assert hashlib.sha256(b"".join(c.data for c in one.model(0))).digest() == LARGE.initial_model_sha256
    assert code_of(one.model, 2) == grpc.StatusCode.NOT_FOUND
    assert code_of(one.model, 1, models_pb2.MODEL_KIND_AVERAGED) == grpc.StatusCode.NOT_FOUND


def test_an_upload_with_a_gap_or_another_content_is_refused(large: list[Client]) -> None:
    one, _ = large
    sealed = one.sender.seal(0)
    pieces = list(one.pieces(sealed))
    assert code_of(one.updates.UploadUpdate, iter([pieces[0], pieces[2]])) == grpc.StatusCode.INVALID_ARGUMENT
    assert code_of(one.updates.UploadUpdate, iter(pieces[1:])) == grpc.StatusCode.INVALID_ARGUMENT
    assert one.updates.UploadUpdate(one.pieces(sealed, offset=2**16)).result.verdict.answer == BUSY
    other = one.sender.seal(0, bytes(400_000))
    swapped = [pieces[0], *list(one.pieces(other))[1:]]
    assert one.updates.UploadUpdate(iter(swapped)).result.verdict.answer == common_pb2.ANSWER_INVALID
    assert one.updates.UploadUpdate(iter(pieces)).result.verdict.answer == ACCEPTED


def test_an_upload_that_the_header_dooms_is_refused_before_its_bytes(large: list[Client]) -> None:
    one, _ = large
    sealed = one.sender.seal(0, clip_norm=0.25)
    result = one.updates.UploadUpdate(iter([next(one.pieces(sealed))])).result
    assert result.verdict.answer == common_pb2.ANSWER_INVALID
    far = one.sender.seal(30)
    assert one.updates.UploadUpdate(one.pieces(far)).result.verdict.answer == common_pb2.ANSWER_TOO_FAR_AHEAD


def test_a_watch_resumes_skips_beats_and_never_repeats(small: list[Client]) -> None:
    one, two = small
    watch = one.watch()
    assert next(watch).published.version == 0
    assert next(watch).heartbeat.interval_milliseconds == 200
    for round_ in range(3):
        for client in small:
            client.submit(client.sender.seal(round_))
    seen = [event.published.version for event in take_until(watch, 3) if event.HasField("published")]
    assert seen == sorted(set(seen))
    assert seen[-1] == 3
    assert next(two.watch(after=1)).published.version == 3
    assert next(two.watch(after=3)).WhichOneof("event") == "heartbeat"
    averaged = one.model(3, models_pb2.MODEL_KIND_AVERAGED)
    # 3 is the first version of the second half of 4, so its average is itself.
    assert averaged[0].data == one.model(3)[0].data


def take_until(watch: Iterator[models_pb2.WatchModelsResponse], version: int) -> list[models_pb2.WatchModelsResponse]:
    events = []
    for event in watch:
        events.append(event)
        if event.published.version == version:
            break
    return events
