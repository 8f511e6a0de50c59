"""`python -m hushgrad.conformance.ours`: hushgrad-client, started as the kit starts any client."""

import json
import os
import sys
from pathlib import Path

from hushgrad.client import store

_CONFIG = """\
[data]
label = "y"

[model]
kind = "logistic"

[privacy]
records = {records}
clip_norm = {clip_norm}
noise_multiplier = {noise_multiplier}
sampler = "{sampler}"
epsilon = {epsilon}
delta = {delta}
lifetime_epsilon = {epsilon}
lifetime_delta = {delta}
"""


def main() -> None:
    """Writes client.toml into the state folder, makes a ledger when there is none, and takes part."""
    state = Path(os.environ["HUSHGRAD_STATE_DIR"])
    # Ledgers are registered by data; each state folder stands for a machine of its own.
    os.environ["HUSHGRAD_HOME"] = str(state / "home")
    os.environ["HUSHGRAD_STATE"] = str(state / "ledger")
    config = state / "client.toml"
    privacy = json.loads(os.environ["HUSHGRAD_PRIVACY"])
    config.write_text(_CONFIG.format(**{key: _number(value) for key, value in privacy.items()}))

    from hushgrad.client import __main__ as client

    if not (state / "ledger" / store.LEDGER_NAME).exists():
        client.main(["ledger", "init", "--config", str(config)], standalone_mode=False)
    sys.exit(client.main(["run", "--config", str(config)], standalone_mode=False))


def _number(value: object) -> object:
    return float(value) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
