"""Packets about transactions: their fields, what they become, and their JSON text (protocol section 16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.types import RequestNumber
from gateway.core.wire.codec.fields import (
    BadField,
    Object,
    read_count,
    read_object,
    read_resubmitted,
    read_text,
    read_ttl,
    request_number,
)
from gateway.core.wire.codec.queue_packets import read_long_send, read_send, read_settle
from gateway.core.wire.codec.values import dumps, encode_long_value, encode_value
from gateway.core.wire.packets import Publish
from gateway.core.wire.queue_packets import Send, Settle
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage, TransactionRequest

OPERATIONS: Final = ("publish", "send", "settle")
"""What a transaction can do, by the types of the requests that do it alone."""


def read_begin(packet: Object) -> Begin:
    """Read a begin."""
    return Begin(request_number(packet), read_resubmitted(packet))


def read_stage(packet: Object) -> Stage:
    """Read a stage of a short packet; see ``encode_value``."""
    return _read_any_stage(packet, encode_value, read_send)


def read_long_stage(packet: Object) -> Stage:
    """Read a stage of a packet in which there is room for values with too many levels."""
    return _read_any_stage(packet, encode_long_value, read_long_send)


def _read_any_stage(packet: Object, encode: Callable[[object], bytes], send: Callable[[Object], Send]) -> Stage:
    request = request_number(packet)
    # What is staged has no number of its own: it is known by that of the request which stages it.
    wanted: Object = {**read_object(packet, "operation"), "request": request, "resubmitted": None}
    operation: Publish | Send | Settle
    match wanted.get("type"):
        case "publish":
            if "value" not in wanted:
                raise BadField("'value' is missing")
            value = encode(wanted["value"])
            operation = Publish(request, read_text(wanted, "topic"), value, ttl=read_ttl(wanted))
        case "send":
            operation = send(wanted)
        case "settle":
            operation = read_settle(wanted)
        case _:
            raise BadField(f"the type of 'operation' must be one of {', '.join(OPERATIONS)}")
    return Stage(request, _transaction(packet), operation, read_resubmitted(packet))


def read_commit(packet: Object) -> Commit:
    """Read a commit."""
    return Commit(request_number(packet), _transaction(packet), read_resubmitted(packet))


def read_rollback(packet: Object) -> Rollback:
    """Read a rollback."""
    return Rollback(request_number(packet), _transaction(packet), read_resubmitted(packet))


def _transaction(packet: Object) -> RequestNumber:
    return RequestNumber(read_count(packet, "transaction", least=1))


def encode_transaction_request(
    body: TransactionRequest, encode_request: Callable[[Publish | Send | Settle], bytes]
) -> bytes:
    """Encode the body of a request about a transaction, ready for ``number``.

    Args:
        body: the request.
        encode_request: encodes what is staged, as a request.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    content: Object = {"type": type(body).__name__.lower(), "request": body.request}
    if body.resubmitted:
        content["resubmitted"] = True
    if not isinstance(body, Begin):
        content["transaction"] = body.transaction
    if isinstance(body, Stage):
        operation = encode_request(body.operation)
        # What is staged has no number, and its body ends with its own closing brace.
        bare = operation.replace(b'"request":%d,' % body.operation.request, b"", 1)
        return b'%b,"operation":{%b}' % (dumps(content)[1:-1], bare)
    return dumps(content)[1:]
