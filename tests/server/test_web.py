"""The page as an application: what it answers to whom, that looking costs little, and that it loads nothing strange."""

import asyncio
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hushgrad.server import denylist, overview
from hushgrad.server.counting import Counters
from hushgrad.server.denylist import DenyList
from hushgrad.server.overview import Facts, Overview
from hushgrad.server.records import Answer
from hushgrad.server.web import application, feed
from hushgrad.server.web.door import CERTIFICATE, CertificateDoor, OpenDoor
from hushgrad.server.web.feed import Feed
from hushgrad.server.web.history import History, Place
from hushgrad.server.web.series import Series

from tests.support import asgi
from tests.support.federations import Owner, digest_of, make_terms, senders_of
from tests.support.pki import DAY, Member, Pki

TERMS = make_terms(participants=2)
PAGE = Path(application.__file__).parent / "page"


class Past:
    """A history that a test writes."""

    def __init__(self) -> None:
        self.published: list[tuple[int, float | None]] = [(0, 100.0)]
        self.scored: dict[str, list[tuple[int, float, float | None]]] = {}

    def publications(self, after: int, most: int) -> list[tuple[int, float | None]]:
        return [point for point in self.published if point[0] > after][-most:]

    def evaluators(self) -> list[str]:
        return sorted(self.scored)

    def scores(self, evaluator: str, after: int, most: int) -> list[tuple[int, float, float | None]]:
        return [point for point in self.scored[evaluator] if point[0] > after][-most:]


class World:
    """A federation, and the page of it."""

    def __init__(self, door: OpenDoor | CertificateDoor | None = None) -> None:
        self.owner = Owner(TERMS)
        self.senders = senders_of(TERMS)
        self.owner.begin(self.senders)
        self.counters = Counters()
        self.past = Past()
        self.taken = 0
        self.feed = Feed(self.take, History(lambda: self.past))
        self.app = application.application(self.feed, door or OpenDoor("127.0.0.1"))

    async def take(self) -> Overview:
        self.taken += 1
        facts = Facts(
            now=float(self.taken), wall_seconds=1e9, started_at=0.0, published_at=0.0, server_epoch=1, watchers=0
        )
        return overview.take(self.owner.federation, digest_of(TERMS), self.counters, facts)

    async def get(self, path: str, **options: object) -> asgi.Answer:
        return await asgi.call(self.app, path, **options)


def run(test: Callable[[World], object], *arguments: object) -> None:
    async def inside() -> None:
        await test(World(*arguments))  # type: ignore[misc]

    asyncio.run(inside())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets live events come every 20 milliseconds."""
    monkeypatch.setattr(feed, "PERIOD_SECONDS", 0.02)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


# What there is


def test_every_file_of_the_page_is_served_with_a_policy_that_forbids_the_rest():
    async def test(world: World) -> None:
        for path in ("/", "/page.js", "/page.css", "/icon.svg", "/uplot/uPlot.iife.min.js", "/uplot/uPlot.min.css"):
            answer = await world.get(path)
            assert (answer.status, len(answer.body) > 100) == (200, True)
            assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"

    run(test)


def test_the_page_holds_nothing_that_its_policy_forbids():
    html = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>|\son\w+=|\sstyle=|<style|javascript:", html)
    for text in (html, (PAGE / "page.css").read_text(), (PAGE / "page.js").read_text()):
        assert not re.search(r"https?://|url\(|@import|innerHTML|insertAdjacentHTML|eval\(", text)
    loaded = set(re.findall(r'(?:src|href)="([^"]+)"', html)) - {"api/overview", "api/curves", "metrics"}
    assert {f"/{name}" for name in loaded} | {"/"} == set(application._FILES)


def test_the_chart_library_comes_with_its_licence():
    assert "MIT License" in (PAGE / "uplot" / "LICENSE").read_text()


def test_an_unchanged_file_is_not_sent_again():
    async def test(world: World) -> None:
        tag = (await world.get("/page.js")).headers["etag"]
        again = await world.get("/page.js", headers={"if-none-match": tag})
        assert (again.status, again.body) == (304, b"")

    run(test)


@pytest.mark.parametrize("path", ["/nothing", "/../server.toml", "/uplot/", "/page.js/", "/api"])
def test_nothing_else_is_served(path):
    async def test(world: World) -> None:
        answer = await world.get(path)
        assert answer.status == 404
        assert "content-security-policy" in answer.headers

    run(test)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(method):
    async def test(world: World) -> None:
        for path in ("/", "/events", "/api/overview", "/metrics"):
            assert (await world.get(path, method=method)).status == 405
        assert world.taken == 0

    run(test)


def test_the_picture_for_scripts_is_the_federations():
    async def test(world: World) -> None:
        answer = await world.get("/api/overview")
        picture = answer.json()["overview"]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert picture["waiting_for"] == world.owner.federation.waiting_for()
        assert [one["name"] for one in picture["participants"]] == ["client-1", "client-2"]
        assert picture["participants"][0]["exit_round"] is None

    run(test)


def test_health_follows_the_store():
    async def test(world: World) -> None:
        assert (await world.get("/healthz")).status == 200
        world.counters.store_failed = True
        world.feed._newest = None
        assert (await world.get("/healthz")).status == 503

    run(test)


# Live


def test_live_events_follow_the_federation_without_being_asked(quick):
    async def test(world: World) -> None:
        async with asgi.opened(world.app, "/events") as stream:
            await until(lambda: stream.events())
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.body.startswith(b"retry: 1000\n\n")
            for sender in world.senders:
                world.owner.submit(sender, sender.seal(0))
            world.past.published.append((1, 101.0))
            world.past.scored["evaluator"] = [(1, 0.9, None)]
            await until(lambda: stream.events()[-1]["overview"]["newest_version"] == 1)
            news = [event["curves"] for event in stream.events() if "curves" in event]
        assert news[0] == {"versions": {"keep": 0, "points": [[0, 100.0]]}}
        assert news[1] == {
            "versions": {"keep": 1, "points": [[1, 101.0]]},
            "scores": {"evaluator": {"keep": 0, "points": [[1, 0.9, None]]}},
        }

    run(test)


def test_many_viewers_cost_one_picture_and_nobody_costs_none(quick):
    async def test(world: World) -> None:
        async with (
            asgi.opened(world.app, "/events") as one,
            asgi.opened(world.app, "/events") as two,
            asgi.opened(world.app, "/events") as three,
        ):
            await until(lambda: min(len(stream.events()) for stream in (one, two, three)) >= 5)
            assert world.taken <= max(len(stream.events()) for stream in (one, two, three)) + 1
        assert world.feed.followers == 0
        taken = world.taken
        await asyncio.sleep(0.1)
        assert world.taken == taken

    run(test)


def test_within_a_second_scripts_and_scrapes_share_one_picture():
    async def test(world: World) -> None:
        for _ in range(5):
            await world.get("/api/overview")
        await asyncio.gather(*(world.get("/healthz") for _ in range(5)))
        assert world.taken == 1

    run(test)


def test_more_viewers_than_there_is_room_for_are_told_so(quick, monkeypatch):
    monkeypatch.setattr(feed, "MOST_FOLLOWERS", 1)

    async def test(world: World) -> None:
        async with asgi.opened(world.app, "/events") as first:
            await until(lambda: first.events())
            refused = await world.get("/events")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        async with asgi.opened(world.app, "/events") as again:
            await until(lambda: again.events())

    run(test)


def test_a_server_that_stops_lets_its_viewers_go():
    async def test(world: World) -> None:
        async with asgi.opened(world.app, "/events") as stream:
            await until(lambda: stream.events())
            world.feed.close()
            await until(lambda: stream.is_complete)

    run(test)


def test_rates_compare_pictures_of_the_last_seconds(monkeypatch):
    monkeypatch.setattr(feed, "PERIOD_SECONDS", 0.0)

    async def test(world: World) -> None:
        # The clock of these pictures goes one second a picture.
        world.counters.updates[Answer.ACCEPTED] = 5
        first = (await world.get("/api/overview")).json()["rates"]
        assert (first["seconds"], first["accepted"]) == (1.0, 5.0)  # since the start
        for _ in range(40):
            world.counters.updates[Answer.ACCEPTED] += 3
            last = (await world.get("/api/overview")).json()["rates"]
        assert last["accepted"] == 3.0
        assert last["seconds"] == feed._RATE_SECONDS

    run(test)


# Curves


def test_a_curve_of_any_length_stays_small_and_keeps_its_newest_point():
    series = Series(100)
    for version in range(100_000):
        series.extend([(version, float(version))])
    _, kept, points = series.since(-1, 0)
    versions = [point[0] for point in points]
    assert (kept, versions[-1]) == (0, 99_999)
    assert 25 <= len(versions) <= 100
    assert versions == sorted(set(versions))
    assert max(after - before for before, after in itertools.pairwise(versions)) <= 100_000 / 12


def test_a_reader_that_adds_what_it_lacks_has_the_curve():
    past = Past()
    history = History(lambda: past)
    place, held = Place(), []
    for version in range(1, 3000):
        past.published.append((version, 100.0 + version))
        if version % 7 == 0:
            history.refresh()
            news = history.news(place)["versions"]
            held[news["keep"] :] = news["points"]
    fresh = history.news(Place())["versions"]["points"]
    assert held == fresh
    assert held[-1][0] == 2996 - 2996 % 7


# Who may look


@pytest.mark.parametrize("host", ["localhost:7480", "127.0.0.1:7480", "[::1]:7480", "localhost", "127.0.0.1"])
def test_on_loopback_whoever_is_at_the_machine_may_look(host):
    async def test(world: World) -> None:
        assert (await world.get("/", host=host)).status == 200

    run(test)


@pytest.mark.parametrize("host", ["evil.example:7480", "evil.example", "", "127.0.0.1.evil.example:7480", "10.0.0.1"])
def test_a_page_elsewhere_cannot_read_this_one_by_a_name_that_points_here(host):
    async def test(world: World) -> None:
        for path in ("/", "/api/overview", "/events", "/metrics"):
            assert (await world.get(path, host=host)).status == 403
        assert world.taken == 0

    run(test)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("web"))


def held(member: Member) -> dict[str, bytes]:
    certificate = x509.load_pem_x509_certificate(member.certificate)
    return {CERTIFICATE: certificate.public_bytes(serialization.Encoding.DER)}


@pytest.mark.parametrize(
    ("role", "status"),
    [
        ("operator", 200),
        ("observer", 200),
        ("participant", 403),
        ("watcher", 403),
        ("evaluator", 403),
        ("enrollment", 403),
    ],
)
def test_elsewhere_the_role_in_the_certificate_decides(pki, role, status):
    async def test(world: World) -> None:
        for path in ("/", "/api/overview", "/api/curves", "/healthz"):
            answer = await world.get(path, host="fed.example:7480", state=held(pki.member("somebody", role)))
            assert answer.status == status
        assert (world.taken == 0) == (status == 403)

    run(test, CertificateDoor("test"))


def test_without_a_certificate_nothing_is_shown():
    async def test(world: World) -> None:
        assert (await world.get("/")).status == 403

    run(test, CertificateDoor("test"))


def test_an_operator_of_another_federation_sees_nothing(pki):
    async def test(world: World) -> None:
        answer = await world.get("/", state=held(pki.member("somebody", "operator")))
        assert (answer.status, b"another federation" in answer.body) == (403, True)

    run(test, CertificateDoor("other"))


def test_a_live_stream_ends_when_its_certificate_is_revoked(pki, tmp_path, quick):
    path = tmp_path / "denied.txt"
    denylist.write(path, {})
    member = pki.member("somebody", "operator")

    async def test(world: World) -> None:
        async with asgi.opened(world.app, "/events", state=held(member)) as stream:
            await until(lambda: stream.events())
            denylist.write(path, {member.serial: "lost"})
            await until(lambda: stream.is_complete)
        answer = await world.get("/events", state=held(member))
        assert (answer.status, b"revoked" in answer.body) == (403, True)

    run(test, CertificateDoor("test", DenyList(path, lambda why: None)))


def test_a_certificate_that_expires_ends_the_looking(pki):
    member = pki.member("somebody", "operator", seconds=DAY)
    now = x509.load_pem_x509_certificate(member.certificate).not_valid_after_utc.timestamp()
    times = [now - 1.0]

    async def test(world: World) -> None:
        assert (await world.get("/", state=held(member))).status == 200
        times[0] = now + 1.0
        answer = await world.get("/", state=held(member))
        assert (answer.status, b"expired" in answer.body) == (403, True)

    run(test, CertificateDoor("test", clock=lambda: times[0]))
