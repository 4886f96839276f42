"""The recovery ladder seen from the wire, with one or two nodes over a shared in-memory grid."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.adapters.memory.session_store import MemorySessionStore
from gateway.app.delivery import delivery
from gateway.app.delivery.partition import Partition
from gateway.core.topics.selectors import Selector
from gateway.core.types import SessionId, TokenGeneration, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Ownership, SessionChanges, SessionGone
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient


async def opened(node: TestNode, *packets: dict[str, Any]) -> tuple[RawClient, dict[str, Any]]:
    raw = RawClient(node.url)
    await raw.connect()
    welcome = await raw.hello(properties={"team": "fx"})
    for number, packet in enumerate(packets, 1):
        await raw.send({"id": number, "request": number, **packet})
        await raw.expect("reply")
    return raw, welcome


async def publish(node: TestNode, topic: str, *values: Any) -> None:
    async with RawClient(node.url) as raw:
        await raw.hello("publisher")
        for number, value in enumerate(values, 1):
            packet = {"id": number, "request": number, "type": "publish", "topic": topic, "value": value}
            await raw.send({"received": number - 1, **packet})
            await raw.expect("reply")


@pytest.mark.promise("P2")
async def test_reattach_resends_what_was_lost_and_what_came_meanwhile(n1: TestNode) -> None:
    raw, welcome = await opened(n1, {"type": "subscribe", "selector": "a/**"})
    await raw.cut()
    await publish(n1, "a/x", 1, 2, 3)

    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
        updates = [await back.expect("update") for _ in range(3)]

    assert again["outcome"] == "reattached"
    assert again["session"] == welcome["session"]
    assert again["received"] == 1
    assert again["resent"] == 3
    assert again["lost"] == 0
    assert [update["id"] for update in updates] == [2, 3, 4]
    assert [update["value"] for update in updates] == [1, 2, 3]
    assert again["token"] != welcome["token"]


@pytest.mark.promise("P2", "P6")
async def test_after_a_gap_the_current_value_of_a_topic_comes_before_what_follows_it(memory: MemoryGridServer) -> None:
    """Protocol 6.4: without the flag, an update is the successor of what was sent before it."""
    async with running_node("n1", memory=memory, limit_resend_packets=2) as node:
        raw, welcome = await opened(node, {"type": "subscribe", "selector": "a/**"})
        await raw.cut()
        await publish(node, "a/x", 1, 2, 3, 4)
        session = node.gateway.node.sessions.get(SessionId(welcome["session"]))
        assert session is not None
        async with RawClient(node.url) as back:
            # Whatever keeps the selections from being put in force at once.
            async with session.selecting:
                again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
                assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
                await publish(node, "a/x", 5)
            update = await back.expect("update")
            assert (update["value"], update.get("snapshot")) == (5, True)
            await publish(node, "a/x", 6)
            update = await back.expect("update")
            assert (update["value"], update.get("snapshot")) == (6, None)


@pytest.mark.promise("P2")
async def test_two_cuts_in_a_row_without_traffic_lose_and_double_nothing(n1: TestNode) -> None:
    raw, welcome = await opened(n1, {"type": "subscribe", "selector": "a/**"})
    await raw.cut()
    await publish(n1, "a/x", 1)
    token = welcome["token"]
    for attempt in (1, 2, 3):
        async with RawClient(n1.url) as back:
            again = await back.resume(token, attempt=attempt, received=1, oldest=2)
            token = again["token"]
            assert again["outcome"] == "reattached"
            assert again["resent"] == 1

    async with RawClient(n1.url) as back:
        await back.resume(token, attempt=4, received=1, oldest=2)
        update = await back.expect("update")

    assert (update["id"], update["value"]) == (2, 1)


async def test_a_half_open_connection_is_superseded(n1: TestNode) -> None:
    """The old node still thinks the session is connected: recovery must not wait for its time-out."""
    raw, welcome = await opened(n1)
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1, oldest=1)

        assert again["outcome"] == "reattached"
        assert await raw.closed() == 4203
    await raw.cut()


@pytest.mark.promise("P2", "P6")
async def test_a_gap_is_declared_and_followed_by_snapshots(memory: MemoryGridServer) -> None:
    async with running_node("small", memory=memory, limit_resend_packets=4) as node:
        raw, welcome = await opened(node, {"type": "subscribe", "selector": "a/**"})
        await raw.cut()
        await publish(node, "a/x", *range(10))
        await publish(node, "a/y", "last")

        async with RawClient(node.url) as back:
            again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
            updates = [await back.expect("update") for _ in range(2)]

    assert again["outcome"] == "failed_over"
    assert again["reason"] == "gap"
    assert again["lost"] == 11
    assert again["received"] == 0
    assert {(update["topic"], update["value"], update["snapshot"]) for update in updates} == {
        ("a/x", 9, True),
        ("a/y", "last", True),
    }
    assert [update["id"] for update in updates] == [1, 2]


@pytest.mark.promise("P1", "P6")
async def test_failover_restores_the_session_on_another_node(n1: TestNode, n2: TestNode) -> None:
    raw, welcome = await opened(
        n1, {"type": "subscribe", "selector": "a/**"}, {"type": "unsubscribe", "selector": "a/z"}
    )
    await publish(n1, "a/x", 1, 2)
    await publish(n1, "a/z", 1)
    await raw.cut()

    async with RawClient(n2.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1, oldest=3)
        update = await back.expect("update")

    assert again["outcome"] == "failed_over"
    assert again["reason"] == "other_node"
    assert again["lost"] is None
    assert again["session"] == welcome["session"]
    assert again["principal"] == "alice"
    assert again["node"] == "n2"
    assert again["properties"]["team"] == "fx"
    assert again["properties"]["$node"] == "n2"
    assert again["properties"]["$connected"] != welcome["properties"]["$connected"]
    assert again["selections"] == ["+a/**", "-a/z"]
    assert (update["topic"], update["value"], update["version"], update["snapshot"]) == ("a/x", 2, 2, True)


@pytest.mark.promise("P3")
async def test_the_former_owner_drops_its_copy_and_closes_the_socket(n1: TestNode, n2: TestNode) -> None:
    raw, welcome = await opened(n1)
    async with RawClient(n2.url) as back:
        assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"
        assert await raw.closed() == 4004
    assert len(n1.gateway.node.sessions) == 0
    await raw.cut()


@pytest.mark.promise("P5")
async def test_a_resubmitted_publish_is_not_executed_twice(n1: TestNode, n2: TestNode) -> None:
    raw, welcome = await opened(n1, {"type": "publish", "topic": "a/x", "value": 1})
    await raw.cut()
    async with RawClient(n2.url) as back:
        await back.resume(welcome["token"], attempt=1, received=0, oldest=1)
        await back.send(
            {"id": 1, "request": 1, "type": "publish", "topic": "a/x", "value": 1, "resubmitted": True},
            {"id": 2, "request": 2, "type": "publish", "topic": "a/x", "value": 2},
        )
        first, second = await back.expect("reply"), await back.expect("reply")

    assert (first["version"], second["version"]) == (1, 2)


@pytest.mark.promise("P8")
@pytest.mark.parametrize("where", ["same node", "other node"])
async def test_tokens_are_refused_each_with_its_own_reason(n1: TestNode, n2: TestNode, where: str) -> None:
    target = n1 if where == "same node" else n2
    raw, welcome = await opened(n1)
    owner_session = welcome["session"]
    oldest_token = welcome["token"]
    reasons: dict[str, str] = {}

    async def refused(name: str, token: str, attempt: int) -> None:
        async with RawClient(target.url) as back:
            error = await back.resume(token, attempt=attempt)
            assert error["type"] == "error", error
            reasons[name] = error["code"]
            await back.closed()

    await refused("tampered", oldest_token[:-2] + ("AA" if oldest_token[-2:] != "AA" else "BB"), 50)
    await refused("nonsense", "nonsense", 51)
    # Resume twice at the rightful owner: the first token is superseded once the second has been proven.
    await raw.cut()
    back = RawClient(n1.url)
    await back.connect()
    second = await back.resume(oldest_token, attempt=1)
    await back.send({"type": "ack", "received": 0})
    session = n1.gateway.node.sessions.get(owner_session)
    assert session is not None
    await eventually(lambda: session.confirmed == TokenGeneration(2))
    await refused("older generation", oldest_token, 2)
    await refused("replayed resume", second["token"], 1)

    assert reasons == {
        "tampered": "token_invalid",
        "nonsense": "token_invalid",
        "older generation": "token_superseded",
        "replayed resume": "stale_attempt",
    }
    # The session of the rightful owner is untouched.
    await back.send({"id": 1, "request": 1, "type": "publish", "topic": "a/x", "value": 1})
    assert "error" not in await back.expect("reply")
    await back.cut()


@pytest.mark.promise("P8")
async def test_the_previous_token_stays_valid_until_the_new_one_is_proven(n1: TestNode) -> None:
    """The welcome with the new token may be lost: then the old one is all that the client has (P8)."""
    raw, welcome = await opened(n1)
    await raw.cut()
    async with RawClient(n1.url) as lost:
        await lost.resume(welcome["token"], attempt=1)
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=2)

    assert again["outcome"] == "reattached"


async def test_a_closed_session_cannot_be_resumed(n1: TestNode, n2: TestNode) -> None:
    raw, welcome = await opened(n1)
    await raw.send({"type": "bye"})
    await raw.closed()
    for node in (n1, n2):
        async with RawClient(node.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["code"] == "session_closed"
    await raw.cut()


@pytest.mark.promise("P7")
async def test_an_expired_session_is_refused_and_gone(n1: TestNode) -> None:
    raw = RawClient(n1.url)
    await raw.connect()
    welcome = await raw.hello(window=0.1)
    await raw.cut()
    await eventually(lambda: len(n1.gateway.node.sessions) == 0)

    async with RawClient(n1.url) as back:
        assert (await back.resume(welcome["token"], attempt=1))["code"] == "session_expired"


@pytest.mark.promise("P2")
async def test_without_replication_only_the_same_node_knows_the_session(memory: MemoryGridServer) -> None:
    async with (
        running_node("n1", memory=memory, replication=False) as one,
        running_node("n2", memory=memory, replication=False) as two,
    ):
        raw, welcome = await opened(one)
        await raw.cut()
        async with RawClient(two.url) as back:
            refused = await back.resume(welcome["token"], attempt=1)
        async with RawClient(one.url) as back:
            again = await back.resume(welcome["token"], attempt=2)

    assert welcome["replicated"] is False
    assert refused["code"] == "not_replicated"
    assert again["outcome"] == "reattached"


@pytest.mark.promise("P6")
@pytest.mark.parametrize("selectors", [("a/*", "b/x"), ("**",)])
async def test_a_node_that_has_the_values_at_hand_sends_them_with_the_welcome(
    n1: TestNode, n2: TestNode, selectors: tuple[str, ...]
) -> None:
    """P6: full values after a failover, whether they are at hand or have to be read."""
    packets = [{"type": "subscribe", "selector": each} for each in selectors]
    holder, _ = await opened(n2, *packets)
    raw, welcome = await opened(n1, *packets)
    for topic in ("a/x", "a/y", "b/x"):
        await publish(n1, topic, topic)
    await eventually(lambda: sum(len(each.values) for each in n2.gateway.node.sessions.delivery.replicas) == 3)
    await raw.cut()

    async with RawClient(n2.url) as back:
        again = await back.resume(welcome["token"], attempt=1)
        updates = [await back.expect("update") for _ in range(3)]
        await publish(n1, "a/x", "news")
        news = await back.expect("update")

    assert again["outcome"] == "failed_over"
    assert {each["topic"]: each["value"] for each in updates} == {"a/x": "a/x", "a/y": "a/y", "b/x": "b/x"}
    assert all(each["snapshot"] for each in updates)
    assert (news["topic"], news["value"], news.get("snapshot", False)) == ("a/x", "news", False)
    await holder.cut()


@pytest.mark.promise("P20")
async def test_a_session_of_many_selectors_is_not_searched_for_without_a_pause(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P20: selectors that match nothing find no values at which the search would end; there is a bound for that."""
    selectors = ["a/*", *(f"*/{number}/x" for number in range(20))]
    holder, _ = await opened(n2, {"type": "subscribe", "selector": "**"})
    raw, welcome = await opened(n1, *({"type": "subscribe", "selector": each} for each in selectors))
    for topic in ("a/x", "a/y", "b/x"):
        await publish(n1, topic, topic)
    await eventually(lambda: sum(len(each.values) for each in n2.gateway.node.sessions.delivery.replicas) == 3)
    await raw.cut()
    searched: list[str] = []
    search = Partition.matching

    def counted(partition: Partition, selector: Selector) -> tuple[TopicPath, ...] | None:
        if partition.values and not partition.knows(selector):
            searched.append(selector.text)
        return search(partition, selector)

    monkeypatch.setattr(Partition, "matching", counted)
    monkeypatch.setattr(delivery, "SEARCHED_AT_ONCE", 10)

    async with RawClient(n2.url) as back:
        again = await back.resume(welcome["token"], attempt=1)
        updates = [await back.expect("update") for _ in range(2)]

    assert again["selections"] == [f"+{each}" for each in selectors]
    assert {each["topic"] for each in updates} == {"a/x", "a/y"}
    assert 0 < len(searched) <= 10
    await holder.cut()


async def test_deselected_topics_are_not_among_the_values_at_hand(n1: TestNode, n2: TestNode) -> None:
    holder, _ = await opened(n2, {"type": "subscribe", "selector": "a/**"})
    raw, welcome = await opened(
        n1, {"type": "subscribe", "selector": "a/**"}, {"type": "unsubscribe", "selector": "a/secret/*"}
    )
    await publish(n1, "a/secret/x", 1)
    await publish(n1, "a/open", 2)
    await eventually(lambda: sum(len(each.values) for each in n2.gateway.node.sessions.delivery.replicas) == 2)
    await raw.cut()

    async with RawClient(n2.url) as back:
        await back.resume(welcome["token"], attempt=1)
        await publish(n1, "a/secret/x", 3)
        await publish(n1, "a/open", 4)
        updates = [await back.expect("update") for _ in range(2)]

    assert [each["value"] for each in updates] == [2, 4]
    await holder.cut()


@pytest.mark.promise("P7")
async def test_a_client_that_is_back_at_once_costs_the_grid_no_word_of_its_absence(
    n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: the window is in the grid soon after the client is gone, and not for a moment's absence."""
    store = n1.gateway.node._context.grid.sessions
    told: list[str] = []
    disconnect = store.disconnect

    async def noting(ownership: Any) -> None:
        await disconnect(ownership)
        told.append(ownership.session)

    monkeypatch.setattr(store, "disconnect", noting)
    raw, welcome = await opened(n1)
    session = n1.gateway.node.sessions.get(welcome["session"])
    assert session is not None
    await raw.cut()
    await eventually(lambda: not session.connected)
    back = RawClient(n1.url)
    await back.connect()
    await back.resume(welcome["token"], attempt=1)
    other, other_welcome = await opened(n1)
    await other.cut()

    await eventually(lambda: bool(told))

    assert told == [other_welcome["session"]]
    record = await store.find(other_welcome["session"])
    assert record is not None
    assert not record.connected
    await back.cut()


async def test_a_goodbye_is_answered_although_the_proof_of_the_token_comes_too_late(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first packet after a resume is ``bye``: the grid refuses the proof that it also is, and nobody is fenced.

    Ending takes several steps. While they go on, the grid knows the session no more, and that is what it answers.
    """
    raw, welcome = await opened(n1)
    await raw.cut()
    refused = asyncio.Event()
    end = MemorySessionStore.end

    async def refuse_proofs(_: MemorySessionStore, proofs: Sequence[object]) -> list[bool]:
        return [False] * len(proofs)

    async def refuse_change(_: MemorySessionStore, ownership: Ownership, changes: SessionChanges) -> None:
        refused.set()
        raise SessionGone(ErrorCode.SESSION_CLOSED)

    async def end_slowly(store: MemorySessionStore, ownership: Ownership, **how: Any) -> None:
        await end(store, ownership, **how)
        await refused.wait()
        await asyncio.sleep(0)

    monkeypatch.setattr(MemorySessionStore, "confirm", refuse_proofs)
    monkeypatch.setattr(MemorySessionStore, "change", refuse_change)
    monkeypatch.setattr(MemorySessionStore, "end", end_slowly)
    async with RawClient(n2.url) as back:
        assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"
        await back.send({"type": "bye"})
        await back.expect("bye")
