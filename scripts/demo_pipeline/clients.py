"""Clients that write down what happens to them, by their own clocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from gateway.client import Session, connect
from gateway.core.wire.codes import Numbering

AT_ONCE: Final = 25
"""Clients that connect at the same time: a crowd is to be seen when a node dies, not before."""

POLL: Final = 0.02
"""Seconds between looks whether all are back."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A comeback as its client saw it.

    Attributes:
        left: the node that it lost or left.
        node: where it is now.
        rung: of the recovery ladder, as the welcome said.
        away_ms: from the loss to the welcome, in milliseconds.
        lost: packets that it was told are lost; None if the node could not know.
        replayed: of a failover, whether it was told that every update it had missed follows; else None.
    """

    left: str
    node: str
    rung: str
    away_ms: float
    lost: int | None
    replayed: bool | None


@dataclass(slots=True)
class Client:
    """One client.

    Attributes:
        session: its session.
        node: where it is connected, as far as it knows.
        seen: its comebacks, in order.
        updates: values that it was sent.
    """

    session: Session
    node: str
    seen: list[Seen] = field(default_factory=list)
    updates: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self) -> None:
        """Begin to write down."""
        self._tasks.append(asyncio.create_task(self._follow_recoveries()))

    async def subscribe(self, selector: str) -> None:
        """Be sent values."""
        stream = await self.session.subscribe(selector)

        async def count() -> None:
            async for _ in stream:
                self.updates += 1

        self._tasks.append(asyncio.create_task(count()))

    async def _follow_recoveries(self) -> None:
        async for each in self.session.recoveries():
            replayed = each.replayed if each.numbering is Numbering.RESTARTED else None
            self.seen.append(Seen(self.node, each.node, each.outcome, each.gap_seconds * 1000, each.lost, replayed))
            self.node = each.node

    async def close(self) -> None:
        """End the session."""
        await self.session.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Crowd:
    """All clients of an incident, and a publisher that keeps them busy.

    Attributes:
        clients: by the ids of their sessions.
        slowest: seconds that the slowest publish took since somebody set it to 0: through the clients' process, the
            balancer, a node and the grid. On a busy machine it says by how much two of them may differ about a moment.
    """

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.slowest = 0.0
        self._publishing: asyncio.Task[None] | None = None
        self._publisher: Session | None = None

    async def arrive(self, url: str, number: int) -> None:
        """Connect so many clients."""
        for first in range(0, number, AT_ONCE):
            names = range(first, min(number, first + AT_ONCE))
            await asyncio.gather(*(self._arrive(url, f"user-{name}") for name in names))

    async def _arrive(self, url: str, principal: str) -> None:
        session = await connect(url, principal)
        client = Client(session, session.node)
        client.begin()
        await client.subscribe("prices/**")
        self.clients[session.id] = client

    async def publish(self, url: str, every: float) -> None:
        """Have values published from now on.

        Args:
            url: where.
            every: seconds between two.
        """
        publisher = self._publisher = await connect(url, "publisher")

        async def go_on() -> None:
            number = 0
            while True:
                number += 1
                begun = time.monotonic()
                await publisher.publish(f"prices/{number % 5}", number)
                self.slowest = max(self.slowest, time.monotonic() - begun)
                await asyncio.sleep(every)

        self._publishing = asyncio.create_task(go_on())

    def on(self, node: str) -> frozenset[str]:
        """Tell which sessions are at a node, as their clients know."""
        return frozenset(name for name, client in self.clients.items() if client.node == node)

    def busiest(self, nodes: Collection[str]) -> str:
        """Tell which of some nodes has most clients, but not the publisher."""
        own = self._publisher.node if self._publisher is not None else None
        return max(sorted(node for node in nodes if node != own), key=lambda node: len(self.on(node)))

    async def all_back(self, names: Collection[str], act: Callable[[], Awaitable[object]], timeout: float) -> bool:  # noqa: ASYNC109
        """Do something, and wait until the clients that it disturbs are back.

        Args:
            names: of their sessions.
            act: what disturbs them.
            timeout: seconds from then.
        """
        before = {name: len(self.clients[name].seen) for name in names}
        await act()
        deadline = time.monotonic() + timeout
        while any(len(self.clients[name].seen) == before[name] for name in names):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL)
        return True

    async def leave(self) -> None:
        """End all sessions."""
        if self._publishing is not None and self._publisher is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
            await self._publisher.close()
        await asyncio.gather(*(client.close() for client in self.clients.values()))
