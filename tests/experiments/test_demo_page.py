"""`hushgrad demo --page`: where the page is, and what it does not go with."""

import socket
import tomllib
from pathlib import Path

import click.testing
import pytest
from hushgrad.cli import demo as command
from hushgrad.experiments import demo, demo_settings, files


@pytest.mark.parametrize("other", ["--json", "--prepare-only"])
def test_it_says_what_it_does_not_go_with(other: str, tmp_path: Path) -> None:
    found = click.testing.CliRunner().invoke(command.command, ["--page", other, "--runs-dir", str(tmp_path / "runs")])
    assert found.exit_code == 2
    assert "--page goes neither with" in found.output
    assert not (tmp_path / "runs").exists()


def test_the_page_goes_elsewhere_when_somebody_is_at_its_place() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", demo_settings.PAGE_PORT))
        except OSError:
            pass  # taken by somebody else: as good
        else:
            taken.listen()
        host, _, port = demo._page_address().rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) not in (0, demo_settings.PAGE_PORT)


@pytest.mark.parametrize("web", ["127.0.0.1:7480", ""])
def test_the_server_file_has_the_page_or_the_line_for_it(web: str) -> None:
    text = files.server(
        listen="127.0.0.1:0", state="s", keep_sealed=False, keep_last=0, linger_seconds=0.0, web_listen=web
    )
    assert tomllib.loads(text).get("web_listen", "") == web
    assert 'web_listen = "127.0.0.1:7480"' in text
