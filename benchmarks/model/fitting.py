"""Least squares without negative costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Find the factors, none below 0, with which the columns of *rows* come closest to *values*, relative to these.

    There are a handful of columns, so all choices of those that are not 0 are tried; the best one is exact.

    Args:
        rows: of numbers, one for each value.
        values: above 0.

    Returns:
        One factor for each column.

    Raises:
        ValueError: there are fewer rows than columns, or a value that is not above 0.
    """
    columns = len(rows[0]) if rows else 0
    if len(rows) < columns or not rows or min(values) <= 0:
        raise ValueError(f"{columns} costs cannot be told from {len(rows)} measurements")
    # A microsecond counts for more where there are few: divided by the value, all errors are relative.
    scaled = [[each / value for each in row] for row, value in zip(rows, values, strict=True)]
    best, least = [0.0] * columns, float(len(rows))
    for size in range(1, columns + 1):
        for chosen in combinations(range(columns), size):
            factors = _solve([[row[each] for each in chosen] for row in scaled])
            if factors is None or min(factors) < 0:
                continue
            error = sum(
                (sum(factor * row[each] for factor, each in zip(factors, chosen, strict=True)) - 1.0) ** 2
                for row in scaled
            )
            if error < least:
                least = error
                best = [0.0] * columns
                for factor, each in zip(factors, chosen, strict=True):
                    best[each] = factor
    return best


def _solve(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Solve the normal equations of ``rows · factors = 1`` by elimination; None if they do not say enough."""
    size = len(rows[0])
    matrix = [
        [*(sum(row[i] * row[j] for row in rows) for j in range(size)), sum(row[i] for row in rows)] for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda each: abs(matrix[each][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        if abs(matrix[column][column]) <= _SINGULAR * max(abs(each) for row in matrix for each in row):
            return None
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / matrix[column][column]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[column], strict=True)]
    return [matrix[each][size] / matrix[each][each] for each in range(size)]


_SINGULAR = 1e-12
"""Of the largest number in a matrix: below this, two columns say the same."""
