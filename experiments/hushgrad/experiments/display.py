"""Shows a running federation in a terminal, or in plain lines where there is none."""

import time
from collections.abc import Callable
from types import TracebackType

from hushgrad.experiments.board import Board, ClientView
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REFRESH_PER_SECOND = 8
PLAIN_LINES = 10
"""Number of lines that a whole run prints without a terminal."""

Odometer = Callable[[ClientView], float | None]


class Display:
    """Draws the board while a block runs.

    Args:
        board: what is drawn.
        console: where.
        odometer: what a client's sealed rounds have cost so far.
        reference: accuracy without privacy, once it is known.
    """

    def __init__(
        self, board: Board, console: Console, odometer: Odometer, reference: Callable[[], float | None]
    ) -> None:
        self._board = board
        self._console = console
        self._odometer = odometer
        self._reference = reference
        self._started = time.monotonic()
        self._printed = -1
        self._live = (
            Live(console=console, get_renderable=self._draw, refresh_per_second=REFRESH_PER_SECOND, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self) -> None:
        """Prints a line now and then where nothing can be redrawn; a terminal is redrawn by itself."""
        board = self._board
        step = max(1, board.final_version // PLAIN_LINES)
        if self._live or board.version // step == self._printed or board.scored_version is None:
            return
        self._printed = board.version // step
        rounds = " ".join(str(view.rounds_sealed) for view in board.clients.values())
        used = max((self._odometer(view) or 0.0 for view in board.clients.values()), default=0.0)
        self._console.print(
            f"version {board.version:3d} of {board.final_version}   accuracy {_percent(board.accuracy)}   "
            f"rounds of the clients {rounds}   epsilon used {used:.3f}",
            highlight=False,
            soft_wrap=True,
        )

    def _draw(self) -> RenderableType:
        board = self._board
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"version {board.version} of {board.final_version}", style="bold"),
            ProgressBar(total=board.final_version, completed=board.version, width=30),
            Text(f"{time.monotonic() - self._started:.0f} s", style="dim"),
        )
        scores = Table.grid(padding=(0, 2))
        scores.add_row(
            Text(f"test accuracy {_percent(board.accuracy)}", style="bold green"),
            Text(f"averaged model {_percent(board.accuracy_averaged)}"),
            Text(f"without privacy {_percent(self._reference())}", style="dim"),
        )
        clients = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        clients.add_column("client")
        for column in ("round", "on version", "staleness"):
            clients.add_column(column, justify="right")
        clients.add_column("budget used")
        clients.add_column("epsilon so far", justify="right")
        clients.add_column("cap", justify="right")
        clients.add_column("", style="dim")
        for name, view in board.clients.items():
            used = self._odometer(view)
            clients.add_row(
                name,
                _number(view.round),
                _number(view.version),
                _number(view.staleness),
                ProgressBar(total=view.epsilon or 1.0, completed=used or 0.0, width=20),
                "" if used is None else f"{used:.4f}",
                "" if view.epsilon is None else f"{view.epsilon:g}",
                view.state,
            )
        parts: list[RenderableType] = [head, scores, clients]
        if board.suspended:
            parts.append(Text(f"suspended: {', '.join(board.suspended)}", style="yellow"))
        return Group(*parts)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
