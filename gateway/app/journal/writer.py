"""Takes events from the buffer to the grid, off every hot path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.app.journal.buffer import Buffer
from gateway.app.runtime.clock import Clock
from gateway.catalogue import journal_metrics as catalogue
from gateway.core.wire.errors import GatewayError
from gateway.ports import Appended, Grid, GridRefused, GridState, GridUnavailable, Metrics

GATHER: Final = 0.5
"""Seconds in which events gather into one entry per stream. What a killed node has not written yet is lost; a node
costs the grid at most 16 small steps in this time."""

PLENTY_BYTES: Final = 256 * 1024
"""Waiting bytes at which they are written at once: some thousand events, of a storm."""

FIRST_RETRY: Final = 0.2
"""Seconds before a write that failed is tried again; doubled each time."""

LONGEST_RETRY: Final = 5.0
"""Seconds between two tries at most, so that a grid that is short of memory is not asked for more all the time."""

FLUSH_TIMEOUT: Final = 2.0
"""Seconds that a node which stops gives the grid to take what is left: one time limit of the grid."""


class Writer:
    """Writes what is in the buffer.

    Args:
        buffer: what is to be written.
        grid: where to.
        clock: of the node.
        metrics: where it is measured.
        relieved: called after events were written: there is room again.

    Attributes:
        trouble: why the buffer does not empty, a label of ``JOURNAL_DROPPED``.
    """

    def __init__(
        self, buffer: Buffer, grid: Grid, *, clock: Clock, metrics: Metrics, relieved: Callable[[], None]
    ) -> None:
        self._buffer = buffer
        self._grid = grid
        self._clock = clock
        self._metrics = metrics
        self._relieved = relieved
        self._something = asyncio.Event()
        self._plenty = asyncio.Event()
        self.trouble = catalogue.JOURNAL_TOO_SLOW

    def wake(self) -> None:
        """An event was put into the buffer."""
        if not self._something.is_set():
            self._something.set()
        if self._buffer.bytes >= PLENTY_BYTES:
            self._plenty.set()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._something.wait()
            try:
                async with asyncio.timeout(GATHER):
                    await self._plenty.wait()
            except TimeoutError:
                pass
            retry = FIRST_RETRY
            while not await self._write():
                await asyncio.sleep(retry * (0.5 + self._clock.random() / 2))
                retry = min(2 * retry, LONGEST_RETRY)

    async def finish(self) -> None:
        """Write what is left, as long as the grid takes it and there is time."""
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                while self._buffer.events and self._grid.state is GridState.UP:
                    if not await self._write():
                        await asyncio.sleep(FIRST_RETRY)
        except TimeoutError:
            return

    async def _write(self) -> bool:
        """Write all there is; False if some of it was not taken."""
        while True:
            self._something.clear()
            self._plenty.clear()
            batches = self._buffer.batches()
            if not batches:
                return True
            started = self._clock.monotonic()
            try:
                results = await self._grid.journal.append(batches)
            except GridUnavailable:
                self.trouble = catalogue.JOURNAL_GRID_UNREACHABLE
                return False
            self._metrics.observe(catalogue.JOURNAL_APPEND_SECONDS, self._clock.monotonic() - started)
            taken = True
            for batch, result in zip(batches, results, strict=True):
                if isinstance(result, Appended):
                    self._buffer.written(batch)
                    self._metrics.add(catalogue.JOURNAL_EVENTS, batch.count)
                    self._count_cut(result)
                    continue
                taken = False
                refused = isinstance(result, GridRefused) or not isinstance(result, GridUnavailable)
                self.trouble = catalogue.JOURNAL_GRID_REFUSES if refused else catalogue.JOURNAL_GRID_UNREACHABLE
                if not isinstance(result, GatewayError):
                    raise result
            self._relieved()
            if not taken:
                return False
            self.trouble = catalogue.JOURNAL_TOO_SLOW

    def _count_cut(self, result: Appended) -> None:
        if result.cut_unread:
            self._metrics.add(catalogue.JOURNAL_CUT, result.cut_unread, label="unread")
        if result.cut_unclaimed:
            self._metrics.add(catalogue.JOURNAL_CUT, result.cut_unclaimed, label="unclaimed")
