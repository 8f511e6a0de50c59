"""A participant whose gradients are computed by JAX, compiled once for chunks of one shape.

    python jax_loop.py --config fed/client.toml --participant client-3 \\
        --state state/client-3 --data parts/client-3.npz

The model is the federation's: here softmax regression, with arrays weights (features, classes) and bias (classes,).
"""

import hushgrad.client
import jax
import jax.numpy as jnp
import numpy as np
from arguments import parse

CHUNK = 64


def loss(parameters, x, y):
    """The loss of ONE record; `vmap` makes the gradients of many of it without mixing them."""
    return -jax.nn.log_softmax(x @ parameters["weights"] + parameters["bias"])[y]


gradient = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))


def chunks(parameters, x, y):
    """Yields per-example gradients. Every chunk has the same shape, so that nothing is compiled twice: padding is cut
    off again before it is submitted, because a padded row is no record."""
    for start in range(0, len(x), CHUNK):
        used = min(CHUNK, len(x) - start)
        padded = np.zeros((CHUNK, x.shape[1]), np.float32), np.zeros(CHUNK, np.int32)
        padded[0][:used], padded[1][:used] = x[start : start + used], y[start : start + used]
        found = gradient(parameters, *padded)
        yield {name: value[:used] for name, value in found.items()}


def main() -> None:
    options = parse(__doc__)
    with hushgrad.client.connect(
        options.config,
        data=options.data,
        participant=options.participant,
        state=options.state,
        # float32: `hushgrad.client.gradient_spread` measured no difference here, as all chunks have one shape. That was
        # one machine; what others may do is charged.
        gradient_error=1e-5,
    ) as session:
        print(session.claim_text)
        features, labels = session.dataset.features, session.dataset.labels
        for round in session.rounds():
            parameters = {name: jnp.asarray(array, jnp.float32) for name, array in round.arrays.items()}
            round.submit(per_example_gradients=chunks(parameters, features[round.rows], labels[round.rows]))
    print(f"{session.outcome.reason}: {session.outcome.rounds_sealed} rounds sealed")


if __name__ == "__main__":
    main()
