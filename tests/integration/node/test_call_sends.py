"""Sending to queues by calls of HTTP: once for each key, by the policy, within the bounds of the queue."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath
from gateway.core.wire.codec.sends import MOST_SENDS
from tests.support.http_calls import ALICE, Answer, call
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.redis_server import RedisServer
from tests.support.times import PATIENCE, time_limit

SEND = "/v1/send"
QUEUE = TopicPath("orders/new")


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[TestNode]:
    """A node with a queue, which lets everybody do everything."""
    if request.param == "memory":
        async with running_node() as node:
            await declare_queues(node, QUEUE)
            yield node
    else:
        with RedisServer() as redis:
            async with running_node(grid=redis.url) as node:
                await declare_queues(node, QUEUE)
                yield node


async def send(node: TestNode, *items: object, key: str = "") -> Answer:
    """Send several messages, under a key if one is given."""
    headers = {**ALICE, "Idempotency-Key": key} if key else ALICE
    return await call(node, path=SEND, body={"send": list(items)}, headers=headers)


async def ready(node: TestNode, queue: TopicPath = QUEUE) -> int:
    """Count the messages that wait in a queue."""
    state = await node.gateway.node._context.grid.queues.look(queue)
    return 0 if state is None else state.ready


@pytest.mark.promise("P15")
async def test_a_message_reaches_a_consumer_with_its_headers(node: TestNode) -> None:
    status, told, _ = await call(
        node, path=SEND, body={"queue": QUEUE, "value": {"order": 7}, "headers": {"kind": "new"}, "expires": 60}
    )
    assert status == 200
    async with await connect(node.url, principal="worker") as session, time_limit(PATIENCE):
        consumer = await session.consume(QUEUE)
        message = await anext(consumer)
    assert (message.value, message.headers) == ({"order": 7}, {"kind": "new"})
    assert told == {"queue": QUEUE, "message": message.id}


@pytest.mark.promise("P5")
async def test_a_call_with_a_key_sends_once_however_often_it_is_made(node: TestNode) -> None:
    items = [{"queue": QUEUE, "value": number} for number in range(250)]  # several steps of the grid
    answers = await asyncio.gather(*(send(node, *items, key="order-17") for _ in range(6)))
    assert {status for status, _, _ in answers} == {200}
    ids = [[each["message"] for each in told["results"]] for _, told, _ in answers]
    assert all(each == ids[0] for each in ids), "each call is told of the one execution"
    assert sum("repeated" not in each for _, told, _ in answers for each in told["results"]) == 250
    assert await ready(node) == 250


async def test_calls_without_a_key_all_send_and_none_is_taken_for_another(node: TestNode) -> None:
    """Steps of several calls are under way at the same time; numbers that overtake each other would count as sent."""
    items = [{"queue": QUEUE, "value": number} for number in range(150)]
    answers = await asyncio.gather(*(send(node, *items) for _ in range(8)))
    told = [each for _, answer, _ in answers for each in answer["results"]]
    assert not any("repeated" in each for each in told)
    assert len({each["message"] for each in told}) == 8 * 150 == await ready(node)


@pytest.mark.promise("P5")
async def test_another_node_knows_what_was_sent_and_a_key_has_one_body() -> None:
    grid = MemoryGridServer()
    item = {"queue": QUEUE, "value": 1}
    async with running_node("n1", memory=grid) as one, running_node("n2", memory=grid) as other:
        await declare_queues(one, QUEUE)
        await eventually(lambda: other.gateway.node.destinations.table.queue(QUEUE) is not None)
        first = (await send(one, item, key="k"))[1]["results"]
        again = (await send(other, item, key="k"))[1]["results"]
        assert again == [{**first[0], "repeated": True}]
        status, problem, _ = await send(other, {"queue": QUEUE, "value": 2}, key="k")
        assert (status, problem["type"]) == (422, "urn:session-gateway:problem:key_used")
        headers = {**ALICE, "Idempotency-Key": "k"}
        status, problem, _ = await call(other, body={"topic": "t", "value": 1}, headers=headers)
        assert status == 422, "a key of a send is none of a publish"
        assert await ready(one) == 1


@pytest.mark.promise("P5")
async def test_a_send_whose_answer_was_lost_is_executed_once() -> None:
    grid = MemoryGridServer()
    items = [{"queue": QUEUE, "value": number} for number in range(30)]
    async with running_node(memory=grid) as node:
        await declare_queues(node, QUEUE)
        grid.lose_answers(1)
        answers = [await send(node, *items, key="k")]
        while answers[-1][0] == 503:
            await eventually(lambda: not node.gateway.node.readiness.reasons())
            answers.append(await send(node, *items, key="k"))
        assert answers[-1][0] == 200
        assert await ready(node) == 30


async def test_a_full_queue_refuses_and_says_so_for_each_message() -> None:
    grid = MemoryGridServer()
    async with running_node(memory=grid) as node:
        node.gateway.node.destinations.table.put(
            Destination(selector=parse_selector(QUEUE), limits=QueueLimits(count=2), origin=Origin.FILE)
        )
        status, told, _ = await send(node, *({"queue": QUEUE, "value": number} for number in range(3)), key="k")
        assert status == 207
        assert [each.get("error", {}).get("code") for each in told["results"]] == [None, None, "queue_full"]
        status, problem, _ = await call(node, path=SEND, body={"queue": QUEUE, "value": 9})
        assert (status, problem["type"]) == (507, "urn:session-gateway:problem:queue_full")
        assert await ready(node) == 2


POLICY = """
[roles.sender]
send = ["orders/**"]

[principals]
alice = ["sender"]
"""


@pytest.mark.promise("P19")
async def test_the_policy_counts_as_for_sessions(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    async with running_node(policy=policy) as node:
        await declare_queues(node, QUEUE, "bills")
        assert (await send(node, {"queue": QUEUE, "value": 1}))[0] == 200
        status, problem, _ = await send(node, {"queue": QUEUE, "value": 1}, {"queue": "bills", "value": 1})
        assert status == 403
        assert "send[1]" in problem["detail"]
        bob = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode()}
        assert (await call(node, path=SEND, body={"queue": QUEUE, "value": 1}, headers=bob))[0] == 403
        assert await ready(node) == 1, "nothing was sent by the calls that were refused"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "bad_request"),
        ({"queue": QUEUE}, 400, "bad_request"),
        ({"queue": QUEUE, "value": 1, "topic": "t"}, 400, "bad_request"),
        ({"queue": QUEUE, "value": 1, "delay": -1}, 400, "bad_request"),
        ({"queue": QUEUE, "value": 1, "delay": 1e12}, 400, "bad_request"),
        ({"queue": QUEUE, "value": 1, "expires": 0}, 400, "bad_request"),
        ({"queue": QUEUE, "value": 1, "headers": {"a": 1}}, 400, "bad_request"),
        ({"queue": QUEUE, "value": 1, "headers": {str(each): "" for each in range(33)}}, 413, "value_too_large"),
        ({"queue": QUEUE, "value": "x" * 40_000}, 413, "value_too_large"),
        ({"queue": "orders/unknown", "value": 1}, 404, "no_such_queue"),
        ({"queue": "$shared/x", "value": 1}, 404, "no_such_queue"),
        ({"send": []}, 400, "bad_request"),
        ({"send": [{"queue": QUEUE, "value": 1}, 7]}, 400, "bad_request"),
        ({"send": [{"queue": QUEUE, "value": 1}] * (MOST_SENDS + 1)}, 400, "bad_request"),
    ],
)
async def test_a_body_that_is_wrong_sends_nothing(body: object, status: int, code: str) -> None:
    async with running_node(rate_packets=0) as node:
        await declare_queues(node, QUEUE)
        told = await call(node, path=SEND, body=body)
        assert (told[0], told[1]["type"]) == (status, f"urn:session-gateway:problem:{code}"), told[1]["detail"]
        assert await ready(node) == 0
        assert (await call(node, path=SEND, body={"queue": QUEUE, "value": 1}))[0] == 200, "the next one is served"


@pytest.mark.promise("P20")
async def test_who_sends_too_often_is_asked_to_wait_and_others_are_served() -> None:
    async with running_node(rate_packets=20.0, rate_burst=20) as node:
        await declare_queues(node, QUEUE)
        answers = [await send(node, {"queue": QUEUE, "value": number}, key=f"k{number}") for number in range(6)]
        assert [status for status, _, _ in answers].count(429) > 0
        bob = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode()}
        assert (await call(node, path=SEND, body={"queue": QUEUE, "value": 1}, headers=bob))[0] == 200
        assert (await call(node, "GET", SEND))[0] == 405
