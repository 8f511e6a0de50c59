"""The books on callers, and the room for uploads: pure, with a clock of the test's own."""

import re
from pathlib import Path

import msgspec
import pytest
from hushgrad.server import config, limiting
from hushgrad.server.errors import InputError
from hushgrad.server.limits import SMALLEST_COST_BYTES, Limiter, LimitsConfig
from hushgrad.server.spool import Spool
from hushgrad.v1 import membership_pb2

SMALL = LimitsConfig(
    calls_per_second=10.0, calls_at_once=2, all_calls_at_once=3, upload_bytes_per_second=1e6, silence_seconds=1.0
)


def served(limiter: Limiter, who: str, tries: int, begin: float, end: float) -> int:
    """Returns how many of so many evenly spaced calls are within the rate."""
    times = [begin + (end - begin) * at / tries for at in range(tries)]
    return sum(limiter.call(who, now) == 0 for now in times)


def test_two_seconds_worth_of_calls_may_come_at_once_and_then_the_rate_holds() -> None:
    limiter = Limiter(SMALL)
    assert served(limiter, "flooder", 1000, 0.0, 1e-6) == 20
    assert served(limiter, "flooder", 100_000, 0.0, 10.0) in (99, 100)
    # Asking again and again neither helps nor harms: after a second of quiet ten more calls are there.
    assert served(limiter, "flooder", 1000, 11.0, 11.0 + 1e-6) in (10, 11)


def test_a_flooder_takes_nothing_from_others() -> None:
    limiter = Limiter(SMALL)
    served(limiter, "flooder", 10_000, 0.0, 1.0)
    assert limiter.call("good", 1.0) == 0


def test_a_refused_call_is_told_how_long_to_wait_and_the_wait_is_enough() -> None:
    limiter = Limiter(SMALL)
    served(limiter, "one", 20, 0.0, 1e-9)
    wait = limiter.call("one", 0.0)
    assert 0 < wait < 0.11
    assert limiter.call("one", wait + 1e-6) == 0


def test_open_calls_are_limited_for_each_and_for_all() -> None:
    limiter = Limiter(SMALL)
    with limiter.opened("one", "call", 0.0), limiter.opened("one", "call", 0.0):
        assert not limiter.is_free("one", "call", 0.0)
        assert limiter.is_free("two", "call", 0.0)
        assert limiter.is_free("one", "watch", 0.0)
        with limiter.opened(None, "call", 0.0):
            assert not limiter.is_free("two", "call", 0.0)
            assert not limiter.is_free(None, "call", 0.0)
    assert limiter.is_free("one", "call", 0.0)


def test_a_place_is_free_again_after_an_error() -> None:
    limiter = Limiter(SMALL)
    for _ in range(10):
        with pytest.raises(RuntimeError), limiter.opened("one", "call", 0.0):
            raise RuntimeError("the call failed")
    assert limiter.is_free("one", "call", 0.0)


def test_a_tiny_piece_costs_as_much_as_one_of_16_kib() -> None:
    limiter = Limiter(SMALL)
    waits = [limiter.received("one", 1, 0.0) for _ in range(200)]
    free = int(2e6 / SMALLEST_COST_BYTES)
    assert waits[: free - 1] == [0.0] * (free - 1)
    assert waits[-1] == pytest.approx((200 * SMALLEST_COST_BYTES - 2e6) / 1e6)
    assert limiter.received("two", 2_000_000, 0.0) == 0


def test_patience_grows_with_what_arrives_and_allows_for_one_message() -> None:
    limits = LimitsConfig(silence_seconds=30.0, min_bytes_per_second=16384.0)
    assert limits.patience(0, 2**20) == 30 + 64
    assert limits.patience(163_840, 2**16) == 30 + 10 + 4


def test_the_books_stay_small_however_many_names_are_made_up() -> None:
    limiter = Limiter(SMALL)
    for at in range(50_000):
        limiter.call(f"name-{at}", at * 1e-5)
    assert len(limiter._accounts) <= 10_001
    # Quiet ones are forgotten later, and those with an open call are not.
    with limiter.opened("name-1", "call", 1.0):
        for at in range(20_000):
            limiter.call(f"later-{at}", 10.0 + at * 1e-6)
        assert "name-1" in limiter._accounts
        assert "name-2" not in limiter._accounts


def test_what_is_no_name_is_no_key_of_the_books() -> None:
    request = membership_pb2.JoinRequest()
    for participant, name in (("client-1", "client-1"), ("x" * 1_000_000, ""), ("Client\n1", ""), ("", "")):
        request.caller.participant = participant
        assert limiting.name_in(request) == name
    assert limiting.name_in(object()) == ""


def test_unknown_and_impossible_limits_are_refused_with_the_key(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    for text, key in (
        ("[limits]\ncalls_per_secnd = 1.0", "calls_per_secnd"),
        ("[limits]\ncalls_per_second = 0.0", "calls_per_second"),
        ("[limits]\ncalls_at_once = 0", "calls_at_once"),
        ('improbable_updates = "ignore"', "improbable_updates"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=key):
            config.load(path)
    path.write_text("[limits]\ncalls_at_once = 3")
    assert config.load(path).limits == msgspec.structs.replace(LimitsConfig(), calls_at_once=3)


def test_the_page_about_limits_names_every_key_with_its_default() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+(?: [KM]iB)?) \|", page, re.MULTILINE))
    sizes = {"KiB": 2**10, "MiB": 2**20}
    values = {}
    for key, text in told.items():
        number, _, unit = text.partition(" ")
        values[key] = int(number) * sizes.get(unit, 1)
    assert values == msgspec.structs.asdict(LimitsConfig())


# The spool


def spool(folder: Path, uploads: int = 3, of_each: int = 2) -> Spool:
    return Spool(folder, uploads * 100, of_each=of_each, keep_seconds=60.0)


def name(at: int) -> bytes:
    return bytes([at]) * 32


def test_a_participant_has_room_for_two_uploads_and_the_one_that_rests_gives_way(tmp_path: Path) -> None:
    room = spool(tmp_path)
    first, second = (room.open("one", name(at), 100, 0, float(at)) for at in (1, 2))
    assert first is not None
    assert second is not None
    room.append(second, bytes(10), 2.5)
    assert room.open("one", name(3), 100, 0, 3.0) is not None
    assert room.find("one", name(1)) is None
    assert room.received_bytes("one", name(2)) == 10
    assert len(list(tmp_path.iterdir())) == 2


def test_an_upload_that_goes_on_is_never_dropped_for_one_that_begins(tmp_path: Path) -> None:
    room = spool(tmp_path)
    for at in (1, 2):
        upload = room.open("one", name(at), 100, 0, 0.0)
        assert upload is not None
        upload.open_streams = 1
    assert room.open("one", name(3), 100, 0, 1.0) is None
    third = room.open("two", name(1), 100, 0, 1.0)
    assert third is not None
    third.open_streams = 1
    assert room.open("three", name(1), 100, 0, 1.0) is None


def test_whoever_rests_longest_gives_way_to_others(tmp_path: Path) -> None:
    room = spool(tmp_path)
    for at, who in enumerate(("one", "two", "three")):
        assert room.open(who, name(1), 100, 0, float(at)) is not None
    assert room.open("four", name(1), 100, 0, 5.0) is not None
    assert room.find("one", name(1)) is None
    assert room.find("two", name(1)) is not None


def test_uploads_that_do_not_go_on_are_forgotten(tmp_path: Path) -> None:
    room = spool(tmp_path)
    room.open("one", name(1), 100, 0, 0.0)
    room.open("two", name(1), 100, 0, 61.0)
    assert room.find("one", name(1)) is None
    assert len(list(tmp_path.iterdir())) == 1
