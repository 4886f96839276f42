"""The contract of ``TopicStore``: publishing exactly once, versions, values, restoring."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.ports import (
    NO_NEW_TOPICS,
    VALUE_BYTES,
    Fenced,
    GridUnavailable,
    NotCreated,
    NotStored,
    Ownership,
    PublishCommand,
    Published,
    StreamPosition,
    TopicValue,
)
from tests.contract.examples import ownership, publish, published, session, topic_of, values_of
from tests.contract.following import Follower
from tests.contract.harness import STREAM_BYTES, Harness, node

N1, N2 = node("n1"), node("n2")
TOPIC = "prices/ACME"
PARTITION = topic_of(TOPIC)


def sequence(event: str) -> int:
    """Read the sequence of an event id."""
    return int(event.rsplit("-", 1)[1])


async def test_a_publish_is_stored_and_has_a_receipt(harness: Harness) -> None:
    """Raise the version, store the value. / Published: version of the value, id of the event."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    (receipt,) = await published(n1, publish(ownership(session()), 1, TOPIC, b'{"bid":1}'))
    assert not receipt.duplicate
    assert receipt.version == 1
    partition, generation, _ = receipt.event.split("-")
    assert (int(partition), int(generation)) == (PARTITION, n1.generation)
    expected = {TOPIC: TopicValue(TopicPath(TOPIC), receipt.version, receipt.event, b'{"bid":1}')}
    assert await values_of(n1, PARTITION) == await values_of(n2, PARTITION) == expected


async def test_any_json_text_and_any_topic_come_back_as_they_were(harness: Harness) -> None:
    """value: JSON text."""
    grid = await harness.grid()
    owner = ownership(session())
    texts = [b"null", b'""', b'"\\u0000"', '"日本 \\n"'.encode(), b"[1,2]", b"-0.5e-7", b'{"a b":" "}', b"x" * 70_000]
    topics = ["odd/a b", "odd/é", "odd/'\"\\", "odd/-", "odd/1 2 3", "odd/%s", "odd/🙂", "odd/{x}"]
    commands = [publish(owner, number, topics[number - 1], texts[number - 1]) for number in range(1, 9)]
    await published(grid, *commands)
    assert {topic: value.value for topic, value in (await values_of(grid, topic_of("odd/x"))).items()} == dict(
        zip(topics, texts, strict=True)
    )


@pytest.mark.promise("P6")
async def test_versions_grow_by_topic_and_events_by_partition(harness: Harness) -> None:
    """P6: per topic, versions grow. / Event id: ordered within a partition."""
    grid = await harness.grid()
    owner = ownership(session())
    paths = ["prices/A", "prices/B", "prices/A", "prices/A", "prices/B"]
    receipts = await published(grid, *(publish(owner, number, path) for number, path in enumerate(paths, 1)))
    assert [each.version for each in receipts] == [1, 1, 2, 3, 2]
    numbers = [sequence(each.event) for each in receipts]
    assert numbers == list(range(numbers[0], numbers[0] + 5)), "contiguous within a generation"


async def test_publishes_of_one_call_are_executed_in_order(harness: Harness) -> None:
    """Execute publishes in order; one answer per command."""
    grid = await harness.grid()
    alice, bob = ownership(session()), ownership(session())
    commands = [
        publish(owner, number, TOPIC, str(number).encode()) for number in range(1, 31) for owner in (alice, bob)
    ]
    receipts = await published(grid, *commands)
    assert [each.version for each in receipts] == list(range(1, 61))
    assert (await values_of(grid, PARTITION))[TOPIC].value == b"30"
    assert await grid.topics.publish([]) == []


async def test_calls_that_were_started_one_after_the_other_are_executed_in_that_order(harness: Harness) -> None:
    """All parts share one ordered command stream."""
    grid = await harness.grid()
    owner = ownership(session())
    answers = await asyncio.gather(*(published(grid, publish(owner, number, TOPIC)) for number in range(1, 101)))
    assert [receipt.version for (receipt,) in answers] == list(range(1, 101))


# --- as many topics as there may be -----------------------------------------------------------------------------------


def bounded(command: PublishCommand, most: int) -> PublishCommand:
    return command._replace(most_topics=most)


async def test_a_partition_takes_no_more_new_topics_than_it_may_hold(harness: Harness) -> None:
    """A topic that does not exist is created only if its partition holds fewer than so many."""
    grid = await harness.grid()
    owner = ownership(session())
    results = await grid.topics.publish(
        [bounded(publish(owner, number, f"prices/{number}"), 3) for number in range(1, 6)]
        + [bounded(publish(owner, 6, "prices/1", b"2"), 3)]
    )
    assert [type(each) for each in results] == [Published] * 3 + [NotCreated] * 2 + [Published]
    assert [each.created for each in results if isinstance(each, Published)] == [True, True, True, False]
    assert (await values_of(grid, topic_of("prices/1"))).keys() == {"prices/1", "prices/2", "prices/3"}
    last = await grid.topics.publish([bounded(publish(owner, 7, "prices/7"), 4)])
    assert [type(each) for each in last] == [Published], "each command says how many there may be"


async def test_no_topic_is_created_for_who_may_create_none(harness: Harness) -> None:
    """NO_NEW_TOPICS: a topic that does not exist is not created."""
    grid = await harness.grid()
    owner = ownership(session())
    await published(grid, publish(owner, 1))
    known, new = await grid.topics.publish(
        [bounded(publish(owner, 2), NO_NEW_TOPICS), bounded(publish(owner, 3, "prices/NEW"), NO_NEW_TOPICS)]
    )
    assert isinstance(known, Published)
    assert new == NotCreated(duplicate=False)


async def test_a_refusal_to_create_is_for_good(harness: Harness) -> None:
    """A command with the same request has the same answer, also when there is room again, and after a failover."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    asked = bounded(publish(ownership(record), 1), NO_NEW_TOPICS)
    assert await n1.topics.publish([asked]) == [NotCreated(duplicate=False)]
    assert await n1.topics.publish([asked._replace(most_topics=0)]) == [NotCreated(duplicate=True)]
    elsewhere = ownership(record, owner=N2, epoch=2)
    assert await n2.topics.publish([asked._replace(ownership=elsewhere, most_topics=0)]) == [NotCreated(duplicate=True)]
    (receipt,) = await published(n2, publish(elsewhere, 2))
    assert receipt.version == 1


# --- as many bytes as there may be ------------------------------------------------------------------------------------

LARGE = b"x" * 1000
ONE_LARGE = len(TOPIC) + len(LARGE) + VALUE_BYTES


def weighed(command: PublishCommand, most: int) -> PublishCommand:
    return command._replace(most_bytes=most)


@pytest.mark.promise("P20")
async def test_a_partition_takes_no_more_bytes_than_it_may_hold(harness: Harness) -> None:
    """P20: a publish that makes a partition grow is executed only if it holds no more than so many bytes then."""
    grid = await harness.grid()
    owner = ownership(session())
    topics = [f"prices/{name}" for name in ("AAAA", "BBBB", "CCCC")]
    asked = [weighed(publish(owner, number, topic, LARGE), 2 * ONE_LARGE) for number, topic in enumerate(topics, 1)]
    first, second, third = await grid.topics.publish(asked)
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert third == NotStored(duplicate=False)
    assert (await values_of(grid, topic_of(TOPIC))).keys() == set(topics[:2])
    # To the byte, in one step and in the next ones.
    results = [
        *await grid.topics.publish(
            [
                weighed(publish(owner, 4, topics[0], LARGE + b"x"), 2 * ONE_LARGE),
                weighed(publish(owner, 5, topics[0], LARGE[1:]), 2 * ONE_LARGE),
                weighed(publish(owner, 6, topics[1], LARGE + b"x"), 2 * ONE_LARGE),
                weighed(publish(owner, 7, topics[0], LARGE), 2 * ONE_LARGE),
            ]
        ),
        *await grid.topics.publish([weighed(publish(owner, 8, topics[0], LARGE), 2 * ONE_LARGE + 1)]),
    ]
    assert [type(each) for each in results] == [NotStored, Published, Published, NotStored, Published]


@pytest.mark.promise("P20")
async def test_a_value_that_grows_no_larger_is_taken_whatever_the_partition_holds(harness: Harness) -> None:
    """P20: what shrinks or keeps its size is never refused."""
    grid = await harness.grid()
    owner = ownership(session())
    await published(grid, publish(owner, 1, TOPIC, LARGE))
    same, smaller, larger = await grid.topics.publish(
        [
            weighed(publish(owner, 2, TOPIC, LARGE), 1),
            weighed(publish(owner, 3, TOPIC, b"1"), 1),
            weighed(publish(owner, 4, TOPIC, b"12"), 1),
        ]
    )
    assert isinstance(same, Published)
    assert isinstance(smaller, Published)
    assert larger == NotStored(duplicate=False)


async def test_a_refusal_to_store_is_for_good(harness: Harness) -> None:
    """A command with the same request has the same answer, also when there is room again, and after a failover."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    asked = weighed(publish(ownership(record), 1), 1)
    assert await n1.topics.publish([asked]) == [NotStored(duplicate=False)]
    assert await n1.topics.publish([asked._replace(most_bytes=0)]) == [NotStored(duplicate=True)]
    elsewhere = ownership(record, owner=N2, epoch=2)
    assert await n2.topics.publish([asked._replace(ownership=elsewhere, most_bytes=0)]) == [NotStored(duplicate=True)]
    (receipt,) = await published(n2, publish(elsewhere, 2))
    assert receipt.version == 1


@pytest.mark.promise("P20")
async def test_removing_and_restoring_change_what_a_partition_holds(harness: Harness) -> None:
    """P20: a removal makes room for what the value had; what is restored counts."""
    grid = await harness.grid()
    owner = ownership(session())
    other = "prices/OTHR"
    (receipt,) = await published(grid, publish(owner, 1, TOPIC, LARGE))
    (refused,) = await grid.topics.publish([weighed(publish(owner, 2, other, LARGE), 2 * ONE_LARGE - 1)])
    assert refused == NotStored(duplicate=False)
    await grid.topics.remove(TopicPath(TOPIC), keep=1000.0)
    (stored,) = await grid.topics.publish([weighed(publish(owner, 3, other, LARGE), 2 * ONE_LARGE - len(LARGE))])
    assert isinstance(stored, Published), "of what was removed the topic is still remembered"
    await grid.topics.remove(TopicPath(other), keep=1000.0)
    lost = TopicValue(
        TopicPath("prices/LOST"), Version(receipt.version + 10), EventId(f"{PARTITION}-{grid.generation}-999"), LARGE
    )
    assert await grid.topics.restore([lost]) == 1
    most = 3 * ONE_LARGE - 2 * len(LARGE)
    larger, same = await grid.topics.publish(
        [weighed(publish(owner, 4, TOPIC, b"1"), most), weighed(publish(owner, 5, TOPIC, b"1"), most + 1)]
    )
    assert larger == NotStored(duplicate=False)
    assert isinstance(same, Published)


@pytest.mark.promise("P20")
async def test_a_stream_keeps_no_more_bytes_than_it_may(harness: Harness) -> None:
    """P20: whoever follows from before what a stream keeps has lost its position, though it has few entries."""
    grid = await harness.grid()
    owner = ownership(session())
    value = b"x" * (STREAM_BYTES // 20)
    positions = []
    for number in range(1, 41):
        positions.append(await grid.topics.position(PARTITION))
        await published(grid, publish(owner, number, TOPIC, value))
    async with Follower(grid) as follower:
        follower.follow(PARTITION, positions[-15])
        assert len(await follower.has(PARTITION, 15)) == 15
    late = await harness.grid("n2")
    async with Follower(late) as follower:
        follower.follow(PARTITION, positions[-25])
        await follower.has_lost(PARTITION)


# --- exactly once -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P5")
async def test_a_duplicate_gets_the_receipt_of_the_first_execution(harness: Harness) -> None:
    """Refuse a duplicate (answering with the first execution's receipt)."""
    grid = await harness.grid()
    owner = ownership(session())
    first, second = await published(grid, publish(owner, 1), publish(owner, 2, value=b"2"))
    again = await published(grid, publish(owner, 1), publish(owner, 2, value=b"2"))
    assert again == [first._replace(duplicate=True, created=False), second._replace(duplicate=True, created=False)]
    value = (await values_of(grid, PARTITION))[TOPIC]
    assert (value.version, value.value, value.event) == (2, b"2", second.event)


@pytest.mark.promise("P5")
async def test_a_publish_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """P5: a publish acknowledged is in the grid exactly once, however often the client had to resend it."""
    grid = await harness.grid()
    owner = ownership(session())
    commands = [publish(owner, number, TOPIC, str(number).encode()) for number in range(1, 6)]
    receipts = await harness.asked_again(grid, lambda: published(grid, *commands))
    assert [each.version for each in receipts] == [1, 2, 3, 4, 5]
    (after,) = await published(grid, publish(owner, 6, TOPIC))
    assert after.version == 6


@pytest.mark.promise("P5")
@pytest.mark.parametrize("failed_over", [False, True])
async def test_publishes_cut_in_the_middle_are_executed_once(harness: Harness, *, failed_over: bool) -> None:
    """GridUnavailable: of the commands per partition a prefix has been executed; send all of them again (P5)."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    paths = ("prices/A", "rates/B", "news/C")
    partitions = [topic_of(path) for path in paths]

    def commands(owner: Ownership) -> list[PublishCommand]:
        return [publish(owner, number, paths[number % 3], str(number).encode().ljust(4000)) for number in range(1, 61)]

    async with Follower(n2) as follower:
        await follower.follow_from_here(*partitions)
        await harness.cut_next_publish(n1)
        with pytest.raises(GridUnavailable):
            await n1.topics.publish(commands(ownership(record)))
        await harness.up(n1)
        if failed_over:
            receipts = await published(n2, *commands(ownership(record, owner=N2, epoch=2)))
        else:
            receipts = await published(n1, *commands(ownership(record)))
        executed = [each.duplicate for each in receipts]
        assert any(executed)
        assert not all(executed)
        for index, path in enumerate(paths):
            values = await follower.has(topic_of(path), 20)
            of_topic = [number for number in range(1, 61) if number % 3 == index]
            assert [int(each.value) for each in values] == of_topic, "once, and in order"
            assert [each.event for each in values] == [receipts[number - 1].event for number in of_topic]
            duplicates = [receipts[number - 1].duplicate for number in of_topic]
            assert duplicates == sorted(duplicates, reverse=True), "a prefix"


@pytest.mark.promise("P5")
async def test_a_duplicate_by_another_node_is_a_duplicate(harness: Harness) -> None:
    """…then each is executed exactly once, whichever nodes send it how often (also across failover)."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    before = await published(n1, *(publish(ownership(record), number, TOPIC) for number in range(1, 4)))
    owner = ownership(record, owner=N2, epoch=2)
    after = await published(n2, *(publish(owner, number, TOPIC) for number in range(2, 6)))
    assert after[:2] == [each._replace(duplicate=True, created=False) for each in before[1:]]
    assert [(each.version, each.duplicate) for each in after[2:]] == [(4, False), (5, False)]


@pytest.mark.promise("P5")
async def test_two_nodes_that_send_the_same_at_the_same_time_execute_it_once(harness: Harness) -> None:
    """Each command is one atomic step."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    commands = [publish(owner, number, TOPIC) for number in range(1, 51)]
    first, second = await asyncio.gather(published(n1, *commands), published(n2, *commands))
    for one, other in zip(first, second, strict=True):
        assert (one.version, one.event) == (other.version, other.event)
        assert one.duplicate != other.duplicate
    assert (await values_of(n1, PARTITION))[TOPIC].version == 50


async def test_requests_of_several_partitions_are_told_apart(harness: Harness) -> None:
    """request: the identity of the publish within its session; topics of other partitions lie between."""
    grid = await harness.grid()
    owner = ownership(session())
    paths = ["prices/A", "rates/B", "prices/A", "news/C", "rates/B", "prices/A"]
    assert len({topic_of(path) for path in paths}) == 3
    commands = [publish(owner, number, path) for number, path in enumerate(paths, 1)]
    receipts = await published(grid, *commands)
    assert [each.version for each in receipts] == [1, 1, 2, 1, 2, 3]
    assert await published(grid, *commands) == [each._replace(duplicate=True, created=False) for each in receipts]


async def test_sessions_are_told_apart(harness: Harness) -> None:
    """request: identity of the publish *within its session*."""
    grid = await harness.grid()
    receipts = [(await published(grid, publish(ownership(session()), 1, TOPIC)))[0] for _ in range(3)]
    assert [(each.version, each.duplicate) for each in receipts] == [(1, False), (2, False), (3, False)]


async def test_receipts_are_kept_until_they_are_settled(harness: Harness) -> None:
    """settled: receipts up to it may be forgotten; others must not be, however many there are."""
    grid = await harness.grid()
    owner = ownership(session())
    count = 200
    receipts = await published(grid, *(publish(owner, number, TOPIC, settled=20) for number in range(1, count + 1)))
    again = await published(grid, *(publish(owner, number, TOPIC, settled=20) for number in range(21, count + 1)))
    assert again == [each._replace(duplicate=True, created=False) for each in receipts[20:]]


@pytest.mark.promise("P5")
async def test_a_settled_duplicate_is_still_not_executed(harness: Harness) -> None:
    """version: 0 if it was executed before and its receipt is settled; event: empty likewise."""
    grid = await harness.grid()
    owner = ownership(session())
    count = 60
    await published(grid, *(publish(owner, number, TOPIC, settled=number - 1) for number in range(1, count + 1)))
    again = await published(grid, *(publish(owner, number, TOPIC, settled=count - 1) for number in range(1, count)))
    assert again == [Published(Version(0), EventId(""), duplicate=True)] * (count - 1)
    assert (await values_of(grid, PARTITION))[TOPIC].version == count


async def test_a_settled_session_keeps_few_receipts(harness: Harness) -> None:
    """Receipts up to it may be forgotten: a session that publishes for a year costs what one of a minute costs."""
    grid = await harness.grid()
    owner = ownership(session())
    for start in range(0, 1000, 100):
        await published(
            grid, *(publish(owner, start + number, TOPIC, settled=start + number - 1) for number in range(1, 101))
        )
    assert len(await harness.inventory()) == 1
    (last,) = await published(grid, publish(owner, 1000, TOPIC, settled=999))
    assert (last.version, last.duplicate) == (1000, True)


# --- fencing ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P3")
async def test_an_older_epoch_is_fenced(harness: Harness) -> None:
    """ownership: an epoch older than one that published here before is refused."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    old, new = ownership(record), ownership(record, owner=N2, epoch=2)
    await published(n1, publish(old, 1, TOPIC, b"1"))
    await published(n2, publish(new, 2, TOPIC, b"2"))
    results = await n1.topics.publish([publish(old, 3, TOPIC, b"late"), publish(old, 2, TOPIC, b"2")])
    assert all(isinstance(each, Fenced) for each in results)
    value = (await values_of(n1, PARTITION))[TOPIC]
    assert (value.value, value.version) == (b"2", 2)
    assert [each.duplicate for each in await published(n2, publish(new, 2, TOPIC), publish(new, 3, TOPIC))] == [
        True,
        False,
    ]


async def test_a_fenced_publish_does_not_hurt_others(harness: Harness) -> None:
    """Publish: one answer per command."""
    grid = await harness.grid()
    record, other = session(), session()
    await published(grid, publish(ownership(record, epoch=2), 1, TOPIC))
    commands = [
        publish(ownership(other), 1, TOPIC),
        publish(ownership(record), 2, TOPIC),
        publish(ownership(other), 2, TOPIC),
    ]
    first, second, third = await grid.topics.publish(commands)
    assert isinstance(first, Published)
    assert isinstance(second, Fenced)
    assert isinstance(third, Published)
    assert third.version == first.version + 1


# --- values and positions ---------------------------------------------------------------------------------------------


async def test_all_values_of_a_partition_are_read_in_pages(harness: Harness) -> None:
    """Read all values of a partition, in pages and without blocking the grid."""
    grid = await harness.grid()
    owner = ownership(session())
    count = 2500
    await published(
        grid, *(publish(owner, number, f"prices/{number}", str(number).encode()) for number in range(1, count + 1))
    )
    pages = [page async for page in grid.topics.values(PARTITION)]
    assert len(pages) > 1
    found = {value.topic: value.value for page in pages for value in page}
    assert found == {f"prices/{number}": str(number).encode() for number in range(1, count + 1)}
    assert await values_of(grid, (PARTITION + 1) % 64) == {}


async def test_reading_values_starts_again_when_the_grid_was_unreachable(harness: Harness) -> None:
    """GridUnavailable: see the module; the read has to start again."""
    grid = await harness.grid()
    owner = ownership(session())
    await published(grid, *(publish(owner, number, f"prices/{number}") for number in range(1, 2501)))

    async def read() -> None:
        async for _ in grid.topics.values(PARTITION):
            await harness.cut(grid)

    with pytest.raises(GridUnavailable):
        await read()
    await harness.mend(grid)
    assert len(await values_of(grid, PARTITION)) == 2500


async def test_the_position_is_that_of_the_last_event(harness: Harness) -> None:
    """Tell the end of a partition's stream. / sequence: contiguous within a generation."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owner = ownership(session())
    for request in (1, 2, 3):
        (receipt,) = await published(n1, publish(owner, request, TOPIC))
        position = await n2.topics.position(PARTITION)
        assert f"{PARTITION}-{position.grid_generation}-{position.sequence}" == receipt.event


# --- restore ----------------------------------------------------------------------------------------------------------


def value(version: int, text: bytes = b"1", topic: str = TOPIC) -> TopicValue:
    """Make a value as a node holds it."""
    return TopicValue(TopicPath(topic), Version(version), EventId(f"{topic_of(topic)}-1-{version}"), text)


async def test_a_stretch_of_a_stream_is_read_again(harness: Harness) -> None:
    """Read a stretch of a partition's stream again."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    begin = await n1.topics.position(PARTITION)
    owner = ownership(session())
    await published(n1, *(publish(owner, number, TOPIC, b"%d" % number) for number in range(1, 8)))
    end = await n1.topics.position(PARTITION)
    third, fifth = end._replace(sequence=end.sequence - 4), end._replace(sequence=end.sequence - 2)
    for grid in (n1, n2):
        assert [each.value for each in await grid.topics.between(PARTITION, third, fifth) or ()] == [b"4", b"5"]
        whole = await grid.topics.between(PARTITION, begin, end)
        assert whole is not None
        assert [(each.value, each.version) for each in whole] == [(b"%d" % each, each) for each in range(1, 8)]
        assert [sequence(each.event) for each in whole] == list(range(end.sequence - 6, end.sequence + 1))
        assert not await grid.topics.between(PARTITION, end, end)


async def test_a_stretch_that_is_not_whole_is_none(harness: Harness) -> None:
    """None if the stream does not hold all of them any more, or the places are of different generations."""
    n1 = await harness.grid("n1")
    begin = await n1.topics.position(PARTITION)
    owner = ownership(session())
    size = STREAM_BYTES // 4
    for number in range(1, 12):
        await published(n1, publish(owner, number, TOPIC, b'"' + b"x" * size + b'"'))
    end = await n1.topics.position(PARTITION)
    assert await n1.topics.between(PARTITION, begin, end) is None
    ahead = end._replace(sequence=end.sequence + 1)
    assert await n1.topics.between(PARTITION, end, ahead) is None
    later = end._replace(grid_generation=GridGeneration(end.grid_generation + 1))
    assert await n1.topics.between(PARTITION, end, later) is None


@pytest.mark.promise("P6")
async def test_restore_writes_only_what_is_newer(harness: Harness) -> None:
    """Each is written only if its event is later than the stored one. / Returns: how many were written."""
    grid = await harness.grid()
    assert await grid.topics.restore([value(5, b"five"), value(1, b"other", "prices/B")]) == 2
    assert await grid.topics.restore([value(5, b"FIVE"), value(4, b"four")]) == 0
    assert await grid.topics.restore([value(7, b"seven"), value(6, b"six"), value(2, b"two", "prices/B")]) == 2
    assert await values_of(grid, PARTITION) == {TOPIC: value(7, b"seven"), "prices/B": value(2, b"two", "prices/B")}
    assert await grid.topics.restore([]) == 0


@pytest.mark.promise("P6")
async def test_versions_go_on_above_a_restored_one(harness: Harness) -> None:
    """P6: per topic, a client sees versions grow and never go back."""
    grid = await harness.grid()
    await grid.topics.restore([value(41)])
    (receipt,) = await published(grid, publish(ownership(session()), 1, TOPIC))
    assert receipt.version == 42


async def test_restore_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Each step is idempotent: what was written already is not written again."""
    grid = await harness.grid()
    before = await grid.topics.position(PARTITION)
    assert await harness.asked_again(grid, lambda: grid.topics.restore([value(3), value(4)])) == 0
    after = await grid.topics.position(PARTITION)
    written = after.sequence - before.sequence if before.grid_generation == after.grid_generation else after.sequence
    assert written == 2


async def test_an_untouched_partition_ends_before_the_first_entry_of_its_generation(harness: Harness) -> None:
    """And whoever reads from there misses nothing."""
    grid = await harness.grid()
    position = await grid.topics.position(topic_of("prices/ACME"))
    assert position == (grid.generation, 0)
    record = session()
    (first,) = await published(grid, publish(ownership(record), 1))
    assert StreamPosition.of(first.event) == (grid.generation, 1)
    upto = await grid.topics.position(topic_of("prices/ACME"))
    read = await grid.topics.between(topic_of("prices/ACME"), position, upto)
    assert read is not None
    assert [each.event for each in read] == [first.event]
