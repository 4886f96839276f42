"""Packets that read values (protocol 6.7)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from gateway.core.types import EventId, RequestNumber, Version
from gateway.core.wire.codec.fields import (
    BadField,
    Object,
    read_count,
    read_objects,
    read_optional_count,
    read_optional_text,
    read_resubmitted,
    read_text,
    request_number,
)
from gateway.core.wire.codec.values import dumps
from gateway.core.wire.value_packets import ReadValues, ValueItem, ValuesPart


def read_read_values(packet: Object) -> ReadValues:
    """Read a request for a page of values."""
    limit = read_optional_count(packet, "limit", None)
    if limit == 0:
        raise BadField("'limit' must be an integer from 1")
    return ReadValues(
        request_number(packet),
        read_text(packet, "selector"),
        read_optional_text(packet, "after"),
        limit,
        read_resubmitted(packet),
    )


def write_read_values(body: ReadValues) -> Object:
    """Return the fields of a request for a page of values, without ``resubmitted``."""
    content: Object = {"type": "values", "request": body.request, "selector": body.selector}
    if body.after is not None:
        content["after"] = body.after
    if body.limit is not None:
        content["limit"] = body.limit
    return content


def read_values_part(part: Object) -> ValuesPart:
    """Read what a reply has of a page."""
    return ValuesPart(tuple(map(_read_item, read_objects(part, "items"))), read_optional_text(part, "next"))


def _read_item(item: Object) -> ValueItem:
    if "value" not in item:
        raise BadField("'value' is missing")
    return ValueItem(
        read_text(item, "topic"),
        Version(read_count(item, "version", least=1)),
        EventId(read_text(item, "event")),
        item["value"],
    )


def encode_values(
    request: RequestNumber, items: Sequence[tuple[str, Version, EventId, bytes]], next_after: str | None
) -> bytes:
    """Encode the body of the reply to a reading of values, ready for ``number``.

    Args:
        request: its number.
        items: topic, version, event and the JSON text of the value of each.
        next_after: see ``ValuesPart.next``.
    """
    written = [
        b'{"topic":%b,"version":%d,"event":"%b","value":%b}' % (orjson.dumps(topic), version, event.encode(), value)
        for topic, version, event, value in items
    ]
    following = b"" if next_after is None else b',"next":%b' % orjson.dumps(next_after)
    return b'"type":"reply","request":%d,"values":{"items":[%b]%b}}' % (request, b",".join(written), following)


def encode_values_part(request: RequestNumber, part: ValuesPart) -> bytes:
    """Encode the same from a page that was read."""
    items = [(each.topic, each.version, each.event, dumps(each.value)) for each in part.items]
    return encode_values(request, items, part.next)
