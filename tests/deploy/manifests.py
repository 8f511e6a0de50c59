"""Builds every kustomization and judges what comes out: python -m tests.deploy.manifests.

kubectl builds, as it does before it applies; Kubernetes' own schemas judge each object, unknown keys included; and a
few promises that no schema knows are held here.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def kustomizations() -> list[Path]:
    """Returns the folders that can be built."""
    return sorted(path.parent for path in FOLDER.rglob("kustomization.yaml"))


def build(folder: Path) -> list[dict[str, Any]]:
    """Returns the objects of a kustomization.

    Raises:
        ValueError: with what kubectl says, if it cannot be built.
    """
    kubectl = Path(sys.executable).with_name("kubectl")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        raise ValueError(done.stderr.strip())
    return list(yaml.safe_load_all(done.stdout))


def defects(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Yields what is wrong with objects that are applied together."""
    claims = {one["metadata"]["name"] for one in objects if one["kind"] == "PersistentVolumeClaim"}
    for one in objects:
        name = f"{one['kind']} {one['metadata']['name']}"
        try:
            kubernetes_validate.validate(one, "1.37", strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{name}: {error.message}"
            continue
        if one["metadata"].get("namespace") != "hushgrad" and one["kind"] != "Namespace":
            yield f"{name}: is not in the namespace hushgrad"
        template = one["spec"].get("template") if one["kind"] in ("StatefulSet", "Deployment", "Job") else None
        if template is not None:
            yield from (f"{name}: {defect}" for defect in _pod_defects(template["spec"], claims))


def _pod_defects(pod: dict[str, Any], claims: set[str]) -> Iterator[str]:
    if pod.get("automountServiceAccountToken") is not False:
        yield "carries a token of the cluster that it does not need"
    if not RESTRICTED_POD.items() <= pod["securityContext"].items():
        yield "does not keep to the restricted pod security standard"
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        if container["securityContext"] != RESTRICTED_CONTAINER:
            yield f"container {container['name']} may do more than the restricted standard allows"
        if "memory" not in container["resources"]["limits"]:
            yield f"container {container['name']} has no limit of memory"
    for container in pod["containers"]:
        if "livenessProbe" not in container:
            yield f"container {container['name']} has no probe"
    for volume in pod["volumes"]:
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        if claim.partition("-")[0] in ("client", "evaluator") and claim not in claims:
            yield f"nobody makes the claim {claim}"


def main() -> int:
    """Prints what is wrong; returns 0 if nothing is."""
    found = []
    for folder in kustomizations():
        try:
            found += [f"{folder.relative_to(ROOT)}: {defect}" for defect in defects(build(folder))]
        except ValueError as error:
            found.append(f"{folder.relative_to(ROOT)}: {error}")
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
