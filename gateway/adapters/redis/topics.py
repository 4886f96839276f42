"""Values, versions and streams of topics: implements ``gateway.ports.TopicStore``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.link import Link
from gateway.adapters.redis.scripts import Command
from gateway.core.topics import topic_partition
from gateway.core.types import EventId, GridGeneration, RequestNumber, SessionId, TopicPath, Version
from gateway.ports import Fenced, GridUnavailable, PublishCommand, Published, StreamPosition, TopicValue

PUBLISH_CHUNK: Final = 500
"""Commands of one publish call that stay together in a pipeline, so that a huge call does not hold up small ones."""

VALUES_PAGE: Final = 500
"""Values that one step of a read asks for; Redis serves them in about a millisecond, during which others wait."""

RECEIPT_LIFE_MS: Final = 3_600_000
"""Milliseconds for which receipts of a session that the grid does not hold outlive its last publish. Only its node asks
for them, to repeat what had no answer, and it does so within seconds."""

_CACHED: Final = 65_536
"""Topics and sessions whose partition or hash is kept ready: some 10 MB, for the ones that publish most."""


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
        partitions = [self._partition(each.topic) for each in commands]
        try:
            packed = [self._publish(each, partition) for each, partition in zip(commands, partitions, strict=True)]
            groups = [
                self._batcher.submit(packed[start : start + PUBLISH_CHUNK], gated=True)
                for start in range(0, len(packed), PUBLISH_CHUNK)
            ]
            replies = [reply for group in await asyncio.gather(*groups) for reply in group]
            await self._see_to(replies)
        finally:
            self._arrived(commands, partitions)
        return [
            self._published(reply, command, partition)
            for reply, command, partition in zip(replies, commands, partitions, strict=True)
        ]

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

    def _publish(self, command: PublishCommand, partition: int) -> Command:
        keys = self._keys
        right = command.right
        place = (partition, right.session)
        previous = self._on_the_way.get(place, 0)
        self._on_the_way[place] = command.request
        return scripts.TOPIC_PUBLISH(
            keys.values[partition],
            keys.stream[partition],
            keys.receipts(partition, right.session),
            keys.closed[partition],
            command.topic,
            command.value,
            right.epoch,
            command.request,
            command.settled,
            # A request that is sent again is its own predecessor, and the one after it has not been sent yet.
            previous if previous < command.request else 0,
            self._link.generation,
            self._link.stream_length,
            self._short(right.session),
            0 if command.stored else RECEIPT_LIFE_MS,
        )

    def _arrived(self, commands: Sequence[PublishCommand], partitions: Sequence[int]) -> None:
        for command, partition in zip(commands, partitions, strict=True):
            place = (partition, command.right.session)
            if self._on_the_way.get(place) == command.request:
                del self._on_the_way[place]

    def _published(self, reply: Any, command: PublishCommand, partition: int) -> Published | Fenced:
        if type(reply) is list:
            version, event, *duplicate = reply
            name = EventId(f"{partition}-{event.decode()}" if event else "")
            return Published(Version(version), name, bool(duplicate))
        if reply == b"fenced":
            return Fenced(f"session {command.right.session} has a newer owner than epoch {command.right.epoch}")
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


def _stored_value(partition: int, topic: bytes, stored: bytes) -> TopicValue:
    version, event, value = stored.split(b" ", 2)
    return TopicValue(TopicPath(topic.decode()), Version(int(version)), EventId(f"{partition}-{event.decode()}"), value)
