"""Counts what is logged, so that alerts need no log search."""

from __future__ import annotations

from gateway.catalogue.log_events import LogEvent
from gateway.catalogue.metrics import EVENTS
from gateway.ports import EventLog, Metrics


class CountedEventLog:
    """An ``EventLog`` that counts each event by name and hands it on.

    The names are those of the catalogue, so the number of series is known beforehand, and nothing that a client says
    can become a label.

    Args:
        log: where events go.
        metrics: where they are counted.
    """

    def __init__(self, log: EventLog, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """See ``EventLog``."""
        self._metrics.add(EVENTS, label=event.name)
        self._log.emit(event, **fields)
