"""What a run shows at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.chaos.outcome import Outcome
from tests.chaos.run import command_line

SHOWN: Final = 25
"""Violations that are shown; one fault may hurt every session."""


def report(outcome: Outcome, options: Sequence[str] = ()) -> str:
    """Write the table, the violations with what was struck before them, and how to repeat the run.

    Args:
        outcome: of the run.
        options: of the command line that decide the plan, besides seed, grid and minutes.
    """
    struck = Counter(each.step.fault for each in outcome.struck)
    lines = ["", *(f"  {name:24} {figure}" for name, figure in outcome.figures.items())]
    lines.append(f"  {'struck':24} {', '.join(f'{count} {name}' for name, count in sorted(struck.items()))}")
    if outcome.left_out:
        lines.append(f"  {'left out':24} {', '.join(map(str, outcome.left_out))}")
    lines.append("")
    for violation in outcome.violations[:SHOWN]:
        lines.append(f"VIOLATION  {violation}")
        lines += [f"           with {fault}" for fault in outcome.around(violation.at)]
    if len(outcome.violations) > SHOWN:
        counts = Counter(violation.promise for violation in outcome.violations)
        lines.append(f"and {len(outcome.violations) - SHOWN} more: {dict(counts)}")
    verdict = f"{len(outcome.violations)} violations" if outcome.violations else "every promise was kept"
    lines.append(f"{verdict}; logs in {outcome.folder}")
    lines.append(f"again: {command_line(outcome.plan, options)}")
    return "\n".join(lines)
