"""Whether targets are met."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases.base import Results, Target


@dataclass(frozen=True)
class Verdict:
    """A target and what became of it.

    Attributes:
        target: the demand.
        ours: our median; None if it was not measured.
        reference: the other's median; None if there is none or it was not measured.
        met: None if it cannot be told.
    """

    target: Target
    ours: float | None
    reference: float | None
    met: bool | None

    @property
    def reached(self) -> float | None:
        """What stands against ``target.factor``: the ratio, or ours itself if the target is a bound."""
        if self.ours is None:
            return None
        if self.target.reference is None:
            return self.ours
        return self.ours / self.reference if self.reference else None


def judge(target: Target, results: Results) -> Verdict:
    """Compare medians."""
    ours = results.median(target.subject)
    reference = None if target.reference is None else results.median(target.reference)
    verdict = Verdict(target, ours, reference, met=None)
    reached = verdict.reached
    if reached is None:
        return verdict
    met = reached >= target.factor if target.at_least else reached <= target.factor
    return Verdict(target, ours, reference, met=met)
