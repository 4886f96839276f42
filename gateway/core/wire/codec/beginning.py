"""Which request a message holds that cannot be read, by how it begins (protocol 4.8.1)."""

from __future__ import annotations

import re
from typing import Final

from gateway.core.types import RequestNumber

BEGINNING_BYTES: Final = 256
"""Bytes of a message that are looked at: all that clients write before a topic or a value."""

_SCALAR: Final = rb'(?:"[^"\\]*"|-?[0-9]{1,16}|true|false|null)'
_FIELD: Final = re.compile(rb'[ \t\n\r]*"([a-z_]+)"[ \t\n\r]*:[ \t\n\r]*(' + _SCALAR + rb")[ \t\n\r]*,")
_OBJECT: Final = re.compile(rb"[ \t\n\r]*\{")

_REQUESTS: Final = frozenset({b'"subscribe"', b'"unsubscribe"', b'"publish"', b'"properties"', b'"authenticate"'})


def request_of(message: str | bytes) -> RequestNumber | None:
    """Tell the number of the one request that a message is, if its beginning says so.

    Args:
        message: all of it, or its first bytes.

    Returns:
        The number; None for an array of packets, for what is no request, and if the number stands too far behind.
    """
    beginning = (message.encode(errors="replace") if isinstance(message, str) else message)[:BEGINNING_BYTES]
    opening = _OBJECT.match(beginning)
    if opening is None:
        return None
    fields: dict[bytes, bytes] = {}
    at = opening.end()
    while (field := _FIELD.match(beginning, at)) is not None:
        fields[field[1]] = field[2]
        at = field.end()
    number = fields.get(b"request", b"")
    if fields.get(b"type") not in _REQUESTS or not number.isdigit() or int(number) == 0:
        return None
    return RequestNumber(int(number))
