"""Up to where a hook has come in a stream of the journal, and what it finds there next.

```text
cursor ──read──▶ entries behind it ──follow──▶ gaps and records, each with the cursor behind it
```

Each entry says how many events its stream had up to and with it. So whoever knows how many it has passed knows how
many are missing, whoever cut them and whenever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from gateway.core.journal import Record, read_records

BEGINNING: Final = (0, 0)
"""A place before every entry."""


class GapReason(Enum):
    """Why events are missing."""

    RETENTION = "retention"
    """The cap of the journal, ``journal_length``, cut them before the receiver had them."""
    JOURNAL_LOST = "journal_lost"
    """The grid had lost the stream."""
    GRID_LOST_WRITES = "grid_lost_writes"
    """The grid was restarted or promoted here, and may have lost the last events before."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in one stream.

    Attributes:
        incarnation: of the stream; empty if the stream did not exist yet.
        entry: generation and sequence of the entry up to which all is done.
        done: if not zero, only so many events of that entry are.
        passed: events that the stream had up to there, counted from its beginning.
    """

    incarnation: str
    entry: tuple[int, int] = BEGINNING
    done: int = 0
    passed: int = 0

    @property
    def text(self) -> str:
        """As the grid holds it: ``<generation>-<sequence>``, and ``.<events>`` if the entry is not done."""
        place = f"{self.entry[0]}-{self.entry[1]}"
        return f"{place}.{self.done}" if self.done else place


def read_cursor(incarnation: str, text: str, passed: int) -> Cursor:
    """Read what ``Cursor.text`` wrote.

    Raises:
        ValueError: it is none.
    """
    place, _, done = text.partition(".")
    generation, sequence = place.split("-")
    return Cursor(incarnation, (int(generation), int(sequence)), int(done or 0), passed)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a stream.

    Attributes:
        id: generation and sequence.
        events: JSON, one event a line.
        count: how many events.
        total: events that the stream had up to and with it; None if an older release wrote it.
    """

    id: tuple[int, int]
    events: bytes
    count: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """What was read of a stream.

    Attributes:
        partition: which stream.
        incarnation: of it, now; empty if it does not exist.
        cursor: of the hook.
        entries: behind the cursor, in order; that of the cursor first, if it is not done.
        total: events that the stream ever had.
    """

    partition: int
    incarnation: str
    cursor: Cursor
    entries: tuple[Entry, ...]
    total: int

    @property
    def behind(self) -> int:
        """How many events the hook has yet to pass."""
        passed = self.cursor.passed if self.cursor.incarnation in {"", self.incarnation} else 0
        return max(0, self.total - passed)


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a receiver does not get.

    Attributes:
        partition: of which stream.
        incarnation: of the stream.
        reason: why.
        after: the place before them.
        count: how many they are; None if nobody knows.
    """

    partition: int
    incarnation: str
    reason: GapReason
    after: str
    count: int | None


class Step(NamedTuple):
    """What comes next in a stream.

    Attributes:
        what: a record, a gap, or None for something that nobody can be told, such as a line that is no record.
        behind: the cursor behind it.
    """

    what: Record | Gap | None
    behind: Cursor


def follow(page: Page) -> Iterator[Step]:
    """Go through what was read, in order."""
    cursor = page.cursor
    if not page.incarnation:
        return
    if cursor.incarnation != page.incarnation:
        begun = Cursor(page.incarnation)
        if cursor.incarnation:
            yield Step(Gap(page.partition, page.incarnation, GapReason.JOURNAL_LOST, cursor.text, None), begun)
        cursor = begun
    for entry in page.entries:
        yield from _gaps(page.partition, cursor, entry)
        first = cursor.done if entry.id == cursor.entry else 0
        before = (entry.total if entry.total is not None else cursor.passed - first + entry.count) - entry.count
        records = list(read_records(entry.events))
        for number, record in enumerate(records, start=1):
            if number <= first:
                continue
            whole = number == len(records)
            cursor = replace(cursor, entry=entry.id, done=0 if whole else number, passed=before + number)
            yield Step(record if isinstance(record, dict) else None, cursor)
        if cursor.entry != entry.id or cursor.done:
            # Somebody wrote another text in its place since.
            cursor = replace(cursor, entry=entry.id, done=0, passed=before + entry.count)
            yield Step(None, cursor)


def _gaps(partition: int, cursor: Cursor, entry: Entry) -> Iterator[Step]:
    """Tell what is missing between a place and the next entry; the cursor stays, as the entry follows at once."""
    if entry.id == cursor.entry:
        return
    if entry.total is not None and (missing := entry.total - entry.count - cursor.passed) > 0:
        yield Step(Gap(partition, cursor.incarnation, GapReason.RETENTION, cursor.text, missing), cursor)
    if cursor.entry != BEGINNING and entry.id[0] > cursor.entry[0]:
        yield Step(Gap(partition, cursor.incarnation, GapReason.GRID_LOST_WRITES, cursor.text, None), cursor)
