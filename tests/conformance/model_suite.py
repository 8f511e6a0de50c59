"""What every model must pass. Subclass it, give the model and its loss, and pytest collects the rest.

The oracle is a loop over records with gradients written down anew, and those are held against differences of the loss.
"""

import abc
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hushgrad.client.models import Model, ModelError

SIZES = (1, 2, 63, 64, 65, 255, 256, 257, 600)
"""Around the edges of products of 64 rows and blocks of 256."""


class ModelSuite(abc.ABC):
    """Abstract: a subclass, whose name begins with Test, gives these three."""

    @abc.abstractmethod
    def model(self) -> Model:
        """Returns the model to be judged."""

    @abc.abstractmethod
    def loss(self, parameters: np.ndarray, x: np.ndarray, y: int) -> float:
        """The loss of one record as a textbook has it."""

    @abc.abstractmethod
    def gradient(self, parameters: np.ndarray, x: np.ndarray, y: int) -> np.ndarray:
        """The gradient of that loss, shape (d,), by another route than the model's."""

    def records(self, count: int, seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
        model, generator = self.model(), np.random.default_rng(seed)
        return generator.normal(size=(count, model.features)), generator.integers(0, model.classes, count)

    def parameters(self, seed: int = 3, size: float = 0.5) -> np.ndarray:
        return np.random.default_rng(seed).normal(scale=size, size=_dimension(self.model()))

    def clipped(self, parameters: np.ndarray, x: np.ndarray, y: int, clip_norm: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            gradient = self.gradient(parameters, x, y)
            norm = float(np.sqrt(np.sum(gradient * gradient)))
        return gradient / max(1.0, norm / clip_norm) if math.isfinite(norm) else np.zeros_like(gradient)

    def test_the_oracle_gradient_is_the_derivative_of_the_loss(self) -> None:
        parameters, (features, labels) = self.parameters(), self.records(5)
        step = 1e-6
        for x, y in zip(features, labels, strict=True):
            differences = [
                (self.loss(parameters + shift, x, y) - self.loss(parameters - shift, x, y)) / (2 * step)
                for shift in step * np.eye(len(parameters))
            ]
            np.testing.assert_allclose(self.gradient(parameters, x, y), differences, atol=1e-7)

    @pytest.mark.parametrize("count", SIZES)
    @pytest.mark.parametrize("where", ["below", "among", "above"])
    def test_the_clipped_sum_is_that_of_a_loop_over_records(self, count: int, where: str) -> None:
        parameters, (features, labels) = self.parameters(), self.records(count)
        norms = [np.linalg.norm(self.gradient(parameters, x, y)) for x, y in zip(features, labels, strict=True)]
        clip_norm = float({"below": 0.5 * min(norms), "among": np.median(norms), "above": 2 * max(norms)}[where])
        expected = sum(self.clipped(parameters, x, y, clip_norm) for x, y in zip(features, labels, strict=True))
        found = self.model().clipped_sum(parameters, features, labels, clip_norm).total
        # float64: 1e-13 is a few hundred roundings of numbers up to C per record
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * count * clip_norm)

    def test_no_record_sums_to_zeros(self) -> None:
        features, labels = self.records(0)
        found = self.model().clipped_sum(self.parameters(), features, labels, 1.0).total
        np.testing.assert_array_equal(found, np.zeros(_dimension(self.model())))

    def test_certain_predictions_have_gradients_without_overflow(self) -> None:
        features, labels = self.records(40)
        for size in (1e4, 1e8):
            parameters = self.parameters(size=size)
            expected = sum(self.clipped(parameters, x, y, 0.5) for x, y in zip(features, labels, strict=True))
            found = self.model().clipped_sum(parameters, features, labels, 0.5).total
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # conditioning: scores of 1e9 err by 1e-7

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
    def test_records_without_a_finite_gradient_norm_count_as_zero(self, bad: float) -> None:
        parameters, (features, labels) = self.parameters(), self.records(70)
        expected = self.model().clipped_sum(parameters, features[:-3], labels[:-3], 0.7).total
        features[-3, 0], features[-2, -1], features[-1] = bad, bad, bad
        found = self.model().clipped_sum(parameters, features, labels, 0.7).total
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_parameters_that_are_not_finite_give_zeros(self, bad: float) -> None:
        features, labels = self.records(3)
        for place in (0, -1):
            parameters = self.parameters()
            parameters[place] = bad
            assert not self.model().clipped_sum(parameters, features, labels, 0.7).total.any()

    @pytest.mark.parametrize("count", [1, 7, 64, 65, 130, 300])
    def test_a_records_clipped_gradient_is_bit_identical_wherever_it_stands(self, count: int) -> None:
        """Beside records that count as zero, a sum shows one record's vector alone."""
        parameters, (features, labels) = self.parameters(), self.records(6)
        for x, y in zip(features, labels, strict=True):
            alone = self.model().clipped_sum(parameters, x[np.newaxis], np.array([y]), 0.4).total
            others, other_labels = self.records(count, seed=count)
            others[:, 0] = np.nan
            for place in {0, count // 3, count // 2, count - 1}:
                rows, row_labels = others.copy(), other_labels.copy()
                rows[place], row_labels[place] = x, y
                found = self.model().clipped_sum(parameters, rows, row_labels, 0.4).total
                assert found.tobytes() == alone.tobytes()

    def test_no_clipped_gradient_is_longer_than_promised_on_hostile_records(self) -> None:
        model = self.model()
        features, labels = self.records(4, seed=11)
        sizes = (1e-160, 1e-8, 1.0, 1e8, 1e150)
        for size, parameter_size, clip_norm in itertools.product(sizes, (1e-160, 1e-3, 1.0, 1e5), (2.0**-20, 0.5, 1e6)):
            parameters = self.parameters(size=parameter_size)
            for x, y in zip(features * size, labels, strict=True):
                self._check_norm(model, parameters, x, y, clip_norm)

    def test_no_clipped_gradient_is_longer_than_promised_at_exactly_the_clip_norm(self) -> None:
        model, parameters, (features, labels) = self.model(), self.parameters(), self.records(30)
        for x, y in zip(features, labels, strict=True):
            norm = float(np.linalg.norm(self.gradient(parameters, x, y)))
            for clip_norm in (norm, math.nextafter(norm, 0), math.nextafter(norm, math.inf)):
                self._check_norm(model, parameters, x, y, clip_norm)

    def _check_norm(self, model: Model, parameters: np.ndarray, x: np.ndarray, y: int, clip_norm: float) -> None:
        vector = model.clipped_sum(parameters, x[np.newaxis], np.array([y]), clip_norm).total
        squared = sum(Fraction(value) ** 2 for value in vector.tolist())
        # One record passes no additions but that of the penalty: three roundings at most, of parts up to 3 C and 2 C.
        allowed = Fraction(clip_norm) * (1 + Fraction(model.clip_error) + 3 * 5 * Fraction(model.unit_roundoff))
        assert squared <= allowed**2

    def test_a_sum_is_as_close_to_the_sum_of_its_records_as_promised(self) -> None:
        model, parameters, (features, labels) = self.model(), self.parameters(), self.records(700)
        singles = [
            model.clipped_sum(parameters, x[np.newaxis], np.array([y]), 0.3).total
            for x, y in zip(features, labels, strict=True)
        ]
        exact = np.array([math.fsum(column) for column in np.array(singles).T])
        found = model.clipped_sum(parameters, features, labels, 0.3).total
        assert np.linalg.norm(found - exact) <= 700 * model.chunk_examples * model.unit_roundoff * 0.3

    def test_a_clipped_sum_leaves_its_arguments_alone(self) -> None:
        parameters, (features, labels) = self.parameters(), self.records(64)
        features[3] = np.inf
        before = parameters.copy(), features.copy(), labels.copy()
        self.model().clipped_sum(parameters, features, labels, 0.3)
        for argument, original in zip((parameters, features, labels), before, strict=True):
            np.testing.assert_array_equal(argument, original)

    def test_arguments_of_the_wrong_shape_are_refused(self) -> None:
        model, parameters, (features, labels) = self.model(), self.parameters(), self.records(4)
        with pytest.raises(ModelError, match="expected"):
            model.clipped_sum(parameters, features[:, :-1], labels, 1.0)
        with pytest.raises(ModelError, match="expected"):
            model.clipped_sum(parameters, features, labels[:-1], 1.0)
        for clip_norm in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ModelError, match="clip_norm"):
                model.clipped_sum(parameters, features, labels, clip_norm)

    def test_predictions_are_probabilities_that_follow_the_parameters(self) -> None:
        model, parameters, (features, labels) = self.model(), self.parameters(), self.records(20)
        found = model.predict(parameters, features)
        assert found.shape == (20, model.classes)
        assert (found >= 0).all()
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
        for row, x, y in zip(found, features, labels, strict=True):
            # losses of two labels of one record share the penalty
            other = (y + 1) % model.classes
            difference = self.loss(parameters, x, y) - self.loss(parameters, x, other)
            assert math.log(row[other] / row[y]) == pytest.approx(difference, abs=1e-9)

    def test_the_initial_model_depends_on_the_seed_alone(self) -> None:
        model = self.model()
        first, second = model.initial(5), model.initial(5)
        assert first.dtype == np.float32
        assert first.shape == (_dimension(model),)
        assert np.isfinite(first).all()
        np.testing.assert_array_equal(first, second)


def _dimension(model: Model) -> int:
    return sum(spec.size for spec in model.arrays)
