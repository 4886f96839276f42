"""Makes messages of the events of shared subscriptions, while somebody at this node consumes (protocol 14.5).

```text
history ──page──▶ feeder ──queue_feed.lua, if the queue is still where the page began──▶ queue ──▶ consumers
```

Every node with a consumer does this, and each event becomes a message once, as only who knows where the queue is moves
it on. What is not in the queue yet is in the history: the queue holds as much as consumers take in a moment. Nothing
here asks the grid while nothing is published to the partition and nobody settles (P11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.history_pages import HistoryPages, Page
from gateway.app.delivery.replicas import Replicas
from gateway.app.registry.fenced_store import FencedStore
from gateway.core.destinations.reserved import Source
from gateway.core.topics.selectors import Selector, parse_selector, partitions
from gateway.core.topics.topics import shown
from gateway.core.types import EventId, TopicPath
from gateway.core.wire.codec import json_text
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.ports import Fed, GridUnavailable, QueueBounds, StreamPosition

AHEAD: Final = 256
"""Messages that may be ready: what some consumers with the usual credit take together before the next page is there."""

FEED_AT_ONCE: Final = 100
"""Events of one step of the grid, as of sends."""

PAUSE: Final = 0.5
"""Seconds after which it goes on when the grid has refused a step."""


class _Feed:
    """The consumers that this node has of one shared subscription.

    Attributes:
        queue: which.
        consumers: how many.
        news: somebody may take more, or the last consumer has left, or the queue may have gone back.
        is_outdated: nobody knows where the queue is, because the grid has lost writes.
        is_fed: there is a task for it; there is none where the subscription was not found.
    """

    def __init__(self, queue: TopicPath) -> None:
        self.queue = queue
        self.consumers = 0
        self.news = asyncio.Event()
        self.is_outdated = False
        self.is_fed = False


class SharedFeeder:
    """Feeds the shared subscriptions that sessions of this node consume from.

    Args:
        context: of the node.
        store: tells whether the grid is there.
        pages: where events are found.
        replicas: tell that there are news in a partition.
        bounds: of the queues.
    """

    def __init__(
        self, context: Context, store: FencedStore, pages: HistoryPages, replicas: Replicas, bounds: QueueBounds
    ) -> None:
        self._queues = context.grid.queues
        self._background = context.background
        self._depth = context.parameters.topic_depth
        self._store = store
        self._pages = pages
        self._replicas = replicas
        self._feeds: dict[TopicPath, _Feed] = {}
        self._bounds = bounds

    async def look(self, queue: TopicPath) -> Source:
        """Tell for what a queue is.

        Raises:
            RequestRefused: there is no such subscription.
            GridUnavailable: asking again does no harm.
        """
        fed = await self._queues.feed(queue, self._bounds)
        if fed is None:
            raise RequestRefused(
                f"there is no shared subscription with the queue {shown(queue)}", code=ErrorCode.NO_SUCH_DURABLE
            )
        return Source.read(fed.source)

    def begin(self, queue: TopicPath) -> None:
        """Somebody consumes."""
        feed = self._feeds.get(queue)
        if feed is None:
            feed = self._feeds[queue] = _Feed(queue)
        feed.consumers += 1
        feed.news.set()
        self._ensure(feed)

    def end(self, queue: TopicPath) -> None:
        """Somebody consumes no more."""
        feed = self._feeds.get(queue)
        if feed is not None:
            feed.consumers -= 1
            if not feed.consumers:
                del self._feeds[queue]
                feed.news.set()

    def settled(self, queue: TopicPath) -> None:
        """Somebody has settled something, or has another credit, so that there may be room."""
        feed = self._feeds.get(queue)
        if feed is not None:
            feed.news.set()

    def look_again(self, queue: TopicPath) -> None:
        """The grid has lost writes: the queue may have gone back, and what it lacks is in the history."""
        feed = self._feeds.get(queue)
        if feed is not None:
            feed.is_outdated = True
            feed.news.set()
            self._ensure(feed)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _ensure(self, feed: _Feed) -> None:
        """Feed it, for the first time or again: what was lost with the grid may have been opened anew."""
        if not feed.is_fed:
            feed.is_fed = True
            self._background.once(self._run(feed), f"feed-{feed.queue}")

    async def _run(self, feed: _Feed) -> None:
        try:
            await self._feed_while_consumed(feed)
        finally:
            feed.is_fed = False

    async def _feed_while_consumed(self, feed: _Feed) -> None:
        while feed.consumers:
            try:
                fed = await self._queues.feed(feed.queue, self._bounds)
                if fed is None:
                    return
                selector = parse_selector(Source.read(fed.source).selector)
                (number,) = partitions(selector, self._depth)
                self._replicas.hold((number,))
                try:
                    await self._feed(feed, fed, selector, number)
                finally:
                    self._replicas.release((number,))
            except GridUnavailable:
                await self._store.until_available()
                await asyncio.sleep(PAUSE)

    async def _feed(self, feed: _Feed, fed: Fed | None, selector: Selector, number: int) -> None:
        """Feed one, until nobody consumes here, or it is removed."""
        known: Mapping[int, EventId] | None = None
        gap = False
        while feed.consumers and fed is not None:
            if feed.is_outdated:
                feed.is_outdated, known, gap = False, None, False
                fed = await self._queues.feed(feed.queue, self._bounds)
                continue
            if fed.ready >= AHEAD:
                feed.news.clear()
                fed = await self._queues.feed(feed.queue, self._bounds)
                if fed is not None and fed.ready >= AHEAD:
                    await feed.news.wait()
                continue
            places = _places(fed.position) if known is None else known
            page = await self._pages.find(selector, places, earliest=True, limit=FEED_AT_ONCE)
            # It is told by the first event that follows, which may be in a later page.
            gap = gap or page.missing is not None
            if page.found:
                events = _events(page, gap=gap)
                upto = ",".join(page.positions[each] for each in sorted(page.positions))
                fed = await self._queues.feed(feed.queue, self._bounds, after=fed.position, upto=upto, events=events)
                # Moved by this step or by another node's, which has seen the gap, too.
                known, gap = None, False
                continue
            known = dict(page.positions)
            if page.complete:
                await self._wait(feed, number, known.get(number))

    async def _wait(self, feed: _Feed, number: int, reached: EventId | None) -> None:
        """Wait until something is published behind a place, or the queue may have gone back, or nobody consumes."""
        partition = self._replicas.get(number)
        position = StreamPosition.of(reached) if reached is not None else None
        if position is None:
            if partition is None:
                return
            position = partition.position
        beyond = StreamPosition(position.grid_generation, position.sequence + 1)
        news = asyncio.ensure_future(self._replicas.reach(number, beyond))
        try:
            while feed.consumers and not feed.is_outdated and not news.done():
                feed.news.clear()
                left = asyncio.ensure_future(feed.news.wait())
                try:
                    await asyncio.wait((news, left), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    left.cancel()
        finally:
            news.cancel()


def _places(position: str) -> dict[int, EventId]:
    return {int(each.partition("-")[0]): EventId(each) for each in position.split(",") if each}


def _events(page: Page, *, gap: bool) -> list[tuple[bytes, bytes]]:
    """Write the events of a page as headers and values of messages (protocol 14.5)."""
    events: list[tuple[bytes, bytes]] = []
    for event, snapshot in page.found:
        headers = {"topic": event.topic, "version": str(event.version), "event": event.event}
        if snapshot:
            headers["snapshot"] = "true"
        if not event.value:
            headers["removed"] = "true"
        if gap and not events:
            headers["gap"] = "true"
        events.append((json_text(headers), event.value or b"null"))
    return events
