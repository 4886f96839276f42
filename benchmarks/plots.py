"""Pictures of how figures grow, as SVG: points, the straight line through them in logarithmic scales, its slope.

``python -m benchmarks.publish`` puts them into the documentation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cases.base import OURS, Row
from charts import COLOURS, drawing

_MARKERS: Final = "osD^v"
"""One for each line of a picture, so that it can be read without colours, too."""
_LEAST_POINTS: Final = 2
"""For a line."""


@dataclass(frozen=True)
class Series:
    """One line of a picture.

    Attributes:
        label: for the legend.
        points: size and value, both above 0.
    """

    label: str
    points: Sequence[tuple[float, float]]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Fit ``value = c · size^k`` by least squares of the logarithms, and return k: 1 is linear growth, 0 is none.

    Raises:
        ValueError: fewer than two sizes, or a number that is not above 0.
    """
    return _fit(points)[0]


def draw(file: Path, *, title: str, size: str, value: str, series: Sequence[Series]) -> None:
    """Write a picture with logarithmic axes.

    Args:
        file: SVG to write; its folder is made if it is not there.
        title: above the picture.
        size: what grows, for the horizontal axis.
        value: what is measured, with its unit.
        series: one to five lines.

    Raises:
        ValueError: there is nothing to draw, too many lines, or a number that is not above 0.
    """
    if not 1 <= len(series) <= len(_MARKERS):
        raise ValueError(f"a picture has 1 to {len(_MARKERS)} lines, not {len(series)}")
    with drawing(file) as figure:
        axes = figure.add_subplot()
        for each, colour, marker in zip(series, COLOURS, _MARKERS, strict=False):
            sizes, measured = zip(*sorted(each.points), strict=True)
            exponent, factor = _fit(each.points)
            axes.plot(sizes, measured, marker, color=colour, label=f"{each.label}: grows as n^{exponent:.2f}")
            fitted = [factor * number**exponent for number in sizes]
            axes.plot(sizes, fitted, "-", color=colour, linewidth=1, alpha=0.6)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(size)
        axes.set_ylabel(value)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.legend(frameon=False)


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if any(number <= 0 for point in points for number in point):
        raise ValueError("logarithmic axes need numbers above 0")
    if len({size for size, _ in points}) < _LEAST_POINTS:
        raise ValueError("a line needs two sizes")
    logs = [(math.log(size), math.log(value)) for size, value in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    exponent = sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)
    return exponent, math.exp(mean_y - exponent * mean_x)


@dataclass(frozen=True)
class Picture:
    """Which figures of a case belong together.

    Attributes:
        case: its name.
        file: to write, without folder.
        title: above the picture.
        size: what grows; also what the variants say after their number, such as ``subscribers``.
        value: axis title with the unit.
        figures: label by figure name.
    """

    case: str
    file: str
    title: str
    size: str
    value: str
    figures: Mapping[str, str]


PICTURES: Final = (
    Picture(
        "growth",
        "growth-claims.svg",
        "A claim costs the same however many sessions are stored",
        "stored sessions",
        "CPU per claim, µs",
        {"claim_server": "node", "claim_redis": "Redis"},
    ),
    Picture(
        "growth",
        "growth-matching.svg",
        "Matching a topic against the selections of a node",
        "selections",
        "CPU per match, µs",
        {"match_known": "topic seen before", "match_new": "new topic"},
    ),
    Picture(
        "growth",
        "growth-fanout.svg",
        "CPU of one update, by how many receive it",
        "subscribers",
        "CPU per update, µs",
        {"update_server": "node"},
    ),
)


def series_of(picture: Picture, rows: Iterable[Row]) -> list[Series]:
    """Collect the lines of a picture from the rows of a run: medians over the rounds, of ours alone.

    Args:
        picture: which.
        rows: whose variants are such as ``1,000 stored sessions``.
    """
    found: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        match = re.fullmatch(rf"([\d,]+) {re.escape(picture.size)}", row.variant)
        if row.case != picture.case or row.contestant != OURS or match is None:
            continue
        number = float(match[1].replace(",", ""))
        for name, label in picture.figures.items():
            if name in row.values:
                found.setdefault(label, {}).setdefault(number, []).append(row.values[name])
    return [
        Series(label, [(number, median(measured)) for number, measured in sorted(sizes.items())])
        for label, sizes in found.items()
    ]


def draw_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw every picture for which there are at least two sizes.

    Returns:
        The files.
    """
    files = []
    for picture in PICTURES:
        lines = [each for each in series_of(picture, rows) if len(each.points) >= _LEAST_POINTS]
        if lines:
            file = folder / picture.file
            draw(file, title=picture.title, size=picture.size, value=picture.value, series=lines)
            files.append(file)
    return files
