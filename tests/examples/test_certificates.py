"""The examples with certificates, as their pages say it is done."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.examples.test_node import NODE, needs_node
from tests.support.federations import make_terms
from tests.support.pki import Pki
from tests.support.servers import ServerProcess, make_state

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = ROOT / "examples" / "python-minimal"
CHANNEL = "        to, self.me = grpc.insecure_channel(server, OPTIONS), common_pb2.Caller(participant=name)\n"
TERMS = make_terms(parameters=5, names=("client-1",), final_version=5)


def run_to_the_end(root: Path, command: list[str]) -> None:
    make_state(root, TERMS)
    pki = Pki(root)
    with open(root / "server.toml", "a") as file:
        file.write(pki.table())
    certificate, key = pki.member("client-1").save(root / "me")
    rng = np.random.default_rng(20261130)
    table, labels = rng.normal(size=(200, 4)), rng.integers(0, 2, 200)
    np.savez(root / "data.npz", X=table, y=labels)
    joined = np.column_stack([table, labels])
    np.savetxt(root / "data.csv", joined, fmt="%.17g", delimiter=",", header="a,b,c,d,label", comments="")
    (root / "state").mkdir()
    privacy = {"records": 200, "sampler": "poisson", "sample_size": 20, "epsilon": 60.0, "delta": 1e-5}
    privacy |= {"clip_norm": TERMS.privacy.clip_norm, "noise_multiplier": TERMS.privacy.noise_multiplier_min}
    with ServerProcess(root) as server:
        variables = {
            "HUSHGRAD_SERVER": server.address,
            "HUSHGRAD_PARTICIPANT": "client-1",
            "HUSHGRAD_STATE_DIR": str(root / "state"),
            "HUSHGRAD_DATA": str(root / "data.npz"),
            "HUSHGRAD_PRIVACY": json.dumps(privacy),
            "HUSHGRAD_TLS_CA": str(pki.folder / "ca.crt"),
            "HUSHGRAD_TLS_CERTIFICATE": str(certificate),
            "HUSHGRAD_TLS_KEY": str(key),
            "PYTHONPATH": str(ROOT / "protos"),
        }
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert len(server.events("published")) == TERMS.final_version


def test_the_minimal_client_takes_part_with_the_lines_of_its_page(tmp_path: Path) -> None:
    source = (MINIMAL / "client.py").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", (MINIMAL / "README.md").read_text(), flags=re.DOTALL)
    assert CHANNEL in source
    (tmp_path / "client.py").write_text(source.replace(CHANNEL, lines))
    run_to_the_end(tmp_path, [sys.executable, str(tmp_path / "client.py")])


@needs_node
def test_the_client_for_node_takes_part(tmp_path: Path) -> None:
    run_to_the_end(tmp_path, ["node", str(NODE / "client.js")])
