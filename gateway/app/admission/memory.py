"""A node whose memory is short: it sheds load before the system kills it, and blames nobody (P20).

```text
above SHED_AT of what there is, or an allocation failed ──▶ short: no new connections, what is kept for clients that
                                                            are away is given up ──▶ below ENOUGH_AT: as before
```

Sessions are kept: those that are connected are served, those that are not go on by failover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.app.admission.limits import Limits
from gateway.app.runtime.clock import Clock
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.ports import EventLog, MemoryUse, Metrics, ProcessMemory

LOOK: Final = 0.5
"""Seconds between two looks: a node that reads as fast as it can takes some ten megabytes meanwhile."""

SHED_AT: Final = 0.85
"""Share of the memory from which on load is shed: as where an operator is warned of other things that run out. The rest
is for what is under way, which is bounded, and for the work of giving up."""

ENOUGH_AT: Final = 0.80
"""Share below which new connections are taken again; less than the other, so that it does not go to and fro."""

HOLD: Final = 5.0
"""Seconds for which memory counts as short after an allocation failed, between two log lines about it, and until what
can be shed is looked for again when there was nothing."""

PACE: Final = 0.25
"""Seconds between two times that load is shed while there is some: a tenth of the loop's time."""


class Memory:
    """Watches the memory of the process.

    Args:
        process: tells it; None if nobody can.
        limits: refuses new connections while it is short.
        clock: time.
        metrics: where numbers go.
        log: where events go.

    Attributes:
        shed: gives up what can be given up, and returns of how many sessions the buffers, and how many copies.
    """

    def __init__(
        self, process: ProcessMemory | None, *, limits: Limits, clock: Clock, metrics: Metrics, log: EventLog
    ) -> None:
        self._process = process
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._use = MemoryUse(0, 0)
        self._held_until = float("-inf")
        self._shed_again = self._tell_again = float("-inf")
        self._buffers = self._copies = 0
        """Given up since it was last told."""
        self.shed: Callable[[], tuple[int, int]] = lambda: (0, 0)
        metrics.watch(catalogue.MEMORY_USED_BYTES, lambda: self._use.used)
        metrics.watch(catalogue.MEMORY_LIMIT_BYTES, lambda: self._use.most)
        metrics.watch(catalogue.MEMORY_SHORT, lambda: float(limits.memory_short))

    async def run(self) -> None:
        """Watch for ever."""
        while self._process is not None:
            self.look()
            await asyncio.sleep(LOOK)

    def look(self) -> None:
        """Shed load if memory is short, and take it on again if it is not any more."""
        if self._process is None:
            return
        use = self._use = self._process.look()
        if use.most and use.used >= SHED_AT * use.most:
            self._run_short(f"{use.used} of {use.most} bytes are used")
        elif self._limits.memory_short and use.used <= ENOUGH_AT * (use.most or use.used + 1):
            self._recover()

    def exhausted(self, where: str) -> None:
        """An allocation has failed: nobody's fault, and a reason to shed load.

        Args:
            where: what could not be done.
        """
        self._held_until = self._clock.monotonic() + HOLD
        self._run_short(f"an allocation failed: {where}")

    def _recover(self) -> None:
        if self._clock.monotonic() >= self._held_until:
            self._limits.memory_short = False
            self._log.emit(events.MEMORY_SUFFICIENT, used=self._use.used)

    def _run_short(self, why: str) -> None:
        self._limits.memory_short = True
        now = self._clock.monotonic()
        if now < self._shed_again:
            return
        buffers = copies = 0
        # What is shed may need memory itself; the rest is tried again.
        with suppress(MemoryError):
            buffers, copies = self.shed()
        self._shed_again = now + (PACE if buffers or copies else HOLD)
        self._buffers += buffers
        self._copies += copies
        self._metrics.add(catalogue.MEMORY_SHEDDINGS)
        if self._process is not None:
            self._process.release()
        if now >= self._tell_again:
            self._tell_again = now + HOLD
            self._log.emit(events.MEMORY_RAN_SHORT, why=why, buffers=self._buffers, copies=self._copies)
            self._buffers = self._copies = 0
