"""From the grid's streams to the outboxes of sessions that selected the topic (docs/explanation/architecture.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.completion_notices import CompletionNotices, is_told
from gateway.app.delivery.feeds.feed import PORTION_PACKETS
from gateway.app.delivery.feeds.values import ValuesFeed
from gateway.app.delivery.flusher import Flusher
from gateway.app.delivery.history_restorer import HistoryRestorer
from gateway.app.delivery.loss_notices import GRID_LOST_WRITES, values_reread
from gateway.app.delivery.matching import MatchingQueues
from gateway.app.delivery.measurements import RootCounts, TailLag
from gateway.app.delivery.partition import SEARCH_AT_ONCE, Partition
from gateway.app.delivery.presence_watch import PresenceWatch
from gateway.app.delivery.read_barrier import NEVER, ReadBarrier
from gateway.app.delivery.removal_sweeper import RemovalSweeper
from gateway.app.delivery.replay.replay import Replay, selectors_of
from gateway.app.delivery.replay.replays import Replays
from gateway.app.delivery.replicas import Change, Replicas
from gateway.app.delivery.watchers import Watchers
from gateway.app.journal.node_events import StreamPositionLost
from gateway.app.runtime.batched import Batched
from gateway.app.runtime.portions import portions
from gateway.app.session.cuts import Cuts
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.topics.selection_index import SelectionIndex
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import NO_PARTITIONS, Selector, partitions
from gateway.core.topics.topics import topic_partition
from gateway.core.types import EventId, RequestNumber, TopicPath
from gateway.core.wire import codec
from gateway.core.wire.packets import Notice
from gateway.core.wire.support import understands
from gateway.ports import PositionLost, TailBatch, TopicValue

LOSS_DELAY: Final = 0.02
"""Seconds in which losses of places in streams gather: an event such as the loss of the grid takes the places in all of
them, one after the other, and every session is to be told once, before it is sent the first value."""

TOLD_AT_ONCE: Final = 200
"""Sessions that are told of a loss before others get their turn: one or two milliseconds. Ten thousand took 65 ms."""

FOUND_AT_ONCE: Final = PORTION_PACKETS
"""Topics whose values are found topic by topic when a session is restored: what leaves with the welcome, at most."""

SEARCHED_AT_ONCE: Final = 4 * SEARCH_AT_ONCE
"""Topics that are searched for the selectors of one session without a pause: some milliseconds. What others of the same
selectors had searched for is at hand, and does not count."""

RUN_BYTES: Final = 16 * 1024
"""Bytes of updates above which a run is ended. What goes to the same sessions is joined once for all of them, and a
longer run would save nothing more: it has to be cut where a message or a transport is full, for each session apart."""


class Delivery:
    """Knows which session is sent which topic, and sends it.

    Args:
        context: of the node.
        flusher: writes for the sessions.

    Attributes:
        replicas: this node's copies of topic partitions.
        removals: lets go of what they keep of removed topics.
        barrier: tells whether they are as new as what a session has seen at another node.
        lag: how far behind the streams it is.
        watchers: who is sent topics of the system.
    """

    def __init__(self, context: Context, flusher: Flusher) -> None:
        self._grid = context.grid
        self._announce = context.announce
        self._depth = context.parameters.topic_depth
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._traffic = context.journal.traffic
        self.delivered = 0
        """Updates given to sessions as they came from the streams, since the start."""
        self._flusher = flusher
        self._roots = (
            RootCounts(context.metrics, context.parameters.counted_roots) if context.parameters.counted_roots else None
        )
        self._index: SelectionIndex[Session] = SelectionIndex()
        self._is_tidying = False
        self._moved: Callable[[Session], None] | None = None
        self._telling = asyncio.Lock()
        """Held while sessions are told of a loss, which takes several turns: what came first is told to all first."""
        self._feeds = flusher.feeds
        self.replicas = Replicas(
            context.grid.topics,
            context.grid.tail,
            queues=MatchingQueues(self._index, context.clock),
            changed=self._changed,
            failed=lambda error: context.log.emit(
                events.BACKGROUND_TASK_FAILED, task="read-partition", error=repr(error)
            ),
            lost=self._failed_to_deliver,
            completed=self._completed,
            brought_last=HistoryRestorer(context).restore,
            removed=self._removed,
        )
        self.removals = RemovalSweeper(context, self.replicas, self._feeds, self._index.match)
        self.barrier = ReadBarrier(context, self.replicas)
        self.replays = Replays(context, self.replicas, self.barrier, self._hold)
        self._background = context.background
        self._complete = CompletionNotices(self.replicas)
        self._lost: Batched[int, None] = Batched(
            context.background, "positions-lost", delay=LOSS_DELAY, work=self._positions_lost
        )
        self.lag = TailLag(context.clock, context.metrics)
        self.watchers = Watchers(PresenceWatch(context))
        context.metrics.watch(catalogue.FOLLOWED_PARTITIONS, lambda: len(self.replicas))
        context.metrics.watch(catalogue.REPLICA_TOPICS, lambda: sum(len(each.values) for each in self.replicas))

    async def run(self) -> None:
        """Follow the streams for ever."""
        async for item in self._grid.tail.items():
            if isinstance(item, PositionLost):
                self._position_lost(item.partition)
            else:
                arrived = self._clock.monotonic()
                try:
                    self.replicas.take_in(item, partial(self._delivered, item, arrived))
                except Exception as bug:  # noqa: BLE001 - the rest of the batch must not be lost in silence
                    self._failed_to_deliver(item.partition, bug)
                    self._delivered(item, arrived)

    def _failed_to_deliver(self, partition: int, bug: Exception) -> None:
        self._log.emit(events.BACKGROUND_TASK_FAILED, task="grid-tail", error=repr(bug))
        self._position_lost(partition)

    def _delivered(self, batch: TailBatch, arrived: float) -> None:
        """Note that all of a batch has been sent to whom it is for."""
        self._flusher.mark_update(arrived)
        self._metrics.add(catalogue.STREAM_UPDATES, len(batch.values))
        if self._roots is not None:
            self._roots.count(batch.values)
        self.lag.read(batch)

    # --- Selections ---------------------------------------------------------------------------------------------------

    async def prepare(self, session: Session, selections: Selections) -> None:
        """Make sure that everything *selections* may match is at hand; the first step of every change.

        Partitions that the session needs no longer are kept until ``select``.
        """
        if session.dropped:
            return  # nobody would give up what is held for it now
        needed = selections.partitions(self._depth)
        self._hold(session, needed)
        await self.barrier.wait(needed, session.elsewhere_until)

    async def catch_up(self, session: Session) -> None:
        """Let ``restore`` find what it needs, if that takes but a moment: an answer of the grid, mostly.

        Copies that are not whole, because this node has just begun to read them, are not waited for.
        """
        needed = session.selections.partitions(self._depth)
        if self.barrier.passed(needed, NEVER) and not self.barrier.passed(needed, session.elsewhere_until):
            self._hold(session, needed)
            await self.barrier.catch_up(needed, session.elsewhere_until)

    def _hold(self, session: Session, needed: frozenset[int]) -> None:
        """Keep copies of partitions for a session, until ``select`` or ``forget``."""
        if session.dropped:
            return  # nobody would give up what is held for it now
        added = needed - session.retained
        self.replicas.hold(added)
        # Where it is the same, the very set of the selections is kept: it takes 216 bytes, of all partitions 2,264.
        session.retained = needed if session.retained <= needed else session.retained | needed

    def select(self, session: Session, selections: Selections) -> None:
        """Put *selections* in force; from now on the session is sent the updates they match."""
        session.selections = selections
        needed = selections.partitions(self._depth)
        self.replicas.release(session.retained - needed)
        session.retained = needed if needed <= session.retained else session.retained & needed
        if session.muted or session.dropped:
            return
        self._index.set(session, selections)
        self._tidy_later()
        self.watchers.selects(session, selections)
        if self._moved is not None:
            self._moved(session)

    def watch_selected(self, on_selected: Callable[[], None] | None) -> None:
        """Begin to keep what is ``selected``, and have *on_selected* called after changes; None to keep it no more."""
        if on_selected is None:
            self._index.unwatch_selected()
        else:
            self._index.watch_selected(on_selected)

    @property
    def selected(self) -> AbstractSet[Selector]:
        """The selectors that sessions here select, those included whose window runs; while it is watched."""
        return self._index.selected

    def in_force(self, session: Session) -> Selections:
        """Return the list by which the session is sent updates now."""
        return self._index.selections(session)

    def withdraw(self, session: Session, selections: Selections) -> None:
        """Put a list in force that selects less; unlike another one it needs no preparation."""
        if session in self._index:
            self.select(session, selections)
        else:
            session.selections = selections

    def mute(self, session: Session) -> None:
        """Send the session no more updates and values, but keep what it would need."""
        self._index.remove(session)
        self._tidy_later()
        self._feeds.drop(session)
        if self._moved is not None:
            self._moved(session)

    def forget(self, session: Session) -> None:
        """The session is not this node's any more."""
        self.watchers.forget(session)
        self._complete.restoring.discard(session)
        self._index.remove(session)
        self._tidy_later()
        self._feeds.drop(session)
        self.replicas.release(session.retained)
        session.retained = NO_PARTITIONS

    def _tidy_later(self) -> None:
        """Give up what a change has left outdated in the index, a portion in each turn of the loop (P20)."""
        if self._index.outdated and not self._is_tidying:
            self._is_tidying = True
            asyncio.get_running_loop().call_soon(self._tidy)

    def _tidy(self) -> None:
        self._is_tidying = False
        self._index.tidy()
        self._tidy_later()

    def restore(self, session: Session) -> bool:
        """Put restored selections in force and send the full values (P6), if that takes neither waiting nor long.

        Values leave with what waits for the session, as far as the feeds' share of this turn allows.

        Returns:
            Whether it was done; if not, ``prepare``, ``select`` and ``feed`` do it.
        """
        selections = session.selections
        needed = selections.partitions(self._depth)
        if not self.barrier.passed(needed, session.elsewhere_until):
            return False
        found = self._at_hand(selections)
        if found is None or session.dropped or session.selecting.locked():
            return False
        self._hold(session, needed)
        self.select(session, selections)
        self._feeds.drop(session)
        self._complete.restoring.discard(session)
        feed = ValuesFeed(
            session,
            self._clock,
            topics=found,
            handed_out=self._handed_out,
            closing=self._complete.behind(session, needed),
            numbers=needed,
        )
        self._feeds.add(session, feed)
        return True

    def replay(
        self, session: Session, replay: Replay, unfinished: Mapping[RequestNumber, str], *, declare: bool = False
    ) -> None:
        """Send a session what it has missed, and then all that it selects, without a turn of the loop between.

        Of partitions that cannot be replayed it is sent the current values.

        Args:
            session: which; it has its welcome.
            replay: settled in this turn.
            unfinished: selectors of which it has not had all current values, by the requests that asked for them.
            declare: whether it has to be told of these partitions, as its welcome does not say it.
        """
        refused = frozenset(replay.refused)
        if not self.barrier.passed(refused, session.elsewhere_until):
            raise AssertionError("a replay was not settled in the turn in which it is sent")
        selectors, had, missed = selectors_of(unfinished), session.selections, replay.packets()
        if selectors:
            again = {each.text for each in selectors.values()}
            had = Selections([each for each in had.entries if each.selector.text not in again])
            # Of all else that is selected the current value comes, and no update may come before it (10.6.3).
            known = [run.without(lambda topic: not had.selects(TopicPath(topic))) for run in missed]
            missed = [run for run in known if run is not None]
        session.machine.submit_replay(missed)
        if declare and refused:
            self.declare_gap(session, refused)
        self.select(session, session.selections)
        self._feeds.drop(session)
        if refused:
            topics, searched = self._candidates(session, None)
            feed = ValuesFeed(
                session,
                self._clock,
                topics={topic: partition for topic, partition in topics.items() if partition.number in refused},
                partitions=[each for each in searched if each.number in refused],
                handed_out=self._handed_out,
                closing=self._complete.behind(session, refused),
                numbers=refused,
            )
            self._feeds.add(session, feed)
        for request, selector in selectors.items():
            self.feed(session, selector, before=had, request=request)
        self._flusher.mark(session)

    def cuts(self, session: Session) -> Cuts:
        """Tell how far a session has come, for another node that goes on with it: all are where this node is.

        One that has come from another node, and was not brought up to here, is where it was there.
        """
        if session.arriving is not None:
            return session.arriving
        numbers, unfinished = self.partitions_of(session)
        places: dict[int, EventId] = {}
        for number in numbers:
            partition = self.replicas.whole(number)
            place = None if partition is None else partition.handed_out
            if place is not None:
                places[number] = place.event(number)
        return Cuts(places, unfinished)

    def partitions_of(self, session: Session) -> tuple[frozenset[int], Mapping[RequestNumber, str]]:
        """Tell in which partitions a session is where this node is, and the subscribes whose values are yet to come."""
        unfinished, fed = self._feeds.unfinished(session)
        if session not in self._index or session in self._complete.restoring:
            return frozenset(), unfinished
        return session.retained - fed, unfinished

    def tell_of_places(self, moved: Callable[[Session], None]) -> None:
        """Have *moved* called with each session of which ``partitions_of`` may tell something else from now on."""
        self._moved = self._feeds.changed = moved

    def _at_hand(self, selections: Selections) -> dict[TopicPath, Partition] | None:
        """Find what *selections* select, and where it is; None if there is much to look at."""
        found: dict[TopicPath, Partition] = {}
        searched = 0
        selecting = [entry.selector for entry in selections.entries if entry.selects]
        for selector in selecting:
            for number in partitions(selector, self._depth):
                partition = self.replicas.get(number)
                if partition is None:
                    continue
                if not partition.knows(selector):
                    searched += len(partition.values)
                    if searched > SEARCHED_AT_ONCE:
                        return None
                topics = partition.matching(selector)
                if topics is None or len(found) + len(topics) > FOUND_AT_ONCE:
                    return None
                found.update(dict.fromkeys(topics, partition))
        if len(selecting) == len(selections):
            return found
        return {topic: partition for topic, partition in found.items() if selections.selects(topic)}

    # --- Current values -----------------------------------------------------------------------------------------------

    async def room(self, session: Session) -> None:
        """Wait while a session has yet to be sent the values of too many selections."""
        await self._feeds.room(session)

    def feed(
        self,
        session: Session,
        selector: Selector | None = None,
        *,
        before: Selections | None = None,
        request: RequestNumber | None = None,
    ) -> int:
        """Send the current values of all topics that the session selects, as fast as it takes them.

        An update of a topic whose turn has not come is left to the feed, which brings its current value then (P6).

        Args:
            session: to whom; what it selects has been prepared.
            selector: only topics that it matches; None for all, in the place of everything that it was to be sent yet.
            before: what was in force already, so that the session has the values of these topics; None for nothing.
            request: the subscribe that they answer; None if they answer none.

        Returns:
            How many topics are looked at for that.
        """
        if session.dropped:
            return 0
        if selector is None:
            self._feeds.drop(session)
            self._complete.restoring.discard(session)
        topics, searched = self._candidates(session, selector)
        selected = session.selections.partitions if selector is None else partial(partitions, selector)
        numbers = selected(self._depth)
        feed = ValuesFeed(
            session,
            self._clock,
            selector=selector,
            before=before,
            topics=topics,
            partitions=searched,
            handed_out=self._handed_out,
            closing=self._complete.behind(session, numbers, request),
            request=request,
            numbers=numbers,
        )
        self._feeds.add(session, feed)
        return feed.size

    def restoring(self, session: Session) -> None:
        """A session will be sent the values of everything it selects, as soon as they are at hand (``feed``).

        Until then it is not told of any partition that it has all of it.
        """
        self._complete.restoring.add(session)
        if self._moved is not None:
            self._moved(session)

    def _handed_out(self, value: TopicValue) -> None:
        """Count a current value that a session was sent."""
        if self._traffic is not None:
            self._traffic.delivered(value.topic, len(value.value), 1)

    def _candidates(
        self, session: Session, selector: Selector | None
    ) -> tuple[dict[TopicPath, Partition], list[Partition]]:
        """Tell what has to be looked at for values: single topics, which are not searched for, and whole partitions."""
        selectors = (
            [entry.selector for entry in session.selections.entries if entry.selects]
            if selector is None
            else [selector]
        )
        searched = frozenset[int]().union(*(partitions(each, self._depth) for each in selectors if not each.literal))
        topics: dict[TopicPath, Partition] = {}
        for topic in {TopicPath(each.text): None for each in selectors if each.literal}:
            number = topic_partition(topic, self._depth)
            partition = None if number in searched else self.replicas.get(number)
            if partition and topic in partition.values:
                topics[topic] = partition
        return topics, [partition for number in searched if (partition := self.replicas.get(number))]

    def _removed(self, partition: Partition, topics: Iterable[TopicPath]) -> None:
        self.removals.note(partition, topics)

    # --- Updates ------------------------------------------------------------------------------------------------------

    def _changed(self, partition: Partition, changes: Sequence[Change]) -> None:
        """Send updates to those who select them, but for those that a feed will bring the current value."""
        match, feeds = self._index.match, self._feeds
        if not feeds.feeding:
            self._send(changes, match)
            return

        # Apart, so that the runs of all others stay whole while one session reads a long snapshot.
        def without_feeds(topic: TopicPath) -> tuple[Session, ...]:
            others, _ = feeds.part(match(topic))
            return others

        def with_feeds(topic: TopicPath) -> tuple[Session, ...]:
            _, fed = feeds.part(match(topic))
            due = tuple([each for each in fed if not feeds.owes(each, partition, topic)])
            return fed if len(due) == len(fed) else due

        self._send(changes, without_feeds)
        self._send(changes, with_feeds)

    def _send(self, changes: Sequence[Change], match: Callable[[TopicPath], tuple[Session, ...]]) -> None:
        """Send updates to sessions; a run of updates for the same ones is made once for all.

        Args:
            changes: what to send, in order.
            match: tells to whom the update of a topic goes; if that are the same sessions, it is the same object.
        """
        traffic = self._traffic
        subscribers: tuple[Session, ...] = ()
        packets: list[Outgoing] = []
        reached: list[tuple[Session, ...]] = []
        size = deliveries = 0
        for value, live in changes:
            matching = match(value.topic)
            if matching is not subscribers or size >= RUN_BYTES:
                if packets:
                    self._flusher.deliver(Run(tuple(packets)), subscribers, more=True)
                    reached.append(subscribers)
                    packets, size = [], 0
                subscribers = matching
            if matching:
                topic, version, event, text, _ = value
                body = codec.encode_update(topic, version, event, text, snapshot=not live)
                packets.append(Outgoing(topic, body))
                size += len(body)
                deliveries += len(matching)
                if traffic is not None:
                    traffic.delivered(topic, len(text), len(matching))
        if packets:
            self._flusher.deliver(Run(tuple(packets)), subscribers, more=False)
            reached.append(subscribers)
        if deliveries:
            self.delivered += deliveries
            self._metrics.add(catalogue.DELIVERIES, deliveries)
            _, is_live = changes[-1]  # as are those with it
            if is_live:
                self._flusher.mark_live(chain.from_iterable(reached))

    def _position_lost(self, number: int) -> None:
        self._announce(StreamPositionLost(number))
        self._grid.tail.unfollow(number)  # nothing comes from behind the hole before it has been told
        self._lost.put(number, None)

    async def _positions_lost(self, lost: dict[int, None]) -> None:
        async with self._telling:
            self._complete.rereading.update(lost)
            told: set[Session] = set()
            # Who comes while others are told has to be told as well.
            while left := [each for each in self._index if each not in told]:
                told.update(left)
                async for some in portions(left, TOLD_AT_ONCE):
                    self._tell_of_positions(some, lost)
            for number in lost:
                self.replicas.read_again(number)

    def _tell_of_positions(self, sessions: Iterable[Session], lost: dict[int, None]) -> None:
        told: dict[frozenset[int], list[Session]] = {}
        for session in sessions:
            concerned = session.retained.intersection(lost)
            # Who is sent no updates at the moment is sent the current values of all topics before the next one.
            if concerned and session in self._index:
                told.setdefault(concerned, []).append(session)
        for concerned, several in told.items():
            self._metrics.add(catalogue.LOSSES_DECLARED, len(several), label="position")
            self.notify(several, values_reread(concerned))

    def declare_reread(self, session: Session) -> None:
        """Tell a session that has skipped updates here that current values follow, if it wants to know."""
        if is_told(session) and session.retained:
            self.notify((session,), values_reread(session.retained))

    def declare_gap(self, session: Session, numbers: Iterable[int]) -> None:
        """Tell a session that goes on that it has missed updates of some partitions, and that current values follow."""
        self._metrics.add(catalogue.LOSSES_DECLARED, label="position")
        self.notify((session,), values_reread(numbers))

    def _completed(self, partition: Partition) -> None:
        """All values of a partition have been read; those who were told that they follow have them in line now."""
        rereading = self._complete.rereading
        if partition.number in rereading:
            rereading.discard(partition.number)
            self._background.once(self._tell_of_completion(partition.number), "values-reread")

    async def _tell_of_completion(self, number: int) -> None:
        concerned = [each for each in self._index if number in each.retained and is_told(each)]
        async for some in portions(concerned, TOLD_AT_ONCE):
            for session in some:
                notice = self._complete.make(session, (number,)) if session in self._index else None
                if notice is not None:
                    session.machine.submit_run(notice)
                    self._flusher.mark(session)

    async def declare_loss_to_all(self, sessions: Iterable[Session]) -> None:
        """Do what ``declare_loss`` does, for some at a time (P20); nobody is told meanwhile of losses that came later.

        Args:
            sessions: whom to tell; asked for as they are told, so that it may leave out whoever has been told since.
        """
        async with self._telling:
            async for some in portions(sessions, TOLD_AT_ONCE):
                self.declare_loss(some)

    def declare_loss(self, sessions: Iterable[Session]) -> None:
        """Declare to sessions that the grid has lost writes before it came to its present generation (P2)."""
        told = list(sessions)
        self.notify(told, GRID_LOST_WRITES)
        for session in told:
            session.loss_declared(self._grid.generation)
        self._metrics.add(catalogue.LOSSES_DECLARED, len(told), label="grid")

    def notify(self, sessions: Iterable[Session], notice: Notice) -> None:
        """Declare something to sessions (P2), as far as their clients understand it (protocol 4.1.1)."""
        outgoing = Outgoing(None, codec.encode_notice(notice))
        for session in sessions:
            if understands(session.supports, notice.code):
                session.machine.submit(outgoing)
                self._flusher.mark(session)
