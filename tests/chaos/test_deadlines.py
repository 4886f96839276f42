"""What does not end is given up, and says where it waited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import run
from tests.chaos.account.violation import Violation
from tests.chaos.deadlines import Stuck, bounded, ended, waits_in
from tests.chaos.faults.fault import CATALOGUE, Parameters, fault
from tests.chaos.outcome import Outcome
from tests.chaos.plan import Plan
from tests.chaos.target import READY, NotHealed, Target, stopped_in_time
from tests.support.times import scaled


async def _wait_for_nothing() -> None:
    await asyncio.Event().wait()


async def _swallow(times: int) -> None:
    for _ in range(times):
        try:
            await _wait_for_nothing()
        except asyncio.CancelledError:
            continue


async def test_what_ends_in_time_is_returned_and_what_fails_is_raised() -> None:
    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    async def failing() -> None:
        raise LookupError("gone")

    assert await bounded(seven(), "counting", 10.0) == 7
    with pytest.raises(LookupError, match="gone"):
        await bounded(failing(), "looking", 10.0)


async def test_what_does_not_end_is_cancelled_and_says_where_it_waited() -> None:
    with pytest.raises(Stuck, match=r"waiting did not end within .* s; .*test_deadlines.py:\d+ _wait_for_nothing > "):
        await bounded(_wait_for_nothing(), "waiting", 0.01)


async def test_a_cancellation_that_is_swallowed_is_repeated_but_not_for_ever() -> None:
    patient, stubborn = (asyncio.create_task(_swallow(times)) for times in (1, 1_000))
    await asyncio.sleep(0)
    ends = await ended(patient, within=60.0)
    assert ends == [None]
    (end,) = await ended(stubborn, within=0.01)
    assert isinstance(end, Stuck)
    assert "_wait_for_nothing" in str(end)
    assert "_wait_for_nothing" in waits_in(stubborn)
    while not stubborn.done():
        stubborn.cancel()
        await asyncio.sleep(0)
    assert waits_in(stubborn) == ""


class _Stack:
    """A stack that does not stop; *stops* says whether it does."""

    def __init__(self, *, stops: bool) -> None:
        self._stops = stops
        self.killed = False

    def kill_now(self) -> list[str]:
        self.killed = True
        return ["n2", "redis"]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        try:
            yield self
        finally:
            if not self._stops:
                await _wait_for_nothing()


async def test_a_cluster_that_does_not_stop_is_killed_and_says_what_was_left() -> None:
    stack = _Stack(stops=False)
    with pytest.raises(
        Stuck, match=r"stopping the cluster did not end .* _wait_for_nothing > .*were killed: n2, redis"
    ):
        async with stopped_in_time(stack.running(), 0.01):
            pass
    assert stack.killed


async def test_what_fails_in_a_cluster_that_stops_is_raised_as_it_is() -> None:
    stack = _Stack(stops=True)
    with pytest.raises(LookupError):
        async with stopped_in_time(stack.running(), 60.0):
            raise LookupError
    assert not stack.killed


async def test_the_verdict_of_a_run_outlives_a_cluster_that_does_not_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(seed=1, grid="single", seconds=1.0, steps=())

    class Judged:
        def __init__(self, *_: object) -> None: ...

        async def run(self) -> Outcome:
            return Outcome(plan, tmp_path)

        def now(self) -> float:
            return 7.0

    @asynccontextmanager
    async def never_stopping(*_: object, clocked: bool, linked: bool, parted: bool, mirror: str) -> AsyncIterator[None]:
        yield
        raise Stuck("it hangs")

    monkeypatch.setattr(run, "Run", Judged)
    monkeypatch.setattr(run, "running", never_stopping)
    outcome = await run.strike(plan, tmp_path, print)
    assert [str(each) for each in outcome.violations] == [str(Violation("bug", 7.0, "the run", "it hangs"))]


async def test_a_fault_is_healed_also_if_the_run_gives_it_up() -> None:
    done: list[str] = []

    async def strike(target: Target, parameters: Parameters) -> AsyncIterator[None]:
        """Note what happens."""
        done.append("struck")
        yield
        done.append("healed")

    fault("of a test", seconds=(0.0, 0.0), claims=lambda _: set())(strike)
    made = CATALOGUE.pop("of a test")
    with pytest.raises(LookupError):
        async with made.strike(None, {}):
            raise LookupError
    assert done == ["struck", "healed"]


class _Unready:
    """A stack whose nodes never become ready."""

    def admin_url(self, node: str, path: str = "") -> str:
        return f"http://127.0.0.1:9/{node}{path}"


async def test_a_node_is_not_late_while_the_grid_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(_Unready(), None, "single")  # type: ignore[arg-type]
    asked: list[float] = []

    async def is_ready(url: str) -> bool:
        asked.append(next(moments))
        return False

    monkeypatch.setattr("tests.chaos.target.admin.answers_ok", is_ready)
    moments = iter(moment * scaled(READY) for moment in (0.0, 1.2, 1.9, 2.1))
    target.now = lambda: asked[-1] if asked else 0.0
    # Away until then; from there on the node has its time.
    target.grid_away = scaled(READY)
    with pytest.raises(NotHealed):
        await target.ready("n1")
    assert asked[-1] == 2.1 * scaled(READY)
