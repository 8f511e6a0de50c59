"""Both forms of the log say the same of the same event, on both sides."""

import io
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from hushgrad.client import log as client_log
from hushgrad.server import logs as server_logs


def configured_server(log_format: Any) -> Any:
    return server_logs.configure(log_format)


def configured_client(log_format: Any) -> Any:
    client_log.configure(log_format)
    return structlog.get_logger()


@pytest.mark.parametrize("configured", [configured_server, configured_client], ids=["server", "client"])
def test_console_and_json_have_the_same_event_and_the_same_keys(
    configured: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {}
    for log_format in ("json", "console"):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        configured(log_format).warning("suspended", participant="client-1", suspensions=2)
        lines[log_format] = stream.getvalue()
    structlog.reset_defaults()
    found = json.loads(lines["json"])
    assert lines["json"].count("\n") == lines["console"].count("\n") == 1
    assert {key: found[key] for key in ("event", "level", "participant", "suspensions")} == {
        "event": "suspended",
        "level": "warning",
        "participant": "client-1",
        "suspensions": 2,
    }
    assert found["timestamp"].endswith("Z")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", lines["console"])
    assert re.fullmatch(r"\S+Z \[warning *\] suspended +participant=client-1 suspensions=2\n", plain)
