"""The tail: nothing is missed, nothing comes twice, and a hole is declared."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gateway.adapters.redis import readers
from gateway.adapters.redis import tail as tail_module
from gateway.adapters.redis.scripts import Command
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, GridGeneration, SessionId, TopicPath
from gateway.ports import GridUnavailable, Ownership, PositionLost, StreamPosition, TailBatch
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    Bench,
    Publisher,
    Reader,
    keep_trying,
    until_up,
    values_of,
)
from tests.support.clock import eventually
from tests.support.times import scaled

LONG_BLOCK = 600.0
"""Seconds that a read waits inside Redis, where it must be woken: nobody waits for its end."""


async def test_what_is_published_after_the_position_comes_once_and_in_order(bench: Bench) -> None:
    writer, follower = await bench.grid(N1), await bench.grid(N2)
    publisher = Publisher(writer)
    await publisher.publish(100)
    position = await follower.topics.position(PARTITION)
    assert position == StreamPosition(GridGeneration(1), 100)
    await publisher.publish(50)
    reader = Reader(follower)
    follower.tail.follow(PARTITION, position)
    await publisher.publish(5000)
    await keep_trying(lambda: len(reader.values) >= 5050, message="all values arrive")
    assert reader.texts == [b"%d" % number for number in range(101, 5151)]
    assert [each.event for each in reader.values[:2]] == [f"{PARTITION}-1-101", f"{PARTITION}-1-102"]
    assert reader.lost == []
    await reader.close()


@pytest.mark.parametrize("failed", [0, 1, 3])
async def test_a_blocked_reader_takes_up_new_interest_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failed: int
) -> None:
    """A reader that waits inside Redis is woken, though a command that wakes it fails."""
    monkeypatch.setattr(readers, "BLOCK", LONG_BLOCK)
    grid = await bench.grid()
    reader = Reader(grid)
    (batcher,) = grid._connection.batcher.batchers
    call, left = batcher.call, failed

    async def fail_first(command: Command, **options: Any) -> Any:
        nonlocal left
        if command[:2] == ("CLIENT", "UNBLOCK") and left:
            left -= 1
            raise GridUnavailable("it was not answered in time")
        return await call(command, **options)

    monkeypatch.setattr(batcher, "call", fail_first)
    quiet = (PARTITION + 1) % 64
    grid.tail.follow(quiet, await grid.topics.position(quiet))

    async def waits() -> bool:
        return bool(await bench.clients(reader=True))

    await eventually(waits)
    for number in range(1, 11):
        grid.tail.unfollow(PARTITION)
        position = await grid.topics.position(PARTITION)
        await Publisher(grid, session=f"s{number}").publish(1)
        grid.tail.follow(PARTITION, position)
        await keep_trying(lambda number=number: len(reader.values) == number, message="it comes")  # type: ignore[misc]
    assert not left
    await reader.close()


async def test_a_reader_begins_anew_if_its_waker_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a bug: it does not wait for the end of its read, deaf to what is wanted."""
    monkeypatch.setattr(readers, "BLOCK", LONG_BLOCK)
    grid = await bench.grid()
    reader = Reader(grid)
    quiet = (PARTITION + 1) % 64
    grid.tail.follow(quiet, await grid.topics.position(quiet))

    async def waits() -> bool:
        return bool(await bench.clients(reader=True))

    await eventually(waits)
    (batcher,) = grid._connection.batcher.batchers
    call, has_failed = batcher.call, False

    async def fail_once(command: Command, **options: Any) -> Any:
        nonlocal has_failed
        if command[:2] == ("CLIENT", "UNBLOCK") and not has_failed:
            has_failed = True
            raise RuntimeError("a bug")
        return await call(command, **options)

    monkeypatch.setattr(batcher, "call", fail_once)
    position = await grid.topics.position(PARTITION)
    await Publisher(grid).publish(1)
    grid.tail.follow(PARTITION, position)
    await keep_trying(lambda: len(reader.values) == 1, message="it comes")
    assert has_failed
    await reader.close()


@pytest.mark.promise("P2")
async def test_the_reader_goes_on_where_it_was_after_its_connection_was_cut(bench: Bench) -> None:
    grid = await bench.grid(stream_length=50_000)
    publisher = Publisher(grid)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    done = asyncio.Event()

    async def cut() -> None:
        while not done.is_set():
            await bench.kill_clients(reader=True)
            await bench.kill_clients(reader=random.random() < 0.8)
            await asyncio.sleep(random.uniform(0, 0.1))

    cutter = asyncio.create_task(cut())
    for _ in range(100):
        await publisher.publish(random.randint(1, 100))
    done.set()
    await cutter
    await keep_trying(lambda: len(reader.values) >= publisher.settled, message="all values arrive")
    assert reader.texts == [b"%d" % number for number in range(1, publisher.settled + 1)]
    assert reader.lost == []
    await reader.close()


@pytest.mark.promise("P2")
async def test_snapshot_and_tail_together_have_neither_hole_nor_duplicate(bench: Bench) -> None:
    """Position, follow, read values: races of interest under traffic, each ends with exactly the last values."""
    writer, follower = await bench.grid(N1, stream_length=50_000), await bench.grid(N2)
    topics = [TopicPath(f"t{number}/x") for number in range(12)]
    publishers = [Publisher(writer, session=topic, topic=topic) for topic in topics]
    done = asyncio.Event()

    async def publish(publisher: Publisher) -> None:
        while not done.is_set():
            await publisher.publish(random.randint(1, 20))
            await asyncio.sleep(0)

    traffic = [asyncio.create_task(publish(each)) for each in publishers]
    reader = Reader(follower)
    followed: set[int] = set()
    for _ in range(150):
        partition = topic_partition(random.choice(topics), 1)
        if partition in followed and random.random() < 0.7:
            follower.tail.unfollow(partition)
            followed.discard(partition)
        else:
            before = len(reader.values)
            position = await follower.topics.position(partition)
            follower.tail.follow(partition, position)
            followed.add(partition)
            first = f"{partition}-{position.grid_generation}-{position.sequence + 1}"

            def here(partition: int = partition, before: int = before) -> list[str]:
                return [each.event for each in reader.values[before:] if each.event.startswith(f"{partition}-")]

            await keep_trying(lambda here=here, first=first: first in here(), message="the first value comes")  # type: ignore[misc]
            events = here()
            # What was followed before may have brought it too; from there on nothing old may come.
            events = events[len(events) - 1 - events[::-1].index(first) :]
            assert events == [
                f"{partition}-{position.grid_generation}-{position.sequence + 1 + n}" for n in range(len(events))
            ]
    done.set()
    await asyncio.gather(*traffic)
    assert reader.lost == []
    for partition in followed:
        end = await follower.topics.position(partition)
        name = f"{partition}-{end.grid_generation}-{end.sequence}"
        await keep_trying(lambda name=name: any(each.event == name for each in reader.values), message=name)  # type: ignore[misc]
    await reader.close()


@pytest.mark.promise("P2")
async def test_a_trimmed_stream_is_a_lost_position_and_never_a_hole(bench: Bench) -> None:
    grid = await bench.grid(stream_length=100)
    publisher = Publisher(grid)
    await publisher.publish(10)
    position = await grid.topics.position(PARTITION)
    await publisher.publish(1000)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, position)
    await keep_trying(lambda: reader.lost == [PARTITION], message="the position is lost")
    assert reader.values == []
    # It is not followed any more, until it is followed anew.
    await publisher.publish(1)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await publisher.publish(1)
    await keep_trying(lambda: bool(reader.values), message="it comes")
    assert reader.texts == [b"1012"]
    await reader.close()


async def test_an_empty_stream_can_be_followed_from_its_position_and_from_nothing(bench: Bench) -> None:
    grid = await bench.grid()
    assert await grid.topics.position(PARTITION) == StreamPosition(GridGeneration(1), 0)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, StreamPosition(GridGeneration(0), 0))
    await Publisher(grid).publish(2)
    await keep_trying(lambda: len(reader.values) == 2, message="both come")
    assert reader.lost == []
    await reader.close()


@pytest.mark.promise("P2")
async def test_a_grid_that_may_have_lost_writes_loses_every_followed_position(harmed: Bench) -> None:
    grid = await harmed.grid()
    reader = Reader(grid)
    for partition in (1, 2, 3):
        grid.tail.follow(partition, await grid.topics.position(partition))
    await harmed.server.restart()
    await keep_trying(lambda: sorted(reader.lost) == [1, 2, 3], message="all are lost")
    await reader.close()


async def test_a_suspended_redis_loses_no_position(forgetful: Bench) -> None:
    grid = await forgetful.grid(timeout=scaled(0.4))
    publisher = Publisher(grid)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await publisher.publish(3)
    forgetful.server.suspend()
    stalled = asyncio.create_task(publisher.publish(3))
    await keep_trying(lambda: grid.state.value == "unreachable", message="unreachable")
    forgetful.server.resume()
    await stalled
    await until_up(grid)
    await keep_trying(lambda: len(reader.values) == 6, message="all come")
    assert reader.texts == [b"%d" % number for number in range(1, 7)]
    assert reader.lost == []
    await reader.close()


async def test_a_slow_application_pauses_the_reader(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "QUEUED_ITEMS", 4)
    monkeypatch.setattr(readers, "READ_ENTRIES", 10)
    grid = await bench.grid()
    publisher = Publisher(grid)
    position = await grid.topics.position(PARTITION)
    await publisher.publish(1000)
    grid.tail.follow(PARTITION, position)
    await keep_trying(lambda: not grid.tail._room.is_set(), message="the reader pauses")
    assert len(grid.tail._queue) <= 4 + 1
    reader = Reader(grid)
    await keep_trying(lambda: len(reader.values) == 1000, message="all come")
    assert reader.texts == [b"%d" % number for number in range(1, 1001)]
    await reader.close()


async def test_leftovers_of_an_earlier_following_do_not_come(bench: Bench) -> None:
    grid = await bench.grid()
    publisher = Publisher(grid)
    start = await grid.topics.position(PARTITION)
    await publisher.publish(10)
    end = await grid.topics.position(PARTITION)
    grid.tail.follow(PARTITION, start)
    await keep_trying(lambda: bool(grid.tail._queue), message="the first batch waits for the application")
    grid.tail.unfollow(PARTITION)
    grid.tail.follow(PARTITION, end)
    await publisher.publish(1)
    reader = Reader(grid)
    await keep_trying(lambda: bool(reader.values), message="the new value comes")
    assert reader.texts == [b"11"]
    await reader.close()


async def test_claims_are_told_to_the_former_owner(bench: Bench) -> None:
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    await n1.nodes.join(N1, lease=60)
    await n2.nodes.join(N2, lease=60)
    told: list[Ownership] = []

    async def listen() -> None:
        async for ownership in n1.nodes.claimed_elsewhere(N1):
            told.append(ownership)  # noqa: PERF401 - each is to be seen as it comes

    task = asyncio.create_task(listen())
    ownerships = [Ownership(SessionId(f"s-{number}"), N2, Epoch(number)) for number in range(5)]
    await n2.nodes.tell_claimed(N1, ownerships[0])
    await keep_trying(lambda: len(told) == 1, message="told")
    await bench.kill_clients(reader=True)
    for ownership in ownerships[1:]:
        await n2.nodes.tell_claimed(N1, ownership)
    await keep_trying(lambda: len(told) == 5, message="told after a cut")
    assert told == ownerships
    assert f"{{nodes}}:inbox:{N1}" in await bench.keys()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await n1.nodes.leave(N1)
    await n2.nodes.tell_claimed(N1, ownerships[0])
    await n2.nodes.leave(N2)
    left = {key for key in await bench.keys() if key.startswith("{nodes}")}
    assert left == {"{nodes}:grid", "{nodes}:renewed"}


@pytest.mark.promise("P11")
async def test_an_idle_tail_costs_one_command_per_block(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))

    async def waits() -> bool:
        return bool(await forgetful.clients(reader=True))

    await eventually(waits)
    before = await forgetful.server.command_counts()
    await Publisher(grid).publish(1)
    await keep_trying(lambda: bool(reader.values), message="it comes")
    after = await forgetful.server.command_counts()
    assert after["xread"] - before["xread"] <= 2
    await reader.close()


async def test_values_and_types(bench: Bench) -> None:
    grid = await bench.grid()
    await Publisher(grid).publish(1)
    grid.tail.follow(PARTITION, StreamPosition(GridGeneration(0), 0))
    async for item in grid.tail.items():
        assert not isinstance(item, PositionLost)
        assert isinstance(item, TailBatch)
        (value,) = item.values
        assert (await values_of(grid, [PARTITION]))[value.topic] == value
        assert item.position == StreamPosition(GridGeneration(1), 1)
        break


async def test_large_values_are_read_in_smaller_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READ_BYTES", 4000)
    grid = await bench.grid()
    publisher = Publisher(grid)
    position = await grid.topics.position(PARTITION)
    small = readers.READ_ENTRIES
    await publisher.publish(10_000)
    reader = Reader(grid)
    counts = set()
    grid.tail.follow(PARTITION, position)

    def all_came() -> bool:
        counts.add(grid.tail._readers[0]._count)
        return len(reader.values) == 10_000

    await keep_trying(all_came, message="all come")
    assert reader.texts == [b"%d" % number for number in range(1, 10_001)]
    assert min(counts) < small
    assert min(counts) >= readers.FEWEST_ENTRIES
    await reader.close()
