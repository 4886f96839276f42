"""Shows a run while it goes: a bar on a terminal, one line per measurement everywhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.cases.base import Case, Row
from benchmarks.report import number

USUAL_SECONDS: Final = 20.0
"""Of a measurement at full length, starts and stops included, as the mean of all cases; for the first guess of how long
a run takes. After each measurement the guess is made anew from those that are done."""
_MINUTE: Final = 60


class TerminalSpectator:
    """Implements ``benchmarks.runner.Spectator``.

    Args:
        console: to print to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = ""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None)
        self._steps = 0
        self._done = 0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, steps: int) -> None:
        """See ``Spectator``."""
        self._steps = steps
        self._began = time.monotonic()
        self._progress.update(self._task, total=steps)
        self._console.print(
            f"{steps} measurements, about {_minutes(steps * USUAL_SECONDS)} min. Ctrl-C stops everything.",
            style="dim",
            highlight=False,
        )

    def step(self, what: str) -> None:
        """See ``Spectator``."""
        self._step = what
        self._progress.update(self._task, description=what)

    def say(self, what: str) -> None:
        """See ``Progress``."""
        self._progress.update(self._task, description=f"{self._step} · {what}" if self._step else what)

    def broke(self, reason: str) -> None:
        """See ``Spectator``."""
        self._advance()
        self._console.print(f"{self._where()}: BROKEN {reason}", style="red", highlight=False, markup=False)

    def done(self, case: Case, rows: Sequence[Row]) -> None:
        """See ``Spectator``."""
        self._advance()
        for row in rows:
            figures = "  ".join(
                f"{figure.title} {number(row.values[figure.name], figure)} {figure.unit}".rstrip()
                for figure in case.figures
                if figure.name in row.values
            )
            remark = f"  FAILED: {row.failures[0]}" if row.failures else "".join(f"  ({each})" for each in row.flags)
            style = "red" if row.failures else "dim"
            self._console.print(
                f"{self._where()} · {row.variant}: {figures}{remark}", style=style, highlight=False, soft_wrap=True
            )

    def _advance(self) -> None:
        self._done += 1
        self._progress.advance(self._task)

    def _where(self) -> str:
        """Name the step; beside it, where no bar can show that, how long the rest will take."""
        if self._console.is_terminal or not self._done:
            return self._step
        left = (time.monotonic() - self._began) / self._done * (self._steps - self._done)
        return f"[{self._done}/{self._steps}, {_minutes(left)} min left] {self._step}"


def _minutes(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), _MINUTE)
    return f"{minutes}:{seconds:02}"
