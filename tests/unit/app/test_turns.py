"""Work that is shared among turns of the loop, and requests that are bounded in bytes (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.app.requests.turns import TURN_TIME, Turns
from gateway.app.session.request_lane import RequestLane, Workforce
from gateway.app.session.session import Session
from gateway.core.pacing.workload import REQUEST_BYTES, Workload
from gateway.core.session.pending import PendingRequests, Work
from gateway.core.types import RequestNumber
from gateway.core.wire.packets import Subscribe
from tests.support.clock import eventually
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P20")

SESSION = cast("Session", SimpleNamespace(id="s"))

PRINCIPAL = "alice"


async def test_what_is_above_a_turns_work_waits_and_takes_turns() -> None:
    turns = Turns(100)
    done: list[str] = []
    worked: list[int] = []

    async def work(name: str, pieces: int) -> None:
        for _ in range(pieces):
            if turns.left <= 0:
                await turns.turn(60, PRINCIPAL)
            else:
                turns.left -= 60
            done.append(name)
            worked.append(turns.left)

    await asyncio.gather(work("greedy", 6), work("also greedy", 6), work("modest", 1))
    assert done.index("modest") <= 4, "it waits for one piece of the others at most, and not for all they want"
    assert len(done) == 13
    assert min(worked) >= 100 - 2 * 60, "a turn does its work, and one piece beyond"


async def test_a_turn_does_no_more_than_its_work_and_one_piece() -> None:
    turns = Turns(100)
    per_turn: list[int] = []

    def piece() -> None:
        turns.left -= 60
        per_turn[-1] += 1

    async def count() -> None:
        while len(turns):
            per_turn.append(0)
            await asyncio.sleep(0)

    turns.left = 0
    for _ in range(9):
        turns.wait(piece, 10_000, PRINCIPAL)
    await count()
    assert max(per_turn) == 2
    assert sum(per_turn) == 9


async def test_who_has_more_to_say_waits_for_the_next_turn_and_makes_no_turn_longer() -> None:
    """Each that was served asks again at once, as whoever floods does."""
    turns = Turns(100)
    per_turn: list[int] = []
    left = 30

    def piece() -> None:
        nonlocal left
        turns.left -= 60
        per_turn[-1] += 1
        left -= 1
        if left > 0:
            turns.wait(piece, 10_000, PRINCIPAL)

    turns.left = 0
    for _ in range(4):
        turns.wait(piece, 10_000, PRINCIPAL)
    while len(turns):
        per_turn.append(0)
        await asyncio.sleep(0)
    assert max(per_turn) == 2
    assert sum(per_turn) >= 30


async def test_a_turn_ends_when_its_time_is_over_whatever_is_left_of_its_work() -> None:
    now = 0.0
    per_turn: list[int] = []
    turns = Turns(10**9, clock=lambda: now)

    def piece() -> None:
        nonlocal now
        now += TURN_TIME / 2
        per_turn[-1] += 1

    turns.left = 0
    for _ in range(5):
        turns.wait(piece, 1, PRINCIPAL)
        turns.wait(piece, 10_000, PRINCIPAL)
    while len(turns):
        per_turn.append(0)
        await asyncio.sleep(0)
    assert max(per_turn) == 3, "two, and one that wants much, which gets on in any case"
    assert sum(per_turn) == 10


async def test_what_is_small_passes_in_front_of_what_is_large_and_does_not_keep_it_from_getting_on() -> None:
    turns = Turns(100)
    turns.left = 0
    order: list[str] = []

    def work(name: str, cost: int) -> None:
        turns.left -= cost
        order.append(name)

    for number in range(4):
        turns.wait(lambda number=number: work(f"large {number}", 10_000), 10_000, PRINCIPAL)  # type: ignore[misc]
    for number in range(12):
        turns.wait(lambda number=number: work(f"small {number}", 20), 20, PRINCIPAL)  # type: ignore[misc]
    await eventually(lambda: len(turns) == 0, message="everybody had his turn")
    small = [f"small {number}" for number in range(12)]
    assert order == [*small[:5], "large 0", *small[5:10], "large 1", *small[10:], "large 2", "large 3"]


async def test_who_was_cancelled_while_waiting_takes_nothing() -> None:
    turns = Turns(100)
    turns.left = 0
    gone = asyncio.create_task(turns.turn(100, PRINCIPAL))
    await asyncio.sleep(0)
    gone.cancel()
    async with time_limit():
        await turns.turn(10, PRINCIPAL)
    assert turns.left == 90


class Bench:
    """Lanes whose requests are answered when the test says so."""

    def __init__(self, *, requests: int = 10**6, request_bytes: int = 0, most: int = 0) -> None:
        self.load = Workload(most)
        self.lost = False
        self.answer = asyncio.Semaphore(0)
        self.force = Workforce(self._execute, requests=requests, request_bytes=request_bytes, workload=self.load)

    async def _execute(self, _: Session, run: Sequence[Work], size: int) -> bool:
        await self.answer.acquire()
        return not self.lost

    def lane(self, *sizes: int) -> RequestLane[Any]:
        lane = RequestLane(self.force, PendingRequests())
        for number, size in enumerate(sizes, 1):
            lane.put(SESSION, Subscribe(RequestNumber(number), "x" * (size - REQUEST_BYTES)))
        return lane


def exceeded(lane: RequestLane[Any]) -> str | None:
    return lane.exceeded


async def test_a_session_waits_at_its_bound_in_bytes() -> None:
    bench = Bench(request_bytes=3000)
    lane = bench.lane(1500, 1500)
    assert exceeded(lane) is None
    lane.put(SESSION, Subscribe(RequestNumber(3), "t"))
    assert exceeded(lane) == "limit_request_bytes"
    room = asyncio.create_task(lane.room())
    await asyncio.sleep(0)
    assert not room.done()
    bench.answer.release()
    await room
    assert lane.bytes == 1500 + REQUEST_BYTES + 1
    lane.abandon()
    assert (bench.load.bytes, bench.load.holders) == (0, 0)


@pytest.mark.promise("P20")
@pytest.mark.parametrize("bounds", [{"requests": 2}, {"request_bytes": 3000}, {"most": 3000}])
async def test_nobody_waits_for_room_in_a_session_that_is_left(bounds: dict[str, int]) -> None:
    """Its requests stay unanswered here: who waits would keep the session, and all it holds, for ever."""
    bench = Bench(**bounds)
    lane = bench.lane(1000, 1000, 1000, 1000)
    room = asyncio.create_task(lane.room())
    await asyncio.sleep(0)
    assert not room.done()
    await lane.halt(within=0.0)
    lane.leave()
    await asyncio.wait_for(room, 60)
    assert len(lane) == 4
    assert (bench.load.bytes, bench.load.holders) == (0, 0)
    assert not bench.force._waiting


async def test_at_the_bound_of_the_node_the_greedy_wait_and_the_modest_go_on() -> None:
    bench = Bench(most=10_000)
    greedy = [bench.lane(1000, 1000, 1000) for _ in range(4)]
    modest = bench.lane(600)
    assert [each.exceeded for each in greedy] == ["limit_node_request_bytes"] * 4
    assert modest.exceeded is None
    waiting = [asyncio.create_task(each.room()) for each in greedy]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    for _ in range(5):
        bench.answer.release()
    await asyncio.gather(*waiting)
    assert bench.load.bytes <= 10_000
    for each in (*greedy, modest):
        each.abandon()
    assert bench.load.bytes == 0


async def test_whoever_waits_for_the_node_is_let_on_when_nobody_has_anything_left() -> None:
    bench = Bench(most=1000)
    lanes = [bench.lane(900) for _ in range(5)]
    waiting = [asyncio.create_task(each.room()) for each in lanes]
    await asyncio.sleep(0)
    for each in lanes:
        each.abandon()
    async with time_limit():
        await asyncio.gather(*waiting)
    await eventually(lambda: bench.load.bytes == 0, message="nothing is counted any more")


async def test_a_lane_that_is_halted_ends_what_it_has_begun_and_begins_nothing_more() -> None:
    bench = Bench()
    lane = bench.lane(1000, 1000)
    await asyncio.sleep(0)
    halted = asyncio.create_task(lane.halt(within=scaled(20)))
    await asyncio.sleep(0)
    lane.put(SESSION, Subscribe(RequestNumber(3), "t"))
    assert not halted.done()
    bench.answer.release()
    await halted
    assert len(lane) == 2

    lane.go_on(SESSION)
    bench.answer.release()
    bench.answer.release()
    await lane.idle()
    assert len(lane) == 0


async def test_a_session_that_is_left_keeps_what_is_unanswered_and_weighs_nothing_here() -> None:
    bench = Bench()
    pending = PendingRequests()
    lane = RequestLane(bench.force, pending)
    for number in (1, 2):
        lane.put(SESSION, Subscribe(RequestNumber(number), "t"))
    await asyncio.sleep(0)
    await lane.halt(within=0.0)

    lane.leave()
    await asyncio.sleep(0)

    assert (len(pending), pending.started) == (2, 1)
    assert (bench.load.bytes, bench.load.holders) == (0, 0)


async def test_what_was_not_answered_because_the_session_was_lost_stays_pending() -> None:
    bench = Bench()
    bench.lost = True
    pending = PendingRequests()
    lane = RequestLane(bench.force, pending)
    lane.put(SESSION, Subscribe(RequestNumber(1), "t"))
    bench.answer.release()
    await lane.idle()
    assert (len(pending), pending.started) == (1, 1)


async def test_a_lane_takes_up_what_is_pending_already() -> None:
    bench = Bench()
    pending = PendingRequests([Subscribe(RequestNumber(1), "t"), Subscribe(RequestNumber(2), "t")])
    lane = RequestLane(bench.force, pending)
    lane.take_up(SESSION)
    assert bench.load.bytes == pending.bytes
    bench.answer.release()
    bench.answer.release()
    await lane.idle()
    assert (len(pending), bench.load.bytes, bench.load.holders) == (0, 0, 0)
