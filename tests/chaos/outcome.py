"""What came of a run: the faults as they happened, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.account.violation import Violation
from tests.chaos.plan import Plan, Step

RECENT: Final = 10.0
"""Seconds before a violation in which the faults are named with it."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it happened.

    Attributes:
        step: of the plan.
        began: seconds since the beginning of the run.
        ended: likewise, when it was healed.
        trouble: what went wrong with ending it; empty if nothing did.
    """

    step: Step
    began: float
    ended: float
    trouble: str = ""


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        plan: that was struck.
        violations: empty if everything held.
        struck: the faults.
        left_out: steps that could not begin in time, as what they hit had not been healed.
        figures: for the table, by name.
        folder: where logs are.
        folded: updates that were folded on the way to somebody, as marks told.
    """

    plan: Plan
    folder: Path
    violations: list[Violation] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    left_out: list[Step] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    folded: int = 0

    def around(self, at: float) -> list[str]:
        """Tell the faults that were active shortly before a moment."""
        return [
            f"{each.step} ({each.began:.1f} s to {each.ended:.1f} s)"
            for each in self.struck
            if each.began <= at and each.ended >= at - RECENT
        ]
