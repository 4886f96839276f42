"""What it costs to take over from a failed node, and whom it disturbs.

Two nodes live over one Redis. The third one is made of what it has left behind: a lease that ends, sessions, and the
messages that they hold. What is told is the CPU time of both nodes and of Redis, without what they take in the same
time when nothing happens, and how late updates reach a client of the survivors meanwhile.

```text
lease ends ──▶ one survivor wins, and starts the windows of all sessions ──▶ windows end ──▶ sessions end, and what they
               (the takeover)                                                                held waits for others
```
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.checkout import Checkout
from benchmarks.measure import process_cpu
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, scratch_folder
from benchmarks.systems.base import SystemFailed
from benchmarks.systems.gateway import is_ready, node_arguments, node_environment
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.client import connect
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.local.ports import free_port
from gateway.ports import Attached, Ownership, QueueBounds, SendCommand, Sent, SessionRecord

SESSIONS: Final = 2_000
MESSAGES: Final = 10_000
QUEUES: Final = 20
"""That the sessions consume from, each from one."""

VALUE_BYTES: Final = 200
NAMES: Final = ("n1", "n2")
DEAD: Final = NodeRef(NodeId("n0"), Incarnation("benchmark"))

LEASE: Final = 600.0
"""Seconds of its lease, while its sessions are written."""

LAST_LEASE: Final = 1.0
"""Seconds of it when it renews for the last time."""

WINDOW: Final = 8.0
"""Seconds for which the sessions wait for their clients: the takeover is over by then."""

QUIET: Final = 5.0
"""Seconds in which what the nodes take without a takeover is measured."""

PACE: Final = 0.005
"""Seconds between two updates of the witness."""

LOOK: Final = 0.05
"""Seconds between two looks whether something is over."""

PATIENCE: Final = 120.0
"""Seconds until it is given up."""

PREFIX: Final = "gateway"
"""What all keys begin with, as by default."""

AT_ONCE: Final = 100
"""Sessions that are written together."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What was measured between two moments.

    Attributes:
        seconds: how long it took.
        nodes: CPU seconds of both nodes, without those of a quiet time; the same of Redis.
        redis: see there.
        delays: seconds from each publish of the witness until its update was there.
    """

    seconds: float
    nodes: float
    redis: float
    delays: Sequence[float]

    @property
    def longest_delay(self) -> float:
        """The longest of the delays; 0 if there was no update."""
        return max(self.delays, default=0.0)


class Phases(NamedTuple):
    """The phases of a failure.

    Attributes:
        quiet: nothing happens.
        takeover: the lease has ended, until everything is taken over.
        windows: they run and end, and the messages wait for others.
    """

    quiet: Phase
    takeover: Phase
    windows: Phase


class Witness:
    """A client of the survivors that publishes to itself, and tells how late it hears of it.

    Args:
        url: of one of them; what it publishes comes by way of Redis.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.delays: list[float] = []

    async def run(self, ready: asyncio.Event) -> None:
        """Publish for ever."""
        async with connect(self._url, "witness") as session:
            stream = await session.subscribe("witness/clock")
            listening = asyncio.create_task(self._listen(stream, ready))
            publishing: set[asyncio.Task[object]] = set()
            try:
                while True:
                    publishing.add(task := asyncio.create_task(session.publish("witness/clock", time.monotonic())))
                    task.add_done_callback(publishing.discard)
                    await asyncio.sleep(PACE)
            finally:
                listening.cancel()
                await asyncio.gather(*publishing, return_exceptions=True)

    async def _listen(self, stream: AsyncIterator[object], ready: asyncio.Event) -> None:
        async for update in stream:
            self.delays.append(time.monotonic() - update.value)  # type: ignore[attr-defined]
            ready.set()


class Meter:
    """Reads CPU time and the witness around what happens.

    Args:
        nodes: process ids of the nodes.
        redis: of Redis.
        witness: how late its updates are.
    """

    def __init__(self, nodes: Sequence[int], redis: Sequence[int], witness: Witness) -> None:
        self._pids = nodes, redis
        self._witness = witness
        self._idle = (0.0, 0.0)

    async def idle(self) -> Phase:
        """Measure a time in which nothing happens, and take as much of the phases that follow."""
        found = await self.phase(lambda: asyncio.sleep(QUIET))
        self._idle = found.nodes / found.seconds, found.redis / found.seconds
        return found

    async def phase(self, work: Callable[[], Awaitable[object]]) -> Phase:
        """Measure what happens while something is waited for."""
        self._witness.delays.clear()
        began, before = time.monotonic(), self._read()
        await work()
        seconds = time.monotonic() - began
        nodes, redis = (
            now - then - idle * seconds for now, then, idle in zip(self._read(), before, self._idle, strict=True)
        )
        return Phase(seconds, nodes, redis, tuple(self._witness.delays))

    def _read(self) -> tuple[float, float]:
        nodes, redis = (sum(map(process_cpu, pids)) for pids in self._pids)
        return nodes, redis


def queue_of(number: int) -> TopicPath:
    """Name the queue that a session consumes from."""
    return TopicPath(f"jobs{number % QUEUES}/bench")


async def leave_behind(grid: RedisGrid, sessions: int, messages: int) -> None:
    """Write what the failed node leaves behind: sessions, and messages that they hold."""
    await grid.nodes.join(DEAD, lease=LEASE)
    credit = -(-messages // sessions)

    async def open_session(number: int) -> None:
        identity, queue = SessionId(f"benchmark-{number:06}"), queue_of(number)
        await grid.sessions.create(
            SessionRecord(
                id=identity,
                principal=f"user-{number}",
                selections=("+prices/*",),
                window=WINDOW,
                owner=DEAD,
                publish_partitions=frozenset({topic_partition(queue, 1)}),
            )
        )
        ownership = Ownership(identity, DEAD, Epoch(1))
        attached = await grid.queues.attach(
            ownership, queue, credit=credit, bounds=QueueBounds(), most_consumers=sessions
        )
        if not isinstance(attached, Attached):
            raise SystemFailed(f"a consumer was refused: {attached}")

    for start in range(0, sessions, AT_ONCE):
        await asyncio.gather(*(open_session(number) for number in range(start, min(sessions, start + AT_ONCE))))
    sender = Ownership(SessionId("benchmark-000000"), DEAD, Epoch(1))
    for start in range(0, messages, AT_ONCE):
        commands = [
            SendCommand(
                ownership=sender,
                request=RequestNumber(number + 1),
                settled=RequestNumber(start),
                queue=queue_of(number),
                value=b'"' + b"x" * VALUE_BYTES + b'"',
                headers=b"",
                bounds=QueueBounds(),
            )
            for number in range(start, min(messages, start + AT_ONCE))
        ]
        if not all(isinstance(each, Sent) for each in await grid.queues.send(commands)):
            raise SystemFailed("a message was refused")


async def held(grid: RedisGrid) -> int:
    """Count the messages that somebody holds."""
    states = await asyncio.gather(*(grid.queues.look(queue_of(number)) for number in range(QUEUES)))
    return sum(each.held for each in states if each is not None)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - it is in the grid
            await asyncio.sleep(LOOK)


async def measure(
    redis_port: int, port: int, pids: tuple[Sequence[int], Sequence[int]], *, sessions: int, messages: int
) -> Phases:
    """Let a node fail, and measure what the others do.

    Args:
        redis_port: where the grid is.
        port: of a survivor, for clients.
        pids: processes of the nodes, and of Redis.
        sessions: of the node that fails.
        messages: that they hold.
    """
    url = f"redis://{HOST}:{redis_port}/0"
    grid = RedisGrid(node=DEAD, url=url, prefix=PREFIX, metrics=MemoryMetrics(), log=MemoryEventLog())
    await grid.start()
    witness, ready = Witness(f"ws://{HOST}:{port}"), asyncio.Event()
    watching = asyncio.create_task(witness.run(ready))
    try:
        await leave_behind(grid, sessions, messages)
        count = await held(grid)
        if count != messages:
            raise SystemFailed(f"{count} messages are held, and not {messages}")
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
        meter = Meter(*pids, witness)
        quiet = await meter.idle()
        await grid.nodes.renew(DEAD, lease=LAST_LEASE)
        await asyncio.sleep(LAST_LEASE)

        async def is_taken_over() -> bool:
            # Whoever was taken over is listed without a node that does it, until it is cleaned up.
            return any(each.expired == DEAD and each.by is None for each in await grid.nodes.takeovers())

        async def is_given_back() -> bool:
            return await held(grid) == 0

        taken_over = await meter.phase(lambda: until(is_taken_over))
        return Phases(quiet, taken_over, await meter.phase(lambda: until(is_given_back)))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await grid.close()


@contextlib.contextmanager
def survivors(placement: Placement, redis_port: int, checkout: Checkout) -> Iterator[tuple[list[int], list[int]]]:
    """Run the nodes that live; yields their ports for clients, and their process ids."""
    environment, ports = node_environment() | checkout.environment(), []
    pids: list[int] = []
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            port, admin = free_port(), free_port()
            folder = stack.enter_context(scratch_folder(name))
            arguments = node_arguments(name, port=port, admin=admin, redis_port=redis_port, extra={}, checkout=checkout)
            process = PinnedProcess(arguments, core=placement.server, folder=folder, environment=environment)
            node = stack.enter_context(process)
            node.wait_ready(lambda admin=admin: is_ready(admin))  # type: ignore[misc]
            ports.append(port)
            pids += node.pids()
        yield ports, pids
