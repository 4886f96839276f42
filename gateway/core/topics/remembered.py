"""Answers that are kept because the same questions come again and again, in a bounded number of bytes.

Clients choose most of the questions, and the longest are a hundred times as long as usual ones. So a bound on their
number would bound nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PLACE_BYTES: Final = 100
"""Bytes that an answer takes besides its key and itself: a place in a dictionary that is two thirds full."""


class Remembered(Generic[K, V]):
    """Answers by question, the ones that were asked for lately. None is no answer that can be remembered.

    There are two generations. New answers go into the younger one; when that has its half of the bytes, the older one
    is forgotten and the younger takes its place. An answer of the older one that is asked for becomes a younger one. So
    what is asked for all the time stays, whoever floods the rest.

    Args:
        most: bytes of all of it.
        size: tells the bytes of a key and its answer, without its place.
    """

    __slots__ = ("_half", "_older", "_size", "_younger", "_younger_bytes")

    def __init__(self, most: int, size: Callable[[K, V], int]) -> None:
        self._half = most // 2
        self._size = size
        self._younger: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self._younger_bytes = 0

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def get(self, key: K) -> V | None:
        """Return what is remembered; None if that is nothing."""
        found = self._younger.get(key)
        if found is None and self._older:
            found = self._older.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, answer: V) -> V:
        """Remember an answer, unless it alone is too large, and return it."""
        size = self._size(key, answer) + PLACE_BYTES
        if size > self._half:
            return answer
        if self._younger_bytes + size > self._half:
            self._older = self._younger
            self._younger = {}
            self._younger_bytes = 0
        self._younger[key] = answer
        self._younger_bytes += size
        return answer

    def clear(self) -> None:
        """Forget everything."""
        self._younger = {}
        self._older = {}
        self._younger_bytes = 0

    def measured(self) -> int:
        """Count the bytes of what is remembered; takes time linear in it, for tests."""
        return sum(self._size(*each) + PLACE_BYTES for part in (self._younger, self._older) for each in part.items())
