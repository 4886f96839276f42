"""When a step of a plan begins: once what it hits has been healed of the step before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from tests.chaos.faults import CATALOGUE
from tests.chaos.outcome import Outcome
from tests.chaos.plan import Step
from tests.support.times import time_limit

LATE: Final = 30.0
"""Seconds, on a quiet machine, that a fault waits for the one before to be healed; then it is left out."""

Tell = Callable[[str], None]
"""Takes lines that show how a run goes on."""


class Turns:
    """Lets no two steps hit the same thing.

    Args:
        outcome: is told of what is left out.
        now: tells how many seconds of the run have passed.
        tell: as ``Tell``.
    """

    def __init__(self, outcome: Outcome, now: Callable[[], float], tell: Tell) -> None:
        self._outcome = outcome
        self._now = now
        self._tell = tell
        self._locks: dict[str, asyncio.Lock] = {}

    def lock(self, claim: str) -> asyncio.Lock:
        """Give what keeps faults from what is claimed."""
        return self._locks.setdefault(claim, asyncio.Lock())

    @asynccontextmanager
    async def turn(self, step: Step) -> AsyncIterator[float | None]:
        """Wait for what a step hits, and keep it for the block; gives when it begins, or None if it is left out."""
        async with AsyncExitStack() as claims:
            # On a slow machine the fault before may not have been healed in time; this one waits for it.
            try:
                async with time_limit(LATE):
                    for claim in sorted(CATALOGUE[step.fault].claims(dict(step.parameters))):
                        await claims.enter_async_context(self.lock(claim))
            except TimeoutError:
                self._tell(f"{self._now():6.1f} s  {step}  is left out: what it hits has not been healed")
                self._outcome.left_out.append(step)
                yield None
                return
            began = self._now()
            self._tell(f"{began:6.1f} s  {step}  for {step.lasts:g} s")
            yield began
