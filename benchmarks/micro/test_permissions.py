"""What it costs to ask whether somebody may: at each publish, at each resume, and when a selector is wide."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from itertools import count

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.worst_selectors import Case, cost
from gateway.core.policy.permissions import OPEN, Policy, Role, parse_template
from gateway.core.topics.selections import Selections
from gateway.core.topics.selector_sets import common, is_covered
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.work import MOST_STEPS
from gateway.core.types import TopicPath

MARKETS = tuple(f"prices/market-{number}/**" for number in range(20))
TRADER = Role(
    select=tuple(map(parse_template, (*MARKETS, "users/${principal}/**"))),
    publish=tuple(map(parse_template, ("orders/${principal}/*", "chat/**"))),
)
POLICY = Policy({"trader": TRADER}, default=["trader"])
ALICE = POLICY.permissions_of("alice")
WORST = Case(
    (
        "*/b/*/**",
        "*/*/**/a/*/c/b/a/*/b/b/*/*/**/a/*/*/*/**/b",
        "*/c/*/*/*/**/a/b/*/*/*/*/**/a/*",
        "*/*/*/**/c/*/a/*/**/b/*/b/*/*/**/c/**/a/*/*/b/c/*/*",
        "c/*/*/*/**/a/*/b/**/c/c/*/*/*/*/**/c/a/**/a/c/b/*/a",
        "*/**/c/b/**/b/*/*/**/c",
        "**/a/*/c/a/*/a/*/**/a/**",
        "a/*/*/**/c/*/*/*/**",
        "*/*/*/*/**/a/*/b/*/*/*/*/**/b/*/**/a/b/a/b/c/*/**/a/*/c",
        "*/*/**/c/*/*/*/*/*/*/*/*/*/*/**/c/b",
        "b/c/b/*/*/*/**/c/*/*/*/*/**/c/*/**/b/b/c/c/b/*/*",
        "*/**/b/*/a/a/a/*/*/**/a/*/**/c/a/*/*/*/a/*/a/**/b",
        "a/*/*/**/b/*/*/*/**/b/*/c/b/c/b/b/a/**/b/**",
    ),
    "*/*/**/c/*/*/b",
)


def test_publish_without_a_policy(benchmark: BenchmarkFixture) -> None:
    everybody = OPEN.permissions_of("alice")
    assert benchmark(lambda: everybody.publishes_all)


def test_publish_to_a_topic_known(benchmark: BenchmarkFixture) -> None:
    assert benchmark(ALICE.may_publish, TopicPath("orders/alice/1"))


def test_publish_to_a_new_topic(benchmark: BenchmarkFixture) -> None:
    numbers = count()
    assert benchmark(lambda: ALICE.may_publish(TopicPath(f"orders/alice/{next(numbers)}")))


def test_judge_a_session_that_resumes(benchmark: BenchmarkFixture) -> None:
    selections = Selections.from_wire(["+prices/market-1/**", "+prices/market-2/*", "+users/alice/**"])

    def judge() -> Selections:
        return POLICY.permissions_of("alice", ()).narrow(selections, most=1000, most_bytes=65_536).selections

    assert benchmark(judge) is selections


def test_a_selector_that_one_entry_covers(benchmark: BenchmarkFixture) -> None:
    assert benchmark(is_covered, parse_selector("prices/market-7/*"), ALICE.select)


def test_a_selector_that_is_too_wide(benchmark: BenchmarkFixture) -> None:
    assert not benchmark(is_covered, parse_selector("prices/**"), ALICE.select)


def test_what_of_it_is_allowed(benchmark: BenchmarkFixture) -> None:
    found = benchmark(common, parse_selector("prices/**"), ALICE.select)
    assert len(found.selectors) == len(MARKETS)


def test_a_forbidden_subscribe_is_answered(benchmark: BenchmarkFixture) -> None:
    """As most are: a topic that no rule matches is found at once, and what is allowed is named."""
    seconds = benchmark(lambda: cost(Case(MARKETS, "prices/**"), repeat=1))
    assert seconds.steps < MOST_STEPS


def test_the_worst_forbidden_subscribe_that_was_found(benchmark: BenchmarkFixture) -> None:
    """By ``worst_selectors``: a selector and rules that count from their ends in many ways at once."""
    assert benchmark(lambda: cost(WORST, repeat=1)).steps <= MOST_STEPS


def test_a_selector_made_to_be_costly(benchmark: BenchmarkFixture) -> None:
    wide = [parse_selector(f"**/{letter}" + "/*" * 14) for letter in "abcdefgh"]
    wide += [parse_selector("/".join("*" * length)) for length in range(1, 15)]
    assert not benchmark(is_covered, parse_selector("**/a/**/b/**/c/**"), wide)
