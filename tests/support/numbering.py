"""Packets as they come from a message, with the numbers written out that it leaves out (protocol 5.1)."""

from __future__ import annotations

from typing import Any

import orjson

SESSION_PACKETS = frozenset(
    {"subscribe", "unsubscribe", "publish", "properties", "authenticate", "update", "reply", "notice"}
)
"""Types of the numbered packets of both sides."""


def packets_of(message: str | bytes) -> list[dict[str, Any]]:
    """Read a message."""
    content = orjson.loads(message)
    packets: list[dict[str, Any]] = content if isinstance(content, list) else [content]
    last: int | None = None
    for packet in packets:
        if packet["type"] in SESSION_PACKETS:
            if last is not None:
                packet.setdefault("id", last + 1)
            last = packet["id"]
    return packets
