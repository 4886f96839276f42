"""Least squares without negative costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.model.fitting import least_squares

ROWS = [[1.0, 100.0], [1.0, 500.0], [1.0, 2_000.0], [1.0, 50.0]]


@given(fixed=st.floats(1, 1_000), each=st.floats(0.01, 50))
def test_exact_measurements_give_exact_costs(fixed: float, each: float) -> None:
    found = least_squares(ROWS, [fixed * row[0] + each * row[1] for row in ROWS])
    assert found == pytest.approx([fixed, each], rel=1e-6)


def test_no_cost_is_negative() -> None:
    # The best line falls; the best one that is allowed is level.
    fixed, each = least_squares(ROWS, [110.0, 100.0, 90.0, 111.0])
    assert each == 0
    assert 90 < fixed < 111


def test_columns_that_say_the_same_are_not_told_apart() -> None:
    found = least_squares([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], [2.0, 4.0, 6.0])
    assert found[0] + 2 * found[1] == pytest.approx(2.0)


@pytest.mark.parametrize(("rows", "values"), [([], []), ([[1.0, 2.0]], [1.0]), ([[1.0], [1.0]], [1.0, 0.0])])
def test_too_little_is_refused(rows: list[list[float]], values: list[float]) -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        least_squares(rows, values)
