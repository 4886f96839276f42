"""Streams of topics with history, with a source that is played (P14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.client.history_streams import HistoryFeed
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
        self._pages = pages
        self._meanwhile = meanwhile

    async def read_history(self, ask: ReadHistory) -> HistoryPart:
        del ask
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
