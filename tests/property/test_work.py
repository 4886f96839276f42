"""What clients make up costs no more steps than a request may take, whatever the policy and the list (P20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.micro.worst_selectors import DEEP, MOST_SEGMENTS, random_case, random_selector, worst_list
from gateway.app.security.authorisation import NAMED
from gateway.core.policy.permissions import Permissions
from gateway.core.topics import entry_index, literal_ranges, pattern_trie, selector_sets
from gateway.core.topics.selections import Selections
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selector_sets import is_covered
from gateway.core.topics.selectors import Automaton, Selector, matches, overlaps, parse_selector
from gateway.core.topics.topics import MAX_SEGMENTS
from gateway.core.topics.work import MOST_STEPS, SEGMENTS_PER_STEP, Work
from gateway.core.types import TopicPath

pytestmark = pytest.mark.promise("P20")

OVERSHOT = 64
"""Operations that may have been made, in a search that is broken off, by a stride that was counted together."""

LIST = 1_000
"""Entries of the longest list of selections, by default (``limit_selections``)."""

STEPS_OF_A_MATCH = MAX_SEGMENTS * 50
"""Steps in which any list is matched with any topic: each segment is read once by 17 automata, which are full, and for
each literal of the topic, of which there are as many as segments, by one that is not."""


def steps_of_a_match(selectors: Iterable[str], *topics: str) -> int:
    """Tell how many steps it takes to find which of *selectors* match a topic, at most."""
    found: SelectorMap[str] = SelectorMap()
    for each in selectors:
        found.setdefault(parse_selector(each), str)
    most = 0
    for topic in topics:
        work = Work(1_000_000)
        found.match(TopicPath(topic), work)
        most = max(most, work.taken)
    return most


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the operations on sets of states, which are what searches consist of; the count is the only item."""
    count = [0]
    after, covered, meeting = selector_sets._Together.after, pattern_trie._covered_step, pattern_trie._meeting_step

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
        patch.object(pattern_trie, "_covered_step", counted_covered),
        patch.object(pattern_trie, "_meeting_step", counted_meeting),
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


@pytest.mark.thorough
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


@pytest.mark.parametrize("sign", "+-")
def test_long_entries_count_as_what_it_takes_to_compare_them(sign: str) -> None:
    """P20: a list may be full of entries of 32 segments, each of which a change has to be compared with."""
    long = [f"{'a/' * 20}{'/'.join(f'{number:010b}')}" for number in range(999)]
    selections = Selections.from_wire((*(["+a/**"] if sign == "-" else []), *(f"{sign}{each}" for each in long)))
    read = [0]

    def counted_matches(selector: Selector, topic: TopicPath) -> bool:
        read[0] += 1 + topic.count("/")
        return matches(selector, topic)

    def counted_overlaps(one: Selector, other: Selector) -> bool:
        read[0] += len(one.segments)
        return overlaps(one, other)

    work = Work()
    with (
        patch.object(literal_ranges, "matches", counted_matches),
        patch.object(entry_index, "overlaps", counted_overlaps),
    ):
        selections.select(parse_selector("a/**/a/**/0/**/z"), work)
    assert work.taken <= MOST_STEPS
    assert 0 < read[0] <= SEGMENTS_PER_STEP * work.taken


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


def spread(number: int) -> Iterator[str]:
    """Make selectors that can be filed under every segment of the topic that has all of them."""
    random = Random(7)
    for _ in range(number):
        ways = sorted(random.sample(range(MAX_SEGMENTS), random.randint(1, 20)))
        yield "**/" + "/**/".join("/".join(ALL_DIFFERENT[at] for at in part) for part in (ways[:3], ways[3:]) if part)


ALL_DIFFERENT = "abcdefghijklmnopqrstuvwxyzABCDEF"


@pytest.mark.parametrize(
    ("selectors", "topic"),
    [
        (worst_list, DEEP),
        (lambda number: (each.replace("/a/", "/a/**/", 1)[:-2] for each in worst_list(number)), DEEP),
        (lambda number: (each.replace("**/", "") + "/**" for each in worst_list(number)), DEEP),
        (lambda number: (each[3:] for each in worst_list(number)), DEEP[2:]),
        (spread, "/".join(ALL_DIFFERENT)),
    ],
    ids=["any-in-front", "two-anys", "any-behind", "ones", "spread"],
)
def test_a_topic_is_matched_with_the_worst_list_in_few_steps(
    selectors: Callable[[int], Iterable[str]], topic: str
) -> None:
    """P20: a list can be made for the purpose, and every topic that anybody publishes is matched with it."""
    assert steps_of_a_match(selectors(LIST), topic) <= STEPS_OF_A_MATCH


def test_the_lists_of_many_accounts_add_up_and_no_more() -> None:
    lists = [list(worst_list(LIST, root=root)) for root in ("", *("a/" * depth for depth in range(1, 10)))]
    alone = max(steps_of_a_match(each, DEEP) for each in lists)
    together = steps_of_a_match([each for one in lists for each in one], DEEP)
    assert together <= len(lists) * alone


@pytest.mark.thorough
@settings(max_examples=40)  # each makes and compares hundreds of selectors
@given(st.randoms(use_true_random=False), st.integers(0, 300))
def test_no_list_and_topic_take_more_steps_than_a_match_may(random: Random, entries: int) -> None:
    texts = [random_selector(random) for _ in range(entries)]
    topic = "/".join(random.choices("abc", k=random.randint(1, MAX_SEGMENTS)))
    assert steps_of_a_match(texts, topic) <= STEPS_OF_A_MATCH
