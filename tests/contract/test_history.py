"""The contract of topics with history: ids that stay, gaps that are told, limits that hold (P20)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gateway.adapters.memory import history_table
from gateway.adapters.redis import history as redis_history
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, TopicPath, Version
from gateway.ports import EVENT_BYTES, Grid, HistoryPage, HistoryQuestion, NotCreated, Published, TopicValue
from tests.contract.examples import ownership, publish, session, topic_of
from tests.contract.following import Follower
from tests.contract.harness import HISTORY_BYTES, LONG, STREAM_LENGTH, Harness

pytestmark = pytest.mark.promise("P14")

TOPIC = TopicPath("log/a")
OTHER = TopicPath("log/b")
PARTITION = topic_of(TOPIC)

PLENTY = HistoryLimits(count=100_000, age=LONG, bytes=HISTORY_BYTES)
"""Cuts nothing in most of these tests."""

SLACK = 80
"""Events beyond its count that a history may keep: of a block that is not complete."""

EVERYTHING = 1_000_000
"""More events than any test has."""


class Publisher:
    """Publishes to topics with history, as one session."""

    def __init__(self, grid: Grid, limits: HistoryLimits | None = PLENTY) -> None:
        self.grid = grid
        self.limits = limits
        self._owner = ownership(session())
        self._request = 0

    async def publish(self, *values: bytes, topic: TopicPath = TOPIC) -> list[EventId]:
        """Publish values in one call; returns their events."""
        return await self.publish_to(*((topic, value) for value in values))

    async def publish_to(self, *values: tuple[TopicPath, bytes]) -> list[EventId]:
        """Publish values to topics in one call."""
        commands = []
        for topic, value in values:
            self._request += 1
            command = publish(self._owner, self._request, topic, value, settled=self._request - 1 and 0)
            commands.append(command._replace(history=self.limits))
        results = await self.grid.topics.publish(commands)
        assert all(isinstance(each, Published) for each in results), results
        return [each.event for each in results if isinstance(each, Published)]


async def read(grid: Grid, after: EventId | None = None, topic: TopicPath = TOPIC, limit: int = 100) -> HistoryPage:
    """Read one page of a history."""
    (page,) = await grid.history.read(topic_of(topic), [HistoryQuestion(topic, after, limit)])
    return page


async def read_all(
    grid: Grid, after: EventId | None = None, topic: TopicPath = TOPIC, limit: int = 100
) -> tuple[list[TopicValue], bool]:
    """Read all pages of a history; tells whether there was a gap at the beginning. None is expected later."""
    page = await read(grid, after, topic, limit)
    events, has_gap = list(page.events), page.has_gap
    while not page.is_last:
        page = await read(grid, events[-1].event, topic, limit)
        assert not page.has_gap
        events += page.events
    return events, has_gap


def values(events: Sequence[TopicValue]) -> list[bytes]:
    return [each.value for each in events]


async def test_a_history_has_what_followers_were_sent(harness: Harness) -> None:
    """L2: each is what its followers were sent, with the same event id on every node."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    publisher = Publisher(n1)
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        events = await publisher.publish(b"1")
        events += await publisher.publish_to((TOPIC, b"2"), (OTHER, b"x"), (TOPIC, b"3"), (OTHER, b"y"), (TOPIC, b"4"))
        sent = await follower.has(PARTITION, 6)
    kept, has_gap = await read_all(n2)
    assert kept == [each for each in sent if each.topic == TOPIC]
    assert [each.event for each in kept] == [events[0], events[1], events[3], events[5]]
    assert not has_gap
    assert values((await read_all(n1, topic=OTHER))[0]) == [b"x", b"y"]


async def test_reading_goes_on_after_any_event_of_the_partition(harness: Harness) -> None:
    """After an event of this topic or of another one, also in the middle of what was published in one step."""
    grid = await harness.grid()
    publisher = Publisher(grid)
    events = await publisher.publish(b"0")
    events += await publisher.publish_to(*((TOPIC if number % 2 else OTHER, b"%d" % number) for number in range(1, 20)))
    events += await publisher.publish(b"20")
    wanted = [TOPIC if number % 2 or number in {0, 20} else OTHER for number in range(21)]
    for number, event in enumerate(events):
        for topic in (TOPIC, OTHER):
            kept, has_gap = await read_all(grid, event, topic, limit=2)
            assert [each.event for each in kept] == [
                later for later, of in zip(events[number + 1 :], wanted[number + 1 :], strict=True) if of == topic
            ]
            assert not has_gap


async def test_a_topic_without_history_keeps_none(harness: Harness) -> None:
    grid = await harness.grid()
    before = await Publisher(grid, None).publish(b"1", b"2")
    assert (await read_all(grid))[0] == []
    assert (await grid.history.topics(PARTITION, step=None, count=10)).topics == []
    # What was published before it had a history is a gap to whoever needs it, and no other.
    await Publisher(grid).publish(b"3")
    kept, has_gap = await read_all(grid, before[0])
    assert (values(kept), has_gap) == ([b"3"], True)
    kept, has_gap = await read_all(grid, before[1])
    assert (values(kept), has_gap) == ([b"3"], False)
    assert (await read_all(grid))[1] is False


async def test_a_history_that_was_not_kept_for_a_while_says_so(harness: Harness) -> None:
    """L3: a node that does not know yet that a topic has history publishes to it."""
    grid = await harness.grid()
    first = await Publisher(grid).publish(b"1")
    missed = await Publisher(grid, None).publish(b"2")
    page = await read(grid, first[0])
    assert (values(page.events), page.has_gap, page.is_last) == ([], True, True)
    await Publisher(grid).publish(b"3")
    page = await read(grid)
    assert (values(page.events), page.is_last) == ([b"1"], False)
    page = await read(grid, page.events[-1].event)
    assert (values(page.events), page.has_gap, page.is_last) == ([b"3"], True, True)
    assert not (await read(grid, missed[0])).has_gap


@pytest.mark.parametrize("at_once", [1, 7, 100])
async def test_a_history_keeps_a_count(harness: Harness, at_once: int) -> None:
    """L4, L3: as many as it says, little more; and whoever comes from before is told."""
    grid = await harness.grid()
    publisher = Publisher(grid, HistoryLimits(count=50, age=LONG, bytes=HISTORY_BYTES))
    events: list[EventId] = []
    while len(events) < 3 * STREAM_LENGTH:
        events += await publisher.publish(*(b"%d" % (len(events) + each) for each in range(at_once)))
    kept, has_gap = await read_all(grid)
    assert 50 <= len(kept) <= 50 + SLACK + at_once
    assert [each.event for each in kept] == events[-len(kept) :]
    assert not has_gap
    edge = len(events) - len(kept)
    assert await read_all(grid, events[edge - 1]) == (kept, False)
    assert await read_all(grid, events[edge - 2]) == (kept, True)


async def test_a_history_keeps_bytes(harness: Harness) -> None:
    """L4: as many as it may, and most of them, whatever the sizes."""
    grid = await harness.grid()
    most = 64 * 1024
    publisher = Publisher(grid, HistoryLimits(count=100_000, age=LONG, bytes=most))
    sizes = random.Random(7)
    events: list[EventId] = []
    for _ in range(60):
        events += await publisher.publish(*(b"x" * sizes.choice((1, 100, 3000)) for _ in range(10)))
    kept, _ = await read_all(grid)
    held = sum(len(each.value) + EVENT_BYTES for each in kept)
    assert most * 3 // 4 < held < most + 40_000
    assert [each.event for each in kept] == events[-len(kept) :]


@pytest.mark.promise("P20")
async def test_all_histories_of_a_partition_keep_bytes(harness: Harness) -> None:
    """P20: a publish cuts the history that it adds to; those of others stay as they are."""
    grid = await harness.grid()
    publisher = Publisher(grid)
    quiet = await publisher.publish(b"quiet", topic=TopicPath("log/quiet"))
    topics = [TopicPath(f"log/{number}") for number in range(10)]
    for _ in range(10):
        for topic in topics:
            await publisher.publish(*[b"x" * 1000] * 10, topic=topic)
    held = 0
    for topic in topics:
        held += sum(len(each.value) + EVENT_BYTES for each in (await read_all(grid, topic=topic))[0])
    assert HISTORY_BYTES // 2 < held < HISTORY_BYTES + len(topics) * 20_000
    assert [each.event for each in (await read_all(grid, topic=TopicPath("log/quiet")))[0]] == quiet


@pytest.mark.promise("P20")
async def test_a_partition_has_a_number_of_histories(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """P20: a topic whose history would be one too many is not created; those that are there go on."""
    monkeypatch.setattr(history_table, "MOST_HISTORIES", 3)
    monkeypatch.setattr(redis_history, "MOST_HISTORIES", 3)
    grid = await harness.grid()
    publisher = Publisher(grid)
    await publisher.publish_to(*((TopicPath(f"log/{number}"), b"1") for number in range(3)))
    refused = publish(ownership(session()), 1, "log/more")._replace(history=PLENTY)
    assert await grid.topics.publish([refused]) == [NotCreated(duplicate=False)]
    assert await grid.topics.publish([refused]) == [NotCreated(duplicate=True)]
    assert await grid.topics.read([TopicPath("log/more")]) == [None]
    await publisher.publish(b"2", topic=TopicPath("log/1"))
    assert values((await read_all(grid, topic=TopicPath("log/1")))[0]) == [b"1", b"2"]
    # A topic that is there already is no exception, however often it is asked for.
    plain = TopicPath("log/plain")
    await Publisher(grid, None).publish(b"1", topic=plain)
    owner = ownership(session())
    for number in range(1, 4):
        assert await grid.topics.publish([publish(owner, number, plain)._replace(history=PLENTY)]) == [
            NotCreated(duplicate=False)
        ]
    assert (await read_all(grid, topic=plain))[0] == []
    # Without history it may be, and one that goes makes room.
    assert await grid.history.sweep(PARTITION, [(TopicPath("log/0"), None)]) == 1
    await publisher.publish(b"1", topic=TopicPath("log/more"))


async def test_a_publish_that_is_sent_again_is_kept_once(harness: Harness) -> None:
    """P5: also if the answer to the first one was lost."""
    grid = await harness.grid()
    owner = ownership(session())
    commands = [publish(owner, number, TOPIC, b"%d" % number)._replace(history=PLENTY) for number in range(1, 6)]
    await grid.topics.publish(commands[:3])
    results = await harness.asked_again(grid, lambda: grid.topics.publish(commands))
    assert all(isinstance(each, Published) for each in results)
    kept, _ = await read_all(grid)
    assert values(kept) == [b"1", b"2", b"3", b"4", b"5"]


async def test_what_is_too_old_is_cut_by_a_sweep(harness: Harness) -> None:
    """L4, L3: no older than its age, but for the time between two sweeps; the first reader of what is left is told."""
    grid = await harness.grid()
    limits = HistoryLimits(count=1000, age=harness.short, bytes=HISTORY_BYTES)
    publisher = Publisher(grid, limits)
    old = await publisher.publish(b"1", b"2", b"3")
    await harness.advance(harness.short * 1.5)
    new = await publisher.publish(b"4")
    assert await grid.history.sweep(PARTITION, [(TOPIC, limits)]) >= 1
    kept, has_gap = await read_all(grid, old[0])
    assert ([each.event for each in kept], has_gap) == (new, True)
    assert await read_all(grid, old[2]) == (kept, False)
    await harness.advance(harness.short * 1.5)
    assert await grid.history.sweep(PARTITION, [(TOPIC, limits)]) == 1
    assert await grid.history.sweep(PARTITION, [(TOPIC, limits)]) == 0
    # It is told even if nothing follows; and not to whoever has had all.
    assert await read_all(grid, old[2]) == ([], True)
    assert await read_all(grid, new[0]) == ([], False)
    last = await publisher.publish(b"5")
    kept, has_gap = await read_all(grid, old[2])
    assert ([each.event for each in kept], has_gap) == (last, True)
    assert (await read_all(grid, new[0]))[1] is False


async def test_a_history_of_a_topic_that_has_none_any_more_is_dropped(harness: Harness) -> None:
    grid = await harness.grid()
    publisher = Publisher(grid)
    events = await publisher.publish(b"1", b"2")
    await publisher.publish(b"x", topic=OTHER)
    assert await grid.history.sweep(PARTITION, [(TOPIC, None), (OTHER, PLENTY)]) >= 1
    assert (await grid.history.topics(PARTITION, step=None, count=10)).topics == [OTHER]
    assert await read_all(grid, events[0]) == ([], True)
    assert await read_all(grid, events[1]) == ([], False)


async def test_topics_with_history_are_listed_in_pages(harness: Harness) -> None:
    grid = await harness.grid()
    publisher = Publisher(grid)
    wanted = {TopicPath(f"log/{number}") for number in range(50)}
    await publisher.publish_to(*((topic, b"1") for topic in wanted))
    found: set[TopicPath] = set()
    step: str | None = None
    while True:
        page = await grid.history.topics(PARTITION, step=step, count=10)
        found |= set(page.topics)
        step = page.step
        if step is None:
            break
    assert found == wanted
    with pytest.raises(ValueError):
        await _unless_memory(harness, grid)


async def _unless_memory(harness: Harness, grid: Grid) -> None:
    """A step of memory is a topic, so that any text is one."""
    if type(harness).__name__ == "MemoryHarness":
        raise ValueError
    await grid.history.topics(PARTITION, step="nonsense", count=10)


async def test_a_removal_begins_a_history_anew(harness: Harness) -> None:
    """It is an event itself; what was before is a gap to whoever has not read it."""
    grid = await harness.grid()
    publisher = Publisher(grid)
    events = await publisher.publish(b"1", b"2")
    removed = await grid.topics.remove(TOPIC, keep=LONG, history=PLENTY)
    assert removed is not None
    again = await publisher.publish(b"3")
    kept, has_gap = await read_all(grid, events[0])
    assert ([(each.event, each.value) for each in kept], has_gap) == (
        [(removed.event, b""), (again[0], b"3")],
        True,
    )
    assert await read_all(grid, events[1]) == (kept, False)


async def test_a_topic_that_was_forgotten_does_not_hide_what_it_had(harness: Harness) -> None:
    """L3: its history goes with it, and one that is created in its place does not pass for complete."""
    grid = await harness.grid()
    publisher = Publisher(grid)
    events = await publisher.publish(b"1", b"2")
    await publisher.publish(b"x", topic=OTHER)
    await grid.topics.remove(TOPIC, keep=harness.short, history=PLENTY)
    await harness.advance(harness.short * 1.5)
    removed = await grid.topics.remove(OTHER, keep=LONG, history=PLENTY)
    assert removed is not None
    assert await grid.topics.read([TOPIC]) == [None]
    assert await grid.history.sweep(PARTITION, [(TOPIC, PLENTY)]) >= 1
    new = await publisher.publish(b"3")
    kept, has_gap = await read_all(grid, events[1])
    assert ([each.event for each in kept], has_gap) == (new, True)
    assert (await read_all(grid, removed.event))[1] is False


async def test_what_a_grid_has_lost_is_put_back(fragile: Harness) -> None:
    """Only what is newer than all that a history has, with its ids; a hole is told."""
    grid = await fragile.grid()
    publisher = Publisher(grid)
    await publisher.publish(b"1", b"2")
    before = await fragile.snapshot()
    await publisher.publish(b"3", b"4", b"5")
    kept, _ = await read_all(grid)
    await fragile.restart(grid, snapshot=before)
    assert values((await read_all(grid))[0]) == [b"1", b"2"]
    assert await grid.history.restore(TOPIC, kept[1:], PLENTY) == 3
    assert await grid.history.restore(TOPIC, kept, PLENTY) == 0
    assert await read_all(grid) == (kept, False)
    assert await grid.topics.restore([kept[-1]]) == 1
    event = (await publisher.publish(b"6"))[0]
    later, has_gap = await read_all(grid, kept[-1].event)
    assert (values(later), has_gap) == ([b"6"], False)
    # What the grid has published since is newer: nothing can come between.
    lost = kept[-1]._replace(event=EventId(f"{PARTITION}-1-99"), version=Version(kept[-1].version + 1))
    assert await grid.history.restore(TOPIC, [lost], PLENTY) == 0
    # What does not follow what is there is behind a hole.
    generation, sequence = place_of(event)
    beyond = TopicValue(
        TOPIC, Version(later[-1].version + 2), EventId(f"{PARTITION}-{generation}-{sequence + 5}"), b"8"
    )
    assert await grid.history.restore(TOPIC, [beyond], PLENTY) == 1
    page = await read(grid, event)
    assert (values(page.events), page.has_gap) == ([b"8"], True)
