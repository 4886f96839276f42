"""Values to JSON text: what applications hand in, and what packets are made of."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import orjson

from gateway.core.codec.fields import BadField
from gateway.core.errors import RequestRefused


def encode_value(value: object) -> bytes:
    """Encode a topic's value as compact JSON text.

    Raises:
        BadField: it is nested too deeply or not JSON; readers of packets turn this into their own error.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise BadField(f"'value' cannot be encoded: {error}") from None


def json_text(value: object) -> bytes:
    """Encode a value that an application hands in.

    Raises:
        RequestRefused: it is not JSON (BAD_REQUEST). NaN and infinities are not, and are refused rather than turned
            into null behind the application's back.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError as error:
        raise RequestRefused(f"the value cannot be encoded as JSON: {error}") from None
    # The encoder writes what JSON has no number for as null; only a value with a null in it has to be looked through.
    if b"null" in text and _holds_no_number(value):
        raise RequestRefused("the value cannot be encoded as JSON: it holds a NaN or an infinity")
    return text


def _holds_no_number(value: object) -> bool:
    """Tell whether a float that JSON cannot write is somewhere in *value*, which is known to be of finite depth."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float) and not isfinite(each):
            return True
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
    return False


def dumps(content: object) -> bytes:
    """Encode a packet, or a part of one.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    try:
        return orjson.dumps(content, default=_plain)
    except orjson.JSONEncodeError as error:
        raise RequestRefused(f"the packet cannot be encoded as JSON: {error}") from None


def _plain(value: object) -> object:
    """Turn into a dictionary what only behaves like one; the encoder knows no other mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
