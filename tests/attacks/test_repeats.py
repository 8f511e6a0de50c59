"""No noise comes twice: not after a kill, not in a copy of a state folder, not in a forked process."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hushgrad.client import runner
from hushgrad.client.stream import RandomStream
from hushgrad.wire import header

from tests.attacks import pipeline, repeats
from tests.attacks.pipeline import World
from tests.support import client_world
from tests.support.fake_server import FakeServer

FEATURES, ROUNDS, SIGMA = 60, 8, 20.0

CONFIG = """
participant = "client-1"
server = "{server}"
[data]
file = "data.npz"
[model]
kind = "logistic"
[privacy]
records = 100
clip_norm = 0.5
noise_multiplier = {sigma}
sampler = "poisson"
epsilon = 1.0
delta = 1e-5
lifetime_epsilon = 1.0
lifetime_delta = 1e-5
"""


def start(folder: Path, state: str, *verb: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hushgrad.client", *verb, "--config", str(folder / "client.toml")]
    return subprocess.Popen(
        [*command, "--state", str(folder / state)],
        env={
            **os.environ,
            "HUSHGRAD_HOME": str(folder / "home"),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def updates_of(server: FakeServer) -> dict[int, npt.NDArray[np.int64]]:
    found = {}
    for request in server.calls("SubmitUpdate"):
        update = np.frombuffer(request.payload, "<i4").astype(np.int64)
        found.setdefault(header.unpack(request.header).round, update)
    return found


@pytest.mark.e2e
def test_noise_never_comes_again_after_a_kill_or_in_a_copy_of_the_state_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "data.npz", X=rng.random((100, FEATURES)), y=rng.integers(0, 2, 100))
    terms = client_world.make_terms(features=FEATURES, final_version=ROUNDS)
    first, second = FakeServer(terms), FakeServer(terms)
    with first.serving() as at_first, second.serving() as at_second, ExitStack() as stack:
        (tmp_path / "client.toml").write_text(CONFIG.format(server=at_first, sigma=SIGMA))
        assert start(tmp_path, "state", "ledger", "init").wait() == 0
        shutil.copytree(tmp_path / "state", tmp_path / "copy")

        first.hold_versions = True  # one version ahead is all that is allowed, so it stands at round 2
        killed = start(tmp_path, "state", "run")
        stack.callback(killed.kill)
        deadline = time.monotonic() + 100
        while len(first.receipts) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        first.release()
        restarted = start(tmp_path, "state", "run")
        stack.callback(restarted.kill)
        # A server that knows nothing of the other one: nobody can tell that this ledger is a copy.
        copied = start(tmp_path, "copy", "run", "--server", at_second)
        stack.callback(copied.kill)
        assert (restarted.wait(100), copied.wait(100)) == (0, 0)
    lives = [*updates_of(first).values(), *updates_of(second).values()]
    assert len(lives) == 2 * ROUNDS
    scale = SIGMA * 0.5 / 2.0**terms.grid_exponent
    assert repeats.repeated(np.array(lives), scale) == []
    # The same bytes sent twice are no second draw; the twin: they are seen as what they are.
    assert repeats.repeated(np.array([*lives, lives[3]]), scale) == [(3, 2 * ROUNDS)]


FORK = """
import os, sys
import numpy as np
from hushgrad.client import noise
from hushgrad.client.stream import RandomStream

COUNT, SCALE = int(sys.argv[1]), 2.0**16
tables = noise.GaussianTables(SCALE)
tables.draw(RandomStream(), COUNT)  # whatever a first draw sets up is set up before the fork

def draw(path):
    np.save(path, np.array([tables.draw(RandomStream(), COUNT) for _ in range(3)]))

child = os.fork()
if not child:
    draw("child.npy")
    os._exit(0)
draw("parent.npy")
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("count", [60, 1000], ids=["from the system directly", "from a cipher"])
def test_a_forked_process_draws_other_noise_than_its_parent(tmp_path: Path, count: int) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", FORK, str(count)]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=True, timeout=60)
    drawn = np.concatenate([np.load(tmp_path / "parent.npy"), np.load(tmp_path / "child.npy")])
    assert drawn.shape == (6, count)
    assert repeats.repeated(drawn, 2.0**16) == []


def test_a_key_that_depends_on_the_round_alone_is_found_between_two_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: each life draws from keys that the other one uses as well; signals differ, noise does not."""
    world = World("poisson", records=100, sample_size=8, noise_multiplier=SIGMA, rounds=3, features=FEATURES)
    rng = np.random.default_rng(2)
    lives = []
    for _ in range(2):
        numbers = iter(range(3))
        monkeypatch.setattr(
            runner, "RandomStream", lambda n=numbers: RandomStream(hashlib.sha256(b"%d" % next(n)).digest())
        )
        records = [(tuple(row), 1) for row in rng.random((100, FEATURES))]
        with pipeline.client(world, records) as made:
            made.life()
            lives.append(made.run())
    found = repeats.repeated(np.concatenate(lives), SIGMA / 2.0**world.grid)
    assert found == [(0, 3), (1, 4), (2, 5)]
