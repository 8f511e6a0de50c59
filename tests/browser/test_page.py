"""The page in a browser, over a running demo: what it shows is what the server says, whatever happens meanwhile.

One federation for the whole file, and the tests in their order: it gathers, runs, stalls, loses its server, goes on.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from hushgrad.v1 import membership_pb2
from playwright.sync_api import Browser

from tests.browser import stage as stage_module
from tests.browser.stage import Stage, Viewer, until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

ROUNDS = 500
SLOW = "client-5"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
IMAGES = Path(os.environ.get("HUSHGRAD_IMAGES") or "build/browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with stage_module.browser() as running:
        yield running


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("page") / "demo", ROUNDS)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture(scope="module")
def viewer(browser: Browser, stage: Stage) -> Iterator[Viewer]:
    stage.start("server")
    viewer = Viewer(browser, stage.url, viewport=DESKTOP, color_scheme="light")
    # Gone after a reload.
    viewer.page.evaluate("window.sameDocument = true")
    yield viewer
    viewer.close()


def version_of(viewer: Viewer) -> int:
    return int(viewer.text("t-version").replace(",", ""))


def test_an_empty_federation_says_whom_it_waits_for(stage: Stage, viewer: Viewer) -> None:
    said = viewer.await_text("headline", lambda text: text.startswith("Version 1 waits"))
    assert said == "Version 1 waits for 5 of 5 participants: client-1, client-2, client-3, client-4, client-5."
    assert viewer.page.locator("#participants-empty").is_visible()
    assert viewer.page.locator("#versions-empty").is_visible()
    assert viewer.page.locator("#accuracy-empty").is_visible()


def test_who_starts_is_missed_no_longer(stage: Stage, viewer: Viewer) -> None:
    stage.start("evaluator", *(name for name in stage.names if name != SLOW))
    viewer.await_text("headline", lambda text: text == f"Version 1 waits for 1 of 5 participants: {SLOW}.")
    assert viewer.text("phase") == "Gathering participants"


def test_it_follows_without_being_reloaded(stage: Stage, viewer: Viewer) -> None:
    stage.start(SLOW)
    viewer.await_text("t-version", lambda text: text != "0")
    seen = version_of(viewer)
    until(lambda: version_of(viewer) > seen + 5)
    assert viewer.page.evaluate("window.sameDocument") is True
    viewer.await_text("t-accuracy", lambda text: text.endswith("%"))
    until(lambda: viewer.page.locator("#accuracy canvas").count() == 1)
    assert viewer.page.locator("#versions canvas").count() == 1
    assert viewer.text("phase") == "Running"


def test_it_loads_from_its_server_only(stage: Stage, viewer: Viewer) -> None:
    assert viewer.requests
    assert {url for url in viewer.requests if not url.startswith(stage.url)} == set()


def test_a_stalled_participant_is_named_and_what_is_waited_for(stage: Stage, viewer: Viewer) -> None:
    stage.send(SLOW, signal.SIGSTOP)
    viewer.await_text("phase", lambda text: re.fullmatch(r"Waiting for \d+ s", text))
    assert re.fullmatch(rf"Version \d+ waits for (round \d+ of {SLOW}(, |\.))+", viewer.text("headline"))
    assert re.fullmatch(rf"{SLOW}: suspended in \d+ s if nothing comes; .*", viewer.text("detail"))
    assert "holds up version" in viewer.row(SLOW)["state"]
    for name in stage.names:
        if name != SLOW:
            assert viewer.row(name)["state"] == "active"
    # Told once to who listens, not at every version.
    viewer.await_text("announcer", lambda text: SLOW in text)


def test_what_it_shows_is_what_the_server_says(stage: Stage, viewer: Viewer) -> None:
    viewer.page.wait_for_timeout(2500)
    status = stage.status()
    assert version_of(viewer) == status.server.newest_version
    assert viewer.text("headline").lower() == f"{status.waiting_for}."
    assert viewer.text("federation") == status.federation
    assert viewer.text("f-watchers") == str(status.watchers)
    assert viewer.text("f-watermark") == f"version {status.server.retention_watermark}"
    assert viewer.text("f-terms") == status.terms_digest.hex()
    states = membership_pb2.ParticipationState
    for one in status.participants:
        row = viewer.row(one.participant)
        assert row["round"] == str(one.rounds_received - 1)
        assert row["staleness"] == str(max(0, one.rounds_received - 1 - status.server.newest_version))
        assert row["counted"] == str(one.updates_accepted)
        assert row["repeats"] == str(one.updates_duplicate)
        assert row["refused"] == str(one.updates_invalid)
        name = states.Name(one.participation.state).removeprefix("PARTICIPATION_STATE_").lower()
        assert row["state"].startswith(name)
        share = 100 * one.rounds_received / ROUNDS
        assert row["budget"].startswith(f"{share:.1f}\u202f% of {ROUNDS} rounds")
        assert "\u03b5 0.5, \u03b4 1e-5 for each record, add-remove, poisson sampling, by PLD" in row["budget"]
        assert "declared, not verified" in row["budget"]
    last = stage.scores()[-1]
    assert viewer.text("t-accuracy") == f"{100 * float(last['accuracy']):.1f}\u202f%"
    assert f"version {last['version']}" in viewer.text("t-accuracy-note")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everybody_can_use_it(browser: Browser, stage: Stage, viewer: Viewer, scheme: str, viewport: dict) -> None:
    # On its own, so that the policy of the page does not hold for the checker; it is what the page is tested with.
    other = Viewer(browser, stage.url, viewport=viewport, color_scheme=scheme, bypass_csp=True)
    until(lambda: "holds up" in other.row(SLOW)["state"])
    for summary in other.page.locator("summary").all():
        summary.click()
    other.page.wait_for_timeout(1200)
    found = Axe().run(other.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    assert found.violations_count == 0, found.generate_report()
    other.close()


def test_it_can_be_used_without_a_mouse(stage: Stage, viewer: Viewer) -> None:
    page = viewer.page
    reached = set()
    page.locator("body").click(position={"x": 1, "y": 1})
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.sort || document.activeElement.tagName"))
        if page.evaluate("document.activeElement.dataset.sort") == "round":
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"  # one sees where one is
            page.keyboard.press("Enter")
            page.keyboard.press("Enter")
    assert {"name", "round", "SUMMARY", "A"} <= reached
    assert page.locator("#participants th[aria-sort]").inner_text().startswith("Round")
    rounds = [int(text) for text in page.locator("#participant-rows td:nth-child(3)").all_inner_texts()]
    assert rounds == sorted(rounds, reverse=True)
    assert page.locator("#participant-rows tr").last.locator("td").first.inner_text() == SLOW


def test_it_says_when_the_server_is_away_and_comes_back_by_itself(stage: Stage, viewer: Viewer) -> None:
    before = version_of(viewer)
    assert viewer.troubles == []
    stage.send("server", signal.SIGKILL)
    viewer.await_text("link-text", lambda text: text == "Not connected")
    assert "The server does not answer" in viewer.text("away")
    time.sleep(1.0)
    stage.start("server")
    viewer.await_text("link-text", lambda text: text == "Live")
    assert not viewer.page.locator("#away").is_visible()
    assert viewer.page.evaluate("window.sameDocument") is True
    until(lambda: version_of(viewer) >= before)
    # The browser itself says that it could not connect; the page said nothing more.
    assert [trouble for trouble in viewer.troubles if "ERR_" not in trouble] == []
    viewer.troubles.clear()


def test_what_was_before_the_restart_is_still_on_the_curves(stage: Stage, viewer: Viewer) -> None:
    viewer.page.wait_for_timeout(1500)
    versions, scored = viewer.page.evaluate(
        "[curves.versions.map((p) => p[0]), curves.scores.evaluator.map((p) => p[0])]"
    )
    newest = stage.status().server.newest_version
    assert versions[0] == 0
    assert versions[-1] >= newest - 1
    assert versions == sorted(set(versions))
    assert scored[0] <= 5


def test_who_comes_back_is_waited_for_no_longer(stage: Stage, viewer: Viewer) -> None:
    before = version_of(viewer)
    stage.send(SLOW, signal.SIGCONT)
    until(lambda: version_of(viewer) > before + 5)
    viewer.await_text("phase", lambda text: text == "Running")
    assert viewer.page.evaluate("window.sameDocument") is True
    assert viewer.troubles == []


def test_a_pause_is_shown_with_its_reason_and_ends_with_it(stage: Stage, viewer: Viewer) -> None:
    stage.order("pause", "--reason", "somebody looks at it")
    viewer.await_text("phase", lambda text: text == "Paused")
    said = viewer.await_text("headline", lambda text: "waits for an operator to resume" in text)
    assert "somebody looks at it" in said
    viewer.page.wait_for_timeout(1500)
    before = version_of(viewer)
    viewer.page.wait_for_timeout(2500)
    assert version_of(viewer) == before
    stage.order("resume")
    viewer.await_text("phase", lambda text: text == "Running")
    until(lambda: version_of(viewer) > before)


def test_pictures_for_the_documentation(browser: Browser, stage: Stage, viewer: Viewer) -> None:
    # When there is an averaged model, too: it begins with the second half.
    until(lambda: version_of(viewer) > 0.62 * ROUNDS, seconds=120)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for device, viewport, scale in (("desktop", DESKTOP, 1), ("phone", PHONE, 2)):
        for scheme in ("light", "dark"):
            other = Viewer(browser, stage.url, viewport=viewport, color_scheme=scheme, device_scale_factor=scale)
            until(lambda other=other: other.page.locator("#accuracy canvas").count() == 1)
            until(lambda other=other: "active" in other.row(SLOW)["state"])
            other.page.wait_for_timeout(1500)
            path = IMAGES / f"page-{device}-{scheme}.png"
            if device == "desktop":
                # Down to the participants; what follows is on every page.
                end = "element => element.closest('section').getBoundingClientRect().bottom + scrollY + 12"
                height = other.page.locator("#participants").evaluate(end)
                clip = {"x": 0, "y": 0, "width": viewport["width"], "height": height}
                other.page.screenshot(path=path, full_page=True, clip=clip)
            else:
                other.page.screenshot(path=path)
            width = other.page.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], "it must not have to be scrolled sideways"
            assert other.troubles == []
            other.close()


def test_the_end_stays_on_the_page(stage: Stage, viewer: Viewer) -> None:
    viewer.await_text("phase", lambda text: text == "Ended", seconds=150)
    assert viewer.text("headline") == f"The federation has ended with version {ROUNDS}."
    viewer.await_text("link-text", lambda text: text == "Not connected")
    assert "The federation has ended and its server has stopped" in viewer.text("away")
    assert version_of(viewer) == ROUNDS
