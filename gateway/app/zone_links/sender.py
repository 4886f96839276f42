"""The end of a link that dialled: hears what the other cluster selects, and sends what crosses, from where it left off.

```text
cursor in the grid ─▶ position ─▶ current values, if there is new interest ─▶ stream: page or tail ─▶ window ─▶ link
                                                                     acknowledged ─▶ cursor in the grid
```

One thing is done after the other for each partition, so that events of one topic leave in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.journal.zone_events import OUT, ZoneGapFound
from gateway.app.journal.zone_traffic import CountedLink
from gateway.app.zone_links.greeting import NotLinked, Target
from gateway.app.zone_links.knowledge import Knowledge
from gateway.app.zone_links.leaving import Leaving, messages_of
from gateway.app.zone_links.streams import OutgoingStreams
from gateway.app.zone_links.talk import GRID_RETRY, Talk
from gateway.app.zone_links.together import together
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.pacing.rates import TokenBucket
from gateway.core.topics.selector_map import matching_any
from gateway.core.topics.selectors import Selector, partitions
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.types import GridGeneration, TopicPath
from gateway.core.zones.interest import HeardInterest, InterestChange, InterestDigest
from gateway.core.zones.messages import encode, parse_selectors
from gateway.core.zones.protocol import (
    Events,
    EventsAck,
    Gap,
    InterestAll,
    InterestAsk,
    SentEvent,
    ValuesAsk,
    ZoneMessage,
    ZoneProtocolError,
    ZoneRefusal,
)
from gateway.core.zones.routes import Crossing
from gateway.core.zones.stamps import StreamPlace
from gateway.core.zones.window import SendWindow
from gateway.ports import GridUnavailable, LinkName, PositionLost, StreamPosition, TopicValue
from gateway.ports.zone_links import ZoneConnection, ZoneLinkLimits

CURSOR_SECONDS: Final = 1.0
"""Seconds between two notes of the cursors in the grid. What was sent since the last one is sent again by the next
carrier, and not taken a second time."""

READ_SINGLY: Final = 100
"""Topics that are read one by one when there is new interest in them; of more, their partitions are read. So many cost
as much as a partition."""

SCAN_RATE: Final = 10.0
SCAN_BURST: Final = 4.0 * TOPIC_PARTITIONS
"""Topic partitions whose values are read for one link in a second, and at once: another cluster whose interest changes
all the time must not keep the grid busy (P20)."""


class LinkProgress:
    """What a carrier knows of one link, whichever connection it has at the moment.

    Args:
        link: name of the link, its share included.
        term: in which this node carries it.
        depth: leading segments that decide a topic's partition.
        most: selectors that the other cluster may tell.

    Attributes:
        link: as given.
        term: as given.
        heard: what the other cluster selects.
        cursors: by partition, up to where nothing is missing there.
        noted: those that the grid knows.
        is_loaded: whether they have been read from the grid.
        owed: by partition, selectors whose current values may not be there yet.
        events: that were sent.
    """

    def __init__(self, link: LinkName, term: int, *, depth: int, most: int) -> None:
        self.link = link
        self.term = term
        self.heard = HeardInterest(depth=depth, most=most)
        self.cursors: dict[int, StreamPosition] = {}
        self.noted: dict[int, StreamPosition] = {}
        self.is_loaded = False
        self.owed: dict[int, frozenset[Selector]] = {}
        self.events = 0


class _Feed:
    """One partition of a link.

    Attributes:
        number: which partition.
        position: up to where its stream has been looked at; None before it was decided where to begin.
        due: selectors whose current values are to be sent before the stream goes on.
        is_all_due: whether these are all that the other cluster selects there.
        is_sending: whether current values are being sent.
    """

    __slots__ = ("due", "is_all_due", "is_sending", "number", "position")

    def __init__(self, number: int, position: StreamPosition | None, due: frozenset[Selector]) -> None:
        self.number = number
        self.position = position
        self.due = due
        self.is_all_due = False
        self.is_sending = False


class Sender:
    """Serves one connection of a link until it breaks.

    Args:
        context: of the node.
        knowledge: of zones.
        streams: of the grid.
        connection: greeted.
        target: where it leads.
        term: of the lease of the link.
        share: which share of the partitions it sends.
        shares: of how many.
        progress: of the link; goes on from one connection to the next.
        leaving: decides what crosses.
        limits: of links.

    Attributes:
        talk: the conversation.
        since: when it began, in seconds since 1970.
    """

    def __init__(
        self,
        context: Context,
        knowledge: Knowledge,
        streams: OutgoingStreams,
        connection: ZoneConnection,
        target: Target,
        *,
        term: int,
        share: int,
        shares: int,
        progress: LinkProgress,
        leaving: Leaving,
        limits: ZoneLinkLimits,
    ) -> None:
        self.since = context.clock.wall()
        self.talk = Talk(context, knowledge, connection, target.crossing, limits)
        self._context = context
        self._grid = context.grid
        self._depth = context.parameters.topic_depth
        self._knowledge = knowledge
        self._streams = streams
        self._target = target
        self._term = term
        self._share = share
        self._shares = shares
        self._progress = progress
        self._leaving = leaving
        self._window = SendWindow()
        self._traffic = context.journal.zones
        self._counted = CountedLink(progress.link, target.label, OUT)
        self._scans = TokenBucket(SCAN_RATE, SCAN_BURST)
        self._feeds: dict[int, _Feed] = {}
        self._ready: deque[int] = deque()
        self._queued: set[int] = set()
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def unacknowledged(self) -> int:
        """Events under way."""
        return self._window.events

    @property
    def behind(self) -> int:
        """Entries of the streams that have yet to be looked at."""
        return sum(
            self._streams.behind(number, feed.position)
            for number, feed in self._feeds.items()
            if feed.position is not None
        )

    async def run(self) -> None:
        """Serve it.

        Raises:
            NotLinked, ZoneLinkBroken: why it is over.
        """
        self._knowledge.watch(self._changed.set)
        try:
            await self._load()
            if self._target.selectors is not None:
                new = self._progress.heard.whole(0, self._target.selectors)
                self._interested(new)
            await together(
                *(self._hear(), self._send(), self._note(), self._tell(), self.talk.beat(), self.talk.notice_silence())
            )
        finally:
            self._knowledge.unwatch(self._changed.set)
            for number in tuple(self._feeds):
                self._streams.release(number, self._wake)
            self.talk.count()

    # --- What the other cluster says ----------------------------------------------------------------------------------

    async def _hear(self) -> None:
        while True:
            message = await self.talk.hear()
            try:
                await self._take(message)
            except ZoneProtocolError as error:
                raise NotLinked.over(error) from None
            except ValueError as error:
                raise NotLinked(ZoneRefusal.LIMIT, str(error)) from None

    async def _take(self, message: ZoneMessage) -> None:
        heard = self._progress.heard
        match message:
            case EventsAck():
                self._acknowledged(message.messages)
            case ValuesAsk():
                self._send_all_values()
            case InterestAll() | InterestChange() | InterestDigest() if self._target.crossing is Crossing.JOIN:
                # People here have written what crosses, whatever the other end would like to have.
                raise NotLinked(ZoneRefusal.PROTOCOL, "over a join no interest is told")
            case InterestAll():
                self._interested(heard.whole(message.revision, parse_selectors(message.selectors)))
            case InterestChange():
                new = heard.change(message)
                await self._ask() if new is None else self._interested(new)
            case InterestDigest():
                if not heard.agrees(message):
                    await self._ask()
            case _:
                raise NotLinked(ZoneRefusal.PROTOCOL, f"a receiver does not say {type(message).__name__}")

    async def _ask(self) -> None:
        await self.talk.say(InterestAsk())

    def _interested(self, new: frozenset[Selector]) -> None:
        """The interest has changed: begin with partitions, or leave them, and send current values of what is new."""
        heard = self._progress.heard
        wanted = {each for each in heard.partitions if each % self._shares == self._share}
        for number in self._feeds.keys() - wanted:
            del self._feeds[number]
            self._progress.cursors.pop(number, None)
            self._progress.owed.pop(number, None)
            self._streams.release(number, self._wake)
        reached: dict[int, set[Selector]] = {}
        for selector in new:
            for number in partitions(selector, self._depth):
                reached.setdefault(number, set()).add(selector)
        for number in wanted:
            feed = self._feeds.get(number)
            due = self._owe(number, reached.get(number, ()))
            if feed is None:
                # What the connection before did not bring to its end is due still.
                due = self._progress.owed.get(number, frozenset())
                self._feeds[number] = _Feed(number, self._progress.cursors.get(number), due)
                self._streams.hold(number, self._wake)
                self._wake(number)
            elif due:
                feed.due |= due
                self._wake(number)

    def _send_all_values(self) -> None:
        """The other cluster has lost some of what it was sent."""
        for number, feed in self._feeds.items():
            if not feed.is_all_due:
                self._owe_all(feed)
                self._wake(number)

    def _acknowledged(self, messages: int) -> None:
        for number, place in self._window.acknowledged(messages).items():
            self._advance(number, place)
        if self._window.has_room:
            self._room.set()

    def _advance(self, number: int, place: StreamPlace) -> None:
        feed = self._feeds.get(number)
        if feed is not None:
            if not feed.due and not feed.is_sending and not self._window.is_under_way(number):
                self._progress.owed.pop(number, None)
            self._progress.cursors[number] = StreamPosition(GridGeneration(place.generation), place.sequence)

    # --- Sending ------------------------------------------------------------------------------------------------------

    def _wake(self, number: int) -> None:
        if number not in self._queued:
            self._queued.add(number)
            self._ready.append(number)
            self._something.set()

    async def _send(self) -> None:
        while True:
            while not self._ready:
                self._something.clear()
                await self._something.wait()
            number = self._ready.popleft()
            self._queued.discard(number)
            feed = self._feeds.get(number)
            if feed is None:
                continue
            try:
                more = await self._step(feed)
            except GridUnavailable:
                more = True
                await asyncio.sleep(GRID_RETRY)
            if more and self._feeds.get(number) is feed:
                self._wake(number)

    async def _step(self, feed: _Feed) -> bool:
        """Send the next portion of a partition; returns whether there may be more at once."""
        position = feed.position
        if position is None:
            position = await self._begin(feed)
        if feed.due:
            due, feed.due, feed.is_all_due, feed.is_sending = feed.due, frozenset(), False, True
            try:
                await self._send_values(feed, due, position)
            except GridUnavailable:
                feed.due |= due
                raise
            finally:
                feed.is_sending = False
            self._reached(feed)
        batch = await self._streams.after(feed.number, position)
        if batch is None:
            return False
        if isinstance(batch, PositionLost):
            self._context.announce(ZoneGapFound(self._counted, feed.number))
            await self.talk.say(Gap(feed.number))
            feed.position = None
            return True
        await self._send_events(feed, await self._leaving.of_stream(batch), current=False)
        feed.position = batch.position
        is_stream_begun = position.grid_generation > 0
        if is_stream_begun and batch.position.grid_generation != position.grid_generation:
            # The grid may have lost writes; values that nodes have put back since do not cross with the stream.
            self._owe_all(feed)
        self._reached(feed)
        return True

    async def _begin(self, feed: _Feed) -> StreamPosition:
        """Decide where a partition begins. The grid is told before anything leaves: a carrier may die at any time."""
        position = await self._grid.topics.position(feed.number)
        await self._write({feed.number: position})
        feed.position = position
        self._owe_all(feed)
        self._reached(feed)
        return position

    def _owe(self, number: int, selectors: Iterable[Selector]) -> frozenset[Selector]:
        """Remember that current values have to get there, whichever connection brings them; returns the selectors."""
        due = frozenset(selectors)
        if due:
            self._progress.owed[number] = self._progress.owed.get(number, frozenset()) | due
        return due

    def _owe_all(self, feed: _Feed) -> None:
        """Do so of all that the other cluster selects in a partition."""
        feed.due |= self._owe(feed.number, self._progress.heard.selectors_in(feed.number))
        feed.is_all_due = True

    async def _send_values(self, feed: _Feed, due: frozenset[Selector], upto: StreamPosition) -> None:
        """Send current values of what selectors match; the stream goes on behind them."""
        topics = [TopicPath(each.text) for each in due if each.literal]
        if len(topics) == len(due) <= READ_SINGLY:
            await self._pace_reads(len(topics) / READ_SINGLY)
            here = [each for each in topics if topic_partition(each, self._depth) == feed.number]
            found = [each for each in await self._grid.topics.read(here) if each is not None] if here else []
            await self._send_matching(feed, found, upto)
            return
        await self._pace_reads(1.0)
        is_due = matching_any(due)
        async for page in self._grid.topics.values(feed.number):
            await self._send_matching(feed, [each for each in page if is_due(each.topic)], upto)

    async def _pace_reads(self, partitions: float) -> None:
        """Wait until values may be read, of a partition or as many topics as cost a share of one."""
        await asyncio.sleep(self._scans.charge(self._context.clock.monotonic(), partitions))

    async def _send_matching(self, feed: _Feed, values: list[TopicValue], upto: StreamPosition) -> None:
        await self._send_events(feed, await self._leaving.of_values(feed.number, values, upto), current=True)

    async def _send_events(self, feed: _Feed, events: list[SentEvent], *, current: bool) -> None:
        for message in messages_of(events, current=current):
            await self._send_one(feed.number, message)

    async def _send_one(self, number: int, message: Events) -> None:
        while not self._window.has_room:
            self._room.clear()
            await self._room.wait()
        data = encode(message)
        # Before it leaves: it may be acknowledged while the connection is waited for.
        self._window.sent(len(data), len(message.events), number)
        await self.talk.say_encoded(data)
        self._progress.events += len(message.events)
        if self._traffic is not None:
            tally = self._traffic.of(self._counted)
            tally.events += len(message.events)
            tally.bytes += sum(len(each.value) for each in message.events)
        self._context.metrics.add(catalogue.ZONE_EVENTS, len(message.events), label="out")

    def _reached(self, feed: _Feed) -> None:
        if feed.position is not None:
            place = self._window.reached(feed.number, StreamPlace(*feed.position))
            if place is not None:
                self._advance(feed.number, place)

    # --- Cursors ------------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Read from the grid where the carrier before has left off."""
        while not self._progress.is_loaded:
            try:
                self._progress.noted = dict(await self._grid.zones.cursors(self._progress.link))
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)
                continue
            self._progress.cursors = dict(self._progress.noted)
            self._progress.is_loaded = True

    async def _note(self) -> None:
        """Note cursors in the grid when they have moved."""
        progress = self._progress
        while True:
            await asyncio.sleep(CURSOR_SECONDS)
            if self._traffic is not None and (behind := self.behind):
                tally = self._traffic.of(self._counted)
                tally.behind = max(tally.behind, behind)
            moved = {number: place for number, place in progress.cursors.items() if progress.noted.get(number) != place}
            if not moved:
                continue
            with suppress(GridUnavailable):
                await self._write(moved)

    async def _write(self, moved: Mapping[int, StreamPosition]) -> None:
        """Note cursors in the grid.

        Raises:
            NotLinked: another node carries the link by now.
            GridUnavailable: see ``gateway.ports``.
        """
        if not await self._grid.zones.advance(self._progress.link, self._term, moved):
            raise NotLinked(ZoneRefusal.STALE, "another node carries this link by now")
        self._progress.noted |= moved

    async def _tell(self) -> None:
        """Tell members, now and when they change, and notice that the zone was left."""
        while True:
            await self.talk.tell_members()
            self.talk.check_zone()
            await self._changed.wait()
            self._changed.clear()
