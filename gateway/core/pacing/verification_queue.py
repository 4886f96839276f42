"""Who is verified next, when more credentials wait for slow work than there are places for it (P20).

```text
address ─┐                      ┌─ rank 0: nobody failed often ──── 3 of 4 turns ─┐
         ├─ who failed often? ──┼─ rank 1: its principal did ────── 3 of 16 ──────┼─► next
principal┘                      ├─ rank 2: its address did ──────── 3 of 64 ──────┤
                                └─ rank 3: both did ─────────────── the others ───┘
    rank 0:        address by address, within an address principal by principal, who failed less before who failed more
    ranks 1 to 3:  who was turned away more often first; then the same
    ranks 1 and 3: no faster than the rate of a principal at its address
    ranks 2 and 3: no faster than the rate of an address
```

*Decoys* are credentials whose verdict is known already, which must not be noticed: their principals do not exist. They
wait like all others, and keep nobody waiting: their turns are not counted, and their places are not taken from others.

Pure: times are seconds of a clock that does not go back, and come in as arguments.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from typing import Final, Generic, TypeVar

from gateway.core.pacing.verification_ranks import (
    LEVELS,
    RANKS,
    FailureRanks,
    Paces,
    VerificationRates,
    is_addresses,
    is_principals,
)

T = TypeVar("T", bound=Hashable)

TURNS_BEFORE_OTHERS: Final = 3
"""Turns of a rank after which the ranks behind get one: those who failed wait long, and yet not for ever. An honest
client may share its address with them."""

DECOYS_PER_PLACE_IN_QUEUE: Final = 16
"""Decoys that may wait for each of the others that may: a few kilobytes each, and no work."""

FAILING_DECOYS_PER_PLACE_IN_QUEUE: Final = 2
"""The same in ranks 1 and 3, where each waits for a rate of its principal: all that wait there may have to be looked
at for one turn."""

COMPARED: Final = 32
"""Principals of an address that are compared by their failures for one turn: the work of a turn is bounded, and those
who are not among them move up."""


@dataclass(slots=True)
class _Place:
    """Where somebody waits.

    Attributes:
        address: where it comes from.
        principal: who it says it is.
        rank: in which it waits.
        level: how often it was turned away, as a level.
        until: end of its patience, in seconds.
        decoy: whether it is one.
    """

    address: str
    principal: str
    rank: int
    level: int
    until: float
    decoy: bool

    @property
    def row(self) -> tuple[int, int]:
        """Rank, and level within it, the highest first; levels count where somebody failed often, and only there."""
        return self.rank, LEVELS - 1 - self.level if self.rank else 0


class _Row(Generic[T]):
    """Those of one rank and level, by address and principal, each in the order of their turns."""

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

    def first(self, may: Callable[[T], bool], failures: Callable[[str], float]) -> T | None:
        """Tell whose turn it is; its address and principal wait for the others from now on.

        Args:
            may: tells whether its rates let somebody through; alike for all of a line.
            failures: of a principal; who has fewer goes first.

        Returns:
            Who; None if nobody may.
        """
        for address, principals in self._addresses.items():
            principal = _least_failing((each for each, line in principals.items() if may(next(iter(line)))), failures)
            if principal is not None:
                self._addresses.move_to_end(address)
                principals.move_to_end(principal)
                return next(iter(principals[principal]))
        return None

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

    def newest(self, address: str, principal: str) -> T | None:
        """Tell who is the newest of a line; None if nobody is in it."""
        principals = self._addresses.get(address)
        line = None if principals is None else principals.get(principal)
        return next(reversed(line)) if line else None


def _least_failing(principals: Iterable[str], failures: Callable[[str], float]) -> str | None:
    """Tell who of the first ``COMPARED`` has the fewest failures, the first of several; None if there is nobody."""
    found, fewest = None, inf
    for principal in islice(principals, COMPARED):
        if (number := failures(principal)) < fewest:
            found, fewest = principal, number
            if not number:
                break
    return found


class VerificationQueue(Generic[T]):
    """A bounded queue, fair between addresses and then between their principals.

    Args:
        most: that may wait, decoys not counted.
        patience: seconds that each waits at most.
        ranks: who failed often; may be shared with other queues.
        rates: how fast those are verified.

    Attributes:
        again_at: when the rates let somebody through whom the last ``take`` passed over, in seconds; infinity if it
            passed over nobody.
    """

    def __init__(
        self, *, most: int, patience: float, ranks: FailureRanks, rates: VerificationRates | None = None
    ) -> None:
        self._most = most
        self._patience = patience
        self._failures = ranks
        self._paces = Paces(rates or VerificationRates())
        # Of one principal at one address no more wait than its rate lets through while they do.
        rate = self._paces.rates.principal
        self._longest = max(1, ceil(rate * patience)) if rate else most
        # In the order in which they came, which is that in which they lose patience.
        self._places: OrderedDict[T, _Place] = OrderedDict()
        self._rows: tuple[tuple[_Row[T], ...], ...] = tuple(
            tuple(_Row() for _ in range(LEVELS if rank else 1)) for rank in range(RANKS)
        )
        self._served = [0] * RANKS
        self._decoys = 0
        self._failing_decoys = 0
        """Those in the ranks of principals that failed often."""
        self._lines: Counter[tuple[str, str]] = Counter()
        """How many wait of each principal that failed often, by address and principal."""
        self.again_at = inf

    def __len__(self) -> int:
        return len(self._places)

    @property
    def genuine(self) -> int:
        """How many wait that are no decoys."""
        return len(self._places) - self._decoys

    def put(self, item: T, *, address: str, principal: str, now: float, level: int = 0, decoy: bool = False) -> list[T]:
        """Let somebody wait.

        Args:
            item: who; not among those who wait.
            address: where it comes from, as it counts for limits.
            principal: who it says it is; perhaps nobody.
            now: seconds.
            level: how often it was turned away (``TurnedAway``).
            decoy: whether its verdict is known already.

        Returns:
            Who has to leave in exchange, because too many wait, perhaps *item* itself: of a principal that fails often
            the newest that was turned away least; otherwise the newest of the address that takes the most places in
            the last rank that has any.
        """
        rank = self._failures.of(address, principal, now)
        place = _Place(address, principal, rank, level, now + self._patience, decoy)
        self._places[item] = place
        self._decoys += decoy
        self._enter(item, place)
        if is_principals(rank) and self._lines[address, principal] > self._longest:
            leaves = self._least(address, principal, rank)
            self.remove(leaves)
            return [leaves]
        if decoy and self._is_crowded_for(rank):
            self.remove(item)
            return [item]
        gone: list[T] = []
        while self.genuine > self._most:
            last = next(row for rows in reversed(self._rows) for row in reversed(rows) if row)
            gone.append(last.heaviest(item, place))
            self.remove(gone[-1])
        return gone

    def remove(self, item: T) -> None:
        """Take somebody out who waits no more; harmless if it is not there."""
        place = self._places.pop(item, None)
        if place is not None:
            self._decoys -= place.decoy
            self._leave(item, place)

    def take(self, now: float, *, last: bool = False, crowding: Container[str] = ()) -> T | None:
        """Take out whose turn it is.

        Whoever became known for failures while it waited goes behind now: many attempts may come before the first of
        them has failed.

        Args:
            now: seconds.
            last: whether one place of several is left, which is kept for those who did not fail: work cannot be taken
                off a place, so that they would have to wait for the end of somebody else's.
            crowding: addresses for which the last place is not, either: work is done for many of theirs. Whoever asks
                about it may be slow to say no, and until then nobody is known to fail. Other places are theirs as well.

        Returns:
            Who gets a place; None if nobody does.
        """
        self.again_at = inf
        held: set[int] = set()
        while True:
            waiting = [number for number, rows in enumerate(self._rows) if number not in held and any(rows)]
            if not waiting or (last and waiting[0] != 0):
                return None
            number = 0 if last else self._choose(waiting)
            item = self._first(number, now, crowding if last else ())
            if item is None:
                held.add(number)
                continue
            place = self._places[item]
            rank = self._failures.of(place.address, place.principal, now)
            if rank > number:
                self._leave(item, place)
                place.rank = rank
                self._enter(item, place)
                held.discard(rank)
                continue
            if not place.decoy:
                self._count(number, waiting)
            self._paces.charge(place.address, place.principal, number, now, decoy=place.decoy)
            self.remove(item)
            return item

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

    def may_work_for_decoy(self, address: str, principal: str, now: float) -> bool:
        """Tell whether real work may be done for a decoy: not where newcomers of its address would wait for it."""
        return not is_addresses(self._failures.of(address, principal, now))

    def held_by_rates(self, address: str, principal: str, now: float) -> tuple[bool, bool]:
        """Tell whether the rate of an address lets nobody more through now, and that of a principal there."""
        rank = self._failures.of(address, principal, now)
        by_address, by_principal = self._paces.waits(address, principal, rank, now, decoy=False)
        return by_address > 0, by_principal > 0

    def waiting(self) -> list[T]:
        """List all who wait, in the order in which they came."""
        return list(self._places)

    @property
    def until(self) -> float | None:
        """When the next one loses patience, in seconds; None if nobody waits."""
        return next((place.until for place in self._places.values()), None)

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def _is_crowded_for(self, rank: int) -> bool:
        """Tell whether the newest decoy, which is in *rank*, is one too many."""
        return (
            self.genuine >= self._most
            or self._decoys > self._most * DECOYS_PER_PLACE_IN_QUEUE
            or (is_principals(rank) and self._failing_decoys > self._most * FAILING_DECOYS_PER_PLACE_IN_QUEUE)
        )

    def _enter(self, item: T, place: _Place) -> None:
        rank, level = place.row
        self._rows[rank][level].put(item, place)
        if is_principals(rank):
            self._failing_decoys += place.decoy
            self._lines[place.address, place.principal] += 1

    def _leave(self, item: T, place: _Place) -> None:
        rank, level = place.row
        self._rows[rank][level].remove(item, place)
        if is_principals(rank):
            self._failing_decoys -= place.decoy
            line = (place.address, place.principal)
            self._lines[line] -= 1
            if not self._lines[line]:
                del self._lines[line]

    def _least(self, address: str, principal: str, rank: int) -> T:
        """Tell who of a principal's lines was turned away least, and is the newest of those."""
        lines = (row.newest(address, principal) for row in reversed(self._rows[rank]))
        found = next((each for each in lines if each is not None), None)
        if found is None:
            raise AssertionError("somebody was put into one of these lines")
        return found

    def _first(self, number: int, now: float, crowding: Container[str]) -> T | None:
        """Tell whose turn it is in a rank; None if the rates let nobody through but those of *crowding* addresses."""

        def may(item: T) -> bool:
            place = self._places[item]
            if place.address in crowding:
                return False
            wait = self._paces.wait(place.address, place.principal, number, now, decoy=place.decoy)
            if wait > 0:
                self.again_at = min(self.again_at, now + wait)
            return wait == 0

        def failures(principal: str) -> float:
            return self._failures.principals.count(principal, now)

        return next(
            (item for row in self._rows[number] if row and (item := row.first(may, failures)) is not None), None
        )

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
