"""Turns are shared by what they cost, and who wants little goes first (P20)."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.round_robin import MOST_OWED, RoundRobin

pytestmark = pytest.mark.promise("P20")

QUANTUM = 10.0


def served(robin: RoundRobin[str], cost: dict[str, float], turns: int) -> list[str]:
    """Serve so many turns, in each of which those who wait cost what is said."""
    order = []
    for _ in range(turns):
        key = robin.first()
        if key is None:
            break
        order.append(key)
        robin.charge(key, cost[key])
    return order


def test_nobody_is_first_if_nobody_waits() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    assert robin.first() is None
    robin.add("a")
    robin.add("a")
    assert len(robin) == 1
    robin.remove("a")
    robin.remove("a")
    assert robin.first() is None
    assert not robin


def test_a_turn_lasts_until_the_quantum_is_used_up() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    for key in "ab":
        robin.add(key)
    assert served(robin, {"a": 4, "b": 10}, 8) == ["a", "a", "a", "b", "a", "a", "b", "a"]


def test_costs_are_shared_and_not_turns() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    cost = {"cheap": 1.0, "dear": 35.0}
    for key in cost:
        robin.add(key)
    spent: Counter[str] = Counter()
    for key in served(robin, cost, 1_000):
        spent[key] += int(cost[key])
    assert abs(spent["cheap"] - spent["dear"]) <= 2 * 35


def test_a_newcomer_passes_in_front_of_those_who_have_had_a_turn() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    many = [f"k{number}" for number in range(20)]
    for key in many:
        robin.add(key)
    served(robin, dict.fromkeys(many, QUANTUM), 30)
    robin.add("new")
    assert robin.first() == "new"


def test_who_leaves_and_comes_back_is_no_newcomer_before_the_others_had_a_turn() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    for key in "ab":
        robin.add(key)
    served(robin, {"a": 10, "b": 10}, 2)
    turns: Counter[str] = Counter()
    for _ in range(30):
        robin.add("sly")
        first = robin.first()
        assert first is not None
        turns[first] += 1
        robin.charge(first, QUANTUM)
        robin.remove("sly")
    assert min(turns[key] for key in ("a", "b")) >= 5


def test_one_endless_turn_does_not_shut_anybody_out_for_ever() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    for key in "ab":
        robin.add(key)
    served(robin, {"a": 1e9, "b": QUANTUM}, 1)
    assert "a" in served(robin, {"a": QUANTUM, "b": QUANTUM}, 2 * MOST_OWED + 4)


def test_who_is_alone_gets_on_whatever_it_owes() -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    robin.add("a")
    assert served(robin, {"a": 1e9}, 3) == ["a"] * 3


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["add", "remove", "serve"]), st.floats(0, 30)),
        max_size=200,
    )
)
def test_it_serves_those_who_wait_and_forgets_the_others(steps: list[tuple[str, str, float]]) -> None:
    robin: RoundRobin[str] = RoundRobin(QUANTUM)
    waiting: set[str] = set()
    passed_over: defaultdict[str, float] = defaultdict(float)
    for key, step, cost in steps:
        if step == "add":
            robin.add(key)
            waiting.add(key)
        elif step == "remove":
            robin.remove(key)
            waiting.discard(key)
            passed_over[key] = 0.0
        else:
            first = robin.first()
            assert first in waiting if waiting else first is None
            if first is not None:
                robin.charge(first, cost)
                passed_over[first] = 0.0
                for other in waiting - {first}:
                    passed_over[other] += cost
        assert len(robin) == len(waiting)
        # Each of the five others has a quantum as a newcomer and one in line, and can go too far by one cost each time.
        assert all(passed_over[each] <= 5 * 2 * (QUANTUM + 30) * (1 + 30 / QUANTUM) for each in waiting)
    for key in list(waiting):
        robin.remove(key)
    assert robin.first() is None
    assert not robin._credit, "nothing is left of those who have gone"
