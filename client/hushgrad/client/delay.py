"""The permissible delay: may a local round begin with the model that is at hand?

Names in formulas: k the newest version received, i the local round, s_j the nominal sample sizes.
"""

import itertools
import math
from dataclasses import dataclass, field

from hushgrad.wire.terms import DelayKind, Terms


@dataclass(frozen=True, slots=True)
class PermissibleDelay:
    """Upsilon(k, i) of the paper, for one federation.

    Attributes:
        kind: "max-delay", "sqrt" or "unbounded".
        max_delay: how many rounds a participant may be ahead; used by "max-delay" only.
        sample_sizes: nominal s_0, s_1, ...; the last one holds for all later rounds; each >= 1.

    Reference: van Dijk et al., Algorithm 2 (Setup) and the text above it; PermissibleDelay in terms.proto.
    """

    kind: DelayKind
    max_delay: int
    sample_sizes: tuple[int, ...]
    _sums: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in ("max-delay", "sqrt", "unbounded"):
            raise ValueError(f"delay must be 'max-delay', 'sqrt' or 'unbounded', found {self.kind!r}")
        if self.max_delay < 0:
            raise ValueError(f"max_delay must be >= 0, found {self.max_delay}")
        if not self.sample_sizes or min(self.sample_sizes) < 1:
            raise ValueError(f"sample_sizes must be at least one number >= 1, found {self.sample_sizes}")
        object.__setattr__(self, "_sums", (0, *itertools.accumulate(self.sample_sizes)))

    def steps_before(self, round_: int) -> int:
        """Returns t = s_0 + ... + s_{i-1}, the nominal number of gradients before round i."""
        later = max(0, round_ - len(self.sample_sizes))
        return self._sums[round_ - later] + later * self.sample_sizes[-1]

    def permits(self, version: int, round_: int) -> bool:
        """Says whether round i may begin when the newest model received is version k.

        k >= i always permits. Else: "max-delay" permits k >= i - d; "sqrt" permits s_k + ... + s_{i-1} <=
        sqrt(t / ln t) with t = s_0 + ... + s_{i-1} >= 3; "unbounded" always permits.

        >>> PermissibleDelay("max-delay", 1, (10,)).permits(version=4, round_=5)
        True
        >>> PermissibleDelay("max-delay", 1, (10,)).permits(version=4, round_=6)
        False
        """
        if version >= round_ or self.kind == "unbounded":
            return True
        if self.kind == "max-delay":
            return version >= round_ - self.max_delay
        t = self.steps_before(round_)
        if t < 3:  # t / ln t has its minimum at e; below it the rule would loosen again
            return False
        return t - self.steps_before(version) <= math.sqrt(t / math.log(t))


def of(terms: Terms) -> PermissibleDelay:
    """Returns the permissible delay that the terms of a federation agree on."""
    return PermissibleDelay(terms.delay_kind, terms.max_delay, terms.sample_sizes)
