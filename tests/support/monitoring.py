"""The files of deploy/monitoring as tests read them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
ALERTS = FOLDER / "alerts.yml"
DASHBOARD = FOLDER / "grafana" / "dashboards" / "hushgrad.json"

_NAME = re.compile(r"\b(?:hushgrad|process|python)_[a-z0-9_]+\b")


def rules() -> list[tuple[str, str]]:
    """Returns (name of the alert, expression) of every alert rule."""
    found = yaml.safe_load(ALERTS.read_text())
    return [(rule["alert"], rule["expr"]) for group in found["groups"] for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    """Yields every panel of the dashboard, those within rows too."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield panel
        yield from panel.get("panels", ())


def dashboard_expressions() -> list[tuple[str, str]]:
    """Returns (title of the panel, expression), with the dashboard's variables filled in."""
    return [
        (f"panel {panel['title']!r}", target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*"))
        for panel in panels()
        for target in panel.get("targets", ())
    ]


def metrics_named_in(expression: str) -> set[str]:
    """Returns the names of the metrics that a PromQL expression asks for."""
    without_labels = re.sub(r"\{[^}]*\}|\"[^\"]*\"", "", expression)
    return set(_NAME.findall(without_labels))
