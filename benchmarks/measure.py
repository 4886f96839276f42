"""CPU time and memory of other processes, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.systems.base import Role

TICKS: Final = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second of /proc/*/stat; 100, so windows of several seconds are exact to a fraction of a percent."""

_USER_TIME: Final = 11
_SYSTEM_TIME: Final = 12
"""Places in /proc/*/stat after the name in parentheses (proc(5): fields 14 and 15)."""


def process_cpu(pid: int) -> float:
    """Tell how many seconds of CPU, user and system, a process has used so far, all threads; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # The name may hold spaces and parentheses; what follows the last one is regular.
    fields = text.rpartition(")")[2].split()
    return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / TICKS


def cpu_by_role(pids: Mapping[Role, Sequence[int]]) -> dict[Role, float]:
    """Sum the CPU seconds used so far for each role."""
    return {role: sum(map(process_cpu, each)) for role, each in pids.items()}


def cpu_between(before: Mapping[Role, float], after: Mapping[Role, float]) -> dict[Role, float]:
    """Tell the CPU seconds each role used between two calls of ``cpu_by_role``."""
    return {role: after[role] - before.get(role, 0.0) for role in after}


def resident_bytes(pids: Iterable[int]) -> int:
    """Sum the resident set sizes, in bytes, of the processes that are alive."""
    total = 0
    for pid in pids:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total
