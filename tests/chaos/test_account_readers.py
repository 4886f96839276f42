"""What the account finds in what readers of history were handed."""

from __future__ import annotations

import pytest

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.publishes import Publishes
from tests.chaos.account.readers import Reader, Readers
from tests.chaos.histories import promises

FIRST = "5-1-"
"""Begins the ids of events of the first generation; ``LATER`` of the second."""
LATER = "5-2-"
FORGOT = Forgotten(2.5, 5.0)


def published(*events: str) -> Publishes:
    """Somebody publishes 1, 2, …, and is told these events, a second each."""
    publishes = Publishes()
    for number, event in enumerate(events, 1):
        publishes.ask(number - 0.5, "c0/a", "s")
        publishes.acknowledge(float(number), "c0/a", number, number, event)
    return publishes


def handed(*events: tuple[int, str], gap_at: int = 0) -> Readers:
    """A reader was handed these values and events, one of them behind a gap."""
    readers = Readers()
    reader = Reader("reader-0", "c0/**")
    readers.all.append(reader)
    for at, (value, event) in enumerate(events, 10):
        reader.read(float(at), "c0/a", value, event, gap=value == gap_at)
    return readers


THREE = published(FIRST + "1", FIRST + "2", FIRST + "3")


@pytest.mark.parametrize(
    ("values", "gap_at", "expected"),
    [
        pytest.param([1, 2, 3], 0, [], id="all"),
        pytest.param([1, 2], 0, [], id="not yet all"),
        pytest.param([1, 3], 0, ["P14"], id="one is missing"),
        pytest.param([2, 3], 0, ["P14"], id="the earliest is missing"),
        pytest.param([1, 2, 2, 3], 0, ["P14"], id="one came twice"),
        pytest.param([1, 3, 2], 0, ["P14", "P14"], id="in another order"),
        pytest.param([1, 2, 3], 3, ["P14"], id="a gap where there is none"),
    ],
)
def test_each_event_comes_once_and_in_order(values: list[int], gap_at: int, expected: list[str]) -> None:
    readers = handed(*((value, f"{FIRST}{value}") for value in values), gap_at=gap_at)
    readers.judge(THREE, [])
    assert promises(readers.violations) == expected


def test_an_id_names_one_event() -> None:
    readers = handed((1, FIRST + "1"), (3, FIRST + "2"))
    readers.judge(THREE, [])
    assert promises(readers.violations) == ["P14"]


def test_what_the_grid_lost_need_not_be_told_as_a_gap() -> None:
    publishes = published(FIRST + "1", FIRST + "2", LATER + "1")
    readers = handed((1, FIRST + "1"), (3, LATER + "1"))
    readers.judge(publishes, [FORGOT])
    assert readers.violations == []
    readers.judge(publishes, [])
    assert promises(readers.violations) == ["P14"]


def test_what_was_put_back_around_it_does_not_make_it_missed() -> None:
    readers = handed((1, FIRST + "1"), (3, FIRST + "3"))
    readers.judge(THREE, [FORGOT])
    assert readers.violations == []


def test_what_was_published_after_the_loss_is_missed() -> None:
    readers = handed((1, FIRST + "1"), (3, FIRST + "3"))
    readers.judge(THREE, [Forgotten(0.1, 0.9)])
    assert promises(readers.violations) == ["P14"]


def test_what_was_young_enough_to_be_kept_is_missed() -> None:
    publishes = published(FIRST + "1", FIRST + "2", LATER + "1")
    readers = handed((1, FIRST + "1"), (3, LATER + "1"))
    readers.judge(publishes, [Forgotten(12.0, 13.0, kept=11.0)])
    assert promises(readers.violations) == ["P14"]


def test_a_reader_that_stands_still_is_behind() -> None:
    (reader,) = handed((1, FIRST + "1")).all
    assert reader.behind({"c0/a": (1, 1), "c1/b": (9, 9)}, THREE, []) == []
    assert reader.behind({"c0/a": (3, 3)}, THREE, [Forgotten(20.0, 21.0)]) != []
    assert reader.behind({"c0/a": (3, 3)}, THREE, [Forgotten(1.0, 2.0)]) != []


def test_what_was_lost_before_a_reader_was_handed_it_may_be_put_back_as_a_value_alone() -> None:
    (reader,) = handed((1, FIRST + "1")).all
    assert reader.behind({"c0/a": (3, 3)}, THREE, [FORGOT]) == []


def test_a_value_that_was_put_back_behind_a_reader_is_none_of_its_events() -> None:
    (reader,) = handed((1, FIRST + "1"), (3, FIRST + "3")).all
    assert reader.behind({"c0/a": (2, 2)}, THREE, [Forgotten(20.0, 21.0)]) == []
    assert reader.behind({"c0/a": (2, 2)}, THREE, []) != []
