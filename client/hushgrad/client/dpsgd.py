"""One private round: sample, clip, sum, round to the grid, add noise, saturate; and the step a client takes by itself.

Values in, values out: what a round costs, how it is sealed and where it goes are unknown here.

Algorithm 4 of van Dijk et al. (arXiv 2102.09030), line by line, is

| lines | here |
| --- | --- |
| 2, 3, 4, 15, 16 (rounds, waiting, sending) | not here: session and runner |
| 5 (sample d) | `sampling.poisson` or `sampling.fixed`, called by `Draws.choose` |
| 6 to 11 (U = sum of [grad f(w; xi)]_C) | `Model.clipped_sum` |
| 12, 13 (U = U + n) | `Draws.release`: U and n are integers on the grid G = 2^g, n from `noise.GaussianTables` |
| 14 (w = w + eta U) | `apply`, with a minus sign: a loss is to descend, and the printed plus is a slip, see (13) |
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from hushgrad.client import fused, noise, sampling
from hushgrad.client.data import Dataset
from hushgrad.client.errors import InputError
from hushgrad.client.models import linear
from hushgrad.client.models.base import Floats, Model
from hushgrad.client.models.logistic import Logistic
from hushgrad.client.stream import RandomStream

_MAX_TABLES: Final = 64


class RecipeError(InputError, ValueError):
    """A round cannot be made as asked; nothing was drawn."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides a round's privacy. All of it is declared; nothing is read off the data.

    Attributes:
        sampler: "poisson" or "fixed".
        records: N, the declared number of records.
        sample_size: s. Poisson: each record takes part with probability s / N. Fixed: exactly s of them do.
        clip_norm: C > 0, L2 norm of a clipped gradient, in units of the loss.
        noise_multiplier: sigma > 0; noise has standard deviation sigma * C per coordinate.
        grid_exponent: g; an integer u of an update stands for u * 2^g.

    Raises:
        RecipeError: at construction, if a number is out of range.
    """

    sampler: Literal["poisson", "fixed"]
    records: int
    sample_size: int
    clip_norm: float
    noise_multiplier: float
    grid_exponent: int

    def __post_init__(self) -> None:
        if self.sampler not in ("poisson", "fixed"):
            raise RecipeError(f'sampler must be "poisson" or "fixed", found {self.sampler!r}')
        for what, value in (("clip_norm", self.clip_norm), ("noise_multiplier", self.noise_multiplier)):
            if not 0 < value < math.inf:
                raise RecipeError(f"{what} must be finite and > 0, found {value}")
        for what, count in (("records", self.records), ("sample_size", self.sample_size)):
            if count < 1:
                raise RecipeError(f"{what} must be >= 1, found {count}")

    @property
    def scale(self) -> float:
        """s = sigma * C / G, the standard deviation of the noise in grid steps."""
        return math.ldexp(self.noise_multiplier * self.clip_norm, -self.grid_exponent)


class Draws:
    """Chooses the records of a round and adds its noise: the part of a round that knows neither model nor records.

    It keeps the tables of the recipes it has seen, and no state that could change a round. Not for several threads at
    once.

    Args:
        rows: how many records there are.
        parameters: d.
    """

    def __init__(self, rows: int, parameters: int) -> None:
        self.rows: Final = rows
        self.parameters: Final = parameters
        self._noise: dict[float, noise.GaussianTables] = {}
        self._masks: dict[tuple[int, int], sampling.PoissonTable] = {}

    def prepare(self, recipe: Recipe) -> None:
        """Checks a recipe against the data and builds its tables, so that a round need not. Draws nothing.

        Raises:
            ScaleError: if the noise is too narrow or too wide for the grid.
            SamplingError: if the declared records do not allow the sampler on these rows.
        """
        self._noise_tables(recipe)
        if recipe.sampler == "fixed":
            sampling.check_fixed(recipe.sample_size, recipe.records, self.rows)
        else:
            sampling.check_poisson(recipe.sample_size, recipe.records, self.rows)
            self._mask_table(recipe)

    def choose(self, recipe: Recipe, stream: RandomStream) -> npt.NDArray[np.int64]:
        """Returns the rows that take part, ascending, shape (n,); n = 0 is possible under Poisson sampling.

        Raises:
            ScaleError, SamplingError: as `prepare`. Nothing was drawn.
        """
        self._noise_tables(recipe)
        if recipe.sampler == "poisson":
            return sampling.poisson(stream, self._mask_table(recipe), self.rows)
        return sampling.fixed(stream, recipe.sample_size, recipe.records, self.rows)

    def release(self, total: Floats, recipe: Recipe, stream: RandomStream) -> npt.NDArray[np.int32]:
        """Returns the update U in grid steps, ready to be sealed.

        Args:
            total: the sum of the clipped gradients of the rows that `choose` gave, shape (d,).
            recipe: the one they were chosen with.
            stream: the one they were chosen with.

        Returns:
            Shape (d,), each within +-(2^31 - 1): the sum (never a mean over the batch) divided by G and rounded to
            nearest, plus discrete Gaussian noise of scale sigma * C / G.
        """
        return self._noise_tables(recipe).released(stream, total, math.ldexp(1.0, -recipe.grid_exponent))

    def _noise_tables(self, recipe: Recipe) -> noise.GaussianTables:
        tables = self._noise.get(recipe.scale)
        if tables is None:
            tables = noise.GaussianTables(recipe.scale)
            _make_room(self._noise)
            self._noise[recipe.scale] = tables
        return tables

    def _mask_table(self, recipe: Recipe) -> sampling.PoissonTable:
        key = (recipe.sample_size, recipe.records)
        table = self._masks.get(key)
        if table is None:
            table = sampling.poisson_table(*key)
            _make_room(self._masks)
            self._masks[key] = table
        return table


class Trainer(Draws):
    """Makes noised updates from one data set and one model.

    Args:
        model: the loss and its clipped gradient.
        dataset: the private records, of which it keeps what the model prepares; of those on disk nothing.

    Attributes:
        zeroed: how often, so far, a record counted as zero because its gradient was not finite. For the owner of the
            data alone: it depends on the records, so it is neither sent nor logged.

    Raises:
        RecipeError: if the data do not fit the model.
    """

    def __init__(self, model: Model, dataset: Dataset) -> None:
        dataset.check_fits(model)
        super().__init__(len(dataset.labels), sum(spec.size for spec in model.arrays))
        self.model: Final = model
        self.dataset: Final = dataset
        self.zeroed = 0
        self._prepared: Final = None if dataset.mapped else dataset.prepare(model)
        self._l2: Final = model.l2 if isinstance(model, Logistic) and self.parameters <= fused.MAX_PARAMETERS else None

    def prepare(self, recipe: Recipe) -> None:
        """Also asks the model, with a batch of no records, whether it can clip as the recipe says.

        Raises:
            ModelError: if it cannot.
            ScaleError, SamplingError: as `Draws.prepare`.
        """
        super().prepare(recipe)
        nobody = np.zeros(0, np.int64)
        self._clipped_sum(np.zeros(self.parameters), recipe, nobody)

    def round(self, parameters: Floats, recipe: Recipe, stream: RandomStream) -> npt.NDArray[np.int32]:
        """Returns one round's update U in grid steps, ready to be sealed: `choose`, clipped sum, `release`.

        Args:
            parameters: the local model w, shape (d,).
            recipe: the declared numbers of this round.
            stream: fresh random bits, made for this round.

        Raises:
            RecipeError: if the parameters do not have shape (d,).
            ScaleError, SamplingError: as `prepare`. Nothing was drawn.
        """
        if parameters.shape != (self.parameters,):
            raise RecipeError(f"expected {self.parameters} parameters, found shape {parameters.shape}")
        if self._l2 is not None and self._prepared is not None and recipe.sampler == "poisson":
            compiled = fused.kernel()
            if compiled is not None:
                return self._fused_round(compiled, parameters, recipe, stream)
        return self.release(self._clipped_sum(parameters, recipe, self.choose(recipe, stream)), recipe, stream)

    def _clipped_sum(self, parameters: Floats, recipe: Recipe, chosen: npt.NDArray[np.int64]) -> Floats:
        if self._prepared is None:
            rows = self.model.prepare(self.dataset.take(chosen))
        else:
            rows = self._prepared.take(chosen, axis=0)
        total, zeroed = self.model.clipped_sum(parameters, rows, self.dataset.labels.take(chosen), recipe.clip_norm)
        self.zeroed += zeroed
        return total

    def _fused_round(
        self, compiled: Any, parameters: Floats, recipe: Recipe, stream: RandomStream
    ) -> npt.NDArray[np.int32]:
        """The same update from the same bits, in one compiled call where that is certain; see `fused`."""
        tables, mask, l2 = self._noise_tables(recipe), self._mask_table(recipe), self._l2
        sampling.check_poisson(recipe.sample_size, recipe.records, self.rows)
        omega = float(np.linalg.norm(l2 * parameters[:-1])) if l2 else 0.0
        if not len(mask.thresholds) or not omega <= linear.MAX_PENALTY * recipe.clip_norm:
            return self.release(self._clipped_sum(parameters, recipe, self.choose(recipe, stream)), recipe, stream)
        words = stream.uint64("mask", sampling.poisson_words(mask, self.rows))
        bits = tables.bits(stream, self.parameters)
        update, per_step = np.empty(self.parameters, np.int32), math.ldexp(1.0, -recipe.grid_exponent)
        count = compiled(
            words,
            mask.thresholds,
            self._prepared,
            self.dataset.labels,
            parameters,
            recipe.clip_norm,
            l2,
            omega,
            per_step,
            *bits,
            *tables.tables,
            update,
        )
        if count != fused.GAVE_UP:
            return update
        chosen = sampling.poisson(stream, mask, self.rows, words)
        return noise.saturated(self._clipped_sum(parameters, recipe, chosen) * per_step, tables.look_up(*bits))


def apply(
    parameters: Floats, update: npt.NDArray[np.int32], *, step_numerator: int, step_exponent: int, grid_exponent: int
) -> Floats:
    """Returns w - eta_i U, line 14 of Algorithm 4, shape (d,).

    eta_i = step_numerator * 2^-step_exponent and U = update * 2^grid_exponent. Post-processing of a release: free.

    >>> apply(np.array([1.0]), np.array([4], np.int32), step_numerator=256, step_exponent=10, grid_exponent=-2)
    array([0.75])
    """
    return parameters - np.ldexp(step_numerator * update.astype(np.float64), grid_exponent - step_exponent)


def _make_room(cache: dict) -> None:
    """Forgets the oldest entry of a full cache: schedules that change s every round would fill the memory."""
    if len(cache) >= _MAX_TABLES:
        del cache[next(iter(cache))]
