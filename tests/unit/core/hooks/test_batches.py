"""Requests: what is in them, how large they are, and which cursors they move."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from gateway.core.hooks.batches import Batch, batches
from gateway.core.hooks.cloud_events import body_of
from gateway.core.hooks.cursor import Cursor, Entry, Page
from gateway.core.hooks.hook import Hook, HookName
from gateway.core.journal import write_records

HOOK = Hook(name=HookName("crm"), url="https://x/", events=frozenset({"session_opened"}), keys=(b"k",))


def page(partition: int, *types: str, passed: int = 0, first: int = 1, size: int = 0) -> Page:
    """Make what one entry of a stream holds, behind as many events as *passed*."""
    records = [
        {
            "version": 3,
            "id": f"run{partition}-{first + number}",
            "type": kind,
            "at": first + number,
            "node": "n1",
            "incarnation": f"run{partition}",
            "release": "0",
            "client": "x" * size,
        }
        for number, kind in enumerate(types)
    ]
    total = first - 1 + len(types)
    entry = Entry((1, 5), write_records(records), len(types), total)
    return Page(partition, "a", Cursor("a", (1, 1), passed=passed), (entry,), total)


def made(*pages: Page, hook: Hook = HOOK, most: int = 100) -> list[Batch]:
    return list(batches(hook, pages, most=most, now=1000.0))


def test_streams_go_together_and_what_nobody_wants_moves_cursors_alone() -> None:
    (batch,) = made(page(0, "session_opened", "session_closed"), page(3, "session_closed"), page(4, "session_opened"))
    assert batch.ids == ["run0-1", "run4-1"]
    assert batch.oldest == 1
    assert {partition: cursor.passed for partition, cursor in batch.moves.items()} == {0: 2, 3: 1, 4: 1}
    (nothing,) = made(page(3, "session_closed"))
    assert (nothing.events, nothing.oldest, set(nothing.moves)) == ([], None, {3})
    assert made() == []


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (5, [5])])
def test_requests_have_so_many_events_at_most(most: int, sizes: list[int]) -> None:
    found = made(page(0, *["session_opened"] * 3), page(1, *["session_opened"] * 2), most=most)
    assert [len(each.events) for each in found] == sizes
    # The cursor of a request is behind its own events, and behind no other.
    assert found[0].moves[0].passed == min(most, 3)


def test_requests_are_so_large_at_most_unless_one_event_is_larger() -> None:
    small = replace(HOOK, batch_bytes=2000)
    found = made(page(0, *["session_opened"] * 9, size=500), hook=small)
    assert all(len(body_of(each.events)) <= 2002 for each in found)
    assert sum(len(each.events) for each in found) == 9
    assert len(made(page(0, "session_opened", "session_opened", size=5000), hook=small)) == 2


def test_a_gap_is_told_before_what_follows_it() -> None:
    (batch,) = made(page(0, "session_opened", passed=3, first=10))
    kinds = [each["type"] for each in orjson.loads(body_of(batch.events))]
    assert kinds == ["gap", "session_opened"]
    assert [each.count for each in batch.gaps] == [6]
