"""The Node.js client: golden bytes, the minimal client's bound, and a real server. Skipped where it cannot run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hushgrad.server import database as database_module
from hushgrad.server.folder import StateFolder
from hushgrad.server.records import Disposition
from hushgrad.wire import header

from tests.support import operators
from tests.support.federations import make_terms
from tests.support.servers import ServerProcess, make_state

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "examples" / "node"
GOLDEN = ROOT / "tests" / "golden" / "wire"
WORKED = json.loads((GOLDEN / "header.json").read_text())
FEATURES = 4
# Limits so low that every update is uploaded in chunks and every model fetched; `make interop` takes the short ways.
TERMS = make_terms(
    participants=1, parameters=FEATURES + 1, final_version=100, max_unary_bytes=8, max_inline_model_bytes=0
)

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules").exists(),
    reason="needs Node.js and `npm install` in examples/node; `make interop` does that",
)


def run(script: str) -> str:
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_packages_have_exact_versions_and_no_lock():
    package = json.loads((NODE / "package.json").read_text())
    assert all(version[0].isdigit() for version in package["dependencies"].values())
    assert "package-lock=false" in (NODE / ".npmrc").read_text()
    assert not (NODE / "package-lock.json").exists()


def test_it_uses_no_predictable_generator():
    assert [path.name for path in NODE.glob("*.js") if "Math.random" in path.read_text()] == []


@needs_node
def test_it_reads_and_writes_every_golden_message_of_its_services():
    script = f"""
        import fs from "node:fs";
        import {{ definition }} from "./client.js";
        let seen = 0;
        for (const file of fs.readdirSync("{GOLDEN}").filter((name) => name.endsWith(".bin"))) {{
          const type = definition["hushgrad.v1." + file.split(".")[0]];
          if (type?.deserialize === undefined) continue;
          const bytes = fs.readFileSync("{GOLDEN}/" + file);
          const value = type.deserialize(bytes), again = type.serialize(value);
          // This library writes the default of a field that is younger than the golden bytes, so values count then.
          const isYounger = again.length > bytes.length;
          const same = JSON.stringify(type.deserialize(again)) === JSON.stringify(value);
          if (!again.equals(bytes) && !(isYounger && same)) throw new Error(file);
          seen += 1;
        }}
        console.log(seen);
    """
    assert int(run(script)) >= 40


@needs_node
def test_it_seals_the_worked_rows(tmp_path):
    (tmp_path / "ledger.json").write_text(json.dumps({"id": WORKED["ledger_id"], "identity": {}}))
    script = f"""
        import {{ Ledger }} from "./ledger.js";
        import {{ crc32c }} from "./client.js";
        const ledger = new Ledger("{tmp_path}", {{}});
        for (const row of {json.dumps(WORKED["rows"])}) {{
          const declared = {{
            termsDigest: Buffer.from("{WORKED["terms_digest"]}", "hex"), participant: "client-1", round: row.round,
            noiseMultiplier: {WORKED["noise_multiplier"]}, clipNorm: {WORKED["clip_norm"]},
          }};
          ledger.seal(declared, Buffer.from(row.payload, "hex"));
          const sealed = ledger.rows.at(-1);
          console.log(ledger.heads.at(-1).toString("hex"), crc32c(sealed.header, sealed.payload));
        }}
    """
    expected = [f"{row['head']} {row['crc32c']}" for row in WORKED["rows"]]
    assert run(script).split("\n")[:-1] == expected
    for number, row in enumerate(WORKED["rows"], start=1):
        assert (tmp_path / f"{number:08}.update").read_bytes().hex() == row["header"] + row["payload"]


@needs_node
def test_its_noise_has_the_declared_deviation():
    script = """
        import { Noise } from "./privacy.js";
        const noise = new Noise(65536 * 1.7);
        for (let i = 0; i < 20000; i++) console.log(noise.draw());
    """
    values = np.array(run(script).split(), float) / (65536 * 1.7)
    # The mean square of n draws has relative deviation sqrt(2/n) = 0.01; six of them: false alarm below 2e-9.
    assert abs(np.mean(values**2) - 1) < 0.06


@needs_node
def test_its_bound_is_the_minimal_clients():
    script = 'import { epsilon } from "./privacy.js"; console.log(epsilon(140, 0.17, 14.28, 1e-6));'
    source = "import client; print(client.epsilon(140, 0.17, 14.28, 1e-6))"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'protos'}{os.pathsep}{ROOT / 'examples' / 'python-minimal'}"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True)
    assert float(run(script)) == pytest.approx(float(done.stdout), rel=1e-9)


def prepare(root: Path, address: str) -> tuple[list[str], dict[str, str]]:
    """Writes data and returns command and environment of a client."""
    state = root / "state"
    state.mkdir()
    rng = np.random.default_rng(20260711)
    table = np.column_stack([rng.normal(size=(200, FEATURES)), rng.integers(0, 2, 200)])
    np.savetxt(root / "data.csv", table, fmt="%.17g", delimiter=",", header="a,b,c,d,label", comments="")
    privacy = {"records": 200, "sampler": "poisson", "sample_size": 20, "epsilon": 60.0, "delta": 1e-5}
    privacy |= {"clip_norm": TERMS.privacy.clip_norm, "noise_multiplier": TERMS.privacy.noise_multiplier_min}
    variables = {
        "HUSHGRAD_SERVER": address,
        "HUSHGRAD_PARTICIPANT": "client-1",
        "HUSHGRAD_STATE_DIR": str(state),
        "HUSHGRAD_DATA": str(root / "data.csv"),
        "HUSHGRAD_PRIVACY": json.dumps(privacy),
    }
    return ["node", str(NODE / "client.js")], {**os.environ, **variables}


@needs_node
@pytest.mark.e2e
def test_it_ends_well_when_an_operator_ends_the_run_early(tmp_path):
    make_state(tmp_path, TERMS)
    with ServerProcess(tmp_path) as server:
        command, environment = prepare(tmp_path, server.address)
        member = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while len(server.events("published")) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        final = operators.end(server.address)
        _, error = member.communicate(timeout=30)
        assert member.returncode == 0, error
        assert server.events("published")[-1]["version"] == final < TERMS.final_version
        server.stop()


@needs_node
@pytest.mark.e2e
def test_killed_on_the_way_every_round_is_included_once_with_the_bytes_of_its_files(tmp_path):
    make_state(tmp_path, TERMS)
    state = tmp_path / "state"
    with ServerProcess(tmp_path) as server:
        command, environment = prepare(tmp_path, server.address)
        victim = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + 30
        while len(server.events("published")) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        victim.send_signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        subprocess.run(command, env=environment, check=True, timeout=60)
        server.stop()
    opened = database_module.Database.open(StateFolder(tmp_path / "server"))
    receipts = sorted(opened.receipts(), key=lambda receipt: receipt.round)
    opened.close()
    files = sorted(state.glob("*.update"))
    assert [receipt.round for receipt in receipts] == list(range(TERMS.final_version))
    assert {receipt.disposition for receipt in receipts} == {Disposition.INCLUDED}
    assert [receipt.digest for receipt in receipts] == [header.digest(file.read_bytes(), b"") for file in files]
