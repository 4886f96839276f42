"""Bytes that all nodes share: bounded for everybody and for each, with room for who holds little."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.shared_bytes import TOLD_SHARE, Exceeded, HeldBytes, SharedBytes

pytestmark = pytest.mark.promise("P20")

MOST = 1_000
MOST_OF_ONE = 500


def test_one_principal_is_bounded_and_less_is_always_allowed() -> None:
    held = SharedBytes(MOST, MOST_OF_ONE)
    held.add("a", 500)
    assert held.exceeded("a", 1) is Exceeded.ONE
    assert held.exceeded("a", 0) is held.exceeded("a", -5) is None
    assert held.exceeded("b", 100) is None
    held.add("a", -1)
    assert held.exceeded("a", 1) is None


def test_nobody_gets_more_than_is_left_for_all_others() -> None:
    held = SharedBytes(MOST, 0)
    left = MOST
    for number in range(6):
        assert held.exceeded(f"p{number}", left // 2 + 1) is Exceeded.ALL, "not its own doing"
        most = next(size for size in range(MOST, 0, -1) if held.exceeded(f"p{number}", size) is None)
        assert most == left // 2
        held.add(f"p{number}", most)
        assert held.exceeded(f"p{number}", 1) is Exceeded.SHARE
        left -= most
    assert left > 10
    assert held.exceeded("late", 5) is None
    assert held.exceeded("late", left + 1) is Exceeded.ALL


def test_without_bounds_nothing_is_exceeded() -> None:
    held = SharedBytes(0, 0)
    assert not held.bounded
    held.add("a", 10**12)
    assert held.exceeded("a", 10**12) is None


def test_what_goes_away_leaves_nothing_behind() -> None:
    held = SharedBytes(MOST, MOST_OF_ONE)
    held.add("a", 300)
    assert held.report() == HeldBytes(300, {"a": 300})
    held.add("a", -300)
    assert held.report() == HeldBytes(0, {})


def test_what_other_nodes_tell_counts() -> None:
    """Whoever spreads over nodes, or moves what it has to another one and begins anew, has no more for it."""
    here, there = SharedBytes(MOST, MOST_OF_ONE), SharedBytes(MOST, MOST_OF_ONE)
    there.add("a", 450)
    here.told([there.report()])
    assert here.held_by("a") == 450
    assert here.exceeded("a", 51) is Exceeded.ONE
    assert here.exceeded("a", 50) is None
    here.add("b", 200)
    assert here.exceeded("c", 400) is Exceeded.ALL
    assert here.exceeded("c", 170) is None
    here.told([])
    assert here.exceeded("a", 400) is None, "a node that is gone has told nothing"


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), max_size=300))
def test_reports_are_bounded_and_no_bound_is_passed(asked: list[tuple[int, int]]) -> None:
    held = SharedBytes(MOST, MOST_OF_ONE)
    for principal, size in asked:
        if held.exceeded(str(principal), size) is None:
            held.add(str(principal), size)
    assert held.total <= MOST
    report = held.report()
    assert len(report.large) <= TOLD_SHARE * MOST / MOST_OF_ONE * 2
    assert all(each <= MOST_OF_ONE for each in report.large.values())
