"""Whether targets are met."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases.base import Reference, Results, Target
from benchmarks.comparison import is_spread, kept_up, ratio_of


@dataclass(frozen=True)
class Verdict:
    """A target and what became of it.

    Attributes:
        target: the demand.
        ours: our median; None if it was not measured.
        reference: the other's median; None if there is none or it was not measured.
        reached: what stands against ``target.factor``: the ratio of the medians, or ours itself if the target is a
            bound; None if it cannot be told.
        least: the smallest value of *reached* that the rounds allow, if they lie too far apart for a median (see
            ``benchmarks.comparison``); else None.
        most: the largest, likewise.
        met: whether the target is met, at the end of the range that is worse for us; None if it cannot be told.
        reason: why there is no ratio although both were measured; else empty.
    """

    target: Target
    ours: float | None
    reference: float | None
    reached: float | None = None
    least: float | None = None
    most: float | None = None
    met: bool | None = None
    reason: str = ""


def judge(target: Target, results: Results) -> Verdict:
    """Compare medians, or ranges where medians say too little.

    Nothing is divided by the figure of a contestant that could not keep up. If we could not, the target is missed.
    """
    values = results.values(target.subject)
    others = [] if target.reference is None else results.values(target.reference)
    ours = results.median(target.subject)
    reference = None if target.reference is None else results.median(target.reference)
    if ours is None or (target.reference is not None and reference is None):
        return Verdict(target, ours, reference)
    if not _kept_up(target.subject, results):
        return Verdict(target, ours, reference, met=False, reason="we could not keep up with what was asked")
    if target.reference is None:
        return _bounded(target, ours, values)
    if not _kept_up(target.reference, results):
        return Verdict(target, ours, reference, reason=f"{target.reference.contestant} could not keep up")
    ratio = ratio_of(values, others)
    if ratio is None:
        return Verdict(target, ours, reference)
    least, most = (ratio.least, ratio.most) if ratio.is_range else (None, None)
    return Verdict(
        target, ours, reference, ratio.middle, least, most, _met(target, ratio.least if target.at_least else ratio.most)
    )


def _bounded(target: Target, ours: float, values: list[float]) -> Verdict:
    if not is_spread(values):
        return Verdict(target, ours, None, ours, met=_met(target, ours))
    least, most = min(values), max(values)
    return Verdict(target, ours, None, ours, least, most, _met(target, least if target.at_least else most))


def _met(target: Target, reached: float) -> bool:
    return reached >= target.factor if target.at_least else reached <= target.factor


def _kept_up(reference: Reference, results: Results) -> bool:
    return kept_up(results.of(reference))
