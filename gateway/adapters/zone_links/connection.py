"""One connection between two clusters: messages of bounded length, read no faster than they may come."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from gateway.core.pacing.rates import TokenBucket
from gateway.ports.zone_links import ZoneLinkBroken, ZoneLinkLimits

LENGTH: Final = struct.Struct(">I")
"""In front of each message: its bytes."""

BURST_SECONDS: Final = 0.2
"""For which a sender that was quiet may send as fast as it can: then it is kept to the rate."""

GOODBYE_SECONDS: Final = 1.0
"""For which a connection that is closed may take to send what waits."""

TURN_MESSAGES: Final = 50
"""Messages that are taken, or sent, before others get their turn, if nothing has to be waited for."""


class StreamZoneConnection:
    """``ZoneConnection`` over a stream of asyncio, on which TLS is up.

    Args:
        reader: of the connection.
        writer: likewise.
        own_fingerprint: of the certificate that was shown.
        limits: what it may cost.
        ended: told when it is hung up.

    Attributes:
        known: set when it is trusted.

    Raises:
        ZoneLinkBroken: the other end has shown no certificate.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        own_fingerprint: str,
        limits: ZoneLinkLimits,
        ended: Callable[[StreamZoneConnection], None],
    ) -> None:
        self.own_fingerprint = own_fingerprint
        self.fingerprint = _fingerprint_of(writer)
        self.address = _address_of(writer)
        self.known = asyncio.Event()
        self.bytes_in = 0
        self.bytes_out = 0
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._ended = ended
        self._most = limits.greeting
        self._loop = asyncio.get_running_loop()
        self._bytes = TokenBucket(limits.byte_rate, max(limits.byte_rate * BURST_SECONDS, limits.greeting))
        self._messages = TokenBucket(limits.message_rate, max(1.0, limits.message_rate * BURST_SECONDS))
        self._waiting_since: float | None = None
        self._taken = self._sent = 0
        self._is_over = False
        writer.transport.set_write_buffer_limits(high=limits.queue)

    @property
    def silence(self) -> float:
        """See ``ZoneConnection.silence``."""
        return 0.0 if self._waiting_since is None else self._loop.time() - self._waiting_since

    def trust(self) -> None:
        """See ``ZoneConnection.trust``."""
        self._most = self._limits.message
        self.known.set()

    async def send(self, message: bytes) -> None:
        """See ``ZoneConnection.send``."""
        if self._is_over or self._writer.is_closing():
            raise ZoneLinkBroken("the connection has ended")
        self.bytes_out += LENGTH.size + len(message)
        self._sent += 1
        if self._sent % TURN_MESSAGES == 0:
            # The stream itself lets nobody have a turn while it takes what is written.
            await asyncio.sleep(0)
        try:
            self._writer.write(LENGTH.pack(len(message)) + message)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            # uvloop raises RuntimeError if the transport has closed in between.
            raise ZoneLinkBroken(f"the connection broke: {_reason(error)}") from None

    async def receive(self) -> bytes:
        """See ``ZoneConnection.receive``."""
        if self._is_over:
            raise ZoneLinkBroken("the connection has ended")
        self._waiting_since = self._loop.time()
        try:
            (length,) = LENGTH.unpack(await self._read(LENGTH.size))
            if length > self._most:
                raise ZoneLinkBroken(f"a message of {length} bytes is announced, and {self._most} are the most")
            message = await self._read(length)
        except ZoneLinkBroken:
            self.abort()
            raise
        finally:
            self._waiting_since = None
        size = LENGTH.size + length
        self.bytes_in += size
        await self._pace(size)
        return message

    async def close(self, last: bytes = b"") -> None:
        """See ``ZoneConnection.close``."""
        with suppress(ZoneLinkBroken, OSError, TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                if last:
                    await self.send(last)
                self._writer.close()
                await self._writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        """See ``ZoneConnection.abort``."""
        self._is_over = True
        self._writer.transport.abort()
        self._ended(self)

    async def _read(self, count: int) -> bytes:
        """Read so many bytes; whenever some come, the other end is not silent."""
        pieces: list[bytes] = []
        missing = count
        while missing:
            try:
                piece = await self._reader.read(missing)
            except OSError as error:
                raise ZoneLinkBroken(f"the connection broke: {_reason(error)}") from None
            if not piece:
                raise ZoneLinkBroken("the other end closed the connection")
            pieces.append(piece)
            missing -= len(piece)
            self._waiting_since = self._loop.time()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _pace(self, size: int) -> None:
        """Wait as long as the sender has to, and let others have their turn."""
        now = self._loop.time()
        wait = max(self._bytes.charge(now, size), self._messages.charge(now))
        self._taken += 1
        if wait or self._taken % TURN_MESSAGES == 0:
            await asyncio.sleep(wait)


def fingerprint(certificate: bytes) -> str:
    """Tell the fingerprint of a certificate in DER."""
    return hashlib.sha256(certificate).hexdigest()


def _fingerprint_of(writer: asyncio.StreamWriter) -> str:
    tls: Any = writer.get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(binary_form=True)
    if not shown:
        raise ZoneLinkBroken("the other end has shown no certificate")
    return fingerprint(shown)


def _address_of(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    return str(name[0]) if name else "somewhere"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
