"""Whatever stands in the journal, Arrow's reader and the one that goes line by line make the same rows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.journal import FIELDS, FieldKind, write_records
from pipeline.generate import Scale, events_table, records, slices
from pipeline.source import parsing
from pipeline.source.offsets import EntryId
from pipeline.source.parsing import Entry, lines_of
from pipeline.source.records import ARROW, LAST_INSTANT, LONGEST_ID, MOST, MOST_OF, rows_of, table_of

GOOD: Final[Mapping[str, Any]] = {
    "version": 3, "id": "i-5", "type": "session_opened", "at": 1_700_000_000_123_456, "node": "n1", "incarnation": "i",
    "release": "1.0", "session": "s", "epoch": 3, "names": ["a", "ü"], "lost_writes": True, "cpu_ms": 7,
}  # fmt: skip


def one(*lines: bytes, sequence: int = 0, count: int | None = None) -> Entry:
    number = len(lines) if count is None else count
    return EntryId(1, sequence), {b"events": b"\n".join(lines), b"count": str(number).encode()}


def line_by_line(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    rows = [row for each in entries for row in rows_of(*each)]
    return table_of(rows, 3, "J").to_pylist()


def assert_same(entries: Sequence[Entry]) -> None:
    found = lines_of(entries, 3, "J")
    assert found.schema == ARROW
    assert found.to_pylist() == line_by_line(entries)


def changed(**told: Any) -> bytes:
    return orjson.dumps({**GOOD, **told})


STRANGE: Final = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b"x",
    b"\xff",
    b"\xef\xbb\xbf" + changed(),
    changed() + changed(),
    changed() + b",",
    changed() + b"\r",
    b" " + changed(),
    changed() + b" ",
    changed().replace(b'"n1"', b'"n\\ud800"'),
    changed().replace(b'"n1"', b'"n\xff"'),
    changed().replace(b'"n1"', b'"\\u0000\\ud83d\\ude00"'),
    changed().replace(b'"n1"', b'"a\tb"'),
    changed().replace(b'"epoch":3', b'"epoch":3,"epoch":4'),
    changed().replace(b'"epoch":3', b'"epoch":-0'),
    changed().replace(b'"epoch":3', b'"epoch":3.0'),
    changed().replace(b'"epoch":3', b'"epoch":3e2'),
    changed().replace(b'"epoch":3', b'"epoch":9223372036854775808'),
    changed().replace(b'"epoch":3', b'"epoch":9223372036854775807'),
    changed().replace(b'"epoch":3', b'"epoch":NaN'),
    changed(epoch="3"),
    changed(epoch=True),
    changed(epoch=None),
    changed(node=None),
    changed(node=1),
    changed(names=[]),
    changed(names=["a", None]),
    changed(names=["a", 1]),
    changed(names="a"),
    changed(names=None),
    changed(names=[["a"]]),
    changed(lost_writes=0),
    changed(lost_writes=None),
    changed(id="j-5"),
    changed(id="i5"),
    changed(id="i-"),
    changed(id="i-x"),
    changed(id="-5"),
    changed(id="i-٣"),
    changed(id=f"i-{'9' * 18}"),
    changed(id=f"i-{'9' * 19}"),
    changed(id="a-b-7", incarnation="a-b"),
    changed(id="i\n-5", incarnation="i\n"),
    changed(id="ï-5", incarnation="ï"),
    changed(id=f"{'i' * LONGEST_ID}-5", incarnation="i" * LONGEST_ID),
    changed(session=""),
    changed(session=None),
    changed(at=-1),
    changed(at=LAST_INSTANT),
    changed(at=LAST_INSTANT - 1),
    changed(at=0),
    changed(since=1 << 62),
    changed(lost=MOST),
    changed(lost=MOST - 1),
    changed(lost=-MOST),
    changed(lost=1 - MOST),
    changed(cpu_ms=-1),
    *(changed(**{name: number}) for name, most in MOST_OF.items() for number in (most, most - 1)),
    changed(unknown=1),
    changed(other="x"),
    changed(entry="x"),
    changed(stream=1),
    changed(text=None),
    changed(deep={"a": [[[]]]}),
    b"[" * 100_000,
    b'{"id":' + b"[" * 100_000,
    b'{"x":' * 50_000,
]


@pytest.mark.parametrize("line", STRANGE, ids=range(len(STRANGE)))
def test_a_strange_line_is_what_it_is_line_by_line(line: bytes) -> None:
    assert_same([one(line)])
    assert_same([one(changed(id="i-6"), line, changed(id="i-7"))])
    assert_same([one(changed(id="i-6")), one(line, sequence=1), one(changed(id="i-7"), sequence=2)])


@pytest.mark.parametrize(
    "entry",
    [
        (EntryId(1, 1), {}),
        (EntryId(1, 1), {b"count": b"1"}),
        (EntryId(1, 1), {b"events": changed()}),
        (EntryId(1, 1), {b"events": changed(), b"count": b"2"}),
        (EntryId(1, 1), {b"events": changed(), b"count": b"01"}),
        (EntryId(1, 1), {b"events": changed() + b"\n", b"count": b"2"}),
        (EntryId(1, 1), {b"events": b"", b"count": b"1"}),
        (EntryId(1, 1), {b"evil": b"x"}),
    ],
    ids=range(8),
)
def test_a_strange_entry_is_what_it_is_line_by_line(entry: Entry) -> None:
    assert_same([entry])
    assert_same([one(changed(id="i-6")), entry, one(changed(id="i-7"), sequence=2)])


_VALUES: Final[Mapping[FieldKind, st.SearchStrategy[Any]]] = {
    FieldKind.TEXT: st.text(max_size=5),
    FieldKind.NUMBER: st.integers(-5, 5) | st.integers(-(1 << 64), 1 << 64),
    FieldKind.FLAG: st.booleans(),
    FieldKind.TEXTS: st.lists(st.text(max_size=3), max_size=3),
    FieldKind.INSTANT: st.integers(0, LAST_INSTANT - 1) | st.integers(-(1 << 63), (1 << 63) - 1),
}
_ANY: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3) | st.just([[]])
)


@st.composite
def told(draw: st.DrawFn) -> bytes:
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=6))
    line = dict(GOOD) | {name: draw(_VALUES[FIELDS[name].kind]) for name in names}
    if draw(st.integers(0, 9)) == 0:
        line[draw(st.sampled_from(sorted(FIELDS)) | st.text(max_size=4))] = draw(_ANY)
    try:
        return orjson.dumps(line)
    except TypeError:  # a whole number of more than 64 bits
        return b'{"version":' + b"9" * 20 + b"}"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(told() | st.sampled_from(STRANGE[:40]), min_size=1, max_size=4), min_size=1, max_size=4))
@example([[changed(), b""], [changed() + changed()]])
@example([[changed()[:-1], b"}"]])
def test_whatever_the_lines_say(entries: list[list[bytes]]) -> None:
    assert_same([one(*lines, sequence=number) for number, lines in enumerate(entries)])


def test_what_nodes_write_is_read_by_arrow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = Scale(events=3_000, seed=3, hours=2)
    lines = [each for part in slices(scale) for each in records(events_table(part, 3))]
    entries = [one(*write_records(lines[at : at + 50]).split(b"\n"), sequence=at) for at in range(0, len(lines), 50)]
    expected = line_by_line(entries)
    monkeypatch.setattr(parsing, "rows_of", None)
    assert lines_of(entries, 3, "J").to_pylist() == expected
