"""Connections between clusters, for zone links: messages in order over mutual TLS, and nothing of what they mean.

Who is at the other end is told by the certificate that it has shown and by the proof that it sends; both are judged by
whoever uses this port. Until then a connection is a *stranger*: its messages are short, there are few of its kind, and
it is hung up when room is needed (P20).

No implementation ever sends a byte of a message in clear text (Z8).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gateway.core.wire.errors import GatewayError
from gateway.core.zones.protocol import GREETING_BYTES, MESSAGE_BYTES


class NoZoneLink(GatewayError):
    """Nobody could be reached at a URL, or TLS did not come about; the message tells why."""


class ZoneLinkBroken(GatewayError):
    """The connection has ended, or what came over it is no message; the message tells why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLinkLimits:
    """What one link may cost its node.

    Attributes:
        message: bytes of the longest message.
        greeting: bytes of the longest message of a stranger.
        queue: bytes that wait to be sent; above, ``send`` waits.
        byte_rate: bytes a second that are read; what is sent faster waits at the sender.
        message_rate: messages a second, likewise: each takes some 50 µs, however short it is.
        silence: seconds without a sign of life after which the connection is broken.
    """

    message: int = MESSAGE_BYTES
    greeting: int = GREETING_BYTES
    queue: int = 1024 * 1024
    byte_rate: float = 50e6
    message_rate: float = 5_000.0
    silence: float = 5.0


class ZoneConnection(Protocol):
    """One connection to another cluster."""

    @property
    def address(self) -> str:
        """Where the other end is, for logs."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate that the other end has shown, in lower-case hexadecimal."""

    @property
    def own_fingerprint(self) -> str:
        """Likewise, of the certificate that was shown to it."""

    @property
    def bytes_in(self) -> int:
        """Bytes of messages that came, without those of TLS."""

    @property
    def bytes_out(self) -> int:
        """Bytes of messages that were sent, likewise."""

    @property
    def silence(self) -> float:
        """Seconds since anything was read. While nobody takes what came, silence is nobody's fault, and 0."""

    def trust(self) -> None:
        """The other end is known from now on: it is no stranger, and its messages may be long."""

    async def send(self, message: bytes) -> None:
        """Send a message; waits while the other end does not read what was sent before.

        Raises:
            ZoneLinkBroken: see there. Nobody can tell what of the messages before has arrived.
        """

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            ZoneLinkBroken: see there.
        """

    async def close(self, last: bytes = b"") -> None:
        """Send one more message, if it can be sent at once, and hang up."""

    def abort(self) -> None:
        """Hang up without a word."""


Serve: TypeAlias = Callable[[ZoneConnection], Awaitable[None]]
"""Takes a connection that was accepted, until it is over; the connection is closed then."""


class ZoneLinks(Protocol):
    """The port at which a node takes zone links, and its way to those of others."""

    @property
    def url(self) -> str:
        """Where others dial this node, as ``wss://host:port``; known once it was started. Empty if it only dials."""

    @property
    def fingerprint(self) -> str:
        """Of the certificate that is shown on connections that begin now."""

    async def start(self, serve: Serve) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be listened on.
        """

    async def dial(self, url: str, *, within: float) -> ZoneConnection:
        """Open a connection.

        Args:
            url: ``wss://host:port``. The link is no WebSocket; only host and port count.
            within: seconds to wait at most, until TLS is up.

        Raises:
            NoZoneLink: see there.
        """

    async def close(self) -> None:
        """Listen no more, and break all connections."""
