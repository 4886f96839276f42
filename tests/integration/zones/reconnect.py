"""All links of a large zone come back at once, in virtual time: ``python -m tests.integration.zones.reconnect``.

The nodes are whole ones with memory grids, and dial, greet, tell members and interest as they do over TLS. Time passes
for what waits on purpose: the pauses between attempts, the rate at which a port accepts, leases. Packets and CPU take
none, so this tells how the attempts are spread, and not how fast a machine is.

```text
50 clusters of 20 nodes, each linked with each: 2,450 links ──▶ the network is gone for a while ──▶ links up, by time
```
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

import click

from gateway.app.zone_links.linked_clusters import LinkedClusters
from gateway.ports import LinkName
from tests.support.virtual_zones import VirtualZones, ZoneCluster, run_zones

CLUSTERS: Final = 50
NODES: Final = 20
AWAY: Final = (1.0, 30.0)
"""Seconds for which there is no network."""

SETTLED: Final = 20.0
"""Virtual seconds until nodes that have begun have shared out the links among them."""

TICK: Final = 0.05
"""Virtual seconds between two looks."""

LONGEST: Final = 120.0
"""Virtual seconds until it is given up."""

SELECTOR: Final = "news/**"
SHARES: Final = (50, 90, 99, 100)
"""Of the links, in percent, for which it is told when they are up."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """What came of it.

    Attributes:
        links: how many there are.
        away: seconds for which there was no network.
        up: seconds since the network was back, by the percentage of the links that have come back.
        attempts: to dial, beside those that succeeded, since the network was back.
        most_carried: links that one node sends over in the end, at most.
        most_served: links that one node takes in the end, at most.
        missing: clusters to which an event did not come that was published afterwards.
    """

    links: int
    away: float
    up: dict[int, float]
    attempts: int
    most_carried: int
    most_served: int
    missing: int

    def __str__(self) -> str:
        times = " | ".join(f"{self.up[share]:.2f}" for share in SHARES)
        return (
            f"| {self.away:g} | {self.links:,} | {times} | {self.attempts:,} | {self.most_carried} "
            f"| {self.most_served} | {self.missing} |"
        )


HEAD: Final = (
    "| network away, s | links | half up, s | 90 % | 99 % | all | attempts that failed | most sent over by a node "
    "| most taken by a node | clusters without the event |\n"
    "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
)


def _ends(cluster: ZoneCluster) -> Iterator[LinkedClusters]:
    for each in cluster.cluster.nodes.values():
        if each.node.linked_clusters is not None:
            yield each.node.linked_clusters


def _up(clusters: list[ZoneCluster]) -> set[tuple[str, LinkName]]:
    """Find the links that are up, by those who have dialled."""
    return {
        (each.name, name)
        for each in clusters
        for end in _ends(each)
        for name, link in end._carried.items()
        if link.sender is not None
    }


async def _once(world: VirtualZones, clusters: list[ZoneCluster], away: float) -> Reconnect:
    links = len(clusters) * (len(clusters) - 1)
    world.network.go_down()
    await world.until(lambda: not _up(clusters))
    await world.quiet(away)
    dialled, began, up = world.network.dialled, world.now(), dict[int, float]()
    world.network.come_back()
    # Each of them counts from when it was there for the first time: nodes go on sharing links out, one at a time.
    back: set[tuple[str, LinkName]] = set()
    while len(up) < len(SHARES):
        assert world.now() - began < LONGEST, f"{len(back)} of {links} links have come back"
        await world.quiet(TICK)
        back |= _up(clusters)
        count = len(back)
        up |= {share: world.now() - began for share in SHARES if share not in up and count >= ceil(links * share / 100)}
    dialled = world.network.dialled - dialled
    topic = f"news/{away:g}"
    await clusters[0].publish(topic, "after it")
    await world.quiet(5.0)
    views = [end.views() for each in clusters for end in _ends(each)]
    return Reconnect(
        links=links,
        away=away,
        up=up,
        attempts=dialled - links,
        most_carried=max(sum(view.direction == "out" for view in each) for each in views),
        most_served=max(sum(view.direction == "in" for view in each) for each in views),
        missing=sum(topic not in each.values for each in clusters),
    )


def simulate(clusters: int, nodes: int, away: tuple[float, ...]) -> list[Reconnect]:
    """Let the network of a zone go away and come back, once for each length of time."""
    found: list[Reconnect] = []

    async def scene(world: VirtualZones) -> None:
        names = [f"c{number}" for number in range(clusters)]
        node_names = [f"n{number}" for number in range(nodes)]
        # All at once: while one after the other starts, those that are there already would be busy for nothing.
        started = await asyncio.gather(*(world.clusters(name, nodes=node_names) for name in names))
        made = [each for (each,) in started]
        # None of this goes away, so that the collector of cycles need not look through it again and again.
        gc.freeze()
        await world.zone("zone", *made)
        for each in made:
            await each.select(SELECTOR)
        await world.quiet(SETTLED)
        found.extend([await _once(world, made, seconds) for seconds in away])

    try:
        run_zones(scene, lease=6.0, lease_renew=2.0)
    finally:
        gc.unfreeze()
    return found


@click.command()
@click.option("--clusters", default=CLUSTERS, show_default=True)
@click.option("--nodes", default=NODES, show_default=True, help="Of each cluster.")
@click.option("--away", multiple=True, type=float, default=AWAY, show_default=True, help="Seconds without a network.")
def main(clusters: int, nodes: int, away: tuple[float, ...]) -> None:
    """Have all links of a zone come back at once, and tell how long that takes."""
    click.echo("\n".join((HEAD, *map(str, simulate(clusters, nodes, away)))))


if __name__ == "__main__":
    main()
