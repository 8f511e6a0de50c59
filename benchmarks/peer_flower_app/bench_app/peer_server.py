"""The server's half: FedAvg that writes down when each round is over."""

import json
import time
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

CLIENTS = 5
app = ServerApp()


class Marked(FedAvg):
    """FedAvg that says when a round is over."""

    marks = ""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Averages, and appends one line to the file of marks."""
        replies = list(replies)
        found = super().aggregate_train(server_round, replies)
        line = {"round": server_round, "at": time.monotonic(), "cpu": time.process_time(), "replies": len(replies)}
        with open(self.marks, "a") as file:
            file.write(json.dumps(line) + "\n")
        return found


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the rounds."""
    config = context.run_config
    strategy = Marked(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=CLIENTS,
        min_available_nodes=CLIENTS,
    )
    strategy.marks = str(config["marks"])
    arrays = ArrayRecord([np.zeros(int(config["parameters"]), np.float32)])
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=int(config["rounds"]))
