"""Faults of the network: clients to HAProxy, HAProxy to a node, and, with one Redis, a node to Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final

from gateway.local.proxy import ENTRY, FaultProxy, Way
from tests.chaos.faults.fault import ALL_GRIDS, SINGLE, Parameters, fault, meanwhile
from tests.chaos.target import NODES, Target

_WAYS: Final = (("up",), ("down",), ("up", "down"))
_OUTER: Final = (ENTRY, *NODES)
_GRID: Final = tuple(f"{node}-grid" for node in NODES)


def _claim(parameters: Parameters) -> set[str]:
    link: str = parameters["link"]
    if link == ENTRY:
        return {"clients"}
    node, _, grid = link.partition("-")
    return {f"grid-link:{node}" if grid else f"link:{node}"}


def _link(target: Target, parameters: Parameters) -> FaultProxy:
    return target.links.by_name()[parameters["link"]]


def _ways(parameters: Parameters) -> list[Way]:
    return [Way(way) for way in parameters["ways"]]


def _outer(random: Random) -> Parameters:
    return {"link": random.choice(_OUTER), "ways": list(random.choice(_WAYS))}


def _inner(random: Random) -> Parameters:
    return {"link": random.choice(_GRID), "ways": list(random.choice(_WAYS))}


async def _cut(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Connections of a link are reset, now and again a little later."""
    async with meanwhile(_link(target, parameters).cut, 1.0):
        yield


async def _stalled(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A link passes nothing on in one direction or both, its connections stay open."""
    proxy = _link(target, parameters)
    proxy.stall(*_ways(parameters))
    yield
    proxy.flow()


async def _delayed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A link delays every byte."""
    proxy = _link(target, parameters)
    proxy.delay(0.25, *_ways(parameters))
    yield
    proxy.delay(0)


async def _limited(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A link passes 4 kB a second on each of its connections."""
    proxy = _link(target, parameters)
    proxy.limit(4_000, *_ways(parameters))
    yield
    proxy.limit(None)


async def _refused(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A link refuses new connections, and resets those that there are."""
    proxy = _link(target, parameters)
    proxy.refuse()
    proxy.cut()
    yield
    await proxy.start()


async def _half_closed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Connections of a link are half closed, in one direction or both."""
    _link(target, parameters).half_close(*_ways(parameters))
    yield


async def _torn(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A connection of a link is cut at the next byte in one direction: something is done, and the answer lost."""
    proxy = _link(target, parameters)
    way = _ways(parameters)[0]
    async with meanwhile(lambda: proxy.cut_after(0, way), 0.5):
        yield


for _prefix, _grids, _draw in (("link", ALL_GRIDS, _outer), ("grid-link", SINGLE, _inner)):
    for _name, _seconds, _strike in (
        ("cut", (0.0, 2.0), _cut),
        ("stalled", (0.5, 7.0), _stalled),
        ("delayed", (1.0, 4.0), _delayed),
        ("limited", (1.0, 4.0), _limited),
        ("refused", (0.5, 4.0), _refused),
        ("half-closed", (0.0, 0.5), _half_closed),
        ("torn", (0.5, 2.0), _torn),
    ):
        fault(f"{_prefix}-{_name}", seconds=_seconds, draw=_draw, claims=_claim, grids=_grids, settles=2.0)(_strike)
