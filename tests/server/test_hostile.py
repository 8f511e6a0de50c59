"""What strangers and broken programs send: the server refuses it at little cost, and the others go on.

Row numbers in names of sections are those of docs/limits.md.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from hushgrad.v1 import common_pb2, membership_pb2, models_pb2, updates_pb2

from tests.faults import attackers
from tests.support.federations import make_terms, senders_of
from tests.support.pki import Pki
from tests.support.raw_http2 import DATA, Connection, frame, message_start
from tests.support.servers import Client, ServerProcess, configure, make_state

ACCEPTED, BUSY, INVALID = common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_BUSY, common_pb2.ANSWER_INVALID
SUBMIT, UPLOAD = "/hushgrad.v1.UpdateService/SubmitUpdate", "/hushgrad.v1.UpdateService/UploadUpdate"
GROWTH_MIB = 20.0
"""How much the server's memory may grow under attack: reliability row 28."""

TERMS = make_terms(parameters=50_000, participants=4, final_version=100, window=100)
STRICT = {
    "request_seconds": 1.0,
    "handshake_seconds": 1.0,
    "silence_seconds": 1.0,
    "min_bytes_per_second": 131_072.0,
    "upload_bytes_per_second": 1_048_576.0,
    "calls_per_second": 1e6,
}


class Place:
    """A server and its clients."""

    def __init__(self, root: Path, **keys: object) -> None:
        make_state(root, TERMS)
        configure(root, **keys)
        self.root = root
        self.server = ServerProcess(root)
        self.clients = [Client(self.server.address, sender) for sender in senders_of(TERMS)]
        for client in self.clients:
            assert client.join().verdict.answer == ACCEPTED
            assert client.start().verdict.answer == ACCEPTED
        self.rounds = iter(range(100))

    @property
    def memory_mib(self) -> float:
        """Of the server."""
        return psutil.Process(self.server.process.pid).memory_info().rss / 2**20

    def assert_serves(self) -> None:
        """A submit of somebody who did nothing wrong is accepted, soon."""
        begin = time.monotonic()
        client = self.clients[-1]
        assert client.submit(client.sender.seal(next(self.rounds))).verdict.answer == ACCEPTED
        assert time.monotonic() - begin < 2.0

    def close(self) -> None:
        """Ends it all."""
        for client in self.clients:
            client.close()
        self.server.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    there = Place(tmp_path_factory.mktemp("strict"), limits=STRICT)
    yield there
    there.close()


def fault(call: object, *args: object, **kwargs: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, **kwargs)  # type: ignore[operator]
    return caught.value.code(), caught.value.details()


# Sizes: a bomb, a lie about a length, metadata without end


def test_a_compressed_request_is_refused_before_it_is_unpacked(place: Place) -> None:
    raw = place.clients[0].channel.unary_unary(SUBMIT)
    before = place.memory_mib
    for _ in range(20):  # 1 MiB of zeros is 1 kB on the wire
        code, detail = fault(raw, bytes(2**20), compression=grpc.Compression.Gzip, timeout=5)
        assert (code, "gzip" in detail) == (grpc.StatusCode.UNIMPLEMENTED, True)
    assert place.memory_mib < before + GROWTH_MIB
    place.assert_serves()


def test_a_message_above_the_contracts_largest_is_refused_by_its_length(place: Place) -> None:
    raw = place.clients[0].channel.unary_unary(SUBMIT)
    assert fault(raw, bytes(2**20 + 2**14 + 1), timeout=5)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    before = place.memory_mib
    connections = [Connection(place.server.address) for _ in range(50)]
    for connection in connections:
        connection.begin(SUBMIT)
        connection.send(frame(DATA, 0, 1, message_start(2**32 - 1) + bytes(1000)))
    waiting, deadline = list(connections), time.monotonic() + 3
    while waiting and time.monotonic() < deadline:
        waiting = [connection for connection in waiting if b"grpc-status" not in connection.read(0.01)[0]]
    assert waiting == []
    assert place.memory_mib < before + GROWTH_MIB
    for connection in connections:
        connection.close()
    place.assert_serves()


def test_a_hundred_thousand_metadata_entries_are_refused(place: Place) -> None:
    raw = place.clients[0].channel.unary_unary(SUBMIT)
    before = place.memory_mib
    entries = [(f"key-{at}", "v") for at in range(100_000)]
    assert fault(raw, b"", metadata=entries, timeout=20)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert fault(raw, b"", metadata=[("key", "v" * 9000)], timeout=5)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert place.memory_mib < before + GROWTH_MIB
    place.assert_serves()


# Row 28: truncated and mutated messages, ten thousand of them


def test_ten_thousand_mutated_messages_do_no_harm(place: Place) -> None:
    one = place.clients[0]
    sealed = one.sender.seal(90)
    caller = one.caller
    originals = {
        SUBMIT: one.request(sealed),
        "/hushgrad.v1.UpdateService/GetUpload": updates_pb2.GetUploadRequest(caller=caller, digest=sealed.digest),
        "/hushgrad.v1.MembershipService/Start": membership_pb2.StartRequest(caller=caller, next_round=1),
        "/hushgrad.v1.MembershipService/ReportRounds": membership_pb2.ReportRoundsRequest(
            caller=caller, reports=[membership_pb2.RoundReport(round=7, fate=3, digest=bytes(32))] * 20
        ),
        "/hushgrad.v1.ModelService/GetManifest": models_pb2.GetManifestRequest(caller=caller, version=0),
    }
    generator = np.random.default_rng(28)
    pool = [(method, message.SerializeToString()[:2000]) for method, message in originals.items()]

    async def send() -> Counter[object]:
        codes: Counter[object] = Counter()
        async with grpc.aio.insecure_channel(place.server.address) as channel:
            calls = {method: channel.unary_unary(method) for method in originals}

            async def worker(count: int) -> None:
                for _ in range(count):
                    method, data = pool[generator.integers(len(pool))]
                    try:
                        await calls[method](mutated(data, generator), timeout=20)
                        codes[grpc.StatusCode.OK] += 1
                    except grpc.RpcError as error:
                        codes[error.code()] += 1

            await asyncio.gather(*(worker(625) for _ in range(16)))
        return codes

    place.assert_serves()
    before = place.memory_mib
    codes = asyncio.run(send())
    assert codes.total() == 10_000
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN}
    assert place.memory_mib < before + GROWTH_MIB
    place.assert_serves()


def mutated(data: bytes, generator: np.random.Generator) -> bytes:
    """Returns the bytes with a few of them changed, left out or repeated, or cut short."""
    changed = bytearray(data)
    for _ in range(generator.integers(1, 5)):
        at = int(generator.integers(len(changed) + 1))
        match generator.integers(4):
            case 0:
                changed = changed[:at]
            case 1:
                changed[at : at + 1] = generator.bytes(1)
            case 2:
                changed[at:at] = changed[at : at + 30]
            case 3:
                changed[at : at + 8] = b"\xff" * 8
    return bytes(changed)


# Time: silence, dribbles, tiny pieces


def test_half_a_request_is_given_up_after_a_while(place: Place) -> None:
    connection = Connection(place.server.address)
    connection.begin(SUBMIT)
    connection.send(frame(DATA, 0, 1, message_start(2**20) + bytes(1000)))
    assert b"grpc-status" not in connection.read(0.5)[0]
    received, deadline = b"", time.monotonic() + 3
    while b"did not arrive within" not in received and time.monotonic() < deadline:
        received += connection.read(0.1)[0]
    assert b"did not arrive within" in received
    connection.close()


def test_an_upload_that_is_too_slow_ends_and_goes_on_where_it_broke_off(place: Place) -> None:
    one = place.clients[0]
    sealed = one.sender.seal(20)
    pieces = list(one.pieces(sealed))

    def silent() -> Iterator[updates_pb2.UploadUpdateRequest]:
        yield from pieces[:2]
        time.sleep(4)

    begin = time.monotonic()
    code, detail = fault(one.updates.UploadUpdate, silent(), timeout=10)
    assert (code, "131072 bytes a second" in detail) == (grpc.StatusCode.UNAVAILABLE, True)
    assert 1.5 < time.monotonic() - begin < 3.5  # a second of silence, and what one piece and the next may take
    assert one.received(sealed) == 2**16
    rest = one.updates.UploadUpdate(one.pieces(sealed, offset=2**16), timeout=10)
    assert rest.result.verdict.answer == ACCEPTED


def test_a_sender_who_begins_anew_need_not_wait_for_the_stream_it_lost(place: Place) -> None:
    one = place.clients[0]
    sealed = one.sender.seal(21)
    first = list(one.pieces(sealed))[:2]
    gone = threading.Event()

    def lost() -> Iterator[updates_pb2.UploadUpdateRequest]:
        yield from first
        gone.wait(5)

    old = one.updates.UploadUpdate.future(lost(), timeout=10)
    while one.received(sealed) < 2**16:
        time.sleep(0.01)
    begin = time.monotonic()
    answer = one.updates.UploadUpdate(one.pieces(sealed, offset=2**16), timeout=10).result.verdict
    assert answer.answer == ACCEPTED
    assert time.monotonic() - begin < 1.0
    assert old.exception().code() == grpc.StatusCode.ABORTED
    gone.set()


def test_one_participant_has_two_uploads_at_a_time(place: Place) -> None:
    one = place.clients[1]
    opened = threading.Event()

    def waiting(round_: int) -> Iterator[updates_pb2.UploadUpdateRequest]:
        yield from list(one.pieces(one.sender.seal(round_)))[:2]
        opened.wait(5)

    first = [one.updates.UploadUpdate.future(waiting(round_), timeout=10) for round_ in (22, 23)]
    while sum(one.received(one.sender.sealed[round_]) > 0 for round_ in (22, 23) if round_ in one.sender.sealed) < 2:
        time.sleep(0.01)
    third = one.updates.UploadUpdate(one.pieces(one.sender.seal(24)), timeout=10).result.verdict
    assert (third.answer, third.retry_after_milliseconds > 0) == (BUSY, True)
    opened.set()
    assert all(call.result(10).result.verdict.answer == BUSY for call in first)


def test_a_flood_of_tiny_pieces_is_read_slowly(place: Place) -> None:
    one = place.clients[2]
    sealed = one.sender.seal(25)
    call = one.updates.UploadUpdate.future(one.pieces(sealed, size=1), timeout=1.2)
    times = []
    for _ in range(10):
        begin = time.monotonic()
        place.assert_serves()
        times.append(time.monotonic() - begin)
        time.sleep(0.05)
    assert call.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert statistics.median(times) < 0.2
    # Each counts 16 KiB of 1 MiB a second: 128 at once, then 64 a second.
    assert 64 <= one.received(sealed) <= 128 + 64 * 2


def test_downloads_that_nobody_reads_keep_nobody_out(tmp_path: Path) -> None:
    limits = {"silence_seconds": 0.5, "min_bytes_per_second": 262_144.0, "all_downloads_at_once": 2}
    there = Place(tmp_path, limits=limits)
    try:
        one = there.clients[0]
        request = models_pb2.GetModelRequest(caller=one.caller, version=0).SerializeToString()
        idle = [Connection(there.server.address) for _ in range(2)]
        for connection in idle:
            connection.begin("/hushgrad.v1.ModelService/GetModel")
            connection.send(frame(DATA, 1, 1, message_start(len(request)) + request))
        time.sleep(0.2)
        assert fault(one.model, 0)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        time.sleep(1.5)  # half a second, and what four pieces may take
        assert sum(len(chunk.data) for chunk in one.model(0)) == 4 * TERMS.parameters
        assert "Traceback" not in there.server.log_path.read_text()
        for connection in idle:
            connection.close()
    finally:
        there.close()


def test_requests_that_never_end_keep_nobody_out(tmp_path: Path) -> None:
    there = Place(tmp_path, limits={"all_calls_at_once": 20})
    try:
        halves = [Connection(there.server.address) for _ in range(30)]
        for connection in halves:
            connection.begin(SUBMIT)
            connection.send(frame(DATA, 0, 1, message_start(2**20) + bytes(1000)))
        time.sleep(0.6)
        for _ in range(5):
            there.assert_serves()
        for connection in halves:
            connection.close()
    finally:
        there.close()


# Rates, for each participant


def test_a_flooder_is_told_to_wait_and_nobody_else_is(tmp_path: Path) -> None:
    there = Place(tmp_path, limits={"calls_per_second": 50.0})
    try:
        one = there.clients[0]
        request = one.request(one.sender.seal(0))
        answers = []
        for _ in range(4):
            calls = [one.updates.SubmitUpdate.future(request, timeout=10) for _ in range(50)]
            answers += [call.result().verdict for call in calls]
        told = [verdict for verdict in answers if verdict.answer == BUSY]
        assert 0 < len(told) < 110  # 100 at once, less what joining took, and 50 a second while they come
        assert all(0 < verdict.retry_after_milliseconds <= 1000 for verdict in told)
        assert all(verdict.server.server_epoch == 1 for verdict in told)
        (said,) = there.server.events("told_to_wait")
        assert (said["who"], said["call"], said["why"]) == ("client-1", SUBMIT, "calls come too fast")
        there.assert_serves()
        # Calls whose answers have no verdict end with a code that the contract knows as "try again".
        codes = set()
        for _ in range(300):
            try:
                one.get_terms()
            except grpc.RpcError as error:
                codes.add(error.code())
                break
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        there.assert_serves()
    finally:
        there.close()


# With certificates: limits are a holder's, whatever connections it opens and whatever names it writes


def test_a_certificate_has_one_allowance_however_many_connections_it_opens(tmp_path: Path) -> None:
    terms = make_terms(names=("client-1", "client-2"))
    make_state(tmp_path, terms)
    configure(tmp_path, limits={"watches_at_once": 2, "calls_per_second": 20.0, "handshake_seconds": 1.0})
    pki = Pki(tmp_path)
    with open(tmp_path / "server.toml", "a") as file:
        file.write(pki.table(signs=False))
    greedy, other = pki.member("client-1"), pki.member("client-2")
    senders = senders_of(terms)
    with ServerProcess(tmp_path) as server:

        def client(at: int) -> Client:
            one = Client(server.address, senders[at])
            one.use(pki.channel(server.address, (greedy, other)[at]))
            return one

        greedies, good = [client(0) for _ in range(4)], client(1)
        assert greedies[0].join().verdict.answer == ACCEPTED
        watches = []
        for one in greedies[:2]:
            watches.append(one.watch())
            assert next(watches[-1]).WhichOneof("event") == "published"
        codes = {fault(lambda one=one: next(one.watch()))[0] for one in greedies[2:]}
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert next(good.watch()).WhichOneof("event") == "published"
        # The rate, too: 40 at once, over four connections; another one's name costs that one nothing.
        forged = membership_pb2.JoinRequest(caller=good.caller, join_id=bytes(16))
        calls = [one.membership.Join.future(forged, timeout=10) for one in greedies for _ in range(20)]
        ended = Counter(call.code() for call in calls)
        assert ended[grpc.StatusCode.PERMISSION_DENIED] >= 30
        assert ended[grpc.StatusCode.OK] >= 20  # told BUSY before anybody looked at the name
        assert good.join().verdict.answer == ACCEPTED
        # Who says nothing, or half a greeting, is closed before a handshake would have ended.
        silent = [Connection(server.address, greet=False) for _ in range(20)]
        for connection in silent[:10]:
            connection.send(b"\x16\x03\x01\x02\x00\x01")
        time.sleep(0.3)
        assert all(connection.read(2.5)[1] for connection in silent)
        for one in (*greedies, good):
            one.close()


def test_more_connections_than_there_may_be_are_closed_and_room_comes_back(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    configure(tmp_path, limits={"connections": 20, "handshake_seconds": 1.0})
    with ServerProcess(tmp_path) as server:
        senders = senders_of(TERMS)
        inside = Client(server.address, senders[0])
        inside.join()
        crowd = [Connection(server.address, greet=False) for _ in range(60)]
        time.sleep(0.2)
        assert sum(connection.read(0.001)[1] for connection in crowd) >= 40
        assert inside.submit(senders[0].seal(0)).verdict.answer == ACCEPTED
        late, deadline = Client(server.address, senders[1]), time.monotonic() + 10
        answer = None
        while answer is None and time.monotonic() < deadline:
            try:
                answer = late.join().verdict.answer
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE  # noqa: PT017
                time.sleep(0.2)
        assert answer == ACCEPTED
        inside.close()
        late.close()


# Content (rows 29 to 32)


def test_improbable_content_is_refused_for_ever_and_shown_without_numbers(tmp_path: Path) -> None:
    there = Place(tmp_path, improbable_updates="refuse")
    try:
        one, two = there.clients[:2]
        largest = one.sender.seal(0, np.full(TERMS.parameters, 2**31 - 1, "<i4").tobytes())
        answer = one.submit(largest)
        assert (answer.verdict.answer, "root mean square" in answer.verdict.detail) == (INVALID, True)
        again = one.submit(largest)
        assert (again.verdict.answer, again.first_answer) == (common_pb2.ANSWER_DUPLICATE, INVALID)
        zeros = two.sender.seal(0, bytes(4 * TERMS.parameters))
        uploaded = two.updates.UploadUpdate(two.pieces(zeros), timeout=10).result
        assert uploaded.verdict.answer == INVALID
        events = there.server.events("improbable_update")
        assert [(event["participant"], event["statistic"]) for event in events] == [
            ("client-1", "norm-too-large"),
            ("client-2", "norm-too-small"),
        ]
        assert set(events[0]) == {"event", "level", "timestamp", "participant", "round", "statistic", "answer"}
        assert [one.updates_invalid for one in one.status().participants] == [1, 1, 0, 0]
        receipts = exported(there)
        assert [receipt["disposition"] for receipt in receipts] == ["INVALID", "INVALID"]
        assert "root mean square" in receipts[0]["reason"]
    finally:
        there.close()


def test_flagged_content_counts_and_is_shown(tmp_path: Path) -> None:
    there = Place(tmp_path, improbable_updates="accept-and-flag")
    try:
        one = there.clients[0]
        assert one.submit(one.sender.seal(0, bytes(4 * TERMS.parameters))).verdict.answer == ACCEPTED
        assert [one.updates_flagged for one in one.status().participants] == [1, 0, 0, 0]
        assert there.server.events("improbable_update")[0]["answer"] == "ACCEPTED"
        (receipt,) = exported(there)
        assert (receipt["disposition"], "root mean square" in receipt["reason"]) == ("INCLUDED", True)
        assert "1 improbable" in told(there, "status", there.server.address)
    finally:
        there.close()


def exported(there: Place) -> list[dict]:
    told(there, "export", str(there.root / "exported"))
    return json.loads((there.root / "exported" / "receipts.json").read_text())


def told(there: Place, *arguments: str) -> str:
    command = [sys.executable, "-m", "hushgrad.server", *arguments]
    return subprocess.run(command, cwd=there.root, check=True, capture_output=True, text=True, timeout=30).stdout


# Rows 29 and 40: everything at once, smaller than `make hostile`


def test_a_good_client_hardly_feels_a_crowd_of_attackers(tmp_path: Path) -> None:
    scene = attackers.play(
        tmp_path, silent=100, half_sent=40, seconds=2.0, quiet_seconds=0.5, parameters=20_000, handshake_seconds=1.0
    )
    assert scene.attacked.median < 0.2
    assert 0 < scene.silent_closed_after < 2.5
    assert scene.flood_served < scene.flooded
    assert scene.memory_after < scene.memory_before + 100
