"""A reader of topics with history: every event behind a place, once, in order, from pages and from live updates (P14).

```text
            ask a page                complete, and all that is selected comes live from there
 reading ───────────────▶ reading ───────────────────────────────────────────────────────────▶ live
    ▲                                                                                            │
    └──── an update that is a snapshot or took the place of others; too many wait; a failover ───┘
```

**Reading**, a page is asked for when the application has taken the last one: a slow reader costs the server nothing.
**Live**, each update is the next event: they come in the order of their partition (``positions``), as long as they are
no snapshots and took the place of none. What does not fit in is no news but a hint: it is left to the next page. What
comes live while pages are read is kept, as far as there is room, and follows the last page.

Everything is told apart by event ids, which rise within a partition and are the same at every node for ever. So nothing
here depends on which node answers, and a failover is nothing but a reason to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.core.client.errors import InvalidPosition
from gateway.core.client.types import Update
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId
from gateway.core.wire.packets import EARLIEST, NOW, HistoryPart

SEPARATOR: Final = ","
"""Between the event ids of a position."""

Place = tuple[int, int]
"""Of an event in its partition: generation and sequence."""

_NOWHERE: Final = (-1, -1)
"""A place before every event."""


def parse_position(text: str) -> dict[int, EventId]:
    """Read a position: an event id, or several of different partitions with commas between them.

    Raises:
        InvalidPosition: it is none.
    """
    found: dict[int, EventId] = {}
    for each in text.split(SEPARATOR):
        number, _, rest = each.strip().partition("-")
        try:
            place_of(EventId(each.strip()))
            partition = int(number)
        except ValueError:
            partition = -1
        if not (0 <= partition < TOPIC_PARTITIONS and str(partition) == number and rest) or partition in found:
            known = f"{EARLIEST!r}, {NOW!r}, an event id, or what the position of a stream was"
            raise InvalidPosition(f"{text[:100]!r} is no position; give {known}")
        found[partition] = EventId(each.strip())
    return found


def show_position(places: Mapping[int, EventId]) -> str | None:
    """Write a position as ``parse_position`` reads it; None if there is none."""
    return SEPARATOR.join(places[number] for number in sorted(places)) or None


class LogReader:
    """Puts the events of one stream in order.

    Args:
        start: where to begin: a position, ``earliest`` or ``now``.
        size: live updates that are kept while the application is slow; beyond, they are read from the history later.
        octets: bytes of them, likewise.

    Attributes:
        earliest: whether partitions without a place are read from the earliest event that is kept.
        is_live: whether each update that comes is the next event.
        is_waiting: whether there is nothing to read until something comes: the last page was complete, but it cannot
            be told yet whether everything comes live from there.
        missing: topics of which something is missing at a gap that was read last, some of them.
    """

    def __init__(self, start: str, *, size: int, octets: int) -> None:
        self.earliest = start != NOW
        self.is_live = False
        self.is_waiting = False
        self.missing: tuple[str, ...] = ()
        self._read: dict[int, EventId] = {} if start in {EARLIEST, NOW} else parse_position(start)
        self._consumed = dict(self._read)
        self._places = {number: place_of(event) for number, event in self._read.items()}
        self._ready: deque[tuple[Update, int]] = deque()
        self._later: deque[tuple[Update, int]] = deque()
        self._needed: dict[int, Place] = {}
        self._last: Update | None = None
        self._gap = False
        self._size = size
        self._octets = octets
        self.bytes = 0

    def __len__(self) -> int:
        """Count the events that wait for the application."""
        return len(self._ready)

    # --- The application --------------------------------------------------------------------------------------------

    @property
    def position(self) -> str | None:
        """Up to where the application has had everything; None if it has yet to begin at the earliest event.

        An update has been had when the next one is asked for.
        """
        return show_position(self._consumed)

    def consume(self) -> None:
        """The application is done with the update that it took last."""
        if self._last is not None:
            event = EventId(self._last.event_id)
            self._consumed[int(event.partition("-")[0])] = event
            self._last = None
        if not self._ready:
            # What lies between was not for this stream.
            self._consumed.update(self._read)

    @property
    def is_at_gap(self) -> bool:
        """Whether events before the next one are not kept any more."""
        return bool(self._ready) and self._ready[0][0].gap

    def drop(self) -> None:
        """Forget what waits: the application shall not have it, and has not had it."""
        if self._ready:
            self._read = dict(self._consumed)
        self._ready.clear()
        self._later.clear()
        self.bytes = 0

    def take(self) -> Update:
        """Take the next event out.

        Raises:
            IndexError: none waits.
        """
        update, octets = self._ready.popleft()
        self.bytes -= octets
        self._last = update
        return update

    # --- The server ---------------------------------------------------------------------------------------------------

    @property
    def after(self) -> dict[int, EventId]:
        """Up to where everything has been read: what the next page is asked for."""
        return dict(self._read)

    def offer(self, update: Update, octets: int) -> None:
        """Take a live update in, of so many bytes."""
        try:
            number, place = int(update.event_id.partition("-")[0]), place_of(EventId(update.event_id))
        except ValueError:
            return  # nothing that this release knows
        if place <= self._places.get(number, _NOWHERE):
            return
        self.is_waiting = False
        if update.snapshot or update.folded:
            self._need(number, place)
        elif self.is_live:
            if self._has_room(octets):
                self._put(number, place, update, octets)
            else:
                self._need(number, place)
        elif self._has_room(octets):
            self._later.append((update, octets))
            self.bytes += octets
        else:
            self._forget_later()
            self._need(number, place)

    def interrupt(self) -> None:
        """What comes live from now on may not be the next event: the history has to be read before."""
        self.is_live = False
        self.is_waiting = False

    def wake(self) -> None:
        """Something has changed that may let it go on."""
        self.is_waiting = False

    def answered(self, part: HistoryPart, *, holds: bool) -> None:
        """Take a page in.

        Args:
            part: the answer.
            holds: whether everything that is selected comes live from where the page ends: all current values had come
                when it was asked for, and nothing has happened since that made the server send them again.
        """
        if part.gap:
            self._gap = True
            self.missing = part.missing
        for event in part.events:
            number, place = int(event.event.partition("-")[0]), place_of(event.event)
            if place > self._places.get(number, _NOWHERE):
                update = Update(
                    *(event.topic, event.value, event.version, event.event, event.snapshot, event.removed), folded=0
                )
                self._put(number, place, update, 0)
        for number, reached in part.positions.items():
            if place_of(reached) > self._places.get(number, _NOWHERE):
                self._places[number], self._read[number] = place_of(reached), reached
        self._drop_read()
        if not part.complete:
            return
        self._needed = {
            number: place for number, place in self._needed.items() if place > self._places.get(number, _NOWHERE)
        }
        if self._needed:
            return
        if not holds:
            # What came live meanwhile is in the next page: nothing more may come that would have it asked for.
            self.is_waiting = not self._later
            return
        self.is_live = True
        later, self._later = self._later, deque()
        for update, octets in later:
            self.bytes -= octets
            self.offer(update, octets)

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _put(self, number: int, place: Place, update: Update, octets: int) -> None:
        if self._gap:
            update = replace(update, gap=True)
            self._gap = False
        self._ready.append((update, octets))
        self.bytes += octets
        self._places[number], self._read[number] = place, EventId(update.event_id)

    def _need(self, number: int, place: Place) -> None:
        self._needed[number] = max(place, self._needed.get(number, _NOWHERE))
        self.is_live = False

    def _has_room(self, octets: int) -> bool:
        return len(self._ready) + len(self._later) < self._size and self.bytes + octets <= self._octets

    def _drop_read(self) -> None:
        """Forget what came live and was read since."""
        while self._later:
            update, octets = self._later[0]
            number, place = int(update.event_id.partition("-")[0]), place_of(EventId(update.event_id))
            if place > self._places.get(number, _NOWHERE):
                return
            self._later.popleft()
            self.bytes -= octets

    def _forget_later(self) -> None:
        while self._later:
            update, octets = self._later.popleft()
            self.bytes -= octets
            self._need(int(update.event_id.partition("-")[0]), place_of(EventId(update.event_id)))
