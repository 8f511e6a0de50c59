"""Test federations: terms, data whose clipped sums are known, and what the client is told about its privacy.

Two sets of data. Both make clipped gradients that are known to seven digits, because every feature is so large that
the gradient of a record points along its own feature and is clipped to C.

* Beacons. Groups of records, each with a feature of its own, all labelled 0. A model whose weight for a group is +1
  makes each gradient of the group exactly C along its feature; with -1 the gradient vanishes. So an update tells from
  which model it was trained: bit j of (version mod 16) is the sign of weight j. The last group always shines, so that
  sums which are not those of clipped gradients are not mistaken for a version.
* Marks. Some features are zero in every record, so their coordinates of an update are noise alone. Some records have a
  feature of their own: their coordinate tells, under the noise, whether they took part. All others share one feature,
  whose coordinate counts the batch. The model stays at zero.

Step sizes are so small that updates do not move a score.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.wire import grid
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.terms import DelayKind, Limits, Privacy, Terms

PARTICIPANT: Final = "kit-client"
CLIP_NORM: Final = 1.0
STEP_EXPONENT: Final = 40
STILL_STEP_EXPONENT: Final = 60
"""So small a step that a thousand updates do not move the score of a record whose feature is MARK_VALUE."""
STEP_NUMERATOR: Final = 256

BITS: Final = 4
BEACONS: Final = BITS + 1
BEACON_ROWS: Final = 100
BEACON_VALUE: Final = 1e4
BEACON_THRESHOLD: Final = 16.0
"""8 deviations above noise of deviation 2, and 6.3 below Binomial(100, 1/2) + noise: wrong with probability 2e-10."""

QUIET: Final = 10
MARKED: Final = 20
ORDINARY: Final = 340
MARK_VALUE: Final = 1e9
MARKED_RECORDS: Final = 400
"""Declared; there are fewer rows. Who computes q from the rows he has is found out."""


@dataclass(frozen=True, slots=True)
class Federation:
    """One test federation and its only participant's side of it.

    Attributes:
        terms: what the server offers.
        features: shape (N, f).
        labels: shape (N,).
        records: N to declare.
        noise_multiplier: sigma to use.
        epsilon: the budget.
        delta: the budget's delta.
    """

    terms: Terms
    features: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    records: int
    noise_multiplier: float
    epsilon: float = 1e6
    delta: float = 1e-3

    @property
    def grid(self) -> float:
        """G = 2^g."""
        return 2.0**self.terms.grid_exponent

    @property
    def probability(self) -> float:
        """q = s / N."""
        return self.terms.sample_size(0) / self.records

    def privacy(self) -> dict[str, Any]:
        """Returns what HUSHGRAD_PRIVACY says."""
        return {
            "records": self.records,
            "clip_norm": CLIP_NORM,
            "noise_multiplier": self.noise_multiplier,
            "sampler": "poisson",
            "sample_size": self.terms.sample_size(0),
            "epsilon": self.epsilon,
            "delta": self.delta,
        }

    def write_data(self, folder: Path) -> Path:
        """Writes data.npz and data.csv into a folder and returns the path of the first."""
        path = folder / "data.npz"
        np.savez(path, X=self.features, y=self.labels)
        names = ",".join([*(f"x{i}" for i in range(self.features.shape[1])), "label"])
        rows = [
            ",".join([*(repr(float(value)) for value in row), str(int(label))])
            for row, label in zip(self.features, self.labels, strict=True)
        ]
        path.with_suffix(".csv").write_text("\n".join([names, *rows]) + "\n")
        return path

    def environment(self, address: str, state: Path, data: Path) -> dict[str, str]:
        """Returns the five variables that a client under test is given."""
        return {
            "HUSHGRAD_SERVER": address,
            "HUSHGRAD_PARTICIPANT": PARTICIPANT,
            "HUSHGRAD_STATE_DIR": str(state),
            "HUSHGRAD_DATA": str(data),
            "HUSHGRAD_PRIVACY": json.dumps(self.privacy()),
        }


def beacons(
    *,
    rounds: int = 8,
    delay: DelayKind = "max-delay",
    max_delay: int = 1,
    window: int | None = None,
    sample_size: int | None = None,
    epsilon: float = 1e6,
    limits: Limits | None = None,
    privacy: Mapping[str, Any] | None = None,
) -> Federation:
    """Returns a federation whose updates tell which model they were trained from; q = 1/2 and sigma = 2 by default."""
    rows = BEACONS * BEACON_ROWS
    features = np.zeros((rows, BEACONS))
    for group in range(BEACONS):
        features[group * BEACON_ROWS : (group + 1) * BEACON_ROWS, group] = BEACON_VALUE
    labels = np.zeros(rows, np.int64)
    sigma = 2.0
    offered = Privacy(
        clip_norm=CLIP_NORM,
        noise_multiplier_min=1.0,
        noise_multiplier_max=4.0,
        samplers=("poisson",),
        max_examples_per_round=rows,
    )
    terms = _terms(
        features=BEACONS,
        initial=beacon_model(0),
        rounds=rounds,
        delay=delay,
        max_delay=max_delay,
        window=window if window is not None else max(max_delay + 1, 4),
        sample_size=sample_size if sample_size is not None else rows // 2,
        privacy=replace(offered, **(privacy or {})),
        limits=limits or Limits(),
    )
    return Federation(terms, features, labels, records=rows, noise_multiplier=sigma, epsilon=epsilon)


def beacon_model(version: int) -> npt.NDArray[np.float32]:
    """Returns a model, shape (6,): beacon j shines when bit j of the version is set, and the last one always."""
    signs = [1.0 if version >> j & 1 else -1.0 for j in range(BITS)]
    return np.array([*signs, 1.0, 0.0], np.float32)


def beacon_version(federation: Federation, update: npt.NDArray[np.int32] | None) -> int | None:
    """Returns (version mod 16) of the model that an update was trained from; None when the update does not tell."""
    if update is None:
        return None
    shining = update[:BEACONS] * federation.grid / CLIP_NORM > BEACON_THRESHOLD
    if not shining[BITS]:
        return None
    return sum(1 << j for j in range(BITS) if shining[j])


def marks(*, rounds: int, fine_grid: bool = False) -> Federation:
    """Returns the federation of the statistics: q = 1/20 and sigma = 1.

    With `fine_grid` the noise is 2^22 grid steps wide instead of 2^16: a sum of a dozen clipped gradients, computed in
    32-bit floating point, then has multiples of four or eight only.
    """
    rows, width = MARKED + ORDINARY, QUIET + MARKED + 1
    features = np.zeros((rows, width))
    for mark in range(MARKED):
        features[mark, QUIET + mark] = MARK_VALUE
    features[MARKED:, -1] = BEACON_VALUE
    labels = np.zeros(rows, np.int64)
    labels[1:MARKED:2] = 1
    terms = _terms(
        features=width,
        initial=np.zeros(width + 1, np.float32),
        rounds=rounds,
        delay="unbounded",
        max_delay=0,
        window=rounds + 1,
        sample_size=20,
        privacy=Privacy(
            clip_norm=CLIP_NORM,
            noise_multiplier_min=1.0,
            noise_multiplier_max=1.0,
            samplers=("poisson",),
            max_examples_per_round=200,  # of 360 rows at q = 1/20: reached with probability 1e-140
        ),
        limits=Limits(),
        grid_exponent=-22 if fine_grid else None,
        step_exponent=STILL_STEP_EXPONENT,
    )
    return Federation(terms, features, labels, records=MARKED_RECORDS, noise_multiplier=1.0)


def published(vector: npt.NDArray[np.float32]) -> bytes:
    """Returns a model as it travels: little-endian float32."""
    return vector.astype("<f4").tobytes()


def _terms(
    *,
    features: int,
    initial: npt.NDArray[np.float32],
    rounds: int,
    delay: DelayKind,
    max_delay: int,
    window: int,
    sample_size: int,
    privacy: Privacy,
    limits: Limits,
    grid_exponent: int | None = None,
    step_exponent: int = STEP_EXPONENT,
) -> Terms:
    g = (
        grid_exponent
        if grid_exponent is not None
        else grid.grid_exponent(
            clip_norm=privacy.clip_norm, noise_multiplier_min=privacy.noise_multiplier_min, parameters=features + 1
        )
    )
    return Terms(
        federation_id=hashlib.sha256(f"{features} {rounds} {delay} {max_delay} {sample_size} {g}".encode()).digest()[
            :16
        ],
        federation="conformance",
        model="logistic",
        arrays=(ArraySpec("weights", (features,)), ArraySpec("bias", ())),
        initial_model_sha256=hashlib.sha256(published(initial)).digest(),
        grid_exponent=g,
        step_exponent=step_exponent,
        step_numerators=(STEP_NUMERATOR,),
        sample_sizes=(sample_size,),
        delay_kind=delay,
        max_delay=max_delay,
        window=window,
        final_version=rounds,
        publish_every=1,
        participants=(PARTICIPANT,),
        largest_number_of_participants=1,
        straggler_timeout_seconds=3600.0,
        start_timeout_seconds=0.0,
        privacy=privacy,
        limits=limits,
    )
