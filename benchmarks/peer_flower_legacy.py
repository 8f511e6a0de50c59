"""Runs in .peers-env/flower-legacy: Flower 1.17's own gRPC server, or one of its clients, without any training.

Usage: peer_flower_legacy.py server HOST:PORT PARAMETERS ROUNDS
       peer_flower_legacy.py client HOST:PORT PARAMETERS

The server prints one line of JSON after each round: the clock and its own CPU time.
"""

import json
import sys
import time
from typing import Any

import flwr
import numpy as np

CLIENTS = 5


class Marked(flwr.server.strategy.FedAvg):
    """FedAvg that says when a round is over."""

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        if failures or len(results) < CLIENTS:
            raise RuntimeError(f"round {server_round}: {len(results)} results, failures {failures}")
        found = super().aggregate_fit(server_round, results, failures)
        print(json.dumps({"round": server_round, "at": time.monotonic(), "cpu": time.process_time()}), flush=True)
        return found


class Echo(flwr.client.NumPyClient):
    """Returns an array that was made beforehand."""

    def __init__(self, parameters: int) -> None:
        self._update = [np.random.default_rng(1).normal(size=parameters).astype(np.float32)]

    def fit(self, parameters: Any, config: Any) -> Any:
        return self._update, 1, {}


def main() -> None:
    role, address, parameters = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "client":
        flwr.client.start_client(server_address=address, client=Echo(parameters).to_client(), transport="grpc-bidi")
        return
    strategy = Marked(
        fraction_evaluate=0.0,
        min_fit_clients=CLIENTS,
        min_available_clients=CLIENTS,
        initial_parameters=flwr.common.ndarrays_to_parameters([np.zeros(parameters, np.float32)]),
    )
    config = flwr.server.ServerConfig(num_rounds=int(sys.argv[4]))
    flwr.server.start_server(server_address=address, config=config, strategy=strategy)


if __name__ == "__main__":
    main()
