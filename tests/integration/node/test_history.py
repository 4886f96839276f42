"""Topics with history: from any place on, every event once and in order, whatever happens to nodes (P14)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.delivery.history_pages import HistoryPages, Page
from gateway.client import (
    Forbidden,
    HistoryStream,
    InvalidPosition,
    PositionGone,
    Session,
    Update,
    connect,
)
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire.packets import ReadHistory
from gateway.local.proxy import FaultProxy
from gateway.ports import HistoryPage, HistoryQuestion
from gateway.ports.administration import BadParameter, NotThere
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.seeds import seeds
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P14")

PLENTY = HistoryLimits(count=100_000, age=3600.0, bytes=8 * 1024**2)


def declare(*nodes: TestNode, selector: str = "log/**", limits: HistoryLimits = PLENTY) -> None:
    """Say at nodes that topics have history."""
    for node in nodes:
        node.gateway.node.destinations.table.put(
            Destination(selector=parse_selector(selector), limits=limits, origin=Origin.FILE)
        )


@asynccontextmanager
async def session_at(*nodes: TestNode, principal: str = "alice") -> AsyncIterator[Session]:
    """Open a session that may use nodes, the first one first."""
    async with connect([node.url.replace("http", "ws", 1) for node in nodes], principal) as session:
        yield session


async def take(stream: HistoryStream, count: int) -> list[Update]:
    """Read so many updates."""
    async with time_limit(20):
        return [await anext(stream) for _ in range(count)]


def values(updates: list[Update]) -> list[object]:
    return [each.value for each in updates]


@pytest.fixture
async def declared(n1: TestNode, n2: TestNode) -> tuple[TestNode, TestNode]:
    declare(n1, n2)
    return n1, n2


async def test_a_stream_begins_at_the_earliest_event_and_goes_on_live(declared: tuple[TestNode, TestNode]) -> None:
    n1, n2 = declared
    async with session_at(n1) as writer, session_at(n2) as reader:
        for number in range(3):
            await writer.publish("log/a", number)
            await writer.publish("log/b", -number)
        stream = await reader.subscribe("log/**", start="earliest")
        assert [stream.position] == [None]
        early = await take(stream, 6)
        assert [(each.topic, each.value) for each in early] == [
            pair for number in range(3) for pair in (("log/a", number), ("log/b", -number))
        ]
        for number in range(3, 6):
            await writer.publish("log/a", number)
        live = await take(stream, 3)
        assert values(live) == [3, 4, 5]
        assert not any(each.gap or each.folded or each.snapshot for each in early + live)
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        assert stream.position == live[-1].event_id
        waiting.cancel()


async def test_a_stream_goes_on_after_a_position_in_another_process(declared: tuple[TestNode, TestNode]) -> None:
    n1, n2 = declared
    async with session_at(n1) as writer:
        async with session_at(n1) as reader:
            stream = await reader.subscribe("log/**", start="now")
            for number in range(10):
                await writer.publish(f"log/{number % 3}", number)
            assert values(await take(stream, 5)) == [0, 1, 2, 3, 4]
            # The last one counts as had when the next one is asked for.
            position = stream.position
        async with session_at(n2) as reader:
            stream = await reader.subscribe("log/**", start=str(position))
            assert values(await take(stream, 6)) == [4, 5, 6, 7, 8, 9]


async def test_now_is_the_moment_of_the_subscribe(declared: tuple[TestNode, TestNode]) -> None:
    n1, n2 = declared
    async with session_at(n1) as writer, session_at(n2) as reader:
        await writer.publish("log/a", "before")
        stream = await reader.subscribe("log/**", start="now")
        assert stream.position is not None
        await writer.publish("log/a", "after")
        assert values(await take(stream, 1)) == ["after"]


async def test_a_reader_that_is_slow_gets_every_event(declared: tuple[TestNode, TestNode]) -> None:
    """None is folded, and what waits in the client is bounded; the rest waits in the grid."""
    n1, n2 = declared
    async with session_at(n1) as writer, session_at(n2) as reader:
        stream = await reader.subscribe("log/a", start="now", queue_size=10)
        await writer.publish("log/a", 0)
        first = await take(stream, 1)
        await asyncio.gather(*(writer.publish("log/a", number) for number in range(1, 1500)))
        await eventually(lambda: stream.waiting > 0)
        assert stream.waiting <= 10
        rest = await take(stream, 1499)
        assert values(first + rest) == list(range(1500))
        assert not any(each.folded or each.snapshot for each in rest)
        await writer.publish("log/a", "last")
        assert values(await take(stream, 1)) == ["last"]


async def test_a_gap_is_told_before_the_first_later_event(declared: tuple[TestNode, TestNode]) -> None:
    """L3: also if the topic of which something is missing has no event among the first ones."""
    n1, n2 = declared
    few = HistoryLimits(count=2, age=3600.0, bytes=4096)
    declare(n1, n2, selector="log/a", limits=few)
    async with session_at(n1) as writer, session_at(n2) as reader:
        start = (await writer.publish("log/a", 0)).event_id
        await writer.publish("log/a", 1)
        await writer.publish("log/b", "b")
        for number in range(2, 6):
            await writer.publish("log/a", number)
        stream = await reader.subscribe("log/**", start=start)
        read = await take(stream, 3)
        assert [(each.value, each.gap) for each in read] == [("b", True), (4, False), (5, False)]
        strict = await reader.subscribe("log/**", start=start, on_gap="refuse")
        with pytest.raises(PositionGone, match="log/a"):
            await anext(strict)
        assert values(await take(strict, 3)) == ["b", 4, 5]
        early = await reader.subscribe("log/**", start="earliest")
        assert not any(each.gap for each in await take(early, 3))


async def test_topics_without_history_have_their_current_value(declared: tuple[TestNode, TestNode]) -> None:
    n1, n2 = declared
    declare(n1, n2, selector="log/kept/**")
    for node in declared:
        node.gateway.node.destinations.table.drop("file log/**")
    async with session_at(n1) as writer, session_at(n2) as reader:
        start = (await writer.publish("log/kept/a", 0)).event_id
        for number in range(3):
            await writer.publish("log/plain", number)
            await writer.publish("log/kept/a", number + 1)
        stream = await reader.subscribe("log/**", start=start)
        read = await take(stream, 4)
        assert [(each.value, each.snapshot) for each in read] == [(1, False), (2, False), (2, True), (3, False)]
        # Until the stream is live, a current value may come in the place of its event.
        following = asyncio.create_task(take(stream, 1))
        await eventually(lambda: stream._feed.reader.is_live)
        await writer.publish("log/plain", 9)
        assert [(each.value, each.snapshot) for each in await following] == [(9, False)]


async def test_history_is_read_without_subscribing(declared: tuple[TestNode, TestNode]) -> None:
    n1, n2 = declared
    async with session_at(n1) as writer, session_at(n2) as reader:
        receipts = await asyncio.gather(*(writer.publish("log/a", number) for number in range(1200)))
        read = await reader.history("log/a", limit=2000)
        assert values(list(read)) == list(range(1200))
        assert [each.event_id for each in read] == [each.event_id for each in receipts]
        behind = await reader.history("log/a", after=receipts[699].event_id, limit=3)
        assert values(list(behind)) == [700, 701, 702]
        assert await reader.history("log/none") == []
        for wrong in ("17", "x-1-1", "17-1", "64-1-1", "17-1-1,17-1-2", ""):
            with pytest.raises(InvalidPosition):
                await reader.history("log/a", after=wrong)


async def test_who_may_not_select_a_topic_cannot_read_its_history() -> None:
    async with running_node("n1") as node, session_at(node) as session:
        with pytest.raises(Forbidden):
            await session.history("$gateway/nodes")


@pytest.mark.parametrize("seed", seeds(3))
async def test_readers_that_are_cut_and_moved_get_the_log(memory: MemoryGridServer, seed: int) -> None:
    """L1: positions X then Y on different nodes, the union of what came is the log between, each once, in order."""
    chance = random.Random(seed)
    events = 3_000
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        declare(n1, n2)

        async def write(session: Session) -> None:
            number = 0
            while number < events:
                burst = min(chance.randint(1, 120), events - number)
                await asyncio.gather(
                    *(session.publish(f"log/{(number + each) % 5}", number + each) for each in range(burst))
                )
                number += burst
                if chance.random() < 0.3:
                    await asyncio.sleep(0.002)

        read: list[Update] = []
        position = "earliest"
        proxies = [FaultProxy("127.0.0.1", node.gateway.port) for node in (n1, n2)]
        for proxy in proxies:
            await proxy.start()
        async with session_at(n1, n2) as writer:
            writing = asyncio.create_task(write(writer))
            while len(read) < events:
                chance.shuffle(proxies)
                urls = [f"ws://127.0.0.1:{proxy.port}" for proxy in proxies]
                async with connect(urls, "reader") as reader, time_limit(60):
                    stream = await reader.subscribe("log/**", start=position, queue_size=chance.choice((5, 50, 10_000)))
                    for _ in range(chance.randint(1, 600)):
                        read.append(await anext(stream))
                        if chance.random() < 0.01:
                            # It comes back to the same node, or goes to the other one.
                            proxies[0].cut()
                        if len(read) == events:
                            break
                    # Exactly what was had: the last update was not asked past.
                    position = read[-1].event_id
            await writing
        for proxy in proxies:
            await proxy.stop()
    assert [each.value for each in read] == list(range(events)) or _by_topic(read) == _by_topic_of(events)
    assert len({each.event_id for each in read}) == events
    assert not any(each.gap or each.folded for each in read)


def _by_topic(read: list[Update]) -> dict[str, list[object]]:
    return {topic: [each.value for each in read if each.topic == topic] for topic in {each.topic for each in read}}


def _by_topic_of(events: int) -> dict[str, list[object]]:
    return {TopicPath(f"log/{rest}"): [each for each in range(events) if each % 5 == rest] for rest in range(5)}


async def test_age_is_enforced_and_histories_that_nobody_wants_go(memory: MemoryGridServer) -> None:
    """L4: by the living nodes, each its share of the partitions."""
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        nodes = (n1, n2)
        declare(*nodes, limits=HistoryLimits(count=100, age=1.0, bytes=100_000))
        declare(*nodes, selector="audit/**")
        async with session_at(n1) as session:
            for topic in ("log/a", "log/b", "audit/a"):
                await session.publish(topic, 1)
            await asyncio.sleep(scaled(1.2))
            for node in nodes:
                await node.gateway.node.sweepers.histories.sweep()
            assert await session.history("log/a") == []
            assert len(await session.history("audit/a")) == 1
            for node in nodes:
                node.gateway.node.destinations.table.drop("file audit/**")
                node.gateway.node.destinations.table.drop("file log/**")
            for node in nodes:
                await node.gateway.node.sweepers.histories.sweep()
            grid = n1.gateway.node._context.grid
            for number in range(64):
                assert (await grid.history.topics(number, step=None, count=10)).topics == []


@pytest.mark.promise("P10")
async def test_what_the_grid_has_lost_is_put_back_by_nodes_that_saw_it(memory: MemoryGridServer) -> None:
    """P10: with the same ids; a reader goes on behind its position."""
    async with running_node("n1", memory=memory) as node, session_at(node) as session:
        declare(node)
        stream = await session.subscribe("log/**", start="now")
        await session.publish("log/a", 0)
        before = memory.snapshot()
        for number in range(1, 5):
            await session.publish("log/a", number)
        seen = await take(stream, 5)
        memory.come_back(restarted=True, snapshot=before)
        await eventually(lambda: node.gateway.node._context.grid.generation > 1)
        async with time_limit(20):
            while len(kept := await session.history("log/a")) < 5:
                await session.history("log/other")
        assert [(each.event_id, each.value) for each in kept] == [(each.event_id, each.value) for each in seen]
        await session.publish("log/a", 5)
        assert [(each.value, each.gap) for each in await take(stream, 1)] == [(5, False)]


@pytest.mark.promise("P10")
async def test_no_reader_goes_past_what_another_node_has_yet_to_put_back(
    memory: MemoryGridServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos: a node that was back 0.7 s before the one that had seen the events gave its reader none."""
    async with (
        running_node("n1", memory=memory) as n1,
        running_node("n2", memory=memory) as n2,
        session_at(n1) as reader,
        session_at(n2) as witness,
    ):
        declare(n1, n2)
        seen = await witness.subscribe("log/**", start="now")
        first = await witness.publish("log/a", 0)
        before = memory.snapshot()
        for number in range(1, 5):
            await witness.publish("log/a", number)
        await take(seen, 5)
        released, asked = asyncio.Event(), asyncio.Event()
        grid = n2.gateway.node._context.grid
        restore, find = grid.history.restore, HistoryPages.find

        async def restore_late(*arguments: Any) -> int:
            await released.wait()
            return await restore(*arguments)

        async def find_and_tell(pages: HistoryPages, *arguments: Any, **how: Any) -> Page:
            asked.set()
            return await find(pages, *arguments, **how)

        monkeypatch.setattr(grid.history, "restore", restore_late)
        memory.come_back(restarted=True, snapshot=before)
        both = [node.gateway.node._context.grid for node in (n1, n2)]
        await eventually(lambda: all(each.generation > 1 for each in both))
        await witness.publish("log/b", 5)
        monkeypatch.setattr(HistoryPages, "find", find_and_tell)
        stream = await reader.subscribe("log/**", start=first.event_id)
        reading = asyncio.create_task(take(stream, 5))
        async with time_limit(20):
            await asked.wait()
            for number in range(5):
                await witness.publish("other", number)
        released.set()
        assert [(each.value, each.gap) for each in await reading] == [(number, False) for number in range(1, 6)]


async def test_administrators_read_publish_and_remove_with_history(n1: TestNode) -> None:
    declare(n1)
    topics = n1.gateway.node.administration.topics
    for number in range(5):
        await topics.set("log/a", b"%d" % number, key=str(number))
    found = await topics.history("log/a", after=None, limit=3)
    assert ([each.value for each in found.items], found.gap) == ([b"0", b"1", b"2"], False)
    rest = await topics.history("log/a", after=found.cursor, limit=3)
    assert ([each.value for each in rest.items], rest.cursor) == ([b"3", b"4"], None)
    await topics.delete("log/a")
    found = await topics.history("log/a", after=found.items[0].event, limit=3)
    assert ([each.value for each in found.items], found.gap) == ([b""], True)
    with pytest.raises(NotThere):
        await topics.history("other", after=None, limit=1)
    for wrong in ("x", "63-1-1" if not found.items[0].event.startswith("63") else "62-1-1", "1-1"):
        with pytest.raises(BadParameter):
            await topics.history("log/a", after=wrong, limit=1)


@pytest.mark.thorough
@pytest.mark.promise("P20")
async def test_what_a_reading_costs_is_charged() -> None:
    """P20: a partition that nobody here has subscribed to is read for it; who does so again and again waits."""
    async with running_node("n1", rate_packets=500.0) as node, session_at(node) as session:
        declare(node, selector="log/0")
        for start in range(0, 3000, 100):
            await asyncio.gather(*(session.publish(f"log/{number}", 1) for number in range(start, start + 100)))
        (held,) = (each for each in node.gateway.node.sessions if each.principal == "alice")
        before = held.rests_until
        ask = ReadHistory(RequestNumber(0), "log/**", limit=1)
        await session._supervisor.read_history(ask)
        assert held.rests_until > before


async def test_a_page_ends_where_the_node_knew_of_all_topics(
    declared: tuple[TestNode, TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are read one after the other: what is published meanwhile to one stands before what is read of another."""
    n1, n2 = declared
    async with session_at(n1) as writer, session_at(n2) as reader:
        await writer.publish("log/a", 1)
        await writer.publish("log/b", 2)
        history = n2.gateway.node._context.grid.history
        read, published = history.read, False

        async def read_late(partition: int, questions: Sequence[HistoryQuestion]) -> list[HistoryPage]:
            nonlocal published
            if not published:
                published = True
                await writer.publish("log/c", 3)
                await writer.publish("log/a", 4)
            return await read(partition, questions)

        monkeypatch.setattr(history, "read", read_late)
        stream = await reader.subscribe("log/**", start="earliest")
        assert values(await take(stream, 4)) == [1, 2, 3, 4]
