"""The selectors with wildcards of a policy or a list, and how another one compares with all of them at once.

They are ways through a trie whose edges are segments, with ``*`` and ``**`` as edges of their own. A *pattern*, a
selector with wildcards, is looked up in it: which of the others cover it, which it covers, and which have a topic in
common with it. Each is the comparison of two selectors (``covers``, ``overlaps``), made for all ways through the trie
at once and given up for a whole branch where it fails. So what it costs depends on the ways that lead somewhere, and
not on how many selectors there are; it is counted as work, because a pattern that begins with a wildcard leads
everywhere.

Which selectors match a topic is another question, with an answer that costs less: ``selector_map``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from gateway.core.topics.selectors import (
    ANY,
    ONE,
    Automaton,
    Selector,
    automaton_of,
    begins_with_wildcard,
    closed,
    step,
)
from gateway.core.topics.topics import is_reserved
from gateway.core.topics.work import Work

V = TypeVar("V")

_Step: TypeAlias = Callable[[Automaton, int, str], int]
"""Tells to which states an edge of the trie leads from some states of an automaton."""


class _Node(Generic[V]):
    """A place in the trie; the way from the root spells a selector, whose value is in ``values`` if it has one."""

    __slots__ = ("children", "is_any", "values")

    def __init__(self, *, is_any: bool = False) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.is_any = is_any
        self.values: tuple[V, ...] = ()


class PatternTrie(Generic[V]):
    """Values by selector with wildcards, looked up by such a selector. Not thread-safe."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        """Make an empty trie."""
        self._root: _Node[V] = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: Selector, value: V) -> None:
        """Add a selector with wildcards that is not there, and its value."""
        node = self._root
        for segment in pattern.segments:
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node(is_any=segment == ANY)
            node = child
        node.values = (value,)
        self._size += 1

    def remove(self, pattern: Selector) -> None:
        """Take a selector out, with the part of the trie that led only to it.

        Raises:
            KeyError: it is not in the trie.
        """
        path = [self._root]
        for segment in pattern.segments:
            path.append(path[-1].children[segment])
        if not path[-1].values:
            raise KeyError(pattern.text)
        path[-1].values = ()
        for parent, segment, node in zip(path[-2::-1], pattern.segments[::-1], path[:0:-1], strict=True):
            if node.children or node.values:
                break
            del parent.children[segment]
        self._size -= 1

    def covering(self, pattern: Selector, work: Work) -> Iterator[V]:
        """Find the values of the patterns that match all topics which *pattern* matches, itself among them.

        As ``selectors.covers``. A place of the trie takes part in one of two ways: it can go on as it likes, or, since
        a ``**`` of *pattern* fell into the run of wildcards before it, only through a run that has a ``**``.

        Args:
            pattern: a selector with wildcards.
            work: to be counted.

        Raises:
            WorkSpent: there may be more.
        """
        free, bound = self._begin(pattern), list[_Node[V]]()
        for segment in pattern.segments:
            work.take(len(free) + len(bound))
            going_on: list[_Node[V]] = []
            bound_on: list[_Node[V]] = []
            if segment == ANY:
                going_on = [node for node in free if node.is_any]
                bound_on = [*(node for node in free if not node.is_any), *bound]
            else:
                for node in free:
                    if segment != ONE and (child := node.children.get(segment)) is not None:
                        going_on.append(child)
                    if (child := node.children.get(ONE)) is not None:
                        going_on.append(child)
                    if node.is_any:
                        going_on.append(node)
                bound_on = [child for node in bound if (child := node.children.get(ONE)) is not None]
            # Behind its ``**`` a run has been gone through, and anything may follow.
            passed = [child for node in bound_on if (child := node.children.get(ANY)) is not None]
            free = _with_anys([*going_on, *passed])
            bound = list(dict.fromkeys(node for node in bound_on if ONE in node.children or ANY in node.children))
        for node in free:
            yield from node.values

    def _begin(self, pattern: Selector) -> list[_Node[V]]:
        if not is_reserved(pattern.text):
            return _with_anys([self._root])
        # No wildcard in the first place stands for a root of the system, so none may lead on from before it.
        first = self._root.children.get(pattern.segments[0])
        if first is None:
            return []
        before: _Node[V] = _Node()
        before.children[pattern.segments[0]] = first
        return [before]

    def covered(self, pattern: Selector, work: Work) -> Iterator[V]:
        """Find the values of the patterns all of whose topics *pattern* matches, itself among them.

        The map must not change before the iteration is over.

        Args:
            pattern: a selector with wildcards.
            work: to be counted.

        Raises:
            WorkSpent: there may be more.
        """
        return self._search(pattern, _covered_step, work)

    def meeting(self, pattern: Selector, work: Work) -> Iterator[V]:
        """Find the values of the patterns that have a topic in common with *pattern*; likewise."""
        return self._search(pattern, _meeting_step, work)

    def _search(self, pattern: Selector, lead: _Step, work: Work) -> Iterator[V]:
        automaton = automaton_of(pattern)
        wild = automaton.ones | automaton.anys
        by_name, by_wildcard = is_reserved(pattern.text), begins_with_wildcard(pattern)
        places = [(self._root, automaton.start)]
        while places:
            node, states = places.pop()
            if states & automaton.end and node.values:
                yield from node.values
            children = node.children
            if not children:
                continue
            if states & wild or len(children) <= _FEW:
                edges = list(children)
            else:
                # Nothing but these leads on.
                edges = [text for text, leading_on in automaton.by_text.items() if leading_on & states]
                edges = [each for each in (*edges, ONE, ANY) if each in children]
            work.take(1 + len(edges))
            for edge in edges:
                if node is self._root and (
                    (by_name and edge in _WILDCARDS) or (by_wildcard and is_reserved(edge))
                ):  # fmt: skip
                    continue  # the one names a root of the system, and a wildcard never stands for that
                following = lead(automaton, states, edge)
                if following:
                    places.append((children[edge], following))


_FEW: Final = 4
"""Edges of a place that are tried rather than looked up."""

_WILDCARDS: Final = frozenset({ONE, ANY})


def _covered_step(automaton: Automaton, states: int, edge: str) -> int:
    if edge == ANY:
        return closed(states & automaton.flexible, automaton.anys)
    return step(states, automaton.ones | automaton.by_text.get(edge, 0), automaton.anys)


def _meeting_step(automaton: Automaton, states: int, edge: str) -> int:
    if edge == ANY:
        # It can be whatever the pattern asks for next: every state from the first one on.
        return (automaton.end << 1) - (states & -states)
    if edge == ONE:
        return step(states, automaton.literals | automaton.ones, automaton.anys)
    return step(states, automaton.ones | automaton.by_text.get(edge, 0), automaton.anys)


def _with_anys(nodes: list[_Node[V]]) -> list[_Node[V]]:
    """Add the nodes that a ``**`` leads to by standing for nothing, and leave out repetitions."""
    closed: dict[_Node[V], None] = {}
    for node in nodes:
        closed[node] = None
        if (following := node.children.get(ANY)) is not None:
            closed[following] = None
    return list(closed)
