"""A small federation for measurements: its files, its terms, and sealed updates that any server would take."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hushgrad.v1 import terms_pb2
from hushgrad.wire import header

from benchmarks import processes

PARAMETERS = 69
PARTICIPANTS = tuple(f"client-{number}" for number in range(1, 6))
CLIP_NORM = 0.5
NOISE_MULTIPLIER = 2.1


@dataclass(frozen=True, slots=True)
class Sealed:
    """One sealed update: 192 bytes of header, and the payload."""

    header: bytes
    payload: bytes


def prepare(folder: Path, *, rounds: int) -> Path:
    """Writes the files of a federation into a folder and makes the server's state; returns its configuration."""
    (folder / "terms.toml").write_text(
        f"""
federation = "benchmark"
model = "logistic"
participants = {list(PARTICIPANTS)}
final_version = {rounds}
window = 4
straggler_timeout_seconds = 600.0
arrays = [{{name = "weight", shape = [{PARAMETERS - 1}]}}, {{name = "bias", shape = [1]}}]
step_size = {{kind = "constant", eta0 = 0.01}}
sample_size = {{kind = "constant", size = 26}}
delay = {{kind = "max-delay", max_delay = 1}}

[privacy]
clip_norm = {CLIP_NORM}
noise_multiplier_min = {NOISE_MULTIPLIER}
noise_multiplier_max = 8.0
samplers = ["poisson"]
max_examples_per_round = 2000
"""
    )
    config = folder / "server.toml"
    config.write_text('listen = "127.0.0.1:0"\nstate = "server"\nlinger_seconds = 1.0\ndrain_seconds = 1.0\n')
    command = [processes.SCRIPTS / "hushgrad-server", "init", "--config", config, "--terms", folder / "terms.toml"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return config


def seal(terms_digest: bytes, *, rounds: int, seed: int) -> list[list[Sealed]]:
    """Seals every round of every participant, each on a ledger chain of its own; result[round][participant]."""
    rng = np.random.default_rng(seed)
    heads = {name: header.first_head(struct.pack("<QQ", seed, at)) for at, name in enumerate(PARTICIPANTS)}
    sealed = []
    for round_ in range(rounds):
        updates = []
        for name in PARTICIPANTS:
            # As wide as the header says on the terms' grid of 2^-16: a server refuses what noise cannot be.
            scale = NOISE_MULTIPLIER * CLIP_NORM * 2.0**16
            payload = np.rint(rng.normal(scale=scale, size=PARAMETERS)).astype("<i4").tobytes()
            packed = header.UpdateHeader(
                terms_digest=terms_digest,
                participant=name,
                round=round_,
                element_type=terms_pb2.ELEMENT_TYPE_INT32,
                sampler="poisson",
                noise_multiplier=NOISE_MULTIPLIER,
                clip_norm=CLIP_NORM,
                ledger_sequence=round_ + 1,
                ledger_previous_head=heads[name],
                flags=0,
                payload_bytes=len(payload),
            ).pack()
            heads[name] = header.next_head(heads[name], header.digest(packed, payload))
            updates.append(Sealed(packed, payload))
        sealed.append(updates)
    return sealed
