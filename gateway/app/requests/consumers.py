"""Sessions that consume from queues: what they are given is read, sent, and accepted for those who want that (P15).

```text
grid: assigned ──deliveries──▶ pending ──read──▶ ready ──(room)──▶ outbox of the session ──▶ client
                                                                             │ acknowledged
grid: settled ◀──────────── accepted, if the client wants that ◀─────────────┘
```

What a session holds is in the grid. Whoever goes on with it at another node asks again to consume, and is sent all of
it; so nothing of this goes along when a session is handed over. Nothing here asks the grid while nothing happens (P11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Outdated, SessionLost
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.followed_partitions import FollowedPartitions
from gateway.app.requests.shared_feeder import SharedFeeder
from gateway.app.session.consumer import Consumer, Terms
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import queue_metrics as catalogue
from gateway.core.destinations.reserved import SHARED, TEMPORARY
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import State
from gateway.core.topics.selectors import Selector
from gateway.core.topics.topics import topic_partition
from gateway.core.types import DeliveryTag, RequestNumber, TopicPath
from gateway.core.wire.codec import encode_message
from gateway.core.wire.queue_packets import (
    AckMode,
)
from gateway.core.wire.queue_packets import (
    Message as MessagePacket,
)
from gateway.ports import (
    SETTLE_MOST,
    Assigned,
    Assignment,
    Attached,
    AttachRefused,
    GridUnavailable,
    Message,
    Settlement,
    SettleStep,
)

PAGE: Final = 32
"""Messages that are read in one step, and wait here for a client: with the largest values by default 2 MiB."""

WAITING_MOST: Final = 16
"""Packets that may wait in a session's outbox for messages to be added: far below its bounds, so that nobody is called
slow for having been given messages (P9)."""

BLOCKED: Final = 0.01
"""Seconds after which it is looked again whether the transport, or the client, has taken something."""

MOST_TEMPORARY: Final = 100
"""Temporary queues of one session: one for answers, and some for what it does at a time (P20)."""

NO_REQUEST: Final = RequestNumber(0)
"""In the place of a request: the node settles by itself."""


class Consumers:
    """The consumers of all sessions of a node.

    Args:
        context: of the node.
        store: where what is settled is written.
        sessions: the sessions held here.
        feeder: told who consumes from shared subscriptions.
    """

    def __init__(self, context: Context, store: FencedStore, sessions: Sessions, feeder: SharedFeeder) -> None:
        self._feeder = feeder
        self._queues = context.grid.queues
        self._depth = context.parameters.topic_depth
        self._background = context.background
        self._metrics = context.metrics
        self._traffic = context.journal.queues
        self._clock = context.clock
        self._log = context.log
        self._store = store
        self._sessions = sessions
        self._followed: FollowedPartitions[Assigned] = FollowedPartitions(context.grid.queues)
        self._count = 0
        sessions.tell_of_leaving(self.forget)
        context.metrics.watch(catalogue.QUEUE_CONSUMERS, lambda: self._count)

    # --- Begun and ended ----------------------------------------------------------------------------------------------

    async def attach(
        self, session: Session, queue: TopicPath, terms: Terms, *, selector: Selector | None, declares: bool
    ) -> AttachRefused | None:
        """Let a session consume, and send it what it holds; returns why not.

        Args:
            session: that consumes.
            queue: which.
            terms: of its client.
            selector: of the topics of its shared subscription; None if it is another queue.
            declares: whether the session may make the queue, if it is a temporary one of its own that is not there.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been done; asking again does no harm.
        """
        partition = topic_partition(queue, self._depth)
        known = None if session.consumers is None else session.consumers.get(queue)
        async with nullcontext() if known is None else known.asking:
            with self._followed.expecting(partition):
                attached = await self._ask(session, queue, partition, terms, declares=declares)
                if isinstance(attached, AttachRefused):
                    if known is not None:
                        self._drop(session, known)
                    return attached
                if not session.dropped:
                    consumer = Consumer(queue, partition, terms, attached.position, selector)
                    self._attached(session, consumer, attached)
        return None

    async def _ask(
        self, session: Session, queue: TopicPath, partition: int, terms: Terms, *, declares: bool
    ) -> Attached | AttachRefused:
        while True:
            attached = await self._store.attach_consumer(session, queue, terms)
            if attached is AttachRefused.ABSENT and declares and queue.startswith(TEMPORARY):
                # It goes along with its session (protocol 13.6), which a grid that lost it may have got back by now.
                declares = False
                if await self._store.declare_queue(session, queue, terms.bounds, most=MOST_TEMPORARY):
                    continue
            if isinstance(attached, AttachRefused) or self._followed.reads_from(partition, attached.position):
                return attached
            # Who attached later is known already: what was told between the two is read by nobody.

    def _attached(self, session: Session, consumer: Consumer, attached: Attached) -> None:
        if session.consumers is None:
            session.consumers = {}
        known = session.consumers.get(consumer.queue)
        if known is not None and known.terms.mode is consumer.terms.mode:
            # Another credit: what the client was sent is not sent again.
            known.terms, known.selector = consumer.terms, consumer.selector
            self._take_in(session, known, attached)
            self._feeder.settled(consumer.queue)
            return
        if known is None:
            self._count += 1
            if consumer.queue.startswith(SHARED):
                self._feeder.begin(consumer.queue)
        session.consumers[consumer.queue] = consumer
        for item in self._take_in(session, consumer, attached):
            if (item.session, item.queue) == (session.id, consumer.queue):
                consumer.assign(item.messages)

    async def leave(self, session: Session, queue: TopicPath) -> None:
        """Let a session consume no more.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        consumer = None if session.consumers is None else session.consumers.get(queue)
        if consumer is None:
            await self._store.detach_consumer(session, queue, DeliveryTag(0))
            return
        async with consumer.asking:
            await self._store.detach_consumer(session, queue, consumer.seen)
            self._drop(session, consumer)

    def withdraw(self, session: Session, consumers: Sequence[Consumer]) -> None:
        """Send a session nothing of some queues any more, from now on; the grid is told soon.

        Whoever asks meanwhile to consume from one of them waits until that is done: it is told with ``asking`` held.
        """
        for consumer in consumers:
            consumer.is_withdrawn = True
            self._background.once(self._withdraw(session, consumer), f"withdraw-consumer-{session.id}")

    async def _withdraw(self, session: Session, consumer: Consumer) -> None:
        async def detach() -> None:
            await self._store.detach_consumer(session, consumer.queue, consumer.seen)
            self._drop(session, consumer)

        async with consumer.asking:
            # Once its client asks for everything again, it is refused, and leaves then.
            await self._store.until_taken(lambda: not session.dropped and self._is_known(session, consumer), detach)

    def forget(self, session: Session) -> None:
        """The session is not this node's any more, or its client asks for everything again."""
        for consumer in list((session.consumers or {}).values()):
            self._drop(session, consumer)

    def _drop(self, session: Session, consumer: Consumer) -> None:
        consumers = session.consumers
        if consumers is None or consumers.get(consumer.queue) is not consumer:
            return
        del consumers[consumer.queue]
        self._count -= 1
        if consumer.queue.startswith(SHARED):
            self._feeder.end(consumer.queue)
        if not consumers:
            session.consumers = None
        if not any(each.partition == consumer.partition for each in consumers.values()):
            self._followed.leave(session, consumer.partition)

    # --- Given --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take in what is assigned, for ever."""
        async for item in self._queues.deliveries():
            if isinstance(item, Assigned):
                self._followed.note(item)
                self._assigned(item)
            else:
                self._background.once(self._attach_again(item.partition), f"consumers-{item.partition}")

    def _assigned(self, item: Assigned) -> None:
        session = self._sessions.get(item.session)
        consumer = None if session is None or session.consumers is None else session.consumers.get(item.queue)
        if session is None or consumer is None or item.position <= consumer.position:
            return
        consumer.assign(item.messages)
        self._wake(session, consumer)

    async def _attach_again(self, partition: int) -> None:
        """The grid has lost writes, or this node its place: ask what its consumers hold."""
        sessions = self._followed.lost(partition)
        await self._store.until_available()
        looked_at: set[TopicPath] = set()
        for session in sessions:
            for consumer in list((session.consumers or {}).values()):
                if consumer.partition != partition:
                    continue
                await self._attach_one_again(session, consumer)
                if consumer.queue not in looked_at:  # however many consume from it
                    looked_at.add(consumer.queue)
                    self._feeder.look_again(consumer.queue)

    async def _attach_one_again(self, session: Session, consumer: Consumer) -> None:
        async def attach() -> None:
            with self._followed.expecting(consumer.partition):
                attached = await self._ask(
                    session,
                    consumer.queue,
                    consumer.partition,
                    consumer.terms,
                    declares=session.permissions.declare,
                )
                if not self._is_current(session, consumer):
                    return
                if isinstance(attached, Attached):
                    self._take_in(session, consumer, attached)
                else:
                    # The queue was lost, too. The client is told when it asks again (protocol 13.5.4).
                    self._drop(session, consumer)

        async with consumer.asking:
            await self._store.until_taken(lambda: self._is_current(session, consumer), attach)

    def _take_in(self, session: Session, consumer: Consumer, attached: Attached) -> list[Assigned]:
        """Take in what a session holds; returns what its partition was told of while that was asked for.

        What was assigned later may be known by then, and is left alone: tags only rise.
        """
        held = {each.tag: each.message for each in attached.held}
        newest = max([attached.newest, *held])
        consumer.forget([tag for tag, message in consumer.held.items() if tag <= newest and held.get(tag) != message])
        consumer.assign(attached.held)
        consumer.position = max(consumer.position, attached.position)
        self._wake(session, consumer)
        return self._followed.enter(session, consumer.partition, attached.position)

    # --- Sent ---------------------------------------------------------------------------------------------------------

    def _wake(self, session: Session, consumer: Consumer, delay: float = 0.0) -> None:
        """Go on with a consumer at the end of this turn of the loop, or later."""
        if not consumer.waking:
            consumer.waking = True
            asyncio.get_running_loop().call_later(delay, self._go_on, session, consumer)

    def _go_on(self, session: Session, consumer: Consumer) -> None:
        consumer.waking = False
        if not self._is_current(session, consumer) or session.machine.state is not State.ATTACHED:
            return  # whoever comes back acknowledges what it has, and that goes on here
        machine = session.machine
        sent = 0
        while consumer.ready and machine.waiting < WAITING_MOST:
            assignment, message = consumer.ready.popleft()
            if assignment.tag in consumer.held or consumer.terms.mode is AckMode.NONE:
                self._send(session, consumer, assignment, message)
                sent += 1
        if sent:
            self._metrics.add(catalogue.QUEUE_DELIVERIES, sent)
            self._sessions.flusher.mark(session)
        if consumer.ready:
            self._wake(session, consumer, 0.0 if sent else BLOCKED)
        elif consumer.pending and not consumer.reading:
            consumer.reading = True
            self._background.once(self._read(session, consumer), f"read-messages-{session.id}")

    def _send(self, session: Session, consumer: Consumer, assignment: Assignment, message: Message) -> None:
        packet = MessagePacket(
            queue=consumer.queue,
            message=message.id,
            delivery=assignment.tag,
            sent=message.sent,
            deliveries=assignment.deliveries,
            redelivered=assignment.redelivered,
            value=None,
        )
        machine = session.machine
        machine.submit_run(Run((Outgoing(None, encode_message(packet, message.headers, message.value)),)))
        consumer.sent(machine.last_numbered + machine.waiting, assignment.tag)
        if self._traffic is not None:
            self._traffic.given(consumer.queue, redelivered=assignment.redelivered)

    async def _read(self, session: Session, consumer: Consumer) -> None:
        """Read the next messages; those that are accepted before they are sent are accepted now."""
        page = [consumer.pending.popleft() for _ in range(min(PAGE, len(consumer.pending)))]
        try:
            found = await self._store.until_known(
                lambda: self._queues.read(consumer.queue, [each.message for each in page])
            )
            if not self._is_current(session, consumer):
                return
            pairs = [(each, message) for each, message in zip(page, found, strict=True) if message is not None]
            consumer.times.update({each.tag: message.sent for each, message in pairs if each.tag in consumer.held})
            if consumer.terms.mode is AckMode.NONE and pairs:
                accepted = await self._accept(session, consumer, [each.tag for each, _ in pairs])
                pairs = [(each, message) for each, message in pairs if each.tag in accepted]
            consumer.ready.extend(pairs)
        except SessionLost:
            return
        finally:
            consumer.reading = False
        self._wake(session, consumer)

    # --- Acknowledged -------------------------------------------------------------------------------------------------

    def acknowledged(self, session: Session) -> None:
        """The client of a session that consumes has said something: accept what it has, and go on."""
        machine = session.machine
        if machine.state is State.GAP:
            return
        # Packets may turn out lower than they were expected to be; who has acknowledged all of them has all.
        upto = machine.oldest - 1 if machine.waiting or machine.unacknowledged else inf
        for consumer in (session.consumers or {}).values():
            if consumer.acknowledged(upto) and not consumer.accepting:
                consumer.accepting = True
                self._background.once(self._accept_all(session, consumer), f"accept-messages-{session.id}")
            if consumer.ready or consumer.pending:
                self._wake(session, consumer)

    async def _accept_all(self, session: Session, consumer: Consumer) -> None:
        try:
            while consumer.settling and self._is_current(session, consumer):
                tags = consumer.settling[:SETTLE_MOST]
                await self._accept(session, consumer, tags)
                del consumer.settling[: len(tags)]
        except SessionLost:
            return
        finally:
            consumer.accepting = False

    async def _accept(self, session: Session, consumer: Consumer, tags: list[DeliveryTag]) -> set[DeliveryTag]:
        """Accept messages for a client; returns which of them the session did hold.

        Raises:
            SessionLost: see ``fencing``.
        """
        messages = tuple((tag, consumer.held[tag]) for tag in tags if tag in consumer.held)
        step = SettleStep(NO_REQUEST, Settlement.ACCEPT, messages)
        results, asked = None, 0
        while results is None:
            try:
                results = await self._store.settle(session, consumer.queue, consumer.seen, (step,))
            except GridUnavailable:
                asked += 1
                await self._store.until_available()
            except Outdated:
                asked += 1
        self._feeder.settled(consumer.queue)
        missing = set(results[0].not_held)
        if missing and not asked:
            self._log.emit(events.MESSAGES_NOT_HELD, session=session.id, queue=consumer.queue, count=len(missing))
        accepted = {tag for tag, message in messages if message not in missing}
        if self._traffic is not None:
            now = self._clock.wall()
            self._traffic.settled(consumer.queue, Settlement.ACCEPT, [consumer.age(tag, now) for tag in accepted])
        consumer.forget(tags)
        self._metrics.add(catalogue.QUEUE_SETTLEMENTS, len(accepted), label=Settlement.ACCEPT.value)
        return accepted

    @classmethod
    def _is_current(cls, session: Session, consumer: Consumer) -> bool:
        return not consumer.is_withdrawn and cls._is_known(session, consumer)

    @staticmethod
    def _is_known(session: Session, consumer: Consumer) -> bool:
        return session.consumers is not None and session.consumers.get(consumer.queue) is consumer
