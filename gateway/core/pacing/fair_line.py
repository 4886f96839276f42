"""Those who wait, fair by key, each of whom may leave at any time or is too many (P20)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MORE: Final = 2
"""By how many more one key must have than another for its newest to make room: with one less, the two would only change
places."""


class FairLine(Generic[T]):
    """Those who wait, fair by key: the first of each key, then the second of each, and so on.

    Those of one key keep the order in which they came; if all are of one key, or each is of its own, all do. A step
    takes the same time however many wait, and however many keys they have.
    """

    __slots__ = ("_all", "_by_count", "_by_key", "_most")

    def __init__(self) -> None:
        self._all: OrderedDict[T, tuple[object, float]] = OrderedDict()
        self._by_key: OrderedDict[object, OrderedDict[T, None]] = OrderedDict()
        self._by_count: dict[int, OrderedDict[object, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._all)

    def push(self, key: object, item: T, until: float) -> None:
        """Add one at the end of those of its key.

        Args:
            key: whose.
            item: which one; it is not in the line.
            until: when it has waited too long, in seconds; not before that of whoever came before.
        """
        self._all[item] = key, until
        items = self._by_key.get(key)
        if items is None:
            items = self._by_key[key] = OrderedDict()
        items[item] = None
        self._count(key, len(items) - 1, len(items))

    def pop(self) -> T:
        """Take out the one whose turn it is.

        Raises:
            StopIteration: nobody waits.
        """
        key, items = next(iter(self._by_key.items()))
        item = next(iter(items))
        self.remove(item)
        if items:
            self._by_key.move_to_end(key)
        return item

    def remove(self, item: T) -> None:
        """Take one out, if it is in the line."""
        found = self._all.pop(item, None)
        if found is None:
            return
        key, _ = found
        items = self._by_key[key]
        del items[item]
        if not items:
            del self._by_key[key]
        self._count(key, len(items) + 1, len(items))

    @property
    def oldest(self) -> tuple[T, float]:
        """Who has waited for longest, and until when it waits; somebody does."""
        item = next(iter(self._all))
        return item, self._all[item][1]

    def crowding(self, key: object) -> T | None:
        """Find who should make room for one more of a key: the newest of the key that has most.

        Returns:
            That one; None if no key has so many more than this one that this would be fairer.
        """
        if self._most < len(self._by_key.get(key, ())) + MORE:
            return None
        crowd = next(iter(self._by_count[self._most]))
        return next(reversed(self._by_key[crowd]))

    def _count(self, key: object, before: int, now: int) -> None:
        """Note that a key has one more or one less than before."""
        if before:
            keys = self._by_count[before]
            del keys[key]
            if not keys:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[key] = None
        if now > self._most or self._most not in self._by_count:
            self._most = now
