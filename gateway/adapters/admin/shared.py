"""What all connections of an admin port have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Generic, TypeVar

from gateway.adapters.admin.pacing import Pacer
from gateway.adapters.admin.places import Places
from gateway.adapters.admin.public_pages import PublicPages
from gateway.catalogue.refusals import AdminRefusal

C = TypeVar("C")
"""A connection."""


@dataclass(slots=True)
class Shared(Generic[C]):
    """What all connections of an admin port have in common.

    Attributes:
        places: who is connected.
        pacer: when strangers' requests are served.
        callers: when something is read of callers over TLS.
        pages: those that are answered here.
        make: makes aiohttp's protocol for one connection.
        knows: whether the value of an Authorization header is that of an administrator.
        refused: is told of a stranger who is turned away, and why.
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
