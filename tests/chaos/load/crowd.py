"""What all clients of a run share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.chaos.account.account import Account
from tests.chaos.account.violation import Violation

ROOTS: Final = tuple(f"c{number}" for number in range(6))
"""First segments of topics, which decide their partition."""


@dataclass
class Crowd:
    """What all clients of a run share.

    Attributes:
        url: where they connect.
        account: which is told everything.
        now: seconds since the beginning of the run.
        window: seconds that they ask their sessions to survive without a connection.
        excused: tells whether nobody knows when the window of a session ends that was opened then.
        publishing: set while there is something to publish.
        ending: set once nobody opens sessions any more, nor leaves on purpose.
        replaced: tells whether a Redis has been replaced, or is being.
        seed: decides what each client does.
    """

    url: str
    account: Account
    now: Callable[[], float]
    window: float
    excused: Callable[[float], bool]
    replaced: Callable[[], bool]
    seed: int
    publishing: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    def random(self, who: str) -> Random:
        """Return what decides what one client does."""
        return Random(f"{self.seed} {who}")

    def violated(self, promise: str, who: str, what: str) -> None:
        """Note a violation that a client has seen by itself."""
        self.account.found.append(Violation(promise, self.now(), who, what))

    async def rest(self, seconds: float) -> None:
        """Wait, or less if the run ends."""
        try:
            async with asyncio.timeout(seconds):
                await self.ending.wait()
        except TimeoutError:
            pass
