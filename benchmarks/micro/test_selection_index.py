"""Who selects a topic, among 1 to 100,000 selections."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from itertools import count
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.cases.growth import index_of
from gateway.core.selections import NOTHING
from gateway.core.selectors import parse_selector
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


@pytest.mark.parametrize("size", SIZES)
def test_a_session_comes_and_goes(benchmark: BenchmarkFixture, size: int) -> None:
    index = index_of(size)

    def come_and_go() -> None:
        index.set(-1, THREE)
        index.remove(-1)

    benchmark(come_and_go)
    assert -1 not in index
