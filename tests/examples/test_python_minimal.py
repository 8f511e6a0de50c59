"""The minimal client: its size and imports, its noise and bound, and its life with a real server, killed on the way."""

import ast
import importlib.util
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hushgrad import accountant
from hushgrad.client import noise as our_noise
from hushgrad.server import database as database_module
from hushgrad.server.folder import StateFolder
from hushgrad.server.records import Disposition

from tests.support import operators
from tests.support.federations import make_terms
from tests.support.servers import ServerProcess, make_state

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "examples" / "python-minimal" / "client.py"
SOURCE = CLIENT.read_text()
FEATURES = 4
RECORDS = 200
# Models do not fit into the watch and are fetched; `make interop` takes the short way.
TERMS = make_terms(participants=1, parameters=FEATURES + 1, final_version=100, max_inline_model_bytes=0)


@pytest.fixture(scope="module")
def client():
    spec = importlib.util.spec_from_file_location("minimal_client", CLIENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_has_two_hundred_lines_at_most():
    assert len(SOURCE.splitlines()) <= 200


def test_it_imports_the_standard_library_three_packages_and_stubs():
    imported = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    outside = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    assert outside <= {"grpc", "numpy", "google.protobuf", "cryptography", "hushgrad.v1"}
    assert "random" not in imported
    assert "np.random" not in SOURCE


def test_its_checksum_has_the_published_value(client):
    # The check value of CRC-32/ISCSI in the catalogue of parametrised CRC algorithms.
    assert client.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("scale", [300.0, 65536.0 * 1.7])
def test_its_noise_tables_have_the_weights_of_the_discrete_gaussian(client, scale):
    b, x_variance, y_variance = our_noise.split(scale)
    for deviation in (math.sqrt(x_variance), math.sqrt(y_variance)):
        drawn = client.gaussian(deviation)
        (table,) = [cell.cell_contents for cell in drawn.__closure__]
        weights = np.diff([0, *(value / table[-1] for value in table)])
        x = np.arange(len(weights)) - len(weights) // 2
        expected = np.exp(-0.5 * (x / deviation) ** 2)
        # Differences of double-precision cumulative weights are good to 2^-52; the tails have no absolute weight.
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=0, atol=1e-14)
        assert x[-1] >= 14 * deviation
    assert b >= 2


def test_its_draws_have_the_declared_deviation(client):
    draw, count = client.gaussian(100.0), 20_000
    values = np.array([draw() for _ in range(count)])
    # The mean square of n draws has relative deviation sqrt(2/n) = 0.01; six of them: false alarm below 2e-9.
    assert abs(np.mean(values**2) / 1e4 - 1) < 0.06
    # The twin: 5 % less noise is 10 % less variance.
    assert abs(np.mean((0.95 * values) ** 2) / 1e4 - 1) > 0.03


@pytest.mark.parametrize(("q", "sigma", "rounds"), [(0.17, 14.28, 140), (0.5, 4.0, 30), (0.01, 1.0, 1000)])
def test_its_bound_is_above_the_tight_one_and_near_it(client, q, sigma, rounds):
    records = 100_000
    mechanism = accountant.Mechanism(
        clip_norm=1.0,
        noise_multiplier=sigma,
        grid_exponent=-40,
        parameters=1,
        max_examples_per_round=records + 1,
        chunk_examples=2048,
        unit_roundoff=2.0**-53,
        clip_error=2.0**-48,
    )
    run = accountant.Run("poisson", records, (round(q * records),) * rounds, mechanism)
    tight = accountant.claim(run, delta=1e-6).epsilon
    bound = client.epsilon(rounds, q, sigma, 1e-6)
    assert tight <= bound <= 1.25 * tight


def start(root: Path, address: str, epsilon: float = 60.0) -> subprocess.Popen:
    privacy = {
        "records": RECORDS,
        "clip_norm": TERMS.privacy.clip_norm,
        "noise_multiplier": TERMS.privacy.noise_multiplier_min,
        "sampler": "poisson",
        "sample_size": 20,
        "epsilon": epsilon,
        "delta": 1e-5,
    }
    state = root / "state"
    state.mkdir(exist_ok=True)
    rng = np.random.default_rng(20260711)
    np.savez(root / "data.npz", X=rng.normal(size=(RECORDS, FEATURES)), y=rng.integers(0, 2, RECORDS))
    variables = {
        "PYTHONPATH": str(ROOT / "protos"),
        "HUSHGRAD_SERVER": address,
        "HUSHGRAD_PARTICIPANT": "client-1",
        "HUSHGRAD_STATE_DIR": str(state),
        "HUSHGRAD_DATA": str(root / "data.npz"),
        "HUSHGRAD_PRIVACY": json.dumps(privacy),
    }
    return subprocess.Popen([sys.executable, str(CLIENT)], env={**os.environ, **variables}, stderr=subprocess.PIPE)


def wait_for_version(server: ServerProcess, version: int) -> None:
    deadline = time.monotonic() + 30
    while max((event["version"] for event in server.events("published")), default=0) < version:
        assert time.monotonic() < deadline, f"version {version} did not come"
        time.sleep(0.005)


@pytest.mark.e2e
def test_killed_twice_every_round_is_included_once_with_the_bytes_of_the_ledger(tmp_path):
    make_state(tmp_path, TERMS)
    with ServerProcess(tmp_path) as server:
        for version in (20, 60):
            victim = start(tmp_path, server.address)
            wait_for_version(server, version)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            assert victim.returncode == -signal.SIGKILL
        last = start(tmp_path, server.address)
        _, error = last.communicate(timeout=60)
        assert last.returncode == 0, error
        server.stop()
    opened = database_module.Database.open(StateFolder(tmp_path / "server"))
    receipts = sorted(opened.receipts(), key=lambda receipt: receipt.round)
    opened.close()
    ledger = sqlite3.connect(tmp_path / "state" / "ledger.db")
    sealed = ledger.execute("SELECT round, n, digest, head FROM ledger WHERE n > 0 ORDER BY n").fetchall()
    ledger.close()
    assert [receipt.round for receipt in receipts] == list(range(TERMS.final_version))
    assert {receipt.disposition for receipt in receipts} == {Disposition.INCLUDED}
    assert [(one.round, one.sequence, one.digest, one.head) for one in receipts] == sealed


@pytest.mark.e2e
@pytest.mark.parametrize("last", [None, pytest.param(60, marks=pytest.mark.faults)])
def test_it_ends_well_when_an_operator_ends_the_run_early(tmp_path, last):
    make_state(tmp_path, TERMS)
    with ServerProcess(tmp_path) as server:
        member = start(tmp_path, server.address)
        wait_for_version(server, 5)
        final = operators.end(server.address, last)
        _, error = member.communicate(timeout=30)
        assert member.returncode == 0, error
        assert server.events("published")[-1]["version"] == final < TERMS.final_version
        server.stop()
    ledger = sqlite3.connect(tmp_path / "state" / "ledger.db")
    sealed = {round_ for (round_,) in ledger.execute("SELECT round FROM ledger WHERE n > 0")}
    ledger.close()
    # At once: what is sealed may come too late. With a version: whoever hears of it in time spends nothing for nothing.
    assert set(range(final)) <= sealed
    assert len(sealed) <= final + 2


@pytest.mark.e2e
def test_a_run_above_its_budget_is_refused_with_nothing_sent(tmp_path):
    make_state(tmp_path, TERMS)
    with ServerProcess(tmp_path) as server:
        refused = start(tmp_path, server.address, epsilon=0.1)
        _, error = refused.communicate(timeout=30)
        assert refused.returncode == 3
        assert b"the budget is 0.1" in error
        assert server.events("joined") == []


@pytest.mark.e2e
def test_a_second_process_on_one_ledger_ends_with_one_line_and_the_first_goes_on(tmp_path):
    make_state(tmp_path, TERMS)
    with ServerProcess(tmp_path) as server:
        first = start(tmp_path, server.address)
        wait_for_version(server, 5)
        first.send_signal(signal.SIGSTOP)  # so that it is still there, however long the second takes to start
        second = start(tmp_path, server.address)
        _, error = second.communicate(timeout=30)
        assert second.returncode == 2
        # gRPC may add lines of its own.
        said = [line for line in error.decode().splitlines() if "chttp2" not in line]
        assert len(said) == 1
        assert "database is locked" in said[0]
        first.send_signal(signal.SIGCONT)
        _, error = first.communicate(timeout=60)
        assert first.returncode == 0, error
        server.stop()
