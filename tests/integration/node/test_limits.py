"""One node over the in-memory grid: who wants more than it may have is told so, and nobody else notices."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import log_events as events
from gateway.core.wire.codes import GOING_AWAY
from gateway.ports import GridRefused, GridUnavailable, Ownership, SessionChanges, SessionRecord
from tests.support.nodes import TestNode, eventually, rejected, running_node
from tests.support.raw_client import Closed, RawClient

STRANGERS: dict[str, Any] = {"limit_exempt": (), "trusted_proxies": (ip_network("127.0.0.1/32"),)}
"""The tests come from this very machine, and pass for proxies of clients elsewhere."""


def from_(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


def counted(node: TestNode, limit: str) -> float:
    text = node.gateway.metrics.render().decode()
    (line,) = [each for each in text.splitlines() if f'limits_exceeded_total{{limit="{limit}"}}' in each]
    return float(line.rpartition(" ")[2])


async def test_connections_of_one_address() -> None:
    async with running_node(limit_address_connections=2, **STRANGERS) as node:
        async with RawClient(node.url, from_("192.0.2.1")) as one, RawClient(node.url, from_("192.0.2.1")) as two:
            await one.hello()
            await two.hello()
            status, retry_after, why = await rejected(node, "192.0.2.1")
            assert status == 429
            assert int(retry_after) > 0
            assert "limit_address_connections" in why
            assert "2 connections" in why
            async with RawClient(node.url, from_("192.0.2.2")) as other:
                assert (await other.hello())["outcome"] == "created"
        await eventually(lambda: len(node.gateway.node.connections) == 0)
        async with RawClient(node.url, from_("192.0.2.1")) as again:
            assert (await again.hello())["outcome"] == "created"
        assert counted(node, "limit_address_connections") == 1
        assert node.log.of(events.LIMIT_EXCEEDED) == [{"limit": "limit_address_connections", "who": "192.0.2.1"}]


async def test_an_ipv6_network_counts_as_one_address() -> None:
    running = running_node(limit_address_connections=1, **STRANGERS)
    async with running as node, RawClient(node.url, from_("2001:db8::1")) as one:
        await one.hello()
        assert (await rejected(node, "2001:db8::ffff:1"))[0] == 429
        async with RawClient(node.url, from_("2001:db8:0:1::1")) as neighbour:
            await neighbour.hello()


async def test_handshakes_of_one_address_are_counted_whether_they_succeed_or_not() -> None:
    async with running_node(rate_address_handshakes=0.2, **STRANGERS) as node:
        for _ in range(2):
            async with RawClient(node.url, from_("192.0.2.1")) as one:
                await one.hello()
        status, retry_after, why = await rejected(node, "192.0.2.1")
        assert status == 429
        assert 1 <= int(retry_after) <= 5
        assert "rate_address_handshakes" in why
        async with RawClient(node.url, from_("192.0.2.2")) as other:
            await other.hello()


async def test_exempt_networks_are_not_limited() -> None:
    exempt = STRANGERS | {"limit_exempt": (ip_network("192.0.2.0/24"),)}
    running, office = running_node(limit_address_connections=1, **exempt), from_("192.0.2.1")
    async with running as node, RawClient(node.url, office) as one, RawClient(node.url, office) as two:
        await one.hello()
        await two.hello()


async def test_connections_of_a_node_are_sent_to_another_one() -> None:
    async with running_node(limit_connections=1) as node, RawClient(node.url) as one:
        await one.hello()
        status, retry_after, why = await rejected(node, "192.0.2.1")
        assert status == 503, "HAProxy tries another node"
        assert int(retry_after) > 0
        assert "limit_connections" in why


async def test_a_principal_opens_no_more_sessions_than_it_may_and_keeps_those_it_has() -> None:
    async with running_node(limit_principal_sessions=2) as node:
        async with RawClient(node.url) as one, RawClient(node.url) as two, RawClient(node.url) as three:
            welcome = await one.hello("alice")
            await two.hello("alice")
            await three.send({"type": "hello", "principal": "alice"})
            error = await three.expect("error")
            assert error["code"] == "too_many_sessions"
            assert "limit_principal_sessions" in error["message"]
            assert error["retry_after"] > 0
            with pytest.raises(Closed) as closed:
                await three.receive()
            assert closed.value.code == 4105
        async with RawClient(node.url) as bob, RawClient(node.url) as back:
            await bob.hello("bob")
            await back.ask_to_resume(welcome["token"], attempt=1)
            assert (await back.expect("welcome"))["session"] == welcome["session"]


async def test_sessions_that_are_being_written_count_for_their_principal() -> None:
    """Else as many as come together are let in, however few there may be."""
    async with running_node(limit_principal_sessions=2) as node, AsyncExitStack() as stack:
        sessions = node.gateway.node._context.grid.sessions
        asked: list[SessionRecord] = []
        go_on = asyncio.Event()

        async def slow(record: SessionRecord) -> None:
            asked.append(record)
            await go_on.wait()
            raise GridUnavailable("nobody knows what became of it")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sessions, "create", slow)
            crowd = [await stack.enter_async_context(RawClient(node.url)) for _ in range(4)]
            for each in crowd:
                await each.send({"type": "hello", "principal": "alice"})
            answers = [asyncio.create_task(each.expect("error")) for each in crowd]
            await eventually(lambda: sum(each.done() for each in answers) + len(asked) == len(crowd))
            assert len(asked) == 2
            go_on.set()
            codes = sorted([(await each)["code"] for each in answers])
        assert codes == ["grid_unavailable", "grid_unavailable", "too_many_sessions", "too_many_sessions"]
        # What came to nothing counts no more.
        await (await stack.enter_async_context(RawClient(node.url))).hello("alice")


async def test_a_principal_opens_sessions_no_faster_than_it_may() -> None:
    running = running_node(rate_principal_handshakes=0.1)
    async with running as node, RawClient(node.url) as one, RawClient(node.url) as two:
        await one.hello("alice")
        await two.send({"type": "hello", "principal": "alice"})
        error = await two.expect("error")
        assert error["code"] == "rate_limited"
        assert "rate_principal_handshakes: one principal may open 0.1 sessions a second" in error["message"]


async def test_selections_of_a_principal_and_of_the_node() -> None:
    async with running_node(limit_principal_selections=3, limit_node_selections=4) as node:
        async with RawClient(node.url) as one, RawClient(node.url) as two, RawClient(node.url) as other:
            await one.hello("alice")
            await two.hello("alice")
            await other.hello("bob")
            await one.send(*(subscribe(number, f"a/{number}") for number in (1, 2)))
            assert [await outcome(one) for _ in range(2)] == [None, None]
            await two.send(*(subscribe(number, f"a/{number}") for number in (1, 2)))
            assert [await outcome(two) for _ in range(2)] == [None, "limit_principal_selections"]
            await other.send(*(subscribe(number, f"a/{number}") for number in (1, 2)))
            assert [await outcome(other) for _ in range(2)] == [None, "limit_node_selections"]
            await one.send({"id": 3, "type": "subscribe", "request": 3, "selector": "a/**"})
            assert await outcome(one) is None, "one entry in the place of two"
            await two.send({"id": 3, "type": "subscribe", "request": 3, "selector": "b/1"})
            assert await outcome(two) is None, "what was given back can be used"
        await eventually(lambda: len(node.gateway.node.connections) == 0)


async def test_what_is_counted_goes_with_the_session() -> None:
    async with running_node(limit_node_selections=2, window_default=1.0) as node:
        limits = node.gateway.node._context.limits
        async with RawClient(node.url) as one:
            await one.hello()
            await one.send(subscribe(1, "a"), {"type": "bye"})
            await outcome(one)
            await eventually(lambda: limits.node.selections == 0)


class SlowChanges:
    """Holds up what sessions have written of them.

    Args:
        node: theirs.
        patch: undoes it.
    """

    def __init__(self, node: TestNode, patch: pytest.MonkeyPatch) -> None:
        sessions = node.gateway.node._context.grid.sessions
        self._change = sessions.change
        self.asked = 0
        self.go_on = asyncio.Event()
        patch.setattr(sessions, "change", self._slow)

    async def _slow(self, ownership: Ownership, changes: SessionChanges) -> None:
        self.asked += 1
        await self.go_on.wait()
        await self._change(ownership, changes)


@pytest.mark.promise("P20")
async def test_selections_that_are_being_written_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each session of a principal has one more than all may have together."""
    async with running_node(limit_principal_selections=2) as node, AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(RawClient(node.url)) for _ in range(4)]
        for each in crowd:
            await each.hello("alice")
        slow = SlowChanges(node, monkeypatch)
        for each in crowd:
            await each.send(subscribe(1, "a/b"))
        replies = [asyncio.create_task(each.expect("reply")) for each in crowd]
        await eventually(lambda: slow.asked + sum(each.done() for each in replies) == len(crowd))
        assert slow.asked == 2
        slow.go_on.set()
        errors = [(await each).get("error", {}).get("code") for each in replies]
        assert sorted(map(str, errors)) == ["None", "None", "too_many_selections", "too_many_selections"]
        assert node.gateway.node._context.limits.node.selections == 2


@pytest.mark.promise("P20")
async def test_what_is_being_selected_counts_no_more_when_its_session_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would take it off again, and one day the node would take no selection any more."""
    async with running_node(limit_node_selections=10) as node, RawClient(node.url) as one:
        await one.hello("alice")
        for number in (1, 2):
            await one.send(subscribe(number, f"a/{number}"))
            await one.expect("reply")
        account = node.gateway.node._context.limits.node
        assert account.selections == 2
        slow = SlowChanges(node, monkeypatch)
        await one.send(subscribe(3, "a/3"))
        await eventually(lambda: slow.asked == 1)
        (session,) = node.gateway.node.sessions
        node.gateway.node.sessions.drop(session, GOING_AWAY)
        slow.go_on.set()
        await eventually(lambda: not session.selecting.locked())
        await asyncio.sleep(0)
        assert (account.selections, session.counted) == (0, 0)


@pytest.mark.promise("P20")
async def test_a_client_that_sends_too_fast_is_told_which_limit_it_met_and_loses_nothing() -> None:
    running = running_node(rate_principal_packets=50.0)
    async with running as node, RawClient(node.url) as one, RawClient(node.url) as other:
        await one.hello("alice")
        await other.hello("bob")
        await one.send(*(subscribe(number, "a") for number in range(1, 121)))
        replies = [await one.expect("reply") for _ in range(120)]
        assert [each["request"] for each in replies] == list(range(1, 121))
        (notice,) = [each for each in one.seen if each["type"] == "notice"]
        assert notice["code"] == "slowed_down"
        assert "rate_principal_packets: you send faster than 50 packets a second" in notice["message"]
        await other.send(subscribe(1, "a"))
        assert await outcome(other) is None
        assert counted(node, "rate_principal_packets") == 1


async def test_published_bytes_of_a_principal() -> None:
    async with running_node(rate_principal_publish_bytes=1000.0) as node, RawClient(node.url) as one:
        await one.hello("alice")
        await one.send(*(publish(number, "a", "x" * 500) for number in range(1, 6)))
        assert [await outcome(one) for _ in range(5)] == [None] * 5
        (notice,) = [each for each in one.seen if each["type"] == "notice"]
        assert "rate_principal_publish_bytes: you send faster than 1000 published bytes a second" in notice["message"]


async def test_topics_of_a_partition() -> None:
    async with running_node(limit_partition_topics=2) as node, RawClient(node.url) as one:
        await one.hello()
        await one.send(*(publish(number, f"a/{number}", 1) for number in (1, 2, 3)), publish(4, "a/1", 2))
        told = [await outcome(one) for _ in range(4)]
        assert told.count(None) == 3
        assert "limit_partition_topics" in told
        assert counted(node, "limit_partition_topics") == 1


@pytest.mark.promise("P20")
async def test_bytes_of_a_partition() -> None:
    """P20: nobody fills the grid with values; what makes them no larger is taken."""
    async with running_node(limit_partition_bytes=1000) as node, RawClient(node.url) as one:
        await one.hello()
        await one.send(publish(1, "a/1", "x" * 800), publish(2, "a/2", "x" * 100), publish(3, "a/1", "y" * 800))
        told = [await outcome(one) for _ in range(3)]
        assert told.count(None) == 2
        assert "limit_partition_bytes" in told
        assert counted(node, "limit_partition_bytes") == 1
        await one.send(publish(4, "a/1", ""), publish(5, "a/2", "x" * 100))
        assert [await outcome(one) for _ in range(2)] == [None, None]


async def test_new_topics_of_a_principal() -> None:
    async with running_node(rate_principal_topics=0.01) as node, RawClient(node.url) as one:
        await one.hello()
        await one.send(publish(1, "a/1", 1))
        await one.send(publish(2, "a/2", 1))
        assert [await outcome(one) for _ in range(2)] == [None, None], "what was under way was not held back"
        await one.send(publish(3, "a/3", 1))
        assert await outcome(one) == "rate_principal_topics"
        await one.send(publish(4, "a/1", 2))
        assert await outcome(one) is None, "topics that exist are not concerned"


@pytest.mark.promise("P20")
async def test_a_publish_that_creates_its_topic_counts_as_several_packets_and_no_other_does() -> None:
    """P20: every node that follows its partition has to find out who selects it."""
    running = running_node(rate_packets=0.001, rate_burst=1_000, new_topic_packets=7)
    async with running as node, RawClient(node.url) as one, RawClient(node.url) as other:
        for client, counts_as in ((one, 7), (other, 1)):
            session = node.gateway.node.sessions.get((await client.hello())["session"])
            assert session is not None
            assert session.meter is not None
            await client.send(*(publish(number, f"a/{number}", 1) for number in range(1, 21)))
            assert [await outcome(client) for _ in range(20)] == [None] * 20
            owed = session.meter.packets(node.gateway.node._context.clock.monotonic(), 1_000)
            assert round(owed * 0.001) == 20 * counts_as, "the topics are there when the second one publishes"


async def test_who_creates_more_topics_than_it_may_is_read_slowly_and_loses_nothing() -> None:
    running = running_node(rate_packets=200.0, rate_burst=50, new_topic_packets=10)
    async with running as node, RawClient(node.url) as one:
        await one.hello()
        for first in (1, 11, 21):
            await one.send(*(publish(number, f"a/{number}", 1) for number in range(first, first + 10)))
            assert [await outcome(one) for _ in range(10)] == [None] * 10
        (notice,) = [each for each in one.seen if each["type"] == "notice"]
        assert notice["code"] == "slowed_down"
        assert "rate_packets: you send faster than 200 packets a second" in notice["message"]


async def test_a_grid_that_is_full_refuses_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryGridServer()
    async with running_node(memory=memory) as node, RawClient(node.url) as one:
        await one.hello()
        store = node.gateway.node._context.grid.topics
        execute = store.publish

        async def full(commands: Any) -> Any:
            return [GridRefused("Redis refuses writes: OOM") for _ in commands]

        monkeypatch.setattr(store, "publish", full)
        await one.send(publish(1, "a", 1))
        reply = await one.expect("reply")
        assert reply["error"]["code"] == "grid_unavailable"
        assert "OOM; nothing was done, ask again" in reply["error"]["message"]
        assert reply["error"]["retry_after"] > 0
        await one.send({"type": "ack", "received": reply["id"]})
        await one.send(publish(2, "a", 1) | {"resubmitted": True})
        monkeypatch.setattr(store, "publish", execute)
        assert await outcome(one) is None, "what another node may have executed is asked until it is known"


def subscribe(number: int, selector: str) -> dict[str, Any]:
    return {"id": number, "type": "subscribe", "request": number, "selector": selector}


def publish(number: int, topic: str, value: object) -> dict[str, Any]:
    return {"id": number, "type": "publish", "request": number, "topic": topic, "value": value}


async def outcome(client: RawClient) -> str | None:
    """Wait for a reply, and name the limit that it tells of."""
    error = (await client.expect("reply")).get("error")
    return None if error is None else str(error["message"]).partition(":")[0]
