"""What a hook is: a receiver of events over HTTP, and which events it gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NewType
from urllib.parse import urlsplit

from gateway.core.journal import EVENT_TYPES, Record
from gateway.core.journal.events import EVENTS_DROPPED, NAME_LENGTH, NAMES_TOLD, SESSION_SELECTIONS_CHANGED
from gateway.core.topics.selectors import Selector, overlaps, parse_selector
from gateway.core.wire.errors import GatewayError

HookName = NewType("HookName", str)
"""Name of a hook, as its section says; it has no blanks."""

MOST_HOOKS: Final = 16
"""Hooks of a cluster: each reads the 16 streams of the journal by itself, some 20 small steps of the grid a second."""

ANY: Final = "*"
"""At the end of a pattern: whatever follows."""

MOST_FILTERS: Final = 20
"""Principals, and selectors, of one hook: each event is compared with all of them, in less than a millisecond."""


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
        principals: whose events it gets of those about sessions, as the journal names them, or beginnings with ``*``
            behind; empty for everybody's.
        selectors: which changes of selections it gets: those of a selector that selects a topic which one of these
            matches, too; empty for all.
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
    principals: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()

    @property
    def shown_url(self) -> str:
        """Where events are posted, for people: scheme, host and port. Paths and queries of receivers may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def wants(self, record: Record) -> bool:
        """Tell whether it gets an event; that events are missing is told to every hook.

        Of a session whose principal the event does not tell, as those of earlier releases, it gets nothing if it wants
        those of some principals: another one's must not come to it.
        """
        kind = record["type"]
        if kind == EVENTS_DROPPED.name:
            return True
        if kind not in self.events:
            return False
        if self.principals and EVENT_TYPES[kind].about_session and not self._is_of_these(record.get("principal")):
            return False
        return not self.selectors or kind != SESSION_SELECTIONS_CHANGED.name or self._selects(record.get("names"))

    def _is_of_these(self, principal: object) -> bool:
        return isinstance(principal, str) and any(
            principal.startswith(each[:-1]) if each.endswith(ANY) else principal == each for each in self.principals
        )

    def _selects(self, names: object) -> bool:
        """Tell whether a change may be about topics that are wanted; what the event does not tell whole may be."""
        if not isinstance(names, list) or len(names) >= NAMES_TOLD:
            return True
        return any(self._overlaps(str(each)[1:]) for each in names)

    def _overlaps(self, text: str) -> bool:
        if len(text) >= NAME_LENGTH - 1:
            return True  # its end is missing
        try:
            changed = parse_selector(text)
        except GatewayError:
            return True
        return any(overlaps(each, changed) for each in self.selectors)


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
