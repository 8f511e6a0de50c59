"""What every model must pass, a third party's too: checks that need neither pytest nor this project's tests.

Write down the loss and the gradient of ONE record in float64, as a textbook has them and by another route than the
model's, and let every check judge the model by them:

    case = model_suite.Case("mine", model=MyModel(features=4, classes=3), loss=loss, gradient=gradient)
    for check in model_suite.CHECKS:
        check(case)  # raises AssertionError

or, under pytest, `@pytest.mark.parametrize("check", model_suite.CHECKS, ids=lambda check: check.__name__)`.

The tolerance of a clipped sum against the loop over records is 1024 u C for each record and coordinate, u the model's
unit roundoff: 1e-13 C in float64, 6e-5 C in float32.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.client.models import Model, ModelError
from hushgrad.client.models.base import Rows

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SIZES: Final = (1, 2, 15, 16, 17, 63, 64, 65, 150, 255, 256, 257, 600)
"""Around the edges of products of 16 and 64 rows and of blocks of 256."""

CROWDS: Final = (1, 7, 16, 64, 65, 130, 300)

_CLIP_NORM: Final = 0.4
_DIRECTIONS: Final = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and what it should compute.

    Attributes:
        name: for people.
        model: to be judged.
        loss: of one record, from parameters of shape (d,), features of shape (f,) and a label.
        gradient: of that loss, shape (d,).
        scale: standard deviation of the parameters that are tried; large enough for gradients of many lengths.
        image: whether features must lie in [0, 1].
        sizes: of batches.
        crowds: how many others a record stands among.
        roundoff: of the coarsest arithmetic on the way, where `prepare` is coarser than the sums.
    """

    name: str
    model: Model
    loss: Callable[[Floats, Floats, int], float]
    gradient: Callable[[Floats, Floats, int], Floats]
    scale: float = 0.5
    image: bool = False
    sizes: tuple[int, ...] = SIZES
    crowds: tuple[int, ...] = CROWDS
    roundoff: float = 0.0

    @property
    def dimension(self) -> int:
        """d."""
        return sum(spec.size for spec in self.model.arrays)

    @property
    def tolerance(self) -> float:
        """Of one record's clipped gradient, relative to C, coordinate by coordinate."""
        return 1024 * max(self.roundoff, self.model.unit_roundoff)

    def records(self, count: int, seed: int = 7) -> tuple[Floats, Labels]:
        """Returns records whose numbers float32 holds."""
        generator = np.random.default_rng(seed)
        shape = (count, self.model.features)
        features = generator.uniform(size=shape) if self.image else generator.normal(size=shape)
        return features.astype(np.float32).astype(np.float64), generator.integers(0, self.model.classes, count)

    def parameters(self, seed: int = 3, scale: float | None = None) -> Floats:
        """Returns parameters that float32 holds."""
        drawn = np.random.default_rng(seed).normal(scale=scale or self.scale, size=self.dimension)
        return drawn.astype(np.float32).astype(np.float64)

    def total(self, parameters: Floats, features: Floats, labels: Labels, clip_norm: float) -> Floats:
        """Returns what the model makes of records that it has prepared."""
        return self.model.clipped_sum(parameters, self.model.prepare(features), labels, clip_norm).total


def the_gradient_is_the_derivative_of_the_loss(case: Case) -> None:
    """The oracle itself, against differences in random directions."""
    parameters, (features, labels) = case.parameters(), case.records(4)
    generator, step = np.random.default_rng(5), 1e-6
    for x, y in zip(features, labels.tolist(), strict=True):
        gradient = case.gradient(parameters, x, y)
        assert gradient.shape == (case.dimension,)
        for _ in range(_DIRECTIONS):
            direction = generator.normal(size=case.dimension)
            direction /= np.linalg.norm(direction)
            ahead, behind = (case.loss(parameters + sign * step * direction, x, y) for sign in (1, -1))
            assert abs((ahead - behind) / (2 * step) - gradient @ direction) <= 1e-6 * (1 + np.linalg.norm(gradient))


def the_clipped_sum_is_that_of_a_loop_over_records(case: Case) -> None:
    """At norms below, around and above C, for batches of many sizes."""
    parameters, (features, labels) = case.parameters(), case.records(max(case.sizes))
    gradients = [case.gradient(parameters, x, y) for x, y in zip(features, labels.tolist(), strict=True)]
    norms = np.array([np.linalg.norm(gradient) for gradient in gradients])
    assert norms.max() > 1.01 * norms.min(), "choose a scale of parameters that gives gradients of different lengths"
    for clip_norm in (0.5 * float(norms.min()), float(np.median(norms)), 2 * float(norms.max())):
        clipped = np.array(gradients) / np.maximum(1.0, norms / clip_norm)[:, np.newaxis]
        for count in case.sizes:
            found = case.total(parameters, features[:count], labels[:count], clip_norm)
            limit = case.tolerance * count * clip_norm
            np.testing.assert_allclose(found, clipped[:count].sum(axis=0), rtol=0, atol=limit)


def no_record_sums_to_zeros(case: Case) -> None:
    """An empty batch is a valid round."""
    features, labels = case.records(0)
    found = case.model.clipped_sum(case.parameters(), case.model.prepare(features), labels, 1.0)
    np.testing.assert_array_equal(found.total, np.zeros(case.dimension))
    assert found.total.dtype == np.float64
    assert found.zeroed == 0


def certain_predictions_have_gradients_without_overflow(case: Case) -> None:
    """Scores of thousands: every gradient is finite, and no longer than promised."""
    features, labels = case.records(40)
    for scale in (1e4, 1e8):
        parameters = case.parameters(scale=scale)
        found = case.model.clipped_sum(parameters, case.model.prepare(features), labels, 0.5)
        assert np.isfinite(found.total).all()
        assert np.linalg.norm(found.total) <= 40 * 0.5 * (1 + case.model.clip_error + case.tolerance)


def records_that_are_not_finite_count_as_zero(case: Case) -> None:
    """They leave the others alone, and are counted."""
    parameters, (features, labels) = case.parameters(), case.records(70)
    expected = case.total(parameters, features[:-3], labels[:-3], 0.7)
    for bad in (np.nan, np.inf, -np.inf, 1e200):
        features[-3, 0], features[-2, -1], features[-1] = bad, bad, bad
        found = case.model.clipped_sum(parameters, case.model.prepare(features), labels, 0.7)
        np.testing.assert_allclose(found.total, expected, rtol=0, atol=case.tolerance)
        assert found.zeroed == 3


def parameters_that_are_not_finite_give_zeros(case: Case) -> None:
    """Every record counts as zero: which ones would be finite nobody should learn."""
    features, labels = case.records(3)
    rows = case.model.prepare(features)
    for bad, place in itertools.product((np.nan, np.inf), (0, -1)):
        parameters = case.parameters()
        parameters[place] = bad
        found = case.model.clipped_sum(parameters, rows, labels, 0.7)
        assert not found.total.any()
        assert found.zeroed == 3


def a_clipped_gradient_is_bit_identical_wherever_its_record_stands(case: Case) -> None:
    """Beside records that count as zero a sum shows one record's vector alone, and beside its copy exactly twice."""
    parameters, (features, labels) = case.parameters(), case.records(3)
    for x, y in zip(features, labels.tolist(), strict=True):
        alone = case.total(parameters, x[np.newaxis], np.array([y]), _CLIP_NORM)
        for count in case.crowds:
            others, other_labels = case.records(count, seed=count)
            others[:, 0] = np.nan
            for place in {0, count // 3, count // 2, count - 1}:
                rows, row_labels = others.copy(), other_labels.copy()
                rows[place], row_labels[place] = x, y
                assert case.total(parameters, rows, row_labels, _CLIP_NORM).tobytes() == alone.tobytes()
                second = (place + 1) % count
                rows[second], row_labels[second] = x, y
                twice = case.total(parameters, rows, row_labels, _CLIP_NORM)
                np.testing.assert_array_equal(twice, alone * (2 if count > 1 else 1))


def what_is_prepared_of_a_record_depends_on_it_alone(case: Case) -> None:
    """Nothing is computed from several records before training."""
    features, _ = case.records(300)
    before = features.copy()
    rows = case.model.prepare(features)
    np.testing.assert_array_equal(features, before)
    assert len(rows) == 300
    for place in (0, 1, 63, 64, 255, 256, 299):
        alone = np.ascontiguousarray(case.model.prepare(features[place : place + 1]))
        assert alone.tobytes() == np.ascontiguousarray(rows[place : place + 1]).tobytes()


def no_clipped_gradient_is_longer_than_promised_on_hostile_records(case: Case) -> None:
    """Tiny and huge records, parameters and clip norms."""
    features, labels = case.records(3, seed=11)
    sizes, scales, clip_norms = (1e-160, 1e-8, 1.0, 1e8, 1e18, 1e150), (1e-160, 1e-3, 1.0, 1e5), (2.0**-20, 0.5, 1e6)
    for scale, size, clip_norm in itertools.product(scales, sizes, clip_norms):
        parameters = case.parameters(scale=scale)
        for x, y in zip(features * size, labels.tolist(), strict=True):
            _check_norm(case, parameters, x, y, clip_norm)


def no_clipped_gradient_is_longer_than_promised_at_exactly_the_clip_norm(case: Case) -> None:
    """Where rounding decides."""
    parameters, (features, labels) = case.parameters(), case.records(12)
    for x, y in zip(features, labels.tolist(), strict=True):
        norm = float(np.linalg.norm(case.gradient(parameters, x, y)))
        for clip_norm in (norm, math.nextafter(norm, 0), math.nextafter(norm, math.inf), norm * (1 - 2.0**-23)):
            if clip_norm > 0:
                _check_norm(case, parameters, x, y, clip_norm)


def _check_norm(case: Case, parameters: Floats, x: Floats, y: int, clip_norm: float) -> None:
    vector = case.total(parameters, x[np.newaxis], np.array([y]), clip_norm) / clip_norm
    norm = math.sqrt(math.fsum(value * value for value in vector[vector != 0].tolist()))
    # One record passes no additions but that of a penalty: three roundings at most, of parts up to 3 C and 2 C; and
    # the norm itself is right to 4 * 2^-53.
    assert norm <= 1 + case.model.clip_error + 3 * 5 * case.model.unit_roundoff + 4 * 2.0**-53


def a_sum_is_as_close_to_the_sum_of_its_records_as_promised(case: Case) -> None:
    """n m u C, in L2 norm."""
    count = max(case.sizes)
    parameters, (features, labels) = case.parameters(), case.records(count)
    singles = [
        case.total(parameters, x[np.newaxis], np.array([y]), _CLIP_NORM)
        for x, y in zip(features, labels.tolist(), strict=True)
    ]
    exact = np.array([math.fsum(column) for column in np.array(singles).T.tolist()])
    found = case.total(parameters, features, labels, _CLIP_NORM)
    limit = count * case.model.chunk_examples * case.model.unit_roundoff * _CLIP_NORM
    assert np.linalg.norm(found - exact) <= limit


def a_clipped_sum_leaves_its_arguments_alone(case: Case) -> None:
    """Parameters, rows and labels belong to the caller."""
    parameters, (features, labels) = case.parameters(), case.records(64)
    features[3] = np.inf
    rows = case.model.prepare(features)
    before = parameters.copy(), np.array(rows), labels.copy()
    case.model.clipped_sum(parameters, rows, labels, 0.3)
    for argument, original in zip((parameters, rows, labels), before, strict=True):
        np.testing.assert_array_equal(argument, original)


def arguments_of_the_wrong_shape_are_refused(case: Case) -> None:
    """With a sentence that says what was expected."""
    model, parameters, (features, labels) = case.model, case.parameters(), case.records(4)
    rows = model.prepare(features)
    for bad_rows, bad_labels in ((rows[:, :-1], labels), (rows, labels[:-1])):
        assert "expected" in _refusal(model, parameters, bad_rows, bad_labels, 1.0)
    for clip_norm in (0.0, -1.0, math.inf, math.nan):
        assert "clip_norm" in _refusal(model, parameters, rows, labels, clip_norm)


def _refusal(model: Model, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> str:
    try:
        model.clipped_sum(parameters, rows, labels, clip_norm)
    except ModelError as error:
        return str(error)
    raise AssertionError("expected a ModelError, found none")


def predictions_are_probabilities_that_follow_the_loss(case: Case) -> None:
    """The losses of two labels differ by the logarithm of their odds."""
    model, parameters, (features, labels) = case.model, case.parameters(), case.records(20)
    found = model.predict(parameters, model.prepare(features))
    assert found.shape == (20, model.classes)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    tolerance = 1e-9 if case.tolerance < 1e-12 else 1e-4
    for row, x, y in zip(found, features, labels.tolist(), strict=True):
        other = (y + 1) % model.classes
        difference = case.loss(parameters, x, y) - case.loss(parameters, x, other)
        assert abs(math.log(row[other] / row[y]) - difference) <= tolerance * (1 + abs(difference))
    assert model.predict(parameters, model.prepare(features)[:0]).shape == (0, model.classes)


def the_initial_model_depends_on_the_seed_alone(case: Case) -> None:
    """Participants that were told the same seed begin alike."""
    first, second = case.model.initial(5), case.model.initial(5)
    assert first.dtype == np.float32
    assert first.shape == (case.dimension,)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)


CHECKS: Final[tuple[Callable[[Case], None], ...]] = (
    the_gradient_is_the_derivative_of_the_loss,
    the_clipped_sum_is_that_of_a_loop_over_records,
    no_record_sums_to_zeros,
    certain_predictions_have_gradients_without_overflow,
    records_that_are_not_finite_count_as_zero,
    parameters_that_are_not_finite_give_zeros,
    a_clipped_gradient_is_bit_identical_wherever_its_record_stands,
    what_is_prepared_of_a_record_depends_on_it_alone,
    no_clipped_gradient_is_longer_than_promised_on_hostile_records,
    no_clipped_gradient_is_longer_than_promised_at_exactly_the_clip_norm,
    a_sum_is_as_close_to_the_sum_of_its_records_as_promised,
    a_clipped_sum_leaves_its_arguments_alone,
    arguments_of_the_wrong_shape_are_refused,
    predictions_are_probabilities_that_follow_the_loss,
    the_initial_model_depends_on_the_seed_alone,
)
