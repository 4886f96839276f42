"""Messages that the strict parser of JSON refuses, read all the same, so that only what is bad in them is refused.

A lone surrogate, a number beyond all doubles or some thousand brackets make it refuse a message as a whole, and with it
the number of the request that a reply could go to (protocol 2.6.1). The parser of the standard library takes the first,
tells of the second and can be helped over the third. It is far slower, and so reads nothing but such messages.
"""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Final, NoReturn

import orjson

from gateway.core.wire.codec.fields import Object, Unfit
from gateway.core.wire.codec.values import MAX_NESTING, TOO_DEEP
from gateway.core.wire.packets import Packet

_KEPT_LEVELS: Final = 2 * MAX_NESTING
"""Levels of a message that are kept where it has too many: enough for the value to be too deep in what is left."""

_TOO_DEEP: Final = Unfit(TOO_DEEP)
_NOT_UNICODE: Final = Unfit("is not Unicode: a surrogate in it has no other half")

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]+|[\]}]+|[^"\[\]{}]+', re.DOTALL)
"""All of a text, in pieces: strings, runs of brackets, and what is between."""

_MARK: Final = "Infinity"
"""No JSON, but a number to the parser: in the place of what is cut out."""

_LONGEST_WHOLE: Final = 19
"""Digits and sign of numbers that surely fit into 64 bits; longer ones may be doubles, as for the strict parser."""

_WHOLE: Final = range(-(2**63), 2**64)
"""Whole numbers that the strict parser reads as such."""

BYTES_PER_PACKET: Final = 64
"""Bytes of such a message that take as long to read as a packet takes to be read and executed: some 20 µs."""


class Salvaged(list[Packet]):
    """The packets of a message that took far longer to read than others.

    Attributes:
        effort: packets that could have been served in that time.
    """

    __slots__ = ("effort",)

    def __init__(self, packets: list[Packet], message: str | bytes) -> None:
        super().__init__(packets)
        self.effort = len(message) // BYTES_PER_PACKET


def salvage(message: str | bytes) -> object:
    """Read a message that the strict parser has refused.

    Args:
        message: as it came.

    Returns:
        What the strict parser would make of it, but for fields of packets that hold what cannot be passed on: these
        are ``Unfit``.

    Raises:
        ValueError: it is no JSON for other reasons.
    """
    text = message if isinstance(message, str) else message.decode()
    try:
        content = STRICT.decode(text)
    except RecursionError:
        content = _PRUNED.decode(_prune(text))
    for packet in content if isinstance(content, list) else [content]:
        if isinstance(packet, dict):
            _mark(packet)
    return content


def _mark(packet: Object) -> None:
    """Put ``Unfit`` in the place of fields that hold something which is."""
    if _unfit(packet) is None:
        return
    for name, value in packet.items():
        reason = _unfit(value)
        if reason is not None:
            packet[name] = reason


def _unfit(value: object) -> Unfit | None:
    """Tell what is wrong with a value, by trying to write it."""
    found: list[Unfit] = []

    def tell(part: object) -> None:
        if isinstance(part, Unfit):
            found.append(part)

    try:
        orjson.dumps(value, default=tell)
    except orjson.JSONEncodeError as error:
        return found[0] if found else _NOT_UNICODE if "surrogate" in str(error) else _TOO_DEEP
    return found[0] if found else None


def _prune(text: str) -> str:
    """Put a mark in the place of everything below the levels that are kept.

    Raises:
        ValueError: the text has the mark, which is no JSON.
    """
    kept: list[str] = []
    depth = 0
    for token in _TOKEN.findall(text):
        first = token[0]
        if first in "[{":
            room = _KEPT_LEVELS - depth
            depth += len(token)
            if room >= 0:
                kept.append(token[:room])
                if len(token) > room:
                    kept.append(_MARK)
        elif first in "]}":
            surplus = depth - _KEPT_LEVELS
            depth -= len(token)
            if depth < _KEPT_LEVELS:
                kept.append(token[max(0, surplus) :])
        elif depth <= _KEPT_LEVELS:
            if first != '"' and _MARK in token:
                raise ValueError("a name that is not JSON")
            kept.append(token)
    return "".join(kept)


def _whole(digits: str) -> int | float | Unfit:
    if len(digits) <= _LONGEST_WHOLE:
        return int(digits)
    number = _fraction(digits)
    if isinstance(number, float) and len(digits) <= _LONGEST_WHOLE + 2 and int(digits) in _WHOLE:
        return int(digits)
    return number


def _fraction(digits: str) -> float | Unfit:
    number = float(digits)
    return Unfit(f"has the number {digits[:24]}, which is beyond what a double can hold") if isinf(number) else number


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _too_deep(name: str) -> Unfit:
    return _TOO_DEEP if name == _MARK else _no_json(name)


STRICT: Final = json.JSONDecoder(parse_float=_fraction, parse_int=_whole, parse_constant=_no_json)
"""Reads what the strict parser reads, and beyond that the content that is ``Unfit``."""

_PRUNED: Final = json.JSONDecoder(parse_float=_fraction, parse_int=_whole, parse_constant=_too_deep)
