"""Clients of whole nodes: they open sessions, publish, come back, and tell what they were sent."""

from __future__ import annotations

from typing import Any, Final

from gateway.app.session.session import Session
from gateway.core.types import SessionId
from tests.support.nodes import TestNode
from tests.support.raw_client import Packet, RawClient

SUPPORTS: Final[dict[str, Any]] = {"supports": ["handed_over", "mirrored", "replay"]}


def held(node: TestNode, welcome: Packet) -> Session | None:
    return node.gateway.node.sessions.get(SessionId(welcome["session"]))


def held_by(node: TestNode, welcome: Packet) -> Session:
    session = held(node, welcome)
    assert session is not None
    return session


class Publisher:
    """Somebody who publishes, at one node."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.number = 0

    async def publish(self, topic: str, *values: object) -> str:
        """Publish, and return the event id of the last one."""
        event = ""
        for value in values:
            self.number += 1
            number = self.number
            await self.raw.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": value})
            event = (await self.raw.expect("reply"))["event"]
        return event


async def publisher(raw: RawClient) -> Publisher:
    await raw.hello("bob")
    return Publisher(raw)


async def subscribed(raw: RawClient, *selectors: str, **hello: Any) -> Packet:
    """Open a session that selects something; returns the welcome."""
    welcome = await raw.hello(**(SUPPORTS | hello))
    for number, selector in enumerate(selectors, 1):
        await raw.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
        await raw.expect("reply")
        await raw.expect("notice")
    return welcome


def last_id(raw: RawClient) -> int:
    return max((packet["id"] for packet in raw.seen if "id" in packet), default=0)


async def resumed(raw: RawClient, token: str, *, attempt: int = 1, **more: Any) -> Packet:
    return await raw.resume(token, attempt=attempt, **(SUPPORTS | more))


async def values(raw: RawClient, count: int) -> list[tuple[int, str, Any, bool]]:
    """Return the next updates: id, topic, value, and whether it is a snapshot."""
    found = [await raw.expect("update") for _ in range(count)]
    return [(each["id"], each["topic"], each["value"], each.get("snapshot", False)) for each in found]


def live_after(received: int, *changes: tuple[str, Any]) -> list[tuple[int, str, Any, bool]]:
    """Return what ``values`` does for live updates of topics that come behind the packet *received*, with no gap."""
    return [(received + place, topic, value, False) for place, (topic, value) in enumerate(changes, 1)]


async def published(raw: RawClient, number: int, topic: str, value: object) -> None:
    """Publish by the packet and request *number*, and have it accepted."""
    await raw.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": value})
    reply = await raw.expect("reply")
    assert (reply["request"], reply.get("error")) == (number, None)
