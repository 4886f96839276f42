"""What was revoked: sessions, principals and credentials that are refused on every node.

```text
            put ──▶ in force ──until──▶ over ──due──▶ forgotten
                       └──────drop──────────────────────▲
```
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_REVOKED_VALUE: Final = 256
"""Longest value that can be revoked, in characters: twice the longest principal, and any token id seen in practice."""

MAX_REVOCATION_REASON: Final = 200
"""Longest reason, in characters: a sentence or the number of a ticket; every node holds all of them."""


class RevocationKind(StrEnum):
    """What a revocation is of."""

    CREDENTIAL = "credential"
    """The token id (``jti``) of the credential with which sessions were opened."""
    PRINCIPAL = "principal"
    """Everything that belongs to one principal."""
    SESSION = "session"
    """One session, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """One session, principal or credential that is refused.

    Attributes:
        kind: what *value* is.
        value: session id, principal or token id; compared exactly.
        reason: for people; may be empty. Never shown to the client.
        made: when, in seconds since 1970; of two revocations of the same, the one made later counts.
        until: when it ends, in seconds since 1970; None for never.
    """

    kind: RevocationKind
    value: str
    reason: str = ""
    made: float
    until: float | None = None

    @property
    def name(self) -> str:
        """What tells it from all others, and the order in which they are listed."""
        return name_of(self.kind, self.value)

    def in_force(self, now: float) -> bool:
        """Tell whether it refuses anybody at *now*, in seconds since 1970."""
        return self.until is None or now < self.until


def name_of(kind: RevocationKind, value: str) -> str:
    """Name the revocation of *value*; there is at most one of this name."""
    return f"{kind.value}:{value}"


class RevocationTable:
    """All revocations that a node knows.

    To look one up takes three dictionaries; while nothing is revoked, whoever asks should look at ``empty`` and leave
    it at that.

    Attributes:
        empty: nothing is revoked.
    """

    def __init__(self, revocations: Iterable[Revocation] = ()) -> None:
        self._by_name = {each.name: each for each in revocations}
        self._names = sorted(self._by_name)
        self._ends: list[tuple[float, str]] = [
            (each.until, name) for name, each in self._by_name.items() if each.until is not None
        ]
        heapq.heapify(self._ends)
        self.empty = not self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Revocation]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Revocation | None:
        """Return the revocation of that name, be it in force or over."""
        return self._by_name.get(name)

    def count(self, kind: RevocationKind) -> int:
        """Count those of one kind."""
        return bisect_left(self._names, f"{kind.value};") - bisect_left(self._names, f"{kind.value}:")

    def find(
        self, now: float, *, session: str | None = None, principal: str | None = None, credential: str | None = None
    ) -> Revocation | None:
        """Return a revocation that is in force and of any of these, or None."""
        if self.empty:
            return None
        for kind, value in (
            (RevocationKind.SESSION, session),
            (RevocationKind.PRINCIPAL, principal),
            (RevocationKind.CREDENTIAL, credential),
        ):
            if value is not None:
                found = self._by_name.get(name_of(kind, value))
                if found is not None and found.in_force(now):
                    return found
        return None

    def after(self, name: str, limit: int) -> Sequence[Revocation]:
        """List the first *limit* revocations behind *name* in the order of their names; from the first if it is ''."""
        start = bisect_right(self._names, name)
        return [self._by_name[each] for each in self._names[start : start + limit]]

    def put(self, revocation: Revocation) -> bool:
        """Take a revocation in, in the place of an earlier one of the same.

        Returns:
            False if exactly this one was there already.
        """
        name = revocation.name
        known = self._by_name.get(name)
        if known == revocation:
            return False
        if known is None:
            insort(self._names, name)
        self._by_name[name] = revocation
        if revocation.until is not None:
            heapq.heappush(self._ends, (revocation.until, name))
        self.empty = False
        return True

    def drop(self, name: str) -> Revocation | None:
        """Take a revocation out; returns what was there."""
        known = self._by_name.pop(name, None)
        if known is not None:
            del self._names[bisect_left(self._names, name)]
            self.empty = not self._by_name
        return known

    def due(self, before: float) -> list[Revocation]:
        """Drop and return those that ended at or before *before*, in seconds since 1970."""
        over: list[Revocation] = []
        while self._ends and self._ends[0][0] <= before:
            until, name = heapq.heappop(self._ends)
            known = self._by_name.get(name)
            # One that was made again since has another end, or none, and its own place in the heap.
            if known is not None and known.until == until:
                self.drop(name)
                over.append(known)
        return over
