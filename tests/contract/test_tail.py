"""The contract of ``TopicTail``: streams without hole or duplicate, or a declared loss."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from gateway.adapters.redis import readers
from gateway.core.types import EventId, TopicPath, Version
from gateway.ports import Grid, Ownership, PublishCommand, TopicValue
from tests.contract.examples import ownership, publish, published, session, topic_of, values_of
from tests.contract.following import Follower
from tests.contract.harness import LONG, STREAM_LENGTH, TRIMMED_AFTER, Harness
from tests.support.clock import eventually

TOPIC = "prices/ACME"
PARTITION = topic_of(TOPIC)


def numbered(owner: Ownership, first: int, last: int, topic: str = TOPIC) -> list[PublishCommand]:
    """Make publishes whose values are their requests."""
    return [publish(owner, number, topic, str(number).encode()) for number in range(first, last + 1)]


async def test_a_followed_partition_brings_every_publish_in_order(harness: Harness) -> None:
    """Entries of one topic partition, in order and without a hole. / position: of the last of them."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        receipts = []
        for first in range(1, 80, 8):
            receipts += await published(n1, *numbered(owner, first, first + 7))
        values = await follower.has(PARTITION, 80)
        assert [(each.event, each.version) for each in values] == [(each.event, each.version) for each in receipts]
        assert [each.value for each in values] == [str(number).encode() for number in range(1, 81)]
        assert {each.topic for each in values} == {TOPIC}
        assert follower.positions[PARTITION] == await n1.topics.position(PARTITION)


async def test_only_what_comes_after_the_position_is_read(harness: Harness) -> None:
    """Read *partition* from after *position* on."""
    grid = await harness.grid()
    owner = ownership(session())
    await published(grid, *numbered(owner, 1, 5))
    middle = await grid.topics.position(PARTITION)
    await published(grid, *numbered(owner, 6, 10))
    async with Follower(grid) as follower:
        follower.follow(PARTITION, middle)
        assert [each.value for each in await follower.has(PARTITION, 5)] == [b"6", b"7", b"8", b"9", b"10"]


async def test_other_partitions_are_not_read(harness: Harness) -> None:
    """The streams of the partitions a node has interest in."""
    grid = await harness.grid()
    owner = ownership(session())
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION)
        await published(grid, publish(owner, 1, "rates/EUR"), publish(owner, 2, TOPIC))
        await follower.has(PARTITION, 1)
        assert list(follower.values) == [PARTITION]


async def test_interest_takes_effect_while_a_read_waits(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """follow: does not wait; takes effect at once."""
    monkeypatch.setattr(readers, "BLOCK", LONG)  # nobody waits for the end of a read
    grid = await harness.grid()
    owner = ownership(session())
    async with Follower(grid) as follower:
        await follower.follow_from_here(topic_of("quiet/topic"))
        for request, topic in enumerate(("prices/A", "rates/A", "news/A"), 1):
            await follower.follow_from_here(topic_of(topic))
            await published(grid, publish(owner, request, topic))
            await follower.has(topic_of(topic), 1)


async def test_after_unfollow_nothing_new_comes_until_it_is_followed_again(harness: Harness) -> None:
    """Stop reading *partition*; entries already under way may still come."""
    grid = await harness.grid()
    owner = ownership(session())
    other = topic_of("rates/EUR")
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION, other)
        await published(grid, *numbered(owner, 1, 3))
        await follower.has(PARTITION, 3)
        grid.tail.unfollow(PARTITION)
        grid.tail.unfollow(PARTITION)
        await published(grid, *numbered(owner, 4, 6))
        await published(grid, publish(owner, 7, "rates/EUR"))
        await follower.has(other, 1)
        assert len(follower.values[PARTITION]) == 3
        follower.follow(PARTITION, follower.positions[PARTITION])
        await follower.has(PARTITION, 6)
        assert [each.value for each in follower.values[PARTITION]] == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_a_paused_partition_brings_nothing_and_goes_on_where_it_was_left(harness: Harness) -> None:
    """pause: read nothing more of a followed partition until ``resume``; other partitions are not concerned."""
    grid = await harness.grid()
    owner = ownership(session())
    other = topic_of("rates/EUR")
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION, other)
        await published(grid, *numbered(owner, 1, 3))
        await follower.has(PARTITION, 3)
        grid.tail.pause(PARTITION)
        grid.tail.pause(PARTITION)
        await published(grid, publish(owner, 4, "rates/EUR"))
        await follower.has(other, 1)  # a read that knows of the pause has come to its end
        await published(grid, *numbered(owner, 5, 7))
        await published(grid, publish(owner, 8, "rates/EUR"))
        await follower.has(other, 2)
        assert len(follower.values[PARTITION]) == 3
        grid.tail.resume(PARTITION)
        grid.tail.resume(PARTITION)
        await follower.has(PARTITION, 6)
        assert [each.value for each in follower.values[PARTITION]] == [b"1", b"2", b"3", b"5", b"6", b"7"]
        await published(grid, *numbered(owner, 9, 9))
        await follower.has(PARTITION, 7)


async def test_a_pause_ends_when_the_partition_is_followed_anew(harness: Harness) -> None:
    """``follow`` ends a pause. No effect on a partition that is not followed."""
    grid = await harness.grid()
    owner = ownership(session())
    async with Follower(grid) as follower:
        grid.tail.pause(PARTITION)
        grid.tail.resume(PARTITION)
        await published(grid, *numbered(owner, 1, 1))
        await follower.follow_from_here(PARTITION)
        await published(grid, *numbered(owner, 2, 2))
        await follower.has(PARTITION, 1)
        grid.tail.pause(PARTITION)
        follower.follow(PARTITION, follower.positions[PARTITION])
        await published(grid, *numbered(owner, 3, 3))
        await follower.has(PARTITION, 2)
        grid.tail.pause(PARTITION)
        grid.tail.unfollow(PARTITION)
        grid.tail.resume(PARTITION)
        follower.follow(PARTITION, follower.positions[PARTITION])
        await published(grid, *numbered(owner, 4, 4))
        await follower.has(PARTITION, 3)
        assert [each.value for each in follower.values[PARTITION]] == [b"2", b"3", b"4"]


async def test_a_pause_takes_effect_while_a_read_waits(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was published meanwhile comes without waiting for the end of a read."""
    monkeypatch.setattr(readers, "BLOCK", LONG)  # nobody waits for the end of a read
    grid = await harness.grid()
    owner = ownership(session())
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION, topic_of("quiet/topic"))
        for request in range(1, 6):
            grid.tail.pause(PARTITION)
            await published(grid, *numbered(owner, request, request))
            grid.tail.resume(PARTITION)
            await follower.has(PARTITION, request)
        assert [each.value for each in follower.values[PARTITION]] == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.promise("P2")
async def test_what_is_trimmed_during_a_pause_is_a_lost_position(harness: Harness) -> None:
    """It may be lost meanwhile, if the stream is trimmed past it."""
    grid = await harness.grid()
    owner = ownership(session())
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION)
        await published(grid, *numbered(owner, 1, 1))
        await follower.has(PARTITION, 1)
        grid.tail.pause(PARTITION)
        for first in range(2, TRIMMED_AFTER + 2, 100):
            await published(grid, *numbered(owner, first, first + 99))
        grid.tail.resume(PARTITION)
        # What was under way when the pause began may have come; then there is no hole before it.
        await follower.has_lost(PARTITION)


@pytest.mark.promise("P2")
async def test_no_hole_and_no_duplicate_while_interest_changes_under_traffic(harness: Harness) -> None:
    """Yield what the followed partitions bring; compared with the receipts of the publishes themselves."""
    publishers = [await harness.grid("n1"), await harness.grid("n2")]
    reader = await harness.grid("n3")
    choose = random.Random(20)
    topics = [f"root{number}/x" for number in range(12)]
    partitions = sorted({topic_of(topic) for topic in topics})
    rounds = 8
    written: defaultdict[int, list[str]] = defaultdict(list)

    async def write(grid: Grid, seed: int) -> None:
        owner = ownership(session())
        pick = random.Random(seed)
        request = 0
        # Fewer per partition than streams keep, so that no position is lost.
        for _ in range(rounds):
            commands = []
            for topic in pick.sample(topics, len(topics)) * 3:
                request += 1
                commands.append(publish(owner, request, topic))
            for receipt in await published(grid, *commands):
                written[int(receipt.event.split("-")[0])].append(receipt.event)
            await asyncio.sleep(0)

    async with Follower(reader) as follower:
        await follower.follow_from_here(*partitions)
        writing = asyncio.gather(*(write(grid, seed) for seed, grid in enumerate(publishers)))
        following = set(partitions)
        while not writing.done():
            partition = choose.choice(partitions)
            if partition in following:
                reader.tail.unfollow(partition)
                following.remove(partition)
            else:
                follower.follow(partition, follower.positions[partition])
                following.add(partition)
            await asyncio.sleep(0)
        await writing
        for partition in partitions:
            follower.follow(partition, follower.positions[partition])
        for partition in partitions:
            await follower.has(partition, len(written[partition]))
            expected = sorted(written[partition], key=lambda event: int(event.rsplit("-", 1)[1]))
            assert follower.events(partition) == expected
        assert not follower.lost


async def test_position_then_follow_then_values_misses_nothing(harness: Harness) -> None:
    """values: take the ``position`` before and follow from there, and nothing is missed."""
    writer, reader = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    await published(writer, *(publish(owner, number, f"prices/{number % 30}") for number in range(1, 1001)))

    async def write() -> None:
        for number in range(1001, 1061):
            await published(writer, publish(owner, number, f"prices/{number % 40}", str(number).encode()))

    async with Follower(reader) as follower:
        writing = asyncio.create_task(write())
        await asyncio.sleep(0)
        await follower.follow_from_here(PARTITION)
        replica = await values_of(reader, PARTITION)
        await writing
        end = await reader.topics.position(PARTITION)
        await eventually(lambda: follower.positions[PARTITION] == end)
        for value in follower.values[PARTITION]:
            if value.topic not in replica or replica[value.topic].version < value.version:
                replica[value.topic] = value
        assert replica == await values_of(writer, PARTITION)
        assert not follower.lost


async def test_a_large_gap_within_the_stream_is_read_whole(harness: Harness) -> None:
    """Without a hole: however far behind the reader is, as long as the stream goes back that far."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    await published(n1, publish(owner, 1, TOPIC, b"1"))
    async with Follower(n2) as follower:
        position = await n2.topics.position(PARTITION)
        await published(n1, *numbered(owner, 2, STREAM_LENGTH))
        follower.follow(PARTITION, position)
        values = await follower.has(PARTITION, STREAM_LENGTH - 1)
        assert [each.value for each in values] == [str(number).encode() for number in range(2, STREAM_LENGTH + 1)]


# --- lost positions ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("P2")
async def test_a_position_that_was_trimmed_past_is_lost(harness: Harness) -> None:
    """A followed partition whose stream does not continue contiguously […] yields ``PositionLost``, never a hole."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    await published(n1, publish(owner, 1, TOPIC))
    position = await n2.topics.position(PARTITION)
    await published(n1, *numbered(owner, 2, TRIMMED_AFTER))
    other = topic_of("rates/EUR")
    async with Follower(n2) as follower:
        await follower.follow_from_here(other)
        follower.follow(PARTITION, position)
        await follower.has_lost(PARTITION)
        # The partition is not followed any more; others are.
        await published(n1, publish(owner, TRIMMED_AFTER + 1, TOPIC), publish(owner, TRIMMED_AFTER + 2, "rates/EUR"))
        await follower.has(other, 1)
        assert follower.values[PARTITION] == []
        assert follower.lost == [PARTITION]
        # Whoever reads must read the values again and follow from a new position.
        await follower.follow_from_here(PARTITION)
        follower.lost.clear()
        await published(n1, publish(owner, TRIMMED_AFTER + 3, TOPIC, b"after"))
        assert (await follower.has(PARTITION, 1))[0].value == b"after"


@pytest.mark.promise("P2")
async def test_a_position_before_the_first_entry_is_lost_when_entries_are_gone(harness: Harness) -> None:
    """A position is "everything up to and including it has been seen"; what was trimmed has not been."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    empty = await n2.topics.position(PARTITION)
    await published(n1, *numbered(ownership(session()), 1, TRIMMED_AFTER))
    async with Follower(n2) as follower:
        follower.follow(PARTITION, empty)
        await follower.has_lost(PARTITION)


async def test_a_position_before_the_first_entry_continues_with_it(harness: Harness) -> None:
    """Read *partition* from after *position* on, also if nobody had published there yet."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    empty = await n2.topics.position(PARTITION)
    await published(n1, *numbered(ownership(session()), 1, 5))
    async with Follower(n2) as follower:
        follower.follow(PARTITION, empty)
        assert [each.value for each in await follower.has(PARTITION, 5)] == [b"1", b"2", b"3", b"4", b"5"]


async def test_restored_values_come_to_every_follower(harness: Harness) -> None:
    """Appended to its partition's stream so that every follower sees it. / ``restored`` values are among them."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    kept = [
        TopicValue(TopicPath(f"prices/{number}"), Version(number), EventId(f"{PARTITION}-1-{number}"), b"kept")
        for number in range(1, 4)
    ]
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await n1.topics.restore(kept)
        # The event is that of the publish, which clients may know.
        assert await follower.has(PARTITION, 3) == kept
        await published(n1, publish(ownership(session()), 1, "prices/1"))
        assert (await follower.has(PARTITION, 4))[3].version == 2


# --- the grid unreachable ---------------------------------------------------------------------------------------------


async def test_a_reader_that_was_cut_off_goes_on_where_it_was(harness: Harness) -> None:
    """While the grid is unreachable it waits; then it goes on where it was, without hole and duplicate."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await published(n1, *numbered(owner, 1, 10))
        await follower.has(PARTITION, 10)
        for first in (11, 31):
            await harness.cut(n2)
            await published(n1, *numbered(owner, first, first + 19))
            await harness.mend(n2)
            await follower.has(PARTITION, first + 19)
        assert [each.value for each in follower.values[PARTITION]] == [str(number).encode() for number in range(1, 51)]


@pytest.mark.promise("P2")
async def test_a_reader_that_was_cut_off_for_too_long_is_told(harness: Harness) -> None:
    """PositionLost: trimmed past it."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await published(n1, publish(owner, 1, TOPIC))
        await follower.has(PARTITION, 1)
        await harness.cut(n2)
        await published(n1, *numbered(owner, 2, TRIMMED_AFTER))
        await harness.mend(n2)
        await follower.has_lost(PARTITION)
        assert len(follower.values[PARTITION]) == 1


async def test_interest_may_be_changed_while_the_grid_is_unreachable(harness: Harness) -> None:
    """Both follow and unfollow do not wait, whatever the state of the grid."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    other = topic_of("rates/EUR")
    position = await n2.topics.position(other)
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await harness.cut(n2)
        follower.follow(other, position)
        n2.tail.unfollow(PARTITION)
        await published(n1, publish(owner, 1, TOPIC), publish(owner, 2, "rates/EUR"))
        await harness.mend(n2)
        await follower.has(other, 1)
        assert follower.values[PARTITION] == []
