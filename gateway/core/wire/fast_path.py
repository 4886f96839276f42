"""What a busy node reads and writes most often, without the general way through objects and back (protocol 4.4, 5.2).

Everything here means exactly what ``codec`` makes of the same bytes; a property test compares them. What does not have
the usual form is not refused but left to ``codec``.
"""

from __future__ import annotations

from typing import Final

from gateway.core.types import EventId, PacketId, RequestNumber, Version

_ACK: Final = b'{"type":"ack","received":'
"""How nearly all clients begin an acknowledgement that is alone in its message."""

_PONG: Final = b'{"type":"pong","received":'
"""Likewise the answer to a ping: all that an idle client says."""

_ACK_LENGTH: Final = len(_ACK)
_PONG_LENGTH: Final = len(_PONG)

_SAFE_DIGITS: Final = 15
"""Numbers of so many digits are below 2^53 (protocol 2.5)."""


def acknowledged(message: bytes) -> PacketId | None:
    """Read a message that is nothing but an acknowledgement or a pong in its usual form: both mean the same.

    Args:
        message: of a client.

    Returns:
        Up to which packet the client has received everything; None for any other message, good or bad.
    """
    if message.startswith(_ACK):
        digits = message[_ACK_LENGTH:-1]
    elif message.startswith(_PONG):
        digits = message[_PONG_LENGTH:-1]
    else:
        return None
    if (
        len(digits) > _SAFE_DIGITS
        or not digits.isdigit()
        or (len(digits) > 1 and digits.startswith(b"0"))
        or not message.endswith(b"}")
    ):
        return None
    return PacketId(int(digits))


def published(request: RequestNumber, version: Version, event: EventId) -> bytes:
    """Encode the body of the reply to a publish that was executed, ready for ``codec.number``.

    Args:
        request: its number.
        version: of the value.
        event: id of the publish; digits and dashes.
    """
    return b'"type":"reply","request":%d,"version":%d,"event":"%b"}' % (request, version, event.encode())
