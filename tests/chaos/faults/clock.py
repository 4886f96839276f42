"""The clock of Redis is set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from tests.chaos.faults.fault import Parameters, fault
from tests.chaos.target import Target
from tests.support import redis_clock

SECONDS: Final = (10, 90)
"""By which it is set, from and to: above what a node takes for drift, up to three windows."""

RESTORED: Final = 6.0
"""Seconds in which nodes find that it is right again; a cluster elects masters meanwhile, as it goes by this clock."""


def _a_step(random: Random) -> Parameters:
    return {"seconds": random.choice((-1, 1)) * random.randint(*SECONDS)}


@fault(
    "redis-clock-set",
    seconds=(4.0, 8.0),
    draw=_a_step,
    claims=lambda _: {"grid"},
    settles=RESTORED,
    unavailable=lambda _: redis_clock.unavailable(),
)
async def _set(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """The clock of Redis, of all masters and replicas, is set forward or back, and set right again."""
    async with AsyncExitStack() as exits:
        if target.kind == "cluster":
            # Its nodes go by their clocks when they give each other up, so that a replica may take over.
            await exits.enter_async_context(target.tail_is_lost())
        target.set_clock(parameters["seconds"])
        yield
        target.set_clock(0)
        if target.kind != "single":
            await target.replicated.whole()
