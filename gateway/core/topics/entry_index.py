"""The entries of one list of selections, found by what they select and not one after the other.

An entry has a *rank*: it grows along the list, and a later entry has a higher one, whatever has gone in between. So an
entry comes or goes without a look at the others: literal ones stand in a dictionary, those with wildcards, once they
are many, in a map of selectors, for topics, and in a trie, for the comparison with another selector.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gateway.core.topics.literal_ranges import matched
from gateway.core.topics.pattern_trie import PatternTrie
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import ALL_PARTITIONS, Selector, covers, matches, overlaps, partitions
from gateway.core.topics.topics import TOPIC_PARTITIONS, is_reserved
from gateway.core.topics.work import Work, steps_to_compare
from gateway.core.types import TopicPath

FEW_WILDCARDS: Final = 8
"""Entries with wildcards that are tried one by one, at 1 µs each; a map and a trie take some µs, and memory."""


class Entry(NamedTuple):
    """One entry of a selection list.

    Attributes:
        selects: True for select, False for deselect.
        selector: which topics.
    """

    selects: bool
    selector: Selector

    def __str__(self) -> str:
        return f"{'+' if self.selects else '-'}{self.selector.text}"


class Ranked:
    """An entry and its place in the list. Two are the same only if they are one object.

    Attributes:
        entry: of the list.
        rank: above that of every entry before it.
    """

    __slots__ = ("entry", "rank")

    def __init__(self, entry: Entry, rank: int) -> None:
        self.entry = entry
        self.rank = rank

    def __repr__(self) -> str:
        return f"<{self.entry} at {self.rank}>"


class EntryIndex:
    """The entries of a list, each selector at most once.

    Attributes:
        text_bytes: of all entries as they are written, their signs among them.
        selecting: how many of them select.
        of_system: how many select topics of the system.
    """

    __slots__ = (
        "_by_text",
        "_depth",
        "_deselecting",
        "_in_order",
        "_literals",
        "_map",
        "_patterns",
        "_reached",
        "_reached_everywhere",
        "_wildcards",
        "of_system",
        "selecting",
        "text_bytes",
    )

    def __init__(self, ranked: Iterable[Ranked] = ()) -> None:
        """Take in *ranked*, in the order of their ranks."""
        self._by_text: dict[str, Ranked] = {}
        self._wildcards: dict[str, Ranked] = {}
        self._deselecting: dict[str, Ranked] = {}
        self._in_order = True
        """Whether the dictionaries have their entries in the order of ranks: so it is unless one was put back."""
        # Made when they are first asked for, and kept up from then on.
        self._map: SelectorMap[Ranked] | None = None
        self._patterns: PatternTrie[Ranked] | None = None
        self._literals: list[str] | None = None
        self._depth = 0
        self._reached: Counter[int] = Counter()
        self._reached_everywhere = 0
        self.text_bytes = 0
        self.selecting = 0
        self.of_system = 0
        for each in ranked:
            self.put(each)

    def __len__(self) -> int:
        return len(self._by_text)

    # --- Entries that come and go -------------------------------------------------------------------------------------

    def put(self, ranked: Ranked) -> None:
        """Add an entry whose selector is not there."""
        entry = ranked.entry
        selector = entry.selector
        text = selector.text
        if self._in_order and self._by_text and ranked.rank < next(reversed(self._by_text.values())).rank:
            self._in_order = False
        self._by_text[text] = ranked
        self.text_bytes += entry_bytes(entry)
        if entry.selects:
            self._select(selector, 1)
        else:
            self._deselecting[text] = ranked
        if not selector.literal:
            self._wildcards[text] = ranked
            if self._map is not None:
                self._map.setdefault(selector, lambda _: ranked)
            if self._patterns is not None:
                self._patterns.add(selector, ranked)
        elif self._literals is not None:
            insort(self._literals, text)

    def drop(self, ranked: Ranked) -> None:
        """Take an entry out that is there."""
        entry = ranked.entry
        selector = entry.selector
        text = selector.text
        del self._by_text[text]
        self.text_bytes -= entry_bytes(entry)
        if entry.selects:
            self._select(selector, -1)
        else:
            del self._deselecting[text]
        if not selector.literal:
            del self._wildcards[text]
            if self._map is not None:
                self._map.remove(selector)
            if self._patterns is not None:
                self._patterns.remove(selector)
        elif self._literals is not None:
            del self._literals[bisect_left(self._literals, text)]

    def _select(self, selector: Selector, change: int) -> None:
        self.selecting += change
        if is_reserved(selector.text):
            self.of_system += change
        if self._depth:
            self._reach(selector, change)

    # --- Questions ----------------------------------------------------------------------------------------------------

    def in_order(self) -> Iterable[Ranked]:
        """Return all entries in the order of the list."""
        if not self._in_order:
            self._by_text = _sorted(self._by_text)
            self._wildcards = _sorted(self._wildcards)
            self._deselecting = _sorted(self._deselecting)
            self._in_order = True
        return self._by_text.values()

    def last_match(self, topic: TopicPath, work: Work | None = None) -> Ranked | None:
        """Find the entry that decides about a topic; None if none matches it.

        Raises:
            WorkSpent: nobody knows.
        """
        last = self._by_text.get(topic)
        if self._is_many:
            for each in self._map_made().match(topic, work):
                if last is None or each.rank > last.rank:
                    last = each
            return last
        for each in reversed(self._wildcards.values()):
            if (last is None or each.rank > last.rank) and matches(each.entry.selector, topic):
                last = each
        return last

    def covering(self, pattern: Selector, work: Work) -> Iterator[Ranked]:
        """Find the entries that match all that *pattern* matches.

        Raises:
            WorkSpent: there may be more.
        """
        if self._is_many:
            yield from self._patterns_made().covering(pattern, work)
            return
        work.take(len(self._wildcards))
        yield from (each for each in self._wildcards.values() if covers(each.entry.selector, pattern))

    def covered(self, pattern: Selector, work: Work) -> Iterator[Ranked]:
        """Find the entries all of whose topics *pattern* matches; the index must not change meanwhile.

        Raises:
            WorkSpent: there may be more.
        """
        yield from self._matched(pattern, work)
        if self._is_many:
            yield from self._patterns_made().covered(pattern, work)
            return
        work.take(len(self._wildcards))
        yield from (each for each in self._wildcards.values() if covers(pattern, each.entry.selector))

    def selects_some(self, pattern: Selector, after: int, work: Work) -> bool:
        """Tell whether an entry with a rank above *after* selects a topic that *pattern* matches.

        Raises:
            WorkSpent: nobody knows.
        """
        # Where deselects matter it is the literal ones that are many, but one of them is found at once, if at all.
        for each in self._matched(pattern, work):
            if each.entry.selects and each.rank > after:
                return True
        meeting: Iterator[Ranked]
        if self._is_many:
            meeting = self._patterns_made().meeting(pattern, work)
        else:
            work.take(len(self._wildcards))
            meeting = (each for each in self._wildcards.values() if overlaps(each.entry.selector, pattern))
        return any(each.entry.selects and each.rank > after for each in meeting)

    def deselects_some(self, pattern: Selector, after: int, work: Work) -> bool:
        """Tell whether an entry with a rank above *after* deselects a topic that *pattern* matches.

        Raises:
            WorkSpent: nobody knows.
        """
        self.in_order()
        for each in reversed(self._deselecting.values()):
            if each.rank <= after:
                return False
            work.take(steps_to_compare(len(each.entry.selector.segments)))
            if overlaps(each.entry.selector, pattern):
                return True
        return False

    def get(self, text: str) -> Ranked | None:
        """Return the entry with a selector, if there is one."""
        return self._by_text.get(text)

    def partitions(self, depth: int) -> frozenset[int]:
        """See ``Selections.partitions``."""
        if self._depth != depth:
            self._depth, self._reached, self._reached_everywhere = depth, Counter(), 0
            for each in self._by_text.values():
                if each.entry.selects:
                    self._reach(each.entry.selector, 1)
        return ALL_PARTITIONS if self._reached_everywhere else frozenset(self._reached)

    def _reach(self, selector: Selector, change: int) -> None:
        reached = partitions(selector, self._depth)
        if len(reached) == TOPIC_PARTITIONS:
            self._reached_everywhere += change
            return
        for partition in reached:
            self._reached[partition] += change
            if not self._reached[partition]:
                del self._reached[partition]

    # --- Inside -------------------------------------------------------------------------------------------------------

    @property
    def _is_many(self) -> bool:
        return len(self._wildcards) > FEW_WILDCARDS

    def _map_made(self) -> SelectorMap[Ranked]:
        if self._map is None:
            self._map = SelectorMap()
            for each in self._wildcards.values():
                self._map.setdefault(each.entry.selector, lambda _, made=each: made)  # type: ignore[misc]
        return self._map

    def _patterns_made(self) -> PatternTrie[Ranked]:
        if self._patterns is None:
            self._patterns = PatternTrie()
            for each in self._wildcards.values():
                self._patterns.add(each.entry.selector, each)
        return self._patterns

    def _matched(self, pattern: Selector, work: Work) -> Iterator[Ranked]:
        """Find the literal entries that *pattern* matches."""
        if len(self._by_text) == len(self._wildcards):
            return
        if self._literals is None:
            self._literals = sorted(text for text, each in self._by_text.items() if each.entry.selector.literal)
        by_text = self._by_text
        yield from (by_text[text] for text in matched(self._literals, pattern, work))


def entry_bytes(entry: Entry) -> int:
    """Count the bytes of an entry as it is written, its sign among them."""
    text = entry.selector.text
    return 1 + (len(text) if text.isascii() else len(text.encode()))


def _sorted(by_text: dict[str, Ranked]) -> dict[str, Ranked]:
    return dict(sorted(by_text.items(), key=lambda item: item[1].rank))
