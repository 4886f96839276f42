"""CPU time and memory of other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.systems.base import Role

_NANO: Final = 1e9

_CPUCLOCK_SCHED: Final = 2
"""In the number of a process's clock: time on a CPU, all threads (what clock_getcpuclockid(3) makes)."""


def process_cpu(pid: int) -> float:
    """Tell how many seconds of CPU, user and system, a process has used so far, all threads; 0 if it is gone.

    Exact to the nanosecond: a storm's Redis uses some hundredths of a second, of which the ticks of /proc would be a
    quarter.
    """
    try:
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def process_waited(pid: int) -> float:
    """Tell how many seconds a process's main thread has been ready to run and had to wait for a core; 0 if it is gone.

    On a machine that has nothing else to do this is next to nothing for a process with a core to itself.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / _NANO
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def main_thread_cpu(pid: int) -> float:
    """Tell how many seconds of CPU a process's main thread has used so far; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / _NANO
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


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
