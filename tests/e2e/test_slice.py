"""The whole product once: a short demo of real processes, judged by routes that share no code with it."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hushgrad.client import data, store
from hushgrad.client.data import DataConfig

from tests.support import independent_pld

pytestmark = pytest.mark.e2e

ROUNDS = 12
CLIENTS = [f"client-{number}" for number in range(1, 6)]
RECOMPUTE = Path(__file__).parent / "recompute.py"


def run(*command: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two demos with the same seed; returns their run folders."""
    folder = tmp_path_factory.mktemp("demos")
    for name in ("one", "two"):
        arguments = ["--seed", "3", "--rounds", str(ROUNDS), "--keep-sealed", "--json"]
        done = run("-m", "hushgrad.cli", "demo", *arguments, "--name", name, "--runs-dir", str(folder))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["global_version"] == ROUNDS
    return folder / "one", folder / "two"


@pytest.fixture(scope="module")
def exported(demos: tuple[Path, Path]) -> Path:
    """What the first demo's server exports."""
    folder = demos[0] / "exported"
    config = demos[0] / "configuration" / "server.toml"
    done = run("-m", "hushgrad.server", "export", str(folder), "--config", str(config))
    assert done.returncode == 0, done.stderr
    return folder


def ledger(run_folder: Path, client: str) -> dict:
    return json.loads((run_folder / "ledgers" / f"{client}.json").read_text())


def update_rows(exported_ledger: dict) -> list[dict]:
    return [row for row in exported_ledger["rows"] if row["kind"] == "update"]


def test_every_ledger_verifies_and_its_digests_are_the_servers(demos: tuple[Path, Path], exported: Path) -> None:
    receipts = json.loads((exported / "receipts.json").read_text())
    at_server = {(receipt["participant"], receipt["round"]): receipt["digest"] for receipt in receipts}
    at_clients = {}
    for client in CLIENTS:
        state = demos[0] / "state" / client
        config = demos[0] / "configuration" / f"{client}.toml"
        done = run("-m", "hushgrad.client", "ledger", "verify", "--config", str(config), "--state", str(state))
        assert done.returncode == 0, done.stderr
        for row in update_rows(ledger(demos[0], client)):
            at_clients[client, row["round"]] = row["digest"]
    assert len(at_clients) == 5 * ROUNDS
    assert at_clients == at_server


def test_the_claim_agrees_with_an_independent_pld_of_the_exported_rows(demos: tuple[Path, Path]) -> None:
    for client in CLIENTS:
        exported_ledger = ledger(demos[0], client)
        (committed,) = exported_ledger["runs"]
        rows = update_rows(exported_ledger)
        lower, upper = independent_pld.epsilon_bounds(
            [(row["sampling_probability"], row["charged_noise_multiplier"]) for row in rows],
            committed["claim"]["delta"],
        )
        # The bounds are a bracket of width rounds * 1e-5; the claim is rounded up to four digits and pays at most 1 %
        # of delta for the sampler, which costs less than 1 % of epsilon.
        assert lower <= committed["claim"]["epsilon"] <= 1.01 * upper
        assert committed["claim"]["epsilon"] <= 0.5
        # The twin: half the noise is another number by far, so the agreement above means something.
        halved = [(row["sampling_probability"], row["charged_noise_multiplier"] / 2) for row in rows]
        assert independent_pld.epsilon_bounds(halved, committed["claim"]["delta"])[0] > 1.5 * upper


def test_a_script_of_forty_lines_recomputes_every_version_from_the_sealed_bytes(exported: Path) -> None:
    source = RECOMPUTE.read_text()
    assert len(source.splitlines()) <= 40
    assert "import hushgrad" not in source
    assert "from hushgrad" not in source
    done = run(str(RECOMPUTE), str(exported))
    assert done.stdout.strip() == f"{ROUNDS + 1} versions recomputed, 0 differ", done.stdout + done.stderr
    assert done.returncode == 0


def test_the_script_sees_one_changed_bit(exported: Path, tmp_path: Path) -> None:
    published = exported / "versions" / f"{ROUNDS}.f32"
    original = published.read_bytes()
    published.write_bytes(bytes([original[0] ^ 1]) + original[1:])
    try:
        done = run(str(RECOMPUTE), str(exported))
    finally:
        published.write_bytes(original)
    assert done.returncode == 1
    assert done.stdout.strip() == f"{ROUNDS + 1} versions recomputed, 1 differ"


def test_two_demos_with_one_seed_send_different_payloads(demos: tuple[Path, Path]) -> None:
    one, two = (
        {
            (path.parent.name, path.stem): hashlib.sha256(path.read_bytes()[192:]).digest()
            for path in (folder / "state" / "server" / "sealed").glob("*/*.update")
        }
        for folder in demos
    )
    assert set(one) == set(two)
    assert len(one) == 5 * ROUNDS
    assert not set(one.values()) & set(two.values())
    for client in CLIENTS:  # the seed fixed what it promises to fix
        data = [hashlib.sha256((folder / "configuration" / "data" / f"{client}.npz").read_bytes()) for folder in demos]
        assert data[0].digest() == data[1].digest()


def test_nothing_that_was_sent_or_logged_tells_a_count_a_loss_or_an_accuracy_on_private_data(
    demos: tuple[Path, Path],
) -> None:
    forbidden = ("loss", "accuracy", "examples", "gradient_norm", "batch_size", "rows")
    for client in CLIENTS:
        log = (demos[0] / "logs" / f"{client}.log").read_text()
        for line in log.splitlines():
            keys = json.loads(line).keys()
            assert not [key for key in keys if any(word in key for word in forbidden)], line


def test_no_secret_is_in_summary_logs_ledgers_or_any_other_result(demos: tuple[Path, Path]) -> None:
    """A result is what people show to others: everything in a run's folder but the states and the configuration."""
    results = {
        path: path.read_bytes()
        for path in demos[0].rglob("*")
        if path.is_file() and path.relative_to(demos[0]).parts[0] not in ("state", "configuration")
    }
    assert {"summary.json", "history.csv", "client-1.log", "client-1.json"} <= {path.name for path in results}
    secrets = [store.identity(store.connect(demos[0] / "state" / client, read_only=True))[1] for client in CLIENTS]
    secrets += [data.load(DataConfig(file=str(path))).fingerprint.encode() for path in demos[0].rglob("client-*.npz")]
    assert len(set(secrets)) == 2 * len(CLIENTS)
    for path, content in results.items():
        assert b"PRIVATE KEY" not in content, path
        for secret in secrets:
            assert secret not in content, path
            assert secret.hex().encode() not in content.lower(), path
