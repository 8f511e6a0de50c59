"""Which method answers: the privacy loss distribution where it can, Renyi divergences where it cannot.

The distribution is the tighter one. It has no answer at a delta near double precision, or where its tails alone exceed
delta; there the Renyi number is given, and the answer says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hushgrad.accountant import pld, rdp
from hushgrad.accountant.errors import RefusedError
from hushgrad.accountant.pairs import Pair

Method = Literal["pld", "rdp"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An epsilon >= 0 and the method that gave it."""

    epsilon: float
    method: Method


@dataclass(frozen=True, slots=True)
class Curve:
    """Epsilon of composed rounds as a function of delta.

    Attributes:
        rounds: (q, sigma) -> T, as in `pld.curve`.
        pair: of every round.
        distribution: of all rounds.
    """

    rounds: Mapping[tuple[float, float], int]
    pair: Pair
    distribution: pld.Curve

    def answer(self, delta: float) -> Answer:
        """Returns an epsilon such that the composed rounds are (epsilon, delta)-differentially private."""
        try:
            return Answer(self.distribution.epsilon(delta), "pld")
        except RefusedError:
            return Answer(rdp.curve(self.rounds, pair=self.pair).epsilon(delta), "rdp")

    def epsilon(self, delta: float) -> float:
        """Returns the epsilon of `answer`."""
        return self.answer(delta).epsilon


def of(rounds: Mapping[tuple[float, float], int], *, pair: Pair, quick: bool = False) -> Curve:
    """Composes rounds of one pair; arguments and errors as in `pld.curve`."""
    return Curve(rounds, pair, pld.curve(rounds, pair=pair, quick=quick))


def method_version(method: Method) -> str:
    """Returns what computed a number, so that it can be computed again."""
    return pld.method_version() if method == pld.METHOD else rdp.METHOD_VERSION
