"""Sessions whose clients are away: what they take is bounded, none of them ends for it, and what is lost is told."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.registry.disconnected import SESSION_BYTES, Absences
from gateway.catalogue import log_events as events
from gateway.core.types import SessionId
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient

pytestmark = pytest.mark.promise("P2", "P7")

KIB = 1024


def counted(node: TestNode, name: str) -> float:
    text = node.gateway.metrics.render().decode()
    return sum(float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(name))


def absences(node: TestNode) -> Absences:
    return node.gateway.node.sessions.absences


async def leave(node: TestNode, principal: str, *selectors: str, **fields: Any) -> Packet:
    """Open a session with selections, vanish, and return its welcome."""
    async with RawClient(node.url) as client:
        welcome = await client.hello(principal, **fields)
        for number, selector in enumerate(selectors, 1):
            await client.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
            await client.expect("reply")
    session = node.gateway.node.sessions.get(welcome["session"])
    assert session is not None
    await eventually(lambda: session.on_clock)
    return welcome


async def come_back(node: TestNode, welcome: Packet, client: RawClient, *, received: int = 1) -> Packet:
    return await client.resume(welcome["token"], attempt=1, received=received)


def publish(number: int, topic: str, size: int) -> Packet:
    return {"id": number, "type": "publish", "request": number, "topic": topic, "value": "x" * (size - 2)}


@pytest.mark.promise("P20")
async def test_above_the_bound_the_buffers_of_those_away_for_longest_are_given_up_and_that_is_told() -> None:
    bound = 130 * KIB
    async with running_node(limit_disconnected_bytes=bound) as node, AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(RawClient(node.url))
        await publisher.hello("publisher")
        away = [await leave(node, f"p{number}", f"t{number}/x") for number in range(4)]
        sessions = [node.gateway.node.sessions.get(each["session"]) for each in away]
        for number in range(4):
            await publisher.send(publish(number + 1, f"t{number}/x", 30 * KIB))
            await publisher.expect("reply")
        await eventually(lambda: bool(node.log.of(events.DISCONNECTED_GIVEN_UP)))
        assert {"limit": "limit_disconnected_bytes", "who": ""} in node.log.of(events.LIMIT_EXCEEDED)
        states = [each.machine.state.value for each in sessions if each is not None]
        assert states == ["gap", "detached", "detached", "detached"], "the oldest alone, and as few as will do"
        assert len(node.gateway.node.sessions) == 5, "none of them has ended"
        outcomes = []
        for number, welcome in enumerate(away):
            client = await stack.enter_async_context(RawClient(node.url))
            back = await come_back(node, welcome, client)
            outcomes.append((back["outcome"], back.get("reason")))
            update = await client.expect("update")
            assert (update["topic"], len(update["value"])) == (f"t{number}/x", 30 * KIB - 2)
        assert outcomes == [("failed_over", "gap")] + [("reattached", None)] * 3
        assert absences(node)._node.absent == 0
        assert absences(node)._node.absent_bytes == 0


async def test_what_many_wait_for_counts_once() -> None:
    """Ten sessions that wait for the same 60 KiB: 600 KiB if counted each time, and they stay whole."""
    async with running_node(limit_disconnected_bytes=150 * KIB) as node, RawClient(node.url) as publisher:
        await publisher.hello("publisher")
        away = [await leave(node, f"p{number}", "t/x") for number in range(10)]
        for number in (1, 2):
            await publisher.send(publish(number, "t/x", 30 * KIB))
            await publisher.expect("reply")
        sessions = [node.gateway.node.sessions.get(each["session"]) for each in away]
        await eventually(lambda: all(each is not None and each.machine.resend_bytes > 60 * KIB for each in sessions))
        await absences(node).look()
        assert [each.machine.state.value for each in sessions if each is not None] == ["detached"] * 10
        assert not node.log.of(events.DISCONNECTED_GIVEN_UP)


async def test_a_principal_pays_for_its_own_and_nobody_else_does() -> None:
    async with running_node(limit_principal_disconnected_bytes=60 * KIB) as node, RawClient(node.url) as publisher:
        await publisher.hello("publisher")
        greedy = [await leave(node, "greedy", f"t{number}/x") for number in range(3)]
        modest = await leave(node, "modest", "t3/x")
        for number in range(4):
            await publisher.send(publish(number + 1, f"t{number}/x", 25 * KIB))
            await publisher.expect("reply")
        await eventually(lambda: bool(node.log.of(events.DISCONNECTED_GIVEN_UP)))
        assert {"limit": "limit_principal_disconnected_bytes", "who": "greedy"} in node.log.of(events.LIMIT_EXCEEDED)
        states = {}
        for each in (*greedy, modest):
            session = node.gateway.node.sessions.get(each["session"])
            assert session is not None
            states[each["session"]] = session.machine.state.value
        assert states[greedy[0]["session"]] == "gap"
        assert states[modest["session"]] == "detached"


@pytest.mark.promise("P20")
async def test_copies_are_given_back_to_the_grid_where_the_sessions_live_on() -> None:
    memory = MemoryGridServer()
    bound = 6 * SESSION_BYTES
    async with running_node(memory=memory, limit_disconnected_bytes=bound) as node, AsyncExitStack() as stack:
        away = [await leave(node, "alice", "t/x", window=600) for _ in range(8)]
        await absences(node).look()
        held = len(node.gateway.node.sessions)
        assert 0 < held < 6
        assert counted(node, "gateway_sessions_given_back") == 8 - held
        account = absences(node)._node
        assert account.absent == 8, "they are the principal's still"
        assert account.absent_bytes <= bound
        outcomes = []
        for welcome in away:
            client = await stack.enter_async_context(RawClient(node.url))
            back = await come_back(node, welcome, client)
            outcomes.append(back["outcome"])
            assert back["session"] == welcome["session"]
            assert back["selections"] == ["+t/x"]
        assert outcomes == sorted(outcomes), "those that had been away for longest failed over"
        assert outcomes[0] == "failed_over"
        assert outcomes[-1] == "reattached", "the last to leave has lost nothing"
        assert account.absent == 0


async def test_what_only_this_node_knows_is_never_given_back() -> None:
    memory = MemoryGridServer()
    async with running_node(memory=memory, limit_disconnected_bytes=2 * SESSION_BYTES) as node:
        async with RawClient(node.url) as one, RawClient(node.url) as two, RawClient(node.url) as three:
            for client in (one, two, three):
                await client.hello()
            memory.go_away()
        sessions = node.gateway.node.sessions
        await eventually(lambda: not sessions.connected())
        await absences(node).look()
        assert len(sessions) == 3
        memory.come_back()
        await eventually(lambda: all(each.on_clock for each in sessions) or len(sessions) < 3)


async def test_a_principal_with_too_many_sessions_without_a_client_opens_no_more() -> None:
    async with running_node(limit_principal_disconnected=2, window_default=1.0) as node, RawClient(node.url) as other:
        for _ in range(2):
            await leave(node, "greedy")
        async with RawClient(node.url) as refused:
            await refused.send({"type": "hello", "principal": "greedy"})
            error = await refused.expect("error")
            assert error["code"] == "too_many_sessions"
            assert "limit_principal_disconnected: 2 sessions" in error["message"]
            assert await refused.closed() == 4105
        assert (await other.hello("modest"))["outcome"] == "created"
        await eventually(lambda: len(node.gateway.node.sessions) == 1)
        async with RawClient(node.url) as again:
            assert (await again.hello("greedy"))["outcome"] == "created"


@pytest.mark.promise("P20")
async def test_a_node_with_too_many_grants_short_windows_then_opens_no_more_and_takes_back_all() -> None:
    async with running_node(limit_disconnected=4) as node, AsyncExitStack() as stack:
        first = [await leave(node, f"p{number}", window=600) for number in range(2)]
        assert [each["window"] for each in first] == [600, 600]
        later = [await leave(node, f"q{number}", window=600) for number in range(2)]
        assert [each["window"] for each in later] == [60, 60], "the default, from half of the bound on"
        async with RawClient(node.url) as refused:
            await refused.send({"type": "hello", "principal": "anybody"})
            error = await refused.expect("error")
            assert (error["code"], error["retry_after"] > 0) == ("try_later", True)
            assert "limit_disconnected: " in error["message"]
            assert await refused.closed() == 4101
        client = await stack.enter_async_context(RawClient(node.url))
        assert (await come_back(node, first[0], client, received=0))["outcome"] == "reattached"
        again = await stack.enter_async_context(RawClient(node.url))
        assert (await again.hello("anybody"))["outcome"] == "created", "there is room again"


async def test_unanswered_requests_of_those_away_are_given_up_as_well_and_asked_again() -> None:
    memory = MemoryGridServer()
    async with running_node(memory=memory, limit_disconnected_bytes=60 * KIB) as node:
        async with RawClient(node.url) as one:
            welcome = await one.hello()
            memory.go_away()
            for number in (1, 2, 3):
                await one.send(publish(number, "a", 25 * KIB) | {"resubmitted": True})
            session = node.gateway.node.sessions.get(SessionId(welcome["session"]))
            assert session is not None
            await eventually(lambda: len(session.lane) == 3)
        await eventually(lambda: session.lane.bytes == 0)
        assert counted(node, "gateway_request_bytes ") == 0
        assert session.machine.state.value == "gap"
        memory.come_back()
        async with RawClient(node.url) as back:
            again = await come_back(node, welcome, back, received=0)
            assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
            await back.send(publish(1, "a", 25 * KIB) | {"resubmitted": True})
            assert "error" not in await back.expect("reply")


@pytest.mark.parametrize("ended", ["window", "elsewhere"])
async def test_what_was_given_back_is_forgotten_when_it_ends_or_is_served_elsewhere(ended: str) -> None:
    memory = MemoryGridServer()
    window = 4.0 if ended == "window" else 600.0
    tiny: dict[str, Any] = {"memory": memory, "limit_disconnected_bytes": 1 * KIB}
    async with running_node("n1", **tiny) as node, running_node("n2", memory=memory) as other:
        welcome = await leave(node, "alice", window=window)
        await eventually(lambda: len(node.gateway.node.sessions) == 0)
        (told,) = node.log.of(events.DISCONNECTED_GIVEN_UP)
        assert told["copies"] == 1
        if ended == "elsewhere":
            async with RawClient(other.url) as client:
                assert (await come_back(other, welcome, client))["outcome"] == "failed_over"
                await eventually(lambda: absences(node)._node.absent == 0)
        else:
            await eventually(lambda: absences(node)._node.absent == 0)
        assert not absences(node)._kept
