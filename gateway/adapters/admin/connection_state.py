"""What a connection of the admin port is at, and what all of them have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from ssl import SSLContext
from typing import Generic, TypeVar

from gateway.adapters.admin.pacing import Pacer
from gateway.adapters.admin.places import Places
from gateway.adapters.admin.public_pages import PublicPages
from gateway.catalogue.refusals import AdminRefusal


class State(Enum):
    """What is waited for, or done."""

    SILENT = auto()
    """Accepted; not a byte has come, and there is nothing but a socket."""
    PROBED = auto()
    """A health check has come in one piece; its turn has not come. There is nothing but a socket still."""
    OPENING = auto()
    """A transport is on its way; with TLS, after the handshake."""
    READING = auto()
    """The head of a request is waited for."""
    ASKED = auto()
    """It is there, and its turn has not come."""
    ANSWERING = auto()
    """The answer is under way."""
    BODY = auto()
    """The same; what comes belongs to the request and goes to aiohttp."""
    UPGRADED = auto()
    """A WebSocket without a session, or one that aiohttp is about to refuse."""
    CALLER = auto()
    """A valid token has come; everything goes to aiohttp."""
    CLOSING = auto()
    """Nothing more is read; the last bytes go out."""
    OVER = auto()


C = TypeVar("C")
"""A connection."""


@dataclass(slots=True)
class Shared(Generic[C]):
    """What all connections of an admin port have in common.

    Attributes:
        places: who is connected.
        pacer: when unauthenticated clients' requests are served.
        callers: when something is read of callers over TLS.
        pages: those that are answered here.
        make: makes aiohttp's protocol for one connection.
        knows: whether the value of an Authorization header is that of an administrator.
        refused: is told of an unauthenticated client who is refused, and why.
        body_bytes: largest body of a request.
        tls: tells how to speak TLS with a connection that begins now; None to speak none.
        transports: the connections by their transports, by which aiohttp's requests know them.
    """

    places: Places[C]
    pacer: Pacer
    callers: Pacer
    pages: PublicPages
    make: Callable[[], asyncio.BaseProtocol]
    knows: Callable[[str], bool]
    refused: Callable[[C, AdminRefusal], None]
    body_bytes: int
    tls: Callable[[], SSLContext] | None
    transports: dict[asyncio.BaseTransport, C] = field(default_factory=dict)
