"""What a message of a queue costs Redis, sent and settled by the adapter of this version.

One session sends, four consume, all by the adapter of a node; each message is sent, given to a consumer, read and
accepted. What is read is the CPU time of redis-server alone. The deliveries of the partition are read meanwhile, as a
node with consumers does.
"""

from __future__ import annotations

from typing import Final

from benchmarks.measure import process_cpu
from benchmarks.processes import HOST
from benchmarks.systems.base import SystemFailed
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.ports import (
    Assigned,
    Assignment,
    Attached,
    DeliveryTag,
    Ownership,
    QueueBounds,
    SendCommand,
    SettleCommand,
    Settlement,
    SettleStep,
)

CONSUMERS: Final = 4
CREDIT: Final = 200
VALUE_BYTES: Final = 200
QUEUE: Final = TopicPath("jobs/bench")
BATCHES: Final = (1, 10, 50)
"""Messages that are sent together, and settled together as far as one consumer has them."""

MESSAGES: Final = 4_000
"""In a round: some 100 ms of CPU of Redis."""

ROUNDS: Final = 5

_MICROSECONDS: Final = 1e6


class Worker:
    """A consumer that accepts what it is given."""

    def __init__(self, grid: RedisGrid, ownership: Ownership) -> None:
        self._grid = grid
        self._ownership = ownership

    async def attach(self) -> Attached:
        """Begin to consume."""
        attached = await self._grid.queues.attach(
            self._ownership, QUEUE, credit=CREDIT, bounds=QueueBounds(), most_consumers=CONSUMERS
        )
        if not isinstance(attached, Attached):
            raise SystemFailed(f"a consumer was refused: {attached}")
        return attached

    async def accept(self, messages: tuple[Assignment, ...]) -> None:
        """Read messages and accept them."""
        await self._grid.queues.read(QUEUE, [each.message for each in messages])
        held = tuple((each.tag, each.message) for each in messages)
        step = SettleStep(RequestNumber(0), Settlement.ACCEPT, held)
        command = SettleCommand(self._ownership, RequestNumber(0), QUEUE, DeliveryTag(messages[-1].tag), (step,))
        (result,) = await self._grid.queues.settle(command)
        if not result.complete:
            raise SystemFailed(f"{len(result.not_held)} messages were not held")


async def measure(port: int, pid: int) -> list[tuple[int, float]]:
    """Send and settle at the Redis on *port*; returns the least microseconds per message for each batch."""
    node = NodeRef(NodeId("n1"), Incarnation("bench"))
    url = f"redis://{HOST}:{port}/0"
    grid = RedisGrid(node=node, url=url, prefix="bench", metrics=MemoryMetrics(), log=MemoryEventLog())
    await grid.start()
    workers = {
        session: Worker(grid, Ownership(session, node, Epoch(1)))
        for session in (SessionId(f"consumer{number}") for number in range(CONSUMERS))
    }
    attached = [await each.attach() for each in workers.values()]
    grid.queues.follow(topic_partition(QUEUE, 1), attached[0].position)
    deliveries = grid.queues.deliveries()
    request = 0
    found: list[tuple[int, float]] = []
    for batch in BATCHES:
        costs: list[float] = []
        for _ in range(ROUNDS):
            before = process_cpu(pid)
            for _ in range(MESSAGES // batch):
                settled = RequestNumber(request)
                commands = [
                    SendCommand(
                        Ownership(SessionId("sender"), node, Epoch(1)),
                        RequestNumber(request + number),
                        settled,
                        QUEUE,
                        b"1" * VALUE_BYTES,
                        b"",
                        QueueBounds(),
                    )
                    for number in range(1, batch + 1)
                ]
                request += batch
                await grid.queues.send(commands)
                left = batch
                while left:
                    item = await anext(deliveries)
                    if not isinstance(item, Assigned):
                        raise SystemFailed("the deliveries were lost")
                    await workers[item.session].accept(item.messages)
                    left -= len(item.messages)
            costs.append((process_cpu(pid) - before) / MESSAGES * _MICROSECONDS)
        found.append((batch, min(costs)))
    await grid.close()
    return found
