"""Who selects a topic: an index over the selections of all sessions of a node.

```text
                     SelectorMap
topic ─► resolved? ─┬─► prices/ACME ─► Terminal ─┐
         (a cache)  ├─► prices/**  ──► Terminal ─┼─► one Terminal, or a Merge of several ─► tuple of subscribers
                    └─► */ACME  ─────► Terminal ─┘
```

Each distinct selector has one *terminal*, which knows the subscribers that select it and those that deselect it. Which
terminals a topic reaches is remembered per topic, and forgotten only where a terminal appears or disappears: for a
selector without wildcards, of just that topic; for one with a literal first segment, of the topics below that segment;
else of all. Subscribers that join or leave a terminal disturb none of that.

If a topic reaches one terminal, the answer is that terminal's tuple of subscribers. If it reaches several, a *merge*
decides per subscriber by its last entry; merges are shared by all topics that reach the same terminals.

**Answers are tuples.** A caller may change the index in any way while it iterates over one: the tuple is what was true
when it was asked for. A subscriber removed meanwhile can still come up, and the caller must tolerate that (a node does:
a closed session takes no updates). Each tuple is kept until one of its terminals changes, so a topic that is published
again costs one or two look-ups, and making it anew costs less than the iteration that follows.

**A change takes little time**, however many merges it makes wrong: they are *outdated* from then on, which is one union
of sets, and are given up some at a time, by each change and by whoever calls ``tidy`` between two turns of the loop.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from sys import getsizeof
from typing import Final, Generic, TypeVar

from gateway.core.topics.entry_index import Entry
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import ALL_PARTITIONS, ANY, ONE, Selector, partitions
from gateway.core.topics.topics import SEPARATOR, TOPIC_PARTITIONS
from gateway.core.types import TopicPath

S = TypeVar("S", bound=Hashable)

MAX_RESOLVED: Final = 65_536
"""Topics of which it is remembered what they were resolved to, the latest. With about 300 bytes each, some 20 MiB; a
node with more live topics than that still answers, at the cost of one look into the map of selectors for a topic whose
turn comes again after that many others."""

MAX_RESOLVED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all that, likewise: clients choose how long topics are, and how many selectors match one."""

_RESOLVED_BYTES: Final = 200
"""Bytes of a resolved topic besides its text: its place, and its share of the merges."""

_REACHED_BYTES: Final = 80
"""Bytes of each terminal of a merge: its place in a set, and that of the merge in the terminal."""

MAX_MERGED: Final = 1_000_000
"""Subscribers in all remembered merges together, 8 bytes each, before the oldest merges are forgotten."""

TIDIED_AT_ONCE: Final = 250
"""Outdated answers that are given up at once: a fraction of a millisecond. Sixty thousand of them, one for each topic
that a monitor of everything shares with its own subscriber, took 30 to 42 ms."""


@dataclass(frozen=True, slots=True)
class InterestChange:
    """How a change of selections changed which topic partitions anybody is interested in.

    Attributes:
        gained: partitions that had no interest before.
        lost: partitions that have none now.
    """

    gained: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost)


UNCHANGED: Final = InterestChange()
"""Nothing gained, nothing lost: the usual case."""


class _Terminal(Generic[S]):
    """One selector in use.

    Attributes:
        selector: which.
        selecting: subscribers that select it, with the rank of the entry among the entries of that subscriber.
        deselecting: subscribers that deselect it, likewise. No subscriber is in both.
        members: the answer for topics that reach nothing else, or None if it has to be made.
        merges: the merges made since it changed last that it is a part of; some may have been unmade since. None
            before the first: most topics reach one selector alone, and an empty set takes 216 bytes.
    """

    __slots__ = ("deselecting", "members", "merges", "selecting", "selector")

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.selecting: dict[S, int] = {}
        self.deselecting: dict[S, int] = {}
        self.members: tuple[S, ...] | None = None
        self.merges: set[_Merge[S]] | None = None

    def make(self) -> tuple[S, ...]:
        self.members = tuple(self.selecting)
        return self.members

    def rank(self, subscriber: S, *, selects: bool) -> int:
        """Tell the rank of the subscriber's entry here, or -1 if it has none of that kind."""
        return (self.selecting if selects else self.deselecting).get(subscriber, -1)


class _Merge(Generic[S]):
    """What a set of terminals amounts to.

    Attributes:
        terminals: none of them, or at least two.
        members: the answer, or None if it has to be made.
        resolutions: to it that are not too old.
    """

    __slots__ = ("members", "resolutions", "terminals")

    def __init__(self, terminals: frozenset[_Terminal[S]]) -> None:
        self.terminals = terminals
        self.resolutions = 0
        # No terminals select nobody, for good.
        self.members: tuple[S, ...] | None = None if terminals else ()

    def make(self) -> tuple[S, ...]:
        # Few subscribers deselect anything: only for those is it worth asking which of their entries is the last.
        against: dict[S, int] = {}
        for each in self.terminals:
            for subscriber, rank in each.deselecting.items():
                against[subscriber] = max(rank, against.get(subscriber, -1))
        dropped = set(against)
        if against:
            for each in self.terminals:
                # It looks at the fewer of both.
                for subscriber in each.selecting.keys() & against.keys():
                    if each.selecting[subscriber] > against[subscriber]:
                        dropped.discard(subscriber)
        union = self._union()
        self.members = tuple([each for each in union if each not in dropped]) if dropped else union
        return self.members

    def _union(self) -> tuple[S, ...]:
        """Join the terminals, starting from the largest, whose tuple is copied in one go."""
        largest = max(self.terminals, key=lambda each: len(each.selecting))
        known = largest.selecting
        others = [each.selecting for each in self.terminals if each is not largest]
        additional = {subscriber: None for other in others for subscriber in other if subscriber not in known}
        members = largest.members
        return (largest.make() if members is None else members) + tuple(additional)


class _Subscription(Generic[S]):
    """What the index knows of one subscriber.

    Attributes:
        selections: as given.
        terminals: of its entries, by the selector's text.
        next_rank: above the rank of each of its entries. Ranks grow along the list of entries, but not by one.
    """

    __slots__ = ("next_rank", "selections", "terminals")

    def __init__(self) -> None:
        self.selections = NOTHING
        self.terminals: dict[str, _Terminal[S]] = {}
        self.next_rank = 0


def _nobody() -> None:
    """Nobody wants to be told."""


class SelectionIndex(Generic[S]):
    """Answers which subscribers select a topic, and which topic partitions anybody is interested in.

    Not thread-safe; every method returns at once.
    """

    def __init__(self, *, depth: int = 1) -> None:
        """Make an empty index.

        Args:
            depth: how many leading segments decide a topic's partition; see ``topic_partition``.
        """
        self._depth = depth
        self._subscriptions: dict[S, _Subscription[S]] = {}
        self._terminals: SelectorMap[_Terminal[S]] = SelectorMap()
        # What topics were resolved to: by first segment, then by topic, so that a whole subtree is forgotten in one go.
        self._resolved: dict[str, dict[str, _Terminal[S] | _Merge[S]]] = {}
        self._order: deque[tuple[TopicPath, _Terminal[S] | _Merge[S]]] = deque()
        """All resolutions that are not too old, also those forgotten since then because a selector came or went."""
        self._resolved_bytes = 0
        self._merges: dict[frozenset[_Terminal[S]], _Merge[S]] = {}
        self._made: OrderedDict[_Merge[S], int] = OrderedDict()
        self._made_members = 0
        # Merges of which a terminal has changed since they were made, if they have not been made anew.
        self._outdated: set[_Merge[S]] = set()
        # Selected selectors per partition, those that reach every partition counted apart.
        self._interest_counts = [0] * TOPIC_PARTITIONS
        self._interest_everywhere = 0
        self._interest: frozenset[int] = frozenset()
        self._interest_is_current = True
        self._selected: set[Selector] | None = None
        self._on_selected: Callable[[], None] = _nobody

    # --- Questions ------------------------------------------------------------------------------------------------

    def match(self, topic: TopicPath) -> tuple[S, ...]:
        """Tell who selects a topic.

        Args:
            topic: a validated path.

        Returns:
            Every subscriber whose ``selections.selects(topic)``, once each, in no particular order. The tuple stays as
            it is; see the module for what that means to a caller that iterates while subscribers come and go.
        """
        below = self._resolved.get(topic.partition(SEPARATOR)[0])
        found = None if below is None else below.get(topic)
        if found is None:
            found = self._resolve(topic)
        members = found.members
        if members is not None and not (self._outdated and found in self._outdated):
            return members
        members = found.make()
        if isinstance(found, _Merge):
            self._keep(found, len(members))
        return members

    def knows(self, topic: TopicPath) -> bool:
        """Tell whether ``match`` has its answer at hand, and need not look for it."""
        below = self._resolved.get(topic.partition(SEPARATOR)[0])
        found = None if below is None else below.get(topic)
        if found is None or found.members is None:
            return False
        return not (self._outdated and found in self._outdated)

    @property
    def interest(self) -> frozenset[int]:
        """Topic partitions in which a topic can be that somebody selects."""
        if not self._interest_is_current:
            self._interest_is_current = True
            self._interest = (
                ALL_PARTITIONS
                if self._interest_everywhere
                else frozenset(partition for partition, count in enumerate(self._interest_counts) if count)
            )
        return self._interest

    def watch_selected(self, on_selected: Callable[[], None]) -> None:
        """Begin to keep what is ``selected``, and have *on_selected* called whenever that changes; it must not wait.

        Whoever needs that pays for it: one more reference for each selector.
        """
        self._on_selected = on_selected
        self._selected = {
            entry.selector
            for subscription in self._subscriptions.values()
            for entry in subscription.selections.entries
            if entry.selects
        }

    def unwatch_selected(self) -> None:
        """Keep it no more."""
        self._selected, self._on_selected = None, _nobody

    @property
    def selected(self) -> AbstractSet[Selector]:
        """The selectors that anybody selects, though others of theirs may deselect some of it; while it is watched."""
        return frozenset() if self._selected is None else self._selected

    def selections(self, subscriber: S) -> Selections:
        """Return what ``set`` was last called with for *subscriber*; ``NOTHING`` for a stranger."""
        subscription = self._subscriptions.get(subscriber)
        return NOTHING if subscription is None else subscription.selections

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[S]:
        return iter(self._subscriptions)

    def __contains__(self, subscriber: object) -> bool:
        return subscriber in self._subscriptions

    # --- Changes --------------------------------------------------------------------------------------------------

    def set(self, subscriber: S, selections: Selections) -> InterestChange:
        """Put *selections* in the place of what the subscriber selected before.

        It costs time in proportion to the entries that differ, if *selections* was made of what was there before; else
        also a quick comparison of those that do not.

        Returns:
            The partitions that gained their first or lost their last interest.
        """
        before = self.interest
        subscription = self._subscriptions.get(subscriber)
        if subscription is None:
            subscription = self._subscriptions[subscriber] = _Subscription()
        changes = selections.changes_since(subscription.selections)
        subscription.selections = selections
        if changes is None:
            self._reorder(subscriber, subscription, selections.entries)
        else:
            for text in changes.removed:
                self._leave(subscriber, subscription.terminals.pop(text))
            for entry in changes.added:
                self._join(subscriber, subscription, entry)
        self.tidy()
        return self._interest_since(before)

    def remove(self, subscriber: S) -> InterestChange:
        """Forget a subscriber; no effect if it is a stranger.

        Returns:
            The partitions that lost their last interest.
        """
        before = self.interest
        subscription = self._subscriptions.pop(subscriber, None)
        if subscription is not None:
            for terminal in subscription.terminals.values():
                self._leave(subscriber, terminal)
        self.tidy()
        return self._interest_since(before)

    @property
    def outdated(self) -> int:
        """How many outdated answers are still in memory, about; if there are any, ``tidy`` should be called soon."""
        return len(self._outdated)

    def tidy(self) -> None:
        """Give up some outdated answers; until then they hold subscribers in memory that may be gone."""
        outdated = self._outdated
        for _ in range(min(len(outdated), TIDIED_AT_ONCE)):
            merge = outdated.pop()
            if merge.members is not None:
                self._unmake(merge)

    def _reorder(self, subscriber: S, subscription: _Subscription[S], entries: Iterable[Entry]) -> None:
        """Make the subscriber's ranks follow *entries*, touching only terminals where something changes."""
        wanted = {entry.selector.text: entry for entry in entries}
        for text in subscription.terminals.keys() - wanted.keys():
            self._leave(subscriber, subscription.terminals.pop(text))
        # An entry keeps its rank if it is above the one before; the first that does not gets a rank above all, and so
        # do those after it. Removing an entry or adding one at the end therefore moves no other.
        last = -1
        for text, entry in wanted.items():
            terminal = subscription.terminals.get(text)
            rank = -1 if terminal is None else terminal.rank(subscriber, selects=entry.selects)
            if rank <= last:
                rank = self._join(subscriber, subscription, entry)
            last = rank

    def _join(self, subscriber: S, subscription: _Subscription[S], entry: Entry) -> int:
        """Enter a subscriber at the entry's terminal with a new rank, which is returned."""
        text = entry.selector.text
        terminal = subscription.terminals.get(text)
        if terminal is None:
            terminal, is_new = self._terminals.setdefault(entry.selector, _Terminal)
            subscription.terminals[text] = terminal
            if is_new:
                self._forget_topics(entry.selector)
        rank = subscription.next_rank
        subscription.next_rank += 1
        joined, other = terminal.selecting, terminal.deselecting
        if not entry.selects:
            joined, other = other, joined
        was_selected = bool(terminal.selecting)
        other.pop(subscriber, None)
        joined[subscriber] = rank
        self._changed(terminal, was_selected=was_selected)
        return rank

    def _leave(self, subscriber: S, terminal: _Terminal[S]) -> None:
        was_selected = bool(terminal.selecting)
        terminal.selecting.pop(subscriber, None)
        terminal.deselecting.pop(subscriber, None)
        self._changed(terminal, was_selected=was_selected)
        if not terminal.selecting and not terminal.deselecting:
            self._terminals.remove(terminal.selector)
            self._forget_topics(terminal.selector)

    def _changed(self, terminal: _Terminal[S], *, was_selected: bool) -> None:
        """Drop the answers made from a terminal, and count it if it has begun or ceased to be selected."""
        terminal.members = None
        if terminal.merges:
            # The others of their terminals find out when they change themselves.
            merges, terminal.merges = terminal.merges, None
            if len(merges) > len(self._outdated):
                merges, self._outdated = self._outdated, merges
            self._outdated |= merges
        if bool(terminal.selecting) != was_selected:
            self._count_interest(terminal.selector, -1 if was_selected else 1)

    # --- Interest -------------------------------------------------------------------------------------------------

    def _count_interest(self, selector: Selector, change: int) -> None:
        if self._selected is not None:
            (self._selected.add if change > 0 else self._selected.discard)(selector)
            self._on_selected()
        reached = partitions(selector, self._depth)
        if len(reached) == TOPIC_PARTITIONS:
            self._interest_everywhere += change
        else:
            for partition in reached:
                self._interest_counts[partition] += change
        self._interest_is_current = False

    def _interest_since(self, before: frozenset[int]) -> InterestChange:
        after = self.interest
        return UNCHANGED if after == before else InterestChange(after - before, before - after)

    # --- What is remembered ---------------------------------------------------------------------------------------

    def _resolve(self, topic: TopicPath) -> _Terminal[S] | _Merge[S]:
        """Find what answers for a topic, and remember it."""
        while len(self._order) >= MAX_RESOLVED or (self._order and self._resolved_bytes >= MAX_RESOLVED_BYTES):
            self._forget_oldest()
        reached = self._terminals.match(topic)
        found: _Terminal[S] | _Merge[S]
        if len(reached) == 1:
            found = reached[0]
        else:
            key = frozenset(reached)
            known = self._merges.get(key)
            if known is None:
                known = self._merges[key] = _Merge(key)
                self._resolved_bytes += _REACHED_BYTES * len(key)
            known.resolutions += 1
            found = known
        self._order.append((topic, found))
        self._resolved_bytes += _RESOLVED_BYTES + getsizeof(topic)
        self._resolved.setdefault(topic.partition(SEPARATOR)[0], {})[topic] = found
        return found

    def _forget_topics(self, selector: Selector) -> None:
        """Forget what the topics were resolved to that *selector* may match."""
        first = selector.segments[0]
        if selector.literal:
            if below := self._resolved.get(first):
                below.pop(selector.text, None)
        elif first in {ONE, ANY}:
            self._resolved.clear()
        else:
            self._resolved.pop(first, None)

    def _forget_oldest(self) -> None:
        """Forget the oldest resolution, and its merge with the last of its topics.

        Not all at once: that takes a tenth of a second where there are many.
        """
        topic, found = self._order.popleft()
        self._resolved_bytes -= _RESOLVED_BYTES + getsizeof(topic)
        first = topic.partition(SEPARATOR)[0]
        below = self._resolved.get(first)
        if below is not None and below.get(topic) is found:
            del below[topic]
            if not below:
                del self._resolved[first]
        if isinstance(found, _Merge):
            found.resolutions -= 1
            if not found.resolutions:
                self._drop(found)

    def _drop(self, merge: _Merge[S]) -> None:
        """Forget a merge to which no topic was resolved lately."""
        del self._merges[merge.terminals]
        self._resolved_bytes -= _REACHED_BYTES * len(merge.terminals)
        self._outdated.discard(merge)
        if merge in self._made:
            self._unmake(merge)
        for each in merge.terminals:
            if each.merges:
                each.merges.discard(merge)

    def _keep(self, merge: _Merge[S], members: int) -> None:
        """Note that a merge has been made, so that its terminals can make it outdated."""
        if merge in self._outdated:
            self._outdated.discard(merge)
            self._made_members -= self._made.pop(merge, 0)
        while self._made and self._made_members + members > MAX_MERGED:
            self._unmake(next(iter(self._made)))
        self._made[merge] = members
        self._made_members += members
        for each in merge.terminals:
            if each.merges is None:
                each.merges = set()
            each.merges.add(merge)

    def _unmake(self, merge: _Merge[S]) -> None:
        """Drop a merge's answer: it would be wrong now, and would keep subscribers in memory that are gone."""
        merge.members = None
        self._made_members -= self._made.pop(merge)
