"""What is counted besides the requests that locust counts itself; adds up over worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

MAXIMA: Final = frozenset({"longest_silence", "longest_recovery"})
"""Figures of which the largest counts, and not the sum."""


@dataclass(slots=True)
class Tally:
    """The counts of one process, or of all of them after ``add``.

    Attributes:
        sessions_opened: sessions that a node opened.
        sessions_lost: sessions that ended though nobody closed them, for whatever reason.
        attempts_failed: attempts to connect that ended without a welcome; the next one may have succeeded.
        reattached: recoveries on rung 1, and on those that are not known here and keep the numbering.
        handed_over: recoveries on rung 2.
        mirrored: recoveries on rung 3.
        failed_over: recoveries on rung 4, and on those that are not known here and begin a numbering.
        replayed: of the failovers of subscribers, those that said that every missed update follows.
        not_replayed: of the failovers of subscribers, the others: current values follow.
        declared_lost: packets that welcomes said would never come.
        declared_folded: updates that newer ones said they took the place of.
        replaced: updates that a declared failover, reread or folding skipped: a newer value came in their place.
        undeclared: updates missing without a declaration.
        notices: notices of the server.
        violations: broken promises of any kind, ``undeclared`` included.
        updates: updates received.
        fresh: of these, the ones that told something new.
        owed: updates between the first and the last of each source that a subscriber saw.
        subscribed_seconds: for how long sessions were subscribed, added up.
        publishing_seconds: for how long publishers published, added up.
        published: publishes that were confirmed.
        sent: messages whose receipt came.
        accepted: messages whose acceptance was confirmed.
        messages: messages received.
        redelivered: of these, the ones that somebody may have received before.
        events: events of histories that were read.
        asked: requests that were asked of handlers; one that is asked again counts again.
        answered: of these, the ones that were answered.
        handled: requests that handlers were given.
        ticks: how often the generator looked whether it keeps up.
        late_ticks: how often it did not.
        longest_silence: seconds without an update, the most that any subscriber saw.
        longest_recovery: seconds from a loss to the welcome, the most that any session needed.
    """

    sessions_opened: int = 0
    sessions_lost: int = 0
    attempts_failed: int = 0
    reattached: int = 0
    handed_over: int = 0
    mirrored: int = 0
    failed_over: int = 0
    replayed: int = 0
    not_replayed: int = 0
    declared_lost: int = 0
    declared_folded: int = 0
    replaced: int = 0
    undeclared: int = 0
    notices: int = 0
    violations: int = 0
    updates: int = 0
    fresh: int = 0
    owed: int = 0
    subscribed_seconds: float = 0.0
    publishing_seconds: float = 0.0
    published: int = 0
    sent: int = 0
    accepted: int = 0
    messages: int = 0
    redelivered: int = 0
    events: int = 0
    asked: int = 0
    answered: int = 0
    handled: int = 0
    ticks: int = 0
    late_ticks: int = 0
    longest_silence: float = 0.0
    longest_recovery: float = 0.0

    def add(self, other: Tally) -> None:
        """Take the counts of another process in."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, max(mine, theirs) if each.name in MAXIMA else mine + theirs)

    def dump(self) -> dict[str, float]:
        """Return the counts as a worker reports them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def load(cls, counts: Mapping[str, float]) -> Self:
        """Read what ``dump`` made, perhaps in another process."""
        # Workers of another version may count other things: what is not known here decides nothing here.
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in counts.items() if name in known})  # type: ignore[arg-type]

    @property
    def recoveries(self) -> int:
        """Recoveries on any rung."""
        return self.reattached + self.handed_over + self.mirrored + self.failed_over
