"""Packets about queues: their fields, what they become, and their JSON text (protocol section 13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from gateway.core.types import DeliveryTag, MessageId
from gateway.core.wire.codec.fields import (
    MAX_NUMBER,
    BadField,
    Object,
    read_count,
    read_flag,
    read_optional_count,
    read_optional_seconds,
    read_optional_text,
    read_resubmitted,
    read_text,
    read_texts,
    request_number,
)
from gateway.core.wire.codec.values import dumps, encode_long_value, encode_value
from gateway.core.wire.queue_packets import (
    AckMode,
    Cancel,
    Consume,
    Declare,
    Message,
    QueueRequest,
    Send,
    Settle,
    Settlement,
)

_MODES: Final = tuple(mode.value for mode in AckMode)
_OUTCOMES: Final = tuple(outcome.value for outcome in Settlement)
_NAMES: Final[dict[type[QueueRequest], str]] = {
    Send: "send",
    Consume: "consume",
    Cancel: "cancel",
    Settle: "settle",
    Declare: "declare",
}

# --- From the client ----------------------------------------------------------------------------------------------


def read_send(packet: Object) -> Send:
    """Read a send of a short message; see ``encode_value``."""
    return _read_any_send(packet, encode_value)


def read_long_send(packet: Object) -> Send:
    """Read a send of a message in which there is room for values with too many levels."""
    return _read_any_send(packet, encode_long_value)


def _read_any_send(packet: Object, encode: Callable[[object], bytes]) -> Send:
    if "value" not in packet:
        raise BadField("'value' is missing")
    return Send(
        request_number(packet),
        read_text(packet, "queue"),
        encode(packet["value"]),
        read_texts(packet, "headers"),
        read_optional_seconds(packet, "delay") or 0.0,
        read_optional_seconds(packet, "expires"),
        read_resubmitted(packet),
    )


def read_consume(packet: Object) -> Consume:
    """Read a consume."""
    mode = read_optional_text(packet, "mode") or AckMode.AUTO.value
    if mode not in _MODES:
        raise BadField(f"'mode' must be one of {', '.join(_MODES)}")
    return Consume(
        request_number(packet),
        read_text(packet, "queue"),
        read_count(packet, "credit"),
        AckMode(mode),
        read_resubmitted(packet),
    )


def read_cancel(packet: Object) -> Cancel:
    """Read a cancel."""
    return Cancel(request_number(packet), read_text(packet, "queue"), read_resubmitted(packet))


def read_declare(packet: Object) -> Declare:
    """Read a declaration."""
    if not read_flag(packet, "temporary"):
        raise BadField("'temporary' must be true: clients declare no other queues")
    return Declare(request_number(packet), read_resubmitted(packet))


def read_settle(packet: Object) -> Settle:
    """Read a settle."""
    outcome = read_optional_text(packet, "as") or Settlement.ACCEPT.value
    if outcome not in _OUTCOMES:
        raise BadField(f"'as' must be one of {', '.join(_OUTCOMES)}")
    return Settle(
        request_number(packet),
        read_text(packet, "queue"),
        tuple([_read_pair(each) for each in _read_entries(packet, "messages")]),
        Settlement(outcome),
        read_optional_seconds(packet, "delay") or 0.0,
        read_resubmitted(packet),
    )


def _read_entries(packet: Object, name: str) -> list[object]:
    entries = packet.get(name)
    if not isinstance(entries, list) or not entries:
        raise BadField(f"'{name}' must be an array that is not empty")
    return entries


def _read_pair(entry: object) -> tuple[MessageId, DeliveryTag]:
    match entry:
        case [int(message), int(delivery)] if 0 < message <= MAX_NUMBER and 0 < delivery <= MAX_NUMBER:
            return MessageId(message), DeliveryTag(delivery)
    raise BadField("each of 'messages' must be an array of a message's id and its delivery")


# --- From the server ----------------------------------------------------------------------------------------------


def read_message(packet: Object) -> Message:
    """Read a message of a queue."""
    if "value" not in packet:
        raise BadField("'value' is missing")
    return Message(
        queue=read_text(packet, "queue"),
        message=MessageId(read_count(packet, "message", least=1)),
        delivery=DeliveryTag(read_count(packet, "delivery", least=1)),
        sent=read_count(packet, "sent"),
        deliveries=read_optional_count(packet, "deliveries", 0) or 0,
        redelivered=read_flag(packet, "redelivered", default=False),
        headers=read_texts(packet, "headers"),
        value=packet["value"],
    )


# --- To text ------------------------------------------------------------------------------------------------------


def encode_queue_request(body: QueueRequest) -> bytes:
    """Encode the body of a request about a queue, ready for ``number``.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    content: Object = {"type": _NAMES[type(body)], "request": body.request}
    if isinstance(body, Declare):
        content["temporary"] = True
    else:
        content["queue"] = body.queue
    if body.resubmitted:
        content["resubmitted"] = True
    match body:
        case Send():
            return _encode_send(body, content)
        case Consume():
            content |= {"credit": body.credit, "mode": body.mode}
        case Settle():
            content |= {"as": body.outcome, "messages": body.messages}
            if body.delay:
                content["delay"] = body.delay
        case Cancel() | Declare():
            pass
    return dumps(content)[1:]


def _encode_send(body: Send, content: Object) -> bytes:
    if body.headers:
        content["headers"] = dict(body.headers)
    if body.delay:
        content["delay"] = body.delay
    if body.expires is not None:
        content["expires"] = body.expires
    return b'%b,"value":%b}' % (dumps(content)[1:-1], body.value)


def encode_message(message: Message, headers: bytes, value: bytes) -> bytes:
    """Encode the body of a message of a queue, ready for ``number``.

    Args:
        message: all but its headers and its value, which are not looked at.
        headers: JSON text of an object; empty for none.
        value: JSON text.
    """
    return b'"type":"message","queue":%b,"message":%d,"delivery":%d,"sent":%d%b%b%b,"value":%b}' % (
        orjson.dumps(message.queue),
        message.message,
        message.delivery,
        message.sent,
        b',"deliveries":%d' % message.deliveries if message.deliveries else b"",
        b',"redelivered":true' if message.redelivered else b"",
        b',"headers":%b' % headers if headers else b"",
        value,
    )
