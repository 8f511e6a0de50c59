"""A participant whose training loop is written in NumPy, with scikit-learn for what it does well.

    python numpy_loop.py --config fed/client.toml --participant client-1 \\
        --state state/client-1 --data parts/client-1.npz

The model is the federation's: here softmax regression, with arrays weights (features, classes) and bias (classes,).
"""

import hushgrad.client
import numpy as np
from arguments import parse
from sklearn.utils.extmath import softmax


def per_example_gradients(weights, bias, x, y):
    """Returns the gradient of each record's own loss, -log softmax(x W + b)[y]: one row per record, never averaged."""
    residuals = softmax(x @ weights + bias) if len(x) else np.zeros((0, len(bias)))
    residuals[np.arange(len(y)), y] -= 1.0
    return {"weights": x[:, :, np.newaxis] * residuals[:, np.newaxis, :], "bias": residuals}


def main() -> None:
    options = parse(__doc__)
    with hushgrad.client.connect(
        options.config,
        data=options.data,
        participant=options.participant,
        state=options.state,
        # All in float64; but a matrix product of many rows may round one of them differently when others change, by
        # some 1e-15. That is charged like any other error.
        gradient_error=1e-12,
    ) as session:
        print(session.claim_text)
        features, labels = session.dataset.features, session.dataset.labels
        for round in session.rounds():
            gradients = per_example_gradients(**round.arrays, x=features[round.rows], y=labels[round.rows])
            round.submit(per_example_gradients=gradients)
    print(f"{session.outcome.reason}: {session.outcome.rounds_sealed} rounds sealed")


if __name__ == "__main__":
    main()
