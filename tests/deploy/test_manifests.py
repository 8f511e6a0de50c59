"""The judge of the manifests finds what it is there for. The manifests themselves are judged by `make lint`."""

import copy
from typing import Any

import pytest

from tests.deploy import manifests


@pytest.fixture(scope="module")
def one_cluster() -> list[dict[str, Any]]:
    return manifests.build(manifests.FOLDER / "overlays" / "one-cluster")


@pytest.fixture
def server(one_cluster: list[dict[str, Any]]) -> dict[str, Any]:
    return copy.deepcopy(next(one for one in one_cluster if one["kind"] == "StatefulSet"))


def test_a_cluster_with_two_participants_has_a_ledger_for_each(one_cluster: list[dict[str, Any]]) -> None:
    assert list(manifests.defects(one_cluster)) == []
    jobs = [one for one in one_cluster if one["kind"] == "Job" and one["metadata"]["name"].startswith("client")]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for job in jobs
        for volume in job["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "state"
    ]
    assert sorted(claims) == ["client-state-1", "client-state-2"]


def test_a_wrong_type_is_found(server: dict[str, Any]) -> None:
    server["spec"]["replicas"] = "two"
    assert any("two" in defect for defect in manifests.defects([server]))


def test_an_unknown_key_is_found(server: dict[str, Any]) -> None:
    server["spec"]["replica"] = 1
    assert any("replica" in defect for defect in manifests.defects([server]))


def test_a_container_that_may_become_root_is_found(server: dict[str, Any]) -> None:
    del server["spec"]["template"]["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]
    assert any("restricted" in defect for defect in manifests.defects([server]))
