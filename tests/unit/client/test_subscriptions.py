"""All streams of a session: where updates go, and what the session selects for them."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client.streams import UpdateStream
from gateway.client.subscriptions import Streams
from gateway.core.client.errors import StreamOverflow
from gateway.core.client.types import Update
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import covers, matches, parse_selector
from gateway.core.types import TopicPath
from gateway.core.wire.packets import Unsubscribe


def update(topic: str, version: int, *, snapshot: bool = False) -> Update:
    return Update(topic, f"{topic}@{version}", version, f"0-1-{version}", snapshot)


class Session:
    """A session's streams, and the server that does what it is asked.

    Attributes:
        selections: the server's list.
        asked: each unsubscribe, as selector and what stays.
    """

    def __init__(self) -> None:
        self.streams = Streams(self._deselect)
        self.selections: Selections = NOTHING
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def subscribe(self, selector: str, **bounds: int) -> UpdateStream:
        stream = self.streams.open(parse_selector(selector), **bounds)
        self.selections = self.selections.select(parse_selector(selector))
        return stream

    def unsubscribe(self, selector: str) -> None:
        for ask in self.streams.unsubscribe(parse_selector(selector)):
            self._deselect(ask)

    def _deselect(self, ask: Unsubscribe) -> None:
        self.asked.append((ask.selector, ask.keep))
        after = self.selections.deselect(parse_selector(ask.selector))
        for kept in ask.keep:
            after = after.select(parse_selector(kept))
        self.selections = after

    def selected(self, *topics: str) -> list[str]:
        return [topic for topic in topics if self.selections.selects(TopicPath(topic))]


@pytest.fixture
async def session() -> Session:
    return Session()


# --- Streams are counted ----------------------------------------------------------------------------------------------


async def test_a_selection_ends_with_its_last_stream(session: Session) -> None:
    first, second = session.subscribe("a/**"), session.subscribe("a/**")
    first.close()
    assert session.asked == []
    assert session.selected("a/1") == ["a/1"]

    second.close()
    second.close()
    assert session.asked == [("a/**", ())]
    assert session.selections == NOTHING


@pytest.mark.parametrize("wide_first", [True, False])
async def test_the_end_of_a_wider_stream_takes_nothing_from_a_narrower(session: Session, wide_first: bool) -> None:
    names = ["prices/**", "prices/ACME"] if wide_first else ["prices/ACME", "prices/**"]
    streams = {name: session.subscribe(name) for name in names}
    streams["prices/**"].close()

    assert session.asked == [("prices/**", ("prices/ACME",))]
    assert session.selected("prices/ACME", "prices/XYZ") == ["prices/ACME"]
    session.streams.dispatch(update("prices/ACME", 1))
    assert streams["prices/ACME"].waiting == 1


async def test_the_end_of_a_narrower_stream_asks_for_nothing(session: Session) -> None:
    wide = session.subscribe("prices/**")
    async with session.subscribe("prices/ACME"):
        pass
    assert session.asked == []

    wide.close()
    assert session.asked == [("prices/**", ())]


async def test_of_what_merely_overlaps_the_common_part_stays(session: Session) -> None:
    row, column = session.subscribe("a/*"), session.subscribe("*/b")
    row.close()

    assert session.asked == [("a/*", ("*/b",))]
    assert session.selected("a/b", "a/c", "x/b") == ["a/b", "x/b"]
    assert not column.closed


async def test_unsubscribing_ends_the_streams_of_exactly_that_selector_and_nothing_else(session: Session) -> None:
    """One component's unsubscribe took topics from another's stream."""
    wide, first, second = (session.subscribe(name) for name in ("a/**", "a/b", "a/b"))
    session.streams.dispatch(update("a/b", 1))
    session.unsubscribe("a/b")

    assert [each.closed for each in (wide, first, second)] == [False, True, True]
    assert [each.waiting for each in (wide, first, second)] == [1, 1, 1]
    assert session.asked == []
    session.streams.dispatch(update("a/b", 2))
    assert [each.waiting for each in (wide, first, second)] == [2, 1, 1]


async def test_unsubscribing_what_no_stream_has_takes_it_out_of_wider_ones(session: Session) -> None:
    wide, narrow = session.subscribe("a/**"), session.subscribe("a/secret/mine")
    session.unsubscribe("a/secret/**")
    later = session.subscribe("a/secret/late")
    for topic in ("a/1", "a/secret/mine", "a/secret/late", "a/secret/x"):
        session.streams.dispatch(update(topic, 1))

    assert session.asked == [("a/secret/**", ("a/secret/mine",))]
    assert session.selected("a/1", "a/secret/mine", "a/secret/late", "a/secret/x") == [
        "a/1",
        "a/secret/mine",
        "a/secret/late",
    ]
    assert [each.waiting for each in (wide, narrow, later)] == [1, 1, 1]


async def test_what_was_taken_out_stays_out_when_other_streams_end(session: Session) -> None:
    session_stream = session.subscribe("a/**")
    session.unsubscribe("a/secret/**")
    again = session.subscribe("a/secret/**")
    assert session.selected("a/1", "a/secret/x") == ["a/1", "a/secret/x"]
    again.close()
    assert session.selected("a/1", "a/secret/x") == ["a/1"]

    session.subscribe("a/*/x").close()
    assert session.selected("a/1", "a/2/x", "a/secret/x") == ["a/1", "a/2/x"]
    assert not session_stream.closed


async def test_there_is_nothing_to_unsubscribe_of_narrower_streams(session: Session) -> None:
    narrow = session.subscribe("a/b")
    session.unsubscribe("**")

    assert session.asked == []
    assert not narrow.closed


async def test_what_cannot_be_said_in_one_request_is_deselected_later(session: Session) -> None:
    wide = session.subscribe("a/**")
    narrow = [session.subscribe(f"a/{number}") for number in range(65)]
    wide.close()
    assert session.asked == []
    narrow.pop().close()

    selector, kept = session.asked[0]
    assert (selector, len(kept)) == ("a/**", 64)
    assert session.selected("a/0", "a/64", "a/x") == ["a/0"]


async def test_a_deselection_that_was_refused_is_tried_again(session: Session) -> None:
    session.streams.lingers(parse_selector("old/**"))
    session.subscribe("a").close()

    assert session.asked == [("old/**", ()), ("a", ())]


async def test_a_stream_that_nobody_holds_ends(session: Session) -> None:
    session.subscribe("a/**")
    held = session.subscribe("b/**")
    gc.collect()
    await asyncio.sleep(0)

    assert session.asked == [("a/**", ())]
    assert len(session.streams) == 1
    assert not held.closed


async def test_a_stream_that_is_read_is_held_by_its_reader(session: Session) -> None:
    async def read() -> Update:
        async for each in session.subscribe("a"):
            return each
        raise AssertionError

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert session.asked == []
    session.streams.dispatch(update("a", 1))
    assert (await reading).version == 1

    del reading
    gc.collect()
    await asyncio.sleep(0)
    assert session.asked == [("a", ())], "the loop was left, and with it the only name of the stream"


async def test_a_stream_may_be_collected_in_another_thread(session: Session) -> None:
    holder = [session.subscribe("a")]
    thread = threading.Thread(target=holder.clear)
    thread.start()
    await asyncio.to_thread(thread.join)
    gc.collect()
    await asyncio.sleep(0)

    assert session.asked == [("a", ())]


async def test_leaving_a_loop_over_a_stream_with_a_name_does_not_end_it(session: Session) -> None:
    stream = session.subscribe("a")
    for version in (1, 2):
        session.streams.dispatch(update("a", version))
    async for each in stream:
        assert each.version == 1
        break

    assert (await anext(stream)).version == 2
    assert session.asked == []


# --- Any order --------------------------------------------------------------------------------------------------------

SELECTORS: Final = ["**", "a/**", "a/*", "*/b", "a/b", "a/c", "b/**", "a/b/c"]
TOPICS: Final = ["a", "a/b", "a/c", "b/b", "b/c", "a/b/c", "c"]

acts = st.lists(
    st.tuples(st.sampled_from(["subscribe", "subscribe", "close", "unsubscribe"]), st.sampled_from(SELECTORS)),
    min_size=6,
    max_size=14,
)


@given(acts)
def test_whatever_is_opened_and_ended_nothing_wanted_is_ever_deselected(walk: list[tuple[str, str]]) -> None:
    async def play() -> None:
        model = Model()
        for what, selector in walk:
            model.act(what, selector)
            model.check()
        model.end()

    asyncio.run(play())


class Model(Session):
    """A session beside the rule it is held to: the living streams, and what was taken out of each.

    The server's list is looked at after every single request, and not only when all are done.
    """

    def __init__(self) -> None:
        super().__init__()
        self.living: list[tuple[UpdateStream, list[str]]] = []
        self.version = 0

    def _deselect(self, ask: Unsubscribe) -> None:
        super()._deselect(ask)
        self.check()

    def act(self, what: str, selector: str) -> None:
        same = [each for each in self.living if each[0].selector == selector]
        if what == "subscribe":
            self.living.append((self.subscribe(selector), []))
        elif what == "close":
            for each in same[:1]:
                self.living.remove(each)
                each[0].close()
        else:
            self.living = [each for each in self.living if each not in same]
            for stream, holes in self.living if not same else []:
                if covers(parse_selector(stream.selector), parse_selector(selector)):
                    holes.append(selector)
            self.unsubscribe(selector)

    def check(self) -> None:
        self.version += 1
        for topic in map(TopicPath, TOPICS):
            wanting = [stream for stream, holes in self.living if self.wanted(stream, holes, topic)]
            assert not wanting or self.selections.selects(topic), f"{topic} is wanted and not selected"
            before = [stream.waiting for stream, _ in self.living]
            self.streams.dispatch(update(topic, self.version))
            got = [stream for (stream, _), count in zip(self.living, before, strict=True) if stream.waiting > count]
            assert got == wanting

    def wanted(self, stream: UpdateStream, holes: list[str], topic: TopicPath) -> bool:
        return _matches(stream.selector, topic) and not any(_matches(hole, topic) for hole in holes)

    def end(self) -> None:
        while self.living:
            stream, _ = self.living.pop()
            stream.close()
        assert self.selections == NOTHING


def _matches(selector: str, topic: TopicPath) -> bool:
    return matches(parse_selector(selector), topic)


# --- Where updates go -------------------------------------------------------------------------------------------------


async def test_updates_go_to_the_streams_whose_selector_matches(session: Session) -> None:
    wide = session.subscribe("a/**")
    session.streams.dispatch(update("a/1/x", 1))
    narrow = session.subscribe("a/*/x")
    for topic in ("a/1/x", "a/1/y", "b", "a/1/x"):
        session.streams.dispatch(update(topic, 2))

    assert (wide.waiting, narrow.waiting) == (3, 1)
    assert wide.waiting_bytes == sum(len(topic) + len(f'"{topic}@2"') for topic in ("a/1/x", "a/1/x", "a/1/y"))


async def test_a_stream_that_overflows_gives_its_selection_up(session: Session) -> None:
    stream = session.subscribe("a/*", octets=20)
    for number in range(9):
        session.streams.dispatch(update(f"a/{number}", 1))

    assert session.asked == [("a/*", ())]
    with pytest.raises(StreamOverflow):
        async for _ in stream:
            pass


async def test_the_memory_of_routes_is_bounded(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.subscriptions.ROUTES_KEPT", 10)
    stream = session.subscribe("**")
    for number in range(35):
        session.streams.dispatch(update(f"a/{number}", 1))

    assert stream.waiting == 35
    assert len(session.streams._routes) <= 10


async def test_a_failover_and_the_end_reach_every_stream(session: Session) -> None:
    stream = session.subscribe("a")
    session.streams.dispatch(update("a", 1))
    session.streams.failed_over()
    session.streams.dispatch(update("a", 1, snapshot=True))
    session.streams.end(None)

    assert stream.waiting == 2
    assert stream.closed
    assert len(session.streams) == 0
    stream.close()
    assert session.asked == []
