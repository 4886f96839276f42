"""Interest: what a cluster selects, as it tells it to others, and as others hear it (003-09 to 003-16).

Interest is told whole when a link comes up, then in changes with a revision, and now and then by a digest: whoever
hears a revision that is not the next one, or a digest that is not its own, asks for the whole again. It is told to
those who are directly linked, and never passed on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, Generic, NamedTuple, TypeVar

from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import ALL_PARTITIONS, Selector, partitions
from gateway.core.topics.topics import is_reserved
from gateway.core.types import TopicPath

N = TypeVar("N")

_DIGEST_BYTES: Final = 8
"""Of the digest of a selector: what two sides believe differs by chance once in 10^19 digests."""


class InterestChange(NamedTuple):
    """What has changed since the revision before.

    Attributes:
        revision: of the interest from now on.
        added: selected from now on.
        dropped: not any more.
    """

    revision: int
    added: frozenset[Selector]
    dropped: frozenset[Selector]


class InterestDigest(NamedTuple):
    """By which both sides find out whether they believe the same.

    Attributes:
        revision: of the interest.
        digest: of all selectors, in hexadecimal.
    """

    revision: int
    digest: str


class ClusterInterest(Generic[N]):
    """The interest of a cluster: the union of what its nodes tell, and of its joins.

    Each source of interest is told by its whole list.
    """

    def __init__(self) -> None:
        self._told: dict[N, frozenset[Selector]] = {}
        self._counts: Counter[Selector] = Counter()

    def put(self, source: N, selectors: Iterable[Selector]) -> bool:
        """A node, or a join, selects this from now on. Returns whether that changes the union."""
        new, old = frozenset(selectors), self._told.get(source, frozenset())
        if new:
            self._told[source] = new
        else:
            self._told.pop(source, None)
        changed = False
        for each in new - old:
            self._counts[each] += 1
            changed |= self._counts[each] == 1
        for each in old - new:
            self._counts[each] -= 1
            if not self._counts[each]:
                del self._counts[each]
                changed = True
        return changed

    def drop(self, source: N) -> bool:
        """It selects nothing any more. Returns whether that changes the union."""
        return self.put(source, ())

    @property
    def sources(self) -> AbstractSet[N]:
        """Those who select anything."""
        return self._told.keys()

    @property
    def selectors(self) -> AbstractSet[Selector]:
        """The union."""
        return self._counts.keys()


class InterestTeller:
    """What one link has been told of this cluster's interest.

    Attributes:
        revision: grows with each change; 0 before the first.
        selectors: what the other side believes, if all that was told has arrived.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.selectors: frozenset[Selector] = frozenset()
        self._digest = 0

    def change(self, selectors: Iterable[Selector]) -> InterestChange | None:
        """The interest is this from now on. Returns what to tell; None if nothing has changed."""
        new = frozenset(selectors)
        added, dropped = new - self.selectors, self.selectors - new
        if not added and not dropped:
            return None
        for each in added | dropped:
            self._digest ^= _digest(each)
        self.selectors = new
        self.revision += 1
        return InterestChange(self.revision, added, dropped)

    def digest(self) -> InterestDigest:
        """Say by a digest what was told."""
        return InterestDigest(self.revision, _text(self._digest))


class HeardInterest:
    """What another cluster has told of its interest.

    Args:
        most: selectors that it may have; of more none is believed, as it would be told that it has too many.

    Attributes:
        is_whole: False from when something was missed until the whole is told again. What was believed until then
            stays so.
        partitions: topic partitions in which it selects anything.
    """

    def __init__(self, *, depth: int, most: int) -> None:
        self.is_whole = False
        self.partitions: frozenset[int] = frozenset()
        self._depth = depth
        self._most = most
        self._revision = 0
        self._digest = 0
        self._selectors: set[Selector] = set()
        self._map: SelectorMap[Selector] = SelectorMap()
        # A selector reaches one partition or all of them.
        self._everywhere: set[Selector] = set()
        self._there: dict[int, set[Selector]] = {}

    def __len__(self) -> int:
        return len(self._selectors)

    @property
    def selectors(self) -> AbstractSet[Selector]:
        """What it selects."""
        return self._selectors

    def selectors_in(self, partition: int) -> AbstractSet[Selector]:
        """Tell which selectors can match topics of a partition."""
        return self._everywhere | self._there.get(partition, frozenset())

    def whole(self, revision: int, selectors: Iterable[Selector]) -> frozenset[Selector]:
        """It tells everything. Returns what is new.

        Raises:
            ValueError: that is more than it may have.
        """
        told = {each for each in selectors if not is_reserved(each.text)}
        self._check(len(told))
        new = frozenset(told - self._selectors)
        for each in self._selectors - told:
            self._drop(each)
        for each in new:
            self._add(each)
        self._counted()
        self._revision, self.is_whole = revision, True
        return new

    def change(self, change: InterestChange) -> frozenset[Selector] | None:
        """It tells a change. Returns what is new; None if one before it was missed: ask for the whole.

        Raises:
            ValueError: that is more than it may have.
        """
        if not self.is_whole or change.revision != self._revision + 1:
            self.is_whole = False
            return None
        new = frozenset(each for each in change.added if not is_reserved(each.text)) - self._selectors
        self._check(len(self._selectors) + len(new))
        for each in change.dropped & self._selectors:
            self._drop(each)
        for each in new:
            self._add(each)
        self._counted()
        self._revision = change.revision
        return new

    def agrees(self, told: InterestDigest) -> bool:
        """Tell whether the other side believes that it has told what was heard here; if not, ask for the whole."""
        self.is_whole = self.is_whole and told == InterestDigest(self._revision, _text(self._digest))
        return self.is_whole

    def wants(self, topic: TopicPath) -> bool:
        """Tell whether it selects a topic."""
        return bool(self._map.match(topic))

    def _add(self, selector: Selector) -> None:
        self._selectors.add(selector)
        self._map.setdefault(selector, lambda each: each)
        self._digest ^= _digest(selector)
        reached = partitions(selector, self._depth)
        if reached == ALL_PARTITIONS:
            self._everywhere.add(selector)
        else:
            (number,) = reached
            self._there.setdefault(number, set()).add(selector)

    def _drop(self, selector: Selector) -> None:
        self._selectors.discard(selector)
        self._map.remove(selector)
        self._digest ^= _digest(selector)
        if selector in self._everywhere:
            self._everywhere.remove(selector)
            return
        (number,) = partitions(selector, self._depth)
        there = self._there[number]
        there.remove(selector)
        if not there:
            del self._there[number]

    def _counted(self) -> None:
        self.partitions = ALL_PARTITIONS if self._everywhere else frozenset(self._there)

    def _check(self, count: int) -> None:
        if count > self._most:
            raise ValueError(f"{count:,} selectors are more than the {self._most:,} that a cluster may tell")


def _digest(selector: Selector) -> int:
    return int.from_bytes(hashlib.blake2b(selector.text.encode(), digest_size=_DIGEST_BYTES).digest())


def _text(digest: int) -> str:
    return f"{digest:0{2 * _DIGEST_BYTES}x}"
