"""What the account finds in publishes: histories with and without each violation."""

from __future__ import annotations

import pytest

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.publishes import Entry, Publishes, Snapshot
from tests.chaos.histories import SECOND, log, promises


def published(*values: int, version: int = 0) -> Publishes:
    """Somebody asked for 1, 2, … up to the last of *values*, a second each, and these were acknowledged."""
    account = Publishes()
    for value in range(1, max(values) + 1):
        assert account.ask(float(value), "t/1", "s") == value
        if value in values:
            account.acknowledge(value + 0.5, "t/1", value, version + value, f"e{value}")
    return account


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([(1, 1), (2, 2), (3, 3)], [], id="as told"),
        pytest.param([(1, 1), (3, 3)], ["P5"], id="an acknowledged one is missing"),
        pytest.param([(1, 1), (2, 2), (3, 3), (3, 4)], ["P5"], id="one is there twice"),
        pytest.param([(1, 1), (2, 4), (3, 5)], ["P5", "P5"], id="other versions than told"),
        pytest.param([(2, 2), (1, 1), (3, 3)], ["P6"], id="in another order"),
        pytest.param([(1, 1), (2, 2), (3, 3), (7, 7)], ["P5"], id="more than was asked for"),
    ],
)
def test_the_log_has_what_was_acknowledged(entries: list[tuple[int, int]], expected: list[str]) -> None:
    account = published(1, 2, 3)
    assert account.judge_log(log(*entries)) == []
    assert promises(account.violations) == expected


def test_what_was_put_back_is_known_by_its_event() -> None:
    account = published(1, 2)
    back = Entry("e2", SECOND, 2)
    account.judge_log(Snapshot(100.0, 2, {"t/1": [Entry("e1", 1, 1), Entry("e2", 2, 2), back]}))
    account.judge_log(Snapshot(100.0, 2, {"t/1": [Entry("e1", 1, 1), back]}))
    assert account.violations == []


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    for entries in ([(1, 1), (3, 3)], [(1, 1), (2, 2), (3, 3)]):
        account = published(1, 3)
        account.judge_log(log(*entries))
        assert account.violations == []


def test_what_was_acknowledged_after_the_reading_began_may_be_missing() -> None:
    account = published(1, 2, 3)
    account.judge_log(log((1, 1), at=2.0))
    assert account.violations == []


def test_a_topic_that_nobody_publishes_to_is_found() -> None:
    account = Publishes()
    account.judge_log(log((1, 1)))
    assert promises(account.violations) == ["P5"]


def test_what_an_older_generation_has_lost_is_told_to_be_declared() -> None:
    account = published(1, 2)
    lost = account.judge_log(log((1, 1), generation=2))
    assert [(each.value, each.generation, each.session) for each in lost] == [(2, 1, "s")]
    assert account.violations == []


def test_a_publish_is_repeated_only_if_the_grid_forgot_it_before_it_was_acknowledged() -> None:
    twice = log((1, 1), (1, SECOND + 1), generation=2)
    for forgotten, expected in (((1.2, 1.3), []), ((2.0, 3.0), ["P5"]), ((0.0, 0.5), ["P5"])):
        account = published(1)
        account.acknowledge(1.5, "t/1", 1, SECOND + 1, f"e1-{SECOND + 1}")
        account.forgotten.append(Forgotten(*forgotten))
        account.judge_log(twice)
        assert promises(account.violations) == expected


def test_receipts_rise_and_have_events_of_their_own() -> None:
    account = published(1, 2, 3)
    account.acknowledge(3.5, "t/1", 3, 2, "e1")
    account.judge_receipts()
    assert promises(account.violations) == ["P6", "P5"]
