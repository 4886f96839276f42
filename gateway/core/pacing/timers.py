"""Many deadlines, one timer: what a node sleeps until, for all its sessions together."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MIN_HEAP_SLACK: Final = 64
"""Dead entries the heap may hold before it is swept, however few deadlines there are."""


class Deadlines(Generic[K]):
    """At most one deadline per key, and the earliest of all at hand.

    Nearly every packet moves its session's deadline to later. That costs one dictionary write here: the heap keeps the
    earlier time, and when it comes up, the deadline is looked at again and the entry put back (*lazy re-validation*).
    Only a deadline that moves to earlier needs a new entry. The old one is dead, and dead entries are swept when they
    outnumber the deadlines, so the heap never holds more than twice as many entries, plus ``MIN_HEAP_SLACK``.

    All times are seconds of one clock. No method waits.
    """

    __slots__ = ("_deadlines", "_entries", "_heap", "_pushed")

    def __init__(self) -> None:
        """Make an empty collection."""
        self._deadlines: dict[K, float] = {}
        # A key's live entry, recognised by identity; its time is never later than the deadline.
        self._entries: dict[K, tuple[float, int, K]] = {}
        # The number in the middle is unique, so that keys are never compared.
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0

    def schedule(self, key: K, deadline: float) -> bool:
        """Set the deadline of *key*, in the place of an earlier one.

        Returns:
            Whether ``next`` may be earlier now.
        """
        self._deadlines[key] = deadline
        entry = self._entries.get(key)
        if entry is not None and deadline >= entry[0]:
            return False
        heappush(self._heap, self._entry(key, deadline))
        self._sweep()
        return True

    def cancel(self, key: K) -> None:
        """Take the deadline of *key* away; no effect if there is none."""
        if self._deadlines.pop(key, None) is not None:
            del self._entries[key]
            self._sweep()

    def next(self) -> float | None:
        """Tell the earliest deadline, or None if there is none."""
        heap = self._heap
        while heap:
            entry = heap[0]
            time, _, key = entry
            if self._entries.get(key) is not entry:
                heappop(heap)
            elif time < (deadline := self._deadlines[key]):
                heapreplace(heap, self._entry(key, deadline))
            else:
                return time
        return None

    def due(self, now: float, *, most: int | None = None) -> list[K]:
        """Take out deadlines that have come.

        Args:
            now: seconds.
            most: how many to take out at most; None for all. After a pause all may have come.

        Returns:
            The keys whose deadline is *now* or before, the earliest first. They have no deadline any more.
        """
        keys: list[K] = []
        while len(keys) != most and (earliest := self.next()) is not None and earliest <= now:
            key = heappop(self._heap)[2]
            del self._deadlines[key], self._entries[key]
            keys.append(key)
        self._sweep()
        return keys

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: object) -> bool:
        return key in self._deadlines

    def _entry(self, key: K, deadline: float) -> tuple[float, int, K]:
        self._pushed += 1
        entry = self._entries[key] = (deadline, self._pushed, key)
        return entry

    def _sweep(self) -> None:
        """Rebuild the heap if more than half of it is dead: rare enough to cost each change a constant."""
        if len(self._heap) > 2 * len(self._deadlines) + MIN_HEAP_SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)
