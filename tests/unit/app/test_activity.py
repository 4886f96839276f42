"""What happened to sessions: counted, told once, and never more than fits a report."""

from __future__ import annotations

import pytest

from gateway.adapters.memory import MemoryEventLog
from gateway.app.operations.activity import COLUMNS, INTERVAL, KEPT, KEPT_SECONDS, RECENT, Activity
from gateway.app.operations.reports import read_columns, read_happenings
from gateway.catalogue import log_events as events


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def resumed(activity: Activity, session: str, outcome: str = "reattached", *, replayed: bool | None = None) -> None:
    told = {"session": session, "outcome": outcome, "reason": None, "replayed": replayed, "previous": "n2/1"}
    activity.emit(events.SESSION_RESUMED, **told)


def test_every_event_goes_on_to_the_log() -> None:
    log = MemoryEventLog()
    activity = Activity(log, wall=Clock())
    activity.emit(events.SESSION_OPENED, session="s", principal="alice")
    activity.emit(events.LEASE_LOST, node="n1")
    assert [event for event, _ in log.events] == [events.SESSION_OPENED, events.LEASE_LOST]
    assert not log.undeclared


def test_it_counts_since_the_start() -> None:
    activity = Activity(MemoryEventLog(), wall=Clock())
    activity.emit(events.SESSION_OPENED, session="s", principal="alice")
    resumed(activity, "s")
    resumed(activity, "s", "failed_over")
    activity.emit(events.RESUME_REFUSED, reason="token_expired", address="192.0.2.1")
    activity.emit(events.SLOW_CONSUMER_CLOSED, session="s", packets=1, bytes=2)
    activity.emit(events.SESSION_ENDED, session="s", reason="closed")
    assert activity.opened == 1
    assert activity.resumes == {"reattached": 1, "failed_over": 1, "refused": 1}
    assert activity.slow_closes == 1
    assert activity.ended == {"closed": 1}


def test_what_happened_is_taken_once_and_without_principals() -> None:
    activity = Activity(MemoryEventLog(), wall=Clock())
    activity.emit(events.SESSION_OPENED, session="s", principal="alice")
    resumed(activity, "s", "failed_over", replayed=True)
    resumed(activity, "s", "failed_over", replayed=False)
    resumed(activity, "s")
    happenings, more = activity.take()
    assert [tuple(each) for each in happenings] == [
        (1_000_000.0, "opened", "s", None, None),
        (1_000_000.0, "resumed", "s", "failed_over", True),
        (1_000_000.0, "resumed", "s", "failed_over", False),
        (1_000_000.0, "resumed", "s", "reattached", None),
    ]
    assert more == 0
    assert activity.take() == ([], 0)


def test_a_storm_is_told_by_its_end_and_its_size() -> None:
    activity = Activity(MemoryEventLog(), wall=Clock())
    for number in range(RECENT + 7):
        resumed(activity, f"s{number}")
    happenings, more = activity.take()
    assert [each.session for each in happenings] == [f"s{number}" for number in range(7, RECENT + 7)]
    assert more == 7


def test_columns_are_of_whole_intervals_and_bounded() -> None:
    clock = Clock()
    activity = Activity(MemoryEventLog(), wall=clock)
    for _ in range(COLUMNS + 3):
        resumed(activity, "s")
        resumed(activity, "s")
        clock.now += INTERVAL
    history = activity.history()
    assert len(history) == COLUMNS
    assert [each.begins % INTERVAL for each in history] == [0.0] * COLUMNS
    assert all(each.counts == {"reattached": 2} for each in history)


def test_what_happened_lately_is_remembered_for_who_comes_later() -> None:
    clock = Clock()
    activity = Activity(MemoryEventLog(), wall=clock)
    resumed(activity, "old")
    clock.now += KEPT_SECONDS
    for number in range(KEPT + 5):
        resumed(activity, str(number))
    activity.take()
    recent = activity.recent()
    assert [each.session for each in recent] == [str(number) for number in range(5, KEPT + 5)]
    clock.now += KEPT_SECONDS + 1
    assert activity.recent() == []


def test_a_run_goes_on_with_what_the_one_before_told() -> None:
    clock = Clock()
    before = Activity(MemoryEventLog(), wall=clock)
    resumed(before, "too-old")
    clock.now += KEPT_SECONDS
    clock.now += INTERVAL
    resumed(before, "a", "failed_over")
    clock.now += INTERVAL
    resumed(before, "b")
    after = Activity(MemoryEventLog(), wall=clock)
    resumed(after, "c", "failed_over")

    after.restore(before.history(), before.recent())

    assert [each.session for each in after.recent()] == ["a", "b", "c"]
    assert [each.counts for each in after.history()] == [{"failed_over": 1}, {"reattached": 1, "failed_over": 1}]
    resumed(after, "d", "failed_over")
    assert after.history()[-1].counts == {"reattached": 1, "failed_over": 2}, "the same interval goes on"
    assert after.resumes == {"failed_over": 2}, "what is counted since the start is this run's"
    assert after.take()[1] == 0, "what was told by the one before is not told as news"
    assert after.happened == 4


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"rungs": 1, "columns": [[1]]}', b'{"happenings": [{"at": 1}]}', b"7"]
)
def test_what_a_run_of_another_version_told_in_another_way_is_left_alone(text: bytes) -> None:
    assert read_columns(text) == []
    assert read_happenings(text) == []
