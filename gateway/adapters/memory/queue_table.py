"""The queues that an in-memory grid holds, one method per atomic step; the Lua of the Redis adapter does the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Final

from gateway.adapters.memory.queue_records import QueueConsumer, QueuePartition, StoredMessage, StoredQueue
from gateway.core.topics.topics import TOPIC_PARTITIONS, is_reserved, topic_partition
from gateway.core.topics.versions import least_version
from gateway.core.types import Epoch, GridGeneration, SessionId, TopicPath
from gateway.ports import (
    Assigned,
    Assignment,
    Attached,
    AttachRefused,
    DeadLetter,
    DeliveryTag,
    Fed,
    Message,
    MessageId,
    Overflow,
    Ownership,
    QueueBounds,
    QueueState,
    Removal,
    SendCommand,
    Settlement,
    SettleStep,
    StagedSend,
    StreamPosition,
    message_bytes,
)

MOST_QUEUES: Final = 10_000
"""Queues that a partition may hold, as on Redis."""

MOST_ASSIGNED: Final = 1_000
"""Messages that one step assigns, as on Redis: the largest credit, some milliseconds there. With more the queue is due
at once."""

NOTHING_SEEN: Final = DeliveryTag(0)
"""Below the first assignment of every queue."""

_MS: Final = 1000
"""Milliseconds in a second; messages say in these when they were sent."""


class Queues:
    """All queues of the grid. Every method is one atomic step; *now* is the grid's clock in seconds.

    Args:
        depth: leading path segments that decide a queue's partition.
        origin: of the grid's clock, in seconds since 1970.
    """

    def __init__(self, depth: int, origin: float) -> None:
        self._partitions = [QueuePartition() for _ in range(TOPIC_PARTITIONS)]
        self._depth = depth
        self._origin = origin
        self._news = False

    def send(self, command: SendCommand, generation: GridGeneration, now: float) -> MessageId | None:
        """Put a message into its queue; None if there is no room. Whether it may run, others have decided."""
        partition = self._partitions[self.partition(command.queue)]
        queue = partition.queues.get(command.queue)
        if queue is None:
            if len(partition.queues) >= MOST_QUEUES:
                return None
            queue = partition.queues[command.queue] = StoredQueue(command.bounds)
        queue.bounds = command.bounds
        self._fire(queue, now)
        size = message_bytes(command.headers, command.value, expires=bool(command.expires))
        if not self._make_room(queue, size, now):
            self._close(partition, command.queue, generation, now)
            return None
        number = self._add(partition, queue, command, generation, now)
        self._close(partition, command.queue, generation, now)
        return number

    def attach(
        self,
        ownership: Ownership,
        name: TopicPath,
        *,
        credit: int,
        bounds: QueueBounds,
        most_consumers: int,
        generation: GridGeneration,
        now: float,
    ) -> Attached | AttachRefused | None:
        """See ``QueueStore.attach``; None if it is fenced."""
        number = self.partition(name)
        partition = self._partitions[number]
        queue = partition.queues.get(name)
        session = ownership.session
        consumer = None if queue is None else queue.consumers.get(session)
        if consumer is not None and consumer.epoch > ownership.epoch:
            return None
        if queue is not None and consumer is None and len(queue.consumers) >= most_consumers:
            return AttachRefused.CONSUMERS
        if queue is None:
            if is_reserved(name):
                return AttachRefused.ABSENT
            if len(partition.queues) >= MOST_QUEUES:
                return AttachRefused.QUEUES
            queue = partition.queues[name] = StoredQueue(bounds)
        queue.bounds = bounds
        before = queue.turn = max(queue.turn, least_version(generation))
        if consumer is None:
            queue.turn += 1
            consumer = queue.consumers[session] = QueueConsumer(ownership.epoch, credit, queue.turn, queue.turn)
        had_credit = consumer.free > 0
        consumer.epoch, consumer.credit = ownership.epoch, credit
        if not had_credit:
            consumer.served = queue.turn
        if queue.holder is None:
            queue.holder = session
        if partition.end.grid_generation != generation:
            partition.end = StreamPosition(generation, 0)
        self._fire(queue, now)
        self._close(partition, name, generation, now, direct=session)
        held = tuple(self._assignment(queue, tag, held[0]) for tag, held in consumer.held.items())
        return Attached(partition.end, held, DeliveryTag(before))

    def read(self, name: TopicPath, messages: Iterable[MessageId]) -> list[Message | None]:
        """See ``QueueStore.read``."""
        queue = self._find(name)
        stored = {} if queue is None else queue.messages
        return [stored[each].message if each in stored else None for each in messages]

    def may_settle(self, ownership: Ownership, name: TopicPath) -> bool | None:
        """Tell whether a session may settle by an ownership; None if a newer one has been here."""
        queue = self._find(name)
        consumer = None if queue is None else queue.consumers.get(ownership.session)
        if consumer is None:
            return False
        if consumer.epoch > ownership.epoch:
            return None
        consumer.epoch = ownership.epoch
        return True

    def see(self, session: SessionId, name: TopicPath, seen: DeliveryTag) -> None:
        """Note what the client of a consumer has received."""
        consumer = self._partitions[self.partition(name)].queues[name].consumers[session]
        consumer.seen = max(consumer.seen, seen)

    def settle(self, session: SessionId, name: TopicPath, step: SettleStep, now: float) -> tuple[MessageId, ...]:
        """Settle what a consumer holds; returns what it does not hold."""
        queue = self._partitions[self.partition(name)].queues[name]
        consumer = queue.consumers[session]
        missing: list[MessageId] = []
        theirs: list[MessageId] = []
        full = consumer.free <= 0
        for tag, message in step.messages:
            if consumer.held.get(tag, (None,))[0] == message:
                del consumer.held[tag]
                theirs.append(message)
            else:
                missing.append(message)
        if full and theirs:
            consumer.served = queue.turn
        for message in theirs:
            if step.outcome is Settlement.ACCEPT:
                del queue.messages[message]
            elif step.outcome is Settlement.REJECT:
                self._bury(queue, message, "rejected", now)
            else:
                self._give_back(queue, message, now, failed=True, delay=step.delay)
        return tuple(missing)

    def close(self, name: TopicPath, generation: GridGeneration, now: float) -> None:
        """Do what is due, and assign what can be, at the end of a step."""
        partition = self._partitions[self.partition(name)]
        queue = partition.queues.get(name)
        if queue is not None:
            self._fire(queue, now)
            self._close(partition, name, generation, now)

    def leave(
        self,
        session: SessionId,
        name: TopicPath,
        generation: GridGeneration,
        now: float,
        *,
        epoch: Epoch | None = None,
        seen: DeliveryTag = NOTHING_SEEN,
    ) -> bool:
        """Let a session consume no more; False if it is fenced. Without an epoch because it has ended."""
        partition = self._partitions[self.partition(name)]
        queue = partition.queues.get(name)
        consumer = None if queue is None else queue.consumers.get(session)
        if queue is None or consumer is None:
            return True
        if epoch is not None and consumer.epoch > epoch:
            return False
        del queue.consumers[session]
        if not queue.consumers:
            queue.used = now
        for tag, (message, _) in consumer.held.items():
            self._give_back(queue, message, now, failed=tag <= max(seen, consumer.seen))
        if queue.holder == session:
            others = queue.consumers.items()
            queue.holder = min(others, key=lambda each: each[1].joined)[0] if others else None
        self._fire(queue, now)
        self._close(partition, name, generation, now)
        return True

    def forget(self, session: SessionId, generation: GridGeneration, now: float) -> None:
        """Let a session that has ended leave every queue."""
        for partition in self._partitions:
            for name in [name for name, queue in partition.queues.items() if queue.owner == session]:
                del partition.queues[name]
            for name in [name for name, queue in partition.queues.items() if session in queue.consumers]:
                self.leave(session, name, generation, now)

    def fire(self, number: int, generation: GridGeneration, now: float) -> int:
        """See ``QueueStore.fire``."""
        partition = self._partitions[number]
        due = [name for name, queue in partition.queues.items() if _is_due(queue, now)]
        for name in due:
            self.close(name, generation, now)
        return len(due)

    def is_undeclared(self, name: TopicPath) -> bool:
        """Tell whether it is of the kind that has to be declared, and is not."""
        return is_reserved(name) and self._find(name) is None

    def declare(
        self,
        name: TopicPath,
        bounds: QueueBounds,
        *,
        owner: SessionId | None,
        most: int,
        source: str,
        fed: str,
        now: float,
    ) -> bool:
        """See ``QueueStore.declare``; that the session has not ended, others have found out."""
        partition = self._partitions[self.partition(name)]
        queue = partition.queues.get(name)
        if queue is None:
            theirs = sum(owner == each.owner or owner in each.consumers for each in partition.queues.values())
            if len(partition.queues) >= MOST_QUEUES or (owner is not None and theirs >= most):
                return False
            queue = partition.queues[name] = StoredQueue(bounds)
        queue.bounds = bounds
        if not queue.is_declared:
            queue.owner = owner
            queue.fed = (fed, source) if owner is None else None
        queue.used = now
        return True

    def feed(
        self,
        name: TopicPath,
        bounds: QueueBounds,
        *,
        after: str | None,
        upto: str,
        events: Sequence[tuple[bytes, bytes]],
        generation: GridGeneration,
        now: float,
    ) -> Fed | None:
        """See ``QueueStore.feed``."""
        partition = self._partitions[self.partition(name)]
        queue = partition.queues.get(name)
        if queue is None or queue.fed is None:
            return None
        position, source = queue.fed
        if after == position:
            queue.fed, queue.bounds = (upto, source), bounds
            self._fire(queue, now)
            for headers, value in events:
                self._add(partition, queue, StagedSend(name, value, headers, queue.bounds), generation, now)
            self._close(partition, name, generation, now)
        return Fed(queue.fed[0], len(queue.ready), source)

    def remove(self, name: TopicPath, now: float, *, force: bool, unused: float) -> Removal:
        """See ``QueueStore.remove``."""
        queue = self._find(name)
        if queue is None or queue.fed is None:
            return Removal.ABSENT
        if not force and (queue.consumers or now - queue.used < unused):
            return Removal.USED
        del self._partitions[self.partition(name)].queues[name]
        return Removal.DONE

    def last_use(self, name: TopicPath) -> int | None:
        """See ``QueueStore.last_use``."""
        queue = self._find(name)
        return None if queue is None or queue.consumers or queue.fed is None else int(queue.used * _MS)

    def look(self, name: TopicPath) -> QueueState | None:
        """See ``QueueStore.look``."""
        queue = self._find(name)
        return None if queue is None else queue.state()

    def consumers(self, name: TopicPath) -> Sequence[SessionId]:
        """See ``QueueStore.consumers``."""
        queue = self._find(name)
        return [] if queue is None else list(queue.consumers)

    def dismiss(self, name: TopicPath, session: SessionId, generation: GridGeneration, now: float) -> bool:
        """See ``QueueStore.dismiss``."""
        queue = self._find(name)
        if queue is not None and queue.owner == session:
            del self._partitions[self.partition(name)].queues[name]
            return True
        if queue is None or session not in queue.consumers:
            return False
        return self.leave(session, name, generation, now)

    def names(self, partition: int, after: TopicPath | None, count: int) -> Sequence[TopicPath]:
        """See ``QueueStore.names``."""
        found = self._partitions[partition].queues
        return sorted(each for each in found if after is None or each > after)[:count]

    def dead(self, name: TopicPath, count: int, skip: int) -> Sequence[DeadLetter]:
        """See ``QueueStore.dead``."""
        queue = self._find(name)
        letters = [] if queue is None else queue.dead()[skip : skip + count]
        return [DeadLetter(each.message, each.reason, each.failed, self._shown(each.since)) for each in letters]

    def revive(
        self, name: TopicPath, messages: Iterable[MessageId], generation: GridGeneration, now: float, *, drop: bool
    ) -> int:
        """See ``QueueStore.revive``."""
        partition = self._partitions[self.partition(name)]
        queue = partition.queues.get(name)
        if queue is None:
            return 0
        found = [each for each in dict.fromkeys(messages) if each in queue.messages and queue.messages[each].reason]
        for each in found:
            if drop:
                del queue.messages[each]
            else:
                queue.messages[each] = replace(queue.messages[each], failed=0, given=True, reason="", expires=None)
                queue.ready.add(each)
        self._fire(queue, now)
        self._close(partition, name, generation, now)
        return len(found)

    def partition(self, name: TopicPath) -> int:
        """Tell the partition of a queue."""
        return topic_partition(name, self._depth)

    def after(self, number: int, position: StreamPosition) -> list[Assigned] | None:
        """Read a partition's deliveries behind a position; None if they do not continue from there."""
        partition = self._partitions[number]
        missing = partition.end.sequence - position.sequence
        if partition.end.grid_generation != position.grid_generation or not 0 <= missing <= len(partition.entries):
            return None
        return list(partition.entries)[len(partition.entries) - missing :]

    def take_news(self) -> bool:
        """Tell whether something was assigned since this was asked last."""
        news, self._news = self._news, False
        return news

    def inventory(self) -> set[str]:
        """Name everything that is kept of sessions."""
        return {
            f"consumer {session} of {name}"
            for partition in self._partitions
            for name, queue in partition.queues.items()
            for session in queue.consumers
        }

    # --- inside -------------------------------------------------------------------------------------------------------

    def _find(self, name: TopicPath) -> StoredQueue | None:
        return self._partitions[self.partition(name)].queues.get(name)

    def _shown(self, now: float) -> int:
        """Write a time of the grid's clock as messages say it."""
        return int((self._origin + now) * _MS)

    def _add(
        self,
        partition: QueuePartition,
        queue: StoredQueue,
        sent: SendCommand | StagedSend,
        generation: GridGeneration,
        now: float,
    ) -> MessageId:
        partition.newest = max(partition.newest, least_version(generation)) + 1
        number = MessageId(partition.newest)
        queue.sent += 1
        stored = queue.messages[number] = StoredMessage(
            Message(number, self._shown(now), sent.headers, sent.value),
            message_bytes(sent.headers, sent.value, expires=bool(sent.expires)),
            now + sent.expires if sent.expires else None,
        )
        if sent.delay:
            stored.ready_at = now + sent.delay
        else:
            queue.ready.add(number)
        return number

    @staticmethod
    def _assignment(queue: StoredQueue, tag: int, message: MessageId) -> Assignment:
        stored = queue.messages[message]
        return Assignment(DeliveryTag(tag), message, stored.failed, stored.given)

    def _make_room(self, queue: StoredQueue, size: int, now: float) -> bool:
        """Drop the oldest for a message, if that makes room for it; else nothing is dropped."""
        bounds, living = queue.bounds, queue.living()
        over, over_bytes = len(living) + 1 - bounds.messages, sum(each.size for each in living) + size - bounds.size
        if over <= 0 and over_bytes <= 0:
            return True
        if bounds.overflow is Overflow.REFUSE or size > bounds.size:
            return False
        oldest = oldest_over(queue, over, over_bytes)
        if oldest is None:
            return False
        for each in oldest:
            self._bury(queue, each, "overflow", now)
        return True

    @staticmethod
    def _bury(queue: StoredQueue, message: MessageId, reason: str, now: float) -> None:
        queue.ready.discard(message)
        stored = queue.messages[message]
        stored.reason, stored.since, stored.ready_at, stored.expires = reason, now, None, None
        queue.buried += 1
        stored.place = queue.buried
        dead = queue.dead()
        while dead and (len(dead) > queue.bounds.dead or sum(each.size for each in dead) > queue.bounds.dead_size):
            del queue.messages[dead.pop(0).message.id]

    def _give_back(
        self, queue: StoredQueue, message: MessageId, now: float, *, failed: bool, delay: float = 0.0
    ) -> None:
        stored = queue.messages[message]
        stored.failed += failed
        stored.given = True
        if failed and 0 < queue.bounds.deliveries <= stored.failed:
            self._bury(queue, message, "deliveries", now)
        elif stored.expires is not None and stored.expires <= now:
            self._bury(queue, message, "expired", now)
        elif delay:
            stored.ready_at = now + delay
        else:
            queue.ready.add(message)

    def _fire(self, queue: StoredQueue, now: float, spared: Collection[tuple[int, MessageId]] = ()) -> None:
        """Do what is due, in its order; what is *spared*, by tag and id, is not taken back."""
        taken_back = [
            (until, message, consumer, tag)
            for consumer in queue.consumers.values()
            for tag, (message, until) in consumer.held.items()
            if until is not None and until <= now and (tag, message) not in spared
        ]
        over = [
            (when, number, None, 0)
            for number, stored in queue.messages.items()
            for when in (stored.ready_at, stored.expires)
            if when is not None and when <= now
        ]
        for _, number, consumer, tag in sorted([*taken_back, *over], key=lambda each: each[:2]):
            stored = queue.messages.get(number)
            if stored is None or stored.reason:
                continue
            if consumer is not None:
                if consumer.free <= 0:
                    consumer.served = queue.turn
                del consumer.held[tag]
                self._give_back(queue, number, now, failed=tag <= consumer.seen)
            elif stored.expires is not None and stored.expires <= now and not queue.is_held(number):
                self._bury(queue, number, "expired", now)
            elif stored.ready_at is not None and stored.ready_at <= now:
                stored.ready_at = None
                queue.ready.add(number)
        age = queue.bounds.dead_age
        for number in [each.message.id for each in queue.dead() if age and each.since + age <= now]:
            del queue.messages[number]

    def _close(
        self,
        partition: QueuePartition,
        name: TopicPath,
        generation: GridGeneration,
        now: float,
        direct: SessionId | None = None,
    ) -> None:
        self._assign(partition, name, generation, now, direct)
        queue = partition.queues[name]
        if not queue.messages and not queue.consumers and not queue.is_declared:
            del partition.queues[name]

    def _assign(
        self,
        partition: QueuePartition,
        name: TopicPath,
        generation: GridGeneration,
        now: float,
        direct: SessionId | None,
    ) -> None:
        queue = partition.queues[name]
        queue.turn = max(queue.turn, least_version(generation))
        told: dict[SessionId, list[Assignment]] = {}
        left, queue.unfinished = MOST_ASSIGNED, False
        while queue.ready:
            takers = [
                (session, each)
                for session, each in queue.consumers.items()
                if each.free > 0 and (not queue.bounds.exclusive or session == queue.holder)
            ]
            if not takers:
                break
            if not left:
                queue.unfinished = True
                break
            line = nsmallest(len(queue.ready), takers, key=lambda each: (each[1].served, each[0]))
            while left and queue.ready and any(each.free > 0 for _, each in line):
                for session, consumer in line:
                    if not left or not queue.ready or consumer.free <= 0:
                        continue
                    left -= 1
                    message = min(queue.ready)
                    queue.ready.remove(message)
                    queue.turn += 1
                    within = queue.bounds.ack_within
                    consumer.held[queue.turn] = (message, now + within if within else None)
                    consumer.served = queue.turn
                    if session != direct:
                        told.setdefault(session, []).append(self._assignment(queue, queue.turn, message))
        for session, assignments in told.items():
            sequence = partition.end.sequence + 1 if partition.end.grid_generation == generation else 1
            partition.end = StreamPosition(generation, sequence)
            partition.entries.append(
                Assigned(
                    self.partition(name),
                    partition.end,
                    name,
                    session,
                    queue.consumers[session].epoch,
                    tuple(assignments),
                )
            )
            self._news = True


def oldest_over(queue: StoredQueue, over: int, over_bytes: int) -> list[MessageId] | None:
    """List the oldest that are ready, so many and with so many bytes at least; None if all of them are not enough."""
    oldest: list[MessageId] = []
    freed = 0
    for each in sorted(queue.ready):
        if len(oldest) >= over and freed >= over_bytes:
            break
        oldest.append(each)
        freed += queue.messages[each].size
    return oldest if len(oldest) >= over and freed >= over_bytes else None


def _is_due(queue: StoredQueue, now: float) -> bool:
    if queue.unfinished:
        return True
    times = [each.ready_at for each in queue.messages.values()]
    times += [each.expires for number, each in queue.messages.items() if not queue.is_held(number)]
    times += [until for consumer in queue.consumers.values() for _, until in consumer.held.values()]
    if queue.bounds.dead_age:
        times += [each.since + queue.bounds.dead_age for each in queue.dead()]
    return any(each is not None and each <= now for each in times)
