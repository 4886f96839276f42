"""How far behind the grid's streams a node is: its own publishes, timed from their command to their stream entry."""

from __future__ import annotations

from typing import Final

from gateway.app.runtime.clock import Clock
from gateway.catalogue import metrics as catalogue
from gateway.core.types import EventId
from gateway.ports import Metrics, TailBatch

SAMPLE_INTERVAL: Final = 0.05
"""Seconds between two samples: twenty a second tell the lag, and cost the hot path nothing."""

FORGET_AFTER: Final = 60.0
"""Seconds after which a sample that never came back is dropped: its partition is not followed any more."""


class TailLag:
    """Times a sample of this node's publishes.

    Args:
        clock: time.
        metrics: where the lag goes.
    """

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._open: tuple[EventId, float] | None = None
        self._next_at = 0.0
        self._seen: dict[int, tuple[int, int]] = {}

    def published(self, event: EventId, started: float) -> None:
        """A publish whose command was started at *started* (monotonic seconds) got its event id."""
        if started < self._next_at or not event:
            return
        partition, generation, sequence = map(int, event.split("-"))
        seen = self._seen.get(partition)
        if seen is None:
            return  # nobody here follows it
        self._next_at = started + SAMPLE_INTERVAL
        if seen >= (generation, sequence):
            # The stream was faster than the reply.
            self._observe(started)
        elif self._open is None or started - self._open[1] > FORGET_AFTER:
            self._open = (event, started)

    def read(self, batch: TailBatch) -> None:
        """A batch came from the stream."""
        self._seen[batch.partition] = (batch.position.generation, batch.position.sequence)
        if self._open is not None and any(value.event == self._open[0] for value in batch.values):
            self._observe(self._open[1])
            self._open = None

    def _observe(self, started: float) -> None:
        self._metrics.observe(catalogue.GRID_TAIL_LAG_SECONDS, self._clock.monotonic() - started)
