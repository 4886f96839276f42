"""Events that are counted, logged and journaled, all of it from one declaration by one call.

```text
                              ┌─ metric, label() ─▶ Metrics
place ──announce(Event(…))──▶─┼─ log, logged() ───▶ EventLog
                              └─ journal, told() ─▶ Journal
```

An event is a value. Its class is the declaration: which metric counts it, which log event and which event of the
journal tell it, and in what words. Where it happens it is announced once, so that no sink can be forgotten. The events
are in ``session_events`` and ``node_events``; what they are told as is declared in the catalogues.

What is merely counted, as are deliveries and publishes, is no event: it happens a hundred thousand times a second, and
goes to ``Metrics`` directly. So does what is merely logged go to the log.
"""

from __future__ import annotations

from gateway.app.journal.event import Event
from gateway.app.journal.recorder import Journal
from gateway.ports import EventLog, Metrics


class Announcer:
    """Announces events.

    Args:
        metrics: where they are counted.
        log: where they are logged.
        journal: where they are journaled.
    """

    def __init__(self, *, metrics: Metrics, log: EventLog, journal: Journal) -> None:
        self._metrics = metrics
        self._log = log
        self._journal = journal

    def __call__(self, event: Event) -> None:
        """Count, log and journal an event, as its class declares; never raises, never waits."""
        if event.metric is not None:
            self._metrics.add(event.metric, event.amount(), label=event.label())
        if event.log is not None:
            self._log.emit(event.log, **event.logged())
        if event.journal is not None:
            self._journal.take_down(event)
