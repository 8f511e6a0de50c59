"""Who gets which records, when one table is cut up to try a federation out: seeded, and no privacy mechanism.

| kind | what a client gets |
| --- | --- |
| disjoint | equally many records at random; none is at two clients |
| iid | equally many at random from all, whatever the others have: a record at several clients is spent on by each |
| dirichlet | equally many, none at two clients; the shares of the classes differ, the more the smaller alpha is |
| size | none at two clients; how many is proportional to its weight |
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from hushgrad.experiments.errors import InputError

Kind = Literal["disjoint", "iid", "dirichlet", "size"]
KINDS: tuple[str, ...] = get_args(Kind)

Rows = npt.NDArray[np.int64]


def check(kind: str, *, clients: int, alpha: float | None, weights: Sequence[float] | None) -> None:
    """Refuses what does not go together.

    Raises:
        InputError: if the kind is not known, a number is out of range, or it does not belong to the kind.
    """
    if kind not in KINDS:
        raise InputError(f"the kind of a partition must be one of {', '.join(KINDS)}, found {kind!r}")
    if clients < 1:
        raise InputError(f"the number of clients must be >= 1, found {clients}")
    if (alpha is not None) != (kind == "dirichlet"):
        raise InputError('alpha goes with kind "dirichlet", and that needs it')
    if alpha is not None and not 0 < alpha < math.inf:
        raise InputError(f"alpha must be finite and > 0, found {alpha}")
    if (weights is not None) != (kind == "size"):
        raise InputError('weights go with kind "size", and that needs them')
    if weights is not None and (len(weights) != clients or not all(0 < weight < math.inf for weight in weights)):
        raise InputError(f"there must be one finite weight > 0 for each of {clients} clients, found {list(weights)}")


def partition(
    labels: npt.NDArray[np.int64],
    kind: Kind,
    *,
    clients: int,
    generator: np.random.Generator,
    records: int | None = None,
    alpha: float | None = None,
    weights: Sequence[float] | None = None,
) -> tuple[Rows, ...]:
    """Returns row numbers for each client, in random order.

    Args:
        labels: of all records, from 0, shape (N,).
        kind: see the table above.
        clients: how many.
        generator: seeded by whoever calls.
        records: of each client; None: as many as are there for all, N / clients. Not with "size".
        alpha: > 0, with "dirichlet": a client's shares p of the classes are Dirichlet(alpha, ..., alpha), and its
            records' classes are drawn by p. Where a class has run out, from what is left, in proportion.
        weights: with "size".

    Raises:
        InputError: as `check`; or if there are not enough records, or a client would get none.
    """
    check(kind, clients=clients, alpha=alpha, weights=weights)
    total = len(labels)
    if kind == "size" and records is not None:
        raise InputError('records does not go with kind "size"')
    each = total // clients if records is None else records
    needed = each if kind == "iid" else each * clients
    if each < 1 or needed > total:
        raise InputError(f"{total} records are too few for {clients} clients with {max(each, 1)} records each ({kind})")
    if kind == "iid":
        return tuple(generator.permutation(total)[:each] for _ in range(clients))
    order = generator.permutation(total)
    if weights is not None:
        ends = np.floor(np.cumsum(weights) / sum(weights) * total + 1e-9).astype(np.int64)
        parts = np.split(order, ends[:-1])
        if min(map(len, parts)) < 1:
            raise InputError(f"{total} records are too few for weights {list(weights)}: a client would get none")
        return tuple(parts)
    if alpha is not None:
        return _dirichlet(labels, order, clients=clients, each=each, alpha=alpha, generator=generator)
    return tuple(order[i * each : (i + 1) * each] for i in range(clients))


def _dirichlet(
    labels: npt.NDArray[np.int64], order: Rows, *, clients: int, each: int, alpha: float, generator: np.random.Generator
) -> tuple[Rows, ...]:
    classes = int(labels.max()) + 1
    left = [order[labels[order] == label] for label in range(classes)]
    parts = []
    for _ in range(clients):
        shares, chosen = generator.dirichlet(np.full(classes, alpha)), []
        missing = each
        while missing:
            there = np.array([len(rows) for rows in left])
            likely = shares * (there > 0)
            likely = likely if likely.sum() > 0 else there.astype(np.float64)  # only classes with no share are left
            counts = np.minimum(generator.multinomial(missing, likely / likely.sum()), there)
            for label in np.flatnonzero(counts):
                chosen.append(left[label][: counts[label]])
                left[label] = left[label][counts[label] :]
            missing -= int(counts.sum())
        parts.append(generator.permutation(np.concatenate(chosen)))
    return tuple(parts)
