"""Lines of the journal as rows: every line is one, whatever is in it, and columns hold what was told."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.journal import write_records
from pipeline.source.offsets import EntryId
from pipeline.source.records import ARROW, LAST_INSTANT, LONGEST_TEXT, MOST, MOST_OF, NO_LINE, rows_of, table_of

ENTRY = EntryId(1, 7)
GOOD: dict[str, Any] = {
    "version": 1, "id": "i-5", "type": "session_opened", "at": 1_700_000_000_123_456, "node": "n1", "incarnation": "i",
    "release": "1.0", "session": "s", "epoch": 3, "names": None,
}  # fmt: skip


def rows(*lines: bytes, count: int | None = None) -> list[dict[str, Any]]:
    return rows_of(
        ENTRY, {b"events": b"\n".join(lines), b"count": str(len(lines) if count is None else count).encode()}
    )


def test_an_event_is_a_row_with_its_place() -> None:
    (row,) = rows(write_records([GOOD]))

    (found,) = table_of([row], 4, "J").to_pylist()

    assert {name: found[name] for name in ("stream", "entry", "line", "journal", "number")} == {
        "stream": 4, "entry": "1-7", "line": 0, "journal": "J", "number": 5,
    }  # fmt: skip
    assert (found["id"], found["epoch"], found["rejection"]) == ("i-5", 3, None)
    assert found["at"].timestamp() == 1_700_000_000.123456


def test_what_is_not_known_is_kept() -> None:
    newer = GOOD | {"version": 2, "zone": "west", "also": [1, {"x": None}]}

    (row,) = rows(orjson.dumps(newer))

    assert orjson.loads(row["other"]) == {"zone": "west", "also": [1, {"x": None}]}
    assert table_of([row], 1, "J").schema == ARROW


def test_a_bad_line_does_no_harm_to_the_others() -> None:
    lines = [
        orjson.dumps(GOOD),
        b'{"version":',
        orjson.dumps(GOOD | {"id": "i-6"}),
        b"",
        orjson.dumps(GOOD | {"at": "x"}),
    ]

    found = rows(*lines)

    assert [row.get("id") for row in found] == ["i-5", None, "i-6", None, None]
    assert [row["line"] for row in found] == [0, 1, 2, 3, 4]
    assert "not JSON" in found[1]["rejection"]
    assert found[1]["text"] == lines[1]
    assert "'at' is no instant" in found[4]["rejection"]


def test_times_that_no_table_can_hold_are_rejected() -> None:
    for name, instant in (("at", -1), ("at", LAST_INSTANT), ("since", 1 << 62)):
        (row,) = rows(orjson.dumps(GOOD | {name: instant}))

        assert f"{name!r} is no time" in row["rejection"]


def test_what_no_node_can_mean_is_rejected_and_stops_nobody() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"lost": MOST}, "'lost' is a number that cannot be"),
        ({"window_ms": -(1 << 62)}, "'window_ms' is a number that cannot be"),
        ({"cpu_ms": 1 << 39}, "'cpu_ms' is a number that cannot be"),
        ({"deliveries": 1 << 39}, "'deliveries' is a number that cannot be"),
        ({"publishes": -1}, "'publishes' is a number that cannot be"),
        ({"session": ""}, "'session' is empty"),
        ({"id": f"i-{1 << 64}"}, "is no id of an event"),
        ({"id": f"i-{'9' * 5_000}"}, "is no id of an event"),
    ]
    for told, reason in wrong:
        (row,) = found = rows(orjson.dumps(GOOD | told))

        assert reason in row["rejection"]
        assert len(table_of(found, 0, "J")) == 1
    (row,) = rows(orjson.dumps(GOOD | {"lost": MOST - 1, "unknown": 1 << 62}))
    assert row["lost"] == MOST - 1


def test_costs_of_what_is_taken_in_can_be_computed_in_64_bits() -> None:
    most = {"cpu_ms": MOST_OF["cpu_ms"] - 1, "deliveries": MOST_OF["deliveries"] - 1}
    (row,) = rows(orjson.dumps(GOOD | most))
    assert row["cpu_ms"] * 1_000 * row["deliveries"] < 1 << 63


def test_an_entry_that_lacks_lines_is_told() -> None:
    found = rows(orjson.dumps(GOOD), count=3)

    assert [row["line"] for row in found] == [0, NO_LINE]
    assert "has 1 lines of b'3'" in found[1]["rejection"]


def test_an_entry_without_events_is_told() -> None:
    (row,) = rows_of(ENTRY, {b"evil": b"x" * 10})

    assert (row["line"], row["rejection"], row["text"]) == (NO_LINE, "the entry has no field 'events'", b"evil")


@given(st.lists(st.binary(max_size=80) | st.just(orjson.dumps(GOOD)), min_size=1, max_size=5))
def test_every_line_is_a_row(lines: list[bytes]) -> None:
    text = b"\n".join(lines)
    expected = text.count(b"\n") + 1

    found = rows_of(ENTRY, {b"events": text, b"count": str(expected).encode()})

    assert [row["line"] for row in found] == list(range(expected))
    assert len(table_of(found, 0, "J")) == expected


def test_what_is_kept_of_a_bad_line_is_bounded() -> None:
    (row,) = rows(b"x" * (LONGEST_TEXT + 1))

    assert len(row["text"]) == LONGEST_TEXT
