"""Where traces go: one span for each operation of which an operator asks afterwards why it took so long."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol


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
