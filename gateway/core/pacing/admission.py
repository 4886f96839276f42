"""Who is admitted when more clients come than a node can take on at once: pure decisions, no I/O and no clock.

```text
 arrive ──room──▶ returning ─┐
    │             new ───────┴──▶ release: at a steady pace, returning ones first, but for one in eight
    │              └──▶ expired: waited for longer than patience
    └──no room──▶ told when to come back
```

A client that comes back has something to lose, its window runs; one that is new has not. So whoever is known to return
goes first. What cannot be served within the patience of those who wait (a load balancer's, above all) is told so at
once, and when to come again: each refusal has a time slot of its own, one after the other at the pace of admission, so
that the refused do not come back as the crowd they were.

Nobody has shown yet who it is, and whoever likes can say that it comes back. So addresses take turns, among those who
come back and among the new; and if there is no room, the newest of the address that has most in it makes room. And
of eight that are admitted one is new, if there are any, who have an eighth of the room (P20).
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from gateway.core.pacing.fair_line import FairLine
from gateway.core.pacing.precedence import NEW_ONE_IN, Precedence
from gateway.core.pacing.rates import TokenBucket

V = TypeVar("V")

PACE_BURST: Final = 0.04
"""Seconds' worth of admissions that may be made together: two rounds of admissions
(``gateway.app.admission.connection_limiter``), so that one that comes late costs nobody his turn. It is the work of
some milliseconds, and nobody shall wait for more."""

LEAST_RETRY: Final = 1.0
"""Seconds after which a refused client comes back at the earliest: what HTTP can say, and long enough that a refusal,
which costs a node a third of an admission, pays."""


class AdmissionQueue(Generic[V]):
    """Those who wait to be admitted.

    Args:
        rate: admissions per second while the node has others to serve.
        patience: seconds that somebody waits at most.
        longest: seconds after which a refused client is asked to come back at the latest.
    """

    def __init__(self, *, rate: float, patience: float, longest: float) -> None:
        self._rate = rate
        self._patience = patience
        self._longest = longest
        self._pace = TokenBucket(rate, max(1.0, rate * PACE_BURST))
        self._returning: FairLine[V] = FairLine()
        self._new: FairLine[V] = FairLine()
        self._precedence = Precedence()
        self._slot = float("-inf")

    def __len__(self) -> int:
        return len(self._returning) + len(self._new)

    def arrive(
        self, candidate: V, now: float, *, address: str | None = None, returning: bool, paced: bool
    ) -> tuple[V, float] | None:
        """Let somebody wait.

        Args:
            candidate: who; not one of those who wait already.
            now: seconds.
            address: with whom it shares its turns and its room; None if it stands for itself.
            returning: whether it is known to come back to something.
            paced: whether the node has others to serve, see ``release``.

        Returns:
            Who does not wait any more for want of room, be it the candidate or another one in its place, and after how
            many seconds it should come back; None if all do.
        """
        line, key = self._returning if returning else self._new, candidate if address is None else address
        refused: V | None = None
        # At full speed there is no telling how fast that is; those who wait too long will be told.
        if paced and self._is_full(returning=returning):
            refused = line.crowding(key)
            if refused is None:
                return candidate, self._refuse(now)
            line.remove(refused)
        line.push(key, candidate, now + self._patience)
        return None if refused is None else (refused, self._refuse(now))

    def release(self, now: float, *, paced: bool, most: int) -> list[V]:
        """Admit whose turn it is.

        Args:
            now: seconds.
            paced: whether the pace is kept; if not, nobody would gain by it.
            most: admit no more than so many together.
        """
        admitted: list[V] = []
        while len(admitted) < most and self:
            if paced and self._pace.take(now) > 0:
                break
            new = self._precedence.is_for_new(returning=bool(self._returning), new=bool(self._new))
            self._precedence.served(new=new, waits=bool(self._new))
            admitted.append((self._new if new else self._returning).pop())
        return admitted

    def expired(self, now: float) -> list[tuple[V, float]]:
        """Take out those who have waited too long; each with the seconds after which it should come back."""
        found: list[tuple[V, float]] = []
        for line in (self._returning, self._new):
            while line:
                candidate, until = line.oldest
                if until > now:
                    break
                line.remove(candidate)
                found.append((candidate, self._refuse(now)))
        return found

    def withdraw(self, candidate: V) -> None:
        """Somebody has left."""
        self._returning.remove(candidate)
        self._new.remove(candidate)

    def next(self, now: float, *, paced: bool) -> float | None:
        """Tell after how many seconds ``release`` or ``expired`` has something; None if nobody waits."""
        if not self:
            return None
        if not paced:
            return 0.0
        ends = [line.oldest[1] for line in (self._returning, self._new) if line]
        return max(0.0, min(self._pace.wait(now), min(ends) - now))

    def _is_full(self, *, returning: bool) -> bool:
        """Tell whether one who comes now would be served too late."""
        room = self._rate * self._patience
        of_new = room / NEW_ONE_IN
        if returning:
            return len(self._returning) + min(len(self._new), of_new) >= room
        return len(self._new) >= of_new and len(self) >= room

    def _refuse(self, now: float) -> float:
        """Give the next time slot away."""
        self._slot = max(self._slot, now + max(LEAST_RETRY, len(self) / self._rate)) + 1 / self._rate
        # Beyond the longest, clients' own random delays spread them.
        self._slot = min(self._slot, now + self._longest)
        return self._slot - now
