"""Who is verified next, when more credentials wait for slow work than there are places for it (P20).

```text
address ─┐                      ┌─ rank 0: nobody failed often ──── 3 of 4 turns ─┐
         ├─ who failed often? ──┼─ rank 1: its principal did ────── 3 of 16 ──────┼─► next
principal┘                      └─ rank 2: its address did ──────── the others ───┘
                                    in each rank: address by address, within an address principal by principal
```

Pure: times are seconds of a clock that does not go back, and come in as arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gateway.core.pacing.failures import Failures

T = TypeVar("T", bound=Hashable)

RANKS: Final = 3
"""Nobody failed often; the principal did, perhaps because others try its secrets; the address did."""

TURNS_BEFORE_OTHERS: Final = 3
"""Turns of a rank after which the ranks behind get one: those who failed wait long, and yet not for ever. An honest
client may share its address with them."""


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
        if self.addresses.often(address, now):
            return 2
        return int(bool(principal) and self.principals.often(principal, now))


@dataclass(slots=True)
class _Place:
    """Where somebody waits.

    Attributes:
        address: where it comes from.
        principal: who it says it is.
        rank: in which it waits.
        until: end of its patience, in seconds.
    """

    address: str
    principal: str
    rank: int
    until: float


class _Rank(Generic[T]):
    """Those of one rank, by address and principal, each in the order of their turns."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]] = OrderedDict()
        self._sizes: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def put(self, item: T, place: _Place) -> None:
        """Add somebody at the end of its principal's line."""
        principals = self._addresses.setdefault(place.address, OrderedDict())
        principals.setdefault(place.principal, OrderedDict())[item] = None
        self._sizes[place.address] = self._sizes.get(place.address, 0) + 1

    def remove(self, item: T, place: _Place) -> None:
        """Take somebody out."""
        principals = self._addresses[place.address]
        line = principals[place.principal]
        del line[item]
        if not line:
            del principals[place.principal]
        self._sizes[place.address] -= 1
        if not self._sizes[place.address]:
            del self._addresses[place.address], self._sizes[place.address]

    def first(self) -> T:
        """Tell whose turn it is, and let its address and principal wait for the others from now on."""
        address = next(iter(self._addresses))
        self._addresses.move_to_end(address)
        principals = self._addresses[address]
        principal = next(iter(principals))
        principals.move_to_end(principal)
        return next(iter(principals[principal]))

    def heaviest(self, newest: T, place: _Place) -> T:
        """Tell who is the newest of the party that takes the most; *newest* of all, if it is one of several."""
        most = max(self._sizes.values())
        address = place.address
        if self._sizes.get(address) != most:
            address = next(each for each in reversed(self._addresses) if self._sizes[each] == most)
        principals = self._addresses[address]
        longest = max(map(len, principals.values()))
        principal = place.principal
        if address != place.address or len(principals.get(principal, ())) != longest:
            principal = next(each for each in reversed(principals) if len(principals[each]) == longest)
        line = principals[principal]
        return newest if newest in line else next(reversed(line))


class VerificationQueue(Generic[T]):
    """A bounded queue, fair between addresses and then between their principals.

    Args:
        most: that may wait.
        patience: seconds that each waits at most.
        ranks: who failed often; may be shared with other queues.
    """

    def __init__(self, *, most: int, patience: float, ranks: FailureRanks) -> None:
        self._most = most
        self._patience = patience
        self._failures = ranks
        # In the order in which they came, which is that in which they lose patience.
        self._places: OrderedDict[T, _Place] = OrderedDict()
        self._ranks: tuple[_Rank[T], ...] = tuple(_Rank() for _ in range(RANKS))
        self._served = [0] * RANKS

    def __len__(self) -> int:
        return len(self._places)

    def put(self, item: T, *, address: str, principal: str, now: float) -> T | None:
        """Let somebody wait.

        Args:
            item: who; not among those who wait.
            address: where it comes from, as it counts for limits.
            principal: who it says it is; perhaps nobody.
            now: seconds.

        Returns:
            Who has to leave in exchange, because too many wait: the newest of the address that takes the most places
            in the last rank that has any, perhaps *item* itself. None if there is room.
        """
        rank = self._failures.of(address, principal, now)
        place = self._places[item] = _Place(address, principal, rank, now + self._patience)
        self._ranks[rank].put(item, place)
        if len(self._places) <= self._most:
            return None
        last = next(each for each in reversed(self._ranks) if each)
        leaves = last.heaviest(item, place)
        self.remove(leaves)
        return leaves

    def remove(self, item: T) -> None:
        """Take somebody out who waits no more; harmless if it is not there."""
        place = self._places.pop(item, None)
        if place is not None:
            self._ranks[place.rank].remove(item, place)

    def take(self, now: float, *, last: bool = False) -> T | None:
        """Take out whose turn it is.

        Whoever became known for failures while it waited goes behind now: many attempts may come before the first of
        them has failed.

        Args:
            now: seconds.
            last: whether one place of several is left, which is kept for those who did not fail: work cannot be taken
                off a place, so that they would have to wait for the end of somebody else's.

        Returns:
            Who gets a place; None if nobody does.
        """
        while self._ranks[0] or (self._places and not last):
            waiting = [number for number, rank in enumerate(self._ranks) if rank]
            number = 0 if last else self._choose(waiting)
            item = self._ranks[number].first()
            place = self._places[item]
            rank = self._failures.of(place.address, place.principal, now)
            if rank > number:
                self._ranks[number].remove(item, place)
                place.rank = rank
                self._ranks[rank].put(item, place)
                continue
            self._count(number, waiting)
            self.remove(item)
            return item
        return None

    def impatient(self, now: float) -> list[T]:
        """Take out those who have waited for too long."""
        found: list[T] = []
        while self._places:
            item, place = next(iter(self._places.items()))
            if place.until > now:
                break
            self.remove(item)
            found.append(item)
        return found

    def waiting(self) -> list[T]:
        """List all who wait, in the order in which they came."""
        return list(self._places)

    @property
    def until(self) -> float | None:
        """When the next one loses patience, in seconds; None if nobody waits."""
        return next((place.until for place in self._places.values()), None)

    def _choose(self, waiting: list[int]) -> int:
        """Choose the rank whose turn it is, among those in which somebody waits; there is one."""
        for number in waiting[:-1]:
            if self._served[number] < TURNS_BEFORE_OTHERS:
                return number
        return waiting[-1]

    def _count(self, served: int, waiting: list[int]) -> None:
        """A rank had its turn, while somebody waited in those of *waiting*."""
        for number in waiting:
            if number < served:
                self._served[number] = 0  # it has let one behind it go before, and counts anew
            elif number == served and number != waiting[-1]:
                self._served[number] += 1
