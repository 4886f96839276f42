"""Pending requests about durable subscriptions as rows of an exported session; see ``export``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.stream.byte_form import Record
from gateway.core.types import EventId, JsonValue, RequestNumber
from gateway.core.wire.durable_packets import (
    AdvanceDurable,
    DurableRequest,
    OpenDurable,
    ReleaseDurable,
    RemoveDurable,
)

DURABLE_REQUESTS: Final = frozenset({"durable-open", "durable-advance", "durable-release", "durable-remove"})
"""What the rows begin with."""


def write_places(places: Mapping[int, EventId]) -> dict[str, JsonValue]:
    """Write places in topic partitions."""
    return {str(number): event for number, event in places.items()}


def read_places(places: Mapping[str, JsonValue]) -> dict[int, EventId]:
    """Read them."""
    return {int(text): EventId(str(event)) for text, event in places.items() if text.isdecimal()}


def write_durable_request(work: DurableRequest) -> list[JsonValue]:
    """Write the row of a pending request."""
    match work:
        case OpenDurable(request, name, selector, after, earliest, life, take, shared, resubmitted):
            head: list[JsonValue] = ["durable-open", request, resubmitted, name]
            return [*head, selector, write_places(after), earliest, life, take, shared]
        case AdvanceDurable(request, name, positions, resubmitted):
            return ["durable-advance", request, resubmitted, name, write_places(positions)]
        case ReleaseDurable(request, name, resubmitted):
            return ["durable-release", request, resubmitted, name]
        case RemoveDurable(request, name, resubmitted):
            return ["durable-remove", request, resubmitted, name]


def read_durable_request(row: JsonValue, record: Record, field: str) -> DurableRequest:
    """Read the row of a request from a *field* of a record.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    match row:
        case [str(kind), int(request), bool(resubmitted), str(name), *rest] if request >= 0:
            number = RequestNumber(request)
            match kind, rest:
                case "durable-open", [
                    str(selector),
                    dict(after),
                    bool(earliest),
                    int() | float() | None as life,
                    bool(take),
                    bool(shared),
                ]:
                    places = read_places(after)
                    return OpenDurable(number, name, selector, places, earliest, life, take, shared, resubmitted)
                case "durable-advance", [dict(positions)]:
                    return AdvanceDurable(number, name, read_places(positions), resubmitted)
                case "durable-release", []:
                    return ReleaseDurable(number, name, resubmitted)
                case "durable-remove", []:
                    return RemoveDurable(number, name, resubmitted)
    return record.fail(field, "a list of requests")
