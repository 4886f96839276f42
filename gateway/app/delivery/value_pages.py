"""Pages of the current values of all topics that selectors match, in the order of their paths.

```text
selector a/**   ─▶ partition 17, in order:  a/1 a/2 a/3 …  ┐
selector */bid  ─▶ partition 0:             b/bid …        ├─▶ merged, matched ─▶ a page, and the path to go on behind
                   partition 1:             c/ask c/bid …  ┘
literal d/1     ─▶ the grid:                d/1            ┘
```

Where the next page begins is a path and nothing else, so that any node goes on there. Values are taken from the node's
copies of partitions, which are kept for a while after a page: who reads page by page has them read once. Each page
waits until they have all that the grid had when it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from heapq import heapify, heappop, heapreplace
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.presence_watch import PresenceWatch
from gateway.app.delivery.replicas import Replicas
from gateway.core.topics.selectors import Selector, matches, partitions
from gateway.core.topics.sorted_topics import SortedTopics, span
from gateway.core.types import TopicPath
from gateway.ports import TopicValue

ITEM_BYTES: Final = 80
"""Bytes of a value in an answer besides its path and its text."""

LOOKED_AT: Final = 10_000
"""Topics that a page looks at, about: some 50 ms in turns (ADR 0138). Where few match, pages are short."""

AT_ONCE: Final = 200
"""Topics that are looked at, or put in order, without a pause: less than half a millisecond, mostly."""

PORTION: Final = 32
"""Topics of one partition that are taken at a time."""

LINGER: Final = 30.0
"""Seconds for which copies are kept after a page. The next page comes sooner mostly, also if each node has its turn;
until then they cost as much as with somebody who has subscribed."""

PATIENCE: Final = 1.0
"""Seconds that a page waits for copies to be read and put in order, and for its turn: below the two after which HAProxy
asks another node, which would have to read them as well."""

PAGES_AT_ONCE: Final = 2
"""Pages that are put together at the same time; the next ones wait for their turn. Each goes on in turns of half a
millisecond, so that whatever else the node does waits for one of them, however many pages are asked for (P20)."""

DROPPED_SHARE: Final = 2
"""An order is made anew when so many times as many topics are in it as there are."""


class NotReadYet(Exception):
    """Copies are being read, or other pages put together; it will be over when the page is asked for again."""


class ValuePage:
    """A part of the values.

    Attributes:
        values: in the order of their paths.
        cursor: the path to go on behind; None if that is all.
        work: topics that were looked at, read or put in order for it.
    """

    __slots__ = ("cursor", "size", "values", "work")

    def __init__(self) -> None:
        self.values: list[TopicValue] = []
        self.cursor: TopicPath | None = None
        self.size = 0
        self.work = 0

    def add(self, value: TopicValue) -> None:
        """Add the next value."""
        self.values.append(value)
        self.size += len(value.topic) + len(value.value) + ITEM_BYTES


class _Order:
    """The topics of a copy, in order.

    Attributes:
        topics: those at the first places.
        upto: so many places.
    """

    __slots__ = ("topics", "upto")

    def __init__(self) -> None:
        self.topics = SortedTopics()
        self.upto = 0


class _Source:
    """Topics in order that one selector may match.

    Attributes:
        values: finds the value of a topic.
        selector: which of them count; None for all.
    """

    __slots__ = ("_end", "_found", "_next", "_topics", "selector", "values")

    def __init__(
        self,
        selector: Selector | None,
        values: Callable[[TopicPath], TopicValue | None],
        topics: SortedTopics,
        after: str | None,
    ) -> None:
        self.selector = selector
        self.values = values
        self._topics = topics
        start, self._end = ("", None) if selector is None else span(selector)
        behind = after is not None and after >= start
        self._found = topics.take(max(start, after or ""), self._end, PORTION, behind=behind)
        self._next = 0

    def next(self) -> TopicPath | None:
        """Return the next topic; None if there is none."""
        if self._next == len(self._found) == PORTION:
            self._found = self._topics.take(self._found[-1], self._end, PORTION, behind=True)
            self._next = 0
        if self._next >= len(self._found):
            return None
        self._next += 1
        return self._found[self._next - 1]


class ValuePages:
    """Finds pages.

    Args:
        context: of the node.
        replicas: the node's copies of partitions.
        presence: has told who has subscribed to trees.
    """

    def __init__(self, context: Context, replicas: Replicas, presence: PresenceWatch) -> None:
        self._presence = presence
        self._grid = context.grid
        self._most = context.parameters.pages
        self._depth = context.parameters.topic_depth
        self._replicas = replicas
        self._orders: dict[int, _Order] = {}
        self._in_use: dict[int, int] = {}
        self._kept: dict[int, asyncio.TimerHandle] = {}
        self._at_work = asyncio.Semaphore(PAGES_AT_ONCE)
        self._places = asyncio.Semaphore(self._most.at_once) if self._most.at_once else None

    @property
    def is_full(self) -> bool:
        """Whether the node has as many pages under way as it may."""
        return self._places is not None and self._places.locked()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Read a page meanwhile, among those that the node may have under way; if there are as many, wait."""
        if self._places is None:
            yield
            return
        async with self._places:
            yield

    async def find(
        self,
        selectors: Sequence[Selector],
        after: TopicPath | None,
        limit: int | None,
        page: ValuePage,
        *,
        may_be_named: Callable[[TopicPath], bool],
    ) -> None:
        """Find values.

        Args:
            selectors: which topics; who asks may select all of them.
            after: the path behind which to begin; None for the first one.
            limit: most values; None for as many as a page may have.
            page: to be filled; what it has cost is in it, also if it comes to nothing.
            may_be_named: whether who asks may know of a topic that it has not asked for, as a cursor.

        Raises:
            GridUnavailable: nobody can tell now.
            NotReadYet: the same soon.
        """
        await self._presence.watch(self._presence.partitions(selectors))
        wild = [each for each in selectors if not each.literal]
        literal = [TopicPath(each.text) for each in selectors if each.literal]
        needed = {each: partitions(each, self._depth) for each in wild}
        numbers = sorted(frozenset[int]().union(*needed.values()))
        with self._held(numbers, page):
            sources = await self._literals(literal, after, page)
            async with AsyncExitStack() as turn:
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self._reach(numbers)
                        await turn.enter_async_context(self._at_work)
                        for number in numbers:
                            await self._order(number, page)
                except TimeoutError:
                    raise NotReadYet from None
                for selector in wild:
                    for number in sorted(needed[selector]):
                        await self._looked(page)
                        copy, order = self._replicas.get(number), self._orders[number]
                        if copy is not None:
                            sources.append(_Source(selector, copy.values.get, order.topics, after))
                most = self._most.values if limit is None else min(limit, self._most.values)
                await self._merge(sources, most, page, may_be_named)

    async def _merge(
        self,
        sources: Iterable[_Source],
        limit: int,
        page: ValuePage,
        may_be_named: Callable[[TopicPath], bool],
    ) -> None:
        waiting = [(topic, place, each) for place, each in enumerate(sources) if (topic := each.next()) is not None]
        heapify(waiting)
        last: TopicPath | None = None
        is_in_page = False
        begun = page.work
        while waiting:
            topic, place, source = waiting[0]
            if topic != last:
                if len(page.values) >= limit or page.size >= self._most.bytes:
                    page.cursor = page.values[-1].topic
                    return
                if page.work - begun >= LOOKED_AT and last is not None and (is_in_page or may_be_named(last)):
                    page.cursor = last
                    return
                is_in_page = False
            last = topic
            await self._looked(page)
            if not is_in_page and (source.selector is None or matches(source.selector, topic)):
                value = source.values(topic)
                if value is not None and value.value:
                    page.add(value)
                    is_in_page = True
            following = source.next()
            if following is None:
                heappop(waiting)
            else:
                heapreplace(waiting, (following, place, source))

    async def _literals(self, topics: Sequence[TopicPath], after: TopicPath | None, page: ValuePage) -> list[_Source]:
        """Read single topics from the grid."""
        wanted = sorted({each for each in topics if after is None or each > after})
        page.work += len(wanted)
        if not wanted:
            return []
        found = {each.topic: each for each in await self._grid.topics.read(wanted) if each is not None}
        order = SortedTopics()
        for topic in found:
            order.add(topic)
        return [_Source(None, found.get, order, after)]

    async def _reach(self, numbers: Sequence[int]) -> None:
        """Wait until copies have what the grid has now."""
        ends = await asyncio.gather(*map(self._grid.topics.position, numbers), return_exceptions=True)
        for number, end in zip(numbers, ends, strict=True):
            if isinstance(end, BaseException):
                raise end
            await self._replicas.reach(number, end)

    async def _order(self, number: int, page: ValuePage) -> None:
        """Bring the order of a copy's topics up to date."""
        copy = self._replicas.get(number)
        if copy is None:
            return
        order, values = self._orders.get(number), copy.values
        if order is None or values.refilled is None or len(order.topics) > DROPPED_SHARE * len(values) + AT_ONCE:
            order = self._orders[number] = _Order()
            values.refilled = []
        # Whoever comes while another one is at it helps it along: a portion is never done twice.
        while order.upto < copy.values.end:
            upto = min(order.upto + AT_ONCE, copy.values.end)
            for place in range(order.upto, upto):
                value = copy.values.at(place)
                if value is not None:
                    order.topics.add(value.topic)
            page.work += upto - order.upto
            order.upto = upto
            await asyncio.sleep(0)
        while values.refilled:
            # Their places were passed when others had them.
            some, values.refilled = values.refilled[:AT_ONCE], values.refilled[AT_ONCE:]
            for topic in some:
                self._orders[number].topics.add(topic)
            page.work += len(some)
            await asyncio.sleep(0)

    async def _looked(self, page: ValuePage) -> None:
        """Count a topic, and let others have a turn now and then."""
        page.work += 1
        if page.work % AT_ONCE == 0:
            await asyncio.sleep(0)

    # --- Copies -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _held(self, numbers: Collection[int], page: ValuePage) -> Iterator[None]:
        """Hold copies, and for a while afterwards; those that are read for this page count as work of it."""
        new = [number for number in numbers if self._replicas.get(number) is None]
        self._replicas.hold([number for number in numbers if number not in self._in_use])
        for number in numbers:
            self._in_use[number] = self._in_use.get(number, 0) + 1
            if (timer := self._kept.pop(number, None)) is not None:
                timer.cancel()
        try:
            yield
        finally:
            for number in new:
                copy = self._replicas.get(number)
                page.work += 0 if copy is None else len(copy.values)
            loop = asyncio.get_running_loop()
            for number in numbers:
                self._in_use[number] -= 1
                if not self._in_use[number]:
                    self._kept[number] = loop.call_later(LINGER, self._let_go, number)

    def _let_go(self, number: int) -> None:
        del self._kept[number], self._in_use[number]
        copy = self._replicas.get(number)
        if self._orders.pop(number, None) is not None and copy is not None:
            copy.values.refilled = None
        self._replicas.release((number,))
