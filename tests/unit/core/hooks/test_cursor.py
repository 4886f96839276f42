"""What a hook finds behind its cursor: records, gaps, and lines that are none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.hooks.cursor import BEGINNING, Cursor, Entry, Gap, Page, follow, read_cursor
from gateway.core.journal import write_records


def entry(sequence: int, *numbers: int, generation: int = 1, total: int | None = -1) -> Entry:
    """Make an entry; its total is the last number, unless another one is given."""
    records = [
        {"version": 3, "id": f"a-{each}", "type": "t", "at": 1, "node": "n", "incarnation": "a", "release": "0"}
        for each in numbers
    ]
    of_it = numbers[-1] if total == -1 else total
    return Entry((generation, sequence), write_records(records), len(numbers), of_it)


def page(cursor: Cursor, *entries: Entry, incarnation: str = "x", total: int = 0) -> Page:
    return Page(0, incarnation, cursor, entries, total)


def found(page: Page) -> list[int | tuple[str, int | None]]:
    result: list[int | tuple[str, int | None]] = []
    for what, _ in follow(page):
        if isinstance(what, Gap):
            result.append((what.reason.value, what.count))
        elif what is not None:
            result.append(int(what["id"][2:]))
    return result


@pytest.mark.parametrize("cursor", [Cursor("x"), Cursor("x", (2, 17)), Cursor("x", (2, 17), done=3, passed=9)])
def test_a_cursor_is_read_as_it_was_written(cursor: Cursor) -> None:
    assert read_cursor("x", cursor.text, cursor.passed) == cursor


@pytest.mark.parametrize("text", ["", "1", "1-2-3", "a-b", "1-2.x"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"values to unpack|invalid literal"):
        read_cursor("x", text, 0)


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert list(follow(page(Cursor(""), incarnation=""))) == []
    assert list(follow(page(Cursor("x", (1, 1), passed=1)))) == []


def test_entries_follow_each_other() -> None:
    steps = list(follow(page(Cursor("x"), entry(1, 1, 2), entry(2, 3))))
    assert [each.behind for each in steps] == [
        Cursor("x", (1, 1), done=1, passed=1),
        Cursor("x", (1, 1), passed=2),
        Cursor("x", (1, 2), passed=3),
    ]


def test_an_entry_goes_on_where_it_was_left() -> None:
    left = Cursor("x", (1, 1), done=1, passed=1)
    assert found(page(left, entry(1, 1, 2), entry(2, 3))) == [2, 3]


def test_events_that_were_cut_are_counted_once() -> None:
    assert found(page(Cursor("x", (1, 1), passed=2), entry(5, 8, 9), entry(6, 10))) == [("retention", 5), 8, 9, 10]
    half = Cursor("x", (1, 1), done=1, passed=1)
    assert found(page(half, entry(5, 8))) == [("retention", 6), 8]


def test_a_stream_that_was_lost_is_read_from_its_beginning() -> None:
    assert found(page(Cursor("old", (1, 7), passed=9), entry(1, 1), entry(2, 2))) == [("journal_lost", None), 1, 2]
    assert found(page(Cursor("", BEGINNING), entry(1, 1))) == [1], "there was none before"
    assert found(page(Cursor("old", (1, 7), passed=9), entry(3, 5, 6))) == [
        ("journal_lost", None),
        ("retention", 4),
        5,
        6,
    ]


def test_another_generation_may_have_lost_the_last_ones_before_it() -> None:
    behind = Cursor("x", (1, 4), passed=4)
    assert found(page(behind, entry(0, 5, generation=2))) == [("grid_lost_writes", None), 5]
    assert found(page(Cursor("x"), entry(0, 1, generation=2))) == [1], "nothing was before"


def test_entries_of_an_older_release_have_no_total() -> None:
    steps = list(follow(page(Cursor("x", (1, 1), passed=5), entry(2, 6, 7, total=None), entry(3, 8, total=6))))
    assert [each.behind.passed for each in steps] == [6, 7, 6], "the total is right again by the next one"


def test_lines_that_are_no_records_are_passed() -> None:
    bad = Entry((1, 1), b"{}\nnonsense\n", 2, 2)
    steps = list(follow(page(Cursor("x"), bad, Entry((1, 2), b"", 0, 2), entry(3, 3))))
    assert [each.what is None for each in steps] == [True] * (len(steps) - 1) + [False]
    assert steps[-1].behind == Cursor("x", (1, 3), passed=3)


def test_how_many_are_behind() -> None:
    assert page(Cursor("x", (1, 1), passed=3), total=10).behind == 7
    assert page(Cursor("old", (1, 1), passed=3), total=10).behind == 10
    assert page(Cursor("x", (1, 1), passed=30), total=10).behind == 0


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    cut=st.integers(0, 8),
    start=st.integers(0, 32),
    takes=st.lists(st.integers(1, 5)),
)
def test_everything_is_found_once_or_counted_as_missing(
    sizes: Sequence[int], cut: int, start: int, takes: Sequence[int]
) -> None:
    """However the journal is cut, and wherever reading begins again."""
    entries, number = [], 0
    for sequence, size in enumerate(sizes, start=1):
        entries.append(entry(sequence, *range(number + 1, number + size + 1)))
        number += size
    # Somebody read up to *start* while all was there, in pieces.
    cursor, passed = Cursor("x"), 0
    for step in list(follow(page(cursor, *entries)))[: min(start, number)]:
        cursor, passed = step.behind, passed + 1
    left = entries[min(cut, len(entries)) :]
    seen: list[int] = []
    missing = 0
    pieces = [*takes, number]
    for take in pieces:
        behind = [each for each in left if each.id > cursor.entry or (each.id == cursor.entry and cursor.done)]
        for step in list(follow(page(cursor, *behind)))[:take]:
            if isinstance(step.what, Gap):
                # Told again if nothing behind it was taken.
                missing = step.what.count or 0
            elif step.what is not None:
                seen.append(int(step.what["id"][2:]))
            cursor = step.behind
    assert seen == sorted(set(seen))
    if seen:
        assert passed + missing + len(seen) == number
        assert seen[-1] == number
