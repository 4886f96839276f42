"""All streams of a session: which of them each update goes to, and what the session selects for them.

**The rule** (docs/reference/client.md): a session wants what its living streams want together. A new stream adds its
selector. When one ends, what nobody else wants is deselected, by one request that names what stays (protocol 6.3), so
that nobody misses anything for a moment. At the server there may be more than is wanted, never less; a stream takes
only what is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.client.history_streams import HistoryFeed, HistoryStream, Source
from gateway.client.queues import QUEUE_BYTES, QUEUE_SIZE, size_of
from gateway.client.streams import Feed, UpdateStream
from gateway.core.client.errors import SessionEnded
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.types import Update
from gateway.core.topics.selections import MOST_KEPT
from gateway.core.topics.selectors import Selector, covers, overlaps
from gateway.core.types import TopicPath
from gateway.core.wire.packets import Unsubscribe

ROUTES_KEPT: Final = 16_384
"""Topics for which it is remembered which streams match; beyond, the memory is emptied and fills again."""


class Streams:
    """The living streams of a session.

    Args:
        deselect: sends a request without waiting for its answer; ``lingers`` is called if it comes to nothing.
    """

    def __init__(self, deselect: Callable[[Unsubscribe], object]) -> None:
        self._deselect = deselect
        self._feeds: list[Feed] = []
        self._routes: dict[str, tuple[Feed, ...]] = {}
        self._lingering: dict[str, Selector] = {}
        """What the server still selects though nobody wants all of it."""

    def __len__(self) -> int:
        return len(self._feeds)

    # --- Streams ------------------------------------------------------------------------------------------------------

    def open(self, selector: Selector, *, size: int = QUEUE_SIZE, octets: int = QUEUE_BYTES) -> UpdateStream:
        """Make a stream, and begin to hand updates to it; whoever asks for it subscribes.

        Raises:
            ValueError: its bounds are below 1.
        """
        feed = Feed(selector, size=size, octets=octets)
        stream = UpdateStream(feed, self.close)
        self.add(feed)
        return stream

    def add(self, feed: Feed) -> None:
        """Begin to hand updates to a feed."""
        self._feeds.append(feed)
        self._routes.clear()

    def open_history(
        self, selector: Selector, source: Source, *, start: str, on_gap: str, size: int, octets: int
    ) -> tuple[HistoryStream, HistoryFeed]:
        """Make a stream with history, likewise, and the half of it that the session holds.

        Raises:
            ValueError: its bounds are below 1.
            InvalidPosition: *start* is no position.
        """
        feed = HistoryFeed(selector, source, start=start, on_gap=on_gap, size=size, octets=octets)
        stream = HistoryStream(feed, self.close)
        self.add(feed)
        return stream, feed

    def refused(self, stream: UpdateStream) -> None:
        """Forget a stream whose selection was never made."""
        self._remove(stream._feed)  # noqa: SLF001 - the two halves of one thing
        stream.close()

    def close(self, feed: Feed) -> None:
        """End a stream, and deselect what nobody wants any more; nothing happens if it has ended before."""
        if self._remove(feed):
            feed.end(None, drop=True)
            self._release(feed.selector)

    def unsubscribe(self, selector: Selector) -> list[Unsubscribe]:
        """End the streams of exactly this selector; if there are none, take its topics out of the wider ones.

        Returns:
            What has to be asked of the server.
        """
        same = [feed for feed in self._feeds if feed.selector.text == selector.text]
        for feed in same:
            self._remove(feed)
            feed.end(None)
        if not same:
            wider = [feed for feed in self._feeds if covers(feed.selector, selector)]
            wider = [feed for feed in wider if feed.wants(selector)]
            if not wider:
                return []  # it was taken out of all of them before
            for feed in wider:
                feed.holes = [*(hole for hole in feed.holes if not covers(selector, hole)), selector]
            self._routes.clear()
        return self._leaving(selector)

    def dispatch(self, update: Update) -> None:
        """Hand an update to the streams that want its topic."""
        routes = self._routes.get(update.topic)
        if routes is None:
            routes = self._route(update.topic)
        if routes:
            octets = size_of(update)
            for feed in routes:
                if feed.offer(update, octets) and self._remove(feed):
                    self._release(feed.selector)

    def _route(self, topic: str) -> tuple[Feed, ...]:
        if len(self._routes) >= ROUTES_KEPT:
            self._routes.clear()
        path = TopicPath(topic)
        routes = tuple([feed for feed in self._feeds if feed.takes(path)])
        self._routes[topic] = routes
        return routes

    def failed_over(self) -> None:
        """Tell every stream that current values follow."""
        for feed in self._feeds:
            feed.failed_over()

    def interrupted(self) -> None:
        """Tell streams with history that live updates may not follow what came before."""
        for feed in self._feeds:
            if isinstance(feed, HistoryFeed):
                feed.interrupted()

    def settled(self) -> None:
        """Tell streams with history that all current values of a subscribe have come."""
        for feed in self._feeds:
            if isinstance(feed, HistoryFeed):
                feed.settled()

    def end(self, error: SessionEnded | None) -> None:
        """End every stream: the session is over."""
        feeds, self._feeds = self._feeds, []
        self._routes.clear()
        self._lingering.clear()
        for feed in feeds:
            feed.end(error)

    def _remove(self, feed: Feed) -> bool:
        if feed not in self._feeds:
            return False
        self._feeds.remove(feed)
        self._routes.clear()
        return True

    # --- Selections ---------------------------------------------------------------------------------------------------

    def lingers(self, selector: Selector) -> None:
        """Note that a deselection came to nothing; it is tried again when the next stream ends."""
        self._lingering[selector.text] = selector

    def _release(self, selector: Selector) -> None:
        """Deselect what a stream of this selector leaves, and what could not be deselected before."""
        lingering, self._lingering = self._lingering, {}
        for each in {**lingering, selector.text: selector}.values():
            for ask in self._leaving(each):
                self._deselect(ask)

    def _leaving(self, selector: Selector) -> list[Unsubscribe]:
        """Tell how to deselect what nobody wants of this selector."""
        wanting = self._wanting(selector)
        for feed in wanting:
            if covers(feed.selector, selector):
                # All of it stays wanted but for what was taken out of this stream.
                return self._without(feed.holes_in(selector))
        # What stays is selected anew behind it, so what was taken out of that is taken out again.
        holes = [hole for feed in wanting for hole in feed.holes_in(selector)]
        return self._without([selector, *holes])

    def _without(self, selectors: list[Selector]) -> list[Unsubscribe]:
        """Tell how to deselect selectors, of which everything stays that somebody wants."""
        asks: list[Unsubscribe] = []
        for selector in selectors:
            kept: list[Selector] = []
            for wanted in (feed.selector for feed in self._wanting(selector)):
                if not any(covers(each, wanted) for each in kept):
                    kept = [*(each for each in kept if not covers(wanted, each)), wanted]
            if any(covers(each, selector) for each in kept):
                continue
            if len(kept) > MOST_KEPT:
                self.lingers(selector)
                continue
            asks.append(Unsubscribe(UNNUMBERED, selector.text, keep=tuple(each.text for each in kept)))
        return asks

    def _wanting(self, selector: Selector) -> list[Feed]:
        return [feed for feed in self._feeds if overlaps(feed.selector, selector) and feed.wants(selector)]
