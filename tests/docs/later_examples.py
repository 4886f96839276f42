"""What examples of the protocol's later sections mean (docs/reference/protocol.md: 6.7, and from section 14 on)."""

from __future__ import annotations

from typing import Final

from gateway.core.types import EventId, PacketId, RequestNumber, Version
from gateway.core.wire.durable_packets import (
    AdvanceDurable,
    DurablePlace,
    OpenDurable,
    ReleaseDurable,
    RemoveDurable,
)
from gateway.core.wire.packets import Packet, Publish, Reply, SessionBody, SessionPacket, Update
from gateway.core.wire.value_packets import ReadValues, ValueItem, ValuesPart
from gateway.core.wire.will_packets import EndKind, SetWills, Will


def session(number: int, body: SessionBody, received: int | None = None) -> SessionPacket:
    return SessionPacket(PacketId(number), None if received is None else PacketId(received), body)


LATER: Final[dict[str, Packet | list[Packet]]] = {
    "values": session(16, ReadValues(RequestNumber(12), "orders/**", "orders/6", 100)),
    "reply-to-values": session(
        53,
        Reply(
            request=RequestNumber(12),
            values=ValuesPart(
                (
                    ValueItem("orders/7", Version(4), EventId("12-1-16"), {"state": "paid"}),
                    ValueItem("orders/8", Version(1), EventId("12-1-17"), {"state": "new"}),
                ),
                "orders/8",
            ),
        ),
    ),
    "reply-to-values-that-is-the-last": session(54, Reply(request=RequestNumber(13), values=ValuesPart())),
    "durable-open": session(
        21,
        OpenDurable(RequestNumber(21), "billing", "orders/**", {17: EventId("17-1-88")}, life=86400.0, take=True),
    ),
    "reply-to-durable-open": session(
        61,
        Reply(request=RequestNumber(21), durable=DurablePlace(positions={17: EventId("17-1-95")}, created=True)),
    ),
    "durable-open-shared": session(25, OpenDurable(RequestNumber(25), "render", "orders/**", shared=True)),
    "reply-to-durable-open-shared": session(
        62,
        Reply(
            request=RequestNumber(25),
            durable=DurablePlace(queue="$shared-4c5a0a1b2c3d4e5f60718293/9f8e7d6c5b4a39281706f5e4"),
        ),
    ),
    "durable-advance": session(22, AdvanceDurable(RequestNumber(22), "billing", {17: EventId("17-1-97")})),
    "durable-release": session(23, ReleaseDurable(RequestNumber(23), "billing")),
    "durable-remove": session(24, RemoveDurable(RequestNumber(24), "billing")),
    "publish-that-ends": session(21, Publish(RequestNumber(21), "offers/17", b'{"price":12.5}', ttl=30.0)),
    "update-of-the-end": session(88, Update("offers/17", Version(9), EventId("25-1-31"), None, removed=True)),
    "wills": session(
        22,
        SetWills(
            RequestNumber(22),
            (
                Will("status/alice", b'"lost"'),
                Will("status/alice", b'"left"', (EndKind.CLOSED,), 60.0),
            ),
        ),
    ),
}
"""By name."""
