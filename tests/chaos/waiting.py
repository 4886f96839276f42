"""Whether processes wait for a processor: then nothing can be said of what they did not do in time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

WAITED: Final = 0.2
"""Seconds between two looks for which a process was ready and had to wait; less than a handoff may take. With a load
average of 11 on two cores, four of five half seconds are below it."""


def waited(pid: int) -> float:
    """Tell for how many seconds the main thread of a process was ready to run and had to wait, since its start.

    Nothing is known of a process that has ended, nor on systems other than Linux; 0 then.
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


class Waiting:
    """Looks at processes from time to time."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}

    def busy(self, pids: Mapping[str, int]) -> set[str]:
        """Tell which of some processes had to wait since the last look, by their names."""
        before, self._before = self._before, {pid: waited(pid) for pid in pids.values()}
        return {name for name, pid in pids.items() if self._before[pid] - before.get(pid, self._before[pid]) > WAITED}
