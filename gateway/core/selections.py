"""What a session wants to see: an ordered list of selected and deselected selectors (protocol section 6.3).

Whether a topic is selected is decided by the last entry that matches it; a topic that none matches is not selected.
``select prices/**, deselect prices/secret/**`` therefore selects all prices but the secret ones, and in the other
order it selects them all.

Values of ``Selections`` are immutable, so that the grid's write, the index and a frozen session can share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.core.errors import InvalidSelector
from gateway.core.selector_map import SelectorMap
from gateway.core.selectors import Selector, covers, matches, overlaps, parse_selector, partitions
from gateway.core.topics import is_reserved, shown
from gateway.core.types import TopicPath

SELECT_SIGN: Final = "+"
"""On the wire and in the grid, in front of a selector that is selected."""

DESELECT_SIGN: Final = "-"
"""Likewise, in front of one that is deselected."""

FEW_WILDCARDS: Final = 8
"""Entries with wildcards that are tried one by one, at about 1 µs each; a map costs 5 µs per question, however many."""


SHORT_LIST: Final = 16
"""Entries of a list that is worth keeping for reuse; long ones would fill the memory, and hardly two are equal."""

MOST_KEPT: Final = 64
"""Selectors that an unsubscribe may name to stay (protocol 6.3): appending one takes time linear in the list, and one
request must not take more than some milliseconds."""

_CACHED_LISTS: Final = 4096
"""Short lists kept for reuse, some 10 MiB: a claim of a session that the node holds reads the very list that is here
already, and sessions of one application often have the same."""


class Entry(NamedTuple):
    """One entry of a selection list.

    Attributes:
        selects: True for select, False for deselect.
        selector: which topics.
    """

    selects: bool
    selector: Selector

    def __str__(self) -> str:
        return f"{SELECT_SIGN if self.selects else DESELECT_SIGN}{self.selector.text}"


class Selections:
    """An immutable list of entries in compact form; build one from ``NOTHING`` by ``select`` and ``deselect``.

    Compact means that these entries are left out, none of which decides anything:

    * one that a later entry covers: the later one decides wherever the earlier matches;
    * a new one that changes nothing: going back from it, an entry of the same kind that covers it comes before any of
      the other kind that overlaps it. Before the first entry everything counts as deselected, so a deselect that
      overlaps no select is left out;
    * deselects in front of the first select.

    A change costs time linear in the number of entries. It does not look for unions of entries that cover another,
    nor does it look again at old entries, except those in front, so two lists that select the same topics are often
    but not always equal.

    Two lists are equal if they have the same entries in the same order.
    """

    __slots__ = ("_entries", "_literals", "_map", "_of_system", "_partitions", "_wildcards", "_wire")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """Take *entries* as they are, compact or not; ``NOTHING`` and ``from_wire`` are the usual beginnings."""
        self._entries = tuple(entries)
        # Made on demand, for ``selects``: ranks by topic, wildcard entries with ranks from the last to the first, and,
        # if those are many, their ranks in a map.
        self._literals: dict[str, int] | None = None
        self._wildcards: tuple[tuple[int, Entry], ...] = ()
        self._map: SelectorMap[int] | None = None
        self._partitions: tuple[int, frozenset[int]] | None = None
        self._wire: tuple[str, ...] | None = None
        self._of_system: bool | None = None

    @staticmethod
    def from_wire(wire: Iterable[str]) -> Selections:
        """Read what ``to_wire`` wrote.

        The entries are kept as they are: whoever wrote them had compacted them, and doing it again would make reading a
        list take time quadratic in its length, on the path where ten thousand sessions fail over at once.

        Args:
            wire: entries, ``+selector`` or ``-selector``.

        Raises:
            InvalidSelector: an entry has no sign, or its selector is not valid.
        """
        written = tuple(wire)
        return _known_list(written) if len(written) <= SHORT_LIST else Selections(map(_parse_entry, written))

    def to_wire(self) -> tuple[str, ...]:
        """Write the entries as ``+selector`` and ``-selector``, in order."""
        if self._wire is None:
            self._wire = tuple(map(str, self._entries))
        return self._wire

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries in order."""
        return self._entries

    @property
    def of_system(self) -> bool:
        """Whether an entry selects topics of the system, so that somebody has to publish them."""
        if self._of_system is None:
            self._of_system = any(entry.selects and is_reserved(entry.selector.text) for entry in self._entries)
        return self._of_system

    def select(self, selector: Selector) -> Selections:
        """Return the list after selecting *selector*; this very object if that changes nothing."""
        return self._append(Entry(True, selector))

    def deselect(self, selector: Selector) -> Selections:
        """Return the list after deselecting *selector*; this very object if that changes nothing."""
        return self._append(Entry(False, selector))

    def selects(self, topic: TopicPath) -> bool:
        """Tell whether a topic is selected: whether the last entry that matches it is a select.

        The entries without wildcards together cost one look-up. The others are tried one by one, or, if they are more
        than ``FEW_WILDCARDS``, found in a map made at the first question: a failover asks for each topic of a
        partition.
        """
        literals = self._prepared()
        if len(self._wildcards) <= FEW_WILDCARDS:
            return self._last_match_selects(topic)
        if self._map is None:
            # From the first to the last: should a selector come twice, the last counts.
            ranks = {entry.selector: wildcard_rank for wildcard_rank, entry in reversed(self._wildcards)}
            self._map = SelectorMap()
            for selector in ranks:
                self._map.setdefault(selector, ranks.__getitem__)
        rank = max((literals.get(topic, -1), *self._map.match(topic)))
        return rank >= 0 and self._entries[rank].selects

    def partitions(self, depth: int) -> frozenset[int]:
        """Tell in which topic partitions selected topics can be; never one too few, perhaps some too many.

        Args:
            depth: how many leading segments decide a topic's partition; see ``topic_partition``.

        Raises:
            ValueError: *depth* is below 1.
        """
        known = self._partitions
        if known is None or known[0] != depth:
            reached = (partitions(entry.selector, depth) for entry in self._entries if entry.selects)
            known = self._partitions = (depth, frozenset().union(*reached))
        return known[1]

    def _prepared(self) -> dict[str, int]:
        if self._literals is None:
            ranked = tuple(enumerate(self._entries))
            self._literals = {entry.selector.text: rank for rank, entry in ranked if entry.selector.literal}
            self._wildcards = tuple((rank, entry) for rank, entry in reversed(ranked) if not entry.selector.literal)
        return self._literals

    def _last_match_selects(self, topic: TopicPath) -> bool:
        rank = self._prepared().get(topic, -1)
        for wildcard_rank, entry in self._wildcards:
            if wildcard_rank < rank:
                break
            if matches(entry.selector, topic):
                return entry.selects
        return rank >= 0 and self._entries[rank].selects

    def _append(self, new: Entry) -> Selections:
        if self._is_idle(new):
            return self
        if new.selector.literal and new.selector.text not in self._prepared():
            kept = list(self._entries)
        else:
            kept = [entry for entry in self._entries if not covers(new.selector, entry.selector)]
        first = next((position for position, entry in enumerate(kept) if entry.selects), len(kept))
        remaining = Selections(kept[first:])
        # What made the new entry matter may be gone: a deselect that removed its select has done all it can.
        if len(remaining) < len(self) and remaining._is_idle(new):
            return remaining
        return Selections((*remaining._entries, new))

    def _is_idle(self, new: Entry) -> bool:
        """Tell whether *new*, put at the end, would be seen to change nothing."""
        if new.selector.literal:
            return self._last_match_selects(TopicPath(new.selector.text)) == new.selects
        for entry in reversed(self._entries):
            if entry.selects == new.selects:
                if covers(entry.selector, new.selector):
                    return True
            elif overlaps(entry.selector, new.selector):
                return False
        return not new.selects

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, Selections) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"Selections.from_wire({list(self.to_wire())})"


@lru_cache(_CACHED_LISTS)
def _known_list(wire: tuple[str, ...]) -> Selections:
    return Selections(map(_parse_entry, wire))


def _parse_entry(text: str) -> Entry:
    sign, selector = text[:1], text[1:]
    if sign not in {SELECT_SIGN, DESELECT_SIGN}:
        raise InvalidSelector(
            f"an entry of a selection list begins with '{SELECT_SIGN}' or '{DESELECT_SIGN}', but {shown(text)} does not"
        )
    return Entry(sign == SELECT_SIGN, parse_selector(selector))


NOTHING: Final = Selections()
"""The list that selects no topic; every session begins with it."""
