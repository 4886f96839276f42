"""Publishing exactly once and in order (P5), versions that only rise (P6), reading and restoring values."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from gateway.adapters.redis import scripts
from gateway.adapters.redis.topics import RECEIPT_LIFE_MS, STORED_RECEIPT_LIFE_MS
from gateway.core.topics.topics import topic_partition
from gateway.core.types import EventId, RequestNumber, TopicPath, Version
from gateway.ports import GridRefused, GridUnavailable, Published, TopicValue
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    TOPIC,
    Bench,
    Publisher,
    is_fenced,
    stream_of,
    until_up,
    values_of,
)
from tests.support.clock import DEADLINE
from tests.support.times import time_limit


@pytest.mark.promise("P5", "P6")
async def test_twenty_thousand_publishes_arrive_once_and_in_order(bench: Bench) -> None:
    grid = await bench.grid(stream_length=30_000)
    publisher = Publisher(grid)
    published = await publisher.publish(20_000)
    assert [each.version for each in published] == list(range(1, 20_001))
    assert published[-1].event == f"{PARTITION}-1-20000"
    assert [int(value) for _, value in await stream_of(bench)] == list(range(1, 20_001))
    assert publisher.sent_again == 0


@pytest.mark.promise("P5")
async def test_publishing_is_exactly_once_while_connections_are_cut_in_the_middle_of_pipelines(bench: Bench) -> None:
    grid = await bench.grid(stream_length=1_000_000)
    publisher = Publisher(grid)
    done = asyncio.Event()
    cuts = 0

    async def cut() -> None:
        nonlocal cuts
        while not done.is_set():
            cuts += await bench.kill_clients()
            await asyncio.sleep(random.uniform(0, 0.05))

    cutter = asyncio.create_task(cut())
    async with time_limit(DEADLINE):
        # The faster publishing is, the more of it goes between two cuts.
        while cuts < 10 or publisher.sent_again < 5:
            await publisher.publish(random.randint(1, 300))
    done.set()
    await cutter
    numbers = [int(value) for _, value in await stream_of(bench)]
    assert numbers == list(range(1, publisher.settled + 1))


@pytest.mark.promise("P5")
async def test_many_sessions_publish_at_the_same_time_over_one_connection(bench: Bench) -> None:
    grid = await bench.grid(stream_length=50_000)
    publishers = [Publisher(grid, session=f"s{number}", topic=TopicPath(f"{number}/x")) for number in range(100)]
    done = asyncio.Event()

    async def publish(publisher: Publisher) -> None:
        for _ in range(20):
            await publisher.publish(random.randint(1, 5))

    async def cut() -> None:
        while not done.is_set():
            await bench.kill_clients()
            await asyncio.sleep(random.uniform(0, 0.1))

    cutter = asyncio.create_task(cut())
    await asyncio.gather(*(publish(each) for each in publishers))
    done.set()
    await cutter
    await until_up(grid)
    values = await values_of(grid)
    for publisher in publishers:
        stored = values[publisher.topic]
        assert (stored.version, int(stored.value)) == (publisher.settled, publisher.settled)


@pytest.mark.promise("P5")
async def test_answers_to_repeated_requests(bench: Bench) -> None:
    grid = await bench.grid()
    publisher = Publisher(grid)
    first = await grid.topics.publish(
        [publisher.command(number, settled=max(0, number - 3)) for number in range(1, 41)]
    )
    again = await grid.topics.publish([publisher.command(number, settled=37) for number in range(1, 41)])
    for request, (was, now) in enumerate(zip(first, again, strict=True), start=1):
        assert isinstance(was, Published)
        if request <= 37:
            assert now == Published(Version(0), EventId(""), duplicate=True)
        else:
            assert now == Published(was.version, was.event, duplicate=True)
    assert len(await stream_of(bench)) == 40
    kept = await bench.server.call("LLEN", f"{bench.prefix}:{{t{PARTITION}}}:receipts:publisher")
    assert 3 <= kept < 20, "receipts are forgotten in bunches"


@pytest.mark.promise("P5")
async def test_one_step_of_old_and_new_requests(bench: Bench) -> None:
    """Each publish of a step is judged by itself, also by what the same step has just done."""
    grid = await bench.grid()
    publisher = Publisher(grid)
    before = await grid.topics.publish([publisher.command(number) for number in (1, 2, 4)])
    numbers = (1, 2, 3, 4, 5, 5, 4, 6)
    results = await grid.topics.publish([publisher.command(number) for number in numbers])
    assert all(isinstance(each, Published) for each in (*before, *results))
    published = [each for each in results if isinstance(each, Published)]
    assert [each.duplicate for each in published] == [True, True, True, True, False, True, True, False]
    assert [each.version for each in published] == [1, 2, 0, 3, 4, 4, 3, 5], "3 was overtaken, and is not executed late"
    assert [each.event for each in published] == [
        f"{PARTITION}-1-{number}" if number else "" for number in (1, 2, 0, 3, 4, 4, 3, 5)
    ]
    assert [int(value) for _, value in await stream_of(bench)] == [1, 2, 4, 5, 6]


async def test_each_partition_of_one_step_has_its_own_answer(bench: Bench) -> None:
    """Topics of many partitions are published in one step: duplicates, a fence and what is new there do not mix."""
    n1 = await bench.grid()
    publisher = Publisher(n1)
    topics = [TopicPath(f"own-{number}/x") for number in range(40)]
    places = [topic_partition(topic, 1) for topic in topics]
    commands = [publisher.command(number)._replace(topic=topic) for number, topic in enumerate(topics, 1)]
    first = await n1.topics.publish(commands)
    assert [isinstance(each, Published) and each.duplicate for each in first] == [False] * len(topics)
    assert [each.event.split("-")[0] for each in first if isinstance(each, Published)] == [str(each) for each in places]
    again = await n1.topics.publish(
        [*commands, *(publisher.command(number)._replace(topic=topic) for number, topic in enumerate(topics, 41))]
    )
    assert again[:40] == [each._replace(duplicate=True, created=False) for each in first if isinstance(each, Published)]
    assert [each.version for each in again[40:] if isinstance(each, Published) and not each.duplicate] == [2] * 40
    newer = Publisher(n1, epoch=2).ownership
    await n1.topics.publish([publisher.command(81)._replace(topic=topics[0], ownership=newer)])
    mixed = await n1.topics.publish([each._replace(request=RequestNumber(each.request + 81)) for each in commands])
    fenced = [place == places[0] for place in places]
    assert [is_fenced(each) for each in mixed] == fenced
    assert any(fenced)
    assert not all(fenced)


@pytest.mark.promise("P5")
async def test_a_step_that_ends_at_a_later_partition_is_repeated_without_a_duplicate(bench: Bench) -> None:
    """One stream is of a newer generation: what the same step published elsewhere has its receipt, and is not lost."""
    grid = await bench.grid()
    publisher = Publisher(grid)
    elsewhere = TopicPath("elsewhere/x")
    place = topic_partition(elsewhere, 1)
    assert place != PARTITION
    await bench.server.call("XADD", f"{bench.prefix}:{{t{PARTITION}}}:stream", "7-*", "", "")
    commands = [publisher.command(1)._replace(topic=elsewhere), publisher.command(2)]
    with pytest.raises(GridUnavailable, match="generation"):
        await grid.topics.publish(commands)
    await until_up(grid)
    before, now = await grid.topics.publish(commands)
    assert before == Published(Version(1), EventId(f"{place}-1-1"), duplicate=True)
    assert isinstance(now, Published)
    assert (now.event, now.duplicate) == (f"{PARTITION}-8-1", False)


@pytest.mark.promise("P5")
async def test_receipts_that_are_not_settled_are_kept(bench: Bench) -> None:
    grid = await bench.grid()
    publisher = Publisher(grid)
    first = await grid.topics.publish([publisher.command(number, settled=0) for number in range(1, 101)])
    again = await grid.topics.publish([publisher.command(number, settled=0) for number in range(1, 101)])
    for was, now in zip(first, again, strict=True):
        assert isinstance(was, Published)
        assert now == Published(was.version, was.event, duplicate=True)


@pytest.mark.promise("P3")
async def test_an_older_epoch_is_fenced_once_a_newer_owner_has_published(bench: Bench) -> None:
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    old, new = Publisher(n1, epoch=1), Publisher(n2, epoch=2)
    await old.publish(3)
    # The new owner is asked again what the old one had executed, and goes on.
    results = await n2.topics.publish([new.command(number) for number in range(2, 5)])
    assert [isinstance(each, Published) and each.duplicate for each in results] == [True, True, False]
    assert all(map(is_fenced, await n1.topics.publish([old.command(4), old.command(5)])))
    assert [int(value) for _, value in await stream_of(bench)] == [1, 2, 3, 4]


@pytest.mark.promise("P5")
async def test_a_refused_publish_is_not_overtaken_by_the_next_one(forgetful: Bench) -> None:
    """Redis out of memory for a moment: request 2 must not be executed, or 1 sent again would pass for a duplicate."""
    grid = await forgetful.grid()
    publisher = Publisher(grid)
    await publisher.publish(1)
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
    first = asyncio.create_task(grid.topics.publish([publisher.command(2)]))
    relief = asyncio.create_task(grid._connection.batcher.call(("CONFIG", "SET", "maxmemory", "0")))
    second = asyncio.create_task(grid.topics.publish([publisher.command(3)]))
    refused, _, overtaking = await asyncio.gather(first, relief, second, return_exceptions=True)
    assert isinstance(refused, list)
    assert [type(each) for each in refused] == [GridRefused], "nothing was done, for certain"
    assert isinstance(overtaking, GridUnavailable)
    again = await asyncio.gather(
        grid.topics.publish([publisher.command(2)]), grid.topics.publish([publisher.command(3)])
    )
    assert [isinstance(each, Published) and each.duplicate for (each,) in again] == [False, False]
    assert [int(value) for _, value in await stream_of(forgetful)] == [1, 2, 3]
    assert grid.topics._on_the_way == {}


@pytest.mark.promise("P6")
async def test_an_older_generation_is_refused_by_the_stream(bench: Bench) -> None:
    grid = await bench.grid()
    stream = f"{bench.prefix}:{{t{PARTITION}}}:stream"
    await bench.server.call("XADD", stream, "7-*", "", "")
    with pytest.raises(GridUnavailable, match="generation"):
        await grid.topics.publish([Publisher(grid).command(1)])
    assert await stream_of(bench) == []
    # The next generation is above what any stream knows, though the grid's own record of it is lower.
    (published,) = await Publisher(grid).publish(1)
    assert published.event == f"{PARTITION}-8-1"
    assert grid.generation == 8


@pytest.mark.promise("P6")
async def test_versions_rise_over_generations(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    publisher = Publisher(grid)
    versions = []
    for _ in range(3):
        versions += [each.version for each in await publisher.publish(3)]
        await forgetful.server.restart(emptied=True)
        await until_up(grid)
    assert all(before < after for before, after in pairwise(versions))


async def test_values_are_read_in_pages_and_all_of_them(bench: Bench) -> None:
    grid = await bench.grid()
    topics = [TopicPath(f"many/{number} with spaces/ü") for number in range(3000)]
    publisher = Publisher(grid)
    commands = []
    for number, topic in enumerate(topics, start=1):
        publisher.topic = topic
        commands.append(publisher.command(number))
    await grid.topics.publish(commands)
    partition = topic_partition(topics[0], 1)
    pages = [page async for page in grid.topics.values(partition)]
    assert len(pages) > 3
    found = {each.topic: each for page in pages for each in page}
    assert set(found) == set(topics)
    assert found[topics[41]].value == b"42"
    assert found[topics[41]].event == f"{partition}-1-42"
    assert [page async for page in grid.topics.values((partition + 1) % 64)] == []


async def test_reading_values_starts_again_when_the_grid_was_unreachable(bench: Bench) -> None:
    grid = await bench.grid()
    publisher = Publisher(grid)
    commands = []
    for number in range(1, 3001):
        publisher.topic = TopicPath(f"{TOPIC}/{number}")
        commands.append(publisher.command(number))
    await grid.topics.publish(commands)
    with pytest.raises(GridUnavailable):  # noqa: PT012 - the failure comes between two pages
        async for _ in grid.topics.values(PARTITION):
            await bench.kill_clients()
            await until_up(grid)


@pytest.mark.promise("P6")
async def test_restored_values_win_only_if_newer_and_reach_followers_with_their_event(bench: Bench) -> None:
    grid = await bench.grid()
    publisher = Publisher(grid)
    await publisher.publish(5)
    position = await grid.topics.position(PARTITION)
    newer = TopicValue(TOPIC, Version(9), EventId(f"{PARTITION}-1-77"), b'"nine"')
    older = TopicValue(TOPIC, Version(8), EventId(f"{PARTITION}-1-76"), b'"eight"')
    unknown = TopicValue(TopicPath("prices/new"), Version(3), EventId(f"{PARTITION}-1-70"), b"1")
    assert await grid.topics.restore([newer, older, unknown, newer]) == 2
    assert (await values_of(grid, [PARTITION]))[TOPIC] == newer
    grid.tail.follow(PARTITION, position)
    async for item in grid.tail.items():
        assert item.values == (newer, unknown)  # type: ignore[union-attr]
        break
    (published,) = await publisher.publish(1)
    assert published.version == 10


async def test_publishing_nothing_is_nothing(bench: Bench) -> None:
    grid = await bench.grid()
    assert await grid.topics.publish([]) == []
    assert await grid.topics.restore([]) == 0
    assert await grid.sessions.restore([], recreate=True) == []


async def test_depth_spreads_topics_below_one_first_segment(bench: Bench) -> None:
    grid = await bench.grid(topic_depth=2)
    publisher = Publisher(grid)
    partitions = set()
    for number in range(1, 20):
        publisher.topic = TopicPath(f"prices/{number}/bid")
        (published,) = await publisher.publish(1)
        partition = topic_partition(publisher.topic, 2)
        assert published.event.startswith(f"{partition}-1-")
        partitions.add(partition)
    assert len(partitions) > 5


OF_MANY_PARTS = {"transaction_commit", "transaction_prepare", "transaction_finish"}
"""Scripts whose further keys are those of the parts that they are given, and named where these are."""


def test_every_script_says_its_keys_result_and_invariant() -> None:
    for each in scripts.SCRIPTS:
        # Without what precedes those that go by the time of the grid, which says its own.
        head = scripts._read(each.name).split("\nlocal ", 1)[0]
        keys = int(each._head[2])
        assert f"KEYS[{keys}]" in head, each.name
        if each.name not in OF_MANY_PARTS:
            assert f"KEYS[{keys + 1}]" not in each.text, each.name
        assert "-- Result" in head, each.name
    assert len({each.sha for each in scripts.SCRIPTS}) == len(scripts.SCRIPTS) == 121


@pytest.mark.promise("P6")
async def test_a_stream_that_was_deleted_starts_a_new_generation(bench: Bench) -> None:
    """Evicted by a wrong memory policy, or by hand: numbers must not be used twice."""
    grid = await bench.grid()
    publisher = Publisher(grid)
    await publisher.publish(3)
    await bench.server.call("DEL", f"{bench.prefix}:{{t{PARTITION}}}:stream")
    (published,) = await publisher.publish(1)
    assert published.event == f"{PARTITION}-2-1"
    assert published.version == (1 << 32) + 1
    assert [value for _, value in await stream_of(bench)] == [b"4"]
    await bench.server.call("DEL", f"{bench.prefix}:{{t{PARTITION}}}:stream")
    with pytest.raises(GridUnavailable):
        await grid.topics.restore([TopicValue(TOPIC, Version(1 << 40), EventId(f"{PARTITION}-2-9"), b"1")])
    await until_up(grid)
    assert grid.generation == 3


@pytest.mark.promise("P7")
async def test_all_receipts_have_an_end(bench: Bench) -> None:
    """With replication off, the end of a session does not reach the grid; and it can miss those of other sessions."""
    grid = await bench.grid()
    held, not_held = Publisher(grid, session="held"), Publisher(grid, session="not-held")
    await grid.topics.publish([held.command(1), not_held.command(1)._replace(stored=False)])
    lives = {
        publisher: await bench.server.call(
            "PTTL", f"{bench.prefix}:{{t{PARTITION}}}:receipts:{publisher.ownership.session}"
        )
        for publisher in (held, not_held)
    }
    assert RECEIPT_LIFE_MS < lives[held] <= STORED_RECEIPT_LIFE_MS
    assert 0 < lives[not_held] <= RECEIPT_LIFE_MS
