"""The container files: who is in the federation, and what a container may do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((ROOT / "deploy").glob("*.Dockerfile"))
ROLES = {"server", "evaluator", *(f"client-{number}" for number in range(1, 6))}


@pytest.fixture(scope="module")
def services():
    compose = Path(sys.executable).with_name("docker-compose")
    command = [compose, "--file", ROOT / "docker-compose.yml", "config", "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["services"]


def test_one_server_five_clients_an_evaluator_and_what_prepares_them(services):
    assert set(services) == ROLES | {"setup", "certificates"}


def test_every_participant_has_a_state_volume_of_its_own(services):
    states = [
        volume["source"] for role in ROLES for volume in services[role]["volumes"] if volume["target"] == "/state"
    ]
    assert sorted(states) == sorted(ROLES)


def test_no_service_may_gain_rights_or_write_outside_its_volumes(services):
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_no_participant_sees_the_folder_of_another(services):
    seen = {
        name: volume["volume"]["subpath"]
        for name, service in services.items()
        for volume in service["volumes"]
        if volume["source"] == "federation" and "subpath" in volume["volume"]
    }
    assert seen == {role: role for role in ROLES}


def test_participants_cannot_write_what_they_were_given(services):
    writers = {
        name
        for name, service in services.items()
        for volume in service["volumes"]
        if volume["source"] == "federation" and not volume.get("read_only")
    }
    assert writers == {"setup", "certificates", "server"}


def test_there_is_a_dockerfile_per_role():
    assert [path.stem for path in DOCKERFILES] == ["client", "evaluator", "server"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_image_is_built_on_a_pinned_base_runs_without_root_and_compiles_nothing(path):
    text = path.read_text()
    base = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", text, flags=re.MULTILINE)
    assert base
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base.group(1))
    assert set(re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    final_stage = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER 10001$", final_stage, flags=re.MULTILINE)
    assert "VOLUME /state" in final_stage
    assert not re.search(r"pip |apt-get|gcc", final_stage)
