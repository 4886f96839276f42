"""Masters behind Sentinels are killed so that their replica takes over, and it is noted what may be lost by that.

```text
master ──asynchronous──▶ replica            kill -9 of the master: what was confirmed last, nobody has any more (P2)
   ▲                        ▲
 nodes, until Sentinels name the replica
```
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from tests.chaos.account.forgotten import NOTHING, Forgotten
from tests.chaos.deadlines import ended
from tests.chaos.promotions import Promotions
from tests.chaos.reader import UNREADABLE, Reader
from tests.chaos.replicated import ReplicatedGrid, SentinelServers
from tests.support.redis_sentinel import RedisSentinels

LOOKS: Final = 0.5
"""Seconds between two looks at who is master."""

TAIL: Final = (0.2, 1.0)
"""Seconds before its death in which a master's replica gets nothing any more, from and to, at every other kill: on
one machine it would hardly ever lack anything otherwise."""


class MasterKills:
    """A master that Sentinels watch, to be killed.

    Args:
        servers: that run.
        random: decides how much is lost.

    Attributes:
        url: of the grid.
        lost: when the grid may have lost what was written, in seconds of ``time.monotonic``.
    """

    def __init__(self, servers: RedisSentinels, random: Random) -> None:
        self.url = servers.url
        self.lost: list[Forgotten] = []
        self._grid = ReplicatedGrid(SentinelServers(servers))
        self._reader = Reader(servers.url)
        self._promotions = Promotions("sentinel")
        self._random = random

    @property
    def count(self) -> int:
        """How often a replica has taken over, also by itself."""
        return self._promotions.count

    async def kill(self) -> None:
        """Kill the master, and wait until the replica has taken over and the dead one follows it, empty at first."""
        master = await self._grid.master("all")
        tail = self._random.choice((0.0, self._random.uniform(*TAIL)))
        began = time.monotonic()
        if tail:
            await self._grid.cut_replication(master)
            await asyncio.sleep(tail)
        master.kill()
        # Without a replica that is fit to take over, the dead one comes back, and nothing is left.
        kept = began if await self._grid.come_back("all", master) else NOTHING
        self.lost.append(Forgotten(began, time.monotonic(), kept))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Note meanwhile who takes over: on a busy machine a master may seem dead."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            await ended(task)

    async def _watch(self) -> None:
        while True:
            now = time.monotonic()
            try:
                claims = await self._reader.claims(self._grid.redis_ports)
                _, lost = self._promotions.look(now, await self._reader.masters(), claims)
            except UNREADABLE:
                lost = None
            if lost is not None:
                self.lost.append(lost)
            await asyncio.sleep(LOOKS)
