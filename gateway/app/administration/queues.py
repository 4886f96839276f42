"""Queues, as an administrator sees them and mends what failed; implements ``QueueAdministration``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.app.administration.cursors import Place, from_cursor, to_cursor
from gateway.core.topics.topics import TOPIC_PARTITIONS, parse_topic
from gateway.core.types import MessageId, TopicPath
from gateway.core.wire.errors import InvalidTopic
from gateway.ports import DeadLetter, QueueState, QueueStore
from gateway.ports.administration import BadParameter, NotThere, Page
from gateway.ports.queue_administration import DEAD_PAGE, DeadLetterView, QueueView

SHOWN_BYTES: Final = 16 * 1024
"""Bytes of a value that are shown; of a larger one its size is."""

_MS: Final = 1000
"""Milliseconds in a second, in which the grid says when."""


class ClusterQueues:
    """Queues, as the grid knows them.

    Args:
        queues: in the grid.
    """

    def __init__(self, queues: QueueStore) -> None:
        self._queues = queues

    async def list(self, *, cursor: str | None, limit: int) -> Page[QueueView]:
        """See ``QueueAdministration.list``."""
        place = from_cursor(cursor, partitions=TOPIC_PARTITIONS)
        after = None if place.after is None else TopicPath(place.after)
        found: list[TopicPath] = []
        for partition in range(place.partition, TOPIC_PARTITIONS):
            found += await self._queues.names(partition, after=after, count=limit - len(found))
            after = None
            if len(found) == limit:
                return Page(await self._look(found), to_cursor(Place(partition, after=found[-1])))
        return Page(await self._look(found), None)

    async def find(self, queue: str) -> QueueView:
        """See ``QueueAdministration.find``."""
        path = _path(queue)
        found = await self._queues.look(path)
        if found is None:
            raise _nothing(path)
        return _view(path, found)

    async def dead(self, queue: str, *, cursor: str | None, limit: int) -> Page[DeadLetterView]:
        """See ``QueueAdministration.dead``."""
        place = from_cursor(cursor, partitions=1)
        skip = _number(place.step)
        view = await self.find(queue)
        count = min(limit, DEAD_PAGE)
        letters = await self._queues.dead(_path(queue), count=count, skip=skip)
        last = skip + count >= view.dead
        return Page([_letter(each) for each in letters], None if last else to_cursor(Place(step=str(skip + count))))

    async def mend(self, queue: str, messages: Sequence[int], *, drop: bool) -> int:
        """See ``QueueAdministration.mend``."""
        path = _path(queue)
        if await self._queues.look(path) is None:
            raise _nothing(path)
        return await self._queues.revive(path, [MessageId(each) for each in messages], drop=drop)

    async def _look(self, names: Sequence[TopicPath]) -> Sequence[QueueView]:
        states = await asyncio.gather(*(self._queues.look(each) for each in names))
        # What is empty by now is not there any more.
        return [_view(name, state) for name, state in zip(names, states, strict=True) if state is not None]


def _view(queue: TopicPath, state: QueueState) -> QueueView:
    return QueueView(
        queue=queue,
        ready=state.ready,
        delayed=state.delayed,
        held=state.held,
        dead=state.dead,
        bytes=state.size,
        consumers=state.consumers,
        oldest=None if state.oldest is None else state.oldest / _MS,
        sent=state.sent,
    )


def _letter(each: DeadLetter) -> DeadLetterView:
    message = each.message
    return DeadLetterView(
        id=message.id,
        reason=each.reason,
        deliveries=each.deliveries,
        sent=message.sent / _MS,
        since=each.since / _MS,
        headers=message.headers if len(message.headers) <= SHOWN_BYTES else b"",
        value=message.value if len(message.value) <= SHOWN_BYTES else None,
        size=len(message.value),
    )


def _path(queue: str) -> TopicPath:
    try:
        return parse_topic(queue)
    except InvalidTopic as invalid:
        raise BadParameter("queue", str(invalid)) from None


def _number(text: str | None) -> int:
    if text is None:
        return 0
    if text.isdecimal() and len(text) < len(str(2**53)):
        return int(text)
    raise BadParameter("cursor", "this is no cursor of this list; begin again without one")


def _nothing(queue: TopicPath) -> NotThere:
    return NotThere("queue", f"nothing is in the queue {queue}, and nobody consumes from it")
