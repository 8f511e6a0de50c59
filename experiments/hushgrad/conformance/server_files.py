"""The federation that a server under test must be made from, as files."""

from pathlib import Path
from typing import Final

import numpy as np
from hushgrad.experiments.errors import InputError
from hushgrad.wire import arrays, terms_file
from hushgrad.wire.terms import Terms

PARTICIPANTS: Final = ("kit-1", "kit-2")
FEDERATION: Final = "conformance"
LISTEN: Final = "127.0.0.1:7443"

TERMS: Final = """\
# A federation for `hushgrad conformance server`, good for one run of it.
federation = "conformance"
model = "logistic"
participants = ["kit-1", "kit-2"]
final_version = 8
window = 3
straggler_timeout_seconds = 3600.0

[[arrays]]
name = "weights"
shape = [4]

[[arrays]]
name = "bias"
shape = []

[delay]
kind = "max-delay"
max_delay = 1

# Five values, so that a server that takes one step size for all rounds is found out.
[step_size]
kind = "list"
values = [0.01, 0.007, 0.005, 0.004, 0.003]

[sample_size]
kind = "constant"
size = 10

[privacy]
clip_norm = 1.0
noise_multiplier_min = 1.0
noise_multiplier_max = 2.0
samplers = ["poisson"]
max_examples_per_round = 100
"""

_SERVER = """\
listen = "{listen}"
state = "server"
keep_last = 0        # the kit recomputes all of them at the end
heartbeat_seconds = 1.0
linger_seconds = 120.0   # it asks for them after the end
improbable_updates = "accept-and-flag"  # its updates are random integers of all sizes, not noised gradients
"""


def write(folder: Path, listen: str = LISTEN) -> list[Path]:
    """Writes terms.toml, server.toml and initial.safetensors into a new or empty folder; returns their paths.

    Raises:
        InputError: if the folder has files already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} must be a new or empty folder; a federation is made once")
    folder.mkdir(parents=True, exist_ok=True)
    terms_path, server_path, model_path = (
        folder / "terms.toml", folder / "server.toml", folder / "initial.safetensors",
    )  # fmt: skip
    terms_path.write_text(TERMS)
    server_path.write_text(_SERVER.format(listen=listen))
    file = terms_file.load(terms_path)
    specs = [arrays.ArraySpec(entry.name, tuple(entry.shape)) for entry in file.arrays]
    # Not zeros: a server that forgets the initial model is found out.
    arrays.save_model(model_path, np.array([0.5, -0.25, 0.125, 1.0, -1.0], np.float32), specs, {})
    return [terms_path, server_path, model_path]


def check(terms: Terms) -> None:
    """Refuses a federation that is not the one of these files.

    Raises:
        InputError: if it is another one.
    """
    if terms.federation != FEDERATION or terms.participants != PARTICIPANTS or terms.final_version != 8:
        raise InputError(
            f"this server runs federation {terms.federation!r} of {', '.join(terms.participants) or 'anybody'}; the "
            "kit needs a fresh one from `hushgrad conformance server --write-terms DIR`"
        )
