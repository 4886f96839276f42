"""Streams of updates: versions, conflation, routing and ends."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client.errors import SessionExpired
from gateway.client.streams import ConflatingQueue, Streams, UpdateStream, VersionFilter
from gateway.client.types import Update
from gateway.core.selectors import parse_selector


def update(topic: str, version: int, *, snapshot: bool = False) -> Update:
    return Update(topic, f"{topic}@{version}", version, f"0-1-{version}", snapshot)


def stream_of(selector: str, size: int = 100) -> UpdateStream:
    return UpdateStream(parse_selector(selector), size=size)


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


# --- Slow consumers ---------------------------------------------------------------------------------------------------


def test_up_to_its_size_a_queue_keeps_everything() -> None:
    queue = ConflatingQueue(3)
    for version in (1, 2, 3):
        queue.push(update("a", version))

    assert [queue.pop().version for _ in range(3)] == [1, 2, 3]
    assert queue.conflated == 0
    with pytest.raises(IndexError):
        queue.pop()


def test_beyond_its_size_a_queue_keeps_the_newest_per_topic_until_it_was_empty() -> None:
    queue = ConflatingQueue(3)
    for topic, version in (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)):
        queue.push(update(topic, version))

    assert len(queue) == 3
    assert queue.conflated == 2
    assert queue.pop() == update("a", 2)
    queue.push(update("b", 3))
    assert [queue.pop() for _ in range(2)] == [update("b", 3), update("c", 1)]
    assert queue.conflated == 3
    queue.push(update("a", 3))
    queue.push(update("a", 4))
    assert len(queue) == 2, "a fresh start"
    queue.clear()
    assert len(queue) == 0


@given(st.integers(1, 5), st.lists(st.one_of(st.none(), st.sampled_from("abcd"))))
def test_a_queue_is_bounded_and_its_last_word_on_each_topic_is_the_newest(size: int, steps: list[str | None]) -> None:
    queue = ConflatingQueue(size)
    newest: dict[str, int] = {}
    read: dict[str, int] = {}
    for version, topic in enumerate(steps, 1):
        if topic is not None:
            queue.push(update(topic, version))
            newest[topic] = version
        elif len(queue):
            got = queue.pop()
            assert got.version > read.get(got.topic, 0)
            read[got.topic] = got.version
        assert len(queue) <= max(size, 4)
    while len(queue):
        got = queue.pop()
        read[got.topic] = got.version

    assert read == newest


# --- Reading ----------------------------------------------------------------------------------------------------------


async def test_a_stream_yields_what_is_offered_and_ends() -> None:
    stream = stream_of("a/**")
    stream.offer(update("a/1", 1))
    reading = asyncio.create_task(_read(stream))
    await asyncio.sleep(0)
    stream.offer(update("a/1", 2))
    stream.offer(update("a/1", 2))
    stream.end(None)
    stream.offer(update("a/1", 3))

    assert [each.version for each in await reading] == [1, 2]
    assert stream.closed
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert repr(stream) == "<UpdateStream a/** ended waiting=0>"


async def _read(stream: UpdateStream) -> list[Update]:
    return [each async for each in stream]


async def test_a_stream_of_a_session_that_died_delivers_what_it_has_and_raises() -> None:
    stream = stream_of("a")
    stream.offer(update("a", 1))
    stream.end(SessionExpired("the window is over"))
    stream.end(None)

    assert (await anext(stream)).version == 1
    for _ in range(2):
        with pytest.raises(SessionExpired, match="window"):
            await anext(stream)


async def test_every_reader_of_a_stream_gets_its_share_and_the_end() -> None:
    stream = stream_of("a")
    readers = [asyncio.create_task(_read(stream)) for _ in range(3)]
    await asyncio.sleep(0)
    for version in range(1, 7):
        stream.offer(update("a", version))
    await asyncio.sleep(0)
    stream.end(None)
    shares = await asyncio.gather(*readers)

    assert sorted(each.version for share in shares for each in share) == [1, 2, 3, 4, 5, 6]


async def test_a_reader_that_is_cancelled_just_when_it_is_woken_leaves_the_update_to_others() -> None:
    stream = stream_of("a")
    first, second = (asyncio.create_task(anext(stream)) for _ in range(2))
    await asyncio.sleep(0)
    stream.offer(update("a", 1))
    first.cancel()

    assert (await second).version == 1
    assert first.cancelled() or (await asyncio.wait([first]))[0]


async def test_a_reader_that_is_cancelled_while_it_waits_is_forgotten() -> None:
    stream = stream_of("a")
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    stream.offer(update("a", 1))

    assert (await anext(stream)).version == 1


async def test_closing_a_stream_drops_what_waits() -> None:
    async with stream_of("a") as stream:
        stream.offer(update("a", 1))
    assert await _read(stream) == []


def test_a_stream_without_room_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        stream_of("a", size=0)


# --- All streams of a session -----------------------------------------------------------------------------------------


def test_updates_go_to_the_streams_whose_selector_matches() -> None:
    streams = Streams()
    wide, narrow = stream_of("a/**"), stream_of("a/*/x")
    streams.add(wide)
    streams.dispatch(update("a/1/x", 1))
    streams.add(narrow)
    for topic in ("a/1/x", "a/1/y", "b", "a/1/x"):
        streams.dispatch(update(topic, 2))

    assert (wide.waiting, narrow.waiting) == (3, 1)


def test_a_stream_that_its_reader_closed_is_forgotten() -> None:
    streams = Streams()
    closed = stream_of("a")
    streams.add(closed)
    closed.close()
    streams.add(stream_of("b"))

    assert len(streams) == 1


def test_unsubscribing_ends_streams_of_exactly_that_selector() -> None:
    streams = Streams()
    wide, first, second = stream_of("a/**"), stream_of("a/b"), stream_of("a/b")
    for each in (wide, first, second):
        streams.add(each)
    streams.dispatch(update("a/b", 1))
    streams.unsubscribe(parse_selector("a/b"))
    streams.discard(first)

    assert [each.closed for each in (wide, first, second)] == [False, True, True]
    assert len(streams) == 1


def test_the_memory_of_routes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.streams.ROUTES_KEPT", 10)
    streams = Streams()
    stream = stream_of("**")
    streams.add(stream)
    for number in range(35):
        streams.dispatch(update(f"a/{number}", 1))

    assert stream.waiting == 35
    assert len(streams._routes) <= 10


def test_a_failover_and_the_end_reach_every_stream() -> None:
    streams = Streams()
    stream = stream_of("a")
    streams.add(stream)
    streams.dispatch(update("a", 1))
    streams.failed_over()
    streams.dispatch(update("a", 1, snapshot=True))
    streams.end(None)

    assert stream.waiting == 2
    assert stream.closed
    assert len(streams) == 0
