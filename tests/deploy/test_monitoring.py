"""Prometheus, Grafana and their files, without running them. `make monitoring` runs the rules and a real Prometheus."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.monitoring import ALERTS, DASHBOARD, FOLDER, panels

ROOT = FOLDER.parents[1]


@pytest.fixture(scope="module")
def services() -> Mapping[str, Any]:
    compose = Path(sys.executable).with_name("docker-compose")
    command = [compose, "--file", ROOT / "docker-compose.yml", "--profile", "monitoring", "config", "--format", "json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["services"]
    return {name: found[name] for name in ("prometheus", "grafana")}


def test_monitoring_writes_nowhere_but_into_its_own_folders(services: Mapping[str, Any]) -> None:
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
    writable = {
        (name, volume["target"])
        for name, service in services.items()
        for volume in service["volumes"]
        if not volume.get("read_only")
    }
    assert writable == {("prometheus", "/prometheus")}


def test_monitoring_is_reached_from_this_machine_alone(services: Mapping[str, Any]) -> None:
    ports = [port for service in services.values() for port in service["ports"]]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_images_are_pinned(services: Mapping[str, Any]) -> None:
    for service in services.values():
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), service["image"]


def test_nobody_can_log_in_to_grafana(services: Mapping[str, Any]) -> None:
    settings = services["grafana"]["environment"]
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert settings["GF_AUTH_DISABLE_LOGIN_FORM"] == settings["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not [key for key in settings if "PASSWORD" in key]


def test_prometheus_has_an_observers_key_and_no_other(services: Mapping[str, Any]) -> None:
    [subpath] = [
        volume["volume"]["subpath"]
        for volume in services["prometheus"]["volumes"]
        if volume.get("volume", {}).get("subpath")
    ]
    assert subpath == "prometheus"
    issued = re.findall(r"hushgrad certs issue (\S+) --role (\S+)", (ROOT / "docker-compose.yml").read_text())
    assert issued == [("prometheus", "observer")]


def test_grafana_finds_the_dashboard_and_its_data(services: Mapping[str, Any]) -> None:
    provisioning = FOLDER / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in panels() if "datasource" in panel} == {source["uid"]}
    [provider] = yaml.safe_load((provisioning / "dashboards" / "hushgrad.yml").read_text())["providers"]
    mounted = {volume["target"]: volume["source"] for volume in services["grafana"]["volumes"]}
    assert Path(mounted[provider["options"]["path"]]) == DASHBOARD.parent
    assert Path(mounted["/etc/grafana/provisioning"]) == provisioning


def test_panels_have_names_and_places_of_their_own() -> None:
    found = list(panels())
    assert len({panel["id"] for panel in found}) == len({panel["title"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells


def test_every_alert_leads_to_a_page_that_explains_it() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description", "runbook"}
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert f"`{rule['alert']}`" in page, f"docs/monitoring.md lacks {rule['alert']}"
            path, _, anchor = rule["annotations"]["runbook"].partition("#")
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, f"{path} has no heading for {anchor}"


def test_every_alert_has_a_test() -> None:
    tests = (FOLDER / "alerts_test.yml").read_text()
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["alert"] in tests, f"alerts_test.yml never sees {rule['alert']} fire"
