"""Values, versions and streams of topics in the grid. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, GridGeneration, RequestNumber, TopicPath, Version
from gateway.core.zones.routes import Arrival, Path
from gateway.core.zones.stamps import Origin, Stamp
from gateway.ports.errors import Fenced, GridRefused
from gateway.ports.session_records import Ownership

NEVER: Final = 0
"""In the place of a time: a value does not end."""


class TopicValue(NamedTuple):
    """One publish, as the grid keeps and streams it.

    Attributes:
        topic: its path.
        version: of the value, as it is shown: not below the floor of the grid's generation when it was read
            (``gateway.core.topics.versions``), so that it may be higher than its publisher was told.
        event: id of the publish; stays what it was, whatever happens to the version.
        value: JSON text; empty if the topic was removed.
        ends: when it ends, in milliseconds of the time of the grid; ``NEVER`` if it does not.
    """

    topic: TopicPath
    version: Version
    event: EventId
    value: bytes
    ends: int = 0


NO_NEW_TOPICS: Final = -1
"""In a publish command: a topic that does not exist is not created."""


VALUE_BYTES: Final = 128
"""Bytes counted for each value besides topic and value: measured, what Redis needs for the two, version and event."""

ENTRY_BYTES: Final = 64
"""Bytes counted for each entry of a stream besides topic and value, likewise."""


class PublishCommand(NamedTuple):
    """One publish of one session's request.

    Attributes:
        ownership: for whom; an epoch older than one that published here before is refused.
        request: the request's number, the identity of the publish within its session.
        settled: every request up to this number has been answered and its answer acknowledged; receipts up to it may
            be forgotten.
        topic: which topic.
        value: JSON text.
        stored: whether the grid holds the session, so that its end will remove its receipts. If not, they are forgotten
        some time after the last publish; by then its node has long had the answers.
        most_topics: a topic that does not exist is created only if its partition holds fewer than so many; 0 for no
            limit, ``NO_NEW_TOPICS`` to create none.
        most_bytes: a publish that makes its topic's partition grow is executed only if that holds no more than so many
            bytes of topics and values then, ``VALUE_BYTES`` for each included; 0 for no limit.
        history: how much history the topic keeps, this event included (``HistoryStore``); None for none. A topic that
            would be one too many with history is not created, nor is anything published to it.
        ttl: seconds after which the value ends, from its execution on, by the time of the grid; 0 for never. The end is
            executed by who asks what is ``due``.
    """

    ownership: Ownership
    request: RequestNumber
    settled: RequestNumber
    topic: TopicPath
    value: bytes
    stored: bool = True
    most_topics: int = 0
    most_bytes: int = 0
    history: HistoryLimits | None = None
    ttl: float = 0.0


class Published(NamedTuple):
    """A publish is in the grid.

    Attributes:
        version: of the value; 0 if it was executed before and its receipt is settled.
        event: id of the event; empty likewise.
        duplicate: True if an earlier command with this request had been executed; nothing was written now.
        created: True if the topic did not exist before; never of a duplicate.
    """

    version: Version
    event: EventId
    duplicate: bool
    created: bool = False


class NotCreated(NamedTuple):
    """The topic does not exist, and the command's ``most_topics`` kept it from being created.

    Or its history would be one too many in its partition (``MOST_HISTORIES``).

    That is the fate of the request for good: it is remembered like a publish, and a command with the same request has
    the same answer.

    Attributes:
        duplicate: as of ``Published``.
    """

    duplicate: bool


class NotStored(NamedTuple):
    """The command's ``most_bytes`` kept the value from being stored; remembered as ``NotCreated`` is.

    Attributes:
        duplicate: as of ``Published``.
    """

    duplicate: bool


PublishResult: TypeAlias = "Published | NotCreated | NotStored | Fenced | GridRefused"
"""What became of a publish. ``GridRefused`` is certain: nothing was done for it."""


class StreamPosition(NamedTuple):
    """A place in a topic partition's stream: everything up to and including it has been seen.

    Attributes:
        grid_generation: of the grid when the entry was written, or as it is where it has no entry yet; 0 before all.
        sequence: contiguous within a generation; 0 before its first entry.
    """

    grid_generation: GridGeneration
    sequence: int

    @classmethod
    def of(cls, event: EventId) -> StreamPosition:
        """Tell where in its partition's stream a value was published."""
        generation, sequence = place_of(event)
        return cls(GridGeneration(generation), sequence)

    def event(self, partition: int) -> EventId:
        """Name this place in the stream of a partition, as an update that was published there is named."""
        return EventId(f"{partition}-{self.grid_generation}-{self.sequence}")


class Arrived(NamedTuple):
    """How an event came from another cluster (P18).

    Attributes:
        arrival: over which kind of link.
        origin: which publish it is.
        stamp: of its value; None if it has none.
        path: what it had left on its way.
    """

    arrival: Arrival
    origin: Origin
    stamp: Stamp | None
    path: Path = ()


PUBLISHED_HERE: Final[Mapping[int, Arrived | None]] = MappingProxyType({})
"""How the values of a batch came of which clients of this cluster published all."""


class TailBatch(NamedTuple):
    """Entries of one topic partition, in order and without a hole.

    Attributes:
        partition: which topic partition.
        values: the publishes; ``restored`` values are among them. None if all of the entries were of other programs.
        position: of the last entry.
        arrived: places in ``values`` of what was not published here, and how it came; None for a restored value, of
            which that is not known any more.
    """

    partition: int
    values: tuple[TopicValue, ...]
    position: StreamPosition
    arrived: Mapping[int, Arrived | None] = PUBLISHED_HERE


@dataclass(frozen=True, slots=True)
class PositionLost:
    """The stream no longer continues from where the reader was: trimmed past it, or the grid changed.

    The partition is not followed any more. Whoever reads must read the values again and follow from a new position.

    Attributes:
        partition: which topic partition.
    """

    partition: int


class TopicPage(NamedTuple):
    """Some topics of one partition.

    Attributes:
        values: in no order; a topic may be in two pages.
        step: where the next page begins; None if there is none.
    """

    values: Sequence[TopicValue]
    step: str | None


TailItem: TypeAlias = TailBatch | PositionLost


class TopicStore(Protocol):
    """Values, versions and streams of topics in the grid."""

    async def publish(self, commands: Sequence[PublishCommand]) -> list[PublishResult]:
        """Execute publishes in order; one answer per command.

        Each command is one atomic step: refuse a duplicate (answering with the first execution's receipt), raise the
        version, store the value, append to the partition's stream. Commands of one session must come in the order of
        their request numbers; then each is executed exactly once, whichever nodes send it how often.

        Raises:
            GridUnavailable: of the commands per partition a prefix has been executed; send all of them again.
        """

    async def position(self, partition: int) -> StreamPosition:
        """Tell the end of a partition's stream: before the first entry of the grid's generation, its sequence 0.

        Raises:
            GridUnavailable: see the module.
        """

    async def between(self, partition: int, after: StreamPosition, upto: StreamPosition) -> Sequence[TopicValue] | None:
        """Read a stretch of a partition's stream again: one read, whose size the caller bounds by the two places.

        Args:
            partition: which.
            after: the place before the first entry.
            upto: the place of the last one, not before *after*.

        Returns:
            The entries, in order, ``restored`` values among them. None if the stream does not hold all of them any
            more, or the two places are of different generations of the grid, so that entries between may be lost.

        Raises:
            GridUnavailable: see the module.
        """

    def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        """Read all values of a partition, in pages and without blocking the grid.

        A value published meanwhile may be read in its old or new form, or missed if its topic is new: take the
        ``position`` before and follow from there, and nothing is missed.

        Raises:
            GridUnavailable: see the module; the read has to start again.
        """

    async def scan(self, partition: int, *, step: str | None, count: int) -> TopicPage:
        """Read some topics of a partition without blocking the grid, so that they can be listed page by page.

        A topic that exists from the first page to the last is in one of them at least.

        Args:
            partition: which.
            step: the ``step`` of the page before; None for the first page.
            count: about how many topics to look at.

        Raises:
            ValueError: *step* is not from a page.
            GridUnavailable: see the module.
        """

    async def read(self, topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        """Read the values of single topics; None for those that have none.

        Raises:
            GridUnavailable: see the module.
        """

    async def remove(self, topic: TopicPath, *, keep: float, history: HistoryLimits | None = None) -> Published | None:
        """Put a removal, with a higher version, in the place of a topic's value; every follower sees it.

        For a while the topic is there still, without a value, so that nobody who was away takes its last value for the
        present one. A topic that is published to again goes on from the removal's version, also when that is forgotten.

        Args:
            topic: which.
            keep: seconds to remember the removal, at least.
            history: how much history the topic keeps: it begins anew, with the removal.

        Returns:
            Version and event of the removal, a duplicate if the topic was removed before; None if there is no such
            topic.

        Raises:
            GridUnavailable: see the module.
        """

    async def due(self, partitions: Sequence[int], *, limit: int) -> Sequence[TopicPath]:
        """Name topics whose value is to end by now, those due longest first in each partition.

        Args:
            partitions: in which.
            limit: most to name of each of them.

        Raises:
            GridUnavailable: see the module.
        """

    async def end(self, topics: Sequence[tuple[TopicPath, HistoryLimits | None]], *, keep: float) -> int:
        """End values whose time is over: each is one atomic step that puts a removal in its place, as ``remove`` does.

        A value is left alone whose time is not over, or that another publish has taken the place of. So it ends once,
        whoever asks how often, and never a value that was published later. A history goes on, with the end as an event.

        Args:
            topics: which, and how much history each keeps.
            keep: seconds to remember the removals, at least.

        Returns:
            How many have ended now.

        Raises:
            GridUnavailable: some may have; asking again does no harm.
        """

    async def restore(self, values: Sequence[TopicValue]) -> int:
        """Put values back of which a grid that lost writes has an older publish, or none.

        Each is written only if its event is later than the stored one, and appended to its partition's stream so that
        every follower sees it, with a version above all that this generation has shown of the topic. A topic that was
        removed does not come back by it, nor does a removal of what the grid does not hold. It ends when it would have.

        Returns:
            How many were written.

        Raises:
            GridUnavailable: see the module.
        """


class TopicTail(Protocol):
    """The streams of the partitions a node has interest in, read by one waiting connection per server."""

    def follow(self, partition: int, position: StreamPosition) -> None:
        """Read *partition* from after *position* on. Does not wait; takes effect at once."""

    def unfollow(self, partition: int) -> None:
        """Stop reading *partition*; entries already under way may still come."""

    def pause(self, partition: int) -> None:
        """Read nothing more of a followed partition until ``resume``; other partitions are not concerned.

        Its position is kept, what is under way may still come, and it may be lost meanwhile, if the stream is trimmed
        past it. ``follow`` ends a pause. No effect on a partition that is not followed.
        """

    def resume(self, partition: int) -> None:
        """Read a paused partition again, from where it was left; no effect on any other."""

    def items(self) -> AsyncIterator[TailItem]:
        """Yield what the followed partitions bring, for ever.

        While the grid is unreachable it waits. A followed partition whose stream does not continue contiguously from
        its position yields ``PositionLost``, never a batch with a hole.
        """
