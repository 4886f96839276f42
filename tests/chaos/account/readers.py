"""What readers of topics with history were handed (P14): each event once, in order, and gaps told where there are any.

A reader goes on for ever: its sessions end, and the next one begins at the position of the one before. So all that it
was handed, whoever served it, is one list for each partition, whose events only rise; and between two of them lies
nothing that was acknowledged to a publisher, unless the second one tells of a gap, or the grid lost it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from gateway.core.topics.selectors import matches, parse_selector
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, TopicPath
from tests.chaos.account.forgotten import Forgotten, undone
from tests.chaos.account.publishes import Publishes
from tests.chaos.account.violation import Violation

if TYPE_CHECKING:
    from tests.chaos.account.durables import DurableReader

Place = tuple[int, int]
"""Of an event in its partition: generation and sequence."""

READ: Final = 5.0
"""Seconds within which a reader has been handed an event, also one that rests now and then on a busy machine."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a reader was handed, or that a publisher was told.

    Attributes:
        at: when.
        place: in its partition.
        topic: of which.
        value: the count.
        gap: whether the reader was told of a gap before it.
        asked: when its publisher asked for it.
    """

    at: float
    place: Place
    topic: str
    value: int
    gap: bool = False
    asked: float = -inf


NOTHING_READ: Final = Event(-inf, (-1, -1), "", 0)
"""Comes before all events."""


class Reader:
    """What one reader was handed.

    Args:
        who: the client.
        selector: of which topics.
    """

    def __init__(self, who: str, selector: str) -> None:
        self.who = who
        self.selector = parse_selector(selector)
        self.events: dict[int, list[Event]] = defaultdict(list)
        self.last: dict[str, int] = {}
        self.gaps = 0

    def read(self, at: float, topic: str, value: int, event: str, *, gap: bool) -> None:
        """Take an event in."""
        partition = int(event.partition("-")[0])
        self.events[partition].append(Event(at, place_of(EventId(event)), topic, value, gap))
        self.last[topic] = value
        self.gaps += gap

    def behind(
        self, values: Mapping[str, tuple[int, int]], publishes: Publishes, forgotten: Sequence[Forgotten]
    ) -> list[str]:
        """Compare the last values that it was handed with those of the grid, when nothing is published.

        A value that nodes have put back is none of its events if the grid lost the event before the reader was handed
        it: it had gone past that, or the event was too young.
        """
        wanted = {topic: value for topic, (value, _) in values.items() if matches(self.selector, TopicPath(topic))}
        return [
            f"{topic} was read up to {self.last.get(topic)} of {value}"
            for topic, value in wanted.items()
            if self.last.get(topic) != value and not (forgotten and self._is_lost(topic, value, publishes, forgotten))
        ]

    def _is_lost(self, topic: str, value: int, publishes: Publishes, forgotten: Sequence[Forgotten]) -> bool:
        told = publishes.topics.get(topic)
        receipt = None if told is None else told.receipts.get(value)
        if receipt is None or not receipt.event:
            return True  # nobody was told that it was published
        asked = publishes.topics[topic].times[value]
        if any(each.began - READ <= receipt.at and asked <= each.ended for each in forgotten):
            return True
        events = self.events[int(receipt.event.partition("-")[0])]
        return bool(events) and place_of(EventId(receipt.event)) < events[-1].place


class Readers:
    """All readers of a run.

    Attributes:
        all: of them, but for those of durable subscriptions.
        durables: of these.
        violations: found by ``judge``.
    """

    def __init__(self) -> None:
        self.all: list[Reader] = []
        self.durables: list[DurableReader] = []
        self.violations: list[Violation] = []

    @property
    def figures(self) -> str:
        """Tell how much was read."""
        events = sum(len(each) for reader in self.all for each in reader.events.values())
        return f"{events} events by {len(self.all)} readers, {sum(each.gaps for each in self.all)} gaps told"

    @property
    def durable_figures(self) -> str:
        """Tell how much was read by durable subscriptions."""
        events = sum(len(each) for reader in self.durables for each in reader.events.values())
        openings = sum(len(each.openings) for each in self.durables)
        again = sum(each.again for each in self.durables)
        gaps = sum(each.gaps for each in self.durables)
        return f"{events} events in {openings} openings, {again} came again, {gaps} gaps told"

    def judge(self, publishes: Publishes, forgotten: Sequence[Forgotten]) -> None:
        """Compare what was handed out with what publishers were told, once."""
        for reader in self.all:
            told = told_events(reader, publishes)
            for partition in told.keys() | reader.events.keys():
                self._judge(reader, reader.events[partition], told[partition], forgotten, NOTHING_READ)
        for durable in self.durables:
            (published,) = told_events(durable, publishes).values() or ([],)
            for number, opening in enumerate(durable.openings):
                if opening.events:
                    begin = self._begin(durable, number, published, forgotten)
                    self._judge(durable, opening.events, published, forgotten, begin)

    @staticmethod
    def _begin(
        reader: DurableReader, opening: int, published: Sequence[Event], forgotten: Sequence[Forgotten]
    ) -> Event:
        """Tell behind which of the events that are possible an opening has begun: of which nothing is missing."""
        first = reader.openings[opening].events[0]
        possible = reader.beginnings(opening, forgotten)
        return next(
            (each for each in possible if each.place < first.place and not _between(published, each, first, forgotten)),
            possible[0],
        )

    def _judge(
        self,
        reader: Reader,
        events: Sequence[Event],
        published: Sequence[Event],
        forgotten: Sequence[Forgotten],
        before: Event,
    ) -> None:
        known = {event.place: event for event in published}
        for event in events:
            wanted = known.get(event.place)
            if wanted is not None and (wanted.topic, wanted.value) != (event.topic, event.value):
                what = f"{event.place} is {event.topic}={event.value}, and was {wanted.topic}={wanted.value}"
                self._violated(reader, event.at, what)
            if event.place <= before.place:
                self._violated(reader, event.at, f"{event} came after {before}")
                continue
            missed = _between(published, before, event, forgotten)
            if event.gap and not any(each.began <= event.at for each in forgotten):
                self._violated(reader, event.at, f"a gap is told before {event}, and nothing was lost")
            if missed and not event.gap:
                what = f"{len(missed)} events are missing between {before} and {event}, such as {missed[0]}"
                self._violated(reader, event.at, what)
            before = event

    def _violated(self, reader: Reader, at: float, what: str) -> None:
        self.violations.append(Violation("P14", at, reader.who, what))


def told_events(reader: Reader, publishes: Publishes) -> defaultdict[int, list[Event]]:
    """List what publishers were told of the topics of a reader, by partition, in order."""
    told: defaultdict[int, list[Event]] = defaultdict(list)
    for name, topic in publishes.topics.items():
        if matches(reader.selector, TopicPath(name)):
            for value, receipt in topic.receipts.items():
                if receipt.event:
                    place = place_of(EventId(receipt.event))
                    told[int(receipt.event.partition("-")[0])].append(
                        Event(receipt.at, place, name, value, asked=topic.times[value])
                    )
    for events in told.values():
        events.sort(key=lambda event: event.place)
    return told


def _between(published: Sequence[Event], before: Event, event: Event, forgotten: Sequence[Forgotten]) -> list[Event]:
    """List what was published between two events, and was there when the second one was handed out."""
    after = bisect_right(published, before.place, key=_place)
    return [
        each
        for each in published[after : bisect_left(published, event.place, key=_place)]
        # Nodes may have put back others around what the grid has forgotten.
        if not undone(forgotten, each.asked, each.at, until=event.at)
    ]


def _place(event: Event) -> Place:
    return event.place
