"""A round that the user's own loop computes, and the place where that loop and the training thread meet.

The training thread draws the mask, offers the round, waits for a sum of clipped gradients, adds the noise and seals.
The user's thread is given the round, and gives back gradients. It never sees random bits, noise or sendable bytes, so
nothing can leave but what the training thread sealed. No server, file or ledger is known here.

A round that was offered is the user's until it is settled: whoever asks for the next round while one is open gets that
one again, with the same mask. So leaving a loop, by `break` or by an error, and coming back redraws nothing.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from hushgrad.client import clipping, dpsgd
from hushgrad.client.clipping import Chunk
from hushgrad.client.errors import InputError
from hushgrad.client.models.base import ClippedSum, Floats
from hushgrad.client.stream import RandomStream
from hushgrad.wire.arrays import ArraySpec

Clipping = Literal["library", "caller"]
_Number = TypeVar("_Number", np.float64, np.int64)
State = Literal["open", "busy", "given", "sealed", "dropped"]


class LoopError(InputError):
    """A loop did something in the wrong order; the ledger is as it was, and the text says what to do."""


class Round:
    """One local round: which records take part, from which parameters, and the way to submit their gradients.

    Attributes:
        number: i, the local round.
        parameters: the local model w, float64, shape (d,), read-only: the newest version with this client's own later
            updates applied. Gradients are taken here.
        arrays: the same as one array for each of the model's, by name; views, read-only.
        rows: int64, shape (n,), ascending, read-only: the rows of the data that take part, drawn by the library. n
            varies from round to round and may be 0; it is private: do not print or send it.
    """

    def __init__(
        self,
        desk: "Desk",
        *,
        number: int,
        parameters: Floats,
        arrays: tuple[ArraySpec, ...],
        rows: npt.NDArray[np.int64],
    ) -> None:
        self._desk = desk
        self.number: Final = number
        self.parameters: Final = _read_only(parameters)
        self.arrays: Final[Mapping[str, Floats]] = _named(self.parameters, arrays)
        self.rows: Final = _read_only(rows)
        self._state: State = "open"
        self._zeroed = 0

    @property
    def zeroed(self) -> int:
        """How many submitted gradients counted as zero because they were not finite. Private, like `rows`."""
        return self._zeroed

    def submit(self, *, per_example_gradients: Chunk | Iterable[Chunk]) -> bool:
        """Clips, sums, noises, seals; sending follows by itself. Returns when the seal is durable.

        Args:
            per_example_gradients: the gradient of the loss of each chosen row, one row each, in any order. An array of
                shape (n, d) in the order of the model's arrays; or a mapping from the arrays' names to arrays of shape
                (n, *shape); or an iterable of such chunks, whose rows together are n. NumPy, JAX, PyTorch (CPU,
                detached); float16, float32 or float64. They are gradients of each example's own loss: not clipped, not
                averaged, not summed.

        Returns:
            True if the round was sealed: it is spent. False if the federation ended, or somebody stopped the session,
            before that: nothing was spent, and the loop ends.

        Raises:
            GradientError: if number, shapes or types are wrong. Nothing was spent; the round stays open.
            LoopError: if the round was submitted before, or another round has taken its place.
            ClientError: whatever ended the session.
        """
        desk = self._desk
        chunks = clipping.chunks_of(per_example_gradients)
        return desk.submit(
            self,
            lambda: clipping.clipped_sum(chunks, arrays=desk.arrays, examples=len(self.rows), clip_norm=desk.clip_norm),
        )

    def submit_presummed(self, total: Chunk) -> bool:
        """Noises and seals a sum of gradients that the caller says it has clipped, each to L2 norm C.

        Only in a session with `clipping="caller"`: ledger, update and claim say `clipping: declared by caller`, because
        nobody else can check it. All but the clipping is as in `submit`.

        Args:
            total: the sum over the chosen rows of gradients clipped to norm C, shape (d,), or one array for each of the
                model's. Not averaged.

        Raises:
            GradientError: if it is longer than n C, not finite, or has another shape. Nothing was spent.
            LoopError, ClientError: as `submit`; LoopError also in a session whose clipping is the library's.
        """
        desk = self._desk
        if desk.clipping != "caller":
            raise LoopError(
                'submit_presummed needs a session with clipping="caller", so that ledger and claim say so from the '
                "beginning; connect that way, or use submit with per-example gradients"
            )
        return desk.submit(
            self,
            lambda: ClippedSum(
                clipping.checked_total(
                    total,
                    arrays=desk.arrays,
                    examples=len(self.rows),
                    clip_norm=desk.clip_norm,
                    gradient_error=desk.gradient_error,
                ),
                0,
            ),
        )


class Desk:
    """Where rounds are offered and taken; all waiting happens here.

    Args:
        draws: chooses rows and adds noise.
        recipe: of a round.
        arrays: of the model.
        clipping: who clips.
        gradient_error: see `clipping.Arithmetic`.
    """

    def __init__(
        self,
        draws: dpsgd.Draws,
        recipe: Callable[[int], dpsgd.Recipe],
        *,
        arrays: tuple[ArraySpec, ...],
        clipping: Clipping,
        clip_norm: float,
        gradient_error: float,
    ) -> None:
        self._draws = draws
        self._recipe = recipe
        self.arrays: Final = arrays
        self.clipping: Final = clipping
        self.clip_norm: Final = clip_norm
        self.gradient_error: Final = gradient_error
        self._changed = threading.Condition()
        self._round: Round | None = None
        self._total: Floats | None = None
        self._wanted = True
        self._over = False
        self._error: BaseException | None = None

    # The user's thread.

    def next(self) -> Round | None:
        """Waits for a round; None when there is none any more.

        Raises:
            ClientError: what ended the session.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._is_open())
            if self._error is not None:
                raise self._error
            return self._round if self._is_open() else None

    def submit(self, round_: Round, sum_: Callable[[], ClippedSum]) -> bool:
        """Computes a sum and hands it over; returns whether the round was sealed. See `Round.submit`."""
        with self._changed:
            self._check_error()
            if round_._state == "dropped":
                return False
            if round_ is not self._round or round_._state != "open":
                what = "is being submitted" if round_._state == "busy" else "was submitted before"
                raise LoopError(f"round {round_.number} {what}; each round takes one submission: ask for the next")
            round_._state = "busy"
        try:
            total, zeroed = sum_()  # user code may run in here: no lock is held
        except BaseException:
            with self._changed:
                if round_._state == "busy":
                    round_._state = "open"
                self._changed.notify_all()
            raise
        with self._changed:
            round_._zeroed = zeroed
            if round_._state == "busy":
                round_._state, self._total = "given", total
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._over or round_._state in ("sealed", "dropped"))
            if round_._state == "sealed":
                return True
            self._check_error()
            return False

    def _check_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _is_open(self) -> bool:
        return self._round is not None and self._round._state == "open" and not self._over

    # The training thread.

    def make_update(self, parameters: Floats, number: int, stream: RandomStream) -> npt.NDArray[np.int32] | None:
        """Draws the mask, offers the round, waits for its sum, and returns the noised update; None: not wanted."""
        recipe = self._recipe(number)
        rows = self._draws.choose(recipe, stream)
        offered = Round(self, number=number, parameters=parameters.copy(), arrays=self.arrays, rows=rows)
        with self._changed:
            self._round, self._total = offered, None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._total is not None or not self._wanted)
            total, self._total = self._total, None
        return None if total is None else self._draws.release(total, recipe, stream)

    def settled(self, number: int, sealed: bool) -> None:
        """See `runner.RoundListener`."""
        del number
        with self._changed:
            if self._round is not None:
                self._round._state = "sealed" if sealed else "dropped"
                self._round = None
            self._changed.notify_all()

    # The runner's main thread.

    def wanted(self, wanted: bool) -> None:
        """See `runner.RoundListener`."""
        with self._changed:
            self._wanted = wanted
            self._changed.notify_all()

    def close(self, error: BaseException | None) -> None:
        """Ends all waiting: the session is over, because of an error or not."""
        with self._changed:
            self._over, self._error = True, error
            if self._round is not None and self._round._state != "sealed":
                self._round._state = "dropped"
            self._changed.notify_all()


def iterate(desk: Desk) -> Iterator[Round]:
    """Yields rounds until there are none any more.

    Raises:
        LoopError: if the loop goes on without having submitted the round it was given. The round stays open.
    """
    while (round_ := desk.next()) is not None:
        yield round_
        if round_._state in ("open", "busy"):
            raise LoopError(
                f"round {round_.number} was not submitted; submit its gradients, none (shape (0, d)) if no row was "
                "chosen, before the next one. It is still open: rounds() gives it again, with the same rows"
            )


def _read_only(array: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    view = array.view()
    view.flags.writeable = False
    return view


def _named(parameters: Floats, arrays: tuple[ArraySpec, ...]) -> dict[str, Floats]:
    found, end = {}, 0
    for spec in arrays:
        found[spec.name] = parameters[end : end + spec.size].reshape(spec.shape)
        end += spec.size
    return found
