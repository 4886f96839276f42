"""How urgent slow work on credentials is, how fast it may go on for those who fail, and who came again (P20).

Pure: times are seconds of a clock that does not go back, and come in as arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

from gateway.core.pacing.failures import MOST_REMEMBERED, Failures
from gateway.core.pacing.rates import TokenBucket

K = TypeVar("K")

RANKS: Final = 4
"""Nobody failed often; the principal did, perhaps because others try its secrets; its address did, perhaps with other
principals; both did."""

LEVELS: Final = 8
"""Levels of credentials that were turned away: so often, to the power of two. The last is for 64 times and more."""

MOST_TURNED_AWAY: Final = 8192
"""Credentials that were turned away and are remembered, those last: some 1 MB. At a hundred a second they are what
came in 80 s, and whoever is turned away comes again after one or two."""


@dataclass(frozen=True, slots=True)
class VerificationRates:
    """How fast those who failed often are verified; 0 sets no limit.

    Attributes:
        address: verifications a second of an address that failed often.
        principal: verifications a second of a principal that failed often, at one address: attempts of others elsewhere
            do not count against whom the name belongs to.
    """

    address: float = 0.0
    principal: float = 0.0


class FailureRanks:
    """Ranks those who wait by the failures of their addresses and principals.

    Attributes:
        addresses: failures by address.
        principals: failures by principal.
    """

    def __init__(self) -> None:
        self.addresses = Failures()
        self.principals = Failures()

    def failed(self, address: str, principal: str, now: float) -> None:
        """Credentials were refused; an empty principal is nobody's name, and is not counted."""
        self.addresses.failed(address, now)
        if principal:
            self.principals.failed(principal, now)

    def of(self, address: str, principal: str, now: float) -> int:
        """Tell the rank of somebody, from 0, which goes first."""
        by_principal = int(bool(principal) and self.principals.often(principal, now))
        return by_principal + (2 if self.addresses.often(address, now) else 0)


def is_principals(rank: int) -> bool:
    """Tell whether in this rank are principals that failed often."""
    return rank in {1, 3}


def is_addresses(rank: int) -> bool:
    """Tell whether in this rank are addresses that failed often."""
    return rank in {2, 3}


class Paces:
    """Keeps those who failed often to their rates.

    Args:
        rates: of an address, and of a principal at an address.
    """

    def __init__(self, rates: VerificationRates) -> None:
        self.rates = rates
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()
        self._principals: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def wait(self, address: str, principal: str, rank: int, now: float, *, decoy: bool) -> float:
        """Tell after how many seconds the rates let one more through; 0 if at once.

        Args:
            address: where it comes from.
            principal: who it says it is.
            rank: its rank.
            now: seconds.
            decoy: whether it only has to look as if it was worked for; it takes nothing of its address's.
        """
        return max(self.waits(address, principal, rank, now, decoy=decoy))

    def waits(self, address: str, principal: str, rank: int, now: float, *, decoy: bool) -> tuple[float, float]:
        """Tell the same of the rate of the address, and of that of the principal there."""
        by_address = by_principal = 0.0
        if self.rates.address and is_addresses(rank) and not decoy and (bucket := self._addresses.get(address)):
            by_address = bucket.wait(now)
        if self.rates.principal and is_principals(rank) and (bucket := self._principals.get((address, principal))):
            by_principal = bucket.wait(now)
        return by_address, by_principal

    def charge(self, address: str, principal: str, rank: int, now: float, *, decoy: bool) -> None:
        """Count that one was let through; arguments as for ``wait``."""
        if self.rates.principal and is_principals(rank):
            _of(self._principals, (address, principal), self.rates.principal).charge(now)
        if self.rates.address and is_addresses(rank) and not decoy:
            _of(self._addresses, address, self.rates.address).charge(now)


def _of(buckets: OrderedDict[K, TokenBucket], key: K, rate: float) -> TokenBucket:
    """Find the bucket of somebody, or make it; what is forgotten then was used last."""
    bucket = buckets.pop(key, None) or TokenBucket(rate, 1.0)
    buckets[key] = bucket
    if len(buckets) > MOST_REMEMBERED:
        buckets.popitem(last=False)
    return bucket


class TurnedAway:
    """Credentials that were turned away without a verdict, and how often.

    Where others try the secrets of a principal, or those of many at one address, nothing tells the right one from
    theirs before it is hashed. But the right one comes again, and who guesses goes on to the next. Whoever shows each
    guess as often, can show fewer: at *r* attempts a second, no more than *r / k* credentials a second come that were
    turned away *k* times. So the right one gets its turn when it has come as often as there are attempts in the time of
    one verification.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def again(self, key: bytes) -> None:
        """Credentials were turned away."""
        self._times[key] = self._times.pop(key, 0) + 1
        if len(self._times) > MOST_TURNED_AWAY:
            self._times.popitem(last=False)

    def level(self, key: bytes) -> int:
        """Tell the level of credentials: 0 if they were not turned away, and the higher the more often they were."""
        return min(LEVELS - 1, self._times.get(key, 0).bit_length())

    def forget(self, key: bytes) -> None:
        """It is their turn."""
        self._times.pop(key, None)
