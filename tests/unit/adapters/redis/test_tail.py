"""What counts as the continuation of a stream."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis.dialer import Dialer
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.tail import RedisTail
from gateway.core.types import GridGeneration
from gateway.ports import PositionLost, StreamPosition, TailBatch, TailItem
from gateway.settings.grid_url import read_grid_url


class GridStub:
    generation = 2

    def __init__(self) -> None:
        self.suspected: list[str] = []

    def when_writes_are_lost(self, tell: object) -> None: ...

    def suspect(self, why: str) -> None:
        self.suspected.append(why)


def entry(generation: int, sequence: int) -> Any:
    if sequence == 0:
        return [b"%d-0" % generation, [b"", b""]]
    return [b"%d-%d" % (generation, sequence), [b"a/b", b"%d %d" % (sequence, sequence)]]


def broken(generation: int, sequence: int) -> Any:
    return [b"%d-%d" % (generation, sequence), [b"a/b", b"x"]]


def read(position: tuple[int, int], entries: list[tuple[int, int]]) -> tuple[list[TailItem], RedisTail, GridStub]:
    return read_entries(position, [entry(*each) for each in entries])


def read_entries(position: tuple[int, int], entries: list[Any]) -> tuple[list[TailItem], RedisTail, GridStub]:
    grid = GridStub()
    dialer = Dialer(read_grid_url("redis://127.0.0.1:1/0"), name="n", timeout=1)
    tail = RedisTail(
        dialer=dialer,
        grid=cast("GridConnection", grid),
        keys=Keys("x"),
        timeout=1,
        foreign=ForeignData(MemoryMetrics(), MemoryEventLog()),
        metrics=MemoryMetrics(),
        log=MemoryEventLog(),
    )
    tail.follow(7, StreamPosition(GridGeneration(position[0]), position[1]))
    tail._take_in(tail._follows[7], entries)
    return [item for _, item in tail._queue], tail, grid


def test_what_follows_comes_with_its_position() -> None:
    (item,), tail, _ = read((2, 5), [(2, 6), (2, 7)])
    assert isinstance(item, TailBatch)
    assert [(each.topic, each.version, each.event, each.value) for each in item.values] == [
        ("a/b", 6, "7-2-6", b"6"),
        ("a/b", 7, "7-2-7", b"7"),
    ]
    assert item.position == StreamPosition(GridGeneration(2), 7)
    assert tail._follows[7].after == "2-7"


def test_the_marker_of_a_generation_is_no_value() -> None:
    (item,), _, _ = read((0, 0), [(2, 0), (2, 1)])
    assert isinstance(item, TailBatch)
    assert len(item.values) == 1
    items, tail, _ = read((0, 0), [(2, 0)])
    assert items == [TailBatch(7, (), StreamPosition(GridGeneration(2), 0))]
    assert tail._follows[7].after == "2-0"


@pytest.mark.promise("P20")
async def test_the_place_is_told_though_all_entries_were_skipped() -> None:
    """Copies of partitions wait for the end of the stream, whatever another program has put there."""
    items, tail, _ = read_entries((2, 5), [broken(2, 6), broken(2, 7)])
    assert items == [TailBatch(7, (), StreamPosition(GridGeneration(2), 7))]
    assert tail._follows[7].after == "2-7"


def test_a_new_generation_is_a_lost_position_and_makes_the_link_look() -> None:
    items, tail, grid = read((2, 5), [(3, 0), (3, 1)])
    assert items == [PositionLost(7)]
    assert tail._follows == {}
    assert grid.suspected
    items, _, grid = read((2, 5), [(2, 6), (3, 0)])
    assert items == [PositionLost(7)]
    assert grid.suspected


@given(
    start=st.integers(0, 1000),
    length=st.integers(1, 50),
    shift=st.integers(0, 3),
    holes=st.sets(st.integers(0, 49), max_size=3),
)
def test_entries_are_delivered_if_and_only_if_none_is_missing(
    start: int, length: int, shift: int, holes: set[int]
) -> None:
    sequences = [start + 1 + shift + n for n in range(length) if n not in holes]
    if not sequences:
        return
    items, _, _ = read((2, start), [(2, each) for each in sequences])
    contiguous = sequences == list(range(start + 1, start + 1 + len(sequences)))
    if contiguous:
        (item,) = items
        assert isinstance(item, TailBatch)
        assert [each.version for each in item.values] == sequences
    else:
        assert items == [PositionLost(7)]
