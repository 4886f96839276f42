"""The port for zone links, and how others are dialled: TLS 1.3, each side with its certificate, nothing else (Z8)."""

from __future__ import annotations

import asyncio
import socket
from ssl import SSLContext, SSLError
from typing import Final, Protocol
from urllib.parse import urlsplit

from gateway.adapters.acceptor import Acceptor
from gateway.adapters.zone_links.connection import StreamZoneConnection
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.ports import Metrics
from gateway.ports.zone_links import NoZoneLink, Serve, ZoneConnection, ZoneLinkBroken, ZoneLinkLimits

SCHEME: Final = "wss"
"""Of URLs: what people write for a place that speaks TLS. A link is no WebSocket."""

HANDSHAKE_SECONDS: Final = 5.0
"""For TLS: many slow round trips."""

REFUSED_TLS: Final = "tls"
REFUSED_CROWDED: Final = "crowded"
"""Reasons for hanging up before anything was said, in the metric of refusals."""


class ZoneContexts(Protocol):
    """How to speak TLS on connections that begin now; both ends must show a certificate."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate that is shown, in lower-case hexadecimal."""

    def accepting(self) -> SSLContext:
        """With a cluster that connects."""

    def dialing(self) -> SSLContext:
        """With a cluster that is dialled."""


class StreamZoneLinks:
    """``ZoneLinks`` over TCP.

    Args:
        host: where to listen; None not to listen, but only dial.
        port: likewise; 0 for a free one.
        advertised: where others dial this node, as host and port; a port of 0 stands for the one it listens on.
        tls: certificates.
        limits: what a link may cost.
        metrics: where refusals are counted.
    """

    def __init__(
        self,
        host: str | None,
        port: int,
        *,
        advertised: tuple[str, int],
        tls: ZoneContexts,
        metrics: Metrics,
        limits: ZoneLinkLimits = ZoneLinkLimits(),  # noqa: B008 - it does not change
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._metrics = metrics
        self._advertised = advertised
        self._serve: Serve = _nobody
        self._open: set[StreamZoneConnection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._acceptor = (
            None if host is None else Acceptor(host, port, greet=self._accepted, crowded_out=self._crowded_out)
        )

    @property
    def url(self) -> str:
        """See ``ZoneLinks.url``."""
        if self._acceptor is None:
            return ""
        host, port = self._advertised
        return f"wss://{f'[{host}]' if ':' in host else host}:{port or self._acceptor.port}"

    @property
    def port(self) -> int:
        """Where it listens; 0 if it does not."""
        return 0 if self._acceptor is None else self._acceptor.port

    @property
    def fingerprint(self) -> str:
        """See ``ZoneLinks.fingerprint``."""
        return self._tls.fingerprint

    async def start(self, serve: Serve) -> None:
        """See ``ZoneLinks.start``."""
        self._serve = serve
        if self._acceptor is not None:
            await self._acceptor.start()

    async def dial(self, url: str, *, within: float) -> StreamZoneConnection:
        """See ``ZoneLinks.dial``."""
        host, port = place_of(url)
        own = self._tls.fingerprint
        try:
            async with asyncio.timeout(within):
                reader, writer = await asyncio.open_connection(host, port, ssl=self._tls.dialing())
        except TimeoutError:
            raise NoZoneLink(f"{url}: no answer within {within:g} s") from None
        except (OSError, ValueError) as error:
            raise NoZoneLink(f"{url}: {_reason(error)}") from None
        try:
            connection = self._connection(reader, writer, own)
        except ZoneLinkBroken as error:
            writer.transport.abort()
            raise NoZoneLink(f"{url}: {error}") from None
        return connection

    def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: str) -> StreamZoneConnection:
        connection = StreamZoneConnection(
            reader, writer, own_fingerprint=own, limits=self._limits, ended=self._open.discard
        )
        self._open.add(connection)
        return connection

    async def close(self) -> None:
        """See ``ZoneLinks.close``."""
        if self._acceptor is not None:
            await self._acceptor.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for connection in tuple(self._open):
            connection.abort()

    # --- Who dials ----------------------------------------------------------------------------------------------------

    async def _accepted(self, accepted: socket.socket, address: str) -> None:
        """Take a connection until it is known who is there: so long the acceptor counts it as a stranger."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                connection = await self._secured(accepted)
        except (OSError, TimeoutError, ZoneLinkBroken) as error:
            if isinstance(error, SSLError | ZoneLinkBroken):
                self._metrics.add(catalogue.ZONE_LINKS_REFUSED, label=REFUSED_TLS)
            return
        known = connection.known
        task = asyncio.create_task(self._served(connection), name=f"zone-link-{address}")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            await known.wait()
        except asyncio.CancelledError:
            # Others needed the room.
            task.cancel()
            raise

    async def _served(self, connection: StreamZoneConnection) -> None:
        try:
            await self._serve(connection)
        finally:
            connection.known.set()
            connection.abort()

    async def _secured(self, accepted: socket.socket) -> StreamZoneConnection:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        own = self._tls.fingerprint
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls.accepting())
        except BaseException:
            accepted.close()
            raise
        try:
            return self._connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), own)
        except BaseException:
            transport.abort()
            raise

    def _crowded_out(self, _: str) -> None:
        self._metrics.add(catalogue.ZONE_LINKS_REFUSED, label=REFUSED_CROWDED)


async def _nobody(connection: ZoneConnection) -> None:
    """Serve nobody: the port is not started."""
    connection.abort()


def place_of(url: str) -> tuple[str, int]:
    """Read host and port of a URL.

    Raises:
        NoZoneLink: it is no URL of a zone link.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if not host or not port or scheme != SCHEME:
        raise NoZoneLink(f"{url} is no place of a zone link; give one such as wss://gateway.example.org:8401")
    return host, port


def _reason(error: Exception) -> str:
    if isinstance(error, SSLError):
        return f"TLS: {error.reason or error}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
