"""Whose turn it is, when several want more than can be done at once: deficit round robin, newcomers first (P20).

```text
                 ┌─ newcomers ──▶ served first, until their quantum is used up ─┐
somebody waits ──┤                                                              ▼
                 └────────────── the line: one after the other, a quantum each round ◀─┐
                                     │ has used more than its quantum: owes the rest ──┘
                                     └ nothing waits for it any more: leaves
```

That is the order of FQ-CoDel (RFC 8290, section 4.2). Whoever wants little is a newcomer each time, and passes in front
of those who want much. Who comes back too soon is none: it has to wait until everybody in line has had a turn.

Pure: what a turn has cost is charged after it, in whatever unit the caller counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_OWED: Final = 8
"""Quanta that somebody can owe. A turn that cost more was not the doing of whoever had it: the process stood still."""


class RoundRobin(Generic[K]):
    """Those who wait, in the order of their turns.

    Args:
        quantum: cost of what each may do in one round; positive.
    """

    def __init__(self, quantum: float) -> None:
        self._quantum = quantum
        self._waiting: set[K] = set()
        self._newcomers: deque[K] = deque()
        self._line: deque[K] = deque()
        self._credit: dict[K, float] = {}
        """Of everybody in one of the two, also of those for whom nothing waits any more."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Something waits for *key* from now on; no effect if it does already."""
        self._waiting.add(key)
        if key not in self._credit:
            self._credit[key] = self._quantum
            self._newcomers.append(key)

    def remove(self, key: K) -> None:
        """Nothing waits for *key* any more; no effect if nothing does. What it owes is remembered until its turn."""
        self._waiting.discard(key)

    def charge(self, key: K, cost: float) -> None:
        """Charge *key*, which is in line, for what was done for it."""
        self._credit[key] = max(self._credit[key] - cost, -MOST_OWED * self._quantum)

    def first(self) -> K | None:
        """Tell whose turn it is; None if nobody waits.

        It stays the turn of the same one until its quantum is used up or nothing waits for it, or a newcomer comes.
        """
        newcomers, line, credit = self._newcomers, self._line, self._credit
        while newcomers or line:
            is_new = bool(newcomers)
            queue = newcomers if is_new else line
            key = queue[0]
            if key in self._waiting and credit[key] > 0:
                return key
            queue.popleft()
            if key in self._waiting:
                credit[key] += self._quantum
                line.append(key)
            elif is_new and line:
                # If it comes back before its turn, it is no newcomer: else it could keep all others from theirs.
                line.append(key)
            else:
                del credit[key]
        return None
