"""Events that cross between clusters, in the topic partitions of the grid: stamped when they leave, taken once (P18).

See ``gateway.ports`` for the rules that hold for all, and ``gateway.core.zones.stamps`` for those of stamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import EventId, TopicPath, Version
from gateway.core.zones.routes import Arrival, ClusterId, Path
from gateway.core.zones.stamps import Mark, Origin, Stamp
from gateway.ports.errors import GridRefused
from gateway.ports.topics import PositionLost, StreamPosition, TailBatch
from gateway.ports.zones import LinkName

MOST_ORIGINS: Final = 64
"""Clusters of which a history remembers what it has of one topic. Each takes some dozens of bytes, up to 500."""

MOST_LINKS: Final = 128
"""Links of which a topic partition remembers the term of the last carrier; of more, those that came first are forgotten
first, and are believed again."""

LATEST_STAMP: Final = 2**52
"""Milliseconds beyond which there is no stamp: Lua's numbers are exact up to twice that. 140,000 years from now."""


def check_stamps(events: Sequence[ForwardedEvent]) -> None:
    """Check the stamps of events that are to be applied.

    Raises:
        ValueError: one has a time that no clock can have said.
    """
    for each in events:
        if each.stamp is not None and not 0 <= each.stamp.time < LATEST_STAMP:
            raise ValueError(f"{each.stamp.time} is no time of a stamp")


class LeavingEvent(NamedTuple):
    """An event of this cluster that is about to leave it.

    Attributes:
        topic: what it is about.
        version: of the value.
        event: its id.
    """

    topic: TopicPath
    version: Version
    event: EventId


class ForwardedEvent(NamedTuple):
    """An event that has come from another cluster, and was found to be one that may be taken.

    Attributes:
        link: by which it has come.
        term: of who has the link here; an event of an older term than one that came here before is refused.
        topic: what it is about, none of the system's.
        value: JSON text; empty if the topic was removed there.
        origin: which publish it is.
        stamp: of its value; None if it has none. Below ``LATEST_STAMP``.
        arrival: how it came; not from a client.
        path: what it has left on its way.
        repeated: whether it is told as a current value, not because it was published now. Histories leave it out.
        history: how much history the topic keeps here, this event included; None for none.
        most_topics: as of ``PublishCommand``.
        most_bytes: likewise.
    """

    link: LinkName
    term: int
    topic: TopicPath
    value: bytes
    origin: Origin
    stamp: Stamp | None
    arrival: Arrival
    path: Path = ()
    repeated: bool = False
    history: HistoryLimits | None = None
    most_topics: int = 0
    most_bytes: int = 0


class Taken(NamedTuple):
    """An event is in the grid of this cluster.

    Attributes:
        version: of the value here.
        event: id of the event here.
        created: whether the topic did not exist before.
    """

    version: Version
    event: EventId
    created: bool = False


class NotTaken(StrEnum):
    """Why an event was not taken. None of it is remembered: of the same event later, the answer may be another."""

    DUPLICATE = "duplicate"
    """The history has it."""
    OLDER = "older"
    """The topic has this value, or one with a later stamp; or there is nothing to remove."""
    STALE = "stale"
    """The link has a carrier of a later term."""
    TOPICS = "topics"
    """The topic does not exist, and may not be created; or its history would be one too many in its partition."""
    BYTES = "bytes"
    """The partition holds too many bytes."""
    ORIGINS = "origins"
    """The history has events of ``MOST_ORIGINS`` clusters, and this is of a further one."""


TakeResult: TypeAlias = "Taken | NotTaken | GridRefused"
"""What became of an event. ``GridRefused`` is certain: nothing was done for it."""


class OriginStore(Protocol):
    """Stamps of values, and which events of other clusters are here.

    All of it goes with its topic: when a removed topic is forgotten, nothing is left of it.
    """

    async def stamp(self, partition: int, events: Sequence[LeavingEvent], *, cluster: ClusterId) -> list[Mark | None]:
        """Stamp events of one topic partition that are about to leave this cluster (``stamps.stamped``).

        The time of a stamp is when its event had been published, as far as ``note_times`` has noted that, and now
        otherwise. Each is one step, in order. However often it is asked of an event, the answer is the same, until a
        later event of the topic has a stamp.

        Args:
            partition: which.
            events: published by clients of this cluster, in the order in which they were; or current values, however
                they came: if one came from elsewhere and is the newest still, its mark is told.
            cluster: this one (``NodeDirectory.cluster``).

        Returns:
            The mark of each; None if a later one has been stamped.

        Raises:
            GridUnavailable: see the module.
        """

    async def note_times(self) -> None:
        """Note how far each stream has come by now (``stream_times``); nothing of one that has not gone on.

        Raises:
            GridUnavailable: see the module.
        """

    async def apply(self, events: Sequence[ForwardedEvent], *, cluster: ClusterId) -> list[TakeResult]:
        """Take events of other clusters, in order; one answer per event.

        Each is one atomic step: of a history that is no duplicate, or of a value that is newer, raise the version,
        store the value, append to the stream, how it came besides. Repeated, it is refused as a duplicate, or as older.

        Args:
            events: which.
            cluster: this one.

        Raises:
            ValueError: a stamp is not below ``LATEST_STAMP``; nothing was taken.
            GridUnavailable: of the events per partition a prefix has been taken; send all of them again.
        """

    async def read_after(self, partition: int, position: StreamPosition, limit: int) -> TailBatch | PositionLost | None:
        """Read a page of a partition's stream, for who is behind the tail.

        It goes on into a later generation of the grid, as long as the stream still has the place, or the entry that
        came next: nothing that the grid has is left out then. What it has lost is in no page.

        Args:
            partition: which.
            position: after which; of ``cursors``, ``TopicStore.position`` or the page before.
            limit: entries, at most.

        Returns:
            The page; None if nothing follows; ``PositionLost`` if the stream does not continue from there.

        Raises:
            GridUnavailable: see the module.
        """
