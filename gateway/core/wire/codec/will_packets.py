"""Packets about last wills, and the text by which a session holds them (protocol section 19)."""

from __future__ import annotations

from typing import Final

import orjson

from gateway.core.types import RequestNumber
from gateway.core.wire.codec.fields import (
    BadField,
    Object,
    bad_field,
    read_resubmitted,
    read_text,
    read_ttl,
    request_number,
)
from gateway.core.wire.codec.values import dumps, encode_long_value
from gateway.core.wire.will_packets import MOST_WILLS, UNASKED, EndKind, SetWills, Will

_KINDS: Final = ", ".join(f'"{each}"' for each in EndKind)


def read_set_wills(packet: Object) -> SetWills:
    """Read a change of wills."""
    wills = packet.get("wills")
    if not isinstance(wills, list) or len(wills) > MOST_WILLS or not all(isinstance(each, dict) for each in wills):
        raise bad_field("wills", wills, f"must be an array of {MOST_WILLS} objects at most")
    return SetWills(request_number(packet), tuple(map(_read_will, wills)), read_resubmitted(packet))


def _read_will(will: Object) -> Will:
    if "value" not in will:
        raise BadField("'value' of a will is missing")
    return Will(read_text(will, "topic"), encode_long_value(will["value"]), _read_when(will), read_ttl(will))


def _read_when(will: Object) -> tuple[EndKind, ...]:
    named = will.get("when")
    if named is None:
        return UNASKED
    if isinstance(named, list) and named and all(isinstance(each, str) for each in named):
        kinds = tuple(each for each in EndKind if each.value in named)
        if len(kinds) == len(named):
            return kinds
    raise BadField(f"'when' must be an array of some of {_KINDS}, each once")


def encode_set_wills(body: SetWills) -> bytes:
    """Encode the body of a change of wills, ready for ``number``.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    again = b'"resubmitted":true,' if body.resubmitted else b""
    return b'"type":"wills","request":%d,%b"wills":%b}' % (body.request, again, write_wills(body.wills))


def write_wills(wills: tuple[Will, ...]) -> bytes:
    """Write wills as their request has them, and as their session holds them."""
    return b"[" + b",".join(map(_write_will, wills)) + b"]"


def _write_will(will: Will) -> bytes:
    said: Object = {"topic": will.topic}
    if will.when != UNASKED:
        said["when"] = list(will.when)
    if will.ttl is not None:
        said["ttl"] = will.ttl
    return b'%b,"value":%b}' % (dumps(said)[:-1], will.value)


def read_wills(text: str) -> tuple[Will, ...]:
    """Read what ``write_wills`` wrote.

    Raises:
        ValueError: it did not write that.
    """
    try:
        return read_set_wills({"request": RequestNumber(1), "wills": orjson.loads(text)}).wills
    except BadField as error:
        raise ValueError(str(error)) from None
