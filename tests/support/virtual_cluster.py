"""Whole nodes in one process whose time is virtual: hours pass in a moment, and in the same way each time.

```python
def test_it() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        cluster.kill(n1)
        await cluster.until(lambda: cluster.alive(n2) == [n2.me])

    run_virtually(scene)
```

Nodes have an in-memory grid and in-memory links, and no servers. Nothing here may wait for the real world.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import selectors
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, Final

from gateway.adapters.authentication.chain import AnonymousAuthenticator
from gateway.adapters.memory import (
    MemoryEventLog,
    MemoryGrid,
    MemoryGridServer,
    MemoryMetrics,
    MemoryPeerLinks,
    MemoryPeerNetwork,
    MemoryZoneLinks,
    MemoryZoneNetwork,
)
from gateway.adapters.tokens import ItsdangerousTokenSigner
from gateway.app.cluster.takeover.stages import FailedNode, Stage
from gateway.app.journal import JournalOptions
from gateway.app.node import Node
from gateway.app.runtime.clock import Clock
from gateway.app.security.verifications import Verifications
from gateway.bootstrap.parameters import parameters_of
from gateway.core.pacing.verification_ranks import VerificationRates
from gateway.core.topics.topics import SESSION_PARTITIONS, session_partition
from gateway.core.types import Incarnation, NodeId, NodeRef, SessionId
from gateway.ports import HookSender, SessionRecord
from gateway.settings import Settings
from tests.contract.examples import session
from tests.support.nodes import QUICK

EPOCH: Final = 1_000_000.0
"""What the clock says when a cluster begins."""

STEP: Final = 0.01
"""Virtual seconds between two looks at a condition."""

LONGEST: Final = 600.0
"""Virtual seconds that a condition may take."""


class _JumpingSelector(selectors.SelectSelector):
    """Does not wait for time to pass: it lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = EPOCH

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen any more"
            self.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it has nothing to do, and then at once."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


async def _forever() -> None:
    """Do nothing, for ever."""
    await asyncio.Event().wait()


@dataclass(eq=False)
class VirtualNode:
    """A node of a ``VirtualCluster``.

    Attributes:
        me: its name and incarnation.
        node: the application.
        grid: its connection to the grid.
        log: what it told.
        metrics: its numbers.
        zone_links: its port for links with other clusters; None if it has none.
        dead: whether it was killed.
    """

    me: NodeRef
    node: Node
    grid: MemoryGrid
    log: MemoryEventLog
    metrics: MemoryMetrics
    zone_links: MemoryZoneLinks | None = None
    dead: bool = False


@dataclass(eq=False)
class VirtualCluster:
    """Nodes over one grid and one network.

    Attributes:
        settings: of all nodes, beside those of every test.
        server: the grid.
        network: between the nodes.
        nodes: all that were started, by name and incarnation.
        steps: of takeovers that were done: by whom, of whom, which stage, which step.
        before_step: awaited before each of them; may kill whoever is about to do it.
        zone_network: between clusters; None if this one has no links with others.
        name: of the cluster, there.
        hook_sender: makes what a node of this name posts to receivers with; None if there are no hooks.
    """

    settings: dict[str, Any]
    server: MemoryGridServer
    network: MemoryPeerNetwork
    seed: int = 0
    nodes: dict[NodeRef, VirtualNode] = field(default_factory=dict)
    steps: list[tuple[NodeRef, NodeRef, str, int]] = field(default_factory=list)
    before_step: Callable[[VirtualNode, NodeRef, str, int], Awaitable[None]] | None = None
    zone_network: MemoryZoneNetwork | None = None
    name: str = ""
    hook_sender: Callable[[str], HookSender] | None = None

    def now(self) -> float:
        """Read the clock of all nodes and of the grid."""
        return asyncio.get_running_loop().time()

    async def start(self, *names: str) -> list[VirtualNode]:
        """Start nodes, and wait until they hear of each other."""
        started = [self._node(name) for name in names]
        for each in started:
            await each.node.start()
        linked = [each for each in self.nodes.values() if not each.dead]
        await self.until(lambda: all(not each.node.readiness.reasons() for each in started))
        await self.until(lambda: all(self._hears(one, other) for one in linked for other in linked if one is not other))
        return started

    def _hears(self, one: VirtualNode, other: VirtualNode) -> bool:
        return one.node.links is not None and one.node.links.state(other.me).up

    def _node(self, name: str) -> VirtualNode:
        clock = Clock(monotonic=self.now, wall=self.now, cpu=lambda: 0.0, random=random.Random(self.seed).random)
        me = NodeRef(NodeId(name), Incarnation(f"run{len(self.nodes)}"))
        log, metrics = MemoryEventLog(), MemoryMetrics()
        grid = MemoryGrid(self.server, node=me)
        parameters = parameters_of(
            Settings(node=name, **(QUICK | {"grid_timeout": 2.0} | self.settings)), shared_grid=True
        )
        links = MemoryPeerLinks(self.network, me, started=clock.wall())
        zone_links = (
            None if self.zone_network is None else MemoryZoneLinks(self.zone_network, f"{self.name}-{name}".lower())
        )
        node = Node(
            me=me,
            parameters=parameters,
            grid=grid,
            authenticator=AnonymousAuthenticator(),
            verifications=Verifications(
                clock=clock, metrics=metrics, log=log, rates=VerificationRates(address=0, principal=0)
            ),
            signer=ItsdangerousTokenSigner([b"k" * 32], life=1e6),
            clock=clock,
            metrics=metrics,
            log=log,
            journal=JournalOptions(release="test"),
            links=links,
            zone_links=zone_links,
            hook_sender=None if self.hook_sender is None else self.hook_sender(name),
        )
        made = self.nodes[me] = VirtualNode(me, node, grid, log, metrics, zone_links)
        stages = node._takeovers._stages
        node._takeovers._stages = replaced(
            stages,
            at_once=tuple(self._watched(made, each) for each in stages.at_once),
            transient=tuple(self._watched(made, each) for each in stages.transient),
        )
        asyncio.get_running_loop().create_task(links.start())
        if zone_links is not None and node.linked_clusters is not None:
            # Tests say what is selected, with no session.
            node.zones.interest.run = _forever  # type: ignore[method-assign]
            asyncio.get_running_loop().create_task(zone_links.start(node.linked_clusters.serve))
        node.presence.announce(listen=f"{name}:1", admin=f"http://{name}:2", version="test")
        return made

    def _watched(self, node: VirtualNode, stage: Stage) -> Stage:
        cluster = self

        class Watched:
            name = stage.name
            steps = stage.steps

            async def take(self, failed: FailedNode, step: int) -> None:
                if cluster.before_step is not None:
                    await cluster.before_step(node, failed.node, stage.name, step)
                await stage.take(failed, step)
                cluster.steps.append((node.me, failed.node, stage.name, step))

        return Watched()

    def kill(self, node: VirtualNode) -> None:
        """Let a node do and hear nothing any more."""
        node.dead = True
        node.grid.cut()
        if self.zone_network is not None and node.zone_links is not None:
            self.zone_network.silence(node.zone_links.name)
        for other in self.nodes.values():
            if other is not node:
                self.network.stall(node.me, other.me)
                self.network.stall(other.me, node.me)

    async def sessions(self, owner: VirtualNode, count: int) -> list[SessionId]:
        """Have *owner* own so many connected sessions, as the grid sees it: some in each partition."""
        ids: dict[int, list[SessionId]] = {}
        for number in itertools.count():
            made = SessionId(f"{owner.me.node}-{number}")
            ids.setdefault(session_partition(made), []).append(made)
            if len(ids) == SESSION_PARTITIONS and number > count:
                break
        spread = [each for row in itertools.zip_longest(*ids.values()) for each in row if each is not None]
        assert SESSION_PARTITIONS <= count <= len(spread)
        records: list[SessionRecord] = [session(owner=owner.me, session_id=each, window=1e6) for each in spread[:count]]
        for each in records:
            await owner.grid.sessions.create(each)
        return [each.id for each in records]

    async def connected(self, by: VirtualNode, sessions: list[SessionId]) -> int:
        """Tell how many of *sessions* the grid holds to be connected."""
        found = [await by.grid.sessions.find(each) for each in sessions]
        return sum(each is not None and each.connected for each in found)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], *, longest: float = LONGEST) -> float:
        """Let time pass until *condition* holds; returns for how long that took."""
        began = self.now()
        while True:
            holds = condition()
            if not isinstance(holds, bool):
                holds = await holds
            if holds:
                return self.now() - began
            assert self.now() - began < longest, f"not within {longest:g} virtual seconds: {condition}"
            await asyncio.sleep(STEP)

    async def close(self) -> None:
        """Stop all nodes."""
        for each in self.nodes.values():
            await each.node._background.close()


def run_virtually(scene: Callable[[VirtualCluster], Awaitable[None]], *, seed: int = 0, **settings: Any) -> None:
    """Play *scene* in virtual time, with nodes of these settings."""
    loop = VirtualLoop()

    async def play() -> None:
        cluster = VirtualCluster(settings, MemoryGridServer(now=loop.time), MemoryPeerNetwork(), seed)
        try:
            await scene(cluster)
        finally:
            await cluster.close()

    try:
        loop.run_until_complete(play())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
