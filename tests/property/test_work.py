"""What clients make up costs no more steps than a request may take, whatever the policy and the list (P20)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.micro.worst_selectors import MOST_SEGMENTS, random_case, random_selector
from gateway.app.authorisation import NAMED
from gateway.core import selector_map, selector_sets
from gateway.core.permissions import Permissions
from gateway.core.selections import Selections
from gateway.core.selector_sets import is_covered
from gateway.core.selectors import Automaton, parse_selector
from gateway.core.work import MOST_STEPS, Work

OVERSHOT = 64
"""Operations that may have been made, in a search that is broken off, by a stride that was counted together."""


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the operations on sets of states, which are what searches consist of; the count is the only item."""
    count = [0]
    after, covered, meeting = selector_sets._Together.after, selector_map._covered_step, selector_map._meeting_step

    def counted_after(together: selector_sets._Together, states: int, symbol: str) -> int:
        count[0] += 1
        return after(together, states, symbol)

    def counted_covered(automaton: Automaton, states: int, edge: str) -> int:
        count[0] += 1
        return covered(automaton, states, edge)

    def counted_meeting(automaton: Automaton, states: int, edge: str) -> int:
        count[0] += 1
        return meeting(automaton, states, edge)

    with (
        patch.object(selector_sets._Together, "after", counted_after),
        patch.object(selector_map, "_covered_step", counted_covered),
        patch.object(selector_map, "_meeting_step", counted_meeting),
    ):
        yield count


@given(st.randoms(use_true_random=False))
def test_a_judgement_is_bounded_over_all_rules_together(random: Random) -> None:
    case = random_case(random)
    rules = Permissions(frozenset(), select=map(parse_selector, case.rules))
    asked = parse_selector(case.selector)
    work = Work()
    with counted() as operations:
        may = rules.may_select(asked, work)
        if not may:
            rules.allowed(asked, work, most=NAMED)
    assert work.taken <= MOST_STEPS
    assert operations[0] <= work.taken + OVERSHOT, "every operation was counted before it was made"
    if may:
        assert is_covered(asked, rules.select, work=Work(10_000_000)), "what is allowed is allowed in truth"


@given(st.randoms(use_true_random=False), st.integers(0, 200), st.booleans())
def test_a_change_of_a_list_is_bounded(random: Random, entries: int, selects: bool) -> None:
    wire = {f"+{random_selector(random, 8)}" for _ in range(entries)}
    selections = Selections.from_wire(sorted(wire))
    asked = parse_selector(random_selector(random, MOST_SEGMENTS))
    work = Work()
    with counted() as operations:
        changed = selections.select(asked, work) if selects else selections.deselect(asked, work)
    assert work.taken <= MOST_STEPS
    assert operations[0] <= work.taken + OVERSHOT
    assert len(changed) <= len(selections) + 1


def test_a_usual_change_takes_as_many_steps_in_a_long_list_as_in_a_short_one() -> None:
    for kind in ("prices/{}/bid", "prices/{}/**", "*/{}/bid"):
        taken: list[int] = []
        for size in (100, 1_000, 10_000):
            selections = Selections.from_wire(f"+{kind.format(number)}" for number in range(size))
            work = Work()
            longer = selections.select(parse_selector(kind.format("new")), work)
            assert len(longer) == size + 1
            taken.append(work.taken)
        assert max(taken) <= min(taken) + 2, kind
