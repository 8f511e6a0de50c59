"""A client.toml that names a PyTorch module: it trains, its ledger verifies, and a wrong module is one sentence."""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog
from hushgrad.client import commands, config, ledger, models, retry
from hushgrad.client.errors import InputError
from hushgrad.wire.terms import Terms

from tests.support import client_world
from tests.support.fake_server import FakeServer

pytest.importorskip("torch", reason="the heavy tests run in an environment of their own: make test-heavy")
pytestmark = pytest.mark.heavy

FACTORY = "network_of_a_test:build"
CONFIG = """
participant = "client-1"
server = "{server}"
state = "state"
[data]
file = "data.npz"
[model]
kind = "torch"
factory = "{factory}"
classes = 2
[privacy]
records = 200
clip_norm = 0.5
noise_multiplier = 4.0
sampler = "poisson"
epsilon = 2.0
delta = 1e-4
lifetime_epsilon = 2.0
lifetime_delta = 1e-4
"""
NETWORK = """
from torch import nn


def build():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def mixing():
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HUSHGRAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network_of_a_test.py").write_text(NETWORK)
    x = np.random.default_rng(1).random((200, 3))
    np.savez(tmp_path / "data.npz", X=x, y=(x[:, 0] > 0.5).astype(int))
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield tmp_path
    structlog.reset_defaults()


def make_terms() -> Terms:
    """Terms of a federation of that network; it begins with zeros, whatever sense that makes."""
    model = models.make("torch", features=3, classes=2, factory=FACTORY)
    initial = hashlib.sha256(np.zeros(sum(spec.size for spec in model.arrays), "<f4").tobytes()).digest()
    return dataclasses.replace(
        client_world.make_terms(), model=FACTORY, arrays=model.arrays, initial_model_sha256=initial, grid_exponent=-18
    )


def load(folder: Path, address: str, factory: str = FACTORY) -> config.ClientConfig:
    (folder / "client.toml").write_text(CONFIG.format(server=address, factory=factory))
    return config.load_client(folder / "client.toml", {})


def test_a_module_named_in_the_configuration_takes_part(folder: Path) -> None:
    server = FakeServer(make_terms())
    with server.serving() as address:
        loaded = load(folder, address)
        commands.ledger_init(loaded, accept_new_budget=False)
        answer = commands.run(loaded, accept_large_delta=False)
    assert (answer["reason"], answer["rounds_sealed"]) == ("ended", 6)
    snapshot = ledger.verify(folder / "state")
    (group,) = snapshot.runs[0].schedule
    # n_max = 64, chunks of 72 in float32: 1 + 2 * 64 * 72 * 2^-24, and the grid.
    assert group.charged_noise_multiplier == pytest.approx(4.0 / (1 + 2 * 64 * 72 * 2.0**-24), rel=1e-4)
    assert group.charged_noise_multiplier < 4.0


def test_another_module_than_the_federation_s_is_refused_before_anything_is_committed(folder: Path) -> None:
    server = FakeServer(dataclasses.replace(make_terms(), model="elsewhere:build"))
    with server.serving() as address:
        loaded = load(folder, address)
        commands.ledger_init(loaded, accept_new_budget=False)
        with pytest.raises(InputError, match=r"'network_of_a_test:build', the terms are for a 'elsewhere:build' model"):
            commands.run(loaded, accept_large_delta=False)
    assert ledger.read(folder / "state").runs == ()


def test_a_module_that_mixes_examples_is_refused_before_a_server_is_asked(folder: Path) -> None:
    loaded = load(folder, "127.0.0.1:9", "network_of_a_test:mixing")
    commands.ledger_init(loaded, accept_new_budget=False)
    with pytest.raises(InputError, match="BatchNorm1d"):
        commands.run(loaded, accept_large_delta=False)
