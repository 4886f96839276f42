"""What the account finds in what nodes tell of the clock of Redis."""

from __future__ import annotations

import pytest

from tests.chaos.account.clock import LASTS, Off, Told, judge_clock, judge_shifts, read_starts, read_told
from tests.chaos.account.forgotten import Forgotten
from tests.chaos.histories import line, promises

OFF = Off(10.0, 16.0, 40.0)
"""For 6 s the clock was 40 s ahead."""


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([(11.0, 40.2), (17.0, 0.1)], [], id="as it was"),
        pytest.param([(11.0, 40.2)], [], id="that it is right again need not be told, as metrics are compared"),
        pytest.param([], ["P7"], id="nobody has noticed"),
        pytest.param([(17.0, 0.0)], ["P7"], id="only the end was noticed"),
        pytest.param([(11.0, 40.2), (12.0, 80.4)], ["P7"], id="two nodes took the same step for two"),
        pytest.param([(11.0, -40.0)], ["P7", "P7"], id="in the wrong direction"),
        pytest.param([(5.0, 40.0), (11.0, 40.0)], ["P7"], id="before it happened"),
        pytest.param([(11.0, 40.0), (90.0, 0.0)], ["P7"], id="long after all was over"),
    ],
)
def test_nodes_tell_how_the_clock_was_set(told: list[tuple[float, float]], expected: list[str]) -> None:
    assert promises(judge_clock([Told(at, "n1", shift) for at, shift in told], [OFF])) == expected


def test_a_clock_that_was_hardly_off_may_be_missed() -> None:
    assert judge_clock([], [Off(10.0, 10.0 + LASTS / 2, 40.0)]) == []


def test_a_step_may_be_missed_if_nobody_was_there_before_it() -> None:
    for starts, expected in (
        ({"n1": [0.0], "n2": [0.0, 12.0]}, ["P7"]),
        ({"n1": [0.0, 8.0], "n2": [0.0, 12.0]}, []),
        ({"n1": [0.0, 40.0], "n2": [0.0, 12.0]}, ["P7"]),
    ):
        assert promises(judge_clock([], [OFF], starts=starts)) == expected


def test_the_time_of_the_grid_may_stay_off_by_a_step_whose_end_was_forgotten() -> None:
    later = Off(50.0, 56.0, -20.0)
    told = [Told(11.0, "n1", 40.0), Told(51.0, "n1", 20.0), Told(57.0, "n2", 40.0)]
    assert promises(judge_clock(told, [OFF, later], forgotten=[Forgotten(12.0, 18.0)])) == []
    assert promises(judge_clock(told, [OFF, later], forgotten=[Forgotten(2.0, 8.0)])) == ["P7", "P7", "P7"]
    for shifts, expected in (
        ({"n1": 40.1, "n2": 39.9}, []),
        ({"n1": 0.1, "n2": 0.0}, []),
        ({"n1": 40.1, "n2": 0.0, "n3": 40.0}, ["P7"]),
        ({"n1": 20.0, "n2": 20.0}, ["P7", "P7"]),
    ):
        assert promises(judge_shifts(99.0, shifts, [0.0, 40.0])) == expected


def test_starts_of_nodes_are_read_from_their_logs() -> None:
    lines = [
        line("node_started", 101.0, "info"),
        line("revocations_read", 102.0, "info"),
        line("grid_unreachable", 104.0),
        line("revocations_read", 105.0, "info"),
        line("node_started", 107.0, "info"),
        line("grid_unreachable", 108.0),
        line("revocations_read", 120.0, "info"),
    ]
    assert read_starts(lines, began=100.0) == [1.0, 2.0, 7.0, 20.0], "and of when they saw a clock first"


def test_who_has_seen_only_the_wrong_clock_may_take_it_for_right() -> None:
    """Found: all nodes were started while the grid was away, and reached it when its clock was off already."""
    told = [Told(17.0, "n1", -40.0)]
    assert promises(judge_clock(told, [OFF], starts={"n1": [0.0, 12.0], "n2": [0.0, 13.0]})) == []
    assert promises(judge_clock(told, [OFF], starts={"n1": [0.0, 12.0], "n2": [0.0]})) == ["P7", "P7"]


def test_at_the_end_every_node_finds_the_clock_right() -> None:
    assert promises(judge_shifts(50.0, {"n1": 0.4, "n2": 40.0, "n3": -1.0})) == ["P7"]


def test_what_nodes_tell_of_the_clock_is_read_from_their_logs() -> None:
    lines = [
        line("grid_clock_stepped", 103.0, "warning", seconds=40.0, shift_seconds=40.5),
        line("grid_unreachable", 104.0),
    ]
    assert read_told("n1", lines, began=100.0) == [Told(3.0, "n1", 40.5)]
