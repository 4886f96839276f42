"""Streams of server-sent events: what comes in which order, from where on, for whom, and what a reader may cost."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.core.policy.revocations import RevocationKind
from gateway.settings import JwtUsers
from tests.support.event_streams import reading
from tests.support.http_calls import ALICE, call
from tests.support.issuers import AUDIENCE, ISSUER, SECRET, token
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.redis_server import RedisServer
from tests.support.times import PATIENCE, scaled, time_limit

BOB = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode()}


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[TestNode]:
    """A node that lets everybody do everything."""
    if request.param == "memory":
        async with running_node(rate_packets=0) as node:
            yield node
    else:
        with RedisServer() as redis:
            async with running_node(grid=redis.url, rate_packets=0) as node:
                yield node


async def publish(node: TestNode, *values: tuple[str, object]) -> None:
    items = [{"topic": topic, "value": value} for topic, value in values]
    status, told, _ = await call(node, body={"publish": items})
    assert status == 200, told


def streams(node: TestNode) -> int:
    return len(node.gateway.node.sessions.readers)


def ended(node: TestNode, reason: str) -> bool:
    return f'gateway_streams_ended_total{{reason="{reason}"}} 1'.encode() in node.gateway.metrics.render()


# --- What comes -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P6")
async def test_current_values_come_first_and_then_each_update_in_order(node: TestNode) -> None:
    await publish(node, ("prices/a", 1), ("prices/b", {"bid": 2}), ("other", 0))
    async with time_limit(PATIENCE), reading(node.url, "prices/**", "status") as reader:
        assert reader.status == 200
        assert reader.headers["Content-Type"] == "text/event-stream"
        first, *values, complete = await reader.until("complete")
        assert (first.kind, first.data) == ("open", {"node": "n1"})
        assert reader.retry is not None
        assert reader.retry >= 500
        assert {each.data["topic"]: (each.data["value"], each.data["snapshot"]) for each in values} == {
            "prices/a": (1, True),
            "prices/b": ({"bid": 2}, True),
        }
        assert complete.id
        await publish(node, *(("prices/a", number) for number in range(10, 30)), ("other", 1), ("status", "ü\n"))
        updates = [await reader.next() for _ in range(21)]
    assert [each.data["value"] for each in updates if each.data["topic"] == "prices/a"] == list(range(10, 30))
    assert [each.data["value"] for each in updates if each.data["topic"] == "status"] == ["ü\n"]
    assert all("snapshot" not in each.data and each.data["event"] in each.id for each in updates)
    await eventually(lambda: streams(node) == 0)
    assert ended(node, "left")


async def test_a_topic_that_is_removed_is_told(node: TestNode) -> None:
    await publish(node, ("t", 1))
    async with time_limit(PATIENCE), reading(node.url, "t") as reader:
        await reader.until("complete")
        await node.gateway.node.administration.topics.delete("t")
        event = await reader.next()
    assert (event.data["removed"], event.data["value"]) == (True, None)


# --- From where on ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P13")
async def test_who_comes_back_gets_what_was_missed_and_nothing_twice(node: TestNode) -> None:
    async with time_limit(PATIENCE), reading(node.url, "a/*", "b/*") as reader:
        await reader.until("complete")
        await publish(node, *((f"{root}/x", number) for number in range(5) for root in "ab"))
        seen = [await reader.next() for _ in range(7)]  # and is cut in the middle of what came
    last = seen[-1].id
    await publish(node, *((f"{root}/x", number) for number in range(5, 9) for root in "ab"))
    async with time_limit(PATIENCE), reading(node.url, "a/*", "b/*", after=last) as reader:
        first = await reader.next()
        assert first.data == {"node": "n1", "replayed": True}
        seen += [await reader.next() for _ in range(11)]
        await publish(node, ("a/x", "live"))
        live = await reader.next()
        assert live.data["value"] == "live"
        assert reader.last_id == live.id
    for root in "ab":
        values = [each.data["value"] for each in seen if each.data["topic"] == f"{root}/x"]
        assert values == list(range(9)), "each once, and in order"
    assert not any(each.data.get("snapshot") for each in seen)


@pytest.mark.promise("P13")
async def test_the_place_may_be_given_in_the_url_and_the_header_counts_more(node: TestNode) -> None:
    async with time_limit(PATIENCE), reading(node.url, "t") as reader:
        await reader.until("complete")
        await publish(node, ("t", 1), ("t", 2))
        places = [(await reader.next()).id for _ in range(2)]
    async with time_limit(PATIENCE), reading(node.url, "t", after=places[1], in_url=places[0]) as reader:
        assert (await reader.next()).data["replayed"] is True
        await publish(node, ("t", 3))
        assert (await reader.next()).data["value"] == 3


@pytest.mark.promise("P13")
async def test_a_quiet_reader_is_told_how_far_it_is_and_no_retention_leaves_it_behind() -> None:
    """What is published in its partition to topics that it does not read moves its place, too."""
    async with running_node(ping_interval=0.2, ping_timeout=5.0, replay_events=50, rate_packets=0) as node:
        async with time_limit(PATIENCE), reading(node.url, "root/quiet") as reader:
            await reader.until("complete")
            before = reader.last_id
            await publish(node, *((f"root/busy{number % 150}", number) for number in range(900)))
            waiting = asyncio.ensure_future(reader.next())
            await eventually(lambda: reader.last_id != before and reader.bare_ids > 0)
            place = reader.last_id
            waiting.cancel()
        async with time_limit(PATIENCE), reading(node.url, "root/**", after=place) as reader:
            assert (await reader.next()).data["replayed"] is True


@pytest.mark.promise("P2")
async def test_what_cannot_be_replayed_is_told_and_current_values_follow() -> None:
    async with running_node(replay_events=10, rate_packets=0) as node:
        await publish(node, ("g/a", 0))
        async with time_limit(PATIENCE), reading(node.url, "g/**") as reader:
            (*_, complete) = await reader.until("complete")
        await publish(node, *(("g/a", number) for number in range(1, 40)))
        async with time_limit(PATIENCE), reading(node.url, "g/**", after=complete.id) as reader:
            first, gap, value, end = [await reader.next() for _ in range(4)]
        (partition,) = gap.data["partitions"]
        assert first.data["replayed"] == {str(partition): "too_many"}
        assert (gap.kind, gap.id) == ("gap", "")
        assert (value.data["value"], value.data["snapshot"]) == (39, True)
        assert end.kind == "complete"
        assert end.id


@pytest.mark.promise("P2")
@pytest.mark.promise("P10")
async def test_readers_are_told_when_the_grid_has_lost_writes() -> None:
    grid = MemoryGridServer()
    async with running_node(memory=grid, rate_packets=0) as node:
        await publish(node, ("t", 1))
        async with time_limit(PATIENCE), reading(node.url, "t") as reader:
            (*_, before) = await reader.until("complete")
            grid.go_away()
            grid.come_back(emptied=True)
            (gap,) = await reader.until("gap")
            assert gap.id == ""
            (*values, complete) = await reader.until("complete")
            assert [each.data["value"] for each in values if each.kind == "message"] in ([1], [])
            assert complete.id.split("-")[1] > before.id.split("-")[1], "a place in the new generation"
            await eventually(lambda: not node.gateway.node.readiness.reasons())
            await publish(node, ("t", 2))
            assert (await reader.next()).data["value"] == 2


@pytest.mark.promise("P13")
async def test_another_node_goes_on_where_this_one_stopped() -> None:
    grid = MemoryGridServer()
    async with running_node("n1", memory=grid) as one, running_node("n2", memory=grid) as other:
        async with time_limit(PATIENCE), reading(one.url, "t") as reader:
            await reader.until("complete")
            await publish(other, ("t", 1))
            seen = [await reader.next()]
        await publish(one, ("t", 2), ("t", 3))
        async with time_limit(PATIENCE), reading(other.url, "t", after=seen[-1].id) as reader:
            assert (await reader.next()).data == {"node": "n2", "replayed": True}
            seen += [await reader.next() for _ in range(2)]
    assert [each.data["value"] for each in seen] == [1, 2, 3]


@pytest.mark.promise("P12")
async def test_a_drain_ends_streams_and_says_when_to_come_back() -> None:
    grid = MemoryGridServer()
    async with running_node("n1", memory=grid) as one, running_node("n2", memory=grid) as other:
        await publish(one, ("t", 1))
        async with time_limit(PATIENCE), reading(one.url, "t") as reader:
            await reader.until("complete")
            one.gateway.node.begin_drain()
            (end,) = await reader.until("end")
            assert end.data["code"] == "draining"
            with pytest.raises(StopAsyncIteration):
                await reader.next()
        assert ended(one, "draining")
        await publish(other, ("t", 2))
        async with time_limit(PATIENCE), reading(one.url, "t", after=reader.last_id) as refused:
            assert refused.status == 503
        async with time_limit(PATIENCE), reading(other.url, "t", after=reader.last_id) as reader:
            assert (await reader.next()).data["replayed"] is True
            assert (await reader.next()).data["value"] == 2


# --- Who may ----------------------------------------------------------------------------------------------------------

POLICY = """
[roles.reader]
select = ["{what}"]

[principals]
alice = ["reader"]
"""


@pytest.mark.promise("P19")
async def test_the_policy_counts_also_when_it_changes(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(what="orders/**"))
    async with running_node(policy=policy) as node, time_limit(PATIENCE):
        for selectors in (["**"], ["orders/**", "prices/a"]):
            async with reading(node.url, *selectors) as refused:
                assert refused.status == 403
                assert "may not select" in (await refused.problem())["detail"]
        async with reading(node.url, "orders/**") as refused, reading(node.url, "orders/**", headers=BOB) as bob:
            assert (refused.status, bob.status) == (200, 403)
        async with reading(node.url, "orders/*") as reader:
            await reader.until("complete")
            policy.write_text(POLICY.format(what="orders/7"))
            node.gateway.reload()
            (end,) = await reader.until("end")
            assert end.data["code"] == "forbidden"
        async with reading(node.url, "orders/7") as reader:
            assert reader.status == 200
            await reader.until("complete")
            await node.gateway.node.revocations.revoke(RevocationKind.PRINCIPAL, "alice", reason="a test says so")
            (end,) = await reader.until("end")
            assert end.data["code"] == "revoked"
        async with reading(node.url, "orders/7") as refused:
            assert refused.status == 403
        assert streams(node) == 0


async def test_a_stream_ends_with_its_credentials(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET, "utf-8")
    issuer = f'issuer = "{ISSUER}"\naudience = ["{AUDIENCE}"]\nalgorithms = ["HS256"]\nsecret_file = "secret"\n'
    (tmp_path / "jwt.toml").write_text(f"{issuer}leeway = 0\n", "utf-8")
    now = time.time()
    shown = {"Authorization": f"Bearer {token('HS256', iat=now - 1, exp=now + scaled(1.0))}"}
    async with running_node(auth=JwtUsers(tmp_path / "jwt.toml")) as node, time_limit(PATIENCE):
        async with reading(node.url, "t", headers=shown) as reader:
            (*_, end) = await reader.until("end")
            assert end.data["code"] == "credentials_expired"
            assert shown["Authorization"][7:] not in str(node.log.events), "no token is logged"
        async with reading(node.url, "t", headers=shown) as refused:
            assert refused.status == 401


async def test_pages_of_allowed_origins_may_read_and_others_may_not() -> None:
    page = {"Origin": "https://app.example"}
    async with running_node(origins=("https://app.example", "http://here")) as node, time_limit(PATIENCE):
        async with reading(node.url, "t", headers={**ALICE, **page}) as reader:
            assert reader.headers["Access-Control-Allow-Origin"] == "https://app.example"
            assert reader.headers["Vary"] == "Origin"
            assert "Access-Control-Allow-Credentials" not in reader.headers, "no cookie shall count"
        async with reading(node.url, "t", headers=page) as refused:
            assert refused.status in {401, 503}
            assert refused.headers["Access-Control-Allow-Origin"] == "https://app.example", "the page can read why"
        for sent in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}):
            async with reading(node.url, "t", headers={**ALICE, **sent}) as refused:
                assert refused.status == 403
                assert "Access-Control-Allow-Origin" not in refused.headers
        same = {**ALICE, "Sec-Fetch-Site": "same-origin"}
        async with reading(node.url, "t", headers={**same, "Host": "here"}) as reader:
            assert reader.status == 200, "a page at the same address names no origin"
        async with reading(node.url, "t", headers={**same, "Host": "rebound.example"}) as refused:
            assert refused.status == 403, "a name that was made to lead here is no allowed origin"


async def test_a_browser_may_ask_whether_it_may_ask() -> None:
    async with running_node(origins=("https://app.example",)) as node:
        asked = {"Origin": "https://app.example", "Access-Control-Request-Headers": "authorization,last-event-id"}
        status, _, headers = await call(node, "OPTIONS", "/v1/stream?selector=t", headers=asked, is_json=False)
        assert status == 204
        assert headers["Access-Control-Allow-Origin"] == "https://app.example"
        for name in ("Authorization", "Last-Event-ID", "Idempotency-Key", "Content-Type"):
            assert name in headers["Access-Control-Allow-Headers"]
        other = {**asked, "Origin": "https://evil.example"}
        assert (await call(node, "OPTIONS", "/v1/stream?selector=t", headers=other, is_json=False))[0] == 403


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "selector"),
        ("selector=a//b", "empty"),
        ("selector=a&secret=x", "secret"),
        ("selector=a&from=now", "nothing else"),
        ("selector=a&after=soon", "after"),
        ("selector=a&after=1-1-1&after=1-1-2", "once"),
        ("selector=%ff", "query"),
        ("&".join(f"selector=t{number}" for number in range(101)), "1 to 100"),
    ],
)
async def test_a_stream_that_cannot_be_understood_is_refused(query: str, said: str) -> None:
    async with running_node() as node:
        status, text, _ = await call(node, "GET", f"/v1/stream?{query}", is_json=False)
        assert (status, said in str(text)) == (400, True), text
        headers = {**ALICE, "Last-Event-ID": "17-1"}
        assert (await call(node, "GET", "/v1/stream?selector=a", headers=headers))[0] == 400
        assert (await call(node, "POST", "/v1/stream?selector=a", body={}))[0] == 405
        assert streams(node) == 0


# --- What it may cost -------------------------------------------------------------------------------------------------


async def open_raw(node: TestNode, query: str = "selector=big/**") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream and do not read it."""
    # Little room in the kernel, so that what is not read is noticed soon.
    reader, writer = await asyncio.open_connection("127.0.0.1", node.gateway.port, limit=1024)
    writer.write(
        f"GET /v1/stream?{query} HTTP/1.1\r\nHost: a\r\nAuthorization: {ALICE['Authorization']}\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@pytest.mark.promise("P9")
async def test_a_reader_that_is_slow_gets_the_newest_folded_and_marked() -> None:
    async with running_node(
        rate_packets=0, rate_principal_packets=0, limit_value_bytes=256 * 1024, limit_message_bytes=512 * 1024
    ) as node:
        async with time_limit(PATIENCE), reading(node.url, "big/**") as reader:
            await reader.until("complete")
            for number in range(200):
                await publish(node, ("big/a", {"number": number, "text": "x" * 100_000}))
            numbers: list[tuple[int, int]] = []
            while not numbers or numbers[-1][0] < 199:
                event = await reader.next()
                numbers.append((event.data["value"]["number"], event.data.get("folded", 0)))
        told = [number for number, _ in numbers]
        assert told == sorted(set(told))
        assert len(numbers) + sum(folded for _, folded in numbers) == 200, "each is there, or counted"
        assert any(folded for _, folded in numbers)


@pytest.mark.promise("P9")
@pytest.mark.promise("P20")
async def test_who_does_not_read_at_all_is_cut_off_and_others_are_served() -> None:
    settings: dict[str, Any] = {"limit_outbox_packets": 20, "rate_packets": 0, "rate_principal_packets": 0}
    async with running_node(**settings) as node, time_limit(PATIENCE):
        _, silent = await open_raw(node)
        async with reading(node.url, "small") as witness:
            await witness.until("complete")
            number = 0
            while not ended(node, "slow"):
                await publish(node, (f"big/{number % 200}", "x" * 30_000), ("small", number))
                assert (await witness.next()).data["value"] == number
                number += 1
            assert streams(node) == 1
        silent.close()


@pytest.mark.promise("P20")
async def test_who_hangs_up_or_talks_leaves_nothing(node: TestNode) -> None:
    await publish(node, ("big/a", 1))
    writers = []
    for number in range(30):
        _, writer = await open_raw(node)
        writers.append(writer)
        if number % 2:
            writer.write(b"GET /v1/stream?selector=x HTTP/1.1\r\n\r\n" * 100)
        else:
            writer.close()
    await eventually(lambda: streams(node) == 0)
    delivery = node.gateway.node.sessions.delivery
    await eventually(lambda: len(delivery.replicas) == 0 and not node.gateway._clients._tasks)
    assert not list(delivery._index)
    for writer in writers:
        writer.close()
    assert node.gateway.node._context.limits.node.selections == 0


@pytest.mark.promise("P20")
async def test_streams_are_bounded_as_sessions_are() -> None:
    async with running_node(limit_principal_sessions=3) as node, time_limit(PATIENCE):
        held = [await open_raw(node) for _ in range(3)]
        async with reading(node.url, "t") as refused:
            assert refused.status == 429
            assert "limit_principal_sessions" in (await refused.problem())["detail"]
        async with reading(node.url, "t", headers=BOB) as reader:
            assert reader.status == 200, "others are served"
        held[0][1].close()
        await eventually(lambda: streams(node) <= 2)
        async with reading(node.url, "t") as reader:
            assert reader.status == 200
        for _, writer in held:
            writer.close()
    async with (
        running_node(limit_principal_selections=5) as node,
        time_limit(PATIENCE),
        reading(node.url, "a", "b", "c") as reader,
        reading(node.url, "d", "e", "f") as refused,
    ):
        assert (reader.status, refused.status) == (200, 429)
        assert "limit_principal_selections" in (await refused.problem())["detail"]
    async with running_node(rate_packets=10.0, rate_burst=10) as node, time_limit(PATIENCE):
        statuses = []
        for _ in range(8):
            async with reading(node.url, "t") as reader:
                statuses.append(reader.status)
        assert 429 in statuses


@pytest.mark.promise("P20")
async def test_a_hundred_wide_selectors_of_each_of_many_readers_harm_nobody() -> None:
    async with running_node(rate_packets=0, rate_principal_packets=0) as node, time_limit(PATIENCE):
        await publish(node, *((f"r{number % 40}/{number}", number) for number in range(900)))
        wide = "&".join(f"selector=*/{number}*/**&selector=**/{number}" for number in range(50))
        crowd = await asyncio.gather(*(open_raw(node, wide.replace("*/", "%2A/")) for _ in range(10)))
        async with reading(node.url, "r1/**") as witness:
            await witness.until("complete")
            await publish(node, ("r1/7", "seen"))
            assert (await witness.next()).data["value"] == "seen"
        for _, writer in crowd:
            writer.close()
        await eventually(lambda: streams(node) == 0)


async def test_a_connection_that_is_quiet_is_shown_to_be_alive() -> None:
    async with running_node(ping_interval=0.1) as node, time_limit(PATIENCE), reading(node.url, "t") as reader:
        await reader.until("complete")
        waiting = asyncio.ensure_future(reader.next())
        await eventually(lambda: reader.comments >= 3)
        waiting.cancel()


def test_events_are_what_the_page_says() -> None:
    """The example of the reference is made of what is written."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "client-api.md").read_text()
    example = page.split("```text\n")[1].split("```")[0]
    kinds = [line.removeprefix("event: ") for line in example.splitlines() if line.startswith("event: ")]
    assert kinds == ["open", "complete", "gap", "end"]
    for line in example.splitlines():
        if line.startswith("data: "):
            json.loads(line.removeprefix("data: "))
