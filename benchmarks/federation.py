"""Small federations for measurements: their files, and sealed updates that any server would take."""

import hashlib
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hushgrad.v1 import terms_pb2
from hushgrad.wire import grid, header
from hushgrad.wire.terms import Terms

from benchmarks import processes

CLIP_NORM = 0.5
NOISE_MULTIPLIER = 2.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What a measured federation looks like.

    Attributes:
        parameters: d.
        participants: how many.
        rounds: its final version.
        delay: a participant may be so many rounds ahead of the newest version.
        publish_every: every so many rounds a version is published.
        window: how late an update may come.
    """

    parameters: int = 69
    participants: int = 5
    rounds: int = 100
    delay: int = 1
    publish_every: int = 1
    window: int = 12

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the participants, in order."""
        return tuple(f"client-{number}" for number in range(1, self.participants + 1))


def prepare(folder: Path, plan: Plan, *, server: list[str | Path] | None = None, limits: str = "") -> Path:
    """Writes the files of a federation into a folder and makes the server's state; returns its configuration.

    Args:
        server: the command that makes the state; None: hushgrad-server.
        limits: lines of the [limits] table.
    """
    folder.mkdir(exist_ok=True)
    (folder / "terms.toml").write_text(
        f"""
federation = "benchmark"
model = "logistic"
participants = {list(plan.names)}
final_version = {plan.rounds}
window = {plan.window}
publish_every = {plan.publish_every}
straggler_timeout_seconds = 600.0
arrays = [{{name = "weight", shape = [{plan.parameters - 1}]}}, {{name = "bias", shape = [1]}}]
step_size = {{kind = "constant", eta0 = 0.01}}
sample_size = {{kind = "constant", size = 26}}
delay = {{kind = "max-delay", max_delay = {plan.delay}}}
limits = {{max_inline_model_bytes = {2**18}}}

[privacy]
clip_norm = {CLIP_NORM}
noise_multiplier_min = {NOISE_MULTIPLIER}
noise_multiplier_max = 8.0
samplers = ["poisson"]
max_examples_per_round = 500
"""
    )
    config = folder / "server.toml"
    config.write_text(
        'listen = "127.0.0.1:0"\nstate = "server"\nlinger_seconds = 1.0\ndrain_seconds = 1.0\n[limits]\n' + limits
    )
    command = [*(server or [processes.SCRIPTS / "hushgrad-server"]), "init", "--config", config]
    done = subprocess.run(
        [str(word) for word in (*command, "--terms", folder / "terms.toml")], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"the state could not be made: {done.stderr[-500:]}")
    return config


def wire_server(*, hashes: bool = False) -> list[str | Path]:
    """Returns the command of a server that does nothing but the wire; see `wire_server`."""
    return [sys.executable, "-m", "benchmarks.wire_server", *(["--hash"] if hashes else [])]


def durable_server() -> list[str | Path]:
    """Returns the command of the real server."""
    return [processes.SCRIPTS / "hushgrad-server"]


def payload(terms: Terms, place: int) -> npt.NDArray[np.int32]:
    """Returns the update of the participant at a place, shape (d,): noise as wide as its header declares, no signal."""
    scale = np.ldexp(NOISE_MULTIPLIER * CLIP_NORM, -terms.grid_exponent)
    rng = np.random.default_rng(place)
    found = np.empty(terms.parameters, "<i4")
    for start in range(0, terms.parameters, 2**20):
        part = found[start : start + 2**20]
        part[:] = np.rint(rng.normal(scale=scale, size=part.size))
    return found


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of one round: its header, and the digest of header and payload."""

    header: bytes
    digest: bytes


def seal(
    terms_digest: bytes,
    name: str,
    place: int,
    content: bytes,
    *,
    rounds: range,
    head: bytes | None = None,
    sha256: Callable[[bytes], Any] = hashlib.sha256,
) -> tuple[list[Seal], bytes]:
    """Seals the same payload for several rounds, on one ledger chain.

    Args:
        terms_digest, name: of the federation and the participant.
        place: the participant's, from 0.
        content: the payload.
        rounds: which.
        head: of the chain so far; None: it begins here.
        sha256: see `short_hash` for the other one.

    Returns:
        One seal for each round, and the chain's head after them.
    """
    head = head or header.first_head(struct.pack("<QQ", 1, place))
    seals = []
    for round_ in rounds:
        packed = header.UpdateHeader(
            terms_digest=terms_digest,
            participant=name,
            round=round_,
            element_type=terms_pb2.ELEMENT_TYPE_INT32,
            sampler="poisson",
            noise_multiplier=NOISE_MULTIPLIER,
            clip_norm=CLIP_NORM,
            ledger_sequence=round_ + 1,
            ledger_previous_head=head,
            flags=0,
            payload_bytes=len(content),
        ).pack()
        state = sha256(packed)
        state.update(content)
        seals.append(Seal(packed, state.digest()))
        head = header.next_head(head, seals[-1].digest)
    return seals, head


def expected_model(terms: Terms, rounds: int) -> bytes:
    """Returns the model that so many rounds of everybody must give, little-endian float32."""
    numerators = sum(terms.step_numerator(round_) for round_ in range(rounds))
    array = np.zeros(terms.parameters, np.int64)
    for place in range(len(terms.participants)):
        array -= payload(terms, place) * np.int64(numerators)
    model = grid.published_model(array, grid_exponent=terms.grid_exponent, step_exponent=terms.step_exponent)
    return model.astype("<f4").tobytes()
