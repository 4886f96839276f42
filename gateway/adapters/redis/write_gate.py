"""Whether this node may write, by what it knows of its lease without asking the grid (P3).

``gateway.app.cluster.lease`` takes and renews the lease, ``nodes`` asks the grid for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gateway.core.types import NodeRef

ANY_TERM: Final = 2**53 - 1
"""Above every term: for sessions put on the clock without a takeover."""


def boot_clock() -> float:
    """Seconds that go on while the process is stopped and, where the system can tell, while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()  # pragma: no cover - not on Linux


class WriteGate:
    """Permits writes while the lease of this node holds; knows the terms of the expired leases that it takes over.

    The gate: once the node has taken a lease, it writes for sessions only while the lease certainly holds. A process
    that was suspended beyond it finds the gate shut when it wakes, before anything else could tell it (P3).

    Args:
        clock: seconds, also counted while the process is suspended.

    Attributes:
        term: of the lease; written with every session that the node takes, 0 without a lease.
        expired: terms of the expired leases that this node won the right to take over.
    """

    def __init__(self, clock: Callable[[], float] = boot_clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self.term = 0
        self.expired: dict[NodeRef, int] = {}

    def now(self) -> float:
        """Read the clock; take the time before a lease is asked for, as the grid grants it from a later moment."""
        return self._clock()

    def hold(self, *, until: float, term: int) -> None:
        """The lease certainly holds until then, by this clock."""
        self._until = until
        self.term = term

    def lose(self) -> None:
        """The lease is gone: the gate stays shut until the next one."""
        self._until = float("-inf")

    def permits_writes(self) -> bool:
        """Tell whether the gate is open: the lease holds, or there never was one, as in tools."""
        return self._until is None or self._clock() < self._until
