"""Which runs a backup has been sent, by numbers: what a thousand sessions share is sent once.

Both sides keep the same ones, because both forget the oldest by the same rule at the same places of the log.
"""

from __future__ import annotations

from typing import Final

from gateway.core.stream.runs import Run

MOST_RUNS: Final = 4096
"""Runs that are remembered. Nearly always what is shared goes to all within a turn of the loop or two."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of their bodies, as a run may have 16 KiB and a body more."""


class RunNumbers:
    """The runs that the source of a log remembers."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, Run]] = {}
        """By identity, with the run, so that it stays and no other one gets its identity."""
        self._bytes = 0
        self._next = 0

    def find(self, run: Run) -> int | None:
        """Find the number of a run; None if the backup does not know it, any more or yet."""
        found = self._numbers.get(id(run))
        return None if found is None else found[0]

    def add(self, run: Run) -> int:
        """Number a run that has no number."""
        number = self._next
        self._numbers[id(run)] = number, run
        self._next += 1
        self._bytes += run.size
        return number

    def forget(self) -> None:
        """Forget what is too much; at the end of each frame."""
        while len(self._numbers) > MOST_RUNS or self._bytes > MOST_BYTES:
            oldest = next(iter(self._numbers))
            self._bytes -= self._numbers.pop(oldest)[1].size


class NumberedRuns:
    """The runs that the backup remembers."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._bytes = 0

    def add(self, number: int, run: Run) -> None:
        """Remember a run."""
        self._runs[number] = run
        self._bytes += run.size

    def __getitem__(self, number: int) -> Run:
        return self._runs[number]

    def forget(self) -> None:
        """Forget what is too much; at the end of each frame."""
        while len(self._runs) > MOST_RUNS or self._bytes > MOST_BYTES:
            oldest = next(iter(self._runs))
            self._bytes -= self._runs.pop(oldest).size
