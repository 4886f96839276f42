"""What the read barrier waits for, what it asks the grid, and what it does when that fails (P6, P20)."""

from __future__ import annotations

import asyncio

import pytest

from gateway.app.delivery import read_barrier, replicas
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.read_barrier import NEVER
from gateway.catalogue import log_events as events
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import GridUnavailable, StreamPosition
from tests.support.clock import eventually
from tests.support.delivery import DeliveryBench

A, B = (topic_partition(TopicPath(root), 1) for root in "ab")

pytestmark = pytest.mark.promise("P6")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_barrier, "REST", 0.0)
    monkeypatch.setattr(read_barrier, "RETRY_READ", 0.0)
    monkeypatch.setattr(replicas, "RETRY_READ", 0.0)


async def following(bench: DeliveryBench) -> None:
    """Have the node follow two streams, with an entry each."""
    session = bench.session()
    for topic in ("a/x", "b/x"):
        bench.grid.publish([topic])
        await bench.subscribe(session, f"{topic[0]}/**")


def waiting(bench: DeliveryBench, *numbers: int, moment: float = 0.0) -> asyncio.Task[None]:
    return asyncio.create_task(bench.delivery.barrier.wait(numbers, moment))


async def test_it_is_passed_when_the_stream_has_brought_what_the_grid_had() -> None:
    bench = DeliveryBench()
    await following(bench)
    barrier = bench.delivery.barrier
    ahead = [bench.grid.publish(["a/x"]) for _ in range(2)]  # in the grid, and not here
    task = waiting(bench, A, B)
    await eventually(lambda: bool(bench.partition("a/x").awaited))
    bench.delivery.replicas.take_in(ahead[0], lambda: None)
    await bench.turns(5)
    assert not task.done()
    assert barrier.passed([A, B], NEVER)
    assert not barrier.passed([A], 0.0)

    bench.delivery.replicas.take_in(ahead[1], lambda: None)
    await task

    assert barrier.passed([A, B], 0.0)
    assert barrier.asked == 2
    assert not bench.partition("a/x").awaited
    await bench.close()


async def test_what_is_known_of_a_moment_is_not_asked_again_for_an_earlier_one() -> None:
    bench = DeliveryBench(step=1.0)  # each look at the clock is a second
    await following(bench)
    barrier = bench.delivery.barrier
    await waiting(bench, A)
    asked = barrier.asked
    await waiting(bench, A)
    assert barrier.asked == asked
    await waiting(bench, A, moment=barrier._known[A] + 0.5)
    assert barrier.asked == asked + 1
    await bench.close()


async def test_who_comes_while_a_round_is_under_way_waits_for_the_next_one_with_all_who_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = DeliveryBench(step=1.0)
    await following(bench)
    barrier, position = bench.delivery.barrier, bench.grid.position
    go_on = asyncio.Event()

    async def slow(partition: int) -> StreamPosition:
        await go_on.wait()
        return await position(partition)

    monkeypatch.setattr(bench.grid, "position", slow)
    first = waiting(bench, A)
    await eventually(lambda: barrier.asked == 1)
    later = [waiting(bench, A, moment=barrier._clock.monotonic()) for _ in range(100)]
    await bench.turns(5)
    assert barrier.asked == 1, "one round of a partition at a time"
    go_on.set()
    await asyncio.gather(first, *later)
    assert barrier.asked == 2
    await bench.close()


@pytest.mark.parametrize("fault", [GridUnavailable("away"), RuntimeError("a bug")])
async def test_a_grid_that_cannot_tell_is_asked_again(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    bench = DeliveryBench()
    await following(bench)
    faults, position = [fault] * 3, bench.grid.position

    async def failing(partition: int) -> StreamPosition:
        if faults:
            raise faults.pop()
        return await position(partition)

    monkeypatch.setattr(bench.grid, "position", failing)
    await waiting(bench, A)
    assert bench.delivery.barrier.asked == 4
    assert len(bench.log.of(events.BACKGROUND_TASK_FAILED)) == (0 if isinstance(fault, GridUnavailable) else 3)
    await bench.close()


async def test_a_stream_that_was_read_anew_meanwhile_counts() -> None:
    """The place was lost: nothing more comes of what was waited for, but the values are as new."""
    bench = DeliveryBench()
    await following(bench)
    bench.grid.publish(["a/x"])
    task = waiting(bench, A)
    await eventually(lambda: bool(bench.partition("a/x").awaited))
    bench.delivery.replicas.read_again(A)
    await task
    assert bench.partition("a/x").position == await bench.grid.position(A)
    await bench.close()


async def test_nobody_waits_for_a_partition_that_is_given_up() -> None:
    bench = DeliveryBench()
    session = bench.session()
    await bench.subscribe(session, "a/**")
    bench.grid.publish(["a/x"])
    task = waiting(bench, A)
    await eventually(lambda: bool(bench.partition("a/x").awaited))
    bench.delivery.forget(session)
    await task
    assert not bench.delivery.barrier.passed([A], NEVER)
    await bench.close()


async def test_who_gives_up_leaves_nothing_behind_but_the_round() -> None:
    bench = DeliveryBench()
    await following(bench)
    ahead = bench.grid.publish(["a/x"])
    tasks = [waiting(bench, A) for _ in range(10)]
    await eventually(lambda: bool(bench.partition("a/x").awaited))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(bench.partition("a/x").awaited) == 1
    bench.delivery.replicas.take_in(ahead, lambda: None)
    await eventually(lambda: not bench.partition("a/x").awaited)
    await bench.close()


async def test_a_stream_that_is_far_behind_is_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """P20: those in a hurry go on without, all at once; whoever waits sleeps until something has come."""
    monkeypatch.setattr(read_barrier, "PATIENCE", 0.0)
    bench = DeliveryBench()
    await following(bench)
    barrier = bench.delivery.barrier
    ahead = bench.grid.publish(["a/x"])
    patient = [waiting(bench, A) for _ in range(10)]
    await asyncio.gather(*(barrier.catch_up([A, B], 0.0) for _ in range(10)))
    assert not barrier.passed([A], 0.0)
    looks: list[int] = []
    whole = bench.delivery.replicas.whole

    def counted(number: int) -> Partition | None:
        looks.append(number)
        return whole(number)

    monkeypatch.setattr(bench.delivery.replicas, "whole", counted)
    await asyncio.sleep(0.05)
    assert not looks
    bench.delivery.replicas.take_in(ahead, lambda: None)
    await asyncio.gather(*patient)
    await barrier.catch_up([A, B], 0.0)
    assert barrier.passed([A, B], 0.0)
    await bench.close()


async def test_sessions_that_nobody_else_has_served_wait_for_whole_copies_alone() -> None:
    bench = DeliveryBench()
    await following(bench)
    bench.grid.publish(["a/x"])
    await bench.delivery.barrier.wait([A, B], NEVER)
    assert bench.delivery.barrier.asked == 0
    await bench.close()
