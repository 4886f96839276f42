"""What sessions take in the grid is bounded, for a principal and for all, on all nodes together; none ends for it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.admission.stored_sessions import StoredSessions
from gateway.catalogue import log_events as events
from gateway.core.session.stored_size import SESSION_BYTES, stored_bytes
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P20", "P7")

KIB = 1024
BOUND = 32 * KIB


def stored_of(node: TestNode) -> StoredSessions:
    return node.gateway.node._context.limits.stored


def held(node: TestNode) -> int:
    return stored_of(node).report().total


def session_of(node: TestNode, welcome: Packet) -> Any:
    return node.gateway.node.sessions.get(welcome["session"])


async def fill(client: RawClient, *, first: int = 1) -> tuple[int, Packet]:
    """Select long topics until that is refused; returns how many were accepted, and the error."""
    number = first
    while True:
        selector = f"{number:04}" + "x" * 1000
        await client.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
        reply = await client.expect("reply")
        if "error" in reply:
            return number - first, reply["error"]
        number += 1


async def test_one_account_cannot_fill_the_grid_with_sessions_that_it_leaves() -> None:
    async with running_node(limit_principal_session_bytes=BOUND) as node, RawClient(node.url) as other:
        opened = 0
        while True:
            async with RawClient(node.url) as client:
                await client.send({"type": "hello", "principal": "greedy", "window": 3600})
                answer = await client.receive()
                if answer["type"] == "error":
                    assert await client.closed() == 4105
                    break
                opened += 1
                _, refused = await fill(client)
                assert refused["code"] == "too_many_selections"
        assert opened <= BOUND // SESSION_BYTES
        assert (answer["code"], answer["retry_after"] > 0) == ("too_many_sessions", True)
        assert answer["message"].startswith("limit_principal_session_bytes: ")
        assert held(node) <= BOUND
        assert {"limit": "limit_principal_session_bytes", "who": "greedy"} in node.log.of(events.LIMIT_EXCEEDED)
        assert len(node.gateway.node.sessions) == opened, "none of them has ended"
        assert (await other.hello("modest"))["outcome"] == "created"
        assert (await fill_some(other, 3))[-1] == {"type": "reply", "request": 3, "id": 3}


async def fill_some(client: RawClient, count: int) -> list[Packet]:
    replies = []
    for number in range(1, count + 1):
        await client.send({"id": number, "type": "subscribe", "request": number, "selector": f"t{number}/x"})
        replies.append(await client.expect("reply"))
    return [{name: each[name] for name in ("type", "request", "id")} for each in replies]


async def test_properties_and_publishes_to_ever_more_partitions_count() -> None:
    async with running_node(limit_principal_session_bytes=BOUND) as node, RawClient(node.url) as client:
        welcome = await client.hello("greedy")
        number = 0
        code = ""
        while not code:
            number += 1
            properties = {f"p{number}": "\x01" * 500}
            await client.send({"id": number, "type": "properties", "request": number, "set": properties})
            code = (await client.expect("reply")).get("error", {}).get("code", "")
        assert code == "too_many_bytes"
        assert number > 5, "in the grid each of these characters takes six bytes"
        assert held(node) <= BOUND
        assert held(node) == stored_bytes(session_of(node, welcome)), "what was refused does not count"
        await client.send(
            {"id": number + 1, "type": "properties", "request": number + 1, "set": {"p1": None, "p2": None}}
        )
        assert "error" not in await client.expect("reply"), "less is always allowed"
        answers: list[str] = []
        for each in range(number + 2, number + 42):
            await client.send({"id": each, "type": "publish", "request": each, "topic": f"r{each}/x", "value": 1})
            answers.append((await client.expect("reply")).get("error", {}).get("code", ""))
        assert answers[0] == "", "there was room for the first"
        assert answers[-1] == "too_many_bytes"
        assert held(node) <= BOUND
        accepted = f"r{number + 2}/x"
        await client.send({"id": each + 1, "type": "publish", "request": each + 1, "topic": accepted, "value": 2})
        assert "error" not in await client.expect("reply"), "where it has published before it goes on"


async def test_what_is_given_back_counts_until_it_ends_and_what_ends_counts_no_more() -> None:
    memory = MemoryGridServer()
    settings: dict[str, Any] = {"memory": memory, "limit_disconnected_bytes": KIB}
    async with running_node(**settings) as node, running_node("n2", memory=memory) as other:
        left = []
        for _ in range(3):
            async with RawClient(node.url) as client:
                left.append(await client.hello("alice", window=600))
                await fill_some(client, 3)
            await eventually(lambda: len(node.gateway.node.sessions) == 0)
        each = held(node) // 3
        assert each > SESSION_BYTES
        async with RawClient(other.url) as client:
            assert (await client.resume(left[0]["token"], attempt=1))["outcome"] == "failed_over"
            await eventually(lambda: held(node) == 2 * each)
            assert held(other) == each
            await client.send({"type": "bye"})
            await eventually(lambda: held(other) == 0)
        async with RawClient(node.url) as client:
            assert (await client.resume(left[1]["token"], attempt=1))["outcome"] == "failed_over"
            assert held(node) == 2 * each
            await client.send({"type": "bye"})
            await eventually(lambda: held(node) == each)


async def test_moving_sessions_to_another_node_makes_no_room_for_more() -> None:
    memory = MemoryGridServer()
    settings: dict[str, Any] = {"memory": memory, "limit_principal_session_bytes": BOUND, "lease_renew": scaled(0.1)}
    async with running_node("n1", **settings) as one, running_node("n2", **settings) as two, AsyncExitStack() as stack:
        moved = await stack.enter_async_context(RawClient(one.url))
        welcome = await moved.hello("greedy")
        await fill(moved)
        stored_at_two = stored_of(two)
        back = await stack.enter_async_context(RawClient(two.url))
        assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over", "whoever comes back may"
        await eventually(lambda: held(one) == 0)
        assert stored_at_two.report().large["greedy"] > BOUND - 2 * KIB
        stored_at_one = stored_of(one)
        await eventually(lambda: stored_at_one._bytes.held_by("greedy") > BOUND - 2 * KIB)
        async with RawClient(one.url) as again:
            await again.send({"type": "hello", "principal": "greedy"})
            assert (await again.receive())["code"] == "too_many_sessions"


async def test_nobody_may_take_more_than_is_left_for_others() -> None:
    async with running_node(limit_session_bytes=BOUND) as node, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(node.url)) for _ in range(3)]
        for client, principal in zip(clients[:2], ("a", "b"), strict=True):
            await client.hello(principal)
            _, refused = await fill(client)
            assert refused["message"].startswith("limit_session_bytes: ")
        modest = await stack.enter_async_context(RawClient(node.url))
        assert (await modest.hello("modest"))["outcome"] == "created"
        assert len(await fill_some(modest, 3)) == 3
        assert held(node) <= BOUND
        while True:
            # Whoever has a name for each session gets all there is, and not more.
            last = await stack.enter_async_context(RawClient(node.url))
            await last.send({"type": "hello", "principal": f"p{len(node.gateway.node.sessions)}"})
            answer = await last.receive()
            if answer["type"] == "error":
                break
        assert (answer["code"], await last.closed()) == ("try_later", 4101)
        assert held(node) <= BOUND


async def test_a_restart_of_the_node_does_not_forget_what_its_sessions_take() -> None:
    memory = MemoryGridServer()
    settings: dict[str, Any] = {"memory": memory, "limit_principal_session_bytes": BOUND, "reap_interval": 0.2}
    async with running_node("n1", **settings) as node, RawClient(node.url) as client:
        left = await client.hello("greedy", window=3600)
        await fill(client)
        held_before = held(node)
        assert held_before > BOUND - 2 * KIB
    async with running_node("n1", **settings) as node, AsyncExitStack() as stack:
        await eventually(lambda: held(node) == held_before)
        again = await stack.enter_async_context(RawClient(node.url))
        await again.send({"type": "hello", "principal": "greedy"})
        assert (await again.receive())["code"] == "too_many_sessions"
        back = await stack.enter_async_context(RawClient(node.url))
        assert (await back.resume(left["token"], attempt=1))["outcome"] == "failed_over", "whoever comes back may"
        await eventually(lambda: held(node) == held_before)
        await back.send({"type": "bye"})
        await eventually(lambda: held(node) == 0)


async def test_what_a_dead_node_left_is_counted_once_by_those_that_live() -> None:
    memory = MemoryGridServer()
    settings: dict[str, Any] = {
        "memory": memory,
        "reap_interval": 0.2,
        "lease": scaled(1.0),
        "lease_renew": scaled(0.1),
    }
    async with running_node("n1", **settings) as one, running_node("n2", **settings) as two:
        async with running_node("n3", **settings) as three:
            for number in range(8):
                async with RawClient(three.url) as client:
                    await client.hello(f"p{number % 2}", window=3600)
                    await fill_some(client, 3)
            await eventually(lambda: three.gateway.node.sessions.connected() == 0)
            left = held(three)
        await eventually(lambda: held(one) + held(two) == left)
        totals = [stored_of(each)._bytes for each in (one, two)]
        await eventually(lambda: all(each.total + each._elsewhere.total == left for each in totals))
