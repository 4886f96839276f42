"""Pending requests about queues as rows of an exported session; see ``export``."""

from __future__ import annotations

from typing import Final

from gateway.core.stream.byte_form import Bodies, Record
from gateway.core.types import DeliveryTag, JsonValue, MessageId, RequestNumber
from gateway.core.wire.queue_packets import (
    AckMode,
    Cancel,
    Consume,
    Declare,
    QueueRequest,
    Send,
    Settle,
    Settlement,
)

QUEUE_REQUESTS: Final = frozenset({"send", "consume", "cancel", "settle", "declare"})
"""What the rows begin with."""


def write_queue_request(work: QueueRequest, bodies: Bodies) -> list[JsonValue]:
    """Write the row of a pending request; values are added to *bodies* of the record."""
    match work:
        case Send(request, queue, value, headers, delay, expires, resubmitted):
            return ["send", request, resubmitted, queue, bodies.put(value), dict(headers), delay, expires]
        case Consume(request, queue, credit, mode, resubmitted):
            return ["consume", request, resubmitted, queue, credit, mode.value]
        case Cancel(request, queue, resubmitted):
            return ["cancel", request, resubmitted, queue]
        case Settle(request, queue, messages, outcome, delay, resubmitted):
            pairs: list[JsonValue] = [[message, tag] for message, tag in messages]
            return ["settle", request, resubmitted, queue, outcome.value, delay, pairs]
        case Declare(request, resubmitted):
            return ["declare", request, resubmitted]


def read_queue_request(row: JsonValue, record: Record, name: str) -> QueueRequest:
    """Read the row of a request from the field *name* of a record.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    match row:
        case ["declare", int(request), bool(resubmitted)] if request >= 0:
            return Declare(RequestNumber(request), resubmitted)
        case [str(kind), int(request), bool(resubmitted), str(queue), *rest] if request >= 0:
            number = RequestNumber(request)
            try:
                match kind, rest:
                    case "send", [place, dict(headers), float() | int() as delay, expires]:
                        texts = {key: text for key, text in headers.items() if isinstance(text, str)}
                        if len(texts) == len(headers) and (expires is None or isinstance(expires, int | float)):
                            value = record.body(name, place)
                            return Send(number, queue, value, texts, float(delay), expires, resubmitted)
                    case "consume", [int(credit), str(mode)]:
                        return Consume(number, queue, credit, AckMode(mode), resubmitted)
                    case "cancel", []:
                        return Cancel(number, queue, resubmitted)
                    case "settle", [str(outcome), float() | int() as delay, [*pairs]]:
                        messages = tuple([_read_pair(pair) for pair in pairs])
                        return Settle(number, queue, messages, Settlement(outcome), float(delay), resubmitted)
            except ValueError:
                pass
    return record.fail(name, "a list of requests")


def _read_pair(pair: JsonValue) -> tuple[MessageId, DeliveryTag]:
    match pair:
        case [int(message), int(tag)]:
            return MessageId(message), DeliveryTag(tag)
    raise ValueError("no id and delivery of a message")
