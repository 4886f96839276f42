"""Stand-ins for what surrounds a node besides the grid: who may connect, the process's memory, metrics and the log."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

from gateway.catalogue.log_event import LogEvent
from gateway.catalogue.metric import Metric
from gateway.ports import Candidate, ConnectionRejected, MemoryUse


class OpenAdmission:
    """An ``Admission`` that accepts everybody at once, and counts them.

    Attributes:
        connections: connections that have arrived and not left.
        refuse_with: what arrivals are told instead, if it is set.
        together: connections accepted in one turn of the loop at most.
        rest: seconds without new connections after some have been accepted.
        paced: whether those without a session are bounded in what they take.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.refuse_with: ConnectionRejected | None = None
        self.refuse_handshakes_with: ConnectionRejected | None = None
        self.together = 64
        self.rest = 0.0
        self.paced = False

    def is_paced(self) -> bool:
        """See the port."""
        return self.paced

    def acceptable(self) -> int:
        """See the port."""
        return self.together

    def pause(self, *, more: bool) -> float:  # noqa: ARG002 - it is the same for all
        """See the port."""
        return self.rest

    def arrive(self, address: str) -> OpenAdmission:  # noqa: ARG002 - all are welcome
        """See the port."""
        if self.refuse_with is not None:
            raise self.refuse_with
        self.connections += 1
        return self

    def shake_hands(self, peer: str, *, proxy: bool) -> None:  # noqa: ARG002 - all are welcome
        """See the port."""
        if self.refuse_handshakes_with is not None:
            raise self.refuse_handshakes_with

    def leave(self) -> None:
        """See ``CountedConnection``."""
        self.connections -= 1

    def admit(self, candidate: Candidate, *, address: str, returning: bool) -> None:  # noqa: ARG002 - all are alike
        """See the port."""
        candidate.accept()

    def withdraw(self, candidate: Candidate) -> None:
        """See the port; nobody ever waits."""


class MadeUpMemory:
    """Implements ``gateway.ports.ProcessMemory``.

    Attributes:
        used: bytes, as the test wants.
        most: bytes; 0 for no bound.
        releases: how often memory was given back.
    """

    def __init__(self, used: int = 0, most: int = 0) -> None:
        self.used = used
        self.most = most
        self.releases = 0

    def look(self) -> MemoryUse:
        """See ``ProcessMemory``."""
        return MemoryUse(self.used, self.most)

    def release(self) -> None:
        """See ``ProcessMemory``."""
        self.releases += 1


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

    def watched(self, metric: Metric) -> set[str]:
        """List the labels of a metric that somebody watches."""
        return {label for each, label in self._gauges if each is metric}


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
