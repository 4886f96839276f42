"""Where metrics and log events go. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.catalogue.log_events import LogEvent
from gateway.catalogue.metrics import Metric


class Metrics(Protocol):
    """Where numbers go. All methods return at once and never raise on a metric of the catalogue."""

    def add(self, metric: Metric, amount: float = 1, *, label: str = "") -> None:
        """Count up a counter; *label* is the value of its one label."""

    def observe(self, metric: Metric, value: float, *, label: str = "") -> None:
        """Put a value into a histogram; *label* is the value of its one label."""

    def watch(self, metric: Metric, read: Callable[[], float], *, label: str = "") -> None:
        """Have a gauge, or a counter that somebody else counts up, read by *read* whenever it is asked for.

        A later call for the same metric and label takes the place of the earlier one. As long as *read* returns
        not-a-number there is nothing to show.
        """


class EventLog(Protocol):
    """Where log events go."""

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """Log *event* with its fields; never raises and never blocks."""
