"""A session under traffic that goes from node to node while one of them is killed, and whether anything is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.client import Recovery, Session, Update, connect
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, eventually
from tests.support.times import scaled

QUICK = {"backoff_initial": 0.01, "backoff_maximum": 0.05, "lease": scaled(60.0), "lease_renew": scaled(0.2)}
"""No lease ends while a test runs: what is tested is what happens before anybody knows that a node is dead."""

LEAST = 5
"""Updates, and publishes, before and after."""

PACE = 0.002
"""Seconds that a publish takes."""


class Scene:
    """A session that is handed over from n1 to n2 under traffic, with n3 to go to.

    Attributes:
        updates: that the client has got of a topic to which somebody else publishes all the time.
        published: values that somebody has published there.
        receipts: versions of what the client itself has published, by its number.
        recoveries: of the client.
    """

    def __init__(self, linked: LinkedNodes, nodes: Sequence[TestNode], proxy: CuttingProxy) -> None:
        self.n1, self.n2, self.n3 = nodes
        self._linked = linked
        self.proxy = proxy
        self.updates: list[Update] = []
        self.published = 0
        self.receipts: dict[int, int] = {}
        self.recoveries: list[Recovery] = []
        self._stopping = False

    def lead_to(self, node: TestNode) -> None:
        """Have the client lose its connection, and come back to another node."""
        self.proxy.target = node.gateway.port
        self.proxy.cut()

    def kill(self, node: TestNode, *, leads: bool = True) -> None:
        """Take a node from the world in this very moment: no byte of it arrives any more, nor at it.

        Args:
            node: which.
            leads: whether the client is led to n3 if it was at the node.
        """
        for other in (self.n1, self.n2, self.n3):
            if other is not node:
                self._linked.network.cut(node.gateway.me, other.gateway.me)
        node.gateway.node._context.grid.cut()  # type: ignore[attr-defined]
        if leads and node is not self.n1:
            self.lead_to(self.n3)

    @asynccontextmanager
    async def traffic(self) -> AsyncIterator[None]:
        """Have both publish until the end of the block."""
        async with (
            connect(f"ws://127.0.0.1:{self.n3.gateway.port}", "bob") as bob,
            connect(self.proxy.url, "alice") as alice,
        ):
            stream = await alice.subscribe("log/**")
            async with asyncio.TaskGroup() as work:
                collecting = [
                    work.create_task(self._collect(stream.__aiter__(), self.updates)),
                    work.create_task(self._collect(alice.recoveries(), self.recoveries)),
                ]
                publishing = [work.create_task(self._publish(bob)), work.create_task(self._ask(alice))]
                yield
                self._stopping = True
                await asyncio.wait(publishing)
                await eventually(lambda: bool(self.updates) and self.updates[-1].value == self.published)
                for each in collecting:
                    each.cancel()

    async def goes_on(self) -> None:
        """Wait until both have got something more."""
        updates, receipts = len(self.updates) + LEAST, len(self.receipts) + LEAST
        await eventually(lambda: len(self.updates) >= updates and len(self.receipts) >= receipts)

    async def _collect(self, found: AsyncIterator[object], into: list) -> None:  # type: ignore[type-arg]
        async for each in found:
            into.append(each)  # noqa: PERF401 - others look at it meanwhile

    async def _publish(self, bob: Session) -> None:
        while not self._stopping:
            self.published += 1
            await bob.publish("log/x", self.published)
            await asyncio.sleep(PACE)

    async def _ask(self, alice: Session) -> None:
        number = 0
        while not self._stopping:
            number += 1
            self.receipts[number] = (await alice.publish("own", number)).version

    def judge(self) -> None:
        """Every update came once and in order, and every publish was executed once, in order."""
        values = [update.value for update in self.updates]
        assert values == list(range(1, self.published + 1))
        assert [update.version for update in self.updates] == values
        assert list(self.receipts.values()) == list(range(1, len(self.receipts) + 1))
        for recovery in self.recoveries:
            assert recovery.outcome in {"handed_over", "reattached", "mirrored"} or recovery.replayed, recovery
            assert recovery.lost == 0, recovery


@asynccontextmanager
async def scene(patch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[Scene]:
    linked = LinkedNodes(patch)
    async with linked.run("n1", "n2", "n3", **QUICK, **settings) as nodes, CuttingProxy(nodes[0].gateway.port) as proxy:
        yield Scene(linked, nodes, proxy)


NOBODY = 1
"""A port at which nobody listens: who is led there is away."""
