"""One node over the in-memory grid: what clients hand over is bounded in bytes, and not only in items (P20)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.connections.conversation import Conversations
from gateway.app.requests.turns import PACKET_BYTES, SELECTOR_COST, TURN_BYTES, Turns
from gateway.core.pacing.workload import REQUEST_BYTES
from gateway.core.session.pending import RUN_BYTES
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import Selector
from gateway.core.topics.work import Work
from gateway.core.wire.codes import GOING_AWAY
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P20")

KIB = 1024
MESSAGE_BYTES = 64 * KIB
"""Largest message by default."""


def publish(number: int, topic: str, size: int, **fields: Any) -> dict[str, Any]:
    packet = {"id": number, "type": "publish", "request": number, "topic": topic, "value": "x" * (size - 2)}
    return packet | fields


def counted(node: TestNode, limit: str) -> float:
    text = node.gateway.metrics.render().decode()
    (line,) = [each for each in text.splitlines() if f'limits_exceeded_total{{limit="{limit}"}}' in each]
    return float(line.rpartition(" ")[2])


def held(node: TestNode) -> list[int]:
    return sorted(session.lane.bytes for session in node.gateway.node.sessions)


def load(node: TestNode) -> int:
    text = node.gateway.metrics.render().decode()
    (line,) = [each for each in text.splitlines() if each.startswith("gateway_request_bytes ")]
    return int(float(line.rpartition(" ")[2]))


class Gate:
    """Holds up every publish until it is opened."""

    def __init__(self, node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
        store = node.gateway.node._context.grid.topics
        self._publish = store.publish
        self.open = asyncio.Event()
        self.largest = 0
        monkeypatch.setattr(store, "publish", self)

    async def __call__(self, commands: Any) -> Any:
        self.largest = max(self.largest, sum(len(each.value) for each in commands))
        await self.open.wait()
        return await self._publish(commands)


async def test_every_byte_counts_against_the_rate_of_a_client_and_it_is_told() -> None:
    async with running_node(rate_bytes=10_000.0, rate_bytes_burst=16 * KIB) as node, RawClient(node.url) as one:
        await one.hello()
        # What is refused and what is no publish counts as well: here properties that nobody can have.
        for number in (1, 2):
            name = "n" * 9000
            await one.send({"id": number, "type": "properties", "request": number, "changes": {name: "v"}})
        await one.send({"id": 3, "type": "subscribe", "request": 3, "selector": "a"})
        assert [(await one.expect("reply"))["request"] for _ in range(3)] == [1, 2, 3]
        (notice,) = [each for each in one.seen if each["type"] == "notice"]
        assert notice["code"] == "slowed_down"
        assert "rate_bytes: you send faster than 10000 bytes a second allows" in notice["message"]
        assert counted(node, "rate_bytes") >= 1


async def test_a_session_hands_over_no_more_than_its_bound_and_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(limit_request_bytes=100 * KIB) as node, RawClient(node.url) as one:
        await one.hello()
        gate = Gate(node, monkeypatch)
        for number in range(1, 41):
            await one.send(publish(number, "a", 30 * KIB))
        await eventually(lambda: counted(node, "limit_request_bytes") > 0)
        (bytes_held,) = held(node)
        assert 100 * KIB < bytes_held <= 100 * KIB + MESSAGE_BYTES
        gate.open.set()
        replies = [await one.expect("reply") for _ in range(40)]
        assert [each["request"] for each in replies] == list(range(1, 41))
        assert not any("error" in each for each in replies)
        assert gate.largest <= 64 * KIB + 32 * KIB, "a run is bounded, too"
        await eventually(lambda: load(node) == 0)


async def test_one_message_of_many_small_requests_counts_for_what_is_made_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_node(limit_request_bytes=64 * KIB, limit_requests=10_000) as node, RawClient(node.url) as one:
        await one.hello()
        gate = Gate(node, monkeypatch)
        small = [{"type": "publish", "request": number, "topic": "a", "value": 1} for number in range(1, 601)]
        await one.send({"id": 1, **small[0]}, *small[1:])
        await eventually(lambda: counted(node, "limit_request_bytes") > 0)
        assert held(node) == [600 * (REQUEST_BYTES + 2)]
        gate.open.set()
        assert [(await one.expect("reply"))["request"] for _ in range(600)] == list(range(1, 601))


async def test_a_modest_publisher_gets_through_while_sixty_greedy_ones_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty fill the node's bound; the witness is read and executed all the same, and nobody loses anything."""
    bound = 1024 * KIB
    greedy: list[RawClient] = []
    async with running_node(limit_node_request_bytes=bound, limit_request_bytes=0) as node, RawClient(node.url) as it:
        await it.hello("witness")
        store = node.gateway.node._context.grid.topics
        execute = store.publish
        opened = asyncio.Event()

        async def only_for_the_witness(commands: Any) -> Any:
            if commands[0].topic != "witness":
                await opened.wait()
            return await execute(commands)

        monkeypatch.setattr(store, "publish", only_for_the_witness)
        try:
            for _ in range(60):
                client = RawClient(node.url)
                greedy.append(client)
                await client.connect()
                await client.hello("greedy")
            for number in range(1, 5):
                for client in greedy:
                    await client.send(publish(number, "flood", 30 * KIB))
            await eventually(lambda: counted(node, "limit_node_request_bytes") > 0)
            await eventually(lambda: load(node) > bound)
            for number in range(1, 6):
                await it.send(publish(number, "witness", 100))
                assert "error" not in await it.expect("reply")
            assert load(node) <= bound + 60 * MESSAGE_BYTES
            assert max(held(node)) <= bound // 60 + 2 * MESSAGE_BYTES, "no one of them has much more than the others"
            opened.set()
            for client in greedy:
                assert [(await client.expect("reply"))["request"] for _ in range(4)] == [1, 2, 3, 4]
            await eventually(lambda: load(node) == 0)
        finally:
            for client in greedy:
                await client.cut()


async def test_what_is_resubmitted_while_the_grid_is_unreachable_is_bounded_and_coming_back_adds_nothing() -> None:
    memory = MemoryGridServer()
    bound = 100 * KIB
    async with running_node(memory=memory, limit_request_bytes=bound) as node:
        one = RawClient(node.url)
        await one.connect()
        welcome = await one.hello()
        memory.go_away()
        for number in range(1, 21):
            await one.send(publish(number, "a", 30 * KIB, resubmitted=True))
        await eventually(lambda: counted(node, "limit_request_bytes") > 0)
        before = held(node)
        assert before[0] <= bound + MESSAGE_BYTES
        taken = node.gateway.node.sessions.get(welcome["session"])
        assert taken is not None
        for attempt in range(1, 4):
            await one.cut()
            one = RawClient(node.url)
            await one.connect()
            token = welcome["token"]
            welcome = await one.resume(token, attempt=attempt, received=0, oldest=1)
            assert welcome["outcome"] == "reattached"
            following = welcome["received"] + 1
            await one.send(publish(following, "a", 30 * KIB, resubmitted=True))
            await one.send({"type": "ping"})
        await asyncio.sleep(0)
        assert held(node) == before, "nothing is read of who has too much already, however often it comes back"
        memory.come_back()
        await eventually(lambda: load(node) == 0)
        await one.cut()


async def test_what_is_taken_in_during_a_turn_of_the_loop_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    per_turn: Counter[int] = Counter()
    turn = 0
    receive = Conversations.receive

    def count(self: Conversations, session: Any, connection: Any, meter: Any, message: bytes) -> None:
        packets = message.count(b'"type"')
        per_turn[turn] += len(message) + PACKET_BYTES * packets
        receive(self, session, connection, meter, message)

    monkeypatch.setattr(Conversations, "receive", count)

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        handle[0] = asyncio.get_running_loop().call_soon(next_turn)

    handle = [asyncio.get_running_loop().call_soon(next_turn)]
    clients: list[RawClient] = []
    async with running_node() as node:
        try:
            for _ in range(20):
                client = RawClient(node.url)
                clients.append(client)
                await client.connect()
                await client.hello()
            large = [publish(number, f"t/{number}", 31 * KIB) for number in (1, 2)]
            tiny = [{"type": "publish", "request": number, "topic": "a", "value": 1} for number in range(3, 503)]
            for client in clients:
                for packets in (large, [{"id": 3, **tiny[0]}, *tiny[1:]]):
                    await client.send_text(orjson.dumps(packets).decode())
            for client in clients:
                assert [(await client.expect("reply"))["request"] for _ in range(502)] == list(range(1, 503))
        finally:
            handle[0].cancel()
            for client in clients:
                await client.cut()
    largest = MESSAGE_BYTES + 500 * PACKET_BYTES
    assert max(per_turn.values()) <= TURN_BYTES + largest, "the work of a turn, and one message beyond"


async def test_what_is_repeated_when_the_grid_is_back_takes_turns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that could not be executed meanwhile may go on at the same moment; who wants little passes in front."""
    memory, back, turn = MemoryGridServer(), asyncio.Event(), 0
    begun: list[tuple[int, str, int]] = []
    clients: list[RawClient] = []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        handle[0] = asyncio.get_running_loop().call_soon(next_turn)

    handle = [asyncio.get_running_loop().call_soon(next_turn)]
    async with running_node(memory=memory) as node:
        store = node.gateway.node._context.grid.topics
        execute = store.publish

        async def noted(commands: Any) -> Any:
            begun.append((turn, commands[0].topic, sum(len(each.value) + REQUEST_BYTES for each in commands)))
            return await execute(commands)

        monkeypatch.setattr(store, "publish", noted)
        monkeypatch.setattr(node.gateway.node._store, "until_available", back.wait)
        try:
            for number in range(21):
                client = RawClient(node.url)
                clients.append(client)
                await client.connect()
                await client.hello()
                await client.send(publish(1, f"t/{number}", 10))
                assert "error" not in await client.expect("reply")
            memory.go_away()
            for number, client in enumerate(clients[:-1]):
                large = [publish(each, f"t/{number}", 30 * KIB, resubmitted=True) for each in (2, 3)]
                await client.send(large[0], {name: value for name, value in large[1].items() if name != "id"})
            await eventually(lambda: load(node) > 20 * 60 * KIB)
            await clients[-1].send(publish(2, "t/20", 10, resubmitted=True))
            await eventually(lambda: ("t/20", 10 + REQUEST_BYTES) in [each[1:] for each in begun[21:]])
            begun.clear()
            memory.come_back()
            back.set()
            for client in clients[:-1]:
                assert [(await client.expect("reply"))["request"] for _ in range(2)] == [2, 3]
            assert "error" not in await clients[-1].expect("reply")
        finally:
            handle[0].cancel()
            for client in clients:
                await client.cut()
    per_turn: Counter[int] = Counter()
    for at, _, size in begun:
        per_turn[at] += size
    assert sum(per_turn.values()) > 20 * 60 * KIB
    assert max(per_turn.values()) <= TURN_BYTES + RUN_BYTES + 32 * KIB, "the work of a turn, and one run beyond"
    in_front = [topic for _, topic, _ in begun].index("t/20")
    assert in_front <= 2 * TURN_BYTES // RUN_BYTES, "one that wants little need not wait for sixty that want much"


async def test_small_publishes_that_come_together_are_one_step_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published together is written together to each subscriber, which is what a busy node lives on."""
    async with running_node() as node, RawClient(node.url) as one:
        welcome = await one.hello()
        store = node.gateway.node._context.grid.topics
        publish_all = store.publish
        steps: list[int] = []

        async def counting(commands: Any) -> Any:
            steps.append(len(commands))
            return await publish_all(commands)

        monkeypatch.setattr(store, "publish", counting)
        most = welcome["limits"]["requests"]
        packets = [{"type": "publish", "request": 1 + each, "topic": "t", "value": each} for each in range(most)]
        await one.send_text(orjson.dumps([{"id": 1, **packets[0]}, *packets[1:]]).decode())
        for _ in range(most):
            assert "error" not in await one.expect("reply")
        assert steps == [most]


async def test_selectors_that_are_put_into_lists_during_a_turn_of_the_loop_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longest patterns take a quarter of a millisecond each, and one request may bring sixty."""
    per_turn: Counter[int] = Counter()
    turn = 0
    select = Selections.select

    def count(self: Selections, selector: Selector, work: Work | None = None) -> Selections:
        per_turn[turn] += len(selector.text)
        return select(self, selector, work)

    monkeypatch.setattr(Selections, "select", count)

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        handle[0] = asyncio.get_running_loop().call_soon(next_turn)

    handle = [asyncio.get_running_loop().call_soon(next_turn)]
    clients: list[RawClient] = []
    requests = 3
    async with running_node() as node:
        try:
            for number in range(10):
                client = RawClient(node.url)
                clients.append(client)
                await client.connect()
                await client.hello()
                for request in range(1, requests + 1):
                    keep = [f"m/{number}/{request}/{each}/*/**/{'/'.join(['x' * 60] * 12)}/**" for each in range(60)]
                    await client.send(
                        {"id": request, "type": "unsubscribe", "request": request, "selector": "**", "keep": keep}
                    )
            for client in clients:
                for _ in range(requests):
                    assert "error" not in await client.expect("reply")
            assert all(len(session.selections) == 60 for session in node.gateway.node.sessions)
        finally:
            handle[0].cancel()
            for client in clients:
                await client.cut()
    assert sum(per_turn.values()) > 10 * requests * 60 * 700
    assert max(per_turn.values()) <= TURN_BYTES // SELECTOR_COST + 1024, "the work of a turn, and one selector beyond"


async def test_a_message_that_waits_for_its_turn_is_heard_before_the_end_of_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_node() as node, RawClient(node.url) as one:
        welcome = await one.hello()
        conversations = node.gateway.node.connections._conversations
        session = node.gateway.node.sessions.get(welcome["session"])
        assert session is not None
        turns = conversations.turns
        waited: list[Any] = []
        turns.left = 0
        with monkeypatch.context() as busy:  # for as long as the test wants
            busy.setattr(Turns, "wait", lambda _, go_on, cost, principal: waited.append(go_on))
            await one.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a"})
            await eventually(lambda: len(waited) == 1)
            assert session.connection is not None
            node.gateway.node.sessions.close_connection(session.connection, GOING_AWAY)
            assert await one.closed() == GOING_AWAY.code
            assert session.newest == 0
            assert session.connected, "it has not said all it has said yet"
        turns.left = TURN_BYTES
        (go_on,) = waited
        go_on()
        assert session.newest == 1
        await eventually(lambda: not session.connected)
