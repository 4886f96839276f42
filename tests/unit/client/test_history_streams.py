"""Streams of topics with history, with a source that is played (P14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import pytest

from gateway.client.history_streams import HistoryFeed
from gateway.core.client.errors import PositionGone
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import EventId, Version
from gateway.core.wire.packets import HistoryPart, ReadHistory
from gateway.core.wire.packets import Update as Packet
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P14")

PARTITION = 17


def event(number: int) -> EventId:
    return EventId(f"{PARTITION}-1-{number}")


def part(number: int) -> HistoryPart:
    packet = Packet("log/a", Version(number), event(number), number)
    return HistoryPart(events=(packet,), positions={PARTITION: event(number)}, complete=True)


class Source:
    """A session that answers with pages; *meanwhile* happens before each answer, which was made before that."""

    def __init__(self, pages: list[HistoryPart], meanwhile: Callable[[], None]) -> None:
        self.interruptions = 0
        self.partitions: frozenset[int] = frozenset()
        self.limits: list[float | None] = []
        self._pages = pages
        self._meanwhile = meanwhile

    async def read_history(self, ask: ReadHistory, seconds: float | None = None) -> HistoryPart:
        del ask
        self.limits.append(seconds)
        await asyncio.sleep(0)
        self._meanwhile()
        return self._pages.pop(0)

    def settled(self) -> frozenset[int]:
        return self.partitions


@pytest.mark.parametrize("what", ["settled", "interrupted"])
async def test_what_a_stream_would_wait_for_may_come_while_a_page_is_under_way(what: str) -> None:
    """Found by chaos: the stream waited for a word that had come, and an event at the end was never read."""

    def meanwhile() -> None:
        if what == "settled":
            source.partitions = frozenset({PARTITION})
            feed.settled()
        else:
            source.interruptions += 1
            feed.interrupted()

    source = Source([part(1), part(2)], meanwhile)
    feed = HistoryFeed(parse_selector("log/**"), source, start="earliest", on_gap="tell")
    async with time_limit(5):
        assert [(await feed.next()).value for _ in range(2)] == [1, 2]


def page(*numbers: int, gap: bool = False) -> HistoryPart:
    packets = tuple(Packet("log/a", Version(number), event(number), number) for number in numbers)
    return HistoryPart(events=packets, positions={PARTITION: event(numbers[-1])}, complete=False, gap=gap)


def feed_of(*pages: HistoryPart, start: str = "earliest", on_gap: str = "tell") -> tuple[HistoryFeed, Source]:
    source = Source(list(pages), lambda: None)
    return HistoryFeed(parse_selector("log/**"), source, start=start, on_gap=on_gap), source


async def test_a_page_is_waited_for_as_long_as_the_session_lives() -> None:
    """Only the one that belongs to the call of subscribe has the limit of that."""
    begin = HistoryPart(events=(), positions={PARTITION: event(1)}, complete=False)
    feed, source = feed_of(begin, page(2), start="now")
    await feed.begin(3.0)
    assert (await feed.next()).value == 2
    assert source.limits == [3.0, inf]


async def test_nothing_of_a_page_comes_after_a_close() -> None:
    feed, _ = feed_of(page(1, 2, 3))
    assert (await feed.next()).value == 1
    feed.end(None, drop=True)
    with pytest.raises(StopAsyncIteration):
        await feed.next()
    assert feed.waiting == feed.waiting_bytes == 0
    assert feed.reader.position == event(1), "what was dropped has not been had"


async def test_what_waits_is_delivered_if_the_session_ends() -> None:
    feed, _ = feed_of(page(1, 2))
    assert (await feed.next()).value == 1
    feed.end(None)
    assert (await feed.next()).value == 2
    with pytest.raises(StopAsyncIteration):
        await feed.next()


async def test_a_close_ends_the_wait_for_a_page() -> None:
    feed, source = feed_of()
    never = asyncio.Event()

    async def hang(ask: ReadHistory, seconds: float | None = None) -> HistoryPart:
        del ask, seconds
        await never.wait()
        raise AssertionError

    source.read_history = hang  # type: ignore[method-assign]
    one, two = asyncio.create_task(feed.next()), asyncio.create_task(feed.next())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    feed.end(None, drop=True)
    async with time_limit(5):
        ends = await asyncio.gather(one, two, return_exceptions=True)
    assert [type(each) for each in ends] == [StopAsyncIteration] * 2


async def test_a_reader_is_cancelled_while_it_waits_for_a_page() -> None:
    feed, source = feed_of(page(1))
    read, never = source.read_history, asyncio.Event()

    async def hang(ask: ReadHistory, seconds: float | None = None) -> HistoryPart:
        del ask, seconds
        await never.wait()
        raise AssertionError

    source.read_history = hang  # type: ignore[method-assign]
    reading = asyncio.create_task(feed.next())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    source.read_history = read  # type: ignore[method-assign]
    assert (await feed.next()).value == 1


async def test_after_a_refused_gap_the_stream_is_read_on_from_the_earliest_that_is_kept() -> None:
    feed, _ = feed_of(page(5, 6), page(9, 10, gap=True), start=event(4), on_gap="refuse")
    assert [(await feed.next()).value for _ in range(2)] == [5, 6]
    with pytest.raises(PositionGone):
        await feed.next()
    assert feed.reader.position == event(6)
    assert [(each.value, each.gap) for each in [await feed.next() for _ in range(2)]] == [(9, True), (10, False)]
