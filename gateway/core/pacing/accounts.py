"""Who uses how much of a node: accounts of addresses, principals and the node itself, and a table that cannot grow.

Nothing here reads a clock; times are seconds of one that does not go back.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gateway.core.pacing.rates import TokenBucket

K = TypeVar("K")

HANDSHAKE_BURST: Final = 10.0
"""Seconds' worth of handshakes that may come at once: everybody behind one address comes back in the same moment when a
node dies, and that is no attack."""

TRAFFIC_BURST: Final = 2.0
"""Seconds' worth of packets or bytes that may come at once, as ``rate_burst`` has by default."""

TOPIC_BURST: Final = 60.0
"""Seconds' worth of new topics that may be created at once: an application creates its topics when it starts."""

LOOKED_AT: Final = 16
"""Accounts that are looked at to make room for one; a bound on the work of one arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """What one account may use; 0 sets no limit.

    Attributes:
        connections: at once; for a principal, sessions, each of which has at most one.
        handshakes: per second.
        packets: of clients, per second.
        publish_bytes: JSON text of published values, per second.
        selections: of all its sessions together.
        topics: created, per second.
        absent: sessions without a client.
        absent_bytes: of memory that those take.
        stored_bytes: of the grid that sessions take; counted in ``shared_bytes``, over all nodes.
        buffer_bytes: that connected sessions keep for their clients.
    """

    connections: int = 0
    handshakes: float = 0.0
    packets: float = 0.0
    publish_bytes: float = 0.0
    selections: int = 0
    topics: float = 0.0
    absent: int = 0
    absent_bytes: int = 0
    stored_bytes: int = 0
    buffer_bytes: int = 0

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        counted = self.connections, self.selections, self.absent, self.absent_bytes
        return any((*counted, self.handshakes, self.packets, self.publish_bytes, self.topics))


def _bucket(rate: float, seconds: float) -> TokenBucket | None:
    return TokenBucket(rate, max(1.0, rate * seconds)) if rate else None


class Account:
    """What is used at the moment.

    Args:
        limits: of this account.

    Attributes:
        limits: as given.
        connections: open, or sessions held.
        selections: of all sessions.
        absent: sessions without a client, held by the node or by the grid alone.
        absent_bytes: of memory that those which the node holds take, without their buffers.
        buffered_bytes: of memory that their buffers took when they were last looked at; of the node's account only.
        handshakes: what limits them, as for the next three; None where there is no limit.
        packets: see there.
        publish_bytes: see there.
        topics: see there.
    """

    __slots__ = (
        "absent",
        "absent_bytes",
        "buffered_bytes",
        "connections",
        "handshakes",
        "limits",
        "packets",
        "publish_bytes",
        "selections",
        "topics",
    )

    def __init__(self, limits: AccountLimits) -> None:
        self.limits = limits
        self.connections = 0
        self.selections = 0
        self.absent = 0
        self.absent_bytes = 0
        self.buffered_bytes = 0
        self.handshakes = _bucket(limits.handshakes, HANDSHAKE_BURST)
        self.packets = _bucket(limits.packets, TRAFFIC_BURST)
        self.publish_bytes = _bucket(limits.publish_bytes, TRAFFIC_BURST)
        self.topics = _bucket(limits.topics, TOPIC_BURST)

    @property
    def in_use(self) -> bool:
        """Whether something that is there now is counted here."""
        return self.connections > 0 or self.selections > 0 or self.absent > 0

    def is_blank(self, now: float) -> bool:
        """Tell whether a new account would say the same, so that this one can be forgotten."""
        buckets = (self.handshakes, self.packets, self.publish_bytes, self.topics)
        return not self.in_use and all(bucket is None or bucket.is_full(now) for bucket in buckets)


class Accounts(Generic[K]):
    """The accounts of many keys, in bounded memory.

    An account is forgotten when the table is full and somebody new comes: the one that was asked for least recently,
    of those in which nothing is counted. Rates are forgotten with it, so whoever has more keys than the table has room
    fares as if each were new; that is the price of a bound. What is counted is never forgotten. If nothing can be
    forgotten, the newcomers share one account: unauthenticated clients that come in such numbers are limited together,
    and whoever was there before is not touched.

    Args:
        limits: of each account.
        most: accounts that are kept, besides the shared one.
    """

    def __init__(self, limits: AccountLimits, most: int) -> None:
        self._limits = limits
        self._most = most
        self._accounts: OrderedDict[K, Account] = OrderedDict()
        self._shared = Account(limits)

    def __len__(self) -> int:
        return len(self._accounts)

    def find(self, key: K) -> Account | None:
        """Return the account of *key* if there is one; the table does not change."""
        return self._accounts.get(key)

    def of(self, key: K, now: float) -> Account:
        """Return the account of *key*, which is made if there is none.

        Whoever counts something in it keeps it and takes it off there again: it may be the shared one.
        """
        account = self._accounts.get(key)
        if account is not None:
            self._accounts.move_to_end(key)
            return account
        if len(self._accounts) >= self._most and not self._make_room(now):
            return self._shared
        account = self._accounts[key] = Account(self._limits)
        return account

    def _make_room(self, now: float) -> bool:
        """Forget one account; those that cannot be are put at the end of the line, so that they are not met again."""
        fallback: K | None = None
        found = False
        for key, account in [(each, self._accounts[each]) for each in _first(self._accounts, LOOKED_AT)]:
            if account.in_use:
                self._accounts.move_to_end(key)
            elif account.is_blank(now):
                del self._accounts[key]
                return True
            elif not found:
                fallback, found = key, True
        if found:
            del self._accounts[fallback]  # type: ignore[arg-type]  # None would be a key like any other
        return found


def _first(accounts: OrderedDict[K, Account], count: int) -> list[K]:
    keys: list[K] = []
    for key in accounts:
        keys.append(key)
        if len(keys) == count:
            break
    return keys
