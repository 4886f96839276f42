"""Where a reader stands: what is gone is seen whatever happened to the stream, and nothing else is taken for gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import NotReady, PipelineError
from pipeline.source.offsets import (
    BEGINNING,
    START,
    EntryId,
    Position,
    StreamState,
    cap,
    next_end,
    offset_of,
    positions_of,
    read_entry_id,
    refuse_gaps,
    skip_gap,
    trim_before,
    what_is_gone,
)


def at(text: str, incarnation: str = "a") -> Position:
    return Position(incarnation, read_entry_id(text))


def state(first: str | None, last: str, *, incarnation: str = "a", deleted: str = "0-0") -> StreamState:
    return StreamState(incarnation, first and read_entry_id(first), read_entry_id(last), read_entry_id(deleted))  # type: ignore[arg-type]


def test_an_offset_comes_back_as_it_went() -> None:
    positions = dict(START) | {3: at("2-17", "with:colon"), 15: at("1-0")}

    assert positions_of(offset_of(positions)) == positions
    assert positions_of({}) == START


@pytest.mark.parametrize("offset", [{"16": "a:1-1"}, {"x": "a:1-1"}, {"1": "1-1"}, {"1": "a:x"}])
def test_a_strange_offset_is_refused(offset: dict[str, str]) -> None:
    with pytest.raises(PipelineError):
        positions_of(offset)


@pytest.mark.parametrize(
    ("position", "now", "told"),
    [
        (Position(), state(None, "0-0", incarnation=""), None),
        # Trimmed before anybody read it: nobody had been promised it.
        (Position(), state("1-50", "1-90"), None),
        (at("1-5"), state("1-0", "1-9"), None),
        (at("1-5"), state("1-5", "1-9"), None),
        (at("1-5"), state("1-6", "1-9"), None),
        (at("1-5"), state("1-7", "1-9"), "before 1-7: they were trimmed"),
        (at("1-5"), state("2-0", "2-3"), None),
        (at("1-5"), state("2-1", "2-3"), "before 2-1: they were trimmed"),
        (at("1-5"), state(None, "1-5"), None),
        (at("1-5"), state(None, "1-9"), "up to 1-9: they were trimmed"),
        # A replica that had received less was promoted.
        (at("1-5"), state("1-0", "1-3"), None),
        (at("1-5"), state("1-0", "1-9", deleted="1-7"), "deleted by hand"),
        (at("1-5"), state("1-0", "1-9", deleted="1-4"), None),
        # Another program appended there, and the gateway removed that.
        (at("1-5"), state("1-0", "1-9", deleted="1796026852870-0"), None),
        (at("1-5"), state("1-7", "1-9", deleted="1796026852870-0"), "before 1-7: they were trimmed"),
        (at("1-5"), state("1-0", "1-9", incarnation="b"), "it is a new one"),
        (at("1-5"), state(None, "0-0", incarnation=""), "there is none now"),
    ],
)
def test_what_is_gone_is_told(position: Position, now: StreamState, told: str | None) -> None:
    gone = what_is_gone(position, now)

    assert (told or "") in (gone or "")
    assert (gone is None) == (told is None)


def test_all_that_is_gone_is_refused_at_once_with_what_to_do() -> None:
    positions = dict(START) | {1: at("1-5"), 2: at("1-5"), 3: at("1-5")}
    states = {1: state("1-9", "1-9"), 2: state("1-2", "1-9"), 3: state(None, "0-0", incarnation="")}

    with pytest.raises(NotReady) as caught:
        refuse_gaps(positions, states)

    told = str(caught.value)
    assert "stream 1 of the journal has lost" in told
    assert "stream 3 of the journal was emptied" in told
    assert "stream 2" not in told
    assert "--accept-loss" in told


Lengths = st.lists(st.integers(0, 6), min_size=1, max_size=3)


def entries_of(lengths: Sequence[int]) -> list[EntryId]:
    """A stream as the gateway writes it: in each generation the sequence counts from 0."""
    return [EntryId(generation, each) for generation, length in enumerate(lengths, 1) for each in range(length)]


def state_of(entries: Sequence[EntryId], trimmed: int) -> StreamState:
    left = entries[trimmed:]
    return StreamState("a", left[0] if left else None, entries[-1] if entries else BEGINNING)


@given(Lengths, st.data())
def test_whatever_is_trimmed_unread_is_seen(lengths: list[int], data: st.DataObject) -> None:
    entries = entries_of(lengths)
    read, trimmed = (data.draw(st.integers(0, len(entries))) for _ in range(2))
    position = Position("a", entries[read - 1]) if read else Position()
    gone = what_is_gone(position, state_of(entries, trimmed)) if read else None
    # What ends just where a generation ends cannot be told from ids; the numbers of the events tell it.
    at_the_seam = trimmed < len(entries) and entries[trimmed].sequence == 0

    if trimmed <= read or not read:
        assert gone is None
    elif not at_the_seam:
        assert gone is not None


@given(Lengths, st.data())
def test_after_a_loss_is_accepted_the_rest_is_read(lengths: list[int], data: st.DataObject) -> None:
    entries = entries_of(lengths)
    if not entries:
        return
    read, trimmed = data.draw(st.integers(1, len(entries))), data.draw(st.integers(0, len(entries)))
    now = state_of(entries, trimmed)
    behind = skip_gap(Position("a", entries[read - 1]), now)

    assert what_is_gone(behind, now) is None
    assert [each for each in entries[trimmed:] if each > behind.entry] == entries[max(trimmed, read) :]


def test_a_foreign_entry_is_no_place_to_go_on_behind() -> None:
    now = state("1-7", "1-9", deleted="1796026852870-0")
    behind = skip_gap(at("1-5"), now)

    assert behind == at("1-6")
    assert next_end(behind, now, EntryId(1, 7), None) == at("1-9")


def test_a_position_at_a_foreign_entry_is_none() -> None:
    """What bronze has of the rest it knows by the numbers of events."""
    assert positions_of({"3": "a:1796026852870-0", "4": "a:1048576-7"}) == dict(START) | {4: at("1048576-7")}


def test_after_an_emptied_grid_everything_is_read() -> None:
    assert skip_gap(at("7-7"), state("1-0", "1-3", incarnation="b")) == Position("b", BEGINNING)
    assert skip_gap(at("7-7"), state(None, "0-0", incarnation="")) == Position()


@given(Lengths, st.integers(1, 7))
def test_ranges_follow_each_other_and_end(lengths: list[int], limit: int) -> None:
    entries = entries_of(lengths)
    now, position, found = state_of(entries, 0), Position(), list[EntryId]()
    while (following := next((each for each in entries if each > position.entry), None)) is not None:
        end = next_end(position, now, following, limit)
        part = [each for each in entries if position.entry < each <= end.entry]
        assert 1 <= len(part) <= limit
        assert end.entry <= now.last
        found += part
        position = end

    assert found == entries
    assert next_end(position, now, None, limit) == position


@given(Lengths)
def test_without_a_limit_there_is_one_range(lengths: list[int]) -> None:
    entries = entries_of(lengths)

    if entries:
        assert next_end(Position(), state_of(entries, 0), entries[0], None).entry == entries[-1]


def test_a_target_is_not_passed() -> None:
    assert cap(at("1-2"), at("1-9"), at("1-5")) == at("1-5")
    assert cap(at("1-2"), at("1-4"), at("1-5")) == at("1-4")
    assert cap(at("1-7"), at("1-9"), at("1-5")) == at("1-7")
    assert cap(Position(), at("1-9"), Position()) == Position(), "a stream that came later waits"


def test_trimming_keeps_what_is_committed_last() -> None:
    assert trim_before(at("3-100"), 10) == EntryId(3, 91)
    assert trim_before(at("3-100"), 0) == EntryId(3, 101)
    assert trim_before(at("3-5"), 10) is None
