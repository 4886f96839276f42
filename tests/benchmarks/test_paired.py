"""Comparisons in short turns: what they say must follow from the turns, and no contestant may always come first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.paired import Ratio, in_turns, values_in_turns


def test_the_ratio_is_that_of_neighbours_and_not_of_the_medians() -> None:
    # The machine became three times as slow half-way; the second contestant always cost 10 % more.
    first = [1.0] * 10 + [3.0] * 10
    assert Ratio.of(first, [each * 1.1 for each in first]).middle == pytest.approx(1.1)


@pytest.mark.parametrize(("turns", "cut"), [(1, 0), (5, 0), (6, 0), (9, 1), (15, 3), (30, 9)])
def test_the_interval_is_as_narrow_as_the_binomial_distribution_allows(turns: int, cut: int) -> None:
    ratio = Ratio.of([1.0] * turns, [float(each) for each in range(1, turns + 1)])
    assert (ratio.low, ratio.high) == (1.0 + cut, float(turns - cut))
    assert ratio.low <= ratio.middle <= ratio.high


def test_nothing_can_not_be_compared() -> None:
    with pytest.raises(ValueError, match="no turn"):
        Ratio.of([], [])


def test_it_is_told_in_percent() -> None:
    assert str(Ratio.of([100.0] * 3, [99.0, 102.5, 104.0])) == "+2.5 % (-1.0 % … +4.0 %)"


def test_who_comes_first_changes_with_each_turn() -> None:
    calls: list[str] = []

    def contestant(name: str) -> Callable[[], float]:
        def measure() -> float:
            calls.append(name)
            return float(len(calls))

        return measure

    values = list(in_turns({name: contestant(name) for name in ("off", "on")}, 3))
    assert calls == ["off", "on", "on", "off", "off", "on"]
    assert values == [(name, float(number)) for number, name in enumerate(calls, start=1)]


def test_the_first_turn_of_each_does_not_count() -> None:
    numbers = {"off": iter([100.0, 1.0, 2.0]), "on": iter([200.0, 3.0, 4.0])}

    values = values_in_turns({name: lambda of=of: next(of) for name, of in numbers.items()}, 2)  # type: ignore[misc]
    assert values == {"off": [1.0, 2.0], "on": [3.0, 4.0]}
