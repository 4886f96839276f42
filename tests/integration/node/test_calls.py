"""Calls by HTTP, as back ends make them: who may, what is published, once for each key, and what costs whom."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.policy.revocations import RevocationKind
from gateway.core.topics.selectors import parse_selector
from gateway.ports import HISTORY_PATH, LIST_PATH, PUBLISH_PATH, SEND_PATH, STREAM_PATH, VALUES_PATH
from tests.support.http_calls import ALICE, call
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.redis_server import RedisServer


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[TestNode]:
    """A node that lets everybody do everything."""
    if request.param == "memory":
        async with running_node() as node:
            yield node
    else:
        with RedisServer() as redis:
            async with running_node(grid=redis.url) as node:
                yield node


# --- What is published ------------------------------------------------------------------------------------------------


async def test_a_published_value_reaches_subscribers_and_can_be_read(node: TestNode) -> None:
    async with await connect(node.url, principal="bob") as session:
        stream = await session.subscribe("prices/**")
        status, told, _ = await call(node, body={"topic": "prices/acme", "value": {"bid": 7}})
        update = await anext(aiter(stream))
    assert status == 200
    assert (told["topic"], told["version"], told["event"]) == ("prices/acme", update.version, update.event_id)
    assert update.value == {"bid": 7}
    status, read, _ = await call(node, "GET", "/v1/values/prices/acme")
    assert (status, read) == (200, {**told, "value": {"bid": 7}})


async def test_a_published_value_ends_when_its_call_says(node: TestNode) -> None:
    async with await connect(node.url, principal="bob") as session:
        stream = aiter(await session.subscribe("prices/**"))
        await call(node, body={"publish": [{"topic": "prices/a", "value": 1, "ttl": 0.01}]})
        updates = [await anext(stream) for _ in range(2)]
    assert [(each.value, each.removed) for each in updates] == [(1, False), (None, True)]
    assert (await call(node, "GET", "/v1/values/prices/a"))[0] == 404


async def test_many_topics_are_published_in_order(node: TestNode) -> None:
    items = [{"topic": f"many/{number % 7}", "value": number} for number in range(300)]
    status, told, _ = await call(node, body={"publish": items})
    assert status == 200
    assert [each["topic"] for each in told["results"]] == [each["topic"] for each in items]
    for topic in range(7):
        _, read, _ = await call(node, "GET", f"/v1/values/many/{topic}")
        assert read["value"] == max(number for number in range(300) if number % 7 == topic)


async def test_a_topic_may_have_any_characters(node: TestNode) -> None:
    assert (await call(node, body={"topic": "a b/ü?&", "value": 1}))[0] == 200
    status, read, _ = await call(node, "GET", "/v1/values/a%20b/%C3%BC%3F%26")
    assert (status, read["value"]) == (200, 1)
    assert (await call(node, "GET", "/v1/values/a%FF"))[0] == 400
    assert (await call(node, "GET", "/v1/values/nothing/here"))[0] == 404


# --- Exactly once for a key -------------------------------------------------------------------------------------------


@pytest.mark.promise("P5")
async def test_a_call_with_a_key_is_executed_once_however_often_and_wherever_it_is_made(node: TestNode) -> None:
    body = {"publish": [{"topic": f"once/{number}", "value": number} for number in range(20)]}
    headers = {**ALICE, "Idempotency-Key": "order-17"}
    answers = await asyncio.gather(*(call(node, body=body, headers=headers) for _ in range(8)))
    assert {status for status, _, _ in answers} == {200}
    receipts = [[(each["topic"], each["version"], each["event"]) for each in told["results"]] for _, told, _ in answers]
    assert all(each == receipts[0] for each in receipts), "each call is told of the one execution"
    executed = [sum("repeated" not in each for each in told["results"]) for _, told, _ in answers]
    assert sum(executed) == 20


@pytest.mark.promise("P5")
async def test_another_node_knows_what_was_executed() -> None:
    grid = MemoryGridServer()
    headers = {**ALICE, "Idempotency-Key": "k"}
    async with running_node("n1", memory=grid) as one, running_node("n2", memory=grid) as other:
        first = await call(one, body={"topic": "t", "value": 1}, headers=headers)
        again = await call(other, body={"topic": "t", "value": 1}, headers=headers)
    assert again[1] == {**first[1], "repeated": True}


async def test_a_key_belongs_to_one_body_and_to_one_principal(node: TestNode) -> None:
    headers = {**ALICE, "Idempotency-Key": "k"}
    assert (await call(node, body={"topic": "t", "value": 1}, headers=headers))[0] == 200
    status, problem, _ = await call(node, body={"topic": "t", "value": 2}, headers=headers)
    assert (status, problem["type"]) == (422, "urn:session-gateway:problem:key_used")
    assert (await call(node, "GET", "/v1/values/t"))[1]["value"] == 1
    bob = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode(), "Idempotency-Key": "k"}
    status, told, _ = await call(node, body={"topic": "t", "value": 3}, headers=bob)
    assert status == 200
    assert "repeated" not in told


@pytest.mark.promise("P5")
async def test_a_call_whose_answer_was_lost_is_executed_once() -> None:
    """The grid goes away in the middle; the call is repeated with its key until it is answered."""
    grid = MemoryGridServer()
    body = {"publish": [{"topic": f"a{number}/x", "value": number} for number in range(30)]}
    headers = {**ALICE, "Idempotency-Key": "k"}
    async with running_node(memory=grid) as node, await connect(node.url, principal="bob") as session:
        stream = await session.subscribe("**")
        grid.lose_answers(1)
        answers = [await call(node, body=body, headers=headers)]
        while answers[-1][0] == 503:
            await eventually(lambda: not node.gateway.node.readiness.reasons())
            answers.append(await call(node, body=body, headers=headers))
        assert answers[-1][0] == 200
        seen = [(await anext(aiter(stream))).value for _ in range(30)]
        await call(node, body={"topic": "end", "value": "end"})
        assert (await anext(aiter(stream))).value == "end", "nothing was published twice"
    assert sorted(seen) == list(range(30))


# --- Who may ----------------------------------------------------------------------------------------------------------


POLICY = """
[roles.publisher]
publish = ["orders/**"]
select = ["orders/**"]

[principals]
alice = ["publisher"]
"""


@pytest.mark.promise("P19")
async def test_the_policy_counts_as_for_sessions(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    async with running_node(policy=policy) as node:
        assert (await call(node, body={"topic": "orders/7", "value": 1}))[0] == 200
        assert (await call(node, "GET", "/v1/values/orders/7"))[0] == 200
        for topic in ("prices/acme", "orders"):
            items = [{"topic": "orders/8", "value": 1}, {"topic": topic, "value": 1}]
            status, problem, _ = await call(node, body={"publish": items})
            assert status == (200 if topic == "orders" else 403), problem
        assert (await call(node, "GET", "/v1/values/prices/acme"))[0] == 403
        bob = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode()}
        assert (await call(node, body={"topic": "orders/7", "value": 2}, headers=bob))[0] == 403
        assert (await call(node, "GET", "/v1/values/orders/7"))[1]["value"] == 1


@pytest.mark.promise("P19")
async def test_who_is_revoked_calls_in_vain(node: TestNode) -> None:
    await node.gateway.node.revocations.revoke(RevocationKind.PRINCIPAL, "alice", reason="a test says so")
    status, problem, _ = await call(node, body={"topic": "t", "value": 1})
    assert (status, problem["type"]) == (403, "urn:session-gateway:problem:revoked")


async def test_without_credentials_nothing_is_done(node: TestNode) -> None:
    status, problem, headers = await call(node, body={"topic": "t", "value": 1}, headers={})
    assert (status, problem["type"]) == (401, "urn:session-gateway:problem:unauthenticated")
    assert "Bearer" in headers["WWW-Authenticate"]
    for value in ("Basic !", "Basic YWxpY2U=", "Digest x", "Bearer"):
        assert (await call(node, body={"topic": "t", "value": 1}, headers={"Authorization": value}))[0] == 401
    assert (await call(node, "GET", "/v1/values/t"))[0] == 404, "nothing was published"


async def test_a_page_of_another_origin_is_refused(node: TestNode) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-origin"}):
        url = node.url.replace("/v1/connect", "/v1/values/t")
        async with aiohttp.ClientSession() as http, http.get(url, headers={**ALICE, **headers}) as answer:
            assert answer.status == 403
    assert (await call(node, data=b"{}", headers={**ALICE, "Content-Type": "text/plain"}))[0] == 415


# --- What is wrong with a call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"{", 400, "bad_request"),
        (b"[]", 400, "bad_request"),
        (b"{}", 400, "bad_request"),
        (b'{"topic": "a"}', 400, "bad_request"),
        (b'{"topic": "a", "value": 1, "qos": 2}', 400, "bad_request"),
        (b'{"topic": "a//b", "value": 1}', 400, "bad_topic"),
        (b'{"topic": "a", "value": 1, "ttl": -1}', 400, "bad_request"),
        (b'{"topic": "a", "value": 1, "ttl": 1e9}', 400, "bad_request"),
        (b'{"topic": "$gateway/x", "value": 1}', 403, "forbidden"),
        (b'{"publish": []}', 400, "bad_request"),
        (b'{"publish": [{"topic": "a", "value": 1}], "topic": "b"}', 400, "bad_request"),
        (b'{"publish": [{"topic": "ok", "value": 1}, 7]}', 400, "bad_request"),
        (b'{"topic": "a", "value": ' + b"[" * 200 + b"]" * 200 + b"}", 400, "bad_value"),
        (b'{"topic": "a", "value": "' + b"x" * 40_000 + b'"}', 413, "value_too_large"),
    ],
)
async def test_a_body_that_is_wrong_publishes_nothing(data: bytes, status: int, code: str) -> None:
    async with running_node() as node:
        told = await call(node, data=data)
        assert (told[0], told[1]["type"]) == (status, f"urn:session-gateway:problem:{code}"), told[1]["detail"]
        assert (await call(node, "GET", "/v1/values/ok"))[0] == 404
        assert (await call(node, body={"topic": "a", "value": 1}))[0] == 200, "the next one is served"


async def test_a_call_says_what_http_it_speaks() -> None:
    async with running_node() as node:
        assert (await call(node, "GET"))[0] == 405
        assert (await call(node, "POST", "/v1/values/t", body=1))[0] == 405
        long_key = {**ALICE, "Idempotency-Key": "k" * 256}
        assert (await call(node, body={"topic": "t", "value": 1}, headers=long_key))[0] == 400
        head = b"POST /v1/publish HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + authorization()
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        assert (await raw(node, chunked)).startswith(b"HTTP/1.1 411 ")
        too_long = head + b"Content-Length: 99999999\r\n\r\n"
        assert (await raw(node, too_long)).startswith(b"HTTP/1.1 413 ")
        two = http_request(b'{"topic": "t", "value": 1}')
        assert (await raw(node, two + two)).startswith(b"HTTP/1.1 400 "), "one request a connection"


def authorization() -> bytes:
    return f"Authorization: {ALICE['Authorization']}\r\n".encode()


def http_request(body: bytes, *, more: bytes = b"") -> bytes:
    head = b"POST /v1/publish HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + authorization() + more
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def raw(node: TestNode, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.gateway.port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


# --- How it comes -----------------------------------------------------------------------------------------------------


async def test_a_body_may_come_in_pieces_and_after_it_was_asked_for() -> None:
    request = http_request(b'{"topic": "t", "value": "' + b"x" * 20_000 + b'"}', more=b"Expect: 100-continue\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    async with running_node() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.gateway.port)
        writer.write(head + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for start in range(0, len(body), 7_000):
            writer.write(body[start : start + 7_000])
            await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


@pytest.mark.promise("P20")
async def test_who_hangs_up_before_its_body_leaves_nothing() -> None:
    async with running_node() as node:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", node.gateway.port)
            writer.write(http_request(b"x" * 1000)[:-500])
            await writer.drain()
            writer.close()
        await eventually(lambda: b'gateway_calls_total{outcome="abandoned"} 20' in node.gateway.metrics.render())
        calls = node.gateway.node.calls
        assert (calls._held, calls._held_in_all) == ({}, 0)
        await eventually(lambda: not node.gateway._clients._tasks)


@pytest.mark.promise("P20")
async def test_who_calls_too_often_is_asked_to_wait() -> None:
    async with running_node(rate_packets=20.0, rate_burst=20) as node:
        answers = [await call(node, body={"topic": "t", "value": number}) for number in range(12)]
        refused = [(told, headers) for status, told, headers in answers if status == 429]
        assert refused
        assert "rate_packets" in refused[0][0]["detail"]
        assert int(refused[0][1]["Retry-After"]) >= 1
        bob = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode()}
        assert (await call(node, body={"topic": "t", "value": 0}, headers=bob))[0] == 200, "others are served"


async def test_while_the_grid_is_away_a_call_is_asked_to_come_again() -> None:
    grid = MemoryGridServer()
    async with running_node(memory=grid) as node:
        grid.go_away()
        await eventually(lambda: bool(node.gateway.node.readiness.reasons()))
        status, problem, headers = await call(node, body={"topic": "t", "value": 1})
        assert (status, problem["type"]) == (503, "urn:session-gateway:problem:grid_unavailable")
        assert "Retry-After" in headers


# --- History ----------------------------------------------------------------------------------------------------------


def keep_history(node: TestNode, selector: str = "log/**", count: int = 100_000) -> None:
    """Say at a node that topics have history."""
    limits = HistoryLimits(count=count, age=3600.0, bytes=8 * 1024**2)
    node.gateway.node.destinations.table.put(
        Destination(selector=parse_selector(selector), limits=limits, origin=Origin.FILE)
    )


async def read_history(node: TestNode, path: str) -> dict[str, Any]:
    status, told, _ = await call(node, "GET", f"/v1/history/{path}")
    assert status == 200, told
    return told


@pytest.mark.promise("P14")
async def test_history_is_read_in_parts_each_event_once_and_in_order(node: TestNode) -> None:
    keep_history(node)
    items = [{"topic": f"log/{number % 3}", "value": number} for number in range(700)]
    _, told, _ = await call(node, body={"publish": items})
    published = {each["event"]: item["value"] for each, item in zip(told["results"], items, strict=True)}
    read: list[dict[str, Any]] = []
    part: dict[str, Any] = {"after": "", "complete": False}
    while not part["complete"]:
        part = await read_history(node, f"log/**?limit=90&after={part['after']}")
        assert 0 < len(part["events"]) <= 90
        assert "gap" not in part
        read += part["events"]
    assert {each["event"]: each["value"] for each in read} == published
    for topic in range(3):
        values = [each["value"] for each in read if each["topic"] == f"log/{topic}"]
        assert values == list(range(topic, 700, 3))

    assert (await read_history(node, f"log/**?after={part['after']}"))["events"] == []
    now = await read_history(node, "log/0?from=now")
    await call(node, body={"topic": "log/0", "value": "later"})
    assert [each["value"] for each in (await read_history(node, f"log/0?after={now['after']}"))["events"]] == ["later"]


async def test_history_tells_removals_current_values_and_gaps(node: TestNode) -> None:
    keep_history(node, count=2)
    await call(node, body={"topic": "plain/a", "value": {"bid": 1}})
    (plain,) = (await read_history(node, "plain/**"))["events"]
    assert (plain["value"], plain["snapshot"]) == ({"bid": 1}, True)

    _, first, _ = await call(node, body={"topic": "log/a", "value": 0})
    for value in range(1, 5):
        await call(node, body={"topic": "log/a", "value": value})
    await node.gateway.node.administration.topics.delete("log/a")  # which removes its history, too
    part = await read_history(node, f"log/a?after={first['event']}")
    assert [(each["value"], each.get("removed")) for each in part["events"]] == [
        (None, True)
    ]  # an operator who removes a topic removes its history
    assert (part["gap"], part["missing"]) == (True, ["log/a"])


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("log/a?after=soon", "bad_request", "after"),
        ("log/a?after=17-1-88,17-1-89", "bad_request", "after"),
        ("log/a?limit=-1", "bad_request", "limit"),
        ("log/a?limit=1&limit=2", "bad_request", "once"),
        ("log/a?until=now", "bad_request", "after, from, limit"),
        ("log/a?from=yesterday", "bad_request", "earliest"),
        ("log/a?&&&&", "bad_request", "query"),
        ("log//a", "bad_selector", "empty"),
        ("log/%ff", "bad_topic", "UTF-8"),
    ],
)
async def test_a_reading_of_history_that_cannot_be_understood_is_refused(path: str, code: str, said: str) -> None:
    async with running_node() as node:
        status, problem, _ = await call(node, "GET", f"/v1/history/{path}")
    assert (status, problem["type"]) == (400, f"urn:session-gateway:problem:{code}")
    assert said in problem["detail"]


async def test_who_may_not_select_topics_cannot_read_their_history() -> None:
    async with running_node() as node:
        status, problem, _ = await call(node, "GET", "/v1/history/$gateway/nodes")
        assert (status, problem["type"]) == (403, "urn:session-gateway:problem:forbidden")
        assert (await call(node, "POST", "/v1/history/log/a", body={}))[0] == 405
        assert (await call(node, "GET", "/v1/history/log/a", headers={}))[0] in {401, 503}


# --- The description --------------------------------------------------------------------------------------------------


def test_the_description_for_programs_and_the_page_list_the_same_statuses() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "reference"
    described = json.loads((folder / "client-api.json").read_text())
    assert set(described["paths"]) == {
        PUBLISH_PATH,
        SEND_PATH,
        STREAM_PATH,
        LIST_PATH,
        f"{VALUES_PATH}{{topic}}",
        f"{HISTORY_PATH}{{selector}}",
    }
    statuses = {
        int(status) for path in described["paths"].values() for each in path.values() for status in each["responses"]
    }
    page = (folder / "client-api.md").read_text()
    listed = {int(status) for status in re.findall(r"^\| (\d{3}) \|", page, re.MULTILINE)}
    assert statuses == listed | {200, 207}
