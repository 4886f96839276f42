"""A backup writes nothing to clients and the grid for sessions that are not its own (rung 3, seed 002: M4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from gateway.adapters.websocket.writer import FrameWriter
from gateway.app.cluster.mirror.holder import MirrorHolder
from gateway.client import Session, connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits, QueueLimits
from gateway.core.mirror.copies import Copy
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import SessionId
from gateway.ports import Fenced, Ownership
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import caught_up
from tests.support.nodes import TestNode, eventually
from tests.support.times import scaled, time_limit
from tests.support.write_order import note_written

pytestmark = pytest.mark.promise("P3", "P12")

LOOKS = frozenset({"sessions.find"})
"""Calls by which a node that is asked for a copy looks whose the session is now: they change nothing."""

QUICK: dict[str, Any] = {"lease": scaled(60.0), "backoff_initial": 0.01, "backoff_maximum": 0.05}
"""No lease ends while the test runs: to take over from a dead node is another matter, and any node's."""


class Recorded:
    """Writes down what a node asks of the grid for some sessions, and what it writes to clients.

    Args:
        patch: of the test.
        node: which.

    Attributes:
        sessions: ids of the sessions that are looked for, and words that stand for what they do.
        calls: of the grid, by name, that named one of these.
        written: messages to the node's clients.
    """

    def __init__(self, patch: pytest.MonkeyPatch, node: TestNode) -> None:
        self.sessions: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.written: list[bytes] = []
        self._port = node.gateway.port
        self._grid = grid = node.gateway.node._context.grid
        for name in dir(type(grid)):
            part = getattr(grid, name, None)
            if isinstance(getattr(type(grid), name), property) and type(part).__name__.startswith("Memory"):
                for method in dir(type(part)):
                    if not method.startswith("_") and callable(getattr(part, method)):
                        patch.setattr(part, method, self._noting(f"{name}.{method}", getattr(part, method)))
        note_written(patch, self._note_written)

    def _noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            told = repr((arguments, named))
            if any(each in told for each in self.sessions):
                self.calls.append((name, told))
            return call(*arguments, **named)

        return noted

    def _note_written(self, connection: FrameWriter, message: bytes) -> None:
        transport: Any = connection._socket
        if transport.getsockname()[1] == self._port:
            self.written.append(message)

    def judge(self) -> None:
        """Nothing was asked of the grid but to look, and nothing was written to anybody."""
        assert [call for call in self.calls if call[0] not in LOOKS] == []
        assert self.written == []


class Scene:
    """Three nodes, of which n2 keeps copies of n1's sessions, and a client that does whatever there is to do.

    Attributes:
        nodes: them.
        recorded: what n2 does.
        proxy: by which the client comes to n1.
    """

    def __init__(self, nodes: Sequence[TestNode], recorded: Recorded, proxy: CuttingProxy) -> None:
        self.nodes = nodes
        self.recorded = recorded
        self.proxy = proxy

    @property
    def copied(self) -> MirrorHolder:
        """What n2 holds."""
        holder = self.nodes[1].gateway.node.holder
        assert holder is not None
        return holder

    async def live(self, alice: Session) -> None:
        """Do all that makes the live node number, answer, and write to the grid."""
        n1, _, n3 = self.nodes
        self.recorded.sessions |= {alice.id, "alice-"}
        await caught_up(n1)
        assert SessionId(alice.id) in self.copied
        async with connect(f"ws://127.0.0.1:{n3.gateway.port}", "bob") as bob:
            stream = await alice.subscribe("alice-topic/**")
            history = await alice.subscribe("alice-log/**", start="now")
            async with await alice.consume("alice-jobs") as jobs:
                for number in range(10):
                    await bob.publish("alice-topic/x", number)
                    await alice.publish("alice-topic/own", number)
                    await alice.publish("alice-log/x", number)
                    await bob.send("alice-jobs", number)
                    async with time_limit(20):
                        assert (await anext(jobs)).value == number
                        assert (await anext(history)).value == number
                        assert [(await anext(stream)).value for _ in range(2)] == [number, number]
                    if number % 3 == 0:
                        self.proxy.cut()
            await alice.set_properties({"seat": "alice-4"})
            await alice.send("alice-out", 1)
            await alice.unsubscribe("alice-topic/**")
            await alice.subscribe("alice-topic/x")
            await caught_up(n1)

    async def outlive(self, alice: Session) -> None:
        """The node dies; its client goes on at n3, which n2 gives the copy."""
        n1, _, n3 = self.nodes
        recoveries = alice.recoveries()
        await n1.gateway.close()
        self.proxy.target = n3.gateway.port
        self.proxy.cut()
        async with time_limit(20):
            while (await anext(recoveries)).outcome != "mirrored":
                pass
        await alice.publish("alice-topic/own", "later")
        copies = self.copied._nodes[n1.gateway.me].copies
        await eventually(lambda: SessionId(alice.id) not in copies)


@asynccontextmanager
async def scene(patch: pytest.MonkeyPatch, linked: LinkedNodes) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(linked.run("n1", "n2", "n3", backup="n2", **QUICK))
        for node in nodes:
            for path, limits in (
                ("alice-log/**", HistoryLimits(count=1_000, age=3600.0, bytes=8 * 1024**2)),
                ("alice-jobs", QueueLimits()),
                ("alice-out", QueueLimits()),
            ):
                described = Destination(selector=parse_selector(path), limits=limits, origin=Origin.FILE)
                node.gateway.node.destinations.table.put(described)
        proxy = await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port))
        yield Scene(nodes, Recorded(patch, nodes[1]), proxy)


async def test_a_backup_writes_to_no_client_and_not_to_the_grid(
    monkeypatch: pytest.MonkeyPatch, linked: LinkedNodes
) -> None:
    """While its node lives, and while another node goes on with the copy that it has given."""
    async with scene(monkeypatch, linked) as found:
        async with connect(found.proxy.url, "alice") as alice:
            await found.live(alice)
            assert found.recorded.calls == [], "while its node lives it has nothing to look for either"
            await found.outlive(alice)
        found.recorded.judge()


async def executes(node: TestNode, copy: Copy) -> None:
    """Do what a client has asked the live node for."""
    owner = Ownership(copy.session.id, node.gateway.me, copy.epoch)
    await node.gateway.node._context.grid.sessions.disconnect(owner)


async def answers(node: TestNode, copy: Copy) -> None:
    """Write to somebody who is connected to the backup."""
    async with connect(f"ws://127.0.0.1:{node.gateway.port}", "carol"):
        pass


@pytest.mark.parametrize("sabotage", [executes, answers])
async def test_what_a_backup_wrote_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, linked: LinkedNodes, sabotage: Callable[[TestNode, Copy], Awaitable[None]]
) -> None:
    """The same with backups that do more with what they hear than to keep it."""
    async with scene(monkeypatch, linked) as found, connect(found.proxy.url, "alice") as alice:
        await found.live(alice)
        found.recorded.judge()
        copy = found.copied._nodes[found.nodes[0].gateway.me].copies.copy_of(SessionId(alice.id))
        assert copy is not None
        with suppress(Fenced):
            await sabotage(found.nodes[1], copy)
        with pytest.raises(AssertionError):
            found.recorded.judge()
