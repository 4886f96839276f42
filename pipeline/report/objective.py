"""The recovery objective: what was promised, and how much of what may go wrong has gone wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

DEFAULT_SHARE: Final = 0.999
"""Of 1,000 clients that come back, one may find its session gone, late or with a loss."""

DEFAULT_AWAY_SECONDS: Final = 10.0
"""A dead node's clients are back within seconds; ten leave room for a client's longest first backoffs."""


_ROUNDING: Final = 1e-6
"""Of a comeback: nine tenths of ten are not quite nine in binary numbers."""


class Objective(NamedTuple):
    """What was promised.

    Attributes:
        share: of all comebacks that have to be good ones, between 0 and 1.
        away: seconds after which a comeback from an incident is not a good one any more. How long clients stay away
            when all nodes are well is their own affair, and counts for nothing.
    """

    share: float = DEFAULT_SHARE
    away: float = DEFAULT_AWAY_SECONDS


class Judged(NamedTuple):
    """The comebacks of one hour.

    Attributes:
        hour: the instant it begins at, UTC.
        tried: clients that came back or were refused for good.
        refused: of these, refused for good.
        lossy: of these, back with a loss that is known.
        late: of these, back without a loss after an incident, but later than promised.
    """

    hour: datetime
    tried: int
    refused: int
    lossy: int
    late: int

    @property
    def bad(self) -> int:
        """All that count against the objective."""
        return self.refused + self.lossy + self.late


@dataclass(frozen=True, slots=True)
class BurnDown:
    """How the error budget was used up.

    Attributes:
        objective: what was promised.
        hours: those with comebacks or refusals, in order.
    """

    objective: Objective
    hours: tuple[Judged, ...]

    @property
    def tried(self) -> int:
        """Clients that came back or were refused for good."""
        return sum(each.tried for each in self.hours)

    @property
    def bad(self) -> int:
        """Of these, those that count against the objective."""
        return sum(each.bad for each in self.hours)

    @property
    def budget(self) -> float:
        """How many might be bad in the whole time without breaking the promise."""
        return (1 - self.objective.share) * self.tried

    @property
    def share(self) -> float | None:
        """Good comebacks as a share of all; None if nobody came."""
        return (self.tried - self.bad) / self.tried if self.tried else None

    @property
    def is_met(self) -> bool:
        """Whether the promise was kept; it was if nobody came."""
        return self.bad <= self.budget + _ROUNDING

    def left(self) -> list[tuple[datetime, float]]:
        """Tell for each hour which share of the budget was left at its end; negative if more was used than there is.

        Without a budget, as when nobody came or nothing may go wrong, all of it is left until something is bad.
        """
        told, used = [], 0
        for each in self.hours:
            used += each.bad
            told.append((each.hour, 1 - used / self.budget if self.budget else float(not used)))
        return told


def judge(objective: Objective, hours: Iterable[Mapping[str, Any]], touched: Iterable[Mapping[str, Any]]) -> BurnDown:
    """Hold the comebacks of some time against an objective.

    Args:
        objective: what was promised.
        hours: rows of the gold table ``objectives``.
        touched: rows of the gold table ``incident_sessions``.
    """
    tried: dict[datetime, int] = {}
    refused: dict[datetime, int] = {}
    lossy: dict[datetime, int] = {}
    late: dict[datetime, int] = {}
    for row in hours:
        hour = row["hour"]
        tried[hour] = tried.get(hour, 0) + row["comebacks"] + row["refused"]
        refused[hour] = refused.get(hour, 0) + row["refused"]
        lossy[hour] = lossy.get(hour, 0) + row["lossy"]
    # A session that two incidents touched came back once.
    late_ones = {
        (row["session"], row["back_at"])
        for row in touched
        if row["back_at"] is not None and (row["away_ms"] or 0) > objective.away * 1000 and not row["lost"]
    }
    for _session, back_at in late_ones:
        hour = back_at.replace(minute=0, second=0, microsecond=0)
        if hour in tried:
            late[hour] = late.get(hour, 0) + 1
    return BurnDown(
        objective,
        tuple(Judged(hour, tried[hour], refused[hour], lossy[hour], late.get(hour, 0)) for hour in sorted(tried)),
    )
