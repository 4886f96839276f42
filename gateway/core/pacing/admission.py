"""Who is admitted when more clients come than a node can take on at once: pure decisions, no I/O and no clock.

```text
 arrive ──room──▶ returning ─┐
    │             new ───────┴──▶ release: at a steady pace, returning ones first
    │              └──▶ expired: waited for longer than patience
    └──no room──▶ told when to come back
```

A client that comes back has something to lose, its window runs; one that is new has not. So whoever is known to return
goes first. What cannot be served within the patience of those who wait (a load balancer's, above all) is told so at
once, and when to come again: each refusal has a time slot of its own, one after the other at the pace of admission, so
that the refused do not come back as the crowd they were.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

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
        # By the time until which each waits; in the order in which they came.
        self._returning: dict[V, float] = {}
        self._new: dict[V, float] = {}
        self._slot = float("-inf")

    def __len__(self) -> int:
        return len(self._returning) + len(self._new)

    def arrive(self, candidate: V, now: float, *, returning: bool, paced: bool) -> float:
        """Let somebody wait.

        Args:
            candidate: who; not one of those who wait already.
            now: seconds.
            returning: whether it is known to come back to something.
            paced: whether the node has others to serve, see ``release``.

        Returns:
            0 if it waits now; else it does not, and should come back after so many seconds.
        """
        # At full speed there is no telling how fast that is; those who wait too long will be told.
        ahead = len(self._returning) if returning else len(self)
        if paced and ahead >= self._rate * self._patience:
            return self._refuse(now)
        (self._returning if returning else self._new)[candidate] = now + self._patience
        return 0.0

    def release(self, now: float, *, paced: bool, most: int) -> list[V]:
        """Admit whose turn it is.

        Args:
            now: seconds.
            paced: whether the pace is kept; if not, nobody would gain by it.
            most: admit no more than so many together.
        """
        admitted: list[V] = []
        while len(admitted) < most and (queue := self._returning or self._new):
            if paced and self._pace.take(now) > 0:
                break
            candidate = next(iter(queue))
            del queue[candidate]
            admitted.append(candidate)
        return admitted

    def expired(self, now: float) -> list[tuple[V, float]]:
        """Take out those who have waited too long; each with the seconds after which it should come back."""
        found: list[tuple[V, float]] = []
        for queue in (self._returning, self._new):
            while queue:
                candidate, until = next(iter(queue.items()))
                if until > now:
                    break
                del queue[candidate]
                found.append((candidate, self._refuse(now)))
        return found

    def withdraw(self, candidate: V) -> None:
        """Somebody has left."""
        self._returning.pop(candidate, None)
        self._new.pop(candidate, None)

    def next(self, now: float, *, paced: bool) -> float | None:
        """Tell after how many seconds ``release`` or ``expired`` has something; None if nobody waits."""
        if not self:
            return None
        if not paced:
            return 0.0
        heads = [next(iter(queue.values())) for queue in (self._returning, self._new) if queue]
        return max(0.0, min(self._pace.wait(now), min(heads) - now))

    def _refuse(self, now: float) -> float:
        """Give the next time slot away."""
        self._slot = max(self._slot, now + max(LEAST_RETRY, len(self) / self._rate)) + 1 / self._rate
        # Beyond the longest, clients' own random delays spread them.
        self._slot = min(self._slot, now + self._longest)
        return self._slot - now
