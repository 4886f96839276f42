"""What this process uses of its memory, and where the system draws the line.

Three bounds are looked at, because each of them kills: ``memory.max`` of the control group (version 2) and of those it
is in, as a container sets it; ``RLIMIT_AS``, above which allocations fail; and the memory of the machine. No library:
psutil reads the same files, and knows nothing of control groups.
"""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.ports import MemoryUse

PROC: Final = Path("/proc")
CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_UNIFIED: Final = "0::"
"""Before the path of the control group of version 2 in ``/proc/self/cgroup``."""


class LinuxMemory:
    """Implements ``gateway.ports.ProcessMemory``.

    Args:
        most: bytes that the process may use as its operator says; None for what the system allows.
        proc: where the kernel tells of processes.
        control_groups: where it tells of control groups.
    """

    def __init__(self, most: int | None = None, *, proc: Path = PROC, control_groups: Path = CONTROL_GROUPS) -> None:
        self._most = most
        self._statm = proc / "self" / "statm"
        self._bounds = _bounds(proc, control_groups)
        self._machine = _machine(proc)
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc

    def look(self) -> MemoryUse:
        """See ``ProcessMemory``."""
        try:
            size, resident = (int(pages) * _PAGE for pages in self._statm.read_text("ascii").split()[:2])
        except (OSError, ValueError):
            return MemoryUse(0, 0)
        if self._most is not None:
            return MemoryUse(resident, self._most)
        found = [MemoryUse(resident, most) for most in (*map(_read, self._bounds), self._machine) if most]
        addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
        if addresses != resource.RLIM_INFINITY:
            found.append(MemoryUse(size, addresses))
        return max(found, key=lambda each: each.used / each.most, default=MemoryUse(resident, 0))

    def release(self) -> None:
        """See ``ProcessMemory``."""
        if self._trim is not None:
            self._trim(0)


def _bounds(proc: Path, control_groups: Path) -> list[Path]:
    """Find the files that bound the control group of this process, and those that it is in."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        if line.startswith(_UNIFIED):
            parts = Path(line.removeprefix(_UNIFIED)).parts[1:]
            groups = [control_groups.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
            return [each / "memory.max" for each in groups if (each / "memory.max").exists()]
    return []


def _read(path: Path) -> int:
    """Read a bound, which may be changed at any time; 0 for none."""
    with suppress(OSError, ValueError):
        return int(path.read_text("ascii"))  # or "max"
    return 0


def _machine(proc: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / "meminfo").read_text("ascii").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0
