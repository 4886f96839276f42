"""Streams of events: what a call may be answered with that does not end by itself (docs: reference/client-api.md)."""

from __future__ import annotations

from typing import Protocol


class EventSink(Protocol):
    """Where the text of one stream is written. All methods return at once."""

    @property
    def address(self) -> str:
        """Where the reader comes from, as far as trusted proxies tell."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be written."""

    def send(self, text: bytes) -> None:
        """Write; what the transport does not take is kept. No effect once it is over."""

    def backlog(self) -> int:
        """Bytes written and not yet taken by the transport: the measure of push-back."""

    def finish(self) -> None:
        """End it when everything is written, or by force if the reader does not take that within a bounded time."""

    def abort(self) -> None:
        """End it now."""


class EventSource(Protocol):
    """A stream that somebody may read. ``ended`` is called exactly once, also if it was never begun."""

    @property
    def keep_alive(self) -> float:
        """Seconds between two calls of ``idle``."""

    def begin(self, sink: EventSink) -> None:
        """Begin to write; to be called once, when the reader has been told that a stream follows."""

    def idle(self) -> None:
        """Show the reader, and whatever is between, that the connection lives, if nothing waits to be written."""

    def ended(self) -> None:
        """The connection is over."""
