"""The data side: what a participant runs beside its data. Only noised, sealed updates ever leave it.

For people who write a training loop of their own: `connect` and what it returns. The names are loaded when they are
used, so that the command line starts fast.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgrad.client.data import Dataset as Dataset
    from hushgrad.client.data import dataset as dataset
    from hushgrad.client.loop import LoopSession as LoopSession
    from hushgrad.client.loop import connect as connect
    from hushgrad.client.loop import gradient_spread as gradient_spread
    from hushgrad.client.loop import make_ledger as make_ledger
    from hushgrad.client.rounds import Round as Round

_HOMES = {
    "Dataset": "data",
    "LoopSession": "loop",
    "Round": "rounds",
    "connect": "loop",
    "dataset": "data",
    "gradient_spread": "loop",
    "make_ledger": "loop",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
