"""A client whose gradients are computed by a loop that the user writes, in whatever framework.

    with hushgrad.client.connect("client.toml", gradient_error=0.0) as session:
        for round in session.rounds():
            gradients = ...  # of each record in round.rows, at round.parameters
            round.submit(per_example_gradients=gradients)

Everything else is the same as for the models that come along: terms, ledger, budget, sampling, noise, sealing, sending.
The library works in threads of its own; `rounds` and `submit` wait for them. What is private stays with the user's
process: which rows were chosen, how many, and the gradients.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import structlog
from hushgrad.accountant import Claim
from hushgrad.client import clipping as sums
from hushgrad.client import commands, commitment, connection, data, dpsgd, preparing, report, rounds, runner
from hushgrad.client import config as configuration
from hushgrad.client.config import ClientConfig
from hushgrad.client.data import Dataset
from hushgrad.client.errors import ClientError, InputError
from hushgrad.client.ledger import Ledger
from hushgrad.client.models.base import Floats
from hushgrad.client.rounds import Clipping, Round
from hushgrad.client.rows import Committed
from hushgrad.wire import header
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.terms import Terms

Arrays = Mapping[str, npt.NDArray[Any]]
"""Private records in any form: arrays with one row per record, by name."""


Data = Dataset | Arrays | str | Path
"""Private records: a data set, arrays, or the path of a file that [data] would name."""


class LoopSession:
    """One participant in one federation, driven by the user's loop. Made by `connect`; close it, or use `with`.

    Attributes:
        arrays: names and shapes of the model's parameters, in the order of the flat vector.
        clip_norm: C, which every per-example gradient will be clipped to.
        dataset: the records that [data] names, or that were given as a Dataset; None if arrays were given.
    """

    def __init__(
        self,
        resources: ExitStack,
        *,
        terms: Terms,
        committed: Committed,
        dataset: Dataset | None,
        worker: runner.Runner,
        desk: rounds.Desk,
    ) -> None:
        self._resources = resources
        self._committed = committed
        self._worker = worker
        self._desk = desk
        self._outcome: runner.Outcome | None = None
        self.arrays: Final[tuple[ArraySpec, ...]] = terms.arrays
        self.clip_norm: Final = terms.privacy.clip_norm
        self.dataset: Final = dataset
        self._thread = threading.Thread(target=self._run, name="hushgrad-loop", daemon=True)
        self._thread.start()

    @property
    def claim(self) -> Claim:
        """The privacy claim of this run, committed before its first round; `claim_notes` belong to it."""
        return Claim.from_dict(self._committed.claim)

    @property
    def claim_text(self) -> str:
        """The claim with its notes, as one sentence."""
        return self.claim.describe(
            timing_covered=self._committed.timing == "covered",
            clipped_by_caller=bool(self._committed.flags & header.FLAG_CLIPPING_DECLARED),
        )

    @property
    def claim_notes(self) -> dict[str, str]:
        """What must be said beside the claim: whether timing is covered, and who clips the gradients."""
        return report.notes(self._committed)

    @property
    def outcome(self) -> runner.Outcome | None:
        """How it ended; None while it goes on."""
        return self._outcome

    def rounds(self) -> Iterator[Round]:
        """Yields this client's rounds as the federation permits them, until it has ended or the session was closed.

        Waits between rounds as long as the others or the server let it wait. A round must be submitted before the next
        one; one that was not is given again, with the same rows, by the next call of `rounds`.

        Raises:
            LoopError: if the loop goes on without having submitted its round.
            ConflictError: if a person must look.
            LedgerWriteError: if the disk refuses.
            ClientError: whatever else ended the session.
        """
        return rounds.iterate(self._desk)

    def close(self) -> None:
        """Ends the session and keeps its state; sealed updates that were not answered yet are sent the next time.

        A round that was not submitted has spent nothing. Closing again does nothing.
        """
        self._worker.stop()
        self._thread.join()
        self._resources.close()

    def __enter__(self) -> "LoopSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._outcome = self._worker.run()
        except BaseException as raised:
            error = raised
        self._desk.close(error)


def connect(
    config: str | Path = "client.toml",
    *,
    gradient_error: float,
    clipping: Clipping = "library",
    data: Data | None = None,
    participant: str | None = None,
    server: str | None = None,
    state: str | None = None,
    accept_large_delta: bool = False,
) -> LoopSession:
    """Joins a federation with a ledger that exists, commits the whole run to it, and returns the session.

    Args:
        config: a client.toml. Its [model] is not looked at: the model is the one whose arrays the terms name.
        gradient_error: how far rounding may move one record's clipped gradient when other records of its batch change,
            L2, in units of the clip norm. It is charged to the noise. 0 if each gradient is computed on its own, or in
            a way that gives the same bits whatever the rest of the batch; for gradients in float32 from `vmap` and the
            like, measure it (`gradient_spread`) and be generous: 1e-5 is usual, and costs little.
        clipping: "caller" allows `Round.submit_presummed`: gradients that the caller has clipped and summed. Ledger,
            updates and claim then say `clipping: declared by caller`, and the terms may forbid it.
        data: private records, where [data] does not name them: the path of a file, which wins over [data] file; a
            `dataset`; or arrays by name with one row per record. The ledger must have been made for the same
            (`make_ledger`).
        participant, server, state: win over the file's.
        accept_large_delta: accept a delta above 1/records.

    Raises:
        InputError: if configuration, data, ledger or terms do not fit. Nothing was drawn.
        BudgetRefusedError: if the run does not fit the budget.
        UnreachableError: if no server answered.
        ConflictError: if a person must look.
    """
    loaded = _load(config, data, participant=participant, server=server, state=state)
    warning = commitment.check_delta(loaded, accept_large=accept_large_delta)
    if warning:
        structlog.get_logger().warning("large_delta", why=warning)
    if clipping not in ("library", "caller"):
        raise InputError(f'clipping must be "library" or "caller", found {clipping!r}')
    with ExitStack() as resources:
        book = resources.enter_context(Ledger(Path(loaded.state)))
        book.check_owner(participant=loaded.participant)
        commitment.check_lifetime(loaded, book.init)
        dataset, rows, fingerprint = _records(loaded, data)
        book.check_owner(participant=loaded.participant, fingerprint=fingerprint)
        transport = connection.of(loaded)
        resources.callback(transport.close)
        found = preparing.get_terms(transport, loaded.terms_digest, loaded.connect_timeout_seconds, threading.Event())
        if found is None:
            raise ClientError("nobody can have stopped this; it is a mistake in the program")
        terms, digest = found
        if loaded.terms_digest is None:
            commitment.check_federation(digest, book.runs(), transport.address)
        commitment.check_privacy(terms, loaded)
        if clipping == "caller" and terms.privacy.caller_clipping_forbidden:
            raise InputError(
                f"the terms of {terms.federation!r} forbid clipping that is declared by the caller; use "
                "Round.submit with per-example gradients, or do not take part"
            )
        arithmetic = sums.Arithmetic(terms.parameters, gradient_error)
        draws = dpsgd.Draws(rows, terms.parameters)
        recipe = preparing.recipes(draws, terms, loaded)
        flags = header.FLAG_CLIPPING_DECLARED if clipping == "caller" else 0
        committed = preparing.commit(book, terms, digest, loaded, arithmetic, flags=flags)
        preparing.declare(transport, committed, loaded)
        desk = rounds.Desk(
            draws,
            recipe,
            arrays=terms.arrays,
            clipping=clipping,
            clip_norm=loaded.privacy.clip_norm,
            gradient_error=gradient_error,
        )
        worker = runner.Runner(
            transport=transport,
            ledger=book,
            committed=committed,
            terms=terms,
            make_update=desk.make_update,
            facts=preparing.facts(terms, loaded),
            listener=desk,
        )
        return LoopSession(
            resources.pop_all(), terms=terms, committed=committed, dataset=dataset, worker=worker, desk=desk
        )


def make_ledger(
    config: str | Path = "client.toml",
    *,
    data: Data | None = None,
    participant: str | None = None,
    state: str | None = None,
    accept_new_budget: bool = False,
) -> Path:
    """Makes the ledger of a participant for its data, as `hushgrad-client ledger init` does, and returns its path.

    Only data that no file holds need it; for others use the command.

    Raises:
        InputError: if there is one already, or this data had another one and `accept_new_budget` is not given.
    """
    loaded = _load(config, data, participant=participant, server=None, state=state)
    _, _, fingerprint = _records(loaded, data)
    made = commands.ledger_init(loaded, accept_new_budget=accept_new_budget, fingerprint=fingerprint)
    return Path(str(made["ledger"]))


def gradient_spread(
    gradients: Callable[[npt.NDArray[np.int64]], npt.ArrayLike], *, rows: int, clip_norm: float, batch: int = 32
) -> float:
    """Measures what `connect` calls gradient_error, to choose it by: not a bound, so multiply it by ten or more.

    Each of `batch` rows is computed alone, among its neighbours, and among them in other orders. Use it on public or
    made-up records of the same shape: what it returns depends on them.

    Args:
        gradients: from row numbers, shape (n,), to per-example gradients of these rows, shape (n, d), in their order.
        rows: how many rows there are, >= 1.
        clip_norm: C.
        batch: how many rows are tried.

    Returns:
        The largest L2 distance between two clipped gradients of one row, in units of C.
    """

    def clipped(chosen: npt.NDArray[np.int64]) -> Floats:
        found = np.asarray(gradients(chosen), np.float64)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return found * np.minimum(1.0, clip_norm / np.maximum(norms, np.finfo(float).tiny))

    chosen = np.arange(min(batch, rows))
    alone = np.concatenate([clipped(chosen[[place]]) for place in range(len(chosen))])
    orders = (chosen, chosen[::-1], np.roll(chosen, 1), np.roll(chosen, len(chosen) // 2))
    return max(float(np.linalg.norm(clipped(order) - alone[order], axis=1).max()) for order in orders) / clip_norm


def _load(
    config: str | Path, records: Data | None, *, participant: str | None, server: str | None, state: str | None
) -> ClientConfig:
    file = str(records) if isinstance(records, str | Path) else None
    overrides = {"participant": participant, "server": server, "state": state, "data": file}
    return configuration.load_client(Path(config), overrides)


def _records(config: ClientConfig, records: Data | None) -> tuple[Dataset | None, int, str]:
    """Returns a data set if there is one, the number of rows, and the fingerprint."""
    if records is None or isinstance(records, str | Path):
        records = data.load(config.data)
    if isinstance(records, Dataset):
        return records, len(records.labels), records.fingerprint
    rows, fingerprint = data.fingerprint_of(records)
    return None, rows, fingerprint
