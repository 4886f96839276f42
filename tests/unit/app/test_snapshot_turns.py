"""However many sessions want a snapshot together, a turn of the loop has a bounded share of the work (P20)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from gateway.app.delivery.snapshot_turns import SNAPSHOT_SECONDS, SNAPSHOTS_SECONDS, SnapshotTurns

TOPIC_SECONDS = SNAPSHOT_SECONDS / 10


class World:
    """Sessions that make snapshots; looking at a topic takes time on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turn = 0
        self.looked_at: list[tuple[int, str]] = []
        self.turns = SnapshotTurns(cast("Any", self))
        self._count = asyncio.create_task(self._count_turns())

    def monotonic(self) -> float:
        return self.now

    async def _count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def snapshot(self, name: str, topics: int) -> int:
        """Make one; returns for how many turns of the loop it took."""
        began = self.turn
        until = await self.turns.begin()
        try:
            for _ in range(topics):
                if self.now >= until:
                    until = await self.turns.pause()
                self.now += TOPIC_SECONDS
                self.looked_at.append((self.turn, name))
        finally:
            self.turns.end()
        return self.turn - began

    def most_in_a_turn(self) -> float:
        """Seconds of work in the turn that had most of it."""
        return max(Counter(turn for turn, _ in self.looked_at).values()) * TOPIC_SECONDS

    def close(self) -> None:
        self._count.cancel()


async def test_many_snapshots_share_each_turn_and_end_together() -> None:
    world = World()
    names = [f"s{number}" for number in range(40)]
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(world.snapshot(name, 100))
    world.close()
    assert len(world.looked_at) == 4_000
    assert world.most_in_a_turn() <= SNAPSHOTS_SECONDS + 2 * SNAPSHOT_SECONDS
    # They take turns: while all have something to do, nobody is ahead by more than what one may do at once, twice.
    done: Counter[str] = Counter()
    for _, name in world.looked_at[: 40 * 90]:
        done[name] += 1
    assert max(done.values()) - min(done.values()) <= 2 * 10


async def test_one_alone_is_not_kept_waiting() -> None:
    world = World()
    assert await world.snapshot("one", 5) == 0
    assert await world.snapshot("two", 5) == 0
    took = await world.snapshot("three", 100)
    world.close()
    assert took <= 2 * 10 + 1
    assert not len(world.turns)


async def test_a_small_one_does_not_wait_for_the_end_of_large_ones() -> None:
    world = World()
    large = [asyncio.create_task(world.snapshot(f"large{number}", 1_000)) for number in range(10)]
    for _ in range(20):
        await asyncio.sleep(0)
    took = await world.snapshot("small", 1)
    assert took <= len(large) + 3
    assert not any(each.done() for each in large)
    await asyncio.gather(*large)
    world.close()


async def test_small_ones_without_end_do_not_keep_a_large_one_from_its_turns() -> None:
    world = World()
    large = asyncio.create_task(world.snapshot("large", 200))
    crowd: set[asyncio.Task[int]] = set()
    for _ in range(60):
        crowd |= {asyncio.create_task(world.snapshot("small", 5)) for _ in range(20)}
        await asyncio.sleep(0)
    assert Counter(name for _, name in world.looked_at)["large"] >= 20
    await asyncio.gather(large, *crowd)
    world.close()
    assert world.most_in_a_turn() <= SNAPSHOTS_SECONDS + 2 * SNAPSHOT_SECONDS


async def test_who_ends_while_it_waits_holds_nobody_up() -> None:
    world = World()
    tasks = [asyncio.create_task(world.snapshot(f"s{number}", 100)) for number in range(10)]
    for _ in range(5):
        await asyncio.sleep(0)
    for each in tasks[:9]:
        each.cancel()
    assert await tasks[9] > 0
    await asyncio.gather(*tasks, return_exceptions=True)
    world.close()
    assert not len(world.turns)
    assert Counter(name for _, name in world.looked_at)["s9"] == 100
