"""Answers that are kept because the same questions come again and again, in a bounded number of bytes.

Clients choose most of the questions, and the longest are a hundred times as long as usual ones. So a bound on their
number would bound nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from weakref import ReferenceType, ref

K = TypeVar("K")
V = TypeVar("V")

PLACE_BYTES: Final = 100
"""Bytes that an answer takes besides its key and itself: a place in a dictionary that is two thirds full."""


class SharedRoom:
    """Bytes that several ``Remembered`` take together; above, those whose turn was longest ago forget everything.

    Each has its turn when it begins a generation: what somebody asks for all the time comes back soon, and who asks for
    ever new things makes others forget no more often than the room is filled.

    Args:
        most: bytes of all of them.

    Attributes:
        bytes: what they take, and what those took that have gone and whose turn to be forgotten has not come.
    """

    __slots__ = ("_held", "_most", "bytes")

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[ReferenceType[Remembered[Any, Any]], int] = OrderedDict()
        """What each takes, in the order of their turns."""
        self.bytes = 0

    def change(self, who: ReferenceType[Remembered[Any, Any]], change: int) -> None:
        """Count that one of them takes more, or less as it begins a generation."""
        self._held[who] = self._held.get(who, 0) + change
        self.bytes += change
        if change < 0:
            self._held.move_to_end(who)
        while self.bytes > self._most:
            oldest, held = self._held.popitem(last=False)
            self.bytes -= held
            if (remembered := oldest()) is not None:
                remembered.forget()

    def leave(self, who: ReferenceType[Remembered[Any, Any]]) -> None:
        """Count one of them no more."""
        self.bytes -= self._held.pop(who, 0)


class Remembered(Generic[K, V]):
    """Answers by question, the ones that were asked for lately. None is no answer that can be remembered.

    There are two generations. New answers go into the younger one; when that has its half of the bytes, the older one
    is forgotten and the younger takes its place. An answer of the older one that is asked for becomes a younger one. So
    what is asked for all the time stays, whoever floods the rest.

    Args:
        most: bytes of all of it.
        size: tells the bytes of a key and its answer, without its place.
        room: that it shares with others; None if its own bound is enough.
    """

    __slots__ = (
        "__weakref__",
        "_half",
        "_me",
        "_older",
        "_older_bytes",
        "_room",
        "_size",
        "_younger",
        "_younger_bytes",
    )

    def __init__(self, most: int, size: Callable[[K, V], int], room: SharedRoom | None = None) -> None:
        self._half = most // 2
        self._room = room
        self._me = ref(self)
        self._older_bytes = 0
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
        room = self._room
        if self._younger_bytes + size > self._half:
            if room is not None and self._older_bytes:
                room.change(self._me, -self._older_bytes)
            self._older = self._younger
            self._older_bytes = self._younger_bytes
            self._younger = {}
            self._younger_bytes = 0
        self._younger[key] = answer
        self._younger_bytes += size
        if room is not None:
            room.change(self._me, size)
        return answer

    def clear(self) -> None:
        """Forget everything."""
        self.forget()
        if self._room is not None:
            self._room.leave(self._me)

    def forget(self) -> None:
        """Forget everything, for the room that counts it no more."""
        self._younger = {}
        self._older = {}
        self._younger_bytes = self._older_bytes = 0

    def measured(self) -> int:
        """Count the bytes of what is remembered; takes time linear in it, for tests."""
        return sum(self._size(*each) + PLACE_BYTES for part in (self._younger, self._older) for each in part.items())
