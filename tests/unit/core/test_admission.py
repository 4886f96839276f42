from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.admission import PACE_BURST, AdmissionQueue
from gateway.core.pacing.precedence import NEW_ONE_IN

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
    assert line.arrive("a", 0.0, returning=False, paced=True) is None
    assert line.release(0.0, paced=True, most=9) == ["a"]
    assert len(line) == 0


def test_the_pace_is_kept() -> None:
    line = queue()
    for number in range(50):
        assert line.arrive(str(number), 0.0, returning=False, paced=True) is None
    assert 10 <= len(admitted(line, 0.1)) <= 10 + RATE * PACE_BURST + 1


def test_who_comes_back_goes_first() -> None:
    line = queue()
    for name in ("new-1", "new-2"):
        line.arrive(name, 0.0, returning=False, paced=True)
    for name in ("back-1", "back-2"):
        line.arrive(name, 0.0, returning=True, paced=True)
    assert admitted(line, 1.0) == ["back-1", "back-2", "new-1", "new-2"]


@pytest.mark.promise("P20")
def test_who_is_new_is_not_shut_out_by_those_who_say_that_they_come_back() -> None:
    """As whoever likes can: here thousands of addresses say so, twice as often as clients are admitted."""
    line = AdmissionQueue[str](rate=RATE, patience=PATIENCE, longest=30.0)
    got = {"back": 0, "new": 0}
    lost = 0
    for turn in range(1, 10 * 50 + 1):
        now = turn / 50
        for number in range(4):
            line.arrive(f"back-{turn}-{number}", now, returning=True, paced=True)
        if turn % 5 == 0:
            lost += line.arrive(f"new-{turn}", now, returning=False, paced=True) is not None
        for admitted in line.release(now, paced=True, most=32):
            got[admitted.partition("-")[0]] += 1
        lost += sum(each.startswith("new") for each, _ in line.expired(now))
    assert lost == 0
    assert got["new"] >= 98, "all but who has just come, of ten a second"
    assert got["back"] >= 0.85 * RATE * 10


def test_without_a_pace_all_come_in_some_at_a_time() -> None:
    line = queue()
    for number in range(500):
        assert line.arrive(str(number), 0.0, returning=True, paced=False) is None
    assert len(line.release(0.0, paced=False, most=16)) == 16
    assert line.next(0.0, paced=False) == 0


def test_more_than_can_be_served_in_time_are_told_one_after_the_other_when_to_come() -> None:
    line = queue()
    refused = [line.arrive(str(number), 0.0, returning=True, paced=True) for number in range(300)]
    assert refused[:100] == [None] * 100
    told = [each[1] for each in refused if each is not None]
    assert told[0] >= 1
    assert [later - sooner for sooner, later in pairwise(told)] == pytest.approx([1 / RATE] * 199)


def test_new_clients_are_told_before_returning_ones() -> None:
    line = queue()
    for number in range(60):
        assert line.arrive(f"new-{number}", 0.0, returning=False, paced=True) is None
    for number in range(60):
        assert line.arrive(f"back-{number}", 0.0, returning=True, paced=True) is None
    assert line.arrive("new", 0.0, returning=False, paced=True) is not None
    assert line.arrive("back", 0.0, returning=True, paced=True) is None


def test_nobody_is_asked_to_come_back_later_than_the_longest() -> None:
    line = queue()
    refused = [line.arrive(str(number), 0.0, returning=True, paced=True) for number in range(5000)]
    assert max(each[1] for each in refused if each is not None) == 10


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


def test_addresses_take_turns() -> None:
    line = queue()
    for number in range(5):
        line.arrive(f"crowd-{number}", 0.0, address="one", returning=True, paced=True)
    line.arrive("alone", 0.0, address="other", returning=True, paced=True)
    line.arrive("new", 0.0, address="third", returning=False, paced=True)
    assert admitted(line, 1.0)[:3] == ["crowd-0", "alone", "crowd-1"]


def test_the_newest_of_the_address_that_has_most_makes_room() -> None:
    line = queue()
    for number in range(100):
        assert line.arrive(f"crowd-{number}", 0.0, address="one", returning=True, paced=True) is None
    refused = line.arrive("alone", 0.0, address="other", returning=True, paced=True)
    assert refused is not None
    assert refused[0] == "crowd-99"
    assert refused[1] >= 1
    again = line.arrive("crowd-100", 0.0, address="one", returning=True, paced=True)
    assert again is not None
    assert again[0] == "crowd-100"
    assert len(line) == 100


def test_nobody_who_comes_back_makes_room_for_one_who_is_new() -> None:
    line = queue()
    for number in range(100):
        line.arrive(f"crowd-{number}", 0.0, address="one", returning=True, paced=True)
    refused = [line.arrive(f"new-{number}", 0.0, address="other", returning=False, paced=True) for number in range(20)]
    room = math.ceil(RATE * PATIENCE / NEW_ONE_IN)
    assert refused[:room] == [None] * room
    assert [each and each[0] for each in refused[room:]] == [f"new-{number}" for number in range(room, 20)]


def test_who_shares_its_address_with_nobody_stands_for_itself() -> None:
    """So do those of whom no address is counted: they make no room for each other."""
    line = queue()
    for number in range(100):
        assert line.arrive(f"exempt-{number}", 0.0, returning=True, paced=True) is None
    refused = line.arrive("alone", 0.0, address="other", returning=True, paced=True)
    assert refused is not None
    assert refused[0] == "alone"


@pytest.mark.promise("P20")
@pytest.mark.parametrize("returning", [True, False])
def test_addresses_just_below_their_rate_keep_nobody_else_from_coming(*, returning: bool) -> None:
    """Two strangers ask for two thirds more than is admitted; twenty others a second come from as many addresses."""
    line: AdmissionQueue[tuple[str, int]] = AdmissionQueue(rate=600.0, patience=PATIENCE, longest=30.0)
    asked = {"stranger-1": 0, "stranger-2": 0, "other": 0}
    rates = {"stranger-1": 499, "stranger-2": 499, "other": 20}
    got = dict.fromkeys(asked, 0)
    lost: list[tuple[str, int]] = []
    for turn in range(1, 10 * 50 + 1):
        now = turn / 50
        for who, rate in rates.items():
            while asked[who] < rate * now:
                asked[who] += 1
                candidate = who, asked[who]
                address = f"{who}-{asked[who]}" if who == "other" else who
                refused = line.arrive(candidate, now, address=address, returning=returning, paced=True)
                lost += [refused[0]] if refused is not None else []
        for who, _ in line.release(now, paced=True, most=32):
            got[who] += 1
        lost += [candidate for candidate, _ in line.expired(now)]
    assert asked["other"] - got["other"] <= 1, "but for one who has just come"
    assert not [candidate for candidate in lost if candidate[0] == "other"]
    assert got["stranger-1"] == pytest.approx(got["stranger-2"], rel=0.02)
    assert sum(got.values()) == pytest.approx(6000, rel=0.02), "nor is less admitted than could be"


ARRIVALS = st.lists(st.tuples(st.floats(0, 0.02), st.booleans()), min_size=1, max_size=400)


@given(ARRIVALS, st.floats(20, 2000))
def test_a_crowd_behind_one_address_is_served_in_the_order_in_which_it_came(
    arrivals: list[tuple[float, bool]], rate: float
) -> None:
    """As if there were no turns: nobody makes room, and who does not wait is who came last."""
    line = AdmissionQueue[int](rate=rate, patience=PATIENCE, longest=10.0)
    waiting: dict[bool, list[int]] = {True: [], False: []}
    now, passed = 0.0, 0
    for number, (gap, returning) in enumerate(arrivals):
        now += gap
        for candidate, _ in line.expired(now):
            assert candidate in {each[0] for each in waiting.values() if each}
            for each in waiting.values():
                each[:] = [other for other in each if other != candidate]
        room, of_new = rate * PATIENCE, rate * PATIENCE / NEW_ONE_IN
        back, new = len(waiting[True]), len(waiting[False])
        is_full = back + min(new, of_new) >= room if returning else back + new >= room and new >= of_new
        refused = line.arrive(number, now, address="one", returning=returning, paced=True)
        if is_full:
            assert refused is not None
            assert refused[0] == number
        else:
            assert refused is None
            waiting[returning].append(number)
        for candidate in line.release(now, paced=True, most=16):
            is_back = bool(waiting[True]) and (passed < NEW_ONE_IN - 1 or not waiting[False])
            passed = passed + 1 if is_back and waiting[False] else 0
            assert waiting[is_back].pop(0) == candidate


@given(
    st.lists(st.tuples(st.floats(0, 0.02), st.booleans(), st.sampled_from(["a", "b", None])), min_size=1, max_size=400),
    st.floats(20, 2000),
)
def test_each_is_admitted_or_told_and_the_pace_holds(
    arrivals: list[tuple[float, bool, str | None]], rate: float
) -> None:
    line = AdmissionQueue[int](rate=rate, patience=PATIENCE, longest=10.0)
    now = 0.0
    times: list[float] = []
    ends = 0
    for number, (gap, returning, address) in enumerate(arrivals):
        now += gap
        ends += len(line.expired(now))
        ends += line.arrive(number, now, address=address, returning=returning, paced=True) is not None
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
