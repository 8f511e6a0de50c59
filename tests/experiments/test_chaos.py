"""`hushgrad demo --chaos`: killed, lossy and repeated, it ends like the calm one, and proves it key by key."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hushgrad.server import layout
from hushgrad.server.database import Database

pytestmark = pytest.mark.e2e


def demo(runs: Path, name: str, *arguments: str) -> dict:
    command = [sys.executable, "-m", "hushgrad.cli", "demo", "--runs-dir", str(runs), "--name", name, "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short chaotic demo; returns its folder."""
    runs = tmp_path_factory.mktemp("runs")
    demo(runs, "chaos", "--chaos", "--rounds", "24")
    return runs / "chaos"


def test_a_chaotic_demo_ends_with_every_key_once(folder: Path) -> None:
    found = json.loads((folder / "summary.json").read_text())
    assert (found["global_version"], found["ledgers_verified"]) == (24, True)
    assert found["claim"]["epsilon"] <= 0.5
    chaos = found["chaos"]
    assert chaos["killed"] == ["client-2", "server"]
    assert (chaos["keys"], chaos["versions_recomputed"], chaos["lost"], chaos["doubled"]) == (120, 25, 0, 0)
    # About 200 calls or more, each lost or repeated with chance 0.1: none of a kind has chance 0.9**200 = 7e-10.
    assert min(chaos["calls"][kind] for kind in ("dropped_requests", "dropped_responses", "repeated")) > 0
    with (folder / "audit.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["participant"], int(row["round"])) for row in rows} == {
        (f"client-{number}", round_) for number in range(1, 6) for round_ in range(24)
    }
    # The demo's participants may be one round ahead, and a version takes what is there.
    assert all(int(row["included_in"]) >= int(row["round"]) for row in rows)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_chaos_costs_no_accuracy_and_no_privacy(tmp_path: Path) -> None:
    calm, chaotic = demo(tmp_path, "calm"), demo(tmp_path, "chaos", "--chaos")
    assert chaotic["claim"] == calm["claim"]
    for kind in ("test_accuracy", "test_accuracy_averaged"):
        print(kind, calm[kind], chaotic[kind])
        assert abs(chaotic[kind] - calm[kind]) <= 0.02
    assert chaotic["chaos"]["keys"] == chaotic["updates_accepted"] == calm["updates_accepted"] == 700


def _take_out_of_its_version(database: Database, participant: str, round_: int) -> None:
    """Writes a receipt that fits its checksum and says that its update is in no version."""
    key = (participant, round_)
    where = "WHERE participant = ? AND round = ?"
    connection = database._connection
    *fields, _ = connection.execute(f"SELECT {layout.CHECKED['receipts']} FROM receipts {where}", key).fetchone()
    checksum = layout.checksum("receipts", *fields, None)
    connection.execute(f"UPDATE receipts SET included_in = NULL, checksum = ? {where}", (checksum, *key))


def test_the_audit_sees_a_lost_an_unknown_and_a_changed_update(folder: Path) -> None:
    from hushgrad.experiments import chaos
    from hushgrad.experiments.errors import ExperimentError
    from hushgrad.server.database import stored_terms
    from hushgrad.server.folder import StateFolder

    names = [f"client-{number}" for number in range(1, 6)]
    state = StateFolder(folder / "state" / "server")
    database = Database.open(state)
    terms = stored_terms(database)
    assert len(chaos.audit(folder, names, terms).lines) == 120
    sealed = state.sealed / "client-3" / "1.update"
    original = sealed.read_bytes()
    sealed.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    with pytest.raises(ExperimentError, match="sealed bytes"):
        chaos.audit(folder, names, terms)
    sealed.write_bytes(original)
    with pytest.raises(ExperimentError, match="no ledger has"):
        chaos.audit(folder, names[:-1], terms)
    _take_out_of_its_version(database, "client-1", 2)
    with pytest.raises(ExperimentError, match="the server has none"):
        chaos.audit(folder, names, terms)
    database.close()
