"""The stream keeps what is known, tells rows when they change, and forgets what has settled; without Spark."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sessions import Fact, SessionRow, SessionState, tell
from pipeline.sessions.folding import KNOWN, NOTHING, fold
from pipeline.sessions.rules import CLOSED, LONGEST_WINDOW_MS, REFUSED
from pipeline.sessions.timers import SETTLED_AFTER_MS, SILENT_AFTER_MS
from tests.pipeline.sessions.lives import START, Teller, lives

START_MS = START // 1000


class Stream:
    """Folds batch after batch."""

    def __init__(self) -> None:
        self.known: pa.Table = NOTHING
        self.heard_until_ms = 0

    def test(self, session: str, facts: list[Fact]) -> list[SessionRow]:
        return self.take({session: facts})

    def take(self, told: dict[str, list[Fact]]) -> list[SessionRow]:
        rows, self.known = fold(self.known, told, self.heard_until_ms)
        assert self.known.schema == KNOWN
        return rows

    def knows(self, session: str) -> bool:
        found = self.known["session"].to_pylist()
        assert len(set(found)) == len(found)
        return session in found


def harness() -> Stream:
    return Stream()


def expected(facts: list[Fact], heard_until_ms: int) -> list[SessionRow]:
    told = tell("s", SessionState(facts), heard_until_ms)
    return [] if told is None else [told.row]


def watermark(stream: Stream, now_ms: int) -> list[SessionRow]:
    stream.heard_until_ms = max(stream.heard_until_ms, now_ms)
    return stream.take({})


def test_what_is_told_twice_is_not_told_again() -> None:
    teller = Teller()
    teller.opened(0)
    stream = harness()
    assert stream.test("s", teller.facts) == expected(teller.facts, 0)
    assert stream.test("s", teller.facts) == []


def test_a_window_that_passes_is_told_once_the_watermark_is_there() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    stream = harness()
    stream.test("s", teller.facts)
    assert watermark(stream, START_MS + 39_999) == []
    (row,) = watermark(stream, START_MS + 40_000)
    assert (row["state"], row["end_reason"]) == ("ended", "presumed")
    assert row == expected(teller.facts, START_MS + 40_000)[0]


def test_who_comes_back_stops_the_clock() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    stream = harness()
    stream.test("s", teller.facts)
    stream.test("s", [teller.resumed(20, "n2", 2)])
    assert watermark(stream, START_MS + 10**9) == []


def test_an_event_that_is_late_corrects_what_was_presumed() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    stream = harness()
    stream.test("s", teller.facts)
    watermark(stream, START_MS + 40_000)
    (row,) = stream.test("s", [teller.resumed(20, "n2", 2)])
    assert row["state"] == "connected"
    assert watermark(stream, START_MS + 10**9) == []


def test_what_has_settled_is_forgotten_a_day_after_it_was_last_heard_of() -> None:
    teller = Teller()
    teller.opened(0)
    teller.tell(CLOSED, 10, "n1", 1)
    stream = harness()
    stream.test("s", teller.facts)
    watermark(stream, START_MS + 60_000)
    stream.test("s", [teller.tell(REFUSED, 61, "n1", 1)])
    settled = START_MS + 61_000 + SETTLED_AFTER_MS
    assert watermark(stream, settled - 1) == []
    assert stream.knows("s")
    assert watermark(stream, settled) == []
    assert not stream.knows("s")


def test_refusals_alone_are_forgotten_as_well() -> None:
    teller = Teller()
    stream = harness()
    assert stream.test("s", [teller.tell(REFUSED, 0, "n1", 1)]) == []
    watermark(stream, START_MS + SETTLED_AFTER_MS)
    assert not stream.knows("s")


def test_a_connected_session_of_which_nothing_is_heard_is_forgotten_in_the_end() -> None:
    teller = Teller()
    teller.opened(0)
    stream = harness()
    stream.test("s", teller.facts)
    assert watermark(stream, START_MS + SILENT_AFTER_MS - 1) == []
    assert stream.knows("s")
    assert watermark(stream, START_MS + SILENT_AFTER_MS + 86_400_000) == []
    assert not stream.knows("s")


def test_without_an_opening_a_session_that_is_away_ends_with_the_longest_window() -> None:
    teller = Teller()
    teller.resumed(0, "n2", 7)
    teller.disconnected(10, "n2", 7)
    stream = harness()
    stream.test("s", teller.facts)
    over = START_MS + 10_000 + LONGEST_WINDOW_MS
    assert watermark(stream, over - 1) == []
    (row,) = watermark(stream, over)
    assert (row["state"], row["end_reason"]) == ("ended", "presumed")
    assert row == expected(teller.facts, over)[0]
    watermark(stream, over + SETTLED_AFTER_MS)
    assert not stream.knows("s")


@settings(max_examples=50, deadline=None)
@given(lives(), st.data())
def test_every_state_has_a_timer_and_goes(facts: list[Fact], data: st.DataObject) -> None:
    stream = harness()
    for fact in data.draw(st.permutations(facts)):
        stream.test("s", [fact])
    watermark(stream, START_MS + LONGEST_WINDOW_MS + 86_400_000)
    watermark(stream, START_MS + 2 * SILENT_AFTER_MS)
    assert not stream.knows("s")


@settings(max_examples=50, deadline=None)
@given(lives(), st.data())
def test_whatever_the_batches_the_last_row_is_that_of_all_events(facts: list[Fact], data: st.DataObject) -> None:
    stream = harness()
    last: list[SessionRow] = []
    now = START_MS - 10_000
    for fact in data.draw(st.permutations(facts)):
        last = stream.test("s", [fact]) or last
        now += data.draw(st.integers(1, 30_000))
        last = watermark(stream, now) or last
    assert last == expected(facts, now)


@settings(max_examples=30, deadline=None)
@given(st.lists(lives(), min_size=1, max_size=4), st.data())
def test_sessions_of_one_batch_do_not_disturb_each_other(several: list[list[Fact]], data: st.DataObject) -> None:
    told = [(f"s{number}", fact) for number, facts in enumerate(several) for fact in facts]
    stream = harness()
    last: dict[str, SessionRow] = {}
    waiting: list[tuple[str, Fact]] = data.draw(st.permutations(told))
    stream.heard_until_ms = START_MS + data.draw(st.integers(0, 100_000))
    while waiting:
        size = data.draw(st.integers(1, len(waiting)))
        batch: defaultdict[str, list[Fact]] = defaultdict(list)
        for session, fact in waiting[:size]:
            batch[session].append(fact)
        waiting = waiting[size:]
        changed = stream.take(batch)
        assert len({row["session"] for row in changed}) == len(changed)
        last |= {row["session"]: row for row in changed}
    for number, facts in enumerate(several):
        told_at_once = tell(f"s{number}", SessionState(facts), stream.heard_until_ms)
        assert last.get(f"s{number}") == (None if told_at_once is None else told_at_once.row)


def test_what_nothing_touches_is_passed_on_as_it_is() -> None:
    teller = Teller()
    teller.opened(0)
    stream = harness()
    stream.test("s", teller.facts)
    before = stream.known
    assert stream.test("s", teller.facts) == []
    assert stream.take({}) == []
    assert stream.known is before
