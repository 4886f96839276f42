"""Connections whose request is not there yet: bounded in number, fair to addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final

from gateway.adapters.websocket.upgrade import Upgrade

LOOKED_AT: Final = 8
"""Addresses, and connections of each, that are looked at for one that may go, at most: a system call for each
connection, of less than a microsecond."""

FEW: Final = 4
"""Connections that one client may have at once, as a browser does. In a storm of clients without a proxy between, no
address has more."""


class PendingRequests:
    """Connections that have asked nothing yet, in the order in which they will make room for others.

    Whoever opens connections to say nothing takes room from itself first: the one that goes is the oldest of those
    that come from the address with the most. Where that is a proxy, or has just a few connections, who has
    asked something that is not read yet does not go: then the next address is looked at.

    Args:
        most: of them.
        is_proxy: tells whether an address is that of a proxy, which stands for many clients.
    """

    def __init__(self, most: int, *, is_proxy: Callable[[str], bool] = lambda _: False) -> None:
        self._most = most
        self._is_proxy = is_proxy
        self._by_key: dict[str, dict[Upgrade, None]] = {}
        self._by_count: dict[int, dict[str, None]] | None = None
        """Addresses by how many connections they have here, so that the one with the most is found at once. None, as
        nearly always, until somebody has to make room: it would be kept up for every newcomer."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Upgrade]:
        for connections in self._by_key.values():
            yield from connections

    def __contains__(self, upgrade: Upgrade) -> bool:
        return upgrade in self._by_key.get(upgrade.reading.key, ())

    @property
    def is_full(self) -> bool:
        """Whether one has to go before another can come."""
        return self._length >= self._most

    def first_to_go(self) -> Upgrade | None:
        """Tell who goes first; None if those who would have yet to be read.

        So few are looked at that somebody who comes costs little; others have been read when the next one comes.
        """
        by_count = self._by_count
        if by_count is None:
            by_count = self._by_count = {}
            for key, of_key in self._by_key.items():
                by_count.setdefault(len(of_key), {})[key] = None
        keys = chain.from_iterable(map(by_count.__getitem__, sorted(by_count, reverse=True)))
        for key in islice(keys, LOOKED_AT):
            of_key = self._by_key[key]
            oldest = next(iter(of_key))
            if len(of_key) > FEW and not self._is_proxy(oldest.peer):
                return oldest
            if found := next((each for each in islice(of_key, LOOKED_AT) if each.makes_room), None):
                return found
        return None

    def add(self, upgrade: Upgrade) -> None:
        """Add a connection."""
        key = upgrade.reading.key
        of_key = self._by_key.setdefault(key, {})
        if upgrade not in of_key:
            self._length += 1
            of_key[upgrade] = None
            if self._by_count is not None:
                self._recount(self._by_count, key, len(of_key) - 1, len(of_key))

    def discard(self, upgrade: Upgrade) -> None:
        """Take a connection out, if it is here."""
        key = upgrade.reading.key
        of_key = self._by_key.get(key, {})
        if upgrade in of_key:
            self._length -= 1
            del of_key[upgrade]
            if not of_key:
                del self._by_key[key]
            if self._by_count is not None:
                self._recount(self._by_count, key, len(of_key) + 1, len(of_key))
                if self._length <= self._most // 2:
                    self._by_count = None  # to make it again takes less than to come here from full

    def renew(self, upgrade: Upgrade) -> None:
        """Take a connection for the newest of its address: it has shown that it means to ask for something."""
        of_key = self._by_key.get(upgrade.reading.key, {})
        if upgrade in of_key:
            del of_key[upgrade]
            of_key[upgrade] = None

    def _recount(self, by_count: dict[int, dict[str, None]], key: str, before: int, now: int) -> None:
        if before:
            same = by_count[before]
            del same[key]
            if not same:
                del by_count[before]
        if now:
            by_count.setdefault(now, {})[key] = None
