"""`python -m hushgrad.conformance.our_server`: hushgrad-server, started as the kit starts any server."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Makes the federation when there is none, and serves it."""
    files, state = Path(os.environ["HUSHGRAD_FEDERATION"]), Path(os.environ["HUSHGRAD_STATE_DIR"]) / "server"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from hushgrad.server import commands

    config = ["--config", str(files / "server.toml"), "--state", str(state)]
    if not state.exists():
        made = ["--terms", str(files / "terms.toml"), "--initial", str(files / "initial.safetensors")]
        commands.group.main(["init", *config, *made], prog_name="hushgrad-server", standalone_mode=False)
    sys.exit(commands.group.main(["run", *config], prog_name="hushgrad-server", standalone_mode=False))


if __name__ == "__main__":
    main()
