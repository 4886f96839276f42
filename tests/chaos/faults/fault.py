"""What a fault is, and the catalogue that it is in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from tests.chaos.account.recoveries import GRID, NODE, PARTED, PLANNED, Trouble
from tests.chaos.deadlines import Stuck, ended
from tests.chaos.target import NODES

__all__ = ["ALL_GRIDS", "CATALOGUE", "NODES", "REPLICATED", "SINGLE", "ZONES", "Fault", "Parameters", "fault"]

Parameters: TypeAlias = dict[str, Any]

SINGLE: Final = frozenset({"single"})
REPLICATED: Final = frozenset({"sentinel", "cluster"})
ALL_GRIDS: Final = SINGLE | REPLICATED

ZONES: Final = frozenset({"zones"})
"""Three clusters that are linked, each with a grid of its own; their faults are others."""

T = TypeVar("T")
"""What is struck."""

CATALOGUE: Final[dict[str, Fault]] = {}
"""All faults by name, as the modules of this package have declared them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that can be done to a cluster, and that ends.

    Attributes:
        name: on the command line and in plans.
        summary: one line for people.
        grids: the kinds of grid that it is for.
        seconds: how long it lasts, from and to.
        draw: draws what it hits.
        claims: what nothing else may hit at the same time: ``node:n1``, ``link:n1``, ``grid-link:n1``, ``grid``,
            ``balancer``, ``clients``.
        strike: does it on entering, and ends it on leaving.
        settles: seconds after its end in which what it claims is still left alone.
        unavailable: tells of a kind of grid why it cannot be done there on this machine; empty if it can be.
        planned: whether operators do that, and it must cost nobody anything.
    """

    name: str
    summary: str
    grids: frozenset[str]
    seconds: tuple[float, float]
    draw: Callable[[Random], Parameters]
    claims: Callable[[Parameters], frozenset[str]]
    strike: Callable[[Any, Parameters], AbstractAsyncContextManager[None]]
    settles: float = 1.0
    unavailable: Callable[[str], str] = lambda grid: ""
    planned: bool = False

    def troubles(self, parameters: Parameters, began: float, ended: float) -> list[Trouble]:
        """Tell what of it excuses less than the best recovery.

        Args:
            parameters: what it hit.
            began: in seconds since the beginning of the run.
            ended: likewise.
        """
        found: list[Trouble] = []
        if self.planned:
            return [Trouble(began, ended, PLANNED)]
        for claim in self.claims(parameters):
            kind, _, node = claim.partition(":")
            if kind in {"grid", "grid-link"}:
                found.append(Trouble(began, ended, GRID))
            elif kind == "node":
                found.append(Trouble(began, ended, NODE, node))
            elif kind == "node-link":
                found.append(Trouble(began, ended, PARTED))
        return found


def possible(faults: Iterable[Fault], grid: str) -> tuple[list[Fault], dict[str, str]]:
    """Part the faults of a kind of grid into those that this machine can do, and why it cannot do others, by name."""
    reasons = {each.name: (each, each.unavailable(grid)) for each in faults if grid in each.grids}
    usable = [each for each, why in reasons.values() if not why]
    return usable, {name: why for name, (_, why) in reasons.items() if why}


def nothing(random: Random) -> Parameters:
    """Draw nothing."""
    del random
    return {}


def a_node(random: Random) -> Parameters:
    """Draw a node."""
    return {"node": random.choice(NODES)}


def fault(
    name: str,
    *,
    seconds: tuple[float, float],
    claims: Callable[[Parameters], set[str]],
    grids: frozenset[str] = ALL_GRIDS,
    draw: Callable[[Random], Parameters] = nothing,
    settles: float = 1.0,
    unavailable: Callable[[str], str] = lambda grid: "",
    planned: bool = False,
) -> Callable[[Callable[[T, Parameters], AsyncIterator[None]]], Callable[[T, Parameters], object]]:
    """Put an async generator that strikes, yields and heals into the catalogue; its docstring is the summary.

    It is healed whatever happens meanwhile, so that it needs no ``finally``.
    """

    def declare(strike: Callable[[T, Parameters], AsyncIterator[None]]) -> Callable[[T, Parameters], object]:
        context = _healing(strike)
        CATALOGUE[name] = Fault(
            name=name,
            summary=(strike.__doc__ or "").strip().splitlines()[0],
            grids=grids,
            seconds=seconds,
            draw=draw,
            claims=lambda parameters: frozenset(claims(parameters)),
            strike=context,
            settles=settles,
            unavailable=unavailable,
            planned=planned,
        )
        return context

    return declare


def _healing(
    strike: Callable[[T, Parameters], AsyncIterator[None]],
) -> Callable[[T, Parameters], AbstractAsyncContextManager[None]]:
    """Make a block of a fault: strikes, waits for what is in the block, and heals however that ends."""

    @asynccontextmanager
    async def context(target: T, parameters: Parameters) -> AsyncIterator[None]:
        steps = strike(target, parameters)
        await anext(steps)
        try:
            yield
        finally:
            async for _ in steps:
                raise AssertionError(f"{strike.__name__} yields more than once")

    return context


def every_node() -> set[str]:
    """Claim all nodes and their ways to Redis: what the grid forgets, only their memory has."""
    return {f"{kind}:{node}" for kind in ("node", "grid-link") for node in NODES}


async def again_and_again(act: Callable[[], Any], every: float) -> None:
    """Do something at once and then at intervals, until cancelled.

    Args:
        act: does it.
        every: seconds.
    """
    while True:
        result = act()
        if asyncio.iscoroutine(result):
            await result
        await asyncio.sleep(every)


@asynccontextmanager
async def meanwhile(act: Callable[[], Any], every: float) -> AsyncIterator[None]:
    """Do something again and again for as long as the block lasts."""
    task = asyncio.create_task(again_and_again(act, every))
    try:
        yield
    finally:
        (end,) = await ended(task)
        if isinstance(end, Stuck):
            raise end


def summary_table(catalogue: Mapping[str, Fault] = CATALOGUE) -> list[tuple[str, str, str]]:
    """Return name, grids and summary of every fault."""
    return [
        (each.name, "all" if each.grids == ALL_GRIDS else ", ".join(sorted(each.grids)), each.summary)
        for each in catalogue.values()
    ]
