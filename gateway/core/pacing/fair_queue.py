"""A queue in which no key keeps another one waiting, however many it has in it (P20)."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Those who wait, fair by key: the first of each key, then the second of each, and so on."""

    __slots__ = ("_length", "_waiting")

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def keys(self) -> int:
        """How many keys have something in it."""
        return len(self._waiting)

    def push(self, key: str, item: T) -> None:
        """Add one at the end of those of its key."""
        self._length += 1
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque((item,))
        else:
            waiting.append(item)

    def pop(self) -> T:
        """Take out the one whose turn it is.

        Raises:
            StopIteration: nobody waits.
        """
        key = next(iter(self._waiting))
        waiting = self._waiting[key]
        item = waiting.popleft()
        self._length -= 1
        if waiting:
            self._waiting.move_to_end(key)
        else:
            del self._waiting[key]
        return item
