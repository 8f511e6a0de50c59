"""The real client from a data file to sealed bytes, without network: what an audit watches.

Everything here is the product's own: configuration and data are read from files, the schedule is accounted and
committed to a ledger on disk, the runner's training loop draws keys, samples, clips, sums, rounds, adds noise and
seals, and what is returned are the bytes that the ledger would hand to the transport. Only three things are ours: the
server's models, chosen by an adversary; claims are remembered, because thousands of runs share one; and where one
ledger serves many runs, the later schedules are committed without asking the budget again (`Client.run`).
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from hushgrad import accountant
from hushgrad.accountant.runs import groups
from hushgrad.client import commands, commitment, config, data, events, ledger, models, preparing, runner
from hushgrad.client.errors import BudgetRefusedError
from hushgrad.wire import grid
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.terms import Terms

from tests.attacks.bounds import Claimed
from tests.support import client_world

Records = Sequence[tuple[Sequence[float], int]]
"""Features and label of each record."""

_CONFIG = """
participant = "{participant}"
server = "127.0.0.1:1"
state = "state"
[data]
file = "data.npz"
class_names = ["0", "1"]
[model]
kind = "logistic"
[privacy]
records = {records}
clip_norm = {clip_norm}
noise_multiplier = {noise_multiplier}
sampler = "{sampler}"
epsilon = 1000000.0
delta = {delta}
lifetime_epsilon = {lifetime_epsilon}
lifetime_delta = {lifetime_delta}
"""


@dataclass(frozen=True, slots=True)
class World:
    """One federation as a client sees it, and how the adversary plays its server.

    Attributes:
        sampler, records, sample_size, clip_norm, noise_multiplier: as configured; records is the declared N.
        rounds: T.
        features: of the logistic model; d is one more.
        delta: of the claim.
        adjacency: of the claim.
        models: what the server sends before each round, shape (T, d) or one row for all.
        grid_exponent: None: what the contract computes. Terms with a coarser grid are refused by the contract.
        lifetime: the ledger's lifetime pair; None: no limit that matters.
    """

    sampler: str
    records: int
    sample_size: int
    noise_multiplier: float
    rounds: int
    features: int = 2
    clip_norm: float = 1.0
    delta: float = 0.01
    adjacency: str = "add-remove"
    models: tuple[tuple[float, ...], ...] = ()
    grid_exponent: int | None = None
    lifetime: tuple[float, float] | None = None

    @property
    def parameters(self) -> int:
        """d."""
        return self.features + 1

    @property
    def grid(self) -> int:
        """g."""
        return self.lawful_grid if self.grid_exponent is None else self.grid_exponent

    @property
    def lawful_grid(self) -> int:
        """What the contract allows at most."""
        smallest = min(1.0, self.noise_multiplier)
        return grid.grid_exponent(clip_norm=self.clip_norm, noise_multiplier_min=smallest, parameters=self.parameters)

    def terms(self) -> Terms:
        """The federation's terms."""
        terms = client_world.make_terms(
            features=self.features,
            final_version=self.rounds,
            sample_size=self.sample_size,
            max_examples_per_round=4096,
        )
        privacy = replace(
            terms.privacy,
            clip_norm=self.clip_norm,
            noise_multiplier_min=min(1.0, self.noise_multiplier),
            noise_multiplier_max=max(20.0, self.noise_multiplier),
        )
        assert terms.arrays == (ArraySpec("weights", (self.features,)), ArraySpec("bias", ()))
        terms = replace(terms, privacy=privacy, grid_exponent=self.lawful_grid)
        if self.grid_exponent is not None:
            object.__setattr__(terms, "grid_exponent", self.grid_exponent)
        return terms


class Client:
    """One participant with one data set, and a folder for its state.

    Args:
        folder: empty; on a disk in memory if there is one, or each seal waits for the real one.
        world: the federation.
        records: the data set.
    """

    def __init__(self, folder: Path, world: World, records: Records) -> None:
        self.world, self.folder = world, folder
        lifetime = world.lifetime or (1e9, 0.999)
        (folder / "client.toml").write_text(
            _CONFIG.format(
                participant=client_world.PARTICIPANT,
                records=world.records,
                clip_norm=world.clip_norm,
                noise_multiplier=world.noise_multiplier,
                sampler=world.sampler,
                delta=world.delta,
                lifetime_epsilon=lifetime[0],
                lifetime_delta=lifetime[1],
            )
        )
        np.savez(
            folder / "data.npz",
            X=np.array([features for features, _ in records], np.float64),
            y=np.array([label for _, label in records]),
        )
        self.config = config.load_client(folder / "client.toml", {})
        self.terms = world.terms()
        self.dataset = data.load(self.config.data)
        self.model = models.make("logistic", features=world.features)
        self.make_update = commands._trainer(self.terms, self.config, self.model, self.dataset)
        rows = world.models or ((0.0,) * world.parameters,)
        self._sent = [np.array(rows[min(i, len(rows) - 1)], "<f4").tobytes() for i in range(world.rounds)]
        self._runs = 0
        self._book: ledger.Ledger | None = None

    def claimed(self) -> Claimed:
        """Returns what the product claims of one run, under the adjacency of the world."""
        proposal = commitment.propose(self.terms, bytes(32), self.config, self.model)
        run = replace(proposal.run, adjacency=self.world.adjacency)
        found = accountant.claim(run, delta=self.world.delta)
        return Claimed(found.epsilon, found.delta, found.adjacency, found.sampling, tuple(groups(run)))

    def life(self) -> ledger.Ledger:
        """Begins a new ledger, and forgets the old one."""
        self.close()
        state = self.folder / f"state-{self._runs}"
        ledger.create(
            state,
            participant=client_world.PARTICIPANT,
            fingerprint=self.dataset.fingerprint,
            lifetime_epsilon=self.config.privacy.lifetime_epsilon,
            lifetime_delta=self.config.privacy.lifetime_delta,
            accepted_new_budget=False,
        )
        self._book = ledger.Ledger(state)
        return self._book

    def run(self, *, ask_the_budget: bool = True) -> npt.NDArray[np.int64]:
        """Takes part in one more federation on the present ledger, from commit to sealed bytes.

        Args:
            ask_the_budget: whether the run is checked against what is left of the ledger's lifetime.

        Returns:
            Shape (T, d), the sealed updates in grid steps.

        Raises:
            BudgetRefusedError: if the budget is asked and does not allow the run; nothing was drawn.
        """
        book = self._book
        assert book is not None
        self._runs += 1
        digest = hashlib.sha256(self._runs.to_bytes(8, "big")).digest()
        known = book.runs()
        if ask_the_budget or not known:
            committed = preparing.commit(book, self.terms, digest, self.config, self.model)
        else:
            committed = replace(known[0], terms_digest=digest)
            book.commit(committed)
        work = runner.Runner(
            transport=_NO_TRANSPORT,
            ledger=book,
            committed=committed,
            terms=self.terms,
            make_update=self.make_update,
            facts=preparing.facts(self.terms, self.config),
        )
        for round_, model in enumerate(self._sent):
            work._rounds.put((events.Train(round_, round_), model))
        work._rounds.put(None)
        work._train_rounds()
        sealed = [book.sendable(digest, round_).payload for round_ in range(self.world.rounds)]
        return np.array([np.frombuffer(payload, "<i4") for payload in sealed], np.int64)

    def close(self) -> None:
        """Closes the present ledger and deletes it."""
        if self._book is not None:
            self._book.close()
            shutil.rmtree(self._book.folder)
            self._book = None


class _NoTransport:
    address = "nowhere"


_NO_TRANSPORT: Any = _NoTransport()


@contextmanager
def client(world: World, records: Records) -> Iterator[Client]:
    """Yields a client in a folder of its own, on a disk in memory where there is one."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder,
        _remembered_claims(),
        _no_log(),
    ):
        made = Client(Path(folder), world, records)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def _remembered_claims() -> Iterator[None]:
    """Lets the accountant compute each claim once."""
    real = commitment.claim
    known: dict[Any, accountant.Claim] = {}

    def claim(proposal: commitment.Proposal) -> accountant.Claim:
        key = (proposal.run, proposal.committed.delta)
        if key not in known:
            known[key] = real(proposal)
        return known[key]

    commitment.claim = claim
    try:
        yield
    finally:
        commitment.claim = real


@contextmanager
def _no_log() -> Iterator[None]:
    def drop(*_: object) -> Any:
        raise structlog.DropEvent

    structlog.configure(processors=[drop], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.reset_defaults()


def accepted(made: Client, offers: int) -> list[npt.NDArray[np.int64]]:
    """Offers so many federations to a client with a new ledger; returns the updates of those it takes part in."""
    made.life()
    taken = []
    for _ in range(offers):
        try:
            taken.append(made.run())
        except BudgetRefusedError:
            continue
    return taken
