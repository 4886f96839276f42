"""What has come from all peers and waits to be taken, bounded for each of them (P20)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from gateway.ports.peers import LinkEvent, LinkLimits


class Share:
    """What one link has in the inbox.

    Args:
        limits: above them there is no room.
    """

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._bytes = 0
        self._messages = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read from this peer."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until there is room."""
        await self._room.wait()

    def add(self, size: int) -> None:
        """Count a message that came."""
        self._count(size, 1)

    def remove(self, size: int) -> None:
        """Count a message that was taken."""
        self._count(-size, -1)

    def _count(self, size: int, messages: int) -> None:
        self._bytes += size
        self._messages += messages
        if self._bytes > self._limits.inbox or self._messages > self._limits.inbox_messages:
            self._room.clear()
        elif 2 * self._bytes <= self._limits.inbox and 2 * self._messages <= self._limits.inbox_messages:
            # With half of it free: a reader that went on for each message taken would do so in tiny steps.
            self._room.set()


class Inbox:
    """Events of all links, in the order in which they came."""

    def __init__(self) -> None:
        self._events: deque[tuple[LinkEvent, Share | None, int]] = deque()
        self._filled = asyncio.Event()

    def put(self, event: LinkEvent, share: Share | None = None, size: int = 0) -> None:
        """Put an event; *size* bytes of it count against *share*."""
        if share is not None:
            share.add(size)
        self._events.append((event, share, size))
        self._filled.set()

    async def events(self) -> AsyncIterator[LinkEvent]:
        """Yield events for ever."""
        while True:
            while not self._events:
                self._filled.clear()
                await self._filled.wait()
            event, share, size = self._events.popleft()
            if share is not None:
                share.remove(size)
            yield event
