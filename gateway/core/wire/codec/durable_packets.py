"""Packets about durable subscriptions: their fields, what they become, and their JSON text (protocol section 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.wire.codec.fields import (
    BadField,
    Object,
    named_by_number,
    read_all_positions,
    read_flag,
    read_optional_seconds,
    read_optional_text,
    read_positions,
    read_resubmitted,
    read_text,
    request_number,
)
from gateway.core.wire.codec.values import dumps
from gateway.core.wire.durable_packets import (
    AdvanceDurable,
    DurablePlace,
    DurableRequest,
    OpenDurable,
    ReleaseDurable,
    RemoveDurable,
)

EARLIEST: Final = "earliest"
NOW: Final = "now"
"""Where a durable subscription that is made begins, in partitions without a position."""

_NAMES: Final[Mapping[type[DurableRequest], str]] = {
    OpenDurable: "durable-open",
    AdvanceDurable: "durable-advance",
    ReleaseDurable: "durable-release",
    RemoveDurable: "durable-remove",
}

# --- From the client ----------------------------------------------------------------------------------------------


def read_durable_open(packet: Object) -> OpenDurable:
    """Read an opening."""
    start = read_optional_text(packet, "from")
    if start not in {None, EARLIEST, NOW}:
        raise BadField(f'\'from\' must be "{EARLIEST}" or "{NOW}"')
    return OpenDurable(
        request_number(packet),
        read_text(packet, "name"),
        read_text(packet, "selector"),
        read_all_positions(packet, "after"),
        start != NOW,
        read_optional_seconds(packet, "life"),
        read_flag(packet, "take", default=False),
        read_flag(packet, "shared", default=False),
        read_resubmitted(packet),
    )


def read_durable_advance(packet: Object) -> AdvanceDurable:
    """Read an acknowledgement."""
    return AdvanceDurable(
        request_number(packet),
        read_text(packet, "name"),
        read_all_positions(packet, "positions"),
        read_resubmitted(packet),
    )


def read_durable_release(packet: Object) -> ReleaseDurable:
    """Read a release."""
    return ReleaseDurable(request_number(packet), read_text(packet, "name"), read_resubmitted(packet))


def read_durable_remove(packet: Object) -> RemoveDurable:
    """Read a removal."""
    return RemoveDurable(request_number(packet), read_text(packet, "name"), read_resubmitted(packet))


# --- From the server ----------------------------------------------------------------------------------------------


def read_durable_place(part: Object) -> DurablePlace:
    """Read where one goes on."""
    return DurablePlace(
        positions=read_positions(part, "positions"),
        created=read_flag(part, "created", default=False),
        queue=read_optional_text(part, "queue"),
    )


# --- To text ------------------------------------------------------------------------------------------------------


def write_durable_place(place: DurablePlace) -> Object:
    """Write where one goes on."""
    content: Object = {"positions": named_by_number(place.positions)}
    if place.created:
        content["created"] = True
    if place.queue is not None:
        content["queue"] = place.queue
    return content


def encode_durable_request(body: DurableRequest) -> bytes:
    """Encode the body of a request about a durable subscription, ready for ``number``.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    content: Object = {"type": _NAMES[type(body)], "request": body.request, "name": body.name}
    if body.resubmitted:
        content["resubmitted"] = True
    match body:
        case OpenDurable():
            content["selector"] = body.selector
            if body.after:
                content["after"] = named_by_number(body.after)
            if not body.earliest:
                content["from"] = NOW
            if body.life is not None:
                content["life"] = body.life
            if body.take:
                content["take"] = True
            if body.shared:
                content["shared"] = True
        case AdvanceDurable():
            content["positions"] = named_by_number(body.positions)
        case ReleaseDurable() | RemoveDurable():
            pass
    return dumps(content)[1:]
