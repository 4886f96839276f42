"""Which events count: each one once, whichever ways it came (Z1), and of the values of a topic the newest (Z6).

**Values.** A value that crosses has a *stamp*: the time by which it had been published, and which cluster that was. A
cluster takes a value only if its stamp is above the one that it holds for the topic. Stamps are compared everywhere in
the same way, so that all clusters that get all values end with the same one. A repeated value has the stamp that is
held already. Times are of the clocks of grids, which differ. So a cluster that stamps a value of its own gives it a
time above the stamp that it holds: what was published knowing a value counts as later than it, whatever the clocks say.

A cluster's own values are stamped when they are about to leave, in the order in which they were published. That may be
long after they were, as a link was down or nobody asked for them. So the time is not that of the stamping
(``stream_times``), and a value that has no stamp yet is compared by the one that it would get. A value that was
overtaken by one from elsewhere before it left has no stamp, and whoever keeps only values leaves it out.

**Histories** take every event. They remember by the cluster that published it which versions of a topic they have, as
ranges: two ways to a cluster need not be equally fast, so that a lower version may come after a higher one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from gateway.core.types import Version
from gateway.core.zones.routes import Arrival, ClusterId, Path

MOST_RANGES: Final = 16
"""Ranges of versions that are remembered of a topic and a cluster. There is one, unless the ways are of unlike speed.
If there are more, the hole between the two lowest ones counts as filled: then an event may be missing, never repeated.
"""


class Stamp(NamedTuple):
    """Which of two values is the newer one; compared by its fields in their order.

    Attributes:
        time: by which the value had been published, in milliseconds since 1970, by the clock of its grid, or later than
            that.
        cluster: which one.
    """

    time: int
    cluster: ClusterId


class Origin(NamedTuple):
    """Which publish it is, in all clusters.

    Attributes:
        cluster: where it was published.
        version: of the topic, as that cluster numbered it.
    """

    cluster: ClusterId
    version: Version


class StreamPlace(NamedTuple):
    """Where an event is in the stream of its partition, in the grid that holds it.

    Attributes:
        generation: of that grid.
        sequence: within the generation.
    """

    generation: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What a cluster remembers of the last value of a topic that has a stamp.

    Attributes:
        place: of the event, in this cluster's stream.
        stamp: its stamp.
        origin: which publish it is.
        arrival: how it came.
        path: what it had left on its way here.
    """

    place: StreamPlace
    stamp: Stamp
    origin: Origin
    arrival: Arrival = Arrival.CLIENT
    path: Path = ()


def takes_value(held: Stamp | None, stamp: Stamp | None) -> bool:
    """Tell whether a value from elsewhere takes the place of what a topic has.

    Args:
        held: the stamp of that value (``stamp_of``).
        stamp: that of the one from elsewhere.
    """
    return stamp is not None and (held is None or stamp > held)


def stamp_of(mark: Mark | None, place: StreamPlace | None, *, cluster: ClusterId, time: int) -> Stamp | None:
    """Tell the stamp of the value that a topic has; of one that has none yet, which one it would get now.

    Args:
        mark: the topic's.
        place: of the event that brought the value; None if there is no value.
        cluster: this one.
        time: by which the event had been published, in milliseconds since 1970.
    """
    if place is None or (mark is not None and place <= mark.place):
        return None if mark is None else mark.stamp
    return _next_stamp(mark, cluster, time)


def stamped(mark: Mark | None, place: StreamPlace, version: Version, *, cluster: ClusterId, time: int) -> Mark | None:
    """Stamp an event that is about to leave.

    Args:
        mark: the topic's, until now.
        place: of the event. Events are stamped in the order of their places, but they may be stamped again.
        version: of the event.
        cluster: this one.
        time: by which the event had been published, by the grid's clock, in milliseconds since 1970.

    Returns:
        The mark of the event: the same one however often it is asked for. None if a later event has a stamp already;
        then it has been stamped before, or overtaken.
    """
    if mark is None or mark.place < place:
        return Mark(place, _next_stamp(mark, cluster, time), Origin(cluster, version))
    return mark if mark.place == place else None


def _next_stamp(mark: Mark | None, cluster: ClusterId, time: int) -> Stamp:
    return Stamp(time if mark is None else max(time, mark.stamp.time + 1), cluster)


@dataclass(slots=True)
class Seen:
    """Versions that a history has of a topic, as one cluster published it.

    Attributes:
        ranges: first and last of each, in order; between two is at least one version that is missing.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def take(self, version: int) -> bool:
        """Take a version. Returns False if it is there already."""
        ranges = self.ranges
        at = bisect_left(ranges, version, key=lambda each: each[1])
        # ``at`` is the first range that does not end before the version.
        if at < len(ranges) and ranges[at][0] <= version:
            return False
        if len(ranges) == MOST_RANGES and version < ranges[0][0]:
            return False
        joins_left = at > 0 and ranges[at - 1][1] == version - 1
        joins_right = at < len(ranges) and ranges[at][0] == version + 1
        first = ranges[at - 1][0] if joins_left else version
        last = ranges[at][1] if joins_right else version
        ranges[at - joins_left : at + joins_right] = [(first, last)]
        if len(ranges) > MOST_RANGES:
            ranges[:2] = [(ranges[0][0], ranges[1][1])]
        return True

    def __str__(self) -> str:
        return " ".join(f"{first}-{last}" for first, last in self.ranges)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` wrote.

        Raises:
            ValueError: it is nothing of the kind.
        """
        ranges = [(int(first), int(last)) for first, last in (each.split("-") for each in text.split())]
        return cls(ranges)
