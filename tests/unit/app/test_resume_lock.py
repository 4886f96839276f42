"""The lock under which it is decided what becomes of a session: one at a time, in order, and one resume that waits."""

from __future__ import annotations

import asyncio

import pytest

from gateway.app.session.resume_lock import ResumeLock
from gateway.core.types import Attempt


class Bench:
    """A lock, and who has had it, in order."""

    def __init__(self) -> None:
        self.lock = ResumeLock()
        self.had: list[str] = []

    async def step(self, name: str) -> None:
        async with self.lock:
            self.had.append(name)
            await asyncio.sleep(0)

    async def resume(self, attempt: int) -> bool:
        if not await self.lock.enter(Attempt(attempt)):
            return False
        self.had.append(f"attempt {attempt}")
        await asyncio.sleep(0)
        self.lock.leave()
        return True


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_it_is_had_at_once_exactly_if_it_is_not_locked() -> None:
    lock = ResumeLock()
    assert lock.enter_at_once()
    assert lock.locked()
    assert not lock.enter_at_once()
    waiting = asyncio.create_task(lock.enter(Attempt(1)))
    await asyncio.sleep(0)
    lock.leave()
    assert lock.locked(), "it goes from hand to hand, so that nobody comes between"
    assert not lock.enter_at_once()
    assert await waiting
    lock.leave()
    assert not lock.locked()


async def test_all_have_it_one_after_the_other_in_the_order_in_which_they_came() -> None:
    bench = Bench()
    async with bench.lock:
        tasks = [asyncio.create_task(bench.step("first")), asyncio.create_task(bench.resume(1))]
        tasks.append(asyncio.create_task(bench.step("last")))
        await turns()
        assert not bench.had
    await asyncio.gather(*tasks)
    assert bench.had == ["first", "attempt 1", "last"]
    assert not bench.lock.locked()


@pytest.mark.promise("P20")
async def test_of_resumes_only_the_newest_waits() -> None:
    bench = Bench()
    async with bench.lock:
        step = asyncio.create_task(bench.step("a step"))
        resumes = [asyncio.create_task(bench.resume(attempt)) for attempt in (3, 2, 5, 5, 4)]
        await turns()
        assert [each.done() for each in resumes] == [True, True, True, False, True]
        assert len(bench.lock._waiting) == 2
    await step
    assert await asyncio.gather(*resumes) == [False, False, False, True, False]
    assert bench.had == ["a step", "attempt 5"]


async def test_an_older_attempt_may_wait_when_the_newer_one_has_gone() -> None:
    bench = Bench()
    async with bench.lock:
        newer = asyncio.create_task(bench.resume(2))
        await turns()
        newer.cancel()
        await turns()
        older = asyncio.create_task(bench.resume(1))
        await turns()
    assert await older
    assert bench.had == ["attempt 1"]


@pytest.mark.parametrize("is_handed_over", [True, False])
@pytest.mark.parametrize("is_resume", [True, False])
async def test_who_is_cancelled_keeps_it_from_nobody(*, is_handed_over: bool, is_resume: bool) -> None:
    bench = Bench()
    assert bench.lock.enter_at_once()
    cancelled = asyncio.create_task(bench.resume(1) if is_resume else bench.step("cancelled"))
    other = asyncio.create_task(bench.step("other"))
    await turns()
    if is_handed_over:
        bench.lock.leave()
        cancelled.cancel()
    else:
        cancelled.cancel()
        bench.lock.leave()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await other
    assert bench.had == ["other"]
    assert not bench.lock.locked()
