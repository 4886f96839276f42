from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.admission import PACE_BURST, AdmissionQueue

RATE = 100.0
PATIENCE = 1.0


def queue() -> AdmissionQueue[str]:
    return AdmissionQueue(rate=RATE, patience=PATIENCE, longest=10.0)


def admitted(line: AdmissionQueue[str], until: float, *, since: float = 0.0, paced: bool = True) -> list[str]:
    """Let time pass as the shell does: look again when the queue says so."""
    now, found = since, []
    while now <= until:
        found += line.release(now, paced=paced, most=4)
        following = line.next(now, paced=paced)
        if following is None:
            break
        now += max(following, 1e-9)
    return found


def test_nobody_waits_for_nothing() -> None:
    line = queue()
    assert line.next(0.0, paced=True) is None
    assert line.arrive("a", 0.0, returning=False, paced=True) == 0
    assert line.release(0.0, paced=True, most=9) == ["a"]
    assert len(line) == 0


def test_the_pace_is_kept() -> None:
    line = queue()
    for number in range(50):
        assert line.arrive(str(number), 0.0, returning=False, paced=True) == 0
    assert 10 <= len(admitted(line, 0.1)) <= 10 + RATE * PACE_BURST + 1


def test_who_comes_back_goes_first() -> None:
    line = queue()
    for name in ("new-1", "new-2"):
        line.arrive(name, 0.0, returning=False, paced=True)
    for name in ("back-1", "back-2"):
        line.arrive(name, 0.0, returning=True, paced=True)
    assert admitted(line, 1.0) == ["back-1", "back-2", "new-1", "new-2"]


def test_without_a_pace_all_come_in_some_at_a_time() -> None:
    line = queue()
    for number in range(500):
        assert line.arrive(str(number), 0.0, returning=True, paced=False) == 0
    assert len(line.release(0.0, paced=False, most=16)) == 16
    assert line.next(0.0, paced=False) == 0


def test_more_than_can_be_served_in_time_are_told_one_after_the_other_when_to_come() -> None:
    line = queue()
    waits = [line.arrive(str(number), 0.0, returning=True, paced=True) for number in range(300)]
    assert waits[:100] == [0] * 100
    told = waits[100:]
    assert told[0] >= 1
    assert [later - sooner for sooner, later in pairwise(told)] == pytest.approx([1 / RATE] * 199)


def test_new_clients_are_told_before_returning_ones() -> None:
    line = queue()
    for number in range(60):
        assert line.arrive(f"new-{number}", 0.0, returning=False, paced=True) == 0
    for number in range(60):
        assert line.arrive(f"back-{number}", 0.0, returning=True, paced=True) == 0
    assert line.arrive("new", 0.0, returning=False, paced=True) > 0
    assert line.arrive("back", 0.0, returning=True, paced=True) == 0


def test_nobody_is_asked_to_come_back_later_than_the_longest() -> None:
    line = queue()
    waits = [line.arrive(str(number), 0.0, returning=True, paced=True) for number in range(5000)]
    assert max(waits) == 10


def test_patience_ends() -> None:
    line = queue()
    line.arrive("new", 0.0, returning=False, paced=True)
    line.arrive("back", 0.5, returning=True, paced=True)
    assert line.expired(0.9) == []
    ((candidate, retry_after),) = line.expired(1.0)
    assert candidate == "new"
    assert retry_after >= 1
    assert [candidate for candidate, _ in line.expired(2.0)] == ["back"]


def test_who_leaves_is_not_admitted() -> None:
    line = queue()
    line.arrive("a", 0.0, returning=False, paced=True)
    line.arrive("b", 0.0, returning=True, paced=True)
    line.withdraw("a")
    line.withdraw("b")
    line.withdraw("c")
    assert line.release(0.0, paced=False, most=9) == []


@given(
    st.lists(st.tuples(st.floats(0, 0.02), st.booleans()), min_size=1, max_size=400),
    st.floats(20, 2000),
)
def test_each_is_admitted_or_told_and_the_pace_holds(arrivals: list[tuple[float, bool]], rate: float) -> None:
    line = AdmissionQueue[int](rate=rate, patience=PATIENCE, longest=10.0)
    now = 0.0
    times: list[float] = []
    ends = 0
    for number, (gap, returning) in enumerate(arrivals):
        now += gap
        ends += len(line.expired(now))
        ends += line.arrive(number, now, returning=returning, paced=True) > 0
        times += [now] * len(line.release(now, paced=True, most=16))
    while len(line):
        following = line.next(now, paced=True)
        assert following is not None
        now += max(following, 1e-6)
        ends += len(line.expired(now))
        times += [now] * len(line.release(now, paced=True, most=16))
    assert len(times) + ends == len(arrivals)
    burst = max(1.0, rate * PACE_BURST)
    for first in range(len(times)):
        for last in range(first, len(times)):
            assert last - first + 1 <= burst + rate * (times[last] - times[first]) + 1e-3
