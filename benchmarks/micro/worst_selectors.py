"""Looks for the policy and the selector whose judgement costs most: ``python -m benchmarks.micro.worst_selectors``.

Policies and selectors are made at random of few letters and many wildcards, and the costliest are changed a little time
and again (a climb from several places). What is told is the time of one forbidden subscribe, from the judgement to the
sentence of its refusal. ``test_permissions.py`` measures the worst that was found.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import combinations, count, islice
from math import comb
from random import Random
from typing import Final, NamedTuple

from gateway.app.security.authorisation import NAMED
from gateway.core.policy.permissions import Permissions
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.work import Work
from gateway.core.wire.errors import InvalidSelector

LETTERS: Final = ("a", "b", "c")
"""Literal segments: few, so that rules and selector meet all the time."""

MOST_RULES: Final = 60
"""Rules of a policy: as many as a person writes for one role."""

MOST_SEGMENTS: Final = 32
"""Of a rule or selector, as the protocol bounds them."""


DEEP: Final = "/".join("a" * MOST_SEGMENTS)
"""A topic that leads through each selector of ``worst_list`` in most ways."""


def worst_list(number: int, *, root: str = "", length: int = MOST_SEGMENTS) -> Iterator[str]:
    """Make the selectors that cost a trie of wildcards most when they are matched with one topic.

    They are of one letter, wildcards that stand for it, and a ``**`` in front of all that: so any place of the topic
    may be where any segment of any selector is met. Which segments are wildcards is another choice for each, made in
    the first ones, so that hardly two share a way; they are equally many, so that none covers another. 1,000 of them
    fit into 64 KiB (``limit_selection_bytes``).

    Args:
        number: of them.
        root: segments in front, with a separator at their end; the topic has to begin with them as well.
        length: segments of each.
    """
    behind = length - 3 - root.count("/")
    places = next(each for each in count() if comb(each, each // 2) >= number)
    for chosen in islice(combinations(range(places), places // 2), number):
        rest = "/".join("*" if place in chosen else "a" for place in range(behind))
        yield f"{root}**/a/{rest}/a"


class Case(NamedTuple):
    """A subscribe under a policy.

    Attributes:
        rules: what may be selected.
        selector: what is asked for.
    """

    rules: tuple[str, ...]
    selector: str


class Cost(NamedTuple):
    """What its judgement costs.

    Attributes:
        seconds: the least of some measurements.
        steps: of work.
    """

    seconds: float
    steps: int


def cost(case: Case, *, repeat: int = 3) -> Cost:
    """Measure one judgement, nothing of which is remembered."""
    best, steps = float("inf"), 0
    for _ in range(repeat):
        rules = Permissions(frozenset(), select=map(parse_selector, case.rules))
        asked = parse_selector(case.selector)
        work = Work()
        began = time.perf_counter()
        if not rules.may_select(asked, work) and not work.is_spent:
            rules.allowed(asked, work, most=NAMED)
        best, steps = min(best, time.perf_counter() - began), work.taken
    return Cost(best, steps)


def random_selector(random: Random, most: int = MOST_SEGMENTS) -> str:
    """Make a selector, mostly of wildcards."""
    while True:
        segments = random.choices((*LETTERS, "*", "**"), (1, 1, 1, 4, 2), k=random.randint(1, most))
        try:
            return parse_selector("/".join(segments)).text
        except InvalidSelector:
            continue


def random_case(random: Random) -> Case:
    """Make a case to begin with."""
    most = random.choice((4, 8, 16, MOST_SEGMENTS))
    rules = tuple(random_selector(random, most) for _ in range(random.randint(1, MOST_RULES)))
    return Case(rules, random_selector(random, most))


def changed(case: Case, random: Random) -> Case:
    """Change a case a little."""
    rules = list(case.rules)
    match random.randrange(4):
        case 0:
            return case._replace(selector=random_selector(random))
        case 1:
            rules.append(random_selector(random))
        case 2 if len(rules) > 1:
            rules.pop(random.randrange(len(rules)))
        case _:
            rules[random.randrange(len(rules))] = random_selector(random)
    return case._replace(rules=tuple(rules[-MOST_RULES:]))


def search(random: Random, *, seconds: float, climbs: int = 8) -> tuple[Case, Cost]:
    """Find the costliest case.

    Args:
        random: makes the cases.
        seconds: how long to look.
        climbs: places to begin at.
    """
    found: list[tuple[Case, Cost]] = []
    for number in range(climbs):
        end = time.perf_counter() + seconds / climbs
        case = max((random_case(random) for _ in range(40)), key=lambda each: cost(each, repeat=1).seconds)
        known = cost(case)
        while time.perf_counter() < end:
            other = changed(case, random)
            if cost(other, repeat=1).seconds > known.seconds and (again := cost(other)).seconds > known.seconds:
                case, known = other, again
        found.append((case, known))
        print(f"climb {number + 1}: {known.seconds * 1000:.2f} ms, {known.steps} steps", flush=True)
    return max(found, key=lambda each: each[1].seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    case, known = search(Random(given.seed), seconds=given.seconds)
    print(f"\n{known.seconds * 1000:.2f} ms, {known.steps} steps, {len(case.rules)} rules")
    print(f"selector: {case.selector}")
    for rule in case.rules:
        print(f"rule:     {rule}")


if __name__ == "__main__":
    main()
