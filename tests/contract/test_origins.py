"""The contract of ``OriginStore``: each event of another cluster once, of values the newest, and how they came."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial

import pytest

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, TopicPath, Version
from gateway.core.zones.routes import Arrival, ClusterId, Path, Place
from gateway.core.zones.stamps import MOST_RANGES, Mark, Origin, Seen, Stamp, StreamPlace
from gateway.ports import (
    MOST_LINKS,
    MOST_ORIGINS,
    NO_NEW_TOPICS,
    VALUE_BYTES,
    Arrived,
    ForwardedEvent,
    Grid,
    HistoryQuestion,
    LeavingEvent,
    LinkName,
    NotTaken,
    Ownership,
    PositionLost,
    PublishCommand,
    Published,
    StreamPosition,
    TailBatch,
    Taken,
    TakeResult,
)
from tests.contract.examples import ownership, publish, published, session, topic_of, values_of
from tests.contract.following import Follower
from tests.contract.harness import LONG, TRIMMED_AFTER, Harness
from tests.contract.listening import eventually_none
from tests.support.clock import eventually
from tests.support.times import time_limit

TOPIC = TopicPath("prices/ACME")
LOG = TopicPath("log/audit")
PARTITION = topic_of(TOPIC)
HERE, THERE, ELSEWHERE = ClusterId("here"), ClusterId("there"), ClusterId("elsewhere")
LINK = LinkName("there")
LIMITS = HistoryLimits(count=1_000)
LATER = 4_000_000_000_000
"""A stamp after the end of any test: in 2096."""


def event(
    value: str = "1",
    topic: TopicPath = TOPIC,
    *,
    version: int = 1,
    at: int | None = None,
    cluster: ClusterId = THERE,
    stamper: ClusterId | None = None,
    arrival: Arrival = Arrival.MEMBER,
    path: Path = (),
    term: int = 1,
    link: LinkName = LINK,
    repeated: bool = False,
    history: HistoryLimits | None = None,
    most_topics: int = 0,
    most_bytes: int = 0,
) -> ForwardedEvent:
    """Make an event of another cluster; *at* is the time of its stamp."""
    return ForwardedEvent(
        link=link,
        term=term,
        topic=topic,
        value=value.encode(),
        origin=Origin(cluster, Version(version)),
        stamp=None if at is None else Stamp(at, stamper or cluster),
        arrival=arrival,
        path=path,
        repeated=repeated,
        history=history,
        most_topics=most_topics,
        most_bytes=most_bytes,
    )


def taken(result: TakeResult) -> Taken:
    """Expect that an event was taken."""
    assert isinstance(result, Taken), result
    return result


async def apply(grid: Grid, *events: ForwardedEvent) -> list[TakeResult]:
    """Take events."""
    return await grid.origins.apply(events, cluster=HERE)


async def value_of(grid: Grid, topic: TopicPath = TOPIC) -> bytes | None:
    """Read the value of a topic."""
    (found,) = await grid.topics.read([topic])
    return None if found is None else found.value


async def stamp(grid: Grid, *receipts: Published, topic: TopicPath = TOPIC) -> list[Mark | None]:
    """Stamp events that were published here."""
    leaving = [LeavingEvent(topic, each.version, each.event) for each in receipts]
    return await grid.origins.stamp(topic_of(topic), leaving, cluster=HERE)


# --- Values -----------------------------------------------------------------------------------------------------------


async def test_of_values_the_newest_counts(harness: Harness) -> None:
    """Takes_value: a value only if its stamp is above the one that is held."""
    grid = await harness.grid()
    results = await apply(
        grid,
        event("b", at=20),
        event("a", at=10),
        event("b", at=20),
        event("none"),
        event("c", at=20, cluster=ClusterId("zzz")),
        event("d", at=21, repeated=True),
    )
    assert [type(each) for each in results] == [Taken, NotTaken, NotTaken, NotTaken, Taken, Taken]
    assert {each for each in results if isinstance(each, NotTaken)} == {NotTaken.OLDER}
    assert await value_of(grid) == b"d"
    first, *others = [each for each in results if isinstance(each, Taken)]
    assert first.created
    assert not any(each.created for each in others)
    assert [each.version - first.version for each in others] == [1, 2]


async def test_stamps_are_compared_by_bytes_whatever_the_locale_says(harness: Harness) -> None:
    """Stamps are compared everywhere in the same way."""
    grid = await harness.grid()
    names = ["_", "-", "0", "A", "Z", "a", "aB", "ab", "z"]
    random.Random(7).shuffle(names)
    await apply(grid, *(event(each, at=5, stamper=ClusterId(each)) for each in names))
    assert await value_of(grid) == max(names).encode()


async def test_own_values_are_stamped_above_what_was_known(harness: Harness) -> None:
    """What was published knowing a value counts as later than it, whatever the clocks say."""
    grid = await harness.grid()
    taken((await apply(grid, event("from the future", at=LATER)))[0])
    (receipt,) = await published(grid, publish(ownership(session()), 1, TOPIC, b"own"))
    (mark,) = await stamp(grid, receipt)
    assert mark == Mark(StreamPlace(*place_of(receipt.event)), Stamp(LATER + 1, HERE), Origin(HERE, receipt.version))
    assert await apply(grid, event("older", at=LATER + 1)) == [taken_or_older(HERE, THERE)]
    assert await stamp(grid, receipt) in ([mark], [None])


def taken_or_older(mine: ClusterId, other: ClusterId) -> object:
    """Tell what becomes of a value with the same time: the name of the cluster decides."""

    class _Either:
        def __eq__(self, result: object) -> bool:
            return isinstance(result, Taken) if other > mine else result is NotTaken.OLDER

        __hash__ = None  # type: ignore[assignment]

    return _Either()


async def test_an_event_has_one_stamp_for_good(harness: Harness) -> None:
    """However often it is asked of an event, the answer is the same, until a later event of the topic has a stamp."""
    grid = await harness.grid()
    owner = ownership(session())
    first, second, third = await published(grid, *(publish(owner, n, TOPIC, str(n).encode()) for n in (1, 2, 3)))
    (one,) = await stamp(grid, first)
    assert await stamp(grid, first) == [one]
    two, three, again = await stamp(grid, second, third, third)
    assert one is not None
    assert two is not None
    assert three is not None
    assert one.stamp < two.stamp < three.stamp
    assert again == three
    assert await stamp(grid, first, second, third) == [None, None, three]


async def test_a_value_from_elsewhere_is_known_by_its_mark(harness: Harness) -> None:
    """Current values, however they came: if one came from elsewhere and is the newest still, its mark is told."""
    grid = await harness.grid()
    came = event("x", at=10, version=7, arrival=Arrival.JOIN, path=(Place("z1"), Place("z2")))
    (result,) = await apply(grid, came)
    found = taken(result)
    leaving = LeavingEvent(TOPIC, found.version, found.event)
    (mark,) = await grid.origins.stamp(PARTITION, [leaving], cluster=HERE)
    assert mark == Mark(
        StreamPlace(*place_of(found.event)),
        Stamp(10, THERE),
        Origin(THERE, Version(7)),
        Arrival.JOIN,
        (Place("z1"), Place("z2")),
    )


async def test_a_removal_crosses_like_a_value(harness: Harness) -> None:
    """Empty if the topic was removed there."""
    grid = await harness.grid()
    await apply(grid, event("1", at=10))
    (result,) = await apply(grid, event("", at=20))
    assert not taken(result).created
    assert await value_of(grid) == b""
    assert await apply(grid, event("late", at=15)) == [NotTaken.OLDER], "it does not come back"
    (again,) = await apply(grid, event("2", at=30))
    assert taken(again).version > taken(result).version
    assert await value_of(grid) == b"2"


async def test_nothing_is_left_of_a_topic_that_is_forgotten(harness: Harness) -> None:
    """All of it goes with its topic."""
    grid = await harness.grid()
    await apply(grid, event("1", at=10))
    await grid.topics.remove(TOPIC, keep=harness.short)
    await harness.advance(2 * harness.short)
    other = TopicPath("prices/other")

    await eventually_none(partial(forget_removals, grid, other))
    assert isinstance((await apply(grid, event("1", at=9)))[0], Taken), "its stamp is forgotten, too"


async def forget_removals(grid: Grid, other: TopicPath) -> bool:
    """Let the grid forget removals, as it does whenever a topic is removed; tells what is left of the first one."""
    await published(grid, publish(ownership(session()), 1, other, b"1"))
    await grid.topics.remove(other, keep=LONG)
    return await value_of(grid) is not None


# --- Histories --------------------------------------------------------------------------------------------------------


async def test_a_history_has_each_event_once_by_whichever_way(harness: Harness) -> None:
    """Of a history that is no duplicate."""
    grid = await harness.grid()
    first = [event(str(n), LOG, version=n, at=n, history=LIMITS) for n in (1, 2, 3)]
    assert all(isinstance(each, Taken) for each in await apply(grid, *first))
    second = [each._replace(link=LinkName("another"), arrival=Arrival.JOIN) for each in first]
    assert await apply(grid, *second) == [NotTaken.DUPLICATE] * 3
    assert await apply(grid, event("1", LOG, version=9, repeated=True, history=LIMITS)) == [NotTaken.DUPLICATE]
    mixed = [
        event("late", LOG, version=7, history=LIMITS),
        event("later", LOG, version=5, history=LIMITS),
        event("other", LOG, version=1, cluster=ELSEWHERE, at=1, history=LIMITS),
    ]
    assert all(isinstance(each, Taken) for each in await apply(grid, *mixed)), "older stamps, or none, are no matter"
    assert await values_in_history(grid) == [b"1", b"2", b"3", b"late", b"later", b"other"]


async def values_in_history(grid: Grid) -> list[bytes]:
    """Read the history of the log."""
    question = HistoryQuestion(LOG, after=None, limit=1_000)
    (page,) = await grid.history.read(topic_of(LOG), [question])
    return [each.value for each in page.events]


async def test_what_a_history_has_is_known_as_the_pure_rules_know_it(harness: Harness) -> None:
    """The rules are those of ``stamps.Seen``."""
    grid = await harness.grid()
    numbers = random.Random(3)
    seen = Seen()
    versions = [numbers.randint(1, 8 * MOST_RANGES) for _ in range(300)]
    for start in range(0, len(versions), 37):
        chosen = versions[start : start + 37]
        results = await apply(grid, *(event("1", LOG, version=each, history=LIMITS) for each in chosen))
        assert [isinstance(each, Taken) for each in results] == [seen.take(each) for each in chosen]


async def test_a_removal_begins_a_history_anew(harness: Harness) -> None:
    """Of a history that is no duplicate."""
    grid = await harness.grid()
    texts = ["1", "2", "", "3", "4"]
    await apply(grid, *(event(text, LOG, version=n, history=LIMITS) for n, text in enumerate(texts, 1)))
    assert await values_in_history(grid) == [b"", b"3", b"4"]


async def test_a_history_that_begins_anew_is_still_found_by_sweeps(harness: Harness) -> None:
    """What sweeps do not find stays for ever, also when its topic is forgotten."""
    grid = await harness.grid()
    for number, text in enumerate(["1", "", "2", ""], 1):
        assert isinstance((await apply(grid, event(text, LOG, version=number, history=LIMITS)))[0], Taken)
        kept = await grid.history.topics(topic_of(LOG), step=None, count=100)
        assert list(kept.topics) == [LOG], f"after event {number}"
    together = [event(text, LOG, version=number, history=LIMITS) for number, text in enumerate(["3", "", ""], 5)]
    assert all(isinstance(each, Taken) for each in await apply(grid, *together))
    kept = await grid.history.topics(topic_of(LOG), step=None, count=100)
    assert list(kept.topics) == [LOG]
    assert await values_in_history(grid) == [b""]


async def test_clusters_of_which_a_history_knows_are_bounded(harness: Harness) -> None:
    """The history has events of ``MOST_ORIGINS`` clusters, and this is of a further one."""
    grid = await harness.grid()
    many = [event("1", LOG, cluster=ClusterId(f"c{n}"), history=LIMITS) for n in range(MOST_ORIGINS + 1)]
    *fit, last = await apply(grid, *many)
    assert all(isinstance(each, Taken) for each in fit)
    assert last is NotTaken.ORIGINS
    assert isinstance(
        (await apply(grid, event("2", LOG, cluster=ClusterId("c0"), version=2, history=LIMITS)))[0], Taken
    )


# --- Bounds and terms -------------------------------------------------------------------------------------------------


async def test_an_earlier_carrier_is_refused(harness: Harness) -> None:
    """The link has a carrier of a later term."""
    grid = await harness.grid()
    await apply(grid, event("1", at=1, term=5))
    assert await apply(grid, event("2", at=2, term=4), event("3", at=3, term=4)) == [NotTaken.STALE] * 2
    assert isinstance((await apply(grid, event("2", at=2, term=1, link=LinkName("another"))))[0], Taken)
    assert isinstance((await apply(grid, event("3", at=3, term=6)))[0], Taken)
    assert await apply(grid, event("4", at=4, term=5)) == [NotTaken.STALE]
    await apply(grid, *(event("x", link=LinkName(f"l{n}")) for n in range(MOST_LINKS)))
    assert isinstance((await apply(grid, event("4", at=4, term=5)))[0], Taken), "what is remembered is bounded"


async def test_a_partition_takes_no_more_than_it_may(harness: Harness) -> None:
    """Why an event was not taken. None of it is remembered."""
    grid = await harness.grid()
    assert await apply(grid, event("1", at=1, most_topics=NO_NEW_TOPICS)) == [NotTaken.TOPICS]
    first, second, third = (TopicPath(f"prices/{each}") for each in "abc")
    results = await apply(
        grid,
        event("1", first, at=1, most_topics=2),
        event("1", second, at=1, most_topics=2),
        event("1", third, at=1, most_topics=2),
        event("2", first, at=2, most_topics=2),
    )
    assert [isinstance(each, Taken) for each in results] == [True, True, False, True]
    assert results[2] is NotTaken.TOPICS
    room = 2 * (VALUE_BYTES + len(first)) + 100
    assert await apply(grid, event("x" * 101, first, at=3, most_bytes=room)) == [NotTaken.BYTES]
    assert isinstance((await apply(grid, event("x" * 90, first, at=3, most_bytes=room)))[0], Taken)
    assert await apply(grid, event("1", third, at=1, most_bytes=room)) == [NotTaken.BYTES]


async def test_a_stamp_beyond_all_bounds_is_refused(harness: Harness) -> None:
    """Below ``LATEST_STAMP``."""
    grid = await harness.grid()
    with pytest.raises(ValueError, match="no time of a stamp"):
        await apply(grid, event("1", at=2**52))


async def test_events_can_be_sent_again_when_the_answer_was_lost(harness: Harness) -> None:
    """Of the events per partition a prefix has been taken; send all of them again."""
    grid = await harness.grid()
    events = [event(str(n), LOG, version=n, at=n, history=LIMITS) for n in range(1, 30)]
    events += [event(str(n), version=n, at=n) for n in range(1, 30)]
    results = await harness.asked_again(grid, lambda: grid.origins.apply(events, cluster=HERE))
    assert all(each in {NotTaken.DUPLICATE, NotTaken.OLDER} for each in results)
    assert await values_in_history(grid) == [str(n).encode() for n in range(1, 30)]
    assert await value_of(grid) == b"29"


# --- Streams ----------------------------------------------------------------------------------------------------------


async def test_the_tail_tells_how_events_came(harness: Harness) -> None:
    """Arrived: places of what was not published here, and how it came."""
    grid = await harness.grid()
    batches: list[TailBatch] = []

    class Collector(Follower):
        def _take(self, batch: TailBatch) -> None:
            super()._take(batch)
            batches.append(batch)

    owner = ownership(session())
    path = (Place("z1"), Place("z2"))
    async with Collector(grid) as follower:
        await follower.follow_from_here(PARTITION)
        before = await grid.topics.position(PARTITION)
        own = await published(grid, publish(owner, 1, TOPIC, b"1"))
        results = await apply(
            grid,
            event("2", at=LATER, version=5, arrival=Arrival.JOIN, path=path),
            event("3", TopicPath("prices/log"), version=6, history=LIMITS),
        )
        own += await published(grid, publish(owner, 2, TOPIC, b"4"))
        values = await follower.has(PARTITION, 4)
        assert [each.value for each in values] == [b"1", b"2", b"3", b"4"]
        events = [own[0].event, *(taken(each).event for each in results), own[1].event]
        assert [each.event for each in values] == events
        expected = {
            1: Arrived(Arrival.JOIN, Origin(THERE, Version(5)), Stamp(LATER, THERE), path),
            2: Arrived(Arrival.MEMBER, Origin(THERE, Version(6)), None),
        }
        assert how_they_came(batches) == expected
        page = await grid.origins.read_after(PARTITION, before, 1_000)
        assert isinstance(page, TailBatch)
        assert page == TailBatch(PARTITION, tuple(values), page.position, expected)
        assert page.position == await grid.topics.position(PARTITION)
        stretch = await grid.topics.between(PARTITION, before, page.position)
        assert stretch is not None
        assert tuple(stretch) == page.values


def how_they_came(batches: Sequence[TailBatch]) -> dict[int, Arrived | None]:
    """Join what batches say of how values came."""
    found: dict[int, Arrived | None] = {}
    offset = 0
    for batch in batches:
        found |= {offset + at: arrived for at, arrived in batch.arrived.items()}
        offset += len(batch.values)
    return found


async def test_a_restored_value_is_told_as_one_of_which_nothing_is_known(harness: Harness) -> None:
    """None for a restored value, of which that is not known any more."""
    grid = await harness.grid()
    before = await grid.topics.position(PARTITION)
    (receipt,) = await published(grid, publish(ownership(session()), 1, TOPIC, b"1"))
    generation, sequence = place_of(receipt.event)
    (known,) = await grid.topics.read([TOPIC])
    assert known is not None
    later = known._replace(event=EventId(f"{PARTITION}-{generation}-{sequence + 100}"), value=b"2")
    assert await grid.topics.restore([later]) == 1
    page = await grid.origins.read_after(PARTITION, before, 10)
    assert isinstance(page, TailBatch)
    assert page.arrived == {1: None}
    assert [each.value for each in page.values] == [b"1", b"2"]


async def test_pages_of_a_stream_follow_each_other(harness: Harness) -> None:
    """The page; None if nothing follows; ``PositionLost`` if the stream does not continue from there."""
    grid = await harness.grid()
    owner = ownership(session())
    position = start = await grid.topics.position(PARTITION)
    await published(grid, *(publish(owner, n, TOPIC, str(n).encode()) for n in range(1, 26)))
    read: list[bytes] = []
    while (page := await grid.origins.read_after(PARTITION, position, 10)) is not None:
        assert isinstance(page, TailBatch)
        assert len(page.values) <= 10
        read += [each.value for each in page.values]
        position = page.position
    assert read == [str(n).encode() for n in range(1, 26)]
    commands = [publish(owner, n, TOPIC, b"x") for n in range(26, 26 + TRIMMED_AFTER)]
    await published(grid, *commands)
    assert await grid.origins.read_after(PARTITION, start, 10) == PositionLost(PARTITION)
    beyond = StreamPosition(position.grid_generation, position.sequence + 10_000)
    assert await grid.origins.read_after(PARTITION, beyond, 10) == PositionLost(PARTITION)


async def test_a_stream_that_grows_while_its_end_is_read_has_no_gap(harness: Harness) -> None:
    """Who has come to the end asks again and again, and an event may come at any moment of that."""
    grid = await harness.grid()
    owner = ownership(session())
    place = await grid.topics.position(PARTITION)
    publishing = asyncio.create_task(_publish_one_by_one(grid, owner, 300))
    read: list[bytes] = []
    async with time_limit():
        while len(read) < 300:
            page = await grid.origins.read_after(PARTITION, place, 10)
            assert not isinstance(page, PositionLost), f"behind {place}, after {len(read)} events"
            if page is not None:
                read += [each.value for each in page.values]
                place = page.position
            await asyncio.sleep(0)
    await publishing
    assert read == [str(number).encode() for number in range(1, 301)]


async def _publish_one_by_one(grid: Grid, owner: Ownership, count: int) -> None:
    for number in range(1, count + 1):
        await published(grid, publish(owner, number, TOPIC, str(number).encode()))


async def test_pages_go_on_from_before_the_first_event(fragile: Harness) -> None:
    """What was published since a partition was found empty is read, also if the grid was restarted meanwhile."""
    grid = await fragile.grid()
    start = await grid.topics.position(PARTITION)
    assert await grid.origins.read_after(PARTITION, start, 10) is None
    await published(grid, publish(ownership(session()), 1, TOPIC, b"1"))
    await fragile.go_away()
    await fragile.come_back(restarted=True)
    await published(grid, publish(ownership(session()), 1, TOPIC, b"2"))
    page = await grid.origins.read_after(PARTITION, start, 10)
    assert isinstance(page, TailBatch)
    assert [each.value for each in page.values] == [b"1", b"2"]
    assert page.position == await grid.topics.position(PARTITION)


async def test_pages_go_on_into_another_generation(fragile: Harness) -> None:
    """A grid that was restarted with all of its data has lost nothing, and neither shall links."""
    grid = await fragile.grid()
    owner = ownership(session())
    await published(grid, publish(owner, 1, TOPIC, b"1"))
    position = await grid.topics.position(PARTITION)
    await published(grid, publish(owner, 2, TOPIC, b"2"), publish(owner, 3, TOPIC, b"3"))
    end = await grid.topics.position(PARTITION)
    await fragile.go_away()
    await fragile.come_back(restarted=True)
    await published(grid, publish(ownership(session()), 1, TOPIC, b"4"))
    newest = await grid.topics.position(PARTITION)
    assert newest.grid_generation > end.grid_generation
    for start, wanted in ((position, [b"2", b"3", b"4"]), (end, [b"4"])):
        place, read = start, list[bytes]()
        while (page := await grid.origins.read_after(PARTITION, place, 2)) is not None:
            assert isinstance(page, TailBatch)
            read += [each.value for each in page.values]
            place = page.position
        assert (read, place) == (wanted, newest)


async def test_a_place_of_a_lost_grid_is_lost(fragile: Harness) -> None:
    """The stream does not continue from there."""
    grid = await fragile.grid()
    await apply(grid, event("1", at=1))
    before = await grid.topics.position(PARTITION)
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    assert await grid.origins.read_after(PARTITION, before, 10) == PositionLost(PARTITION)


async def test_links_read_apart_from_the_replicas(harness: Harness) -> None:
    """Streams of topics again, for links alone: they need not be where ``tail`` is."""
    grid = await harness.grid()
    owner = ownership(session())
    start = await grid.topics.position(PARTITION)
    commands: list[PublishCommand] = [publish(owner, n, TOPIC, str(n).encode()) for n in range(1, 11)]
    await published(grid, *commands)
    read: list[bytes] = []

    async def read_link() -> None:
        async for item in grid.link_tail.items():
            assert isinstance(item, TailBatch)
            read.extend(each.value for each in item.values)

    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION)
        task = asyncio.create_task(read_link())
        try:
            grid.link_tail.follow(PARTITION, start)
            await eventually(lambda: len(read) == 10, message="what was published before")
            await published(grid, publish(owner, 11, TOPIC, b"11"))
            await eventually(lambda: len(read) == 11, message="what is published now")
            assert [each.value for each in await follower.has(PARTITION, 1)] == [b"11"]
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_values_and_forwarded_events_share_one_order(harness: Harness) -> None:
    """Raise the version, store the value, append to the stream."""
    grid = await harness.grid()
    owner = ownership(session())
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION)
        for number in range(1, 20):
            await asyncio.gather(
                published(grid, publish(owner, number, TOPIC, b"1")), apply(grid, event("2", at=LATER + number))
            )
        values = await follower.has(PARTITION, 38)
        assert [each.version for each in values] == sorted({each.version for each in values})
        assert (await values_of(grid, PARTITION))[TOPIC] == values[-1]


@pytest.mark.promise("P18")
async def test_a_value_that_ends_crosses_like_any_other_and_so_does_its_end(harness: Harness) -> None:
    """It is not taken for one that was put back; and one that was put back with its end is."""
    grid = await harness.grid()
    position = await grid.topics.position(PARTITION)
    ends = publish(ownership(session()), 1, TOPIC, b"1")._replace(ttl=harness.short)
    await published(grid, ends)
    (held,) = await grid.topics.read([TOPIC])
    assert held is not None
    await grid.topics.restore([held._replace(topic=TopicPath(f"{TOPIC}/again"))])
    await harness.advance(harness.short)
    assert await grid.topics.end([(TOPIC, None)], keep=LONG) == 1

    batch = await grid.origins.read_after(PARTITION, position, 100)

    assert isinstance(batch, TailBatch)
    assert [each.value for each in batch.values] == [b"1", b"1", b""]
    assert batch.arrived == {1: None}
