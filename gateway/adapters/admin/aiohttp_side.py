"""aiohttp's part of a connection of the admin port: its protocol, and how much went to it without a token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast


class AiohttpSide:
    """Passes on to aiohttp what is meant for it, from ``open`` to the end of the connection; before and after, nothing.

    Args:
        make: makes aiohttp's protocol for one connection.

    Attributes:
        passed: bytes that ``take`` was given since this was set to 0.
    """

    __slots__ = ("_make", "_protocol", "passed")

    def __init__(self, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._make = make
        self._protocol: asyncio.Protocol | None = None
        self.passed = 0

    def open(self, transport: asyncio.Transport, *, is_stuck: bool) -> None:
        """Have a protocol, unless there is one: most unauthenticated clients are answered without.

        Args:
            transport: over which it answers.
            is_stuck: whether the peer has not taken all that was written to it before.
        """
        if self._protocol is None:
            self._protocol = cast("asyncio.Protocol", self._make())
            self._protocol.connection_made(transport)
            if is_stuck:
                self._protocol.pause_writing()

    def take(self, data: bytes, *, most: int) -> bool:
        """Pass on what belongs to an unauthenticated client's request.

        Args:
            data: of it.
            most: bytes of it that may be passed on altogether.

        Returns:
            Whether it was; it is not if it would be more.
        """
        self.passed += len(data)
        if self.passed > most:
            return False
        if data:
            self.data_received(data)
        return True

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if self._protocol is not None:
            self._protocol.data_received(data)

    def eof_received(self) -> bool:
        """See ``asyncio.Protocol``; whether the connection stays open for an answer."""
        return self._protocol is not None and bool(self._protocol.eof_received())

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """See ``asyncio.Protocol``; nothing is passed on from now on."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)
