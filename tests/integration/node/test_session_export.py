"""What a node exports of its sessions, as clients and the grid made them, goes on as it would have there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.app.session.session import Session
from gateway.core.session.export import export, restore
from gateway.core.session.server_session import ServerSession
from gateway.core.types import PacketId, SessionId, TokenGeneration
from gateway.core.wire.packets import Publish, Subscribe
from gateway.ports import PublishCommand
from tests.support.nodes import TestNode, eventually
from tests.support.numbering import packets_of
from tests.support.raw_client import RawClient

PLENTY = 1 << 20


def publish(number: int, topic: str = "a/x", **fields: Any) -> dict[str, Any]:
    return {"id": number, "type": "publish", "request": number, "topic": topic, "value": number, **fields}


def held(node: TestNode, welcome: dict[str, Any]) -> Session:
    found = node.gateway.node.sessions.get(SessionId(welcome["session"]))
    assert found is not None
    return found


def handed_over(node: TestNode, session: Session) -> ServerSession:
    """What is restored from an export of now."""
    now = node.gateway.node._context.clock.monotonic()
    restored = restore(export(session, now), now)
    assert export(restored, now) == export(session, now)
    return restored


async def test_what_an_absent_client_is_owed_is_the_same_at_the_next_node(n1: TestNode) -> None:
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello(properties={"team": "fx"})
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("reply")
    session = held(n1, welcome)
    await eventually(lambda: not session.connected)
    async with RawClient(n1.url) as publisher:
        await publisher.hello("publisher")
        await publisher.send(publish(1), publish(2), publish(3, "a/y"))
        for _ in range(3):
            await publisher.expect("reply")
    await eventually(lambda: session.machine.unacknowledged == 4)

    restored = handed_over(n1, session)

    assert restored.properties == session.properties
    assert restored.selections.to_wire() == ("+a/**",)
    presented = TokenGeneration(session.token_generation)
    restored.machine.resume()
    assert restored.machine.can_reattach(received=PacketId(1), oldest=PacketId(2), generation=presented)
    restored.machine.reattach(received=PacketId(1), now=0.0)
    sent = [packet for message in restored.machine.flush(PLENTY) for packet in packets_of(message.decode())]
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
        assert again["resent"] == 3
        assert [await back.expect("update") for _ in range(3)] == sent


async def test_requests_under_way_go_along_as_started_and_those_behind_them_as_they_are(
    n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = n1.gateway.node._context.grid.topics
    execute, asked, go_on = topics.publish, asyncio.Event(), asyncio.Event()

    async def slow(commands: Sequence[PublishCommand]) -> object:
        asked.set()
        await go_on.wait()
        return await execute(commands)

    async with RawClient(n1.url) as raw:
        session = held(n1, await raw.hello())
        monkeypatch.setattr(topics, "publish", slow)
        await raw.send(publish(1), publish(2))
        await asked.wait()
        await raw.send({"id": 3, "type": "subscribe", "request": 3, "selector": "b/**"}, publish(4))
        await eventually(lambda: len(session.pending) == 4)

        restored = handed_over(n1, session)

        assert restored.pending.started == 2
        restored.pending.restart()
        first, second, *behind = restored.pending
        assert isinstance(first, Publish)
        assert isinstance(second, Publish)
        assert first.resubmitted
        assert second.resubmitted
        assert [type(each) for each in behind] == [Subscribe, Publish]
        assert not any(each.resubmitted for each in behind if isinstance(each, Subscribe | Publish))
        assert restored.newest == 4
        go_on.set()
        for _ in range(4):
            await raw.expect("reply")
        await eventually(lambda: len(session.pending) == 0)

        answered = handed_over(n1, session)

    assert len(answered.pending) == 0
    assert answered.answers.unseen == session.answers.unseen
    assert answered.settled() == session.settled() == 0


async def test_credentials_and_losses_go_along(n1: TestNode) -> None:
    async with RawClient(n1.url) as raw:
        session = held(n1, await raw.hello())
        n1.gateway.node.sessions.delivery.declare_loss((session,))
        await raw.expect("notice")

        restored = handed_over(n1, session)

    assert restored.declaring is not None
    assert restored.known_generation == session.known_generation
    assert restored.roles == session.roles
    assert restored.principal_properties == session.principal_properties
    assert (restored.credential, restored.credential_expires) == (session.credential, session.credential_expires)
