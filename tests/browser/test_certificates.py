"""The page where it is not on loopback: a browser with an operator's certificate sees it, others see why not."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error

from tests.browser import stage as stage_module
from tests.browser.stage import Viewer
from tests.support.federations import make_terms
from tests.support.pki import Pki
from tests.support.servers import ServerProcess, configure, make_state

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with stage_module.browser() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Pki]]:
    root = tmp_path_factory.mktemp("certificates")
    make_state(root, make_terms(participants=2))
    pki = Pki(root)
    configure(root, web_listen="0.0.0.0:0")
    with open(root / "server.toml", "a") as file:
        file.write(pki.table())
    with ServerProcess(root) as server:
        url = server.events("listening_for_web")[0]["url"]
        yield url.replace("0.0.0.0", "127.0.0.1"), pki


def options(url: str, pki: Pki, role: str, folder: Path) -> dict:
    certificate, key = pki.member("eve", role).save(folder)
    held = {"origin": url.rstrip("/"), "certPath": certificate, "keyPath": key}
    # The browser does not know the authority; that the server's certificate is right is tested elsewhere.
    return {"client_certificates": [held], "ignore_https_errors": True}


@pytest.mark.parametrize("role", ["operator", "observer"])
def test_who_may_look_sees_it_live(served: tuple[str, Pki], browser: Browser, tmp_path: Path, role: str) -> None:
    url, pki = served
    viewer = Viewer(browser, url, **options(url, pki, role, tmp_path))
    viewer.await_text("link-text", lambda text: text == "Live")
    assert viewer.text("headline") == "Version 1 waits for 2 of 2 participants."
    assert viewer.troubles == []
    viewer.close()


def test_a_participant_is_told_why_not(served: tuple[str, Pki], browser: Browser, tmp_path: Path) -> None:
    url, pki = served
    viewer = Viewer(browser, url, **options(url, pki, "participant", tmp_path))
    assert viewer.page.locator("body").inner_text().strip() == (
        "this page is for observer, operator; the certificate is of participant eve of test"
    )
    viewer.close()


def test_without_a_certificate_there_is_no_connection(served: tuple[str, Pki], browser: Browser) -> None:
    url, _ = served
    with pytest.raises((Error, ssl.SSLError)):
        Viewer(browser, url, ignore_https_errors=True)
