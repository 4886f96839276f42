"""Values, versions and streams of topics: implements ``gateway.ports.TopicStore``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.link import Link
from gateway.adapters.redis.scripts import Argument, Command
from gateway.core.topics import topic_partition
from gateway.core.types import EventId, GridGeneration, RequestNumber, SessionId, TopicPath, Version
from gateway.ports import Fenced, GridUnavailable, PublishCommand, Published, StreamPosition, TopicValue

PUBLISH_COUNT: Final = 100
"""Publishes in one step of the grid: most of what they have in common is paid for by ten, and Redis, which does nothing
else meanwhile, needs less than a millisecond for a hundred."""

PUBLISH_BYTES: Final = 64 * 1024
"""Bytes of values in one step of the grid above which no further one is added, for the same reason."""

VALUES_PAGE: Final = 500
"""Values that one step of a read asks for; Redis serves them in about a millisecond, during which others wait."""

RECEIPT_LIFE_MS: Final = 3_600_000
"""Milliseconds for which receipts of a session that the grid does not hold outlive its last publish. Only its node asks
for them, to repeat what had no answer, and it does so within seconds."""

_CACHED: Final = 65_536
"""Topics and sessions whose partition or hash is kept ready: some 10 MB, for the ones that publish most."""


class _Step:
    """Publishes that are one step of the grid: of one session in one partition.

    Attributes:
        command: the first of them.
        partition: of all of them.
        places: which of the caller's commands they are.
        publishes: request, topic and value of each, as the script takes them.
        last: request of the last of them.
        size: bytes of their values.
    """

    __slots__ = ("command", "last", "partition", "places", "publishes", "size")

    def __init__(self, command: PublishCommand, partition: int) -> None:
        self.command = command
        self.partition = partition
        self.places: list[int] = []
        self.publishes: list[Argument] = []
        self.last = command.request
        self.size = 0

    def takes(self, command: PublishCommand) -> bool:
        """Tell whether a publish in the same partition can be added."""
        first = self.command
        return (
            command.settled == first.settled
            and (command.right is first.right or command.right == first.right)
            and command.stored is first.stored
            and self.size < PUBLISH_BYTES
            and len(self.places) < PUBLISH_COUNT
        )


class RedisTopics:
    """Topics in the grid.

    Args:
        link: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        depth: leading path segments that decide a topic's partition.
    """

    def __init__(self, *, link: Link, keys: Keys, depth: int) -> None:
        self._link = link
        self._batcher = link.batcher
        self._keys = keys
        self._partition = lru_cache(_CACHED)(lambda topic: topic_partition(topic, depth))
        self._short = lru_cache(_CACHED)(short_hash)
        # The newest request of each session and partition that is on its way to the grid: the next one names it as its
        # predecessor, so that a request which Redis refused cannot be overtaken and then look like an executed one.
        self._on_the_way: dict[tuple[int, SessionId], RequestNumber] = {}

    async def publish(self, commands: Sequence[PublishCommand]) -> list[Published | Fenced]:
        """See ``TopicStore.publish``."""
        if not commands:
            return []
        steps = self._steps(commands)
        try:
            replies = await self._batcher.submit([self._publish(each) for each in steps], gated=True)
            await self._see_to(replies)
        finally:
            self._arrived(steps)
        answers = [self._published(reply, step) for reply, step in zip(replies, steps, strict=True)]
        if len(answers) == 1:
            return answers[0]
        ordered: dict[int, Published | Fenced] = {}
        for step, answer in zip(steps, answers, strict=True):
            ordered.update(zip(step.places, answer, strict=True))
        return [ordered[place] for place in range(len(commands))]

    async def position(self, partition: int) -> StreamPosition:
        """See ``TopicStore.position``."""
        reply = await self._batcher.call(scripts.TOPIC_POSITION(self._keys.stream[partition]))
        generation, _, sequence = reply.partition(b"-")
        position = StreamPosition(GridGeneration(int(generation)), int(sequence))
        if position.generation != self._link.generation:
            raise self._stale()
        return position

    async def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        """See ``TopicStore.values``."""
        attachment = self._link.attachment
        cursor: bytes | None = b"0"
        while cursor is not None:
            scan: Command = ("HSCAN", self._keys.values[partition], cursor, "COUNT", VALUES_PAGE)
            cursor, found = await self._batcher.call(scan)
            if self._link.attachment != attachment:
                raise GridUnavailable("the grid was away while values were read")
            page = [
                _stored_value(partition, topic, stored) for topic, stored in zip(found[::2], found[1::2], strict=True)
            ]
            if page:
                yield page
            if cursor == b"0":
                cursor = None

    async def restore(self, values: Sequence[TopicValue]) -> int:
        """See ``TopicStore.restore``."""
        keys, generation, length = self._keys, self._link.generation, self._link.stream_length
        commands: list[Command] = []
        for each in values:
            partition = self._partition(each.topic)
            event = each.event.partition("-")[2]
            commands.append(
                scripts.TOPIC_RESTORE(
                    *(keys.values[partition], keys.stream[partition]),
                    *(each.topic, each.value, each.version, event, generation, length),
                )
            )
        replies = await self._batcher.call_all(commands)
        await self._see_to(replies)
        return sum(replies)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _steps(self, commands: Sequence[PublishCommand]) -> list[_Step]:
        """Sort publishes into steps, so that those in one partition stay in order."""
        steps: list[_Step] = []
        newest: dict[int, _Step] = {}
        step: _Step | None = None
        partition_of = self._partition
        for place, command in enumerate(commands):
            partition = partition_of(command.topic)
            if step is None or partition != step.partition or not step.takes(command):
                step = newest.get(partition)
                if step is None or not step.takes(command):
                    step = newest[partition] = _Step(command, partition)
                    steps.append(step)
            step.places.append(place)
            step.publishes += (command.request, command.topic, command.value)
            step.last = command.request
            step.size += len(command.value)
        return steps

    def _publish(self, step: _Step) -> Command:
        keys, partition = self._keys, step.partition
        first = step.command
        right = first.right
        place = (partition, right.session)
        previous = self._on_the_way.get(place, 0)
        self._on_the_way[place] = step.last
        return scripts.TOPIC_PUBLISH(
            keys.values[partition],
            keys.stream[partition],
            keys.receipts(partition, right.session),
            keys.closed[partition],
            right.epoch,
            first.settled,
            # A request that is sent again is its own predecessor, and the one after it has not been sent yet.
            previous if previous < first.request else 0,
            self._link.generation,
            self._link.stream_length,
            self._short(right.session),
            0 if first.stored else RECEIPT_LIFE_MS,
            *step.publishes,
        )

    def _arrived(self, steps: Sequence[_Step]) -> None:
        for step in steps:
            place = (step.partition, step.command.right.session)
            if self._on_the_way.get(place) == step.last:
                del self._on_the_way[place]

    def _published(self, reply: Any, step: _Step) -> list[Published | Fenced]:
        if type(reply) is list:
            return _receipts(reply, step.partition)
        if reply == b"fenced":
            right = step.command.right
            why = f"session {right.session} has a newer owner than epoch {right.epoch}"
            return [Fenced(why) for _ in step.places]
        if reply == b"broken":
            raise GridUnavailable("an earlier request of the session did not reach the grid")
        raise reply

    async def _see_to(self, replies: Sequence[Any]) -> None:
        """Have the grid adopted again if it is not what was adopted.

        Raises:
            GridUnavailable: it is not.
        """
        if b"emptied" in replies:
            # Somebody deleted keys under the running process: what is left must not pass for the same grid.
            await self._batcher.call(("HDEL", self._keys.grid, "run_id"))
            raise self._stale()
        if b"stale" in replies:
            raise self._stale()

    def _stale(self) -> GridUnavailable:
        why = f"the grid is not of generation {self._link.generation} any more"
        self._link.suspect(why)
        return GridUnavailable(why)


def _receipts(reply: list[Any], partition: int) -> list[Published | Fenced]:
    """Read the answers to the publishes of one step; events of one step are numbered without a hole."""
    first: bytes = reply[0]
    generation, _, text = first.partition(b"-")
    prefix = f"{partition}-{generation.decode()}-"
    number = int(text) if text else 0
    receipts: list[Published | Fenced] = []
    for answer in reply[1:]:
        if type(answer) is int:
            receipts.append(Published(Version(answer), EventId(f"{prefix}{number}"), duplicate=False))
            number += 1
        else:
            version, event = answer
            name = EventId(f"{partition}-{event.decode()}" if event else "")
            receipts.append(Published(version, name, duplicate=True))
    return receipts


def _stored_value(partition: int, topic: bytes, stored: bytes) -> TopicValue:
    version, event, value = stored.split(b" ", 2)
    return TopicValue(TopicPath(topic.decode()), Version(int(version)), EventId(f"{partition}-{event.decode()}"), value)
