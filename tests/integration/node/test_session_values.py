"""Reading values over a session: pages in order, judged and charged as a subscribe; nothing is kept (protocol 6.7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.delivery import value_pages
from gateway.app.delivery.value_pages import NotReadYet, ValuePages
from gateway.app.requests import values as requests_values
from gateway.app.requests.subscribe import TOPICS_PER_PACKET
from gateway.app.session.subject import Subject
from gateway.client import Forbidden, RequestRefused, Session, ValuesPage, connect
from gateway.core.topics.selectors import matches, parse_selector
from gateway.core.types import SessionId, TopicPath
from gateway.ports import LIST_PATH
from tests.integration.node.test_call_values import POLICY, TREE
from tests.support.http_calls import call
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.redis_server import RedisServer
from tests.support.times import PATIENCE, time_limit


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[TestNode]:
    """A node that lets everybody do everything."""
    if request.param == "memory":
        async with running_node() as node:
            yield node
        return
    with RedisServer() as redis:
        async with running_node(grid=redis.url) as node:
            yield node


async def publish(session: Session, topics: list[str], value: object = 1) -> None:
    """Set topics to one value."""
    await asyncio.gather(*(session.publish(topic, value) for topic in topics))


async def pages(session: Session, selector: str, limit: int | None = None) -> list[ValuesPage]:
    """Read all pages."""
    found = [await session.values(selector, limit=limit)]
    while found[-1].next is not None:
        found.append(await session.values(selector, found[-1].next, limit))
    return found


def topics_of(found: list[ValuesPage]) -> list[str]:
    return [each.topic for page in found for each in page.values]


# --- What is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["**", "prices/**", "*/7/bid", "orders/1/bid", "nothing/**"])
async def test_all_that_is_selected_is_read_once_and_in_order(node: TestNode, selector: str) -> None:
    expected = sorted(each for each in TREE if matches(parse_selector(selector), TopicPath(each)))
    async with connect(node.url, "alice") as session:
        await publish(session, TREE)
        assert topics_of(await pages(session, selector)) == expected
        found = await pages(session, selector, limit=7)
        assert topics_of(found) == expected
        assert all(len(each.values) == 7 for each in found[:-1])


async def test_a_value_is_what_was_published_and_what_a_call_tells(node: TestNode) -> None:
    async with connect(node.url, "alice") as session:
        for number in range(20):
            receipt = await session.publish("count/a b", {"number": number})
            (value,) = (await session.values("count/**")).values
            assert (value.value, value.version) == ({"number": number}, receipt.version)
            assert value.event_id == receipt.event_id
        (value,) = (await session.values("count/**")).values
        _, told, _ = await call(node, "GET", f"{LIST_PATH}?selector=count/**")
    assert told == {
        "values": [{"topic": "count/a b", "version": value.version, "event": value.event_id, "value": value.value}]
    }


async def test_nothing_is_selected_and_nothing_follows(node: TestNode) -> None:
    async with connect(node.url, "alice") as session, connect(node.url, "bob") as writer:
        await writer.publish("a/1", 1)
        await session.values("a/**")
        held = node.gateway.node.sessions.get(SessionId(session.id))
        assert held is not None
        assert not held.selections.entries
        await writer.publish("a/1", 2)
        assert [each.value for each in (await session.values("a/**")).values] == [2]
        assert held.machine.last_numbered == 2, "the two replies, and no update"


async def test_a_page_has_a_bounded_number_of_bytes_and_values(node: TestNode) -> None:
    async with connect(node.url, "alice") as session:
        await publish(session, [f"large/{number:03}" for number in range(30)], "x" * 20_000)
        found = await pages(session, "large/*")
        assert {len(each.values) for each in found[:-1]} == {7}, "above 128 KiB a page ends"
        assert len(topics_of(found)) == 30
    async with running_node(limit_page_values=10) as other, connect(other.url, "alice") as session:
        await publish(session, [f"many/{number:02}" for number in range(25)])
        assert [len(each.values) for each in await pages(session, "many/*", limit=20)] == [10, 10, 5]


async def test_requests_take_effect_in_order(node: TestNode) -> None:
    """A page has what its session asked for before, and nothing of what it asked for later."""
    async with connect(node.url, "alice") as session:
        before = asyncio.create_task(session.publish("a/1", "before"))
        page = asyncio.create_task(session.values("a/*"))
        after = asyncio.create_task(session.publish("a/1", "after"))
        await asyncio.gather(before, page, after)
        assert [each.value for each in (await page).values] == ["before"]


# --- Who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P19")
async def test_the_policy_counts_as_for_a_subscribe(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    async with running_node(policy=policy) as node, connect(node.url, "alice") as session:
        await publish(session, TREE)
        for forbidden in ("**", "orders/**", "orders/3/é 1", "a-b/1/bid"):
            with pytest.raises(Forbidden) as refused:
                await session.values(forbidden)
            with pytest.raises(Forbidden) as refused_likewise:
                await session.subscribe(forbidden)
            assert str(refused.value) == str(refused_likewise.value)
        assert topics_of(await pages(session, "orders/*/bid")) == [f"orders/{number}/bid" for number in range(9)]


@pytest.mark.promise("P19", "P20")
async def test_a_page_names_no_topic_that_may_not_be_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    monkeypatch.setattr(value_pages, "LOOKED_AT", 10)
    names = [f"orders/{number:03}/{leaf}" for number in range(60) for leaf in ("hidden", "secret")]
    async with running_node(policy=policy) as node, connect(node.url, "alice") as session:
        await publish(session, [*names, "orders/1/bid", "orders/090/bid"])
        found = await pages(session, "orders/*/bid")
    assert topics_of(found) == ["orders/090/bid", "orders/1/bid"]
    assert all(each.next is None or each.next.endswith("bid") for each in found)


@pytest.mark.promise("P19")
async def test_what_is_withdrawn_meanwhile_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    find = ValuePages.find
    async with running_node(policy=policy) as node, connect(node.url, "alice") as session:
        await session.publish("prices/1", 1)
        held = node.gateway.node.sessions.get(SessionId(session.id))
        assert held is not None

        async def withdrawn(*given: Any, **named: Any) -> None:
            await find(*given, **named)
            monkeypatch.setattr(ValuePages, "find", find)
            policy.write_text(POLICY.replace('"prices/**", ', ""))
            node.gateway.reload()
            await eventually(lambda: not held.permissions.may_receive(TopicPath("prices/1")))

        monkeypatch.setattr(ValuePages, "find", withdrawn)
        with pytest.raises(Forbidden):
            await session.values("prices/**")


# --- What it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P20")
async def test_a_page_is_charged_by_the_topics_that_it_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    charged: list[float] = []
    async with running_node() as node, connect(node.url, "alice") as session:
        await publish(session, [f"many/{number:04}" for number in range(800)])
        limits = node.gateway.node._context.limits
        charge = limits.charge_work

        def charge_and_tell(who: Subject, effort: float) -> None:
            charged.append(effort)
            charge(who, effort)

        monkeypatch.setattr(limits, "charge_work", charge_and_tell)
        await session.values("many/*")
        first = sum(charged)
        charged.clear()
        await session.values("many/0001")
    assert first >= 800 // TOPICS_PER_PACKET
    assert sum(charged) == 0, "a single topic is read for the packet that it is"


@pytest.mark.promise("P20")
async def test_what_pages_cost_is_paid_off_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    resting, go_on = asyncio.Event(), asyncio.Event()

    async def rest(session: Subject, clock: object) -> None:
        if session.principal == "alice":
            resting.set()
            await go_on.wait()

    monkeypatch.setattr(requests_values, "rest", rest)
    async with running_node() as node, connect(node.url, "alice") as session, connect(node.url, "bob") as other:
        await publish(session, [f"many/{number:04}" for number in range(400)])
        page = asyncio.create_task(session.values("many/*"))
        await resting.wait()
        assert len((await other.values("many/*")).values) == 400
        assert not page.done()
        go_on.set()
        assert len((await page).values) == 400


@pytest.mark.promise("P20")
async def test_sessions_wait_for_their_place_among_the_pages_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()
    find = ValuePages.find
    at_work = most = 0

    async def held(*given: Any, **named: Any) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        reading.set()
        await go_on.wait()
        await find(*given, **named)
        at_work -= 1

    async with (
        running_node(limit_node_pages=1) as node,
        connect(node.url, "alice") as one,
        connect(node.url, "bob") as other,
    ):
        await one.publish("a/1", 1)
        monkeypatch.setattr(ValuePages, "find", held)
        first = asyncio.create_task(one.values("a/*"))
        await reading.wait()
        second = asyncio.create_task(other.values("a/*"))
        status, _, _ = await call(node, "GET", f"{LIST_PATH}?selector=a/*")
        assert status == 503, "a call comes again, and does not wait"
        go_on.set()
        async with time_limit(PATIENCE):
            assert [len((await each).values) for each in (first, second)] == [1, 1]
    assert most == 1


def have_not_read(monkeypatch: pytest.MonkeyPatch, times: int) -> list[None]:
    """Have so many pages come before the node has read its copies; returns what has an entry for each that is tried."""
    find = ValuePages.find
    tries: list[None] = []

    async def not_yet(*given: Any, **named: Any) -> None:
        tries.append(None)
        if len(tries) <= times:
            raise NotReadYet
        await find(*given, **named)

    monkeypatch.setattr(ValuePages, "find", not_yet)
    return tries


async def test_a_page_waits_for_the_copies_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node, connect(node.url, "alice") as session:
        await session.publish("a/1", 1)
        tries = have_not_read(monkeypatch, 3)
        assert topics_of([await session.values("a/*")]) == ["a/1"]
        assert len(tries) == 4


async def test_a_page_that_is_long_in_coming_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_values, "RETRY_AFTER", 0.01)
    async with running_node() as node, connect(node.url, "alice") as session:
        await session.publish("a/1", 1)
        tries = have_not_read(monkeypatch, requests_values.ATTEMPTS)
        async with time_limit(PATIENCE):
            assert topics_of([await session.values("a/*")]) == ["a/1"]
            assert (await session.publish("a/1", 2)).version == 2
        assert len(tries) == requests_values.ATTEMPTS + 1


async def test_while_the_grid_is_away_a_page_waits() -> None:
    grid = MemoryGridServer()
    async with running_node(memory=grid) as node, connect(node.url, "alice") as session:
        await session.publish("a/1", 1)
        grid.go_away()
        await eventually(lambda: bool(node.gateway.node.readiness.reasons()))
        page = asyncio.create_task(session.values("a/*"))
        await eventually(lambda: session._supervisor._machine.unanswered > 0 or page.done())
        grid.come_back()
        async with time_limit(PATIENCE):
            assert topics_of([await page]) == ["a/1"]


async def test_a_place_that_is_none_is_refused_by_the_node_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.values.parse_topic", lambda text: text)
    async with running_node() as node, connect(node.url, "alice") as session:
        with pytest.raises(RequestRefused, match="'after' is no 'next'"):
            await session.values("a", "a/*")
