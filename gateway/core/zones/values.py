"""Values that have come from another cluster: they are JSON text, or nobody here gets them."""

from __future__ import annotations

from typing import Final

import orjson

from gateway.core.wire.codec.fields import BadField
from gateway.core.wire.codec.values import encode_long_value

REMOVED: Final = b""
"""In the place of the value of a topic that was removed."""


def normal_value(text: bytes) -> bytes | None:
    """Write a value in the one form that publishes bring it into; None if it cannot be a value.

    A gateway has done so already when the value was published; then it stays what it is, byte for byte.
    """
    if text == REMOVED:
        return text
    try:
        return encode_long_value(orjson.loads(text))
    except (ValueError, BadField):
        return None
