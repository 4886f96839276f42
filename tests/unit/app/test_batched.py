"""Work for many sessions, done by one task."""

from __future__ import annotations

import asyncio

from gateway.adapters.memory import MemoryEventLog
from gateway.app.runtime.background import Background
from gateway.app.runtime.batched import Batched
from tests.support.clock import eventually


class Work:
    def __init__(self) -> None:
        self.done: list[dict[str, int]] = []

    async def __call__(self, pieces: dict[str, int]) -> None:
        self.done.append(pieces)


def gathering(work: Work) -> Batched[str, int]:
    return Batched(Background(MemoryEventLog()), "work", delay=0.0, work=work)


async def test_what_comes_in_one_tick_is_done_together_and_the_last_of_a_key_counts() -> None:
    work = Work()
    pieces = gathering(work)
    pieces.put("a", 1)
    pieces.put("b", 2)
    pieces.put("a", 3)

    await eventually(lambda: bool(work.done))

    assert work.done == [{"a": 3, "b": 2}]


async def test_what_comes_later_is_done_later() -> None:
    work = Work()
    pieces = gathering(work)
    for number in range(3):
        pieces.put("a", number)
        await eventually(lambda: len(work.done) == number + 1)  # noqa: B023 - awaited before the number changes

    assert work.done == [{"a": 0}, {"a": 1}, {"a": 2}]


async def test_what_is_dropped_in_time_is_not_done() -> None:
    work = Work()
    pieces = gathering(work)
    pieces.put("a", 1)
    pieces.put("b", 2)
    pieces.drop("a")
    pieces.drop("never there")
    await eventually(lambda: bool(work.done))
    assert work.done == [{"b": 2}]

    pieces.put("a", 1)
    pieces.drop("a")
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(work.done) == 1
