"""A map whose keys are selectors and whose look-up takes a topic: the values of all selectors that match it.

Selectors without wildcards are found by one look-up in a dictionary, so by-name selections cost nothing in the search.
The others are ways through a trie whose edges are segments, with ``*`` and ``**`` as edges of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gateway.core.selectors import ANY, ONE, Selector
from gateway.core.topics import SEPARATOR, is_reserved
from gateway.core.types import TopicPath

V = TypeVar("V")


class _Node(Generic[V]):
    """A place in the trie; the way from the root spells a selector, whose value is in ``values`` if it has one."""

    __slots__ = ("children", "is_any", "values")

    def __init__(self, *, is_any: bool = False) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.is_any = is_any
        self.values: tuple[V, ...] = ()


class SelectorMap(Generic[V]):
    """Values by selector, looked up by topic. Not thread-safe."""

    __slots__ = ("_literals", "_root", "_size")

    def __init__(self) -> None:
        """Make an empty map."""
        self._literals: dict[str, V] = {}
        self._root: _Node[V] = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def setdefault(self, selector: Selector, make: Callable[[Selector], V]) -> tuple[V, bool]:
        """Find the value of a selector, or make it.

        Args:
            selector: the key.
            make: called with the selector if it has no value yet.

        Returns:
            The value, and whether it is new.
        """
        if selector.literal:
            if selector.text in self._literals:
                return self._literals[selector.text], False
            value = self._literals[selector.text] = make(selector)
        else:
            node = self._root
            for segment in selector.segments:
                child = node.children.get(segment)
                if child is None:
                    child = node.children[segment] = _Node(is_any=segment == ANY)
                node = child
            if node.values:
                return node.values[0], False
            value = make(selector)
            node.values = (value,)
        self._size += 1
        return value, True

    def remove(self, selector: Selector) -> None:
        """Take a selector out, with the part of the trie that led only to it.

        Raises:
            KeyError: it is not in the map.
        """
        if selector.literal:
            del self._literals[selector.text]
        else:
            path = [self._root]
            for segment in selector.segments:
                path.append(path[-1].children[segment])
            if not path[-1].values:
                raise KeyError(selector.text)
            path[-1].values = ()
            for parent, segment, node in zip(path[-2::-1], selector.segments[::-1], path[:0:-1], strict=True):
                if node.children or node.values:
                    break
                del parent.children[segment]
        self._size -= 1

    def match(self, topic: TopicPath) -> list[V]:
        """Collect the values of all selectors that match a topic, each once, in no particular order.

        A node of the trie is active when the way to it matches the segments read so far. Each segment of the topic
        costs time in proportion to the active nodes, of which there are never more than ways in the trie that match a
        beginning of the topic; ways with the same end are followed once.
        """
        found = [self._literals[topic]] if topic in self._literals else []
        active = _with_anys([self._root])
        segments = topic.split(SEPARATOR)
        if is_reserved(topic):
            # No wildcard in the first place stands for a root of the system.
            root = self._root.children.get(segments.pop(0))
            active = [] if root is None else _with_anys([root])
        for segment in segments:
            following: list[_Node[V]] = []
            for node in active:
                children = node.children
                if (child := children.get(segment)) is not None:
                    following.append(child)
                if (child := children.get(ONE)) is not None:
                    following.append(child)
                if node.is_any:
                    following.append(node)
            active = _with_anys(following)
        for node in active:
            found.extend(node.values)
        return found


def _with_anys(nodes: list[_Node[V]]) -> list[_Node[V]]:
    """Add the nodes that a ``**`` leads to by standing for nothing, and leave out repetitions."""
    closed: dict[_Node[V], None] = {}
    for node in nodes:
        closed[node] = None
        if (following := node.children.get(ANY)) is not None:
            closed[following] = None
    return list(closed)
