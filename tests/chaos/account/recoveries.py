"""How sessions came back, and how they should have (P12, P13): what two living nodes hand over, and what is replayed.

```text
meanwhile                                          a recovery is
nothing but planned stops, and links of clients    reattached or handed_over
a node died or stood still, output waited for its  mirrored, if all else was well: its backup is another node that
  backup (mirror sync)                             lives, is linked, and has had the time to be filled
a node died, stood still, or was parted            any rung; failed_over is replayed
the grid was hurt, or the machine was busy         any rung
```

A handoff waits for 250 ms, and a replay for a second, so that neither can be demanded of processes that wait for a
processor. Where a buffer was too short (``gap``), numbers cannot go on, and a replay is demanded. The same goes for a
client that was away for so long that its buffer may have been full: a node that stops does not hand on what is of no
use any more, and who serves the client then does not know why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.account.violation import Violation

KEPT: Final = frozenset({"reattached", "handed_over", "mirrored"})
"""Outcomes by which nothing is lost, because a node had all of the session, or a copy of all of it."""

AFTER: Final = 6.0
"""Seconds after trouble in which nodes have yet to find each other: they dial again after 5 s at most."""

DECIDED: Final = 1.0
"""Seconds before a client was without a connection in which it matters whether nodes had a processor."""

BUFFERED: Final = 3.0
"""Seconds for which a buffer of the run has room in any case: 256 packets, of some eighty a second."""

SUBSCRIBED: Final = 3.0
"""Seconds before the last word of its node in which a subscription may lack its values, and a client a position."""

FILLED: Final = 4.0
"""Seconds, besides, in which a backup is chosen and has copies of the few sessions there are."""

GRID: Final = "grid"
NODE: Final = "node"
PARTED: Final = "node-link"
BUSY: Final = "busy"
PLANNED: Final = "planned"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something went wrong that excuses less than the best recovery.

    Attributes:
        began: in seconds since the beginning of the run.
        ended: likewise.
        kind: ``GRID``, ``NODE``, ``PARTED``, ``BUSY``; or ``PLANNED``, which excuses only that there is no copy.
        node: which node stood still, died, or had to wait; empty for other kinds.
    """

    began: float
    ended: float
    kind: str
    node: str = ""

    def touches(self, recovery: Recovery) -> bool:
        """Tell whether it may have to do with a recovery."""
        if self.kind == BUSY and self.node not in {recovery.former, recovery.node}:
            return False
        since = recovery.at - recovery.away - DECIDED if self.kind == BUSY else recovery.heard - AFTER
        return self.began <= recovery.at and self.ended >= since


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A session got a connection again.

    Attributes:
        at: when the welcome came.
        heard: when the client had last heard of its node, or before.
        away: seconds for which it was without a connection.
        session: its id.
        who: which client.
        outcome: the rung.
        reason: why it was not reattached; empty if it was.
        former: the node that served it before.
        node: the node that serves it now.
        named: whether the client named positions.
        replayed: whether the welcome says that everything follows.
    """

    at: float
    heard: float
    away: float
    session: str
    who: str
    outcome: str
    reason: str = ""
    former: str = ""
    node: str = ""
    named: bool = False
    replayed: bool = False

    @property
    def may_have_gap(self) -> bool:
        """Whether packets that it missed may have been too many for its buffer."""
        return self.reason == "gap" or self.away > BUFFERED

    @property
    def shows_values(self) -> bool:
        """Whether current values may follow in place of what was missed."""
        return self.outcome not in KEPT and not self.replayed


class Recoveries:
    """All recoveries of a run, and what excuses them.

    Attributes:
        all: in the order in which they came.
        troubles: see there.
        copied: whether output waits for a backup, so that copies lack nothing.
        handoffs: how many had to be ``KEPT``, as two nodes lived.
        copies: how many had to be, as a backup had a copy.
        replays: how many had to be replayed, if not ``KEPT``.
        violations: found by ``judge``.
    """

    def __init__(self) -> None:
        self.all: list[Recovery] = []
        self.troubles: list[Trouble] = []
        self.copied = False
        self.handoffs = 0
        self.copies = 0
        self.replays = 0
        self.violations: list[Violation] = []

    def judge(
        self,
        subscribed: Mapping[str, Sequence[float]],
        more: Iterable[Trouble] = (),
        opened: Mapping[str, float] | None = None,
    ) -> None:
        """Judge all of them, once.

        Args:
            subscribed: by session, when its subscriptions began; who has none misses nothing.
            more: troubles that others have noted.
            opened: when each session was.
        """
        troubles = [*self.troubles, *more]
        served = dict(opened or {})
        for each in self.all:
            if self.copied and self._has_copy(each, served.get(each.session, each.heard), troubles):
                self.copies += 1
                if each.outcome not in KEPT:
                    self._violated("P12", each, "its node died, another one had a copy of all, and it was not used")
            served[each.session] = each.at
            near = [trouble for trouble in troubles if trouble.touches(each)]
            self._judge(each, subscribed.get(each.session, ()), near)

    @staticmethod
    def _has_copy(recovery: Recovery, served: float, troubles: Sequence[Trouble]) -> bool:
        """Tell whether the backup of the node that served a session since a time must have had a copy of it."""
        if recovery.may_have_gap:
            return False
        near = [each for each in troubles if each.began <= recovery.at and each.ended >= served]
        died = [each for each in near if each.kind == NODE and each.node == recovery.former]
        if len(died) != 1 or not served + FILLED <= died[0].began <= recovery.heard + AFTER:
            return False
        settled = died[0].began - AFTER - FILLED
        others = (each for each in troubles if each is not died[0])
        return not any(each.began <= recovery.at and each.ended >= settled for each in others)

    def _judge(self, recovery: Recovery, subscribed: Sequence[float], troubles: Sequence[Trouble]) -> None:
        kinds = {trouble.kind for trouble in troubles} - {PLANNED}
        if kinds & {GRID, BUSY}:
            return
        if not kinds and not recovery.may_have_gap:
            self.handoffs += 1
            if recovery.outcome not in KEPT:
                self._violated("P12", recovery, "two nodes lived and were linked, and it was not handed over")
                return
        stood_still = any(trouble.kind == NODE and trouble.node == recovery.node for trouble in troubles)
        is_fresh = any(recovery.heard - SUBSCRIBED <= at for at in subscribed)
        if recovery.named and subscribed and not stood_still and not is_fresh:
            self.replays += recovery.outcome not in KEPT
            if recovery.shows_values:
                self._violated("P13", recovery, "the grid was there, and it was not replayed")

    def _violated(self, promise: str, recovery: Recovery, what: str) -> None:
        told = f"{recovery.outcome} {recovery.reason}".strip()
        where = f"from {recovery.former or '?'} to {recovery.node}, heard at {recovery.heard:.1f} s"
        self.violations.append(
            Violation(promise, recovery.at, recovery.who, f"{what}: {told}, {where}, session {recovery.session}")
        )
