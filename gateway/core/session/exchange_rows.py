"""Pending requests about questions and answers as rows of an exported session; see ``export``."""

from __future__ import annotations

from typing import Final

from gateway.core.stream.byte_form import Bodies, Record
from gateway.core.types import JsonValue, RequestNumber
from gateway.core.wire.exchange_packets import Answer, Ask, Await, ExchangeRequest, Handle, Unhandle

EXCHANGE_REQUESTS: Final = frozenset({"handle", "unhandle", "ask", "await", "answer"})
"""What the rows begin with."""


def write_exchange_request(work: ExchangeRequest, bodies: Bodies) -> list[JsonValue]:
    """Write the row of a pending request; values are added to *bodies* of the record."""
    match work:
        case Handle(request, selector, concurrency, resubmitted):
            return ["handle", request, resubmitted, selector, concurrency]
        case Unhandle(request, selector, resubmitted):
            return ["unhandle", request, resubmitted, selector]
        case Ask(request, path, value, timeout, principal, session, resubmitted):
            return ["ask", request, resubmitted, path, bodies.put(value), timeout, principal, session]
        case Await(request, asks, resubmitted):
            pairs: list[JsonValue] = [[number, path] for number, path in asks]
            return ["await", request, resubmitted, pairs]
        case Answer(request, question, value, failed, resubmitted):
            body = None if value is None else bodies.put(value)
            return ["answer", request, resubmitted, question, body, failed]


def read_exchange_request(row: JsonValue, record: Record, name: str) -> ExchangeRequest:
    """Read the row of a request from the field *name* of a record.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    match row:
        case [str(kind), int(request), bool(resubmitted), *rest] if request >= 0:
            number = RequestNumber(request)
            match kind, rest:
                case "handle", [str(selector), int(concurrency)]:
                    return Handle(number, selector, concurrency, resubmitted)
                case "unhandle", [str(selector)]:
                    return Unhandle(number, selector, resubmitted)
                case "ask", [
                    str(path),
                    place,
                    float() | int() as timeout,
                    str() | None as principal,
                    str() | None as session,
                ]:
                    value = record.body(name, place)
                    return Ask(number, path, value, float(timeout), principal, session, resubmitted)
                case "await", [[*pairs]]:
                    asks = tuple([_read_pair(pair, record, name) for pair in pairs])
                    return Await(number, asks, resubmitted)
                case "answer", [str(question), place, str() | None as failed]:
                    body = None if place is None else record.body(name, place)
                    return Answer(number, question, body, failed, resubmitted)
    return record.fail(name, "a list of requests")


def _read_pair(pair: JsonValue, record: Record, name: str) -> tuple[RequestNumber, str]:
    match pair:
        case [int(number), str(path)]:
            return RequestNumber(number), path
    return record.fail(name, "a list of requests")
