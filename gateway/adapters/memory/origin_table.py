"""Of the topics of one partition of an in-memory grid: stamps of their values, and which events of others they have."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.topics.versions import place_of
from gateway.core.types import TopicPath
from gateway.core.zones.routes import ClusterId
from gateway.core.zones.stamps import Mark, Seen, Stamp, StreamPlace, stamp_of, stamped, takes_value
from gateway.core.zones.stream_times import StreamTimes
from gateway.ports import MOST_LINKS, MOST_ORIGINS, ForwardedEvent, LeavingEvent, LinkName, NotTaken, TopicValue


@dataclass(slots=True)
class _Origins:
    """Of one topic.

    Attributes:
        mark: of the newest stamped value.
        seen: versions that the history has, by the cluster that published them.
    """

    mark: Mark | None = None
    seen: dict[ClusterId, Seen] = field(default_factory=dict)


class Origins:
    """Of one partition. Every method is part of one atomic step."""

    def __init__(self) -> None:
        self._topics: dict[TopicPath, _Origins] = {}
        self._terms: dict[LinkName, int] = {}
        self._times = StreamTimes()

    def note_time(self, place: StreamPlace, now: float) -> None:
        """See ``OriginStore.note_times``."""
        self._times.note(place, int(now * 1000))

    def stamp(self, event: LeavingEvent, cluster: ClusterId, now: float) -> Mark | None:
        """See ``OriginStore.stamp``."""
        topic = self._topics.setdefault(event.topic, _Origins())
        place = StreamPlace(*place_of(event.event))
        time = self._times.time_of(place, int(now * 1000))
        mark = stamped(topic.mark, place, event.version, cluster=cluster, time=time)
        if mark is not None:
            topic.mark = mark
        return mark

    def is_stale(self, event: ForwardedEvent) -> bool:
        """Tell whether an event has come by an earlier carrier than one before; its term is noted if not."""
        known = self._terms.pop(event.link, 0)
        self._terms[event.link] = max(known, event.term)
        while len(self._terms) > MOST_LINKS:
            del self._terms[next(iter(self._terms))]
        return event.term < known

    def held(self, value: TopicValue | None, topic: TopicPath, cluster: ClusterId, now: float) -> Stamp | None:
        """Tell the stamp of the value that a topic has (``stamps.stamp_of``)."""
        mark = self._topics.get(topic, _Origins()).mark
        place = None if value is None else StreamPlace(*place_of(value.event))
        time = 0 if place is None else self._times.time_of(place, int(now * 1000))
        return stamp_of(mark, place, cluster=cluster, time=time)

    def why_not(self, event: ForwardedEvent, held: Stamp | None) -> NotTaken | None:
        """Tell why an event is not to be taken, where the value that is there has this stamp; None if it is new."""
        topic = self._topics.get(event.topic, _Origins())
        if event.history is None:
            return None if takes_value(held, event.stamp) else NotTaken.OLDER
        seen = topic.seen.get(event.origin.cluster)
        if event.repeated:
            return NotTaken.DUPLICATE
        if seen is None:
            return NotTaken.ORIGINS if len(topic.seen) >= MOST_ORIGINS else None
        return None if Seen(list(seen.ranges)).take(event.origin.version) else NotTaken.DUPLICATE

    def note(self, event: ForwardedEvent, value: TopicValue, held: Stamp | None) -> None:
        """An event has been taken, as this value, in the place of one of this stamp."""
        topic = self._topics.setdefault(event.topic, _Origins())
        if event.history is not None:
            topic.seen.setdefault(event.origin.cluster, Seen()).take(event.origin.version)
        if event.stamp is not None and takes_value(held, event.stamp):
            place = StreamPlace(*place_of(value.event))
            topic.mark = Mark(place, event.stamp, event.origin, event.arrival, event.path)

    def forget(self, topic: TopicPath) -> None:
        """A removed topic is forgotten."""
        self._topics.pop(topic, None)

    def inventory(self) -> set[TopicPath]:
        """Name the topics of which something is kept."""
        return set(self._topics)
