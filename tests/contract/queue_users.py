"""Sessions that send to one queue and consume from it, for the contract of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateway.core.topics.topics import topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import (
    Assigned,
    Attached,
    DeliveryItem,
    DeliveryTag,
    Grid,
    MessageId,
    QueueBounds,
    QueueState,
    SendCommand,
    Sent,
    SessionRecord,
    SettleCommand,
    Settlement,
    SettleResult,
    SettleStep,
)
from tests.contract.examples import DEPTH, ownership, session
from tests.support.clock import eventually

JOBS = TopicPath("jobs/render")
PARTITION = topic_partition(JOBS, DEPTH)
FREE = QueueBounds()
MANY = 100
"""Consumers that a queue may have, where it does not matter."""

_ENOUGH = 1_000
"""Steps until nothing is due, and dead letters: no test leaves more of them."""


class User:
    """A session that sends and consumes."""

    def __init__(self, grid: Grid, record: SessionRecord | None = None) -> None:
        self.grid = grid
        self.record = session(partitions=frozenset({PARTITION})) if record is None else record
        self.epoch = 1
        self.asked = 0
        self.held: dict[MessageId, DeliveryTag] = {}

    def command(self, text: str, request: int, **more: object) -> SendCommand:
        given = {"queue": JOBS, "headers": b"", "bounds": FREE} | more
        return SendCommand(
            ownership=ownership(self.record, epoch=self.epoch),
            request=RequestNumber(request),
            settled=RequestNumber(0),
            value=text.encode(),
            **given,  # type: ignore[arg-type]
        )

    async def send(self, *texts: str, **more: object) -> list[MessageId]:
        """Send messages; returns their ids."""
        commands = [self.command(text, self.asked + number, **more) for number, text in enumerate(texts, start=1)]
        self.asked += len(texts)
        results = await self.grid.queues.send(commands)
        assert all(isinstance(each, Sent) and not each.duplicate for each in results), results
        return [each.message for each in results if isinstance(each, Sent)]

    async def attach(self, credit: int = 10, **more: object) -> Attached:
        """Consume; returns what is held."""
        given = {"bounds": FREE, "most_consumers": MANY} | more
        attached = await self.grid.queues.attach(
            ownership(self.record, epoch=self.epoch),
            JOBS,
            credit=credit,
            **given,  # type: ignore[arg-type]
        )
        assert isinstance(attached, Attached), attached
        self.held = {each.message: each.tag for each in attached.held}
        return attached

    async def settle(
        self,
        outcome: Settlement,
        *messages: MessageId,
        request: int = 0,
        seen: int = 0,
        delay: float = 0.0,
    ) -> SettleResult:
        """Settle messages that it knows to hold."""
        tags = tuple((self.held[each], each) for each in messages)
        step = SettleStep(RequestNumber(request), outcome, tags, delay)
        command = SettleCommand(
            ownership(self.record, epoch=self.epoch), RequestNumber(0), JOBS, DeliveryTag(seen), (step,)
        )
        (result,) = await self.grid.queues.settle(command)
        return result

    async def leave(self, seen: int = 0) -> None:
        await self.grid.queues.leave(ownership(self.record, epoch=self.epoch), JOBS, seen=DeliveryTag(seen))


class Listener:
    """Hears what is assigned."""

    def __init__(self, grid: Grid, attached: Attached) -> None:
        self.items: list[DeliveryItem] = []
        self._grid = grid
        grid.queues.follow(PARTITION, attached.position)
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for item in self._grid.queues.deliveries():
            self.items.append(item)

    def given(self, user: User) -> list[MessageId]:
        """Tell what was assigned to a session, and let it know."""
        mine = [each for each in self.items if isinstance(each, Assigned) and each.session == user.record.id]
        user.held |= {message.message: message.tag for each in mine for message in each.messages}
        return [message.message for each in mine for message in each.messages]

    async def has(self, user: User, messages: Sequence[MessageId]) -> None:
        """Wait until exactly this was assigned to a session."""
        await eventually(lambda: self.given(user) == list(messages), message="the messages are assigned")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def state(grid: Grid) -> QueueState:
    """Tell where the messages of the queue are, and how many consume; its bytes and times have tests of their own."""
    found = await grid.queues.look(JOBS)
    return QueueState() if found is None else found._replace(size=0, oldest=None, sent=0)


async def fire_all(grid: Grid) -> None:
    """Do all that is due."""
    for _ in range(_ENOUGH):
        if not await grid.queues.fire(PARTITION):
            return
    pytest.fail("there is always something due")


async def dead(grid: Grid) -> list[MessageId]:
    """Name the dead letters, the oldest first."""
    return [each.message.id for each in await grid.queues.dead(JOBS, count=_ENOUGH)]
