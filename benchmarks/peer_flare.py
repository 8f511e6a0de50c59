"""Runs in .peers-env/flare: NVIDIA FLARE's proof-of-concept deployment with five client processes, FedAvg, no training.

Usage: peer_flare.py PARAMETERS ROUNDS MARKS FOLDER

Its services are processes of their own; who started this ends them. NVFLARE_POC_WORKSPACE in the environment must name
a folder in FOLDER.
"""

import sys
from pathlib import Path

import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe.poc_env import PocEnv

CLIENTS = 5


def main() -> None:
    parameters, rounds, marks, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    initial = folder / "initial.npy"
    np.save(initial, np.zeros(parameters, np.float32))
    recipe = NumpyFedAvgRecipe(
        name="bench",
        initial_ckpt=str(initial),
        min_clients=CLIENTS,
        num_rounds=rounds,
        train_script=str(Path(__file__).with_name("peer_flare_client.py")),
        train_args=f"--marks {marks}",
    )
    print("job", recipe.execute(PocEnv(num_clients=CLIENTS)).get_job_id(), flush=True)


if __name__ == "__main__":
    main()
