"""What a change costs: this version and another in turns, figure by figure, with the interval of each ratio."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from benchmarks.cases.base import Better, Case, Figure
from benchmarks.paired import Ratio
from benchmarks.runner import Turn

BOUND: Final = 1.02
"""How much of the other version's cost this one's may be."""

LEAST_TURNS: Final = 6
"""From so many on the range of all ratios holds the true median with the probability of ``benchmarks.paired``."""


class Finding(StrEnum):
    """What the turns say about a figure."""

    HOLDS = "holds"
    """The whole interval is within the bound."""

    PROBABLE = "holds by the median"
    """The median is within, and the interval reaches beyond: more turns would tell."""

    DOUBTFUL = "in doubt"
    """The median is beyond, and the interval reaches within: more turns would tell."""

    BROKEN = "worse"
    """The whole interval is beyond."""

    UNKNOWN = "too few turns"


@dataclass(frozen=True)
class Compared:
    """A figure of both versions.

    Attributes:
        case: its name.
        variant: of the case.
        figure: that is compared.
        before: median of the other version.
        after: median of this one.
        ratio: after by before, of the turns.
        finding: whether this version is within the bound.
    """

    case: str
    variant: str
    figure: Figure
    before: float
    after: float
    ratio: Ratio
    finding: Finding


def compared(case: Case, turns: Sequence[Turn]) -> list[Compared]:
    """Compare what the turns of a case gave, for each of its workloads.

    CPU comes first, then what else has a better and a worse. A round in which one of both was wrong or
    overloaded counts all the same; it is marked where rows are shown.
    """
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for turn in turns:
        if turn.case != case.name:
            continue
        after = {row.variant: row.values for row in turn.after}
        for row in turn.before:
            for name, value in row.values.items():
                now = after.get(row.variant, {}).get(name)
                if now is not None and value > 0 and now > 0:
                    pairs[row.variant, name].append((value, now))
    figures = sorted((each for each in case.figures if each.better is not Better.NEITHER), key=_after_cpu)
    variants = dict.fromkeys(variant for variant, _ in pairs)
    return [
        _compared(case, variant, figure, pairs[variant, figure.name])
        for variant in variants
        for figure in figures
        if (variant, figure.name) in pairs
    ]


def _after_cpu(figure: Figure) -> bool:
    """Sort: figures of CPU first, as they are what a busy machine changes least."""
    return "CPU" not in figure.title and not figure.title.startswith("…")


def _compared(case: Case, variant: str, figure: Figure, pairs: Sequence[tuple[float, float]]) -> Compared:
    before, after = [each for each, _ in pairs], [each for _, each in pairs]
    ratio = Ratio.of(before, after)
    return Compared(case.name, variant, figure, median(before), median(after), ratio, _finding(figure, ratio))


def _finding(figure: Figure, ratio: Ratio) -> Finding:
    if ratio.turns < LEAST_TURNS:
        return Finding.UNKNOWN
    if figure.better is Better.HIGHER:
        # A rate that is 1/1.02 of the other's is 2 % slower.
        best, middle, worst = 1 / ratio.high, 1 / ratio.middle, 1 / ratio.low
    else:
        best, middle, worst = ratio.low, ratio.middle, ratio.high
    if worst <= BOUND:
        return Finding.HOLDS
    if best > BOUND:
        return Finding.BROKEN
    return Finding.PROBABLE if middle <= BOUND else Finding.DOUBTFUL
