"""The current values of what a session selects, read where they stand when there is room for them (P6).

```text
places of a partition:  0 … ─── sent ─── │ next ─── still to come ─── │ end … came after the feed began
an update of a topic:   goes out as it is │ is left to the feed        │ goes out as it is
```

So nothing of the values stands in memory for the session but two numbers for each partition, and however slowly it
reads, each value is the newest when it leaves. What is asked for topic by topic is a list of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.app.delivery.partition import Partition
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session
from gateway.core.stream.runs import Run
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import Selector, matches
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import TopicValue

NOT_COUNTED: Final[Callable[[TopicValue], None]] = lambda _: None  # noqa: E731 - shorter than a function
"""For who does not want to know what was handed out."""


class _Walk:
    """A way through the places of a partition.

    Attributes:
        next: the place to look at next.
        end: the place behind the last one.
    """

    __slots__ = ("end", "next")

    def __init__(self, end: int) -> None:
        self.next = 0
        self.end = end


class ValuesFeed:
    """The current values of topics that a session selects.

    Args:
        session: whose selections decide, as they are when a value is handed out.
        clock: time.
        selector: only of topics that it matches; None for all. Who has just selected a removed topic has no value of it
            that would have to be taken back, so removals are handed out only without a selector.
        before: what was in force already: the session has the values of these topics, and goes on being sent their
            updates, though it is sent the values again; None for nothing.
        topics: single topics to look at, and where they are.
        partitions: those to look at all topics of.
        handed_out: told of each value.
        closing: makes what is handed out behind the last value, if anything is; None for nothing.
        request: the subscribe that the values answer; None if they answer none.
        numbers: the partitions that the values may be in.

    Attributes:
        size: how many topics there are to look at.
        numbers: as given.
    """

    __slots__ = (
        "_before",
        "_clock",
        "_closing",
        "_handed_out",
        "_request",
        "_selector",
        "_session",
        "_topics",
        "_walks",
        "numbers",
        "size",
    )

    def __init__(
        self,
        session: Session,
        clock: Clock,
        *,
        selector: Selector | None = None,
        before: Selections | None = None,
        topics: dict[TopicPath, Partition],
        partitions: Sequence[Partition] = (),
        handed_out: Callable[[TopicValue], None] = NOT_COUNTED,
        closing: Callable[[], Run | None] | None = None,
        request: RequestNumber | None = None,
        numbers: frozenset[int] = frozenset(),
    ) -> None:
        self.numbers = numbers
        self._request = request
        self._session = session
        self._clock = clock
        self._selector = selector
        self._before = before
        self._handed_out = handed_out
        self._closing = closing
        # Taken from the end, which costs the same each time.
        self._topics = dict(reversed(topics.items()))
        self._walks = {each: _Walk(each.values.end) for each in partitions if each.values.end}
        self.size = len(topics) + sum(len(each.values) for each in partitions)

    @property
    def is_done(self) -> bool:
        """See ``Feed``."""
        return not (self._topics or self._walks or self._closing)

    @property
    def subscribe(self) -> tuple[RequestNumber, str] | None:
        """See ``Feed``."""
        return None if self._request is None or self._selector is None else (self._request, self._selector.text)

    def owes(self, partition: Partition, topic: TopicPath) -> bool:
        """See ``Feed``."""
        if topic not in self._topics:
            walk = self._walks.get(partition)
            if walk is None or not walk.next <= partition.values.places.get(topic, walk.end) < walk.end:
                return False
        return (self._selector is None or matches(self._selector, topic)) and (
            self._before is None or not self._before.selects(topic)
        )

    def pull(self, until: float, *, packets: int, size: int) -> list[Run]:
        """See ``Feed``."""
        portion: list[Run] = []
        selections, selector = self._session.selections, self._selector
        while self._topics or self._walks:
            partition, value = self._next()
            if (
                value is not None
                and (value.value or selector is None)
                and (selector is None or matches(selector, value.topic))
                and selections.selects(value.topic)
            ):
                run = partition.snapshot(value)
                portion.append(run)
                size -= run.size
                self._handed_out(value)
            if len(portion) >= packets or size <= 0 or self._clock.monotonic() >= until:
                return portion
        closing, self._closing = self._closing, None
        last = None if closing is None else closing()
        return portion if last is None else [*portion, last]

    def _next(self) -> tuple[Partition, TopicValue | None]:
        """Take a step: to the next of the partitions' topics, then to the next single one."""
        if self._walks:
            partition, walk = next(iter(self._walks.items()))
            value = partition.values.at(walk.next)
            walk.next += 1
            if walk.next >= walk.end or not partition.holders:
                del self._walks[partition]
        else:
            topic, partition = self._topics.popitem()
            value = partition.values.get(topic)
        # What nobody here selects any more is not followed, and what stands there is old.
        return partition, value if partition.holders else None
