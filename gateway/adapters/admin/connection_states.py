"""What a connection of the admin port is at."""

from __future__ import annotations

from enum import Enum, auto


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
