"""Clusters of nodes that are linked with each other, in virtual time: zones, joins, what is published and what arrives.

```python
def test_it() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("a", "b")
        await world.zone("z", a, b)
        await a.select("news/**")
        await b.publish("news/1", "hello")
        await world.until(lambda: a.values["news/1"] == "hello")

    run_zones(scene)
```

What a cluster selects is told to its grid as its nodes would tell it; what it gets is read in its streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from gateway.adapters.memory import MemoryGrid, MemoryGridServer, MemoryPeerNetwork, MemoryZoneNetwork
from gateway.app.zone_links.linked_clusters import LinkedClusters
from gateway.core.destinations.destination import Destination
from gateway.core.destinations.destination import Origin as DestinationOrigin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import Epoch, GridGeneration, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.core.zones.records import Join, JoinDirection, Member, Zone, ZoneUid, zone_key
from gateway.core.zones.routes import ClusterId
from gateway.ports import (
    GridUnavailable,
    LeaseLost,
    LinkName,
    Ownership,
    PositionLost,
    PublishCommand,
    Published,
    StreamPosition,
    TailBatch,
    TopicValue,
)
from tests.support.virtual_cluster import STEP, VirtualCluster, VirtualLoop, VirtualNode

LONGEST: Final = 600.0
"""Virtual seconds that a condition may take."""

KEEP: Final = 60.0
"""Virtual seconds for which the interest of a dead node counts."""

HISTORY: Final = HistoryLimits(count=100_000)


class ZoneCluster:
    """One cluster of a world.

    Attributes:
        name: of it.
        cluster: its nodes and its grid.
        events: all events that its streams brought, in order, whoever published them.
        values: the newest value of each topic.
    """

    def __init__(self, world: VirtualZones, name: str, cluster: VirtualCluster) -> None:
        self.name = name
        self.cluster = cluster
        self.events: list[TopicValue] = []
        self.arrived = 0
        self.values: dict[str, str] = {}
        self._world = world
        self._observer = MemoryGrid(cluster.server, node=NodeRef(NodeId("observer"), Incarnation("one")))
        self._request = 0
        self._selected: frozenset[Selector] = frozenset()
        self._history: list[str] = []
        self._watching: asyncio.Task[None] | None = None

    @property
    def node(self) -> VirtualNode:
        """A node that lives."""
        return next(each for each in self.cluster.nodes.values() if not each.dead)

    @property
    def links(self) -> LinkedClusters:
        """The links of that node."""
        found = self.node.node.linked_clusters
        assert found is not None
        return found

    @property
    def id(self) -> ClusterId:
        """Its id."""
        return self.links.knowledge.cluster

    @property
    def urls(self) -> tuple[str, ...]:
        """Where its nodes take links."""
        return tuple(each.zone_links.url for each in self.cluster.nodes.values() if each.zone_links is not None)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of its nodes."""
        return tuple(each.zone_links.fingerprint for each in self.cluster.nodes.values() if each.zone_links is not None)

    async def begin(self, *nodes: str) -> None:
        """Start its nodes, and watch its streams."""
        await self._observer.start()
        # Not by chance: which nodes have which links follows from it.
        await self._observer.nodes.cluster(f"cluster-{self.name}")
        for partition in range(TOPIC_PARTITIONS):
            self._observer.tail.follow(partition, StreamPosition(GridGeneration(0), 0))
        self._watching = asyncio.create_task(self._watch())
        await self.cluster.start(*nodes)
        await self._world.until(lambda: self.links.knowledge.is_ready)

    async def end(self) -> None:
        """Stop it."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.cluster.close()

    def member(self, zone: ZoneUid, **changed: Any) -> Member:
        """Describe it as a member of a zone."""
        given: dict[str, Any] = {
            "zone": zone,
            "cluster": self.id,
            "name": self.name,
            "urls": self.urls,
            "fingerprints": self.fingerprints,
        }
        return Member(**(given | changed))

    async def enter(self, uid: str, *, seeds: Iterable[str], secret: str = "") -> None:
        """Enter a zone of which its uid, its secret and some URLs are known."""
        zone = Zone(
            uid=ZoneUid(uid),
            name=uid,
            key=zone_key((secret or SECRET).encode()),
            made=self.cluster.now(),
            seeds=tuple(seeds),
        )
        await self.node.grid.zones.enter(zone, self.member(zone.uid), made=self.cluster.now())

    async def select(self, *selectors: str) -> None:
        """Have sessions of this cluster select this, and nothing else."""
        self._selected = frozenset(map(parse_selector, selectors))
        await self.tell_interest()

    async def tell_interest(self) -> None:
        """Tell the grid of it, as a node does that comes to own the sessions."""
        while True:
            with suppress(LeaseLost, GridUnavailable):
                await self.node.grid.zones.put_interest(self.node.me, self._selected, keep=KEEP)
                return
            await asyncio.sleep(STEP)

    async def keep_history(self, selector: str) -> None:
        """Have topics keep their history here."""
        described = Destination(
            selector=parse_selector(selector), limits=HISTORY, origin=DestinationOrigin.ADMINISTRATOR
        )
        self._history.append(selector)
        await self.node.node.destinations.set(described)
        await self._world.until(
            lambda: all(
                each.dead or any(one.selector.text == selector for one in each.node.destinations.table)
                for each in self.cluster.nodes.values()
            )
        )

    async def publish(self, topic: str, value: str) -> None:
        """Have a client of this cluster publish."""
        self._request += 1
        table = self.node.node.destinations.table
        command = PublishCommand(
            Ownership(SessionId(f"publisher-{self.name}"), self.node.me, Epoch(1)),
            RequestNumber(self._request),
            RequestNumber(self._request - 1),
            TopicPath(topic),
            f'"{value}"'.encode(),
            stored=False,
            history=table.history(TopicPath(topic)) if table.has_history else None,
        )
        while True:
            with suppress(GridUnavailable):
                (result,) = await self._observer.topics.publish([command])
                assert isinstance(result, Published), result
                return
            await asyncio.sleep(STEP)

    async def remove(self, topic: str) -> None:
        """Have an administrator remove a topic."""
        await self._observer.topics.remove(TopicPath(topic), keep=600.0)

    async def join(self, name: str, other: ZoneCluster, *selectors: str, key: str = "", **changed: Any) -> None:
        """Join this cluster to another one: what matches goes from here to there."""
        secret = zone_key(f"the secret of the join {key or name}".encode())
        chosen = tuple(map(parse_selector, selectors))
        given: dict[str, Any] = {"selectors": chosen, "key": secret, "made": self.cluster.now()}
        out: dict[str, Any] = {"urls": other.urls, "fingerprints": other.fingerprints}
        await other.node.grid.zones.put(
            Join(name=f"{name}-in", direction=JoinDirection.IN, fingerprints=self.fingerprints, **given)
        )
        await self.node.grid.zones.put(Join(name=name, direction=JoinDirection.OUT, **(out | given | changed)))

    def got(self, topic: str) -> list[str]:
        """List the values of a topic that its streams brought, in order."""
        return [each.value.decode().strip('"') for each in self.events if each.topic == topic]

    def link_to(self, other: ZoneCluster | str) -> Any:
        """Describe the link by which this cluster sends to another one, or over a join; None if there is none."""
        name = f"join:{other}/0" if isinstance(other, str) else f"{other.id}/0"
        for each in self.cluster.nodes.values():
            if not each.dead and each.node.linked_clusters is not None:
                for view in each.node.linked_clusters.views():
                    if view.link == name and view.direction == "out":
                        return view
        return None

    def is_linked(self, other: ZoneCluster | str) -> bool:
        """Tell whether there is such a link, and it is up."""
        name = LinkName(f"join:{other}/0" if isinstance(other, str) else f"{other.id}/0")
        # Asked of each pair of clusters at each look, so that no link is described for it.
        carried = (
            each.node.linked_clusters._carried.get(name)
            for each in self.cluster.nodes.values()
            if not each.dead and each.node.linked_clusters is not None
        )
        found = next((each for each in carried if each is not None), None)
        return found is not None and found.sender is not None

    async def _watch(self) -> None:
        async for item in self._observer.tail.items():
            if isinstance(item, PositionLost):
                position = await self._observer.topics.position(item.partition)
                self._observer.tail.follow(item.partition, position)
                continue
            assert isinstance(item, TailBatch)
            self.arrived += len(item.arrived)
            for value in item.values:
                self.events.append(value)
                self.values[value.topic] = value.value.decode().strip('"')


SECRET: Final = "a secret of the zone"
"""Of all zones, unless a test says otherwise."""


class VirtualZones:
    """A world of clusters.

    Attributes:
        network: between them.
        all: the clusters.
    """

    def __init__(self, loop: VirtualLoop, settings: dict[str, Any]) -> None:
        self.network = MemoryZoneNetwork()
        self.all: dict[str, ZoneCluster] = {}
        self._loop = loop
        self._settings = settings

    async def clusters(self, *names: str, nodes: Iterable[str] = ("n1",), **server: Any) -> list[ZoneCluster]:
        """Start clusters, each with such nodes."""
        found = []
        for name in names:
            cluster = VirtualCluster(
                self._settings,
                MemoryGridServer(**({"now": self._loop.time, "wall": self._loop.time} | server)),
                MemoryPeerNetwork(),
                seed=len(self.all),
                zone_network=self.network,
                name=name,
            )
            self.all[name] = made = ZoneCluster(self, name, cluster)
            await made.begin(*nodes)
            found.append(made)
        return found

    async def zone(self, uid: str, *members: ZoneCluster, secret: str = SECRET) -> None:
        """Put clusters into a zone, and wait until all of them are linked."""
        zone = Zone(uid=ZoneUid(uid), name=uid, key=zone_key(secret.encode()), made=1.0)
        known = [each.member(zone.uid) for each in members]
        for each in members:
            await each.node.grid.zones.enter(zone, each.member(zone.uid), made=self._loop.time())
            await each.node.grid.zones.merge(known, own=each.id)
        await self.linked(*members)

    @property
    def key(self) -> str:
        """Of all zones, unless a test says otherwise."""
        return zone_key(SECRET.encode())

    def now(self) -> float:
        """Read the clock of all."""
        return self._loop.time()

    async def linked(self, *members: ZoneCluster) -> None:
        """Wait until each of some clusters has a link to each other one."""
        await self.until(lambda: all(one.is_linked(other) for one in members for other in members if one is not other))

    async def interest_known(self, *members: ZoneCluster) -> None:
        """Wait until each of some clusters knows what the others select."""
        await self.until(
            lambda: all(
                one.link_to(other) is not None and one.link_to(other).selectors == len(other.links.knowledge.interest)
                for one in members
                for other in members
                if one is not other
            )
        )

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], *, longest: float = LONGEST) -> float:
        """Let time pass until *condition* holds; returns for how long that took."""
        began = self._loop.time()
        while True:
            holds = condition()
            if not isinstance(holds, bool):
                holds = await holds
            if holds:
                return self._loop.time() - began
            assert self._loop.time() - began < longest, f"not within {longest:g} virtual seconds: {condition}"
            await asyncio.sleep(STEP)

    async def quiet(self, seconds: float = 5.0) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Stop all."""
        for each in self.all.values():
            await each.end()


def run_zones(scene: Callable[[VirtualZones], Awaitable[None]], **settings: Any) -> None:
    """Play *scene* in virtual time, with nodes of these settings."""
    loop = VirtualLoop()

    async def play() -> None:
        world = VirtualZones(loop, settings)
        try:
            await scene(world)
        finally:
            await world.close()

    try:
        loop.run_until_complete(play())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
