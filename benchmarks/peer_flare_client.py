"""The client's half of a FLARE job without any training; FLARE runs it inside its own client process.

Usage: given to a recipe as train_script; --marks FILE is where site-1 writes when each model came.
"""

import argparse
import json
import time

import numpy as np
import nvflare.client as flare


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--marks", required=True)
    marks = parser.parse_args().marks
    flare.init()
    is_first = flare.get_site_name() == "site-1"
    update = None
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        if is_first:
            with open(marks, "a") as file:
                file.write(json.dumps({"round": model.current_round, "at": time.monotonic()}) + "\n")
        name, array = next(iter(model.params.items()))
        if update is None:
            update = np.ones(np.shape(array), np.float32)
        flare.send(flare.FLModel(params={name: update}, params_type="FULL", metrics={}, meta={}))


if __name__ == "__main__":
    main()
