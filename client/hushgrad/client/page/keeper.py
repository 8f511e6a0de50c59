"""Keeps a picture of a ledger fresh while somebody looks: reads it when it has changed, and checks its chain beside.

The ledger belongs to a client that may be running. So it is opened only when its files have changed, for as long as one
look takes, and never as often as would cost much: reading and checking together keep to a small share of one processor.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hushgrad.accountant.errors import AccountantError
from hushgrad.client import overview, standing, store
from hushgrad.client.errors import LedgerError
from hushgrad.client.outbox import Entry
from hushgrad.client.rows import Row
from hushgrad.client.standing import Checked, RunStanding, Standing

SMALL_BYTES: Final = 12 * 2**20
"""A ledger up to this size is checked before anything of it is shown; that takes a fraction of a second. What SQLite
keeps beside it while a client runs counts as well, and is up to 4 MiB."""

CURVE_POINTS: Final = 24

_LOOK_SECONDS: Final = 0.5
_ATTENTION_SECONDS: Final = 15.0
_FRESH_SECONDS: Final = 2.0
_READ_SHARE, _CHECK_SHARE = 0.1, 0.05
_FIRST_SECONDS: Final = 60.0
_NAMED_ROW = re.compile(r"ledger row (\d+)")

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """What is wrong with a ledger.

    Attributes:
        row: the number of the first row that does not fit; None where no row can be named.
        why: what does not fit.
    """

    row: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to see of a ledger.

    Attributes:
        standing: as last read; None where it could not be.
        answer: what `overview.status` said then.
        broken: what is wrong with it; no number may be shown then.
        checked: how far, and to which head, the chain was found to hold; None before the first check is through.
        read_at: seconds since 1970.
        curves: by terms digest, (updates, reading) along a run; may lag behind.
    """

    standing: Standing | None
    answer: dict[str, Any] | None
    broken: Broken | None
    checked: Checked | None
    read_at: float
    curves: dict[bytes, tuple[tuple[int, float], ...]]


class Keeper:
    """A picture of the ledger in one folder; its thread works only while pictures are asked for.

    Args:
        folder: the state folder.
        clock: seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._changed = threading.Condition()
        self._picture: Picture | None = None
        self._asked = time.monotonic()
        self._looked = 0.0
        self._ended = False
        self._failure: Exception | None = None
        self._curves: dict[bytes, dict[int, float]] = {}
        self._some: dict[tuple[int, int], tuple[Stamp, list[tuple[Row, Entry | None]]]] = {}
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def picture(self) -> Picture:
        """Returns the newest picture. The first one is waited for, and so is a look at the files after a pause.

        Raises:
            RuntimeError: if the thread has failed; that is a mistake in the program.
        """
        with self._changed:
            before, self._asked = self._asked, time.monotonic()
            asked = self._asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._picture is not None or self._ended, _FIRST_SECONDS)
            if asked - before > _ATTENTION_SECONDS:
                self._changed.wait_for(lambda: self._looked > asked - _FRESH_SECONDS or self._ended, _FRESH_SECONDS)
            if self._failure is not None:
                raise RuntimeError("the page cannot read the ledger any more") from self._failure
            if self._picture is None:
                return Picture(None, None, Broken(None, "it could not be read"), None, self._clock(), {})
            return self._picture

    def now(self) -> float:
        """Returns seconds since 1970."""
        return self._clock()

    def some_rows(self, first: int, last: int) -> list[tuple[Row, Entry | None]]:
        """Returns rows as they stand there now, unchecked.

        Raises:
            LedgerError: if they cannot be read.
        """
        stamp = _stamp(self._folder)
        with self._changed:
            known = self._some.get((first, last))
        if known is not None and known[0] == stamp:
            return known[1]
        found = standing.some_rows(self._folder, first, last)
        with self._changed:
            if len(self._some) >= 8:
                self._some.clear()
            self._some[first, last] = (stamp, found)
        return found

    # In the thread.

    def _work(self) -> None:
        try:
            self._follow()
        except Exception as error:  # whoever asks is told; a page that stands still would look like a quiet client
            with self._changed:
                self._failure, self._ended = error, True
                self._changed.notify_all()

    def _follow(self) -> None:
        read_stamp: Stamp | None = None
        checked_stamp: Stamp | None = None
        read_again = check_again = 0.0
        process: str | None = None
        while self._wait_for_attention():
            stamp, now = _stamp(self._folder), time.monotonic()
            seen = standing.process(self._folder)
            if (stamp != read_stamp or seen != process) and now >= read_again:
                self._read(check=_size(stamp) <= SMALL_BYTES)
                read_stamp, process = stamp, seen
                read_again = time.monotonic() + (time.monotonic() - now) / _READ_SHARE
            elif self._is_unchecked(stamp, checked_stamp) and now >= check_again:
                self._check()
                checked_stamp = stamp
                check_again = time.monotonic() + (time.monotonic() - now) / _CHECK_SHARE
            else:
                with self._changed:
                    self._looked = now
                    self._changed.notify_all()
                if not self._draw_point():
                    with self._changed:
                        self._changed.wait_for(lambda: self._ended, _LOOK_SECONDS)

    def _wait_for_attention(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or time.monotonic() - self._asked < _ATTENTION_SECONDS)
            return not self._ended

    def _is_unchecked(self, stamp: Stamp, checked: Stamp | None) -> bool:
        return _size(stamp) > SMALL_BYTES and stamp != checked

    def _read(self, *, check: bool) -> None:
        old = self._picture
        try:
            found = standing.read(self._folder, check=check)
            answer = overview.status(found, now=self._clock())
        except (LedgerError, AccountantError, OSError) as error:
            self._publish(Picture(None, None, _broken(error), None, self._clock(), {}))
            return
        checked = Checked(found.rows, found.head) if check else None
        broken = None
        if old is not None and not check:
            # A large ledger: what the last check found holds until the next one.
            checked, broken = old.checked, old.broken
        self._publish(Picture(found, answer, broken, checked, self._clock(), self._known_curves(found)))

    def _check(self) -> None:
        try:
            checked, broken = standing.check(self._folder), None
        except (LedgerError, OSError) as error:
            checked, broken = None, _broken(error)
        if self._picture is not None:
            self._publish(replace(self._picture, broken=broken, checked=checked))

    def _draw_point(self) -> bool:
        """Computes one more point of one curve; says whether one was missing."""
        picture = self._picture
        if picture is None or picture.standing is None or picture.broken is not None:
            return False
        for run in picture.standing.runs:
            known = self._curves.setdefault(run.committed.terms_digest, {})
            for updates in _wanted(run):
                if updates not in known:
                    known[updates] = overview.reading(run.committed, run.sealed[:updates])["epsilon_so_far"]
                    self._publish(replace(picture, curves=self._known_curves(picture.standing)))
                    return True
        return False

    def _known_curves(self, found: Standing) -> dict[bytes, tuple[tuple[int, float], ...]]:
        curves = {}
        for run in found.runs:
            known = self._curves.get(run.committed.terms_digest, {})
            # What was sealed stays sealed in its order, so a point never changes while the ledger only grows.
            curves[run.committed.terms_digest] = tuple(
                sorted((updates, reading) for updates, reading in known.items() if updates <= len(run.sealed))
            )
        return curves

    def _publish(self, picture: Picture) -> None:
        with self._changed:
            self._picture = picture
            self._changed.notify_all()


def told(picture: Picture, now: float) -> dict[str, Any] | None:
    """Returns the overview of a picture at this time of day; None where no number may be shown."""
    if picture.standing is None or picture.answer is None or picture.broken is not None:
        return None
    rows, checked = picture.standing.rows, picture.checked.rows if picture.checked else 0
    return {
        **picture.answer,
        "chain": {**picture.answer["chain"], "checked": checked >= rows, "rows_checked": min(checked, rows)},
        "runs": [
            {**shown, "pace": overview.run_pace(run, picture.standing, now)}
            for run, shown in zip(picture.standing.runs, picture.answer["runs"], strict=True)
        ],
    }


def _wanted(run: RunStanding) -> list[int]:
    step = max(1, -(-run.committed.rounds // CURVE_POINTS))
    # The first updates cost most: a few points more where the curve bends.
    few = {step // 8, step // 4, step // 2} - {0}
    return [
        updates for updates in sorted({*few, *range(step, len(run.sealed) + 1, step)}) if updates <= len(run.sealed)
    ]


def _broken(error: Exception) -> Broken:
    text = str(error)
    named = _NAMED_ROW.search(text)
    return Broken(int(named[1]) if named else None, text.removeprefix(f"{named[0]}: ") if named else text)


def _stamp(folder: Path) -> Stamp:
    found = []
    for suffix in ("", "-wal"):
        try:
            stat = (folder / f"{store.LEDGER_NAME}{suffix}").stat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _size(stamp: Stamp) -> int:
    return sum(size for _, size, _ in stamp)
