"""What is measured of the updates that come from the grid: which part of them is whose, and how late they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from gateway.app.runtime.clock import Clock
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.metrics import TOPIC_UPDATES
from gateway.core.types import EventId, TopicPath
from gateway.ports import Metrics, TailBatch, TopicValue

OTHER: Final = "other"
"""Stands for all first segments that nobody has named."""


class RootCounts:
    """Counts updates by first segments that the operator has named; what clients make up can become no label.

    Args:
        metrics: where they are counted.
        roots: the first segments to count apart.
    """

    def __init__(self, metrics: Metrics, roots: Iterable[str]) -> None:
        self._metrics = metrics
        self._roots = frozenset(roots)
        for root in (*self._roots, OTHER):
            metrics.add(TOPIC_UPDATES, 0, label=root)

    def count(self, values: Iterable[TopicValue]) -> None:
        """Count a batch: one addition for each first segment that is in it."""
        roots = self._roots
        for root, count in Counter(_root(value.topic) for value in values).items():
            self._metrics.add(TOPIC_UPDATES, count, label=root if root in roots else OTHER)


def _root(topic: TopicPath) -> str:
    return topic.partition("/")[0]


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
        partition, grid_generation, sequence = map(int, event.split("-"))
        seen = self._seen.get(partition)
        if seen is None:
            return  # nobody here follows it
        self._next_at = started + SAMPLE_INTERVAL
        if seen >= (grid_generation, sequence):
            # The stream was faster than the reply.
            self._observe(started)
        elif self._open is None or started - self._open[1] > FORGET_AFTER:
            self._open = (event, started)

    def read(self, batch: TailBatch) -> None:
        """A batch came from the stream."""
        self._seen[batch.partition] = (batch.position.grid_generation, batch.position.sequence)
        if self._open is not None and any(value.event == self._open[0] for value in batch.values):
            self._observe(self._open[1])
            self._open = None

    def _observe(self, started: float) -> None:
        self._metrics.observe(catalogue.GRID_TAIL_LAG_SECONDS, self._clock.monotonic() - started)
