"""Bodies to session packets: the number in front of a body, and bodies that follow one another (protocol 5.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final


def head(packet_id: int, received: int | None = None) -> bytes:
    """Write what goes before a body and differs per session: the id, and the acknowledgement if there is news."""
    return b'{"id":%d,' % packet_id if received is None else b'{"id":%d,"received":%d,' % (packet_id, received)


def number(body: bytes, packet_id: int, received: int | None = None) -> bytes:
    """Make a whole session packet of a body."""
    return head(packet_id, received) + body


_NEXT: Final = b",{"
"""Between two bodies in an array, the second of which needs no number because it is one above the first's."""


def follow(bodies: Iterable[bytes]) -> bytes:
    """Let bodies, or texts made of them by this function, follow one another without numbers (protocol 5.1)."""
    return _NEXT.join(bodies)


def apart(text: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Take bodies that follow one another apart again; *sizes* are their lengths."""
    bodies: list[bytes] = []
    start = 0
    for size in sizes:
        bodies.append(text[start : start + size])
        start += size + len(_NEXT)
    return bodies
