"""Streams of updates: versions, conflation, readers and ends."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client.queues import ConflatingQueue, VersionFilter, size_of
from gateway.client.streams import Feed, UpdateStream
from gateway.core.client.errors import SessionExpired, StreamOverflow
from gateway.core.client.types import Update
from gateway.core.topics.selectors import parse_selector


def update(topic: str, version: int, *, snapshot: bool = False, folded: int = 0) -> Update:
    return Update(topic, f"{topic}@{version}", version, f"0-1-{version}", snapshot, folded=folded)


def feed_of(selector: str, *, size: int = 100, octets: int = 10_000) -> Feed:
    return Feed(parse_selector(selector), size=size, octets=octets)


def stream_of(feed: Feed) -> UpdateStream:
    return UpdateStream(feed, lambda feed: feed.end(None))


# --- Versions ---------------------------------------------------------------------------------------------------------


def test_versions_grow() -> None:
    versions = VersionFilter()

    assert [versions.passes(update("a", version)) for version in (3, 2, 3, 4, 1, 9)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert versions.passes(update("b", 1)), "each topic has its own"


def test_a_snapshot_of_the_same_version_passes_once_after_a_failover() -> None:
    versions = VersionFilter()
    assert versions.passes(update("a", 3))
    assert not versions.passes(update("a", 3, snapshot=True)), "already seen on this node"
    versions.failed_over()

    assert not versions.passes(update("a", 2, snapshot=True)), "never back"
    assert not versions.passes(update("a", 3)), "a live update must have grown"
    assert versions.passes(update("a", 3, snapshot=True))
    assert not versions.passes(update("a", 3, snapshot=True)), "once is enough"


@given(
    st.lists(
        st.one_of(
            st.just("failover"),
            st.tuples(st.sampled_from("ab"), st.integers(1, 6), st.booleans()),
        )
    )
)
def test_whatever_comes_versions_never_go_back(events: list[str | tuple[str, int, bool]]) -> None:
    versions = VersionFilter()
    last = {"a": 0, "b": 0}
    repeats = {"a": 0, "b": 0}
    for event in events:
        if isinstance(event, str):
            versions.failed_over()
            repeats = {"a": 1, "b": 1}
            continue
        topic, version, snapshot = event
        if versions.passes(update(topic, version, snapshot=snapshot)):
            assert version >= last[topic]
            if version == last[topic]:
                assert snapshot
                assert repeats[topic] == 1
            repeats[topic] = 0
            last[topic] = version
        else:
            assert version <= last[topic]


def test_not_every_topic_is_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.queues.TOPICS_REMEMBERED", 10)
    versions = VersionFilter()
    assert versions.passes(update("quiet", 5))
    for number in range(8):
        assert versions.passes(update(f"a/{number}", 5))
    assert not versions.passes(update("quiet", 4)), "ten are remembered"
    for number in range(1000):
        assert versions.passes(update(f"b/{number}", 5))
        assert versions.passes(update("busy", number + 1)), "what is updated all the time never falls out"
        assert not versions.passes(update("busy", number + 1))
        assert len(versions) <= 20
    assert versions.passes(update("quiet", 4)), "it was forgotten"


# --- Slow consumers ---------------------------------------------------------------------------------------------------


def pushed(queue: ConflatingQueue, *updates: Update, octets: int = 1) -> None:
    for each in updates:
        queue.push(each, octets)


def test_up_to_its_size_a_queue_keeps_everything() -> None:
    queue = ConflatingQueue(3, 3)
    pushed(queue, *(update("a", version) for version in (1, 2, 3)))

    assert [queue.pop() for _ in range(3)] == [update("a", version) for version in (1, 2, 3)]
    assert (queue.conflated, queue.bytes) == (0, 0)
    with pytest.raises(IndexError):
        queue.pop()


def test_a_stream_of_which_nothing_is_said_keeps_ten_thousand_updates_and_no_more() -> None:
    feed = Feed(parse_selector("**"))
    for version in range(1, 10_001):
        feed.offer(update("a", version), 1)
    assert (feed.waiting, feed.conflated) == (10_000, 0)
    feed.offer(update("a", 10_001), 1)
    assert (feed.waiting, feed.conflated) == (1, 10_000)


def test_a_stream_of_which_nothing_is_said_keeps_64_mebibytes_and_no_more() -> None:
    feed = Feed(parse_selector("**"))
    value = "x" * (2**20 - 3)

    def offer(topic: str, version: int) -> bool:
        each = Update(topic, value, version, f"0-1-{version}", False)
        return feed.offer(each, size_of(each))

    assert not any(offer("a", version) for version in range(1, 65))
    assert (feed.waiting, feed.waiting_bytes, feed.conflated) == (64, 64 * 2**20, 0)
    assert not offer("a", 65)
    assert (feed.waiting, feed.waiting_bytes, feed.conflated) == (1, 2**20, 64)
    assert not any(offer(topic, 1) for topic in map(chr, range(200, 263)))
    assert (feed.waiting, feed.waiting_bytes, feed.conflated) == (64, 64 * 2**20, 64)
    assert offer("c", 1), "each is the newest of its topic, and nothing can be spared"
    assert feed.ended


@pytest.mark.parametrize("bounds", [(3, 1000), (1000, 3)])
def test_beyond_its_bounds_a_queue_keeps_the_newest_per_topic_until_it_was_empty(bounds: tuple[int, int]) -> None:
    queue = ConflatingQueue(*bounds)
    pushed(queue, *(update(*each) for each in (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1))))

    assert len(queue) == 3
    assert queue.conflated == 2
    assert queue.pop() == update("a", 2, folded=1)
    pushed(queue, update("b", 3))
    assert [queue.pop() for _ in range(2)] == [update("b", 3, folded=2), update("c", 1)]
    assert queue.conflated == 3
    pushed(queue, update("a", 3), update("a", 4))
    assert len(queue) == 2, "a fresh start"
    queue.clear()
    assert (len(queue), queue.bytes) == (0, 0)


def test_marks_add_up_and_what_took_the_place_of_a_snapshot_is_one() -> None:
    queue = ConflatingQueue(1, 1)
    pushed(queue, update("a", 4, snapshot=True, folded=2), update("a", 8, folded=3))

    assert queue.pop() == update("a", 8, snapshot=True, folded=6)


steps = st.lists(st.one_of(st.none(), st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(1, 50))))


@given(st.integers(1, 5), st.integers(1, 120), steps)
def test_a_queue_is_bounded_and_accounts_for_every_update(
    size: int, octets: int, walk: list[tuple[str, int, int] | None]
) -> None:
    queue = ConflatingQueue(size, octets)
    newest: dict[str, int] = {}
    read: dict[str, int] = {}

    def pop() -> None:
        got = queue.pop()
        # The mark explains the jump, exactly (protocol 6.4), whoever made it.
        assert got.version == read.get(got.topic, 0) + 1 + got.folded
        read[got.topic] = got.version

    for step in walk:
        if step is not None:
            topic, folded, length = step
            newest[topic] = newest.get(topic, 0) + 1 + folded
            queue.push(update(topic, newest[topic], folded=folded), length)
        elif len(queue):
            pop()
        assert len(queue) <= max(size, 4)
        assert queue.bytes <= octets or queue.overflows or len(queue) == 1
        assert (queue.bytes > 0) is bool(len(queue))
    while len(queue):
        pop()

    assert read == newest
    assert queue.bytes == 0


async def test_a_stream_of_which_nothing_can_be_spared_ends() -> None:
    """Its newest values alone are more than it may keep: memory is bounded, and nothing is left out in silence."""
    feed = feed_of("a/*", octets=100)
    stream = stream_of(feed)
    for version in range(1, 8):
        assert not feed.offer(update("a/1", version, folded=1), 30)
    assert (stream.waiting, stream.waiting_bytes, stream.conflated) == (1, 30, 7 + 6)
    for number in (2, 3):
        assert not feed.offer(update(f"a/{number}", 1), 30)
    assert feed.offer(update("a/4", 1), 30)

    assert stream.closed
    assert [(await anext(stream)).topic for _ in range(4)] == ["a/1", "a/2", "a/3", "a/4"]
    for _ in range(2):
        with pytest.raises(
            StreamOverflow, match=r"a/\*.*the newest values of 4 topics wait, 120 bytes.*queue_bytes is 100"
        ):
            await anext(stream)


async def test_one_update_is_kept_however_large() -> None:
    feed = feed_of("a", octets=10)
    stream = stream_of(feed)
    for version in (1, 2):
        assert not feed.offer(update("a", version), 50)

    assert await anext(stream) == update("a", 2, folded=1)


# --- Reading ----------------------------------------------------------------------------------------------------------


async def test_a_stream_yields_what_is_offered_and_ends() -> None:
    feed = feed_of("a/**")
    stream = stream_of(feed)
    feed.offer(update("a/1", 1), 1)
    reading = asyncio.create_task(_read(stream))
    await asyncio.sleep(0)
    feed.offer(update("a/1", 2), 1)
    feed.offer(update("a/1", 2), 1)
    feed.end(None)
    feed.offer(update("a/1", 3), 1)

    assert [each.version for each in await reading] == [1, 2]
    assert stream.closed
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert repr(stream) == "<UpdateStream a/** ended waiting=0>"


async def _read(stream: UpdateStream) -> list[Update]:
    return [each async for each in stream]


async def test_a_stream_of_a_session_that_died_delivers_what_it_has_and_raises() -> None:
    feed = feed_of("a")
    stream = stream_of(feed)
    feed.offer(update("a", 1), 1)
    feed.end(SessionExpired("the window is over"))
    feed.end(None)

    assert (await anext(stream)).version == 1
    for _ in range(2):
        with pytest.raises(SessionExpired, match="window"):
            await anext(stream)


async def test_every_reader_of_a_stream_gets_its_share_and_the_end() -> None:
    feed = feed_of("a")
    stream = stream_of(feed)
    readers = [asyncio.create_task(_read(stream)) for _ in range(3)]
    await asyncio.sleep(0)
    for version in range(1, 7):
        feed.offer(update("a", version), 1)
    await asyncio.sleep(0)
    feed.end(None)
    shares = await asyncio.gather(*readers)

    assert sorted(each.version for share in shares for each in share) == [1, 2, 3, 4, 5, 6]


async def test_a_reader_that_is_cancelled_just_when_it_is_woken_leaves_the_update_to_others() -> None:
    feed = feed_of("a")
    stream = stream_of(feed)
    first, second = (asyncio.create_task(anext(stream)) for _ in range(2))
    await asyncio.sleep(0)
    feed.offer(update("a", 1), 1)
    first.cancel()

    assert (await second).version == 1
    assert first.cancelled() or (await asyncio.wait([first]))[0]


async def test_a_reader_that_is_cancelled_while_it_waits_is_forgotten() -> None:
    feed = feed_of("a")
    stream = stream_of(feed)
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    feed.offer(update("a", 1), 1)

    assert (await anext(stream)).version == 1


async def test_closing_a_stream_drops_what_waits() -> None:
    feed = feed_of("a")
    async with stream_of(feed) as stream:
        feed.offer(update("a", 1), 1)
    assert await _read(stream) == []


def test_a_stream_without_room_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        feed_of("a", size=0)
    with pytest.raises(ValueError, match="at least 1"):
        feed_of("a", octets=0)
