"""What nodes have found of a clock of Redis that was set (ADR 0034): alone that sessions live on is not enough.

Every step that lasts is told by some node, with what the clock was really set by; nothing else is told; and at the end
every node takes the clock for what it is.

Two things nobody can know. A step that only nodes have met which started meanwhile: they had seen no other clock. And
that a part of the grid has forgotten that the clock was right again, if nobody was there who knew: the time of the grid
stays behind or ahead by that step then, for all nodes alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.violation import Violation

FIRST_READ: Final = '"revocations_read"'
"""What a node logs as soon as it has reached the grid for the first time."""

UNNOTICED: Final = 5.0
"""Seconds by which the clock of Redis may be off without being taken for set; so says the decision."""

EXACT: Final = UNNOTICED + 1.0
"""Seconds by which what nodes make of a clock may differ from what it was set to."""

FOUND: Final = 15.0
"""Seconds within which what nodes tell must have been true: for a node that was away, and meets another clock."""

BEFORE: Final = 5.0
"""Seconds that a node needs after its start to have seen the clock, and to be asked by nobody to stop."""

LASTS: Final = 3.0
"""Seconds for which a clock must be off, so that nodes must have told of it: some renewals of a lease."""


@dataclass(frozen=True, slots=True)
class Told:
    """A node has recorded that the clock of Redis was set.

    Attributes:
        at: when.
        node: which.
        shift: by how many seconds it is ahead of the time of the grid since.
    """

    at: float
    node: str
    shift: float


@dataclass(frozen=True, slots=True)
class Off:
    """The clock was off for a time, in seconds since the beginning of the run.

    Attributes:
        began: when it was set.
        ended: when it was set right.
        seconds: by how many it was ahead.
    """

    began: float
    ended: float
    seconds: float


def read_starts(lines: Iterable[str], *, began: float) -> list[float]:
    """Find in the log of a node when it started, and when it then reached the grid: only then it saw a clock.

    Args:
        lines: of the log.
        began: the beginning of the run, in seconds since 1970.
    """
    found: list[float] = []
    reached = True
    for line in lines:
        if '"node_started"' in line:
            reached = False
        elif reached or FIRST_READ not in line:
            continue
        else:
            reached = True
        found.append(datetime.fromisoformat(json.loads(line)["time"]).timestamp() - began)
    return found


def bases(
    off: Sequence[Off],
    forgotten: Sequence[Forgotten],
    at: float,
    *,
    starts: Mapping[str, Sequence[float]] | None = None,
) -> list[float]:
    """Tell by how many seconds the time of the grid may be off for good, at a time.

    Args:
        off: when the clock was off.
        forgotten: what a part of the grid may have forgotten.
        at: when, in seconds since the beginning of the run.
        starts: when each node started, and reached the grid.
    """
    lasting = (step for step in off if any(step.began <= each.ended and each.began <= at for each in forgotten))
    # To those that have seen no other clock than the wrong one, it went back by as much when it was set right.
    taken_for_right = (step for step in off if step.began <= at and not _somebody_knew(step, starts))
    return [0.0, *(step.seconds for step in lasting), *(-step.seconds for step in taken_for_right)]


def read_told(node: str, lines: Iterable[str], *, began: float) -> list[Told]:
    """Find in the log of a node what it has recorded.

    Args:
        node: whose.
        lines: of the log.
        began: the beginning of the run, in seconds since 1970.
    """
    found = []
    for line in lines:
        if '"grid_clock_stepped"' in line:
            entry = json.loads(line)
            at = datetime.fromisoformat(entry["time"]).timestamp() - began
            found.append(Told(at, node, float(entry["shift_seconds"])))
    return found


def judge_clock(
    told: Sequence[Told],
    off: Sequence[Off],
    *,
    starts: Mapping[str, Sequence[float]] | None = None,
    forgotten: Sequence[Forgotten] = (),
) -> list[Violation]:
    """Compare what nodes have recorded with how the clock was set.

    Args:
        told: by all nodes.
        off: when the clock was off; it was right at all other times.
        starts: when each node started, and reached the grid.
        forgotten: what a part of the grid may have forgotten.
    """
    violations = []
    for each in told:
        near = [step for step in off if step.began <= each.at <= step.ended + FOUND]
        # It is right between and after steps, and a node that was away may have met the clock before or after one.
        true = [0.0, *(step.seconds for step in near)] if near else []
        possible = [base + seconds for base in bases(off, forgotten, each.at, starts=starts) for seconds in true]
        if not any(abs(each.shift - seconds) <= EXACT for seconds in possible):
            what = f"told that the clock of Redis is ahead by {each.shift:g} s, and it was by {true or 'nothing'}"
            violations.append(Violation("P7", each.at, each.node, what))
    for step in off:
        possible = [base + step.seconds for base in bases(off, forgotten, step.ended + FOUND, starts=starts)]
        known = any(
            step.began <= each.at <= step.ended + FOUND and any(abs(each.shift - it) <= EXACT for it in possible)
            for each in told
        )
        if not known and step.ended - step.began >= LASTS and _somebody_knew(step, starts):
            what = f"was set by {step.seconds:g} s for {step.ended - step.began:.1f} s, and no node told of it"
            violations.append(Violation("P7", step.began, "the clock of Redis", what))
    return violations


def _somebody_knew(step: Off, starts: Mapping[str, Sequence[float]] | None) -> bool:
    """Tell whether a node was there from before a step until it must have told of it."""
    if starts is None:
        return True
    return any(
        not any(step.began - BEFORE <= start <= step.ended + FOUND for start in started) for started in starts.values()
    )


def judge_shifts(at: float, shifts: Mapping[str, float], possible: Sequence[float] = (0.0,)) -> list[Violation]:
    """See that every node takes the clock for what it is, once it is right, and all of them alike.

    Args:
        at: when the metrics were read.
        shifts: by node, ``gateway_grid_clock_shift_seconds``.
        possible: by how many seconds the time of the grid may be off for good; see ``bases``.
    """
    alike = max(possible, key=lambda base: sum(abs(shift - base) <= EXACT for shift in shifts.values()))
    return [
        Violation("P7", at, node, f"takes the clock of Redis for {shift:g} s ahead, and it is by {alike:g} s")
        for node, shift in shifts.items()
        if abs(shift - alike) > EXACT
    ]
