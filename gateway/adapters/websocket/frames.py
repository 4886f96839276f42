"""Server frames (RFC 6455 section 5.2), built without a copy more than needed.

aiohttp's own writer is a coroutine that may wait for the transport. The gateway decides itself what waits and what is
conflated, so it hands whole frames to the transport and looks at the transport's backlog.
"""

from __future__ import annotations

from typing import Final

_TEXT_FINAL: Final = 0x81
"""FIN and opcode 1: a text message in one frame. A server does not mask."""
_LENGTH_7_BITS: Final = 125
"""Longest payload whose length fits into the second byte."""
_LENGTH_16_BITS: Final = 0xFFFF
"""Longest payload whose length fits into two further bytes."""


def text_frame(payload: bytes) -> bytes:
    """Frame one text message.

    Args:
        payload: UTF-8.
    """
    size = len(payload)
    if size <= _LENGTH_7_BITS:
        return b"%c%c%b" % (_TEXT_FINAL, size, payload)
    if size <= _LENGTH_16_BITS:
        return b"%c\x7e%b%b" % (_TEXT_FINAL, size.to_bytes(2, "big"), payload)
    return b"%c\x7f%b%b" % (_TEXT_FINAL, size.to_bytes(8, "big"), payload)
