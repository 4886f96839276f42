"""The recovery objective: what was promised, and how much of what may go wrong has gone wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from pipeline.gold.words import AWAY, EXPIRED

DEFAULT_SHARE: Final = 0.999
"""Of 1,000 clients that have to come back, one may find its session gone, be late, have a loss or stay away."""

DEFAULT_AWAY_SECONDS: Final = 10.0
"""A dead node's clients are back within seconds; ten leave room for a client's longest first backoffs."""


_ROUNDING: Final = 1e-6
"""Of a client: nine tenths of ten are not quite nine in binary numbers."""


class Objective(NamedTuple):
    """What was promised.

    Attributes:
        share: of all clients that had to come back which have to be back in time and whole, between 0 and 1.
        away: seconds after which a client that an incident disturbed is not back in time any more. How long clients
            stay away when all nodes are well is their own affair, and counts for nothing.
    """

    share: float = DEFAULT_SHARE
    away: float = DEFAULT_AWAY_SECONDS


class Judged(NamedTuple):
    """Those who had to come back in one hour.

    Attributes:
        hour: the instant it begins at, UTC.
        tried: clients that came back, were refused for good or never came back from an incident.
        refused: of these, refused for good; a client that tries a dead token often is one.
        lossy: of these, back with a loss that is known.
        late: of these, back without a loss after an incident, but later than promised.
        missed: of these, never back from an incident: the session expired, or has been away for longer than promised.
    """

    hour: datetime
    tried: int
    refused: int
    lossy: int
    late: int
    missed: int = 0

    @property
    def bad(self) -> int:
        """All that count against the objective."""
        return self.refused + self.lossy + self.late + self.missed


@dataclass(frozen=True, slots=True)
class BurnDown:
    """How the error budget was used up.

    Attributes:
        objective: what was promised.
        hours: those in which somebody had to come back, in order.
    """

    objective: Objective
    hours: tuple[Judged, ...]

    @property
    def tried(self) -> int:
        """Clients that had to come back."""
        return sum(each.tried for each in self.hours)

    @property
    def bad(self) -> int:
        """Of these, those that count against the objective."""
        return sum(each.bad for each in self.hours)

    @property
    def refused(self) -> int:
        """Of these, clients that were refused for good."""
        return sum(each.refused for each in self.hours)

    @property
    def missed(self) -> int:
        """Of these, clients that never came back from an incident."""
        return sum(each.missed for each in self.hours)

    @property
    def budget(self) -> float:
        """How many might be bad in the whole time without breaking the promise."""
        return (1 - self.objective.share) * self.tried

    @property
    def share(self) -> float | None:
        """Clients that were back in time and whole as a share of all; None if nobody had to come back."""
        return (self.tried - self.bad) / self.tried if self.tried else None

    @property
    def is_met(self) -> bool | None:
        """Whether the promise was kept; None if nobody had to come back, so that there is nothing to judge."""
        return self.bad <= self.budget + _ROUNDING if self.tried else None

    def left(self) -> list[tuple[datetime, float]]:
        """Tell for each hour which share of the budget was left at its end; negative if more was used than there is.

        Without a budget, as when nothing may go wrong, all of it is left until something is bad.
        """
        told, used = [], 0
        for each in self.hours:
            used += each.bad
            told.append((each.hour, 1 - used / self.budget if self.budget else float(not used)))
        return told


def judge(objective: Objective, gold: Mapping[str, Sequence[Mapping[str, Any]]]) -> BurnDown:
    """Hold what became of clients in some time against an objective.

    Each client that had to come back counts once for each time that it had to: whoever never came back from an incident
    is not counted again when it is refused for good afterwards, nor if two incidents took the same connection.

    Args:
        objective: what was promised.
        gold: rows of the gold tables, by table.
    """
    missed = _missed(objective, gold)
    counts: dict[str, defaultdict[datetime, int]] = {name: defaultdict(int) for name in Judged._fields[1:]}
    for row in gold["objectives"]:
        # Rows that an older release has made do not tell how many clients were refused, but how often.
        older = row["refused"] if row["refused_sessions"] is None else 0
        for name, number in (("tried", row["comebacks"] + older), ("refused", older), ("lossy", row["lossy"])):
            counts[name][row["hour"]] += number
    first_refusals: dict[str, datetime] = {}
    for row in gold["refused_sessions"]:
        first_refusals[row["session"]] = min(row["first_at"], first_refusals.get(row["session"], row["first_at"]))
    # A session that two incidents touched came back once.
    late = {
        (row["session"], row["back_at"])
        for row in gold["incident_sessions"]
        if row["back_at"] is not None and (row["away_ms"] or 0) > objective.away * 1000 and not row["lost"]
    }
    for session, at in first_refusals.items():
        if session not in missed:
            counts["refused"][_hour(at)] += 1
            counts["tried"][_hour(at)] += 1
    for began in missed.values():
        counts["missed"][_hour(began)] += 1
        counts["tried"][_hour(began)] += 1
    for _session, at in late:
        if _hour(at) in counts["tried"]:
            counts["late"][_hour(at)] += 1
    hours = sorted(hour for hour, number in counts["tried"].items() if number)
    return BurnDown(objective, tuple(Judged(hour, *(each[hour] for each in counts.values())) for hour in hours))


def _missed(objective: Objective, gold: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, datetime]:
    """Tell which sessions never came back from an incident, and when the first one began that it is owed to."""
    began = {row["incident"]: row["begins"] for row in gold["incidents"]}
    known_until = _known_until(gold["losses"])
    missed: dict[str, datetime] = {}
    for row in gold["incident_sessions"]:
        at = began.get(row["incident"]) or row["left_at"] or row["connected_at"]
        is_late = row["fate"] == AWAY and at + timedelta(seconds=objective.away) < known_until
        if row["fate"] == EXPIRED or is_late:
            missed[row["session"]] = min(at, missed.get(row["session"], at))
    return missed


def _known_until(losses: Iterable[Mapping[str, Any]]) -> datetime:
    """Tell up to when the journal has told anything; a clock that is years ahead counts to the end of its day."""
    ends = (min(row["last_at"], datetime.combine(row["date"], time.min, UTC) + timedelta(days=1)) for row in losses)
    return max(ends, default=datetime.min.replace(tzinfo=UTC))


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
