"""Where metrics, log events and traces go. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self

from gateway.catalogue.log_event import LogEvent
from gateway.catalogue.metric import Metric


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


class Operation(StrEnum):
    """What has a span. Each has a bounded duration; connections last for days and have none."""

    CONNECT = "connect"
    """A hello, from its packet to its welcome."""
    RESUME = "resume"
    """A resume, from its packet to its welcome or refusal; a claim is inside."""
    CLAIM = "claim"
    """The grid's step by which this node becomes a session's owner."""
    PUBLISH = "publish"
    """A run of publish requests of one session, which is one step of the grid."""


class Span(Protocol):
    """One operation under way."""

    def note(self, name: str, value: str | int) -> None:
        """Write something down. Never a secret, a principal or anything else that a client has made up."""


class Tracer(Protocol):
    """Makes spans. Nothing here blocks or raises; an exception that leaves the block is noted and goes on."""

    def span(self, operation: Operation) -> AbstractContextManager[Span]:
        """Time *operation*, from here to the end of the block; what begins inside it belongs to it."""


class NoTracer:
    """A ``Tracer`` and its only span in one: less than half a microsecond for each operation, and no memory."""

    __slots__ = ()

    def span(self, operation: Operation) -> NoTracer:  # noqa: ARG002 - all are alike
        """See the port."""
        return self

    def note(self, name: str, value: str | int) -> None:
        """See the port."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let everything pass."""


NO_TRACER: Final = NoTracer()
"""One is enough."""
