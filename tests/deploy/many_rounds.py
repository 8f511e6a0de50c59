"""Makes the state of a server that has run many rounds, through its own store and without the network.

    python -m tests.deploy.many_rounds FOLDER [VERSIONS]

What months leave behind in minutes: nothing is synced on the way, everything else is what a server does.
"""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from hushgrad.server import config, layout
from hushgrad.server import database as database_module
from hushgrad.server.aggregation import Published
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder
from hushgrad.server.records import Disposition, ParticipantRecord, Receipt, State
from hushgrad.wire import terms_file

PARTICIPANTS = 5
PARAMETERS = 69  # the demo's model


def make(folder: Path, *, versions: int) -> StateFolder:
    """Makes a state with so many versions, and an update of each participant in every one; returns it."""
    names = [f"client-{number}" for number in range(1, PARTICIPANTS + 1)]
    state = StateFolder(folder)
    state.make()
    zeros = np.zeros(PARAMETERS, np.float32)
    terms = terms_file.build(_terms(names, final_version=2 * versions), zeros, bytes(16))
    database_module.create(state, terms, terms.to_bytes(), zeros)
    connection = layout.connect(state.database, read_only=False)
    connection.execute("PRAGMA synchronous = OFF")
    database = Database(state, connection)
    records = [ParticipantRecord(name, State.ACTIVE, 1, ((bytes(16), 1),), ((0, None),), 0, 0) for name in names]
    heads = {name: hashlib.sha256(name.encode()).digest() for name in names}
    keep_last = config.ServerConfig().keep_last
    for version in range(1, versions + 1):
        receipts = []
        for name in names:
            digest = hashlib.sha256(f"{name} {version}".encode()).digest()
            head = hashlib.sha256(heads[name] + digest).digest()
            # The ledger's first two rows are its init and the commitment of the schedule.
            receipts.append(Receipt(name, version - 1, digest, version + 2, heads[name], head, Disposition.INCLUDED))
            heads[name] = head
        # Random bits, as in a model: what compresses well would flatter nothing, but it would be another model.
        model = np.random.default_rng(version).standard_normal(PARAMETERS).astype("<f4").tobytes()
        array = np.full(PARAMETERS, version, np.int64)
        published = Published(version, model, hashlib.sha256(model).digest(), array, None, 0, None)
        database.begin()
        database.write(receipts)
        folded = [(name, version - 1) for name in names]
        database.checkpoint(published, version - 1, folded, records, keep_last, 1.8e9 + 0.123 * version)
        database.commit()
    database.close()
    (folder / "server.toml").write_text('listen = "127.0.0.1:0"\nstate = "."\n')
    return state


def _terms(names: list[str], *, final_version: int) -> terms_file.TermsFile:
    return terms_file.TermsFile(
        federation="months",
        model="logistic",
        arrays=[terms_file.ArrayEntry("w", [PARAMETERS])],
        final_version=final_version,
        window=4,
        straggler_timeout_seconds=60.0,
        step_size=terms_file.StepSize("constant", eta0=0.001),
        sample_size=terms_file.SampleSize("constant", size=10),
        delay=terms_file.Delay("max-delay", 1),
        privacy=terms_file.PrivacySection(0.5, 2.0, 3.0, ["poisson"], 100),
        participants=names,
    )


def size_bytes(folder: Path) -> int:
    """Returns what a state takes on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def start_seconds(folder: Path) -> tuple[float, float]:
    """Starts a server on a state and stops it; returns (wall-clock, processor) seconds until it listened."""
    command = [sys.executable, "-m", "hushgrad.server", "run", "--config", str(folder / "server.toml")]
    begun = time.monotonic()
    with subprocess.Popen(
        [*command, "--log-format", "json"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if '"listening"' in line:
                break
        else:
            raise RuntimeError(f"the server did not start: {''.join(said)}")
        wall = time.monotonic() - begun
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        processor = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        process.terminate()
    return wall, processor


if __name__ == "__main__":
    where, wanted = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    if not where.exists():
        started = time.monotonic()
        make(where, versions=wanted)
        print(f"{wanted} versions made in {time.monotonic() - started:.0f} s")
    print(f"{size_bytes(where) / 1e6:.1f} MB")
    for _ in range(5):
        print("listening after {:.2f} s, {:.2f} s of processor time".format(*start_seconds(where)))
