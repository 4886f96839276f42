"""Dials one node again and again, until there is a link, and whenever there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.adapters.peers.link import Link
from gateway.core.pacing.backoff import ReconnectBackoff
from gateway.core.types import NodeRef
from gateway.core.wire.packets import Backoff

BACKOFF: Final = Backoff(initial=0.1, maximum=5.0, stable_after=5.0)
"""Seconds between attempts: a node that restarts is there after two or three; one that is gone costs next to nothing,
and its links are there 5 s after it came back, at most."""

AFTER_GOODBYE: Final = 3.0
"""Seconds until a node that hung up on purpose is dialled again: mostly it stops, and is out of the node table then,
which is looked at every two seconds."""


class Dialer:
    """Sees to one link.

    Args:
        peer: to which node.
        address: where that is, as host:port.
        dial: tries once.
        link: tells which link there is by now.
        patience: seconds for which the other node is left to dial first.
        random: a number in [0, 1).

    Attributes:
        address: as given.
    """

    def __init__(
        self,
        peer: NodeRef,
        address: str,
        *,
        dial: Callable[[NodeRef, str], Awaitable[None]],
        link: Callable[[], Link | None],
        patience: float,
        random: Callable[[], float],
    ) -> None:
        self.address = address
        self._peer = peer
        self._dial = dial
        self._link = link
        self._patience = patience
        self._random = random
        self._task = asyncio.create_task(self._run(), name=f"link-dial-{peer.node}")

    def close(self) -> None:
        """Dial no more; the link stays."""
        self._task.cancel()

    async def closed(self) -> None:
        """Wait until that is so."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = ReconnectBackoff(advice=BACKOFF)
        while True:
            link = self._link()
            if link is not None:
                backoff = backoff.connected(loop.time(), BACKOFF)
                await link.ended.wait()
                backoff = backoff.disconnected(loop.time())
                if link.was_planned:
                    await asyncio.sleep(AFTER_GOODBYE)
            await asyncio.sleep(self._patience)
            if self._link() is None:
                await self._dial(self._peer, self.address)
            if self._link() is None:
                delay, backoff = backoff.delay(self._random())
                await asyncio.sleep(delay)
