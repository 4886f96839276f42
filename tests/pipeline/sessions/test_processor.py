"""The stream keeps what is known, tells rows when they change, and forgets what has settled; without a JVM."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from pipeline.sessions import Fact, SessionState, tell
from pipeline.sessions.processor import SETTLED_AFTER_MS, SILENT_AFTER_MS, SessionProcessor, row_of
from pipeline.sessions.rules import CLOSED, LONGEST_WINDOW_MS, REFUSED
from tests.pipeline.sessions.lives import START, Teller, lives

START_MS = START // 1000


def harness() -> TwsTester:
    # Rows of sessions carry no time, so that none is too late; see frames.stream_of.
    return TwsTester(SessionProcessor(), timeMode="EventTime", eventTimeExtractor=lambda _: 1 << 62)


def rows(facts: list[Fact]) -> list[Row]:
    return [Row(session="s", **fact._asdict()) for fact in facts]


def expected(facts: list[Fact], heard_until_ms: int) -> list[Row]:
    told = tell("s", SessionState(facts), heard_until_ms)
    return [] if told is None else [row_of(told.row)]


def watermark(stream: TwsTester, now_ms: int) -> list[Any]:
    return list(stream.setWatermark(now_ms))


def test_the_events_of_nodes_make_no_session() -> None:
    stream = harness()
    assert stream.test("", rows([])) == []
    assert stream.peekValueState("known", "") is None


def test_what_is_told_twice_is_not_told_again() -> None:
    teller = Teller()
    teller.opened(0)
    stream = harness()
    assert stream.test("s", rows(teller.facts)) == expected(teller.facts, 0)
    assert stream.test("s", rows(teller.facts)) == []


def test_a_window_that_passes_is_told_once_the_watermark_is_there() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    stream = harness()
    stream.test("s", rows(teller.facts))
    assert watermark(stream, START_MS + 39_999) == []
    (row,) = watermark(stream, START_MS + 40_000)
    assert (row.state, row.end_reason) == ("ended", "presumed")
    assert row == expected(teller.facts, START_MS + 40_000)[0]


def test_who_comes_back_stops_the_clock() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    stream = harness()
    stream.test("s", rows(teller.facts))
    stream.test("s", rows([teller.resumed(20, "n2", 2)]))
    assert watermark(stream, START_MS + 10**9) == []


def test_an_event_that_is_late_corrects_what_was_presumed() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    stream = harness()
    stream.test("s", rows(teller.facts))
    watermark(stream, START_MS + 40_000)
    (row,) = stream.test("s", rows([teller.resumed(20, "n2", 2)]))
    assert row.state == "connected"
    assert watermark(stream, START_MS + 10**9) == []


def test_what_has_settled_is_forgotten_a_day_after_it_was_last_heard_of() -> None:
    teller = Teller()
    teller.opened(0)
    teller.tell(CLOSED, 10, "n1", 1)
    stream = harness()
    stream.test("s", rows(teller.facts))
    watermark(stream, START_MS + 60_000)
    stream.test("s", rows([teller.tell(REFUSED, 61, "n1", 1)]))
    settled = START_MS + 61_000 + SETTLED_AFTER_MS
    assert watermark(stream, settled - 1) == []
    assert stream.peekValueState("known", "s") is not None
    assert watermark(stream, settled) == []
    assert stream.peekValueState("known", "s") is None


def test_refusals_alone_are_forgotten_as_well() -> None:
    teller = Teller()
    stream = harness()
    assert stream.test("s", rows([teller.tell(REFUSED, 0, "n1", 1)])) == []
    watermark(stream, START_MS + SETTLED_AFTER_MS)
    assert stream.peekValueState("known", "s") is None


def test_a_connected_session_of_which_nothing_is_heard_is_forgotten_in_the_end() -> None:
    teller = Teller()
    teller.opened(0)
    stream = harness()
    stream.test("s", rows(teller.facts))
    assert watermark(stream, START_MS + SILENT_AFTER_MS - 1) == []
    assert stream.peekValueState("known", "s") is not None
    assert watermark(stream, START_MS + SILENT_AFTER_MS + 86_400_000) == []
    assert stream.peekValueState("known", "s") is None


def test_without_an_opening_a_session_that_is_away_ends_with_the_longest_window() -> None:
    teller = Teller()
    teller.resumed(0, "n2", 7)
    teller.disconnected(10, "n2", 7)
    stream = harness()
    stream.test("s", rows(teller.facts))
    over = START_MS + 10_000 + LONGEST_WINDOW_MS
    assert watermark(stream, over - 1) == []
    (row,) = watermark(stream, over)
    assert (row.state, row.end_reason) == ("ended", "presumed")
    assert row == expected(teller.facts, over)[0]
    watermark(stream, over + SETTLED_AFTER_MS)
    assert stream.peekValueState("known", "s") is None


@settings(max_examples=50)
@given(lives(), st.data())
def test_every_state_has_a_timer_and_goes(facts: list[Fact], data: st.DataObject) -> None:
    stream = harness()
    for fact in data.draw(st.permutations(facts)):
        stream.test("s", rows([fact]))
    watermark(stream, START_MS + LONGEST_WINDOW_MS + 86_400_000)
    watermark(stream, START_MS + 2 * SILENT_AFTER_MS)
    assert stream.peekValueState("known", "s") is None


@settings(max_examples=50)
@given(lives(), st.data())
def test_whatever_the_batches_the_last_row_is_that_of_all_events(facts: list[Fact], data: st.DataObject) -> None:
    stream = harness()
    last: list[Row] = []
    now = START_MS - 10_000
    for fact in data.draw(st.permutations(facts)):
        last = stream.test("s", rows([fact])) or last
        now += data.draw(st.integers(1, 30_000))
        last = watermark(stream, now) or last
    assert last == expected(facts, now)
