"""Reading the values of many topics by calls: in order, page by page, at any node, and for a bounded cost."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.delivery import value_pages
from gateway.app.delivery.value_pages import ValuePages
from gateway.client import connect
from gateway.core.policy.revocations import RevocationKind
from gateway.core.topics.selectors import matches, parse_selector
from gateway.core.types import TopicPath
from gateway.ports import LIST_PATH
from tests.support.http_calls import ALICE, call
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer
from tests.support.times import PATIENCE

TREE = [f"{root}/{name}/{leaf}" for root in ("prices", "orders", "a-b") for name in range(9) for leaf in ("bid", "é 1")]
"""Some topics in several partitions."""


@pytest.fixture(
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("cluster", marks=[pytest.mark.redis, pytest.mark.thorough]),
    ]
)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[TestNode]:
    """A node that lets everybody do everything."""
    match request.param:
        case "memory":
            async with running_node() as node:
                yield node
        case "redis":
            with RedisServer() as redis:
                async with running_node(grid=redis.url) as node:
                    yield node
        case _:
            with RedisCluster() as cluster:
                async with running_node(grid=cluster.url) as node:
                    yield node


async def publish(node: TestNode, values: dict[str, object]) -> None:
    """Set topics."""
    items = [{"topic": topic, "value": value} for topic, value in values.items()]
    for start in range(0, len(items), 1000):
        status, told, _ = await call(node, body={"publish": items[start : start + 1000]})
        assert status == 200, told


async def ask(node: TestNode, *selectors: str, **query: object) -> tuple[int, dict[str, Any]]:
    """Ask for one page."""
    text = urlencode([("selector", each) for each in selectors] + list(query.items()))
    status, told, _ = await call(node, "GET", f"{LIST_PATH}?{text}")
    return status, told


async def page(node: TestNode, *selectors: str, **query: object) -> dict[str, Any]:
    """Read one page; while the node reads its copies, again, as a client does."""
    while True:
        status, told = await ask(node, *selectors, **query)
        if status != 503:
            assert status == 200, told
            return told


async def pages(nodes: list[TestNode], *selectors: str, **query: object) -> list[list[dict[str, Any]]]:
    """Read all pages, each at the next node."""
    found: list[list[dict[str, Any]]] = []
    while True:
        told = await page(nodes[len(found) % len(nodes)], *selectors, **query)
        found.append(told["values"])
        if "cursor" not in told:
            return found
        query["cursor"] = told["cursor"]


def topics_of(found: list[list[dict[str, Any]]]) -> list[str]:
    return [each["topic"] for some in found for each in some]


# --- What is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "selectors",
    [
        ("**",),
        ("prices/**",),
        ("prices/3/**", "prices/*/bid"),
        ("*/7/bid", "orders/1/bid", "prices/1/bid", "nothing/here"),
        ("orders/1/bid",),
        ("nothing/**",),
    ],
)
async def test_all_that_is_selected_is_read_once_and_in_order(node: TestNode, selectors: tuple[str, ...]) -> None:
    await publish(node, dict.fromkeys(TREE, 1))
    expected = sorted(each for each in TREE if any(matches(parse_selector(one), TopicPath(each)) for one in selectors))
    assert topics_of(await pages([node], *selectors)) == expected
    found = await pages([node], *selectors, limit=7)
    assert topics_of(found) == expected
    assert all(len(each) == 7 for each in found[:-1])


async def test_a_value_is_told_as_everywhere_else(node: TestNode) -> None:
    await publish(node, {"prices/a b": {"bid": 7}, "prices/b": None})
    (first, second) = (await page(node, "prices/*"))["values"]
    assert first == (await call(node, "GET", "/v1/values/prices/a%20b"))[1]
    assert second["value"] is None, "null is a value"


async def test_what_was_published_before_the_call_is_in_its_answer(node: TestNode) -> None:
    for number in range(20):
        await publish(node, {"count": number, "count/new": number, f"count/{number:02}": number})
        told = (await page(node, "count/**"))["values"]
        assert {each["value"] for each in told if each["topic"] in {"count", "count/new"}} == {number}
        assert [each["topic"] for each in told] == [
            "count",
            *(f"count/{each:02}" for each in range(number + 1)),
            "count/new",
        ]


async def test_removed_topics_are_not_there_and_come_back(node: TestNode) -> None:
    await publish(node, {"a/1": 1, "a/2": 2})
    await page(node, "a/*")
    await node.gateway.node.administration.topics.delete("a/1")
    assert topics_of([(await page(node, "a/*"))["values"]]) == ["a/2"]
    await publish(node, {"a/1": 3})
    assert topics_of([(await page(node, "a/*"))["values"]]) == ["a/1", "a/2"]


async def test_topics_of_the_system_are_named_by_their_root_alone(node: TestNode) -> None:
    await publish(node, {"a": 1})
    assert topics_of(await pages([node], "**")) == ["a"]
    assert (await ask(node, "$gateway/**"))[0] == 403


# --- Pages ------------------------------------------------------------------------------------------------------------


async def test_pages_go_on_at_another_node_while_topics_come_and_go() -> None:
    grid = MemoryGridServer()
    async with running_node("n1", memory=grid) as one, running_node("n2", memory=grid) as other:
        await publish(one, dict.fromkeys(TREE, 1))
        first = await page(one, "**", limit=10)
        gone, come = first["cursor"], first["cursor"] + "/new"
        await one.gateway.node.administration.topics.delete(gone)
        await publish(one, {come: 2, "a": 3})
        rest = await pages([other, one], "**", limit=5, cursor=first["cursor"])
    assert topics_of(rest) == [come, *sorted(TREE)[10:]], "what stands before the cursor is not read again"


async def test_a_page_has_a_bounded_number_of_bytes(node: TestNode) -> None:
    for number in range(30):
        await publish(node, {f"large/{number:03}": "x" * 20_000})
    found = await pages([node], "large/*")
    assert topics_of(found) == [f"large/{number:03}" for number in range(30)]
    assert {len(each) for each in found[:-1]} == {7}, "above 128 KiB a page ends"


async def test_a_page_has_a_thousand_values_at_most(node: TestNode) -> None:
    await publish(node, {f"many/{number:04}": number for number in range(2100)})
    assert [len(each) for each in await pages([node], "many/*", limit=5000)] == [1000, 1000, 100]


async def test_a_page_is_as_long_as_the_operator_lets_it_be() -> None:
    async with running_node(limit_page_values=10) as node:
        await publish(node, {f"many/{number:02}": number for number in range(25)})
        assert [len(each) for each in await pages([node], "many/*")] == [10, 10, 5]
        assert [len(each) for each in await pages([node], "many/*", limit=20)] == [10, 10, 5]
    async with running_node(limit_page_bytes=1024) as node:
        await publish(node, {f"large/{number}": "x" * 600 for number in range(4)})
        assert [len(each) for each in await pages([node], "large/*")] == [2, 2]


@pytest.mark.promise("P20")
async def test_a_node_reads_as_many_pages_at_once_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()
    find = ValuePages.find

    async def held(*given: Any, **named: Any) -> None:
        reading.set()
        await go_on.wait()
        await find(*given, **named)

    async with running_node(limit_node_pages=1) as node:
        await publish(node, {"a/1": 1})
        monkeypatch.setattr(ValuePages, "find", held)
        first = asyncio.create_task(call(node, "GET", f"{LIST_PATH}?selector=a/*"))
        await reading.wait()
        status, told, headers = await call(node, "GET", f"{LIST_PATH}?selector=a/*")
        go_on.set()
        assert (status, told["type"]) == (503, "urn:session-gateway:problem:try_later")
        assert told["detail"].startswith("limit_node_pages: this node reads 1 pages")
        assert told["detail"].endswith("try again")
        assert headers["retry-after"] == "1"
        assert (await first)[0] == 200
        assert (await call(node, "GET", f"{LIST_PATH}?selector=a/*"))[0] == 200


@pytest.mark.promise("P20")
async def test_a_page_looks_at_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_pages, "LOOKED_AT", 100)
    names = [f"many/{number:04}/{'rare' if number % 500 == 0 else 'usual'}" for number in range(1500)]
    async with running_node() as node:
        await publish(node, dict.fromkeys(names, 1))
        found = await pages([node], "many/*/rare")
    assert topics_of(found) == names[::500]
    assert len(found) >= 14, "pages are short, and some are empty, rather than long in coming"


@pytest.mark.promise("P20")
async def test_pages_take_turns_however_many_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever asks for many makes each turn of the loop as long as so many portions of them."""
    at_work = most = 0
    merge = ValuePages._merge

    async def counted(*given: Any, **named: Any) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        await merge(*given, **named)
        at_work -= 1

    monkeypatch.setattr(ValuePages, "_merge", counted)
    monkeypatch.setattr(value_pages, "PATIENCE", PATIENCE)
    async with running_node() as node:
        await publish(node, {f"many/{number:04}": 1 for number in range(1000)})
        answers = await asyncio.gather(*(call(node, "GET", f"{LIST_PATH}?selector=many/*") for _ in range(30)))
    assert {(status, len(told["values"])) for status, told, _ in answers} == {(200, 1000)}
    assert most == value_pages.PAGES_AT_ONCE


@pytest.mark.promise("P20")
async def test_others_are_served_while_very_many_topics_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not so much as a hundred topics are looked at between two turns of the loop."""
    monkeypatch.setattr(value_pages, "AT_ONCE", 50)
    async with running_node() as node:
        await publish(node, {f"many/{number:04}": 1 for number in range(3000)})
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(take_turns())
        await page(node, "many/*", "*/nothing")
        counting.cancel()
    assert turns > 3000 / 50 + 1000 / 50


async def test_copies_are_kept_from_page_to_page_and_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node:
        replicas = node.gateway.node.sessions.delivery.replicas
        await publish(node, dict.fromkeys(TREE, 1))
        before = len(replicas)
        await page(node, "prices/**", limit=1)
        copies = set(replicas)
        assert len(copies) == before + 1
        monkeypatch.setattr(value_pages, "LINGER", 0.0)
        await asyncio.gather(*(page(node, "prices/**", limit=1, cursor="prices/1") for _ in range(5)))
        await eventually(lambda: len(replicas) == before)
        async with await connect(node.url, principal="bob") as session:
            await session.subscribe("prices/**")
            await page(node, "prices/**")
            await asyncio.sleep(0)
            assert topics_of([(await page(node, "prices/0/*"))["values"]]) == ["prices/0/bid", "prices/0/é 1"]


# --- Who may ----------------------------------------------------------------------------------------------------------


POLICY = """
[roles.trader]
publish = ["**"]
select = ["prices/**", "orders/*/bid"]

[principals]
alice = ["trader"]
"""


@pytest.mark.promise("P19")
async def test_the_policy_counts_as_for_a_subscribe(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    async with running_node(policy=policy) as node:
        await publish(node, dict.fromkeys(TREE, 1))
        for allowed in ("prices/**", "prices/3/bid", "orders/*/bid", "orders/3/bid"):
            assert (await ask(node, allowed))[0] == 200, allowed
        for forbidden in (("**",), ("orders/**",), ("orders/3/é 1",), ("prices/**", "a-b/1/bid")):
            status, problem = await ask(node, *forbidden)
            assert (status, problem["type"]) == (403, "urn:session-gateway:problem:forbidden"), forbidden
        assert topics_of(await pages([node], "orders/*/bid")) == [f"orders/{number}/bid" for number in range(9)]


@pytest.mark.promise("P19", "P20")
async def test_a_cursor_names_no_topic_that_the_caller_may_not_select(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    monkeypatch.setattr(value_pages, "LOOKED_AT", 10)
    names = [f"orders/{number:03}/{leaf}" for number in range(200) for leaf in ("hidden", "secret")]
    names += ["orders/1/bid", "orders/090/bid"]
    async with running_node(policy=policy) as node:
        await publish(node, dict.fromkeys(names, 1))
        told: dict[str, Any] = {"cursor": None}
        found: list[str] = []
        while "cursor" in told:
            told = await page(node, "orders/*/bid", **({"cursor": told["cursor"]} if told["cursor"] else {}))
            assert told.get("cursor", "bid").endswith("bid")
            found += topics_of([told["values"]])
    assert found == ["orders/090/bid", "orders/1/bid"]


@pytest.mark.promise("P19")
async def test_who_is_nobody_or_revoked_reads_nothing(node: TestNode) -> None:
    await publish(node, {"a": 1})
    assert (await call(node, "GET", f"{LIST_PATH}?selector=a", headers={}))[0] == 401
    foreign = {**ALICE, "Origin": "https://evil.example"}
    assert (await call(node, "GET", f"{LIST_PATH}?selector=a", headers=foreign, is_json=False))[0] == 403
    await node.gateway.node.revocations.revoke(RevocationKind.PRINCIPAL, "alice", reason="a test says so")
    status, problem = await ask(node, "a")
    assert (status, problem["type"]) == (403, "urn:session-gateway:problem:revoked")


# --- What is wrong with a call, and what it costs ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("", "bad_request", "selector"),
        ("selector=", "bad_selector", "empty"),
        ("selector=a//b", "bad_selector", "empty"),
        ("selector=a*", "bad_selector", "whole segment"),
        ("selector=%ff", "bad_request", "query"),
        ("selector=a&limit=0", "bad_request", "limit"),
        ("selector=a&limit=-1", "bad_request", "limit"),
        ("selector=a&limit=1&limit=2", "bad_request", "once"),
        ("selector=a&cursor=b&cursor=c", "bad_request", "once"),
        ("selector=a&cursor=", "bad_request", "cursor"),
        ("selector=a&cursor=*", "bad_request", "cursor"),
        ("selector=a&after=b", "bad_request", "nothing else"),
        ("&".join(f"selector=a{number}" for number in range(21)), "bad_request", "20"),
        ("&".join(["selector=a"] * 60), "bad_request", "20"),
        ("&&&&", "bad_request", "query"),
    ],
)
async def test_a_call_that_cannot_be_understood_is_refused(query: str, code: str, said: str) -> None:
    async with running_node() as node:
        status, problem, _ = await call(node, "GET", f"{LIST_PATH}?{query}")
        assert (status, problem["type"]) == (400, f"urn:session-gateway:problem:{code}"), problem
        assert said in problem["detail"]
        assert (await call(node, "POST", LIST_PATH, body={}))[0] == 405


@pytest.mark.promise("P20")
async def test_many_topics_are_charged_and_others_are_served() -> None:
    async with running_node(rate_packets=20.0, rate_burst=60) as node:
        for number in range(0, 40, 10):
            items = [{"topic": f"many/{each:04}", "value": 1} for each in range(number, number + 10)]
            await call(node, body={"publish": items}, headers=named(f"writer-{number}"))
        answers = [await ask(node, "many/**") for _ in range(20)]
        limited = [told for status, told in answers if status == 429]
        assert limited
        assert "rate_packets" in limited[0]["detail"]
        assert (await call(node, "GET", f"{LIST_PATH}?selector=many/0001", headers=named("bob")))[0] == 200


async def test_while_the_grid_is_away_a_call_is_asked_to_come_again() -> None:
    grid = MemoryGridServer()
    async with running_node(memory=grid) as node:
        await publish(node, {"a": 1})
        await page(node, "**")
        grid.go_away()
        await eventually(lambda: bool(node.gateway.node.readiness.reasons()))
        for selector in ("a", "**"):
            status, problem = await ask(node, selector)
            assert (status, problem["type"]) == (503, "urn:session-gateway:problem:grid_unavailable"), selector


def named(principal: str) -> dict[str, str]:
    """Credentials of somebody else."""
    return {"Authorization": "Basic " + base64.b64encode(f"{principal}:".encode()).decode()}
