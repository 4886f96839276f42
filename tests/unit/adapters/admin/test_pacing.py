"""How unauthenticated clients share their part of the node's time, by a clock that only their work moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from gateway.adapters.admin.pacing import COSTS, LEAST_WAIT, TURN_SECONDS, WEIGHTS, Pacer, ServiceClass
from tests.support.clock import VirtualClock, eventually


class UnauthenticatedClient:
    """Takes turns of a known length, and tells of them.

    Args:
        clock: is moved by its work.
        seconds: of each turn.
        turns: where each is written down.
        times: how often it does in a turn what it asked for.
    """

    def __init__(self, name: str, clock: VirtualClock, seconds: float, turns: list[str], times: int = 1) -> None:
        self.name = name
        self.times = times
        self._clock = clock
        self._seconds = seconds
        self._turns = turns

    def take_turn(self) -> int:
        self._turns.append(self.name)
        self._clock.advance(self._seconds)
        return self.times


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def pacer(clock: VirtualClock) -> AsyncIterator[Pacer]:
    """One whose timers come when nobody works, and move the clock on."""
    waited = 0.0

    def later(seconds: float, work: Callable[[], None]) -> asyncio.Handle:
        def come() -> None:
            nonlocal waited
            waited += seconds
            clock.advance(seconds)
            work()

        return asyncio.get_running_loop().call_soon(come)

    def working() -> float:
        return clock() - waited

    made = Pacer(share=0.5, burst=0.1, clock=clock, worked=working, later=later)
    yield made
    made.close()


async def test_what_there_is_time_for_is_done_at_once(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    for _ in range(3):
        pacer.ask(UnauthenticatedClient("a", clock, TURN_SECONDS / 4, turns), ServiceClass.HEALTH)

    assert turns == ["a"] * 3
    assert pacer.queued == 0


async def test_what_is_done_at_once_ends_with_the_turn(clock: VirtualClock, pacer: Pacer) -> None:
    """However much time clients have left: they come together, and everybody else has a turn in between."""
    turns: list[str] = []
    for number in range(20):
        pacer.ask(UnauthenticatedClient(str(number), clock, TURN_SECONDS / 4, turns), ServiceClass.OTHER)
    at_once = len(turns)
    assert 2 <= at_once <= 4

    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert at_once < len(turns) <= 3 * at_once
    await eventually(lambda: turns == [str(number) for number in range(20)])
    pacer.ask(UnauthenticatedClient("later", clock, 0.0, turns), ServiceClass.OTHER)
    await eventually(lambda: turns[-1] == "later")


async def test_work_is_charged_once_however_it_is_told_of(clock: VirtualClock, pacer: Pacer) -> None:
    class Reader(UnauthenticatedClient):
        def take_turn(self) -> int:
            begun = pacer.now()
            clock.advance(0.001)
            pacer.charge(ServiceClass.READ, begun, times=2)
            return super().take_turn()

    pacer.ask(Reader("many", clock, 0.001, [], times=16), ServiceClass.ACCEPT)

    assert pacer._turn_spent == pytest.approx(0.002 + 2 * COSTS[ServiceClass.READ] + 16 * COSTS[ServiceClass.ACCEPT])


async def test_what_is_asked_for_in_a_turn_has_one_of_its_own(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []

    class Accepting(UnauthenticatedClient):
        def take_turn(self) -> int:
            pacer.ask(UnauthenticatedClient("health", clock, 0.0, turns), ServiceClass.HEALTH)
            return super().take_turn()

    pacer.ask(Accepting("accept", clock, 0.0, turns), ServiceClass.ACCEPT)

    assert turns == ["accept"]
    await eventually(lambda: turns == ["accept", "health"])


@pytest.mark.promise("P20")
async def test_in_the_long_run_no_more_than_the_share_is_taken(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    begun = clock()
    for number in range(1000):
        pacer.ask(UnauthenticatedClient(str(number), clock, 0.001, turns), ServiceClass.METRICS)
    assert pacer.queued > 0

    await eventually(lambda: len(turns) == 1000)
    assert turns == [str(number) for number in range(1000)]
    work = 1000 * (0.001 + COSTS[ServiceClass.METRICS])
    assert clock() - begun >= (work - 0.1) / 0.5 * 0.95


@pytest.mark.promise("P20")
async def test_while_there_is_no_time_the_loop_sleeps_and_does_not_spin(clock: VirtualClock) -> None:
    """An answer takes less than a tenth of a millisecond; uvloop's timers, which count in whole ones, come at once."""
    waits: list[float] = []
    worked = 0.0

    def later(seconds: float, work: Callable[[], None]) -> asyncio.Handle:
        def come() -> None:
            waits.append(seconds)
            clock.advance(round(1000 * seconds) / 1000)
            work()

        return asyncio.get_running_loop().call_soon(come)

    class Quick(UnauthenticatedClient):
        def take_turn(self) -> int:
            nonlocal worked
            worked += 50e-6
            return super().take_turn()

    pacer = Pacer(share=0.3, burst=0.01, clock=clock, worked=lambda: worked, later=later)
    turns: list[str] = []
    begun = clock()
    for number in range(1000):
        pacer.ask(Quick(str(number), clock, 50e-6, turns), ServiceClass.METRICS)
    await eventually(lambda: len(turns) == 1000)
    assert all(wait == 0 or wait >= LEAST_WAIT for wait in waits)
    assert len(waits) <= len(turns), "nobody has looked whether there is time, in vain, more often than it was used"
    work = 1000 * (50e-6 + COSTS[ServiceClass.METRICS])
    assert (clock() - begun) * 0.3 == pytest.approx(work, rel=0.25), "what was waited for too long was made up for"
    pacer.close()


@pytest.mark.promise("P20")
async def test_a_flood_of_one_kind_does_not_hold_up_another(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    for _ in range(1000):
        pacer.ask(UnauthenticatedClient("page", clock, 0.001, turns), ServiceClass.OTHER)
    before = len(turns)
    pacer.ask(UnauthenticatedClient("health", clock, 0.0, turns), ServiceClass.HEALTH)

    await eventually(lambda: "health" in turns)
    assert turns.index("health") - before <= 5


async def test_what_a_kind_took_while_no_other_waited_is_not_held_against_it(clock: VirtualClock, pacer: Pacer) -> None:
    """A load balancer has asked for hours; then a crowd wants pages, and it is answered as soon as on the first day."""
    turns: list[str] = []
    for _ in range(50):
        pacer.ask(UnauthenticatedClient("health", clock, 0.02, turns), ServiceClass.HEALTH)
        await eventually(lambda: not pacer.queued)
    for _ in range(500):
        pacer.queue(UnauthenticatedClient("page", clock, 0.001, turns), ServiceClass.OTHER)
    del turns[:]
    for _ in range(10):
        await asyncio.sleep(0)
    assert pacer.queued > 0
    del turns[:]
    pacer.ask(UnauthenticatedClient("health", clock, 0.001, turns), ServiceClass.HEALTH)

    await eventually(lambda: "health" in turns)
    assert turns.index("health") <= 5


async def test_kinds_share_the_time_by_their_weights(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    pacer.ask(UnauthenticatedClient("first", clock, 1.0, turns), ServiceClass.HEALTH)
    for _ in range(300):
        pacer.queue(UnauthenticatedClient("page", clock, 0.003 - COSTS[ServiceClass.OTHER], turns), ServiceClass.OTHER)
        pacer.queue(
            UnauthenticatedClient("more", clock, 0.001 - COSTS[ServiceClass.FURTHER], turns), ServiceClass.FURTHER
        )
        pacer.queue(
            UnauthenticatedClient("check", clock, 0.001 - COSTS[ServiceClass.HEALTH], turns), ServiceClass.HEALTH
        )

    await eventually(lambda: len(turns) > 200)
    found = Counter(turns[1:201])
    assert found["more"] / found["page"] == pytest.approx(3, rel=0.15)
    assert found["check"] / found["more"] == pytest.approx(WEIGHTS[ServiceClass.HEALTH], rel=0.15)


@pytest.mark.promise("P20")
async def test_the_newest_connection_is_opened_first(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    pacer.ask(UnauthenticatedClient("first", clock, 1.0, turns), ServiceClass.HEALTH)
    for name in "abc":
        pacer.ask(UnauthenticatedClient(name, clock, 0.0, turns), ServiceClass.OPEN)

    await eventually(lambda: len(turns) == 4)
    assert turns == ["first", "c", "b", "a"]


async def test_who_is_gone_gets_no_turn(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    pacer.ask(UnauthenticatedClient("first", clock, 1.0, turns), ServiceClass.HEALTH)
    gone, here = UnauthenticatedClient("gone", clock, 0.0, turns), UnauthenticatedClient("here", clock, 0.0, turns)
    pacer.ask(gone, ServiceClass.HEALTH)
    pacer.ask(here, ServiceClass.HEALTH)
    pacer.forget(gone)

    await eventually(lambda: len(turns) == 2)
    assert turns == ["first", "here"]


async def test_everybody_else_has_a_turn_in_between(clock: VirtualClock, pacer: Pacer) -> None:
    turns: list[str] = []
    pacer.ask(UnauthenticatedClient("first", clock, 1.0, turns), ServiceClass.HEALTH)
    for _ in range(100):
        pacer.queue(UnauthenticatedClient("a", clock, 0.001, turns), ServiceClass.HEALTH)
    seen: list[int] = []
    while len(turns) < 101:
        await asyncio.sleep(0)
        seen.append(len(turns))

    assert max(after - before for before, after in pairwise(seen)) <= 4
