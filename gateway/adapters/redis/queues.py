"""Queues: implements ``gateway.ports.QueueStore``. Each step is one script on one queue; see ``queue.lua``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData, read_topic
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.partition_reading import PartitionReading, position_of
from gateway.adapters.redis.scripts import Argument, Command
from gateway.adapters.redis.staged import OUTCOMES, TAG_DIGITS, bounds_text
from gateway.adapters.redis.tail import RedisTail
from gateway.adapters.redis.topics import RECEIPT_LIFE_MS, STORED_RECEIPT_LIFE_MS
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, SessionId, TopicPath
from gateway.core.wire.errors import GatewayError
from gateway.ports import (
    Assigned,
    Assignment,
    Attached,
    AttachRefused,
    DeadLetter,
    DeliveriesLost,
    DeliveryItem,
    DeliveryTag,
    Fed,
    Fenced,
    GridRefused,
    Message,
    MessageId,
    NotDeclared,
    Ownership,
    QueueBounds,
    QueueFull,
    QueueState,
    Removal,
    SendCommand,
    SendResult,
    Sent,
    SettleCommand,
    SettleResult,
    StreamPosition,
)

SEND_COUNT: Final = 100
"""Messages in one step of the grid, as of publishes."""

SEND_BYTES: Final = 64 * 1024
"""Bytes of them above which no further one is added, likewise."""

DELIVERIES_LENGTH: Final = 10_000
"""Entries that the deliveries of a partition keep, about; each names what one consumer was given by one step. A node
that is further behind asks what its consumers hold."""

MOST_QUEUES: Final = 10_000
"""Queues that a partition may hold: some 10 MB if each has nothing but a consumer (P20)."""

FIRED_QUEUES: Final = 16
"""Queues that one call looks after, each for a millisecond or two at most."""

_NO_POSITION: Final = "-"
"""In the place of a position at which nothing has been read."""

_NUMBERS: Final = 4
"""Of each assignment: tag, id, failed deliveries, whether somebody may have received it."""


class RedisQueues:
    """Queues in Redis.

    Args:
        grid: the connection.
        keys: names of all keys.
        tail: reads what is assigned.
        foreign: told of what is not the gateway's.
        depth: leading path segments that decide a queue's partition, as of a topic.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, tail: RedisTail, foreign: ForeignData, depth: int) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._tail = tail
        self._foreign = foreign
        self._depth = depth
        self._items: asyncio.Queue[DeliveryItem] = asyncio.Queue()
        self._followed: dict[int, PartitionReading] = {}
        grid.when_writes_are_lost(self._lose_all)

    async def send(self, commands: Sequence[SendCommand]) -> list[SendResult]:
        """See ``QueueStore.send``."""
        chains: dict[tuple[int, SessionId], list[list[int]]] = {}
        for place, command in enumerate(commands):
            chain = chains.setdefault((self._partition(command.queue), command.ownership.session), [])
            if not chain or not _joins([commands[each] for each in chain[-1]], command):
                chain.append([])
            chain[-1].append(place)
        results: dict[int, SendResult] = {}
        under_way = [self._send_chain(commands, each, results) for each in chains.values()]
        for failed in await asyncio.gather(*under_way, return_exceptions=True):
            if failed is not None:
                raise failed
        return [results[place] for place in range(len(commands))]

    async def attach(
        self, ownership: Ownership, queue: TopicPath, *, credit: int, bounds: QueueBounds, most_consumers: int
    ) -> Attached | AttachRefused:
        """See ``QueueStore.attach``."""
        session, partition = ownership.session, self._partition(queue)
        keys = (*self._keys.queue(partition, queue), self._keys.consuming(partition, session))
        reply = await self._call(
            scripts.QUEUE_ATTACH(
                *(*keys, self._keys.closed[partition]),
                *self._head(queue),
                *(
                    session,
                    ownership.epoch,
                    short_hash(session),
                    credit,
                    bounds_text(bounds),
                    MOST_QUEUES,
                    most_consumers,
                ),
            )
        )
        if reply == b"fenced":
            raise _fenced(ownership)
        if isinstance(reply, bytes):
            return AttachRefused(reply.decode())
        return Attached(position_of(reply[0]), _assignments(reply[2:]), DeliveryTag(int(reply[1])))

    async def read(self, queue: TopicPath, messages: Sequence[MessageId]) -> list[Message | None]:
        """See ``QueueStore.read``."""
        if not messages:
            return []
        key = self._keys.queue(self._partition(queue), queue)[1]
        stored = await self._batcher.call(("HMGET", key, *messages))
        return [self._message(key, each, record) for each, record in zip(messages, stored, strict=True)]

    async def settle(self, command: SettleCommand) -> list[SettleResult]:
        """See ``QueueStore.settle``."""
        ownership, partition = command.ownership, self._partition(command.queue)
        session = ownership.session
        steps: list[Argument] = []
        for each in command.steps:
            steps += (each.request, OUTCOMES[each.outcome], scripts.milliseconds(each.delay), len(each.messages))
            for tag, message in each.messages:
                steps += (f"{tag:0{TAG_DIGITS}}", message)
        reply = await self._call(
            scripts.QUEUE_SETTLE(
                *self._keys.queue(partition, command.queue),
                *(self._keys.receipts(partition, session), self._keys.closed[partition]),
                *self._head(command.queue),
                *(ownership.epoch, command.settled, short_hash(session), STORED_RECEIPT_LIFE_MS),
                *(session, command.seen),
                *steps,
            )
        )
        if reply == b"fenced":
            raise _fenced(ownership)
        results: list[SettleResult] = []
        for each, answer in zip(command.steps, reply, strict=True):
            if isinstance(answer, bytes):
                results.append(SettleResult((), duplicate=True, complete=answer == b"=0"))
            else:
                missing = tuple(each.messages[number - 1][1] for number in answer)
                results.append(SettleResult(missing, duplicate=False, complete=not missing))
        return results

    async def leave(self, ownership: Ownership, queue: TopicPath, *, seen: DeliveryTag) -> None:
        """See ``QueueStore.leave``."""
        command = leave_command(
            self._keys,
            (self._partition(queue), queue),
            ownership.session,
            self._head(queue),
            epoch=ownership.epoch,
            seen=seen,
        )
        if await self._call(command) == b"fenced":
            raise _fenced(ownership)

    async def fire(self, partition: int) -> int:
        """See ``QueueStore.fire``."""
        due = await self._batcher.call(
            scripts.QUEUE_DUE(self._keys.queues_due[partition], self._grid.clock.argument(), FIRED_QUEUES)
        )
        for name in due:
            try:
                queue = read_topic(name)
            except (ValueError, GatewayError) as error:
                self._foreign.skipped(self._keys.queues_due[partition], repr(name), error)
                await self._batcher.call(("ZREM", self._keys.queues_due[partition], name))
                continue
            await self._call(scripts.QUEUE_FIRE(*self._keys.queue(partition, queue), *self._head(queue)))
        return len(due)

    async def declare(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        owner: Ownership | None = None,
        most: int = 1,
        source: str = "",
        fed: str = "",
    ) -> bool:
        """See ``QueueStore.declare``."""
        partition = self._partition(queue)
        session = SessionId("") if owner is None else owner.session
        reply = await self._call(
            scripts.QUEUE_DECLARE(
                *self._keys.queue(partition, queue),
                *(self._keys.consuming(partition, session), self._keys.closed[partition]),
                *self._head(queue),
                *(bounds_text(bounds), MOST_QUEUES, session, short_hash(session), source, fed or _NO_POSITION, most),
            )
        )
        if reply == b"fenced" and owner is not None:
            raise _fenced(owner)
        return bool(reply == 1)

    async def feed(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        after: str | None = None,
        upto: str = "",
        events: Sequence[tuple[bytes, bytes]] = (),
    ) -> Fed | None:
        """See ``QueueStore.feed``."""
        before = "" if after is None else after or _NO_POSITION
        records: list[Argument] = []
        for headers, value in events:
            records += (len(headers), headers + value)
        keys = self._keys.queue(self._partition(queue), queue)
        reply = await self._call(
            scripts.QUEUE_FEED(*keys, *self._head(queue), bounds_text(bounds), before, upto or _NO_POSITION, *records)
        )
        if reply == b"none":
            return None
        position, ready, source = reply
        return Fed("" if position == _NO_POSITION.encode() else position.decode(), ready, source.decode())

    async def remove(self, queue: TopicPath, *, force: bool = False, unused: float = 0.0) -> Removal:
        """See ``QueueStore.remove``."""
        partition = self._partition(queue)
        consumers = await self.consumers(queue) if force else ()
        theirs = [self._keys.consuming(partition, each) for each in consumers]
        keys = (*self._keys.queue(partition, queue), *theirs)
        arguments = (*self._head(queue), int(force), scripts.milliseconds(unused))
        reply = await self._call(scripts.QUEUE_REMOVE.across(1, *keys, *arguments, more=len(theirs)))
        if reply == b"used":
            return Removal.USED
        return Removal.DONE if reply == 1 else Removal.ABSENT

    async def last_use(self, queue: TopicPath) -> int | None:
        """See ``QueueStore.last_use``."""
        meta, _, _, _, _, consumers, *_ = self._keys.queue(self._partition(queue), queue)
        count, used = await self._batcher.call_all([("HLEN", consumers), ("HGET", meta, "used")])
        return None if count or used is None else int(used)

    async def look(self, queue: TopicPath) -> QueueState | None:
        """See ``QueueStore.look``."""
        meta, messages, ready, _, held, consumers, _, dead, _, queues, *_ = self._keys.queue(
            self._partition(queue), queue
        )
        reply = await self._batcher.call(
            scripts.QUEUE_LOOK(*(meta, messages, ready, held, consumers, dead, queues), queue)
        )
        if reply is None:
            return None
        count, waiting, taken, lost, size, consuming, oldest, sent = reply
        return QueueState(
            ready=waiting,
            delayed=count - waiting - taken - lost,
            held=taken,
            dead=lost,
            size=int(size),
            consumers=consuming,
            oldest=int(oldest) if oldest else None,
            sent=int(sent),
        )

    async def consumers(self, queue: TopicPath) -> Sequence[SessionId]:
        """See ``QueueStore.consumers``."""
        _, _, _, _, _, consumers, *_ = self._keys.queue(self._partition(queue), queue)
        return [SessionId(each.decode()) for each in await self._batcher.call(("HKEYS", consumers))]

    async def dismiss(self, queue: TopicPath, session: SessionId) -> bool:
        """See ``QueueStore.dismiss``."""
        place = self._partition(queue), queue
        return bool(await self._call(leave_command(self._keys, place, session, self._head(queue))) == 1)

    async def names(self, partition: int, *, after: TopicPath | None, count: int) -> Sequence[TopicPath]:
        """See ``QueueStore.names``."""
        key = self._keys.queues[partition]
        found: list[TopicPath] = []
        for each in await self._batcher.call(("HKEYS", key)):
            if each:  # the empty one is the partition's own
                try:
                    found.append(read_topic(each))
                except (ValueError, GatewayError) as error:
                    self._foreign.skipped(key, repr(each), error)
        return sorted(each for each in found if after is None or each > after)[:count]

    async def dead(self, queue: TopicPath, *, count: int, skip: int = 0) -> Sequence[DeadLetter]:
        """See ``QueueStore.dead``."""
        _, messages, *_, dead, notes, _, _, _ = self._keys.queue(self._partition(queue), queue)
        reply = await self._batcher.call(scripts.QUEUE_DEAD(*(messages, dead, notes), skip, count))
        letters: list[DeadLetter] = []
        for number, since, note, record in zip(*(reply[start::4] for start in range(4)), strict=True):
            message = self._message(messages, MessageId(int(number)), record)
            if message is not None:
                failed, _, reason = note.decode().partition(" ")
                letters.append(DeadLetter(message, reason, int(failed), int(since)))
        return letters

    async def revive(self, queue: TopicPath, messages: Sequence[MessageId], *, drop: bool = False) -> int:
        """See ``QueueStore.revive``."""
        keys = self._keys.queue(self._partition(queue), queue)
        reply: int = await self._call(scripts.QUEUE_REVIVE(*keys, *self._head(queue), int(drop), *messages))
        return reply

    # --- Deliveries ---------------------------------------------------------------------------------------------------

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See ``QueueStore.follow``."""
        reading = PartitionReading(self._keys.deliveries[partition], partition, position, self, self._foreign)
        self._followed[partition] = reading
        self._tail.attach(reading)

    def unfollow(self, partition: int) -> None:
        """See ``QueueStore.unfollow``."""
        reading = self._followed.pop(partition, None)
        if reading is not None:
            self._tail.detach(reading)

    async def deliveries(self) -> AsyncIterator[DeliveryItem]:
        """See ``QueueStore.deliveries``."""
        while True:
            yield await self._items.get()

    def arrived(self, partition: int, number: bytes, fields: list[bytes]) -> None:
        """Take in an entry of a partition's deliveries; what the gateway did not write is skipped."""
        if fields[0] == b"":  # the marker that opens a generation
            return
        try:
            session, epoch, *numbers = fields[1].decode().split(" ")
            self._items.put_nowait(
                Assigned(
                    partition,
                    position_of(number),
                    read_topic(fields[0]),
                    SessionId(session),
                    Epoch(int(epoch)),
                    _assignments(numbers),
                )
            )
        except (ValueError, IndexError, GatewayError) as error:
            self._foreign.skipped(self._keys.deliveries[partition], number.decode(), error)

    def lose(self, reading: PartitionReading) -> None:
        """Tell that a partition's deliveries do not go on."""
        if self._followed.get(reading.partition) is reading:
            self.unfollow(reading.partition)
            self._items.put_nowait(DeliveriesLost(reading.partition))

    def _lose_all(self) -> None:
        for each in list(self._followed.values()):
            self.lose(each)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _partition(self, queue: TopicPath) -> int:
        return topic_partition(queue, self._depth)

    def _head(self, queue: TopicPath) -> tuple[Argument, ...]:
        return head(self._grid, queue)

    async def _call(self, command: Command) -> Any:
        reply = await self._batcher.call(command, gated=True)
        if reply == b"stale":
            raise self._grid.stale()
        return reply

    async def _send_chain(
        self, commands: Sequence[SendCommand], chain: Sequence[Sequence[int]], results: dict[int, SendResult]
    ) -> None:
        """Send what must stay in order: each step when the one before it is known to be done."""
        for number, places in enumerate(chain):
            step = [commands[place] for place in places]
            try:
                reply = await self._call(self._send(step))
            except GridRefused as refused:
                # What follows must not be done before it: its requests would count as done.
                results.update({place: refused for rest in chain[number:] for place in rest})
                return
            if reply == b"fenced":
                results.update({place: _fenced(commands[place].ownership) for place in places})
            else:
                results.update({place: _sent(commands[place], each) for place, each in zip(places, reply, strict=True)})

    def _send(self, step: Sequence[SendCommand]) -> Command:
        first = step[0]
        session, queue = first.ownership.session, first.queue
        partition = self._partition(queue)
        messages: list[Argument] = []
        for each in step:
            delay, expires = scripts.milliseconds(each.delay), scripts.milliseconds(each.expires)
            messages += (each.request, delay, expires, len(each.headers), each.headers + each.value)
        return scripts.QUEUE_SEND(
            *self._keys.queue(partition, queue),
            *(self._keys.receipts(partition, session), self._keys.closed[partition]),
            *self._head(queue),
            *(first.ownership.epoch, first.settled, short_hash(session)),
            *(STORED_RECEIPT_LIFE_MS if first.stored else RECEIPT_LIFE_MS, bounds_text(first.bounds), MOST_QUEUES),
            *messages,
        )

    def _message(self, key: str, number: MessageId, record: bytes | None) -> Message | None:
        if record is None:
            return None
        try:
            sent, _, length, rest = record.split(b" ", 3)
            return Message(number, int(sent), rest[: int(length)], rest[int(length) :])
        except ValueError as error:
            self._foreign.skipped(key, str(number), error)
            return None


def head(grid: GridConnection, queue: TopicPath) -> tuple[Argument, ...]:
    """The first arguments of every step of a queue."""
    return (grid.clock.argument(), queue, grid.generation, DELIVERIES_LENGTH)


def leave_command(
    keys: Keys,
    place: tuple[int, TopicPath],
    session: SessionId,
    begin: tuple[Argument, ...],
    *,
    epoch: Epoch | None = None,
    seen: DeliveryTag | None = None,
) -> Command:
    """Make the command by which a session leaves a queue in its partition; without an epoch if it has ended."""
    return scripts.QUEUE_LEAVE(
        *(*keys.queue(*place), keys.consuming(place[0], session)),
        *begin,
        *(session, "" if epoch is None else epoch, seen or 0),
    )


def _joins(step: Sequence[SendCommand], command: SendCommand) -> bool:
    first = step[0]
    return (
        len(step) < SEND_COUNT
        and sum(len(each.value) + len(each.headers) for each in step) < SEND_BYTES
        and (first.queue, first.ownership, first.bounds, first.stored)
        == (command.queue, command.ownership, command.bounds, command.stored)
    )


def _sent(command: SendCommand, answer: bytes) -> SendResult:
    if answer == b"!":
        return NotDeclared(command.queue)
    before, text = answer.startswith(b"="), answer.removeprefix(b"=")
    return QueueFull(before) if text == b"-" else Sent(MessageId(int(text)), before)


def _assignments(numbers: Sequence[Any]) -> tuple[Assignment, ...]:
    read = [int(each) for each in numbers]
    return tuple(
        Assignment(DeliveryTag(tag), MessageId(message), failed, again == 1)
        for tag, message, failed, again in zip(*(read[start::_NUMBERS] for start in range(_NUMBERS)), strict=True)
    )


def _fenced(ownership: Ownership) -> Fenced:
    return Fenced(f"{ownership.owner} with epoch {ownership.epoch} does not own session {ownership.session} any more")
