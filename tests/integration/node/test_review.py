"""What happens at the same time: resumes, requests, restored selections, recovery; and bugs that must not spread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGrid
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.app.session.session import Session
from gateway.catalogue.log_events import CONNECTION_FAILED, SESSION_FENCED
from gateway.core.stream.machine import SessionMachine
from gateway.core.topics.selectors import parse_selector, partitions
from gateway.core.types import TopicPath
from gateway.core.wire.codes import INTERNAL_ERROR
from gateway.ports import SessionChanges, TopicValue
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

LOOPS: list[Callable[..., None]] = [asyncio.run]
try:
    import uvloop
except ImportError:  # not there on every system
    pass
else:
    LOOPS.append(uvloop.run)


def subscribe(number: int, selector: str, **fields: Any) -> dict[str, Any]:
    return {"id": number, "request": number, "type": "subscribe", "selector": selector, **fields}


def publish(number: int, topic: str, value: Any) -> dict[str, Any]:
    return {"id": number, "request": number, "type": "publish", "topic": topic, "value": value}


def held(node: TestNode, welcome: dict[str, Any]) -> Session:
    session = node.gateway.node.sessions.get(welcome["session"])
    assert session is not None
    return session


def partition_of(topic: str) -> int:
    (number,) = partitions(parse_selector(topic), 1)
    return number


async def some_turns() -> None:
    """Let everything that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


class Gate:
    """Holds back reads of some topic partitions of one node."""

    def __init__(self, node: TestNode, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
        self._open = {partition_of(topic): asyncio.Event() for topic in topics}
        store = node.gateway.node._context.grid.topics
        values = store.values

        async def slow(partition: int) -> AsyncIterator[Sequence[TopicValue]]:
            if partition in self._open:
                await self._open[partition].wait()
            async for page in values(partition):
                yield page

        monkeypatch.setattr(store, "values", slow)

    def open(self, topic: str) -> None:
        self._open[partition_of(topic)].set()


async def detached_with(node: TestNode, *selectors: str) -> dict[str, Any]:
    """Make a session with selections and values, and lose its connection."""
    async with RawClient(node.url) as raw:
        welcome = await raw.hello()
        for number, selector in enumerate(selectors, 1):
            await raw.send(subscribe(number, selector))
            await raw.expect("reply")
    return welcome


@pytest.mark.promise("P6")
async def test_a_selection_asked_for_while_the_restored_ones_are_read_is_served(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: neither may give up the partitions that the other has just prepared."""
    assert partition_of("a") != partition_of("b")
    welcome = await detached_with(n1, "a/**")
    gate = Gate(n2, monkeypatch, "a/x", "b/x")
    async with RawClient(n2.url) as back, RawClient(n1.url) as other:
        assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"
        await back.send(subscribe(1, "b/**", request=9))
        await eventually(lambda: len(held(n2, welcome).lane) == 1)
        gate.open("a/x")
        await some_turns()
        gate.open("b/x")
        await back.expect("reply")
        await other.hello("bob")
        await other.send(publish(1, "a/x", 1), publish(2, "b/x", 2))
        topics = {(await back.expect("update"))["topic"] for _ in range(2)}
        assert topics == {"a/x", "b/x"}


@pytest.mark.promise("P6")
async def test_an_unsubscribe_meanwhile_costs_no_snapshot_of_the_rest(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: the restored list has changed when it is put in force, and what is left of it is still owed."""
    async with RawClient(n1.url) as other:
        await other.hello("bob")
        await other.send(publish(1, "a/x", 1))
        await other.expect("reply")
        welcome = await detached_with(n1, "a/**", "b/**")
        gate = Gate(n2, monkeypatch, "b/x")
        async with RawClient(n2.url) as back:
            await back.resume(welcome["token"], attempt=1)
            await back.send({"id": 1, "request": 9, "type": "unsubscribe", "selector": "b/**"})
            await eventually(lambda: len(held(n2, welcome).lane) == 1)
            await some_turns()
            gate.open("b/x")
            update = await back.expect("update")
            assert (update["topic"], update["snapshot"]) == ("a/x", True)


async def test_what_is_prepared_for_a_session_that_is_gone_is_given_up(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    welcome = await detached_with(n1, "a/**")
    Gate(n2, monkeypatch, "a/x")
    node = n2.gateway.node
    async with RawClient(n2.url) as back:
        await back.resume(welcome["token"], attempt=1)
        session = held(n2, welcome)
        await eventually(lambda: node.sessions.delivery.replicas.get(partition_of("a")) is not None)
        node.sessions.fence(session)
    assert not list(node.sessions.delivery.replicas)
    await eventually(lambda: not any(each.get_name().startswith("activate") for each in node._background._tasks))
    await node.sessions.delivery.prepare(session, session.selections)
    assert not list(node.sessions.delivery.replicas)


async def test_a_request_that_meets_the_claim_of_its_own_node_is_executed(n1: TestNode) -> None:
    """Between the claim and its answer the grid knows a newer epoch than the lane."""
    welcome = await detached_with(n1, "a/**")
    session = held(n1, welcome)
    store = n1.gateway.node._context.grid.sessions
    change = store.change
    claimed = asyncio.Event()

    async def late(ownership: Any, changes: SessionChanges) -> None:
        await claimed.wait()
        await change(ownership, changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "change", late)
        async with RawClient(n1.url) as first:
            again = await first.resume(welcome["token"], attempt=1, received=1, oldest=2)
            await first.send(subscribe(2, "b/**"))
            await eventually(lambda: len(session.lane) == 1)
        async with RawClient(n1.url) as back:
            again = await back.resume(again["token"], attempt=2, received=1, oldest=3)
            assert again["outcome"] == "reattached"
            claimed.set()
            assert "error" not in await back.expect("reply")
    assert not n1.log.of(SESSION_FENCED)
    assert session.selections.to_wire() == ("+a/**", "+b/**")


async def test_a_resume_while_sessions_are_written_again_is_not_fenced(
    n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was made before the claim, and the grid refuses it for that."""
    welcome = await detached_with(n1)
    session = held(n1, welcome)
    store = n1.gateway.node._context.grid.sessions
    restore, resumed, asked = store.restore, asyncio.Event(), asyncio.Event()

    async def late(records: Any, *, recreate: bool) -> Any:
        asked.set()
        await resumed.wait()
        return await restore(records, recreate=recreate)

    monkeypatch.setattr(store, "restore", late)
    session.unsaved = True
    writing = asyncio.create_task(n1.gateway.node._grid_recovery.catch_up())
    await asked.wait()
    session.unsaved = False  # the claim must not write it again, too
    async with RawClient(n1.url) as back:
        assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "reattached"
        resumed.set()
        await writing
        assert not session.dropped
        assert not n1.log.of(SESSION_FENCED)


@pytest.mark.promise("P20")
async def test_one_broken_session_keeps_no_update_from_the_others(n1: TestNode) -> None:
    """A bug in one session must not end the loop that serves all."""
    async with RawClient(n1.url) as broken, RawClient(n1.url) as sound:
        lost = held(n1, await broken.hello("mallory"))
        await broken.send(subscribe(1, "a/**"))
        await broken.expect("reply")
        await sound.hello()
        await sound.send(subscribe(1, "a/**"))
        await sound.expect("reply")
        lost.machine.close()
        await sound.send(publish(2, "a/x", 1), publish(3, "a/x", 2))
        assert [(await sound.expect("update"))["value"] for _ in range(2)] == [1, 2]
        assert await broken.closed() == INTERNAL_ERROR.code
        assert [each["session"] for each in n1.log.of(CONNECTION_FAILED)] == [lost.id]
        assert n1.gateway.node.sessions.get(lost.id) is None


@pytest.mark.promise("P2")
async def test_a_bug_in_the_middle_of_a_batch_loses_nothing_in_silence(
    n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: what a batch still held is read again, and clients are told."""
    replicas = n1.gateway.node.sessions.delivery.replicas
    take_in = replicas.take_in

    def once(_: object) -> None:
        monkeypatch.setattr(replicas, "take_in", take_in)
        failing()

    async with RawClient(n1.url) as raw:
        await raw.hello()
        await raw.send(subscribe(1, "a/**"))
        await raw.expect("reply")
        monkeypatch.setattr(replicas, "take_in", once)
        await raw.send(publish(2, "a/x", 1), publish(3, "a/y", 2))
        assert sorted([(await raw.expect("update"))["topic"] for _ in range(2)]) == ["a/x", "a/y"]
        assert "values_reread" in [each.get("code") for each in raw.seen]


async def test_one_broken_session_keeps_no_write_from_the_others(n1: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawClient(n1.url) as broken, RawClient(n1.url) as sound:
        lost, found = held(n1, await broken.hello("mallory")), held(n1, await sound.hello())
        bad, backlog = lost.connection, WebSocketConnection.backlog
        monkeypatch.setattr(
            WebSocketConnection, "backlog", lambda connection: failing() if connection is bad else backlog(connection)
        )
        for each in (lost, found):
            each.machine.ping()
            n1.gateway.node.sessions.flusher.mark(each)
        await sound.expect("ping")
        assert await broken.closed() == INTERNAL_ERROR.code


@pytest.mark.promise("P1")
@pytest.mark.parametrize("method", ["backlog", "write_all"])
async def test_a_bug_in_delivering_to_one_is_met_by_nobody_who_is_not_dropped(
    n1: TestNode, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """P1: numbered and not written must not be followed by the next number. Who was written to together is dropped."""
    async with RawClient(n1.url) as broken, RawClient(n1.url) as other, RawClient(n1.url) as publisher:
        lost = held(n1, await broken.hello("mallory"))
        await other.hello()
        for each in (broken, other):
            await each.send(subscribe(1, "a/**"))
            await each.expect("reply")
        await publisher.hello()
        with monkeypatch.context() as patch:
            if method == "backlog":
                bad, backlog = lost.connection, WebSocketConnection.backlog
                patch.setattr(
                    WebSocketConnection,
                    "backlog",
                    lambda connection: failing() if connection is bad else backlog(connection),
                )
            else:
                patch.setattr(WebSocketConnection, "write_all", lambda _connections, _messages: failing())
            await publisher.send(publish(1, "a/x", 1))
            await publisher.expect("reply")
            assert await broken.closed() == INTERNAL_ERROR.code
            if method == "backlog":
                assert (await other.expect("update"))["topic"] == "a/x"
            else:
                assert await other.closed() == INTERNAL_ERROR.code


async def test_one_broken_session_stops_no_clock_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(ping_interval=0.2) as node, RawClient(node.url) as broken, RawClient(node.url) as sound:
        bad, tick = held(node, await broken.hello("mallory")).machine, SessionMachine.tick
        monkeypatch.setattr(SessionMachine, "tick", lambda each, now: failing() if each is bad else tick(each, now))
        await sound.hello()
        await sound.expect("ping")
        assert await broken.closed() == INTERNAL_ERROR.code


def failing() -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("run", LOOPS)
def test_a_connection_that_broke_while_it_was_not_read_can_be_written_to(run: Callable[..., None]) -> None:
    """With uvloop it would raise where asyncio says nothing, and aiohttp knows of the loss only when it reads."""

    async def scenario() -> None:
        async with running_node(limit_requests=1) as node, RawClient(node.url) as raw:
            session = held(node, await raw.hello())
            memory = node.gateway.node._context.grid
            assert isinstance(memory, MemoryGrid)
            gate = asyncio.Event()

            async def stuck(*_: object) -> None:
                await gate.wait()

            memory.sessions.change = stuck  # type: ignore[method-assign, assignment]
            await raw.send(subscribe(1, "a/**"), subscribe(2, "b/**"))
            await eventually(lambda: session.paused)
            await raw.cut()
            connection = session.connection
            assert isinstance(connection, WebSocketConnection)
            await some_turns()  # of the loop, in which nobody reads the end of the connection
            connection.write(b"{}")
            session.machine.ping()
            node.gateway.node.sessions.flusher.mark(session)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not node.log.of(CONNECTION_FAILED)
            assert not session.dropped
            gate.set()

    run(scenario())


async def test_a_bye_waits_for_the_answers_before_it() -> None:
    """Also where nothing has to be written, so that nothing waits by itself."""
    async with running_node(replication=False) as node, RawClient(node.url) as raw:
        await raw.hello()
        await raw.send(publish(1, "a/x", 1), publish(2, "a/x", 2), {"type": "bye"})
        assert await raw.closed() == 1000
        assert [each["request"] for each in raw.seen if each["type"] == "reply"] == [1, 2]


@pytest.mark.promise("P9")
async def test_many_large_snapshots_hold_up_nobody(n1: TestNode) -> None:
    """P9: one message can ask for the values of all topics again and again."""
    count, topics = 200, 20_000
    async with RawClient(n1.url) as greedy, RawClient(n1.url) as other:
        session = held(n1, await greedy.hello())
        await greedy.send(subscribe(1, "a/**"))
        await greedy.expect("reply")
        replicas = n1.gateway.node.sessions.delivery.replicas
        partition = replicas.get(partition_of("a"))
        assert partition is not None
        for number in range(topics):
            topic = TopicPath(f"a/{number}")
            partition.values.add(TopicValue(topic, 1, f"1-1-{number}", b"1"))  # type: ignore[arg-type]
        await greedy.send(*[subscribe(number, "a/**") for number in range(2, count)])
        await eventually(lambda: len(session.lane) > 1)
        await other.hello("bob")
        await other.send({"type": "ping"})
        await other.expect("pong", within=1)
        assert session.machine.waiting < 3 * topics


async def test_answers_that_were_acknowledged_are_forgotten(n1: TestNode) -> None:
    """Nothing grows with the age of a session."""
    async with RawClient(n1.url) as raw:
        session = held(n1, await raw.hello())
        for number in range(1, 50):
            await raw.send(subscribe(number, "a/**", received=number - 1))
            await raw.expect("reply")
        assert len(session.answers.unseen) <= 2
