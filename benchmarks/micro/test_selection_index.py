"""Who selects a topic, among 1 to 100,000 selections."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from itertools import count
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.cases.growth import index_of
from benchmarks.micro.worst_selectors import DEEP, worst_list
from gateway.core.topics.selection_index import SelectionIndex
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath

SIZES: Final = (1, 1_000, 100_000)
THREE: Final = NOTHING.select(parse_selector("root-1/a/*")).select(parse_selector("root-2/b")).select(
    parse_selector("own/c")
)  # fmt: skip
"""What a session of the storm cases selects."""


@pytest.mark.parametrize("size", SIZES)
def test_match_a_topic_seen_before(benchmark: BenchmarkFixture, size: int) -> None:
    assert benchmark(index_of(size).match, TopicPath("root-0/0/bid")) == (0,)


@pytest.mark.parametrize("size", SIZES)
def test_match_a_new_topic(benchmark: BenchmarkFixture, size: int) -> None:
    index, numbers = index_of(size), count()
    assert benchmark(lambda: index.match(TopicPath(f"root-0/0/new-{next(numbers)}"))) == (0,)


def test_match_a_new_topic_with_the_worst_list(benchmark: BenchmarkFixture) -> None:
    """What one session may select to make every new topic costly."""
    index: SelectionIndex[int] = SelectionIndex()
    index.set(0, Selections.from_wire(f"+{each}" for each in worst_list(1_000)))
    numbers = count()
    # Each selector is met everywhere but at its end.
    begin = DEEP[: -len("/a")]
    assert benchmark(lambda: index.match(TopicPath(f"{begin}/{next(numbers)}"))) == ()


@pytest.mark.parametrize("size", SIZES)
def test_a_session_comes_and_goes(benchmark: BenchmarkFixture, size: int) -> None:
    index = index_of(size)

    def come_and_go() -> None:
        index.set(-1, THREE)
        index.remove(-1)

    benchmark(come_and_go)
    assert -1 not in index
