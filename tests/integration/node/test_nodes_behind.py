"""Who has seen something of a generation of the grid is not served by a node that has not adopted it (P2, P6).

A master was replaced, and does not know it: it answers whoever is still connected to it. One node has adopted the
master in its place, and with it the next generation; the other one has not. Nothing in Redis could tell them apart:
what the replaced master accepts is in order there, and is lost as soon as it follows the other one. Only the client has
been at both, and its token says so.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from gateway.core.wire.packets import NoticeCode
from gateway.local.proxy import FaultProxy
from tests.support.clock import eventually as eventually_so
from tests.support.nodes import SHORT_LEASE, TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.redis_server import HOST, RedisServer, unique_prefix
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P6")

LOST = NoticeCode.GRID_LOST_WRITES.value

NOW, AHEAD = GridGeneration(1), GridGeneration(9)
"""The generation that a new node adopts, and one that it has never heard of."""

KEEPS_NOTHING = {"oldest": 9}
"""Of a resume that can only fail over: the client keeps nothing that the node has not acknowledged."""


async def adopted(node: TestNode, generation: int) -> None:
    grid = node.gateway.node._context.grid
    await eventually(lambda: grid.generation == generation)


async def subscribe(raw: RawClient, packet: int, request: int, selector: str = "a/**") -> None:
    await raw.send({"id": packet, "request": request, "type": "subscribe", "selector": selector})
    await raw.expect("reply", where=lambda reply: reply["request"] == request)


async def publish(raw: RawClient, packet: int, request: int, value: int) -> Packet:
    """Publish a value of the one topic, and return its receipt."""
    await raw.send({"id": packet, "request": request, "type": "publish", "topic": "a/x", "value": value})
    return await raw.expect("reply", where=lambda reply: reply["request"] == request)


def newest_token(raw: RawClient) -> str:
    """Return the token that a client holds which does as the protocol says (4.5, 11.4)."""
    *_, newest = (packet["token"] for packet in raw.seen if "token" in packet)
    return str(newest)


def tokens_of_pings(raw: RawClient) -> list[str]:
    return [packet["token"] for packet in raw.seen if packet["type"] == "ping" and "token" in packet]


async def promoted(memory: MemoryGridServer, node: TestNode) -> None:
    """Have another process take over, which has all that was written; the node adopts it."""
    generation = memory.generation
    memory.go_away()
    memory.come_back(restarted=True)
    await adopted(node, generation + 1)


async def came_in(node: TestNode, token: str, attempt: int) -> tuple[RawClient, Packet]:
    """Resume at a node that refuses for now, as often as a client does; the caller closes the connection."""
    async with time_limit():
        while True:
            raw = RawClient(node.url)
            await raw.connect()
            answer = await raw.resume(token, attempt=attempt, **KEEPS_NOTHING)
            if answer["type"] == "welcome":
                return raw, answer
            assert answer["code"] == "grid_unavailable", answer
            await raw.cut()
            attempt += 1


async def test_no_publish_is_executed_in_a_generation_before_that_of_the_last_one(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    """P6: a session publishes at a node that has adopted the newest generation, and moves to one that has not."""
    async with RawClient(n1.url) as raw:
        await raw.hello()
        before = await publish(raw, 1, 1, 144)
        async with running_node("n2", memory=memory.fork()) as n2:
            await promoted(memory, n1)
            last = await publish(raw, 2, 2, 145)
            assert last["version"] > before["version"]
            assert n2.gateway.node._context.grid.generation < n1.gateway.node._context.grid.generation
            back, _ = await came_in(n2, newest_token(raw), 1)
            try:
                assert n2.gateway.node._context.grid.generation >= 2, "it has adopted what the client knows of"
                assert (await publish(back, 1, 3, 146))["version"] > last["version"]
            finally:
                await back.cut()


async def test_no_value_is_shown_below_what_the_client_has_seen_at_another_node(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    """P6: who only listens has seen the newest generation as well."""
    async with RawClient(n1.url) as raw, RawClient(n1.url) as writer:
        await raw.hello()
        await subscribe(raw, 1, 1)
        await writer.hello("bob")
        await publish(writer, 1, 1, 144)
        async with running_node("n2", memory=memory.fork()) as n2:
            await promoted(memory, n1)
            receipt = await publish(writer, 2, 2, 145)
            seen = await raw.expect("update", where=lambda update: update["value"] == 145)
            assert seen["version"] == receipt["version"]
            back, _ = await came_in(n2, newest_token(raw), 1)
            try:
                assert (await back.expect("update"))["version"] > seen["version"]
            finally:
                await back.cut()


async def test_the_token_comes_before_anything_of_the_generation(memory: MemoryGridServer, n1: TestNode) -> None:
    """Whoever is cut off in between has seen nothing of it."""
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
        await subscribe(raw, 1, 1)
        await publish(raw, 2, 2, 144)
        await promoted(memory, n1)
        floor = (await publish(raw, 3, 3, 145))["version"]
        while not any(packet.get("value") == 145 for packet in raw.seen):
            await raw.receive()
        (ping,) = (index for index, packet in enumerate(raw.seen) if packet["type"] == "ping")
        later = [
            index
            for index, packet in enumerate(raw.seen)
            if packet.get("code") == LOST or packet.get("version", 0) >= floor
        ]
        assert later
        assert ping < min(later)
        assert tokens_of_pings(raw) != [welcome["token"]]


async def test_who_has_seen_nothing_of_the_generation_is_served_at_once(memory: MemoryGridServer, n1: TestNode) -> None:
    """No rung waits for the detection of a failure: the replaced master and this client agree on all there was."""
    async with running_node("n2", memory=memory.fork()) as n2, RawClient(n2.url) as raw:
        welcome = await raw.hello()
        await promoted(memory, n1)
        async with RawClient(n2.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["type"] == "welcome"
        assert n2.gateway.node._context.grid.generation < n1.gateway.node._context.grid.generation


async def test_a_client_that_was_away_is_handed_the_generation_with_its_welcome(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    """Also while the notice of the loss is under way, of which the token says that the client may not know it (P2)."""
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
    async with running_node("n2", memory=memory.fork()) as n2:
        await promoted(memory, n1)
        (session,) = n1.gateway.node.sessions
        await eventually(lambda: session.declared == 2)
        async with RawClient(n1.url) as raw:
            again = await raw.resume(welcome["token"], attempt=1)
            assert again["outcome"] == "reattached"
            last = await publish(raw, 1, 1, 145)
        claims = n1.gateway.node.sessions._signer.verify(again["token"], now=n1.gateway.node._context.clock.wall())
        assert (claims.grid_generation, claims.seen_generation) == (1, 2)
        back, _ = await came_in(n2, again["token"], 2)
        try:
            assert (await publish(back, 1, 2, 146))["version"] > last["version"]
        finally:
            await back.cut()


@pytest.mark.promise("P2")
async def test_a_loss_is_told_again_if_only_the_token_has_arrived(memory: MemoryGridServer, n1: TestNode) -> None:
    """P2: the token that comes before the notice does not say that the notice has come."""
    async with running_node("n2", memory=memory) as n2, RawClient(n1.url) as raw:
        await raw.hello()
        await promoted(memory, n1)
        await raw.expect("ping", where=lambda ping: "token" in ping)
        await adopted(n2, 2)
        async with RawClient(n2.url) as back:
            assert (await back.resume(newest_token(raw), attempt=1, **KEEPS_NOTHING))["outcome"] == "failed_over"
            first = await back.receive()
            assert (first["type"], first["code"]) == ("notice", LOST)


async def test_tokens_are_handed_out_once_for_each_generation(memory: MemoryGridServer, n1: TestNode) -> None:
    """P11: a grid that comes back as it was costs a connected client nothing."""
    grid = n1.gateway.node._context.grid
    node = n1.gateway.node
    async with RawClient(n1.url) as raw:
        await raw.hello()
        for _ in range(3):
            memory.go_away()
            memory.come_back()
            await eventually(lambda: not node.readiness.reasons())
        await publish(raw, 1, 1, 1)
        assert not tokens_of_pings(raw)
        for generation in (2, 3):
            await promoted(memory, n1)
            await raw.expect("ping", where=lambda ping: "token" in ping)
            await publish(raw, generation, generation, generation)
        verified = [node.sessions._signer.verify(each, now=node._context.clock.wall()) for each in tokens_of_pings(raw)]
        assert [each.seen_generation for each in verified] == [2, 3]
        assert grid.generation == 3


@pytest.mark.promise("P7")
async def test_a_session_that_was_opened_in_a_later_generation_is_not_refused_for_good(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    """P7: the replaced master has never heard of the session, which lives all the same."""
    replaced = memory.fork()
    async with running_node("n2", memory=replaced) as n2:
        grid = n2.gateway.node._context.grid
        await promoted(memory, n1)
        async with RawClient(n1.url) as raw:
            welcome = await raw.hello()
        for attempt in (1, 2):
            async with RawClient(n2.url) as raw:
                refused = await raw.resume(welcome["token"], attempt=attempt, **KEEPS_NOTHING)
                assert refused["code"] == "try_later"
        assert grid.generation == 1, "of a session that is not known the token may be of another grid"
        # The replaced master hears of the other one, and follows it.
        replaced.come_back(snapshot=memory.snapshot())
        async with RawClient(n2.url) as raw:
            assert (await raw.resume(welcome["token"], attempt=3, **KEEPS_NOTHING))["session"] == welcome["session"]


async def test_a_session_of_another_grid_is_refused_for_good_when_everybody_has_adopted(
    memory: MemoryGridServer,
) -> None:
    """The token alone proves nothing: the grid that it is of may be gone for good."""
    async with running_node("n1", memory=memory, **SHORT_LEASE) as n1, running_node("n2") as elsewhere:
        signer, clock = n1.gateway.node.sessions._signer, n1.gateway.node._context.clock
        token = signer.sign(SessionId("elsewhere"), TokenGeneration(1), now=clock.wall(), grid_generation=AHEAD)
        codes: list[str] = []
        async with time_limit():
            while codes[-1:] != ["session_unknown"]:
                async with RawClient(n1.url) as raw:
                    codes.append((await raw.resume(token, attempt=len(codes) + 1, **KEEPS_NOTHING))["code"])
        assert set(codes[:-1]) == {"try_later"}
        assert n1.gateway.node._context.grid.generation == 1
        of_now = signer.sign(SessionId("nobody"), TokenGeneration(1), now=clock.wall(), grid_generation=NOW)
        async with RawClient(elsewhere.url) as raw:
            assert (await raw.resume(of_now, attempt=1, **KEEPS_NOTHING))["code"] == "session_unknown", "at once"


@pytest.mark.promise("P10")
@pytest.mark.redis
async def test_a_real_master_that_was_replaced_shows_nobody_less_than_was_seen() -> None:
    """P6: as above, with two Redis processes; nothing that n2 asks of its own one can tell it of the other."""
    async with RedisServer() as replaced, RedisServer() as promoted_one, AsyncExitStack() as running:
        await promoted_one.call("REPLICAOF", HOST, replaced.port)
        way = await running.enter_async_context(FaultProxy(HOST, replaced.port))
        settings: dict[str, Any] = {"grid_prefix": unique_prefix()}
        n2 = await running.enter_async_context(running_node("n2", grid=replaced.url, **settings))
        n1 = await running.enter_async_context(running_node("n1", grid=f"redis://{HOST}:{way.port}/0", **settings))
        raw = await running.enter_async_context(RawClient(n1.url))
        session = (await raw.hello())["session"]
        before = await publish(raw, 1, 1, 144)

        async def is_replicated() -> bool:
            return session in b" ".join(await promoted_one.call("KEYS", "*:session:*")).decode()

        await eventually_so(is_replicated, message="the replica has the session")
        await promoted_one.call("REPLICAOF", "NO", "ONE")
        port = way.port
        await way.stop()
        await running.enter_async_context(FaultProxy(HOST, promoted_one.port, listen_port=port))
        await adopted(n1, 2)
        last = await publish(raw, 2, 2, 145)
        assert last["version"] > before["version"]
        assert n2.gateway.node._context.grid.generation == 1
        back, welcome = await came_in(n2, newest_token(raw), 1)
        running.push_async_callback(back.cut)
        assert welcome["session"] == session
        assert (await publish(back, 1, 3, 146))["version"] > last["version"]
