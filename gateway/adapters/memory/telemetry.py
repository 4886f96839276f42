"""Metrics and log events that are kept in memory, for tests to look at."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

from gateway.catalogue.log_events import LogEvent
from gateway.catalogue.metrics import Metric

KEPT: Final = 10_000
"""Log events, and observations per histogram, that are kept; the oldest go first, so that nothing grows for ever."""


class MemoryMetrics:
    """``Metrics`` that remembers what it was told."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[Metric, str], float] = defaultdict(float)
        self._observations: defaultdict[tuple[Metric, str], deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._gauges: dict[tuple[Metric, str], Callable[[], float]] = {}

    def add(self, metric: Metric, amount: float = 1, *, label: str = "") -> None:
        """See the port."""
        self._counters[metric, label] += amount

    def observe(self, metric: Metric, value: float, *, label: str = "") -> None:
        """See the port."""
        self._observations[metric, label].append(value)

    def watch(self, metric: Metric, read: Callable[[], float], *, label: str = "") -> None:
        """See the port."""
        self._gauges[metric, label] = read

    def count(self, metric: Metric, *, label: str = "") -> float:
        """Tell how far a counter has come; 0 if it was never counted up."""
        return self._counters.get((metric, label), 0)

    def counts(self, metric: Metric) -> dict[str, float]:
        """Tell how far a counter has come, by label."""
        return {label: count for (each, label), count in self._counters.items() if each is metric}

    def observations(self, metric: Metric, *, label: str = "") -> list[float]:
        """List what a histogram was given, the newest last."""
        return list(self._observations.get((metric, label), ()))

    def gauge(self, metric: Metric, *, label: str = "") -> float:
        """Read a gauge now.

        Raises:
            KeyError: nobody watches it.
        """
        return self._gauges[metric, label]()


class MemoryEventLog:
    """``EventLog`` that remembers what it was told.

    Attributes:
        events: each event with its fields, the newest last.
        undeclared: events whose fields were not those of the catalogue, in words; a test wants it empty.
    """

    def __init__(self) -> None:
        self.events: deque[tuple[LogEvent, dict[str, object]]] = deque(maxlen=KEPT)
        self.undeclared: deque[str] = deque(maxlen=KEPT)

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """See the port."""
        self.events.append((event, fields))
        if fields.keys() != set(event.fields):
            self.undeclared.append(f"{event.name} with {sorted(fields)} instead of {sorted(event.fields)}")

    def of(self, event: LogEvent) -> list[dict[str, object]]:
        """List the fields of every emission of one event, the newest last."""
        return [fields for each, fields in self.events if each is event]
