"""A participant whose gradients are computed by PyTorch. For whole PyTorch modules, `kind = "torch"` does it for you.

    python pytorch_loop.py --config fed/client.toml --participant client-2 \\
        --state state/client-2 --data parts/client-2.npz

The model is the federation's: here softmax regression, with arrays weights (features, classes) and bias (classes,).
"""

import hushgrad.client
import numpy as np
import torch
from arguments import parse
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

CHUNK = 64


def loss(parameters, x, y):
    """The loss of ONE record; `vmap` makes the gradients of many of it without mixing them."""
    return cross_entropy((x @ parameters["weights"] + parameters["bias"])[None], y[None])


gradient = vmap(grad(loss), in_dims=(None, 0, 0))


def chunks(parameters, x, y):
    """Yields per-example gradients, a few records at a time: memory stays small however many rows were chosen."""
    for start in range(0, len(x), CHUNK):
        found = gradient(parameters, x[start : start + CHUNK], y[start : start + CHUNK])
        yield {name: value.numpy() for name, value in found.items()}


def main() -> None:
    options = parse(__doc__)
    with hushgrad.client.connect(
        options.config,
        data=options.data,
        participant=options.participant,
        state=options.state,
        # float32: `hushgrad.client.gradient_spread` measured 1e-7 here; a hundred times that is charged.
        gradient_error=1e-5,
    ) as session:
        print(session.claim_text)
        features = torch.from_numpy(session.dataset.features.astype(np.float32))
        labels = torch.from_numpy(session.dataset.labels)
        for round in session.rounds():
            parameters = {name: torch.from_numpy(array.astype(np.float32)) for name, array in round.arrays.items()}
            rows = torch.from_numpy(round.rows.copy())
            round.submit(per_example_gradients=chunks(parameters, features[rows], labels[rows]))
    print(f"{session.outcome.reason}: {session.outcome.rounds_sealed} rounds sealed")


if __name__ == "__main__":
    main()
