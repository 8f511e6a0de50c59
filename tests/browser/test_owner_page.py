"""A data owner's page in a browser, beside a client that trains: what it shows is what the ledger says, live.

One federation for the whole file, and the tests in their order: the client trains, is stopped, its ledger is changed.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from hushgrad.client import figures, overview, standing, store
from playwright.sync_api import Browser

from tests.browser import stage as stage_module
from tests.browser.stage import Stage, Viewer, until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

ROUNDS = 1200
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
IMAGES = Path(os.environ.get("HUSHGRAD_IMAGES") or "build/browser")


class OwnPage:
    """One `hushgrad-client page`."""

    def __init__(self, root: Path, *arguments: str) -> None:
        path = os.pathsep.join(part for part in sys.path if part)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hushgrad.client", "page", "--json", "--config", "client-1.toml", *arguments],
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.process.stdout is not None
        self.url = str(json.loads(self.process.stdout.readline())["url"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with stage_module.browser() as running:
        yield running


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("owner") / "demo", ROUNDS)
    try:
        stage.start("server")
        stage.start(*stage.names)
        yield stage
    finally:
        stage.close()


@pytest.fixture(scope="module")
def state(stage: Stage) -> Path:
    return next(path.parent for path in stage.root.rglob(f"client-1/**/{store.LEDGER_NAME}"))


@pytest.fixture(scope="module")
def own(stage: Stage) -> Iterator[OwnPage]:
    page = OwnPage(stage.root)
    yield page
    page.process.kill()


@pytest.fixture(scope="module")
def viewer(browser: Browser, own: OwnPage) -> Iterator[Viewer]:
    viewer = Viewer(browser, own.url, viewport=DESKTOP, color_scheme="light")
    viewer.page.evaluate("window.sameDocument = true")  # gone after a reload
    yield viewer
    viewer.close()


def rounds_over(viewer: Viewer) -> int:
    words = viewer.text("headline").split()
    return int(words[0].replace(",", "")) if words[0] != "All" else ROUNDS


def test_it_follows_a_training_client_without_being_reloaded(viewer: Viewer) -> None:
    viewer.await_text("headline", lambda text: "promised rounds" in text)
    seen = rounds_over(viewer)
    until(lambda: rounds_over(viewer) > seen + 3)
    assert viewer.page.evaluate("window.sameDocument") is True
    assert viewer.text("link-text") == "Live"
    assert "A client is running on this ledger." in viewer.text("live-top")


def test_the_client_is_not_held_up(stage: Stage, viewer: Viewer, state: Path) -> None:
    before = standing.read(state, check=True).rows
    until(lambda: standing.read(state, check=True).rows > before + 5)
    assert all(process.poll() is None for process in stage.processes.values())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_stands_in_the_way_of_anybody(
    browser: Browser, own: OwnPage, viewport: dict[str, int], scheme: str
) -> None:
    other = Viewer(browser, own.url, viewport=viewport, color_scheme=scheme)
    other.await_text("link-text", lambda text: text == "Live")
    found = Axe().run(other.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    assert found.violations_count == 0, found.generate_report()
    assert other.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert other.troubles == []
    assert {url for url in other.requests if not url.startswith(own.url)} == set()
    other.close()


def test_an_open_table_stays_open_and_the_keyboard_stays_where_it_is(viewer: Viewer) -> None:
    summary = viewer.page.locator("details[data-keep='curve'] summary")
    summary.focus()
    viewer.page.keyboard.press("Enter")
    seen = rounds_over(viewer)
    until(lambda: rounds_over(viewer) > seen)
    assert viewer.page.locator("details[data-keep='curve']").get_attribute("open") is not None
    assert viewer.page.evaluate("document.activeElement.tagName") == "SUMMARY"
    summary.click()


def test_pictures_for_the_documentation(browser: Browser, own: OwnPage, viewer: Viewer) -> None:
    until(lambda: rounds_over(viewer) > 0.3 * ROUNDS, seconds=150)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for device, viewport, scale in (("desktop", DESKTOP, 1), ("phone", PHONE, 2)):
        for scheme in ("light", "dark"):
            other = Viewer(browser, own.url, viewport=viewport, color_scheme=scheme, device_scale_factor=scale)
            other.await_text("link-text", lambda text: text == "Live")
            other.page.wait_for_timeout(500)
            path = IMAGES / f"owner-{device}-{scheme}.png"
            if device == "desktop":
                end = "element => element.closest('section').getBoundingClientRect().bottom + scrollY + 12"
                height = other.page.locator("#not-title").evaluate(end)
                clip = {"x": 0, "y": 0, "width": viewport["width"], "height": height}
                other.page.screenshot(path=path, full_page=True, clip=clip)
            else:
                other.page.screenshot(path=path)
            other.close()


def test_once_its_client_has_stopped_every_number_is_the_ledgers(stage: Stage, viewer: Viewer, state: Path) -> None:
    stage.processes["client-1"].terminate()
    assert stage.processes["client-1"].wait(60) == 0
    viewer.await_text("live-top", lambda text: "No client is seen running" in text, seconds=60)
    found = standing.read(state, check=True)
    viewer.await_text("live-rows", lambda text: f"Rows 1 to {found.rows:,} were checked" in text)
    answer = overview.status(found, now=0.0)
    (run,) = answer["runs"]
    tiles = dict(
        zip(
            viewer.page.locator(".tiles dt").all_inner_texts(),
            [" ".join(text.split()) for text in viewer.page.locator(".tiles dd:not(.quiet)").all_inner_texts()],
            strict=True,
        )
    )
    committed, left = answer["committed"], answer["left"]
    assert tiles == {
        "Promised": f"ε {figures.up(committed['epsilon'])} at δ {figures.up(committed['delta'])}",
        "Left for later runs": f"ε {figures.down(left['epsilon'])} at δ {figures.down(left['delta'])}",
        "Happened so far in this run": f"ε {figures.up(run['odometer']['epsilon_so_far'])} at δ 1e-05",
        "The last 100 updates": f"+{figures.up(run['last_updates']['rise'])}",
    }
    rows = viewer.page.locator(".rows tbody tr")
    assert rows.count() == 50
    assert rows.first.locator("td").first.inner_text() == f"{found.rows:,}"
    viewer.page.get_by_role("link", name="First rows").click()
    assert "Ledger made for client-1" in viewer.page.locator(".rows tbody tr").last.inner_text()
    viewer.page.get_by_label("Up to row").fill("100")
    viewer.page.get_by_role("button", name="Show").click()
    assert viewer.page.locator(".rows td.row").first.inner_text() == "100"
    viewer.page.get_by_role("link", name="Newest rows").click()
    assert viewer.troubles == []


def test_a_changed_ledger_is_refused_in_plain_words(viewer: Viewer, state: Path, own: OwnPage, stage: Stage) -> None:
    shutil.copytree(state, stage.root / "kept")
    row = standing.read(state, check=False).rows - 10
    connection = sqlite3.connect(state / store.LEDGER_NAME)
    (drop,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'rows_never_change'").fetchone()
    connection.execute("DROP TRIGGER rows_never_change")
    connection.execute("UPDATE ledger SET digest = zeroblob(32) WHERE sequence = ?", (row,))
    connection.execute(drop)
    connection.commit()
    connection.close()
    viewer.await_text("headline", lambda text: text == f"Row {row:,} of this ledger does not fit.")
    assert viewer.page.locator(".tiles").count() == 0
    broken = viewer.page.locator(".rows tr[data-tone='bad'] .badge", has_text="does not fit")
    assert broken.first.is_visible()
    found = Axe().run(viewer.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    assert found.violations_count == 0, found.generate_report()
    end = "element => element.closest('tr').getBoundingClientRect().bottom + scrollY + 12"
    clip = {"x": 0, "y": 0, "width": DESKTOP["width"], "height": broken.first.evaluate(end)}
    viewer.page.screenshot(path=IMAGES / "owner-broken.png", full_page=True, clip=clip)


def test_when_its_program_stops_the_page_says_so(viewer: Viewer, own: OwnPage) -> None:
    own.stop()
    viewer.await_text("link-text", lambda text: text == "Stopped")
    assert "has stopped" in viewer.text("away")
