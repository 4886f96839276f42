"""Which links this node carries: one node of the cluster for each, by a lease and a term in the grid.

Nodes share the links out by a hash of their names, so that none has all of them. A link that nobody has for two rounds'
time is taken by whoever notices. A node that has a link which is another living node's gives one back in each round, so
that links are shared out again after nodes have come or restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.zone_links.greeting import Target
from gateway.app.zone_links.knowledge import Knowledge
from gateway.catalogue import zone_link_log_events as log
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.types import NodeRef
from gateway.core.zones.protocol import Purpose
from gateway.core.zones.records import JoinDirection
from gateway.ports import Carrier, GridUnavailable, LinkName, TooManyRecords

ROUNDS: Final = 3
"""Rounds in the time of a lease: one may fail."""

PATIENCE: Final = 2
"""Rounds for which a link is left to the node that should have it: within one, that node looks."""

AGAIN: Final = 10
"""Leases after which a link is given back again that its node did not take: it had just died, or just begun."""

SEEDS: Final = "seeds"
"""Name of the link by which a zone is met that this cluster has just joined."""


def targets(knowledge: Knowledge) -> list[Target]:
    """List whom this cluster sends to: the other members of its zone, and the joins that go out.

    As long as no other member is known, the seeds of the zone stand for all.
    """
    if not knowledge.is_ready:
        return []
    found = [Target.join(each) for each in knowledge.joins(JoinDirection.OUT)]
    zone = knowledge.table.zone
    if zone is not None:
        others = knowledge.others
        found += [Target.member(zone, each) for each in others]
        if not others and zone.seeds:
            found.append(
                Target(
                    name=SEEDS,
                    purpose=Purpose.MEET,
                    reference=zone.uid,
                    key=zone.key,
                    urls=zone.seeds,
                    label="the seeds of the zone",
                )
            )
    return found


class Carriers:
    """Keeps the leases of links.

    Args:
        context: of the node.
        knowledge: of zones.
        shares: links over which this cluster sends to each other one.
        changed: told when the node has other links than before; does not wait.

    Attributes:
        carried: the links that this node has: where each leads, which share it is, and its lease.
    """

    def __init__(
        self,
        context: Context,
        knowledge: Knowledge,
        *,
        shares: int,
        changed: Callable[[], None],
    ) -> None:
        self.carried: dict[LinkName, tuple[Target, int, Carrier]] = {}
        self._context = context
        self._grid = context.grid
        self._me = context.me
        self._lease = context.parameters.lease
        self._knowledge = knowledge
        self._shares = shares
        self._changed = changed
        self._free: dict[LinkName, float] = {}
        """The links that nobody had in the round before, with the time since when, as far as this node has seen."""
        self._given: dict[LinkName, float] = {}
        """When links were given back."""
        self._look = asyncio.Event()
        self._asking = asyncio.Lock()
        """Held by a round, so that what it takes is not taken after links were given back for good."""
        self._renewed = 0.0
        self._stopped = False
        knowledge.watch(self._look.set)

    async def run(self) -> None:
        """Take links, and keep them, for ever; none once they were given back for good."""
        clock = self._context.clock
        while True:
            self._look.clear()
            asked = clock.monotonic()
            try:
                async with self._asking:
                    await self._round(asked)
                self._renewed = asked
            except (GridUnavailable, TooManyRecords):
                if clock.monotonic() - self._renewed > self._lease:
                    self._put({})
            try:
                async with asyncio.timeout(self._lease / ROUNDS):
                    await self._look.wait()
            except TimeoutError:
                # Only where a whole round has passed: news of zones come many at a time.
                await self._give_one_back()

    async def release(self) -> None:
        """Give all links back, and take none any more: the node stops."""
        self._stopped = True
        async with self._asking:
            names = tuple(self.carried)
            self._put({})
            if names:
                with suppress(GridUnavailable):
                    await self._grid.zones.release(self._me, names)

    def drop(self, name: LinkName) -> None:
        """Somebody else has a link, as the grid or the other end has told; the next round will show who."""
        if name in self.carried:
            self._put({other: each for other, each in self.carried.items() if other != name})

    async def _give_one_back(self) -> None:
        """Release a link that another living node should have; that node takes it when it looks next."""
        nodes = self._context.cluster.nodes
        now = self._context.clock.monotonic()
        others = {name: preferred(name, nodes) for name in sorted(self.carried)}
        name = next((each for each, node in others.items() if node != self._me and self._may_give(each, now)), None)
        if name is not None:
            self._given[name] = now
            self.drop(name)
            with suppress(GridUnavailable):
                await self._grid.zones.release(self._me, (name,))

    def _may_give(self, name: LinkName, now: float) -> bool:
        return now - self._given.get(name, -inf) >= AGAIN * self._lease

    async def _round(self, now: float) -> None:
        wanted: dict[LinkName, tuple[Target, int]] = {
            LinkName(f"{target.name}/{share}"): (target, share)
            for target in (() if self._stopped else targets(self._knowledge))
            for share in range(1 if target.name == SEEDS else self._shares)
        }
        gone = self.carried.keys() - wanted.keys()
        if gone:
            await self._grid.zones.release(self._me, tuple(gone))
        held: Mapping[LinkName, Carrier] = await self._grid.zones.carriers() if wanted else {}
        free = {name: self._free.get(name, now) for name in wanted if name not in held}
        mine = {name for name in wanted if name in held and held[name].node == self._me}
        nodes, patience = self._context.cluster.nodes, PATIENCE * self._lease / ROUNDS
        names = mine | {
            each for each, since in free.items() if now - since >= patience or preferred(each, nodes) == self._me
        }
        self._free = free
        self._given = {name: given for name, given in self._given.items() if name in wanted}
        found = await self._grid.zones.carry(self._me, tuple(names), lease=self._lease) if names else {}
        self._put({name: (*wanted[name], carrier) for name, carrier in found.items() if carrier.node == self._me})

    def _put(self, carried: dict[LinkName, tuple[Target, int, Carrier]]) -> None:
        if carried == self.carried:
            return
        before, self.carried = self.carried, carried
        for name in carried.keys() - before.keys():
            self._context.metrics.add(catalogue.ZONE_CARRIED)
            self._context.log.emit(log.ZONE_CARRIER, link=name, term=carried[name][2].term, carries=True)
        for name in before.keys() - carried.keys():
            self._context.log.emit(log.ZONE_CARRIER, link=name, term=before[name][2].term, carries=False)
        self._changed()


def preferred(name: LinkName, nodes: Sequence[NodeRef]) -> NodeRef:
    """Tell which of some nodes should have a link: the same one for all who ask."""
    return max(nodes, key=lambda node: blake2b(f"{node} {name}".encode(), digest_size=8).digest())
