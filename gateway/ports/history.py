"""Histories of topics in the grid. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import EventId, TopicPath
from gateway.ports.topics import TopicValue

EVENT_BYTES: Final = 64
"""Bytes counted for each event of a history besides its value: what Redis needs for its id, version and time."""

MOST_HISTORIES: Final = 1_000
"""Topics with history in one partition. An empty history takes some 1.5 KiB of Redis, and a sweep looks at each."""

DEFAULT_HISTORY_BYTES: Final = 4 * 1024**2
"""Bytes that all histories of a partition keep together; the same default as the setting ``history_bytes``."""


class HistoryQuestion(NamedTuple):
    """What is asked of one topic's history.

    Attributes:
        topic: whose.
        after: the event up to which all is known, of this topic or of any other one of its partition; None for the
            earliest that is kept.
        limit: most events to read, about: those that were published in one step come together, up to a hundred.
    """

    topic: TopicPath
    after: EventId | None
    limit: int


class HistoryPage(NamedTuple):
    """What a topic's history has after a place.

    Attributes:
        events: in order. Each is what its followers were sent when it was published, with the same event id for ever;
            a removal has no value.
        has_gap: whether there was an event between the place and the first of ``events`` (or now, if there are none)
            which is not kept. True also where that cannot be told.
        is_last: whether these were all there were.
    """

    events: Sequence[TopicValue]
    has_gap: bool
    is_last: bool


class KeptTopics(NamedTuple):
    """Some topics of one partition that keep history.

    Attributes:
        topics: in no order; one may be in two pages.
        step: where the next page begins; None if there is none.
    """

    topics: Sequence[TopicPath]
    step: str | None


class HistoryStore(Protocol):
    """Histories of topics: all events for a count, an age and bytes. They are written by publishing.

    A history has the newest events of its topic. It keeps as many as its count says, or a few dozen or a thirty-second
    more, but no more bytes than it may, and none that is older, but for the time between two sweeps. All histories of a
    partition keep no more than they may together: a publish cuts the history that it adds to.
    """

    async def read(self, partition: int, questions: Sequence[HistoryQuestion]) -> list[HistoryPage]:
        """Read histories of topics of one partition; an answer per question. They need not be of one moment.

        Raises:
            GridUnavailable: see the module.
        """

    async def topics(self, partition: int, *, step: str | None, count: int) -> KeptTopics:
        """Name some topics of a partition that keep history, without blocking the grid.

        Args:
            partition: which.
            step: the ``step`` of the page before; None for the first page.
            count: about how many.

        Raises:
            ValueError: *step* is not from a page.
            GridUnavailable: see the module.
        """

    async def sweep(self, partition: int, topics: Sequence[tuple[TopicPath, HistoryLimits | None]]) -> int:
        """Cut events that are too old; drop histories of topics that shall have none any more, or are forgotten.

        Args:
            partition: of all of them.
            topics: each with how much it keeps; None for no history.

        Returns:
            How many events were cut, about: those of one step count as one.

        Raises:
            GridUnavailable: see the module. What has been cut stays so; the next sweep does the rest.
        """

    async def restore(self, topic: TopicPath, events: Sequence[TopicValue], limits: HistoryLimits) -> int:
        """Put events back that the history of a topic had before the grid lost writes.

        Only those are written that are newer than all that the history has, with their ids. Where one between is
        missing, readers will be told of a gap.

        Args:
            topic: whose.
            events: in order.
            limits: how much history it keeps.

        Returns:
            How many were written.

        Raises:
            GridUnavailable: see the module.
        """
