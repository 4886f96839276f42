"""Faults of the network: clients to HAProxy, HAProxy to a node, a node to Redis or to another one, between clusters."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Final

from gateway.local.proxy import ENTRY, FaultProxy, Way
from tests.chaos import grid_links, node_links
from tests.chaos.faults.fault import ALL_GRIDS, ZONES, Parameters, fault, meanwhile
from tests.chaos.target import NODES, Target
from tests.chaos.zone_target import CLUSTERS, ZoneTarget

_WAYS: Final = (("up",), ("down",), ("up", "down"))
_OUTER: Final = (ENTRY, *NODES)
_GRID: Final = tuple(f"{node}-grid" for node in NODES)
_PAIRS: Final = tuple(node_links.pairs(NODES))
_MASTERS: Final = (None, 0, 1, 2)
"""To which master: none of them stands for every server of the grid, Sentinels too."""


def _claim(parameters: Parameters) -> set[str]:
    link: str = parameters["link"]
    if link == ENTRY:
        return {"clients"}
    if link in CLUSTERS:
        return {f"zone-link:{link}"}
    if link in _PAIRS:
        return {f"node-link:{link}"}
    node, _, grid = link.partition("-")
    return {f"grid-link:{node}" if grid else f"link:{node}"}


def _link(target: Target | ZoneTarget, parameters: Parameters) -> list[FaultProxy]:
    return [proxy for proxy, _ in _link_with_ways(target, parameters)]


def _link_with_ways(target: Target | ZoneTarget, parameters: Parameters) -> list[tuple[FaultProxy, list[Way]]]:
    """Return the proxies of a link, each with the ways that are hit; two nodes may have dialled each other."""
    link: str = parameters["link"]
    ways = [Way(way) for way in parameters["ways"]]
    if isinstance(target, ZoneTarget):
        return [(proxy, ways) for proxy in target.links_to(link)]
    if link in _PAIRS:
        return [(proxy, [turned[way] for way in ways]) for proxy, turned in target.node_link(link)]
    node, _, grid = link.partition("-")
    proxies: Sequence[FaultProxy] = (
        target.grid_link(node, parameters.get("master")) if grid else [target.links.by_name()[node]]
    )
    return [(proxy, ways) for proxy in proxies]


def _outer(random: Random) -> Parameters:
    return {"link": random.choice(_OUTER), "ways": list(random.choice(_WAYS))}


def _inner(random: Random) -> Parameters:
    return {"link": random.choice(_GRID), "master": random.choice(_MASTERS), "ways": list(random.choice(_WAYS))}


def _between(random: Random) -> Parameters:
    return {"link": random.choice(_PAIRS), "ways": list(random.choice(_WAYS))}


def _to_cluster(random: Random) -> Parameters:
    return {"link": random.choice(CLUSTERS), "ways": list(random.choice(_WAYS))}


async def _cut(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """Connections of a link are reset, now and again a little later."""
    proxies = _link(target, parameters)

    def cut() -> None:
        for proxy in proxies:
            proxy.cut()

    async with meanwhile(cut, 1.0):
        yield


async def _stalled(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A link passes nothing on in one direction or both, its connections stay open."""
    links = _link_with_ways(target, parameters)
    for proxy, ways in links:
        proxy.stall(*ways)
    yield
    for proxy, _ in links:
        proxy.flow()


async def _delayed(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A link delays every byte."""
    links = _link_with_ways(target, parameters)
    for proxy, ways in links:
        proxy.delay(0.25, *ways)
    yield
    for proxy, _ in links:
        proxy.delay(0)


async def _limited(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A link passes 4 kB a second on each of its connections."""
    links = _link_with_ways(target, parameters)
    for proxy, ways in links:
        proxy.limit(4_000, *ways)
    yield
    for proxy, _ in links:
        proxy.limit(None)


async def _refused(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A link refuses new connections, and resets those that there are."""
    proxies = _link(target, parameters)
    for proxy in proxies:
        proxy.refuse()
        proxy.cut()
    yield
    for proxy in proxies:
        await proxy.start()


async def _half_closed(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """Connections of a link are half closed, in one direction or both."""
    for proxy, ways in _link_with_ways(target, parameters):
        proxy.half_close(*ways)
    yield


async def _torn(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A connection of a link is cut at the next byte in one direction: something is done, and the answer lost."""
    links = _link_with_ways(target, parameters)

    def tear() -> None:
        for proxy, ways in links:
            proxy.cut_after(0, ways[0])

    async with meanwhile(tear, 0.5):
        yield


async def _flapping(target: Target | ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A link between two nodes comes and goes, in less time than they take to notice that it is broken."""
    proxies = _link(target, parameters)
    gone = itertools.cycle((True, False))

    async def flap() -> None:
        refuses = next(gone)
        for proxy in proxies:
            proxy.refuse()
            if refuses:
                proxy.cut()
            else:
                await proxy.start()

    async with meanwhile(flap, 0.7):
        yield
    for proxy in proxies:
        proxy.refuse()
        await proxy.start()


def _always(grid: str) -> str:
    """Clients and HAProxy are told the port of a proxy."""
    del grid
    return ""


for _prefix, _draw, _unavailable, _grids in (
    ("link", _outer, _always, ALL_GRIDS),
    ("grid-link", _inner, grid_links.unavailable, ALL_GRIDS),
    ("node-link", _between, node_links.unavailable, ALL_GRIDS),
    ("zone-link", _to_cluster, _always, ZONES),
):
    for _name, _seconds, _strike in (
        ("cut", (0.0, 2.0), _cut),
        ("stalled", (0.5, 7.0), _stalled),
        ("delayed", (1.0, 4.0), _delayed),
        ("limited", (1.0, 4.0), _limited),
        ("refused", (0.5, 4.0), _refused),
        ("half-closed", (0.0, 0.5), _half_closed),
        ("torn", (0.5, 2.0), _torn),
        *((("flapping", (2.0, 6.0), _flapping),) if _draw is _between else ()),
    ):
        fault(
            f"{_prefix}-{_name}",
            seconds=_seconds,
            draw=_draw,
            claims=_claim,
            grids=_grids,
            settles=2.0,
            unavailable=_unavailable,
        )(_strike)
