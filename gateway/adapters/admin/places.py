"""Who has a place at the admin port, and who has to go when all are taken. Knows neither sockets nor time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

UNAUTHENTICATED: Final = 448
"""Connections at a time of whoever has shown no valid token. Far above what HAProxy, Prometheus and browsers hold, and
little of what clients need in descriptors."""

CALLERS: Final = 64
"""Connections at a time that have places apart, because a valid token came over them: operators' tools, the consoles,
and nodes that pass requests on."""

UNAUTHENTICATED_BYTES: Final = 8 * 1024 * 1024
"""Bytes held for all unauthenticated clients together: halves of requests, and answers that were not taken yet. Some
eighty answers of ``/metrics``."""

PlaceT = TypeVar("PlaceT")


class Places(Generic[PlaceT]):
    """Keeps two groups apart, each of them in the order in which its members were heard last.

    Args:
        unauthenticated: places for whoever has shown no token.
        callers: places for whoever has.
        most_bytes: that may be held for all unauthenticated clients together.
    """

    def __init__(
        self, unauthenticated: int = UNAUTHENTICATED, callers: int = CALLERS, most_bytes: int = UNAUTHENTICATED_BYTES
    ) -> None:
        self._unauthenticated = unauthenticated
        # So many that have come or were answered last are never taken for idle: their request may be on its way. At
        # 4,000 new connections a second, which is a flood, they have 50 ms for it.
        self._newest = unauthenticated // 2
        self._callers = callers
        self._most_bytes = most_bytes
        # Each is in order: who has been so for longest comes first.
        self._idle: OrderedDict[PlaceT, None] = OrderedDict()
        self._answered: OrderedDict[PlaceT, None] = OrderedDict()
        self._idle_callers: OrderedDict[PlaceT, None] = OrderedDict()
        self._answered_callers: OrderedDict[PlaceT, None] = OrderedDict()
        self._held: OrderedDict[PlaceT, int] = OrderedDict()
        self._bytes = 0

    def __iter__(self) -> Iterator[PlaceT]:
        """Tell of everybody."""
        for group in (self._idle, self._answered, self._idle_callers, self._answered_callers):
            yield from list(group)

    @property
    def unauthenticated(self) -> int:
        """How many have shown no token."""
        return len(self._idle) + len(self._answered)

    @property
    def callers(self) -> int:
        """How many have places apart."""
        return len(self._idle_callers) + len(self._answered_callers)

    @property
    def held_bytes(self) -> int:
        """What is held for unauthenticated clients, in bytes."""
        return self._bytes

    @property
    def longest_idle(self) -> PlaceT | None:
        """The unauthenticated client that has been idle for longest; None if none is idle."""
        return next(iter(self._idle), None)

    def enter(self, who: PlaceT) -> PlaceT | None:
        """Give an unauthenticated client a place.

        Returns:
            Who has to go for it: the unauthenticated client that has been idle for longest; or the one whose request
            has been under way for longest, if these are so many that only the newest half could be taken for idle. None
            as long as there is room.
        """
        self._idle[who] = None
        if self.unauthenticated <= self._unauthenticated:
            return None
        return next(iter(self._idle if len(self._idle) > self._newest else self._answered))

    def begin(self, who: PlaceT) -> None:
        """A request of *who* is under way from now on."""
        if who in self._idle_callers:
            del self._idle_callers[who]
            self._answered_callers[who] = None
        elif who in self._idle:
            del self._idle[who]
            self._answered[who] = None

    def rest(self, who: PlaceT) -> None:
        """Nothing of *who* is under way any more: it is idle, since just now."""
        if who in self._answered_callers:
            del self._answered_callers[who]
            self._idle_callers[who] = None
        elif who in self._answered:
            del self._answered[who]
            self._idle[who] = None

    def promote(self, who: PlaceT) -> PlaceT | None:
        """A valid token came over a connection: give it a place apart, with its request under way.

        Returns:
            Who has to go for it: the caller that has been idle for longest. None as long as there is room; and if all
            callers have requests under way, *who* keeps its place among the unauthenticated clients.
        """
        if who not in self._idle and who not in self._answered:
            return None
        leaves = None
        if self.callers >= self._callers:
            leaves = next(iter(self._idle_callers), None)
            if leaves is None:
                return None
        self.release(who)
        self._idle.pop(who, None)
        self._answered.pop(who, None)
        self._answered_callers[who] = None
        return leaves

    def is_caller(self, who: PlaceT) -> bool:
        """Tell whether *who* has a place apart."""
        return who in self._idle_callers or who in self._answered_callers

    def hold(self, who: PlaceT, amount: int) -> list[PlaceT]:
        """So many bytes are held for an unauthenticated client from now on, in place of what was before.

        Returns:
            Who has to go because altogether it is too much: those for whom something was held first. *who* is not
            among them, as a single answer is always allowed.
        """
        if who not in self._idle and who not in self._answered:
            return []
        self.release(who)
        if amount:
            self._held[who] = amount
            self._bytes += amount
        leave, left = [], self._bytes
        for each, its in self._held.items():
            if left <= self._most_bytes or each is who:
                break
            leave.append(each)
            left -= its
        return leave

    def release(self, who: PlaceT) -> None:
        """Nothing is held for *who* any more."""
        self._bytes -= self._held.pop(who, 0)

    def leave(self, who: PlaceT) -> None:
        """A connection has ended."""
        self.release(who)
        for group in (self._idle, self._answered, self._idle_callers, self._answered_callers):
            group.pop(who, None)
