"""A real client whose noise is broken, beside honest ones: refused, told why, and nobody else is held up.

Its noise is forty times as wide as declared: with 69 parameters less would pass, see docs/limits.md.
"""

import json
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.faults import crowd
from tests.faults.crowd import Crowd

pytestmark = pytest.mark.faults

_BROKEN = """
from hushgrad.client import noise
draw = noise.GaussianTables.draw
noise.GaussianTables.draw = lambda self, stream, count: 40 * draw(self, stream, count)
from hushgrad.client.__main__ import main
main()
"""


def test_a_client_with_broken_noise_is_refused_and_stops_and_the_others_go_on(tmp_path: Path) -> None:
    root = tmp_path / "federation"
    crowd.prepare(root, clients=3, rounds=6, straggler_timeout_seconds=3.0)
    with Crowd(root) as processes:
        processes.start_server()
        for name in processes.names[1:]:
            processes.start_client(name)
        broken = processes.names[0]
        arguments = ["run", "--config", f"{broken}.toml", "--server", processes.address]
        processes._start(broken, [sys.executable, "-c", _BROKEN, *arguments])
        # It stops by itself, with the code for "a person must look", and says what is wrong.
        assert processes.processes[broken].wait(timeout=60) == 5
        told = processes.log(broken)
        assert "the server refused the content of 3 updates in a row" in told
        assert "root mean square" in told
        for name in processes.names[1:]:
            assert processes.processes[name].wait(timeout=60) == 0
        processes.kill("server", signal.SIGTERM)
    # Three rounds are spent for ever at the client, and INVALID for ever at the server; all else is in the model. The
    # delay permits one round before the last one's answer, so a fourth may be sealed, and even sent, by then.
    with sqlite3.connect(root / broken / "ledger.sqlite") as connection:
        spent = connection.execute("SELECT COUNT(*) FROM ledger WHERE kind = 'update'").fetchone()
    assert spent in ((3,), (4,))
    crowd.command(root, "client", "ledger", "verify", "--config", f"{broken}.toml")
    crowd.command(root, "server", "export", "--config", "server.toml", "out")
    receipts = json.loads((root / "out" / "receipts.json").read_text())
    fates = {
        name: [receipt["disposition"] for receipt in receipts if receipt["participant"] == name]
        for name in processes.names
    }
    assert 3 <= fates[broken].count("INVALID") <= spent[0]
    assert "INCLUDED" not in fates[broken]
    assert all(fates[name] == ["INCLUDED"] * 6 for name in processes.names[1:])
