"""A small federation for tests of the client: terms, a committed schedule, and ledgers on disk."""

import hashlib
from pathlib import Path

import numpy as np
from hushgrad.client import ledger
from hushgrad.client.rows import Committed, Group
from hushgrad.wire import grid
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.terms import Limits, Privacy, Terms

PARTICIPANT = "client-1"
FINGERPRINT = "ab" * 32
DIGEST = hashlib.sha256(b"terms").digest()


def make_terms(
    *,
    features: int = 3,
    final_version: int = 6,
    max_delay: int = 1,
    participants: tuple[str, ...] = (PARTICIPANT,),
    limits: Limits | None = None,
    sample_size: int = 8,
    straggler_timeout_seconds: float = 30.0,
    max_examples_per_round: int = 64,
) -> Terms:
    """Terms of a logistic federation with initial model zero."""
    privacy = Privacy(0.5, 1.0, 20.0, ("poisson", "fixed"), max_examples_per_round)
    d = features + 1
    g = grid.grid_exponent(clip_norm=privacy.clip_norm, noise_multiplier_min=1.0, parameters=d)
    steps = [0.05] * final_version
    room = max(1, len(participants))
    p = grid.step_exponent(steps, initial_max=0.0, grid_exponent=g, participants=room)
    return Terms(
        federation_id=b"f" * 16,
        federation="test",
        model="logistic",
        arrays=(ArraySpec("weights", (features,)), ArraySpec("bias", ())),
        initial_model_sha256=hashlib.sha256(np.zeros(d, "<f4").tobytes()).digest(),
        grid_exponent=g,
        step_exponent=p,
        step_numerators=(grid.step_numerators([0.05], p)[0],),
        sample_sizes=(sample_size,),
        delay_kind="max-delay",
        max_delay=max_delay,
        window=max_delay + 2,
        final_version=final_version,
        publish_every=1,
        participants=participants,
        largest_number_of_participants=room,
        straggler_timeout_seconds=straggler_timeout_seconds,
        start_timeout_seconds=0.0,
        privacy=privacy,
        limits=limits or Limits(),
    )


def make_committed(
    *, rounds: int = 5, parameters: int = 4, terms_digest: bytes = DIGEST, epsilon: float = 0.4
) -> Committed:
    """A committed schedule with a claim that nobody computed."""
    return Committed(
        terms_digest=terms_digest,
        federation="test",
        sampler="poisson",
        adjacency="add-remove",
        records=100,
        parameters=parameters,
        flags=0,
        timing="covered",
        schedule=(Group(8, 0.08, 4.0, 3.99, 0.5, rounds - 1), Group(16, 0.16, 4.0, 3.99, 0.5, 1)),
        claim={
            "epsilon": epsilon,
            "delta": 1e-5,
            "adjacency": "add-remove",
            "sampling": "poisson",
            "unit": "record",
            "method": "pld",
            "method_version": "test",
        },
        delta=1e-5,
    )


def make_ledger(folder: Path, **committed: object) -> ledger.Ledger:
    """A new ledger with one committed run, open."""
    ledger.create(
        folder,
        participant=PARTICIPANT,
        fingerprint=FINGERPRINT,
        lifetime_epsilon=0.5,
        lifetime_delta=1e-5,
        accepted_new_budget=False,
    )
    book = ledger.Ledger(folder)
    book.commit(make_committed(**committed))  # type: ignore[arg-type]
    return book


def payload(parameters: int = 4, value: int = 7) -> bytes:
    """The bytes of an update whose elements are all the same."""
    return np.full(parameters, value, "<i4").tobytes()
