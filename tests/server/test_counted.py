"""A real server's `/metrics` against what was really done to it."""

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from hushgrad.v1 import common_pb2, membership_pb2, updates_pb2
from prometheus_client.parser import text_string_to_metric_families

from tests.support.federations import make_terms, senders_of
from tests.support.pki import Pki
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(participants=2, final_version=4, window=4, parameters=1000, max_unary_bytes=2**12)


def metrics_of(server: ServerProcess) -> Callable[..., float]:
    """Returns a function from name and labels to what one scrape says."""
    while not (events := server.events("listening_for_web")):
        time.sleep(0.01)
    with urllib.request.urlopen(f"{events[0]['url']}metrics", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(name: str, **labels: str) -> float:
        [found] = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
        return float(found)

    return value


def refused(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def test_what_was_done_is_what_is_counted(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    pki = Pki(tmp_path)
    (tmp_path / "certificates" / "denied.txt").touch()
    configure(tmp_path, web_listen="127.0.0.1:0", limits={"calls_per_second": 20.0})
    with open(tmp_path / "server.toml", "a") as file:
        file.write(pki.table())
    with ServerProcess(tmp_path) as server:
        clients = [Client("127.0.0.1:1", sender) for sender in senders_of(TERMS)]
        for client in clients:
            client.use(pki.channel(server.address, pki.member(client.sender.name)))
            client.join()
            client.start()
        one, two = clients
        for round_ in range(2):
            for client in clients:
                assert client.submit(client.sender.seal(round_)).verdict.answer == common_pb2.ANSWER_ACCEPTED
        assert one.submit(one.sender.sealed[1]).verdict.answer == common_pb2.ANSWER_DUPLICATE
        upload = one.updates.UploadUpdate(one.pieces(one.sender.seal(2), size=1000), timeout=10)
        assert upload.result.verdict.answer == common_pb2.ANSWER_ACCEPTED
        assert sum(len(message.data) for message in two.model(2)) == 4 * TERMS.parameters
        damaged = two.request(two.sender.seal(2))
        damaged.crc32c ^= 1
        assert two.updates.SubmitUpdate(damaged, timeout=10).verdict.answer == common_pb2.ANSWER_BUSY
        no_header = updates_pb2.SubmitUpdateRequest(caller=one.caller, header=b"short")
        assert refused(lambda: one.updates.SubmitUpdate(no_header, timeout=10)) is grpc.StatusCode.INVALID_ARGUMENT
        # A stranger to these calls, a certificate of another federation's name, and somebody who asks too fast.
        watcher = Client("127.0.0.1:1", one.sender)
        watcher.use(pki.channel(server.address, pki.member("board", "watcher")))
        assert refused(watcher.start) is grpc.StatusCode.PERMISSION_DENIED
        lapsed = Client("127.0.0.1:1", one.sender)
        lapsed.use(pki.channel(server.address, pki.odd_member("hushgrad://other/participant/client-1")))
        assert refused(lapsed.start) is grpc.StatusCode.UNAUTHENTICATED
        ask = membership_pb2.GetParticipationRequest(caller=two.caller)
        hurried = [two.membership.GetParticipation.future(ask, timeout=20) for _ in range(60)]
        waits = sum(call.result().verdict.answer == common_pb2.ANSWER_BUSY for call in hurried)
        assert waits > 0

        value = metrics_of(server)
        assert value("hushgrad_updates_total", answer="accepted") == 5
        assert value("hushgrad_updates_total", answer="duplicate") == 1
        assert value("hushgrad_updates_total", answer="busy") == 1
        assert value("hushgrad_updates_folded_total") == 4  # the fifth goes into a version that is not begun
        assert value("hushgrad_update_duration_seconds_count") == 6
        assert value("hushgrad_update_received_bytes_total") == 7 * 4 * TERMS.parameters
        assert 4 * TERMS.parameters < value("hushgrad_model_sent_bytes_total") < 5 * TERMS.parameters
        assert value("hushgrad_versions_published_total") == value("hushgrad_newest_version") == 2
        assert value("hushgrad_checkpoint_duration_seconds_count") == 2
        assert value("hushgrad_store_commit_duration_seconds_count") > 0
        assert value("hushgrad_refusals_total", reason="malformed") == 1
        assert value("hushgrad_refusals_total", reason="not_permitted") == 1
        assert value("hushgrad_refusals_total", reason="unauthenticated") == 1
        assert (
            value("hushgrad_refusals_total", reason="too_fast") + value("hushgrad_refusals_total", reason="too_many")
            == waits
        )
        assert value("hushgrad_certificate_expiry_timestamp_seconds") == pytest.approx(time.time() + 86_400, abs=120)
        assert value("hushgrad_participant_awaited", participant="client-1") == 0
        assert value("hushgrad_participant_awaited", participant="client-2") == 1
