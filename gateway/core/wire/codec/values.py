"""Values to JSON text: what applications hand in, and what packets are made of."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

import orjson

from gateway.core.wire.codec.fields import BadField, Unfit, bad_field
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import InvalidValue, RequestRefused

MAX_NESTING: Final = 128
"""Most arrays and objects within each other in a published value (protocol 9.3): far more than anybody needs, and half
of what the encoder takes, so that what is put round a value does no harm."""

TOO_DEEP: Final = f"has more than {MAX_NESTING} arrays and objects within each other"

_ENCODER_LEVELS: Final = 254
"""Arrays and objects within each other that the encoder takes, as its documentation says."""

_SHELL_LEVELS: Final = _ENCODER_LEVELS - MAX_NESTING
"""Levels around a value with which the encoder takes just as many as a value may have."""

LONG: Final = 2 * MAX_NESTING
"""Bytes of a message beyond which a value in it may have too many levels: each takes two brackets."""

_CONTAINERS: Final = frozenset({dict, list})
"""What the parser of JSON makes of objects and arrays."""

_LOOKED_AT: Final = 32
"""Members of an object that are looked at to spare more: flat ones of this size are the most common values."""

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS
"""How values of applications are encoded."""


def encode_value(value: object) -> bytes:
    """Encode the value of a short packet, in which there is no room for too many levels, as compact JSON text.

    Raises:
        BadField: it cannot be passed on (BAD_VALUE); readers of packets turn this into their own error.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise _refused(value, error) from None


def encode_long_value(value: object) -> bytes:
    """Encode a value as the parser has made it, with any number of levels; see ``encode_value``.

    Raises:
        BadField: as there, or it has too many levels.
    """
    if type(value) not in _CONTAINERS:
        return encode_value(value)
    if isinstance(value, dict) and len(value) <= _LOOKED_AT and _CONTAINERS.isdisjoint(map(type, value.values())):
        return encode_value(value)
    shell = _SHELLS.pop() if _SHELLS else _Shell()
    try:
        return shell.dumps(value)[_SHELL_LEVELS:-_SHELL_LEVELS]
    except orjson.JSONEncodeError as error:
        raise _refused(value, error) from None
    finally:
        _SHELLS.append(shell)


class _Shell:
    """So many levels around a value that the encoder refuses it exactly if it has one level too many.

    To count levels otherwise takes as long as to encode the value, or longer. Made once and used again, as to make one
    takes as long as to encode a small value.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self) -> None:
        self._inner: list[object] = []
        self._outer: list[object] = self._inner
        for _ in range(_SHELL_LEVELS - 1):
            self._outer = [self._outer]

    def dumps(self, value: object, options: int | None = None) -> bytes:
        """Encode a value with the levels around it."""
        self._inner.append(value)
        try:
            return orjson.dumps(self._outer, option=options)
        finally:
            self._inner.clear()


_SHELLS: Final[list[_Shell]] = []
"""Those that nobody uses at the moment: one, unless there are threads."""


def _refused(value: object, error: orjson.JSONEncodeError) -> BadField:
    if isinstance(value, Unfit):
        return bad_field("value", value, "")
    why = TOO_DEEP if "ecursion" in str(error) else f"cannot be encoded: {error}"
    return BadField(f"'value' {why}", ErrorCode.BAD_VALUE)


def json_text(value: object) -> bytes:
    """Encode a value that an application hands in.

    Raises:
        InvalidValue: it is not JSON, or has too many arrays and objects within each other. NaN and infinities are no
            JSON, and are refused rather than turned into null behind the application's back.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError as error:
        raise InvalidValue(f"the value cannot be encoded as JSON: {error}") from None
    # The encoder writes what JSON has no number for as null; only a value with a null in it has to be looked through.
    if b"null" in text and _holds_no_number(value):
        raise InvalidValue("the value cannot be encoded as JSON: it holds a NaN or an infinity")
    if _is_too_deep(value, text, _OPTIONS):
        raise InvalidValue(f"the value {TOO_DEEP}")
    return text


def _is_too_deep(value: object, text: bytes, options: int) -> bool:
    """Tell whether a value that has been encoded has too many levels; nearly always its text alone says that not."""
    if len(text) <= LONG or text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return False
    try:
        _Shell().dumps(value, options)
    except orjson.JSONEncodeError:
        return True
    return False


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
