"""What a hook is: a receiver of events over HTTP, and which events it gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NewType
from urllib.parse import urlsplit

from gateway.core.journal import EVENT_TYPES
from gateway.core.journal.events import EVENTS_DROPPED

HookName = NewType("HookName", str)
"""Name of a hook, as its section says; it has no blanks."""

MOST_HOOKS: Final = 16
"""Hooks of a cluster: each reads the 16 streams of the journal by itself, some 20 small steps of the grid a second."""

ANY: Final = "*"
"""At the end of a pattern: whatever follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook. Its keys are not shown.

    Attributes:
        name: of the hook; its cursor in the grid goes by it.
        url: where events are posted.
        events: names of the types of events that it gets.
        keys: sign what is posted; the second one, if there is one, is the one that is being replaced.
        batch_events: events in one request, at most.
        batch_bytes: bytes of one request, at most, unless a single event has more.
        wait: seconds for which events gather, at most.
        timeout: seconds that a request may take.
        ca_file: certificates that sign the one of the receiver; None for the system's trust store.
    """

    name: HookName
    url: str = field(repr=False)
    events: frozenset[str]
    keys: tuple[bytes, ...] = field(repr=False)
    batch_events: int = 100
    batch_bytes: int = 256 * 1024
    wait: float = 1.0
    timeout: float = 10.0
    ca_file: Path | None = None

    @property
    def shown_url(self) -> str:
        """Where events are posted, for people: scheme, host and port. Paths and queries of receivers may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def wants(self, kind: str) -> bool:
        """Tell whether it gets events of a type; that events are missing is told to every hook."""
        return kind in self.events or kind == EVENTS_DROPPED.name


def events_of(patterns: Iterable[str]) -> frozenset[str]:
    """Find the types of events that patterns name.

    Args:
        patterns: names of types, or their beginnings with ``*`` behind.

    Raises:
        ValueError: one of them names none; the message says which, and what there is.
    """
    found: set[str] = set()
    for pattern in patterns:
        named = {
            name
            for name in EVENT_TYPES
            if name == pattern or (pattern.endswith(ANY) and name.startswith(pattern.removesuffix(ANY)))
        }
        if not named:
            raise ValueError(f"{pattern!r} names no event of the journal")
        found |= named
    return frozenset(found)
