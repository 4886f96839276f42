"""A map whose keys are selectors and whose look-up takes a topic: the values of all selectors that match it.

```text
prices/ACME        a literal                   found in a dictionary
prices/**, a/*/*   literals, then wildcards    found on the way through a trie of leading literals
*/ACME, a/**/b     a literal behind a wildcard read by joint automata, which are filed by a literal
```

The first two kinds are what people write most, and there can be any number of them: a topic leads along one way through
the trie, at each of whose places at most some dozens of selectors differ only in their wildcards.

**A literal behind a wildcard.** All literals of a selector must occur in a topic that it matches. So each selector is
filed under one of its literals, the one under which the fewest are filed already, and a topic asks only for what is
filed under one of its own segments. Of ``*/ACME``, ``*/XYZ`` and so on it looks at one.

**The worst case.** Whoever makes up selectors for the purpose can have all of them looked at for a topic, because they
consist of its segments. They are then read by joint automata, some 60 of the longest by each, at one step for a segment
of the topic: 1,000 of the longest selectors take some 600 steps, a third of a millisecond, however many ways through
them lead somewhere. A trie of wildcards, which this was before, took up to 500,000 steps. What remains grows with the
number of selectors and no faster. Steps can be counted as work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from gateway.core.topics.joint_automaton import STATES, JointAutomaton, Place
from gateway.core.topics.selectors import ANY, ONE, Selector
from gateway.core.topics.topics import SEPARATOR, is_reserved
from gateway.core.topics.work import Work
from gateway.core.types import TopicPath

V = TypeVar("V")

_WILDCARDS: Final = frozenset({ONE, ANY})

_SPARSE: Final = STATES // 8
"""States of an automaton whose selectors are few anyway, so that it is not worth moving them."""


class _Branch(Generic[V]):
    """A place in the trie of leading literals.

    Attributes:
        children: by the next literal.
        by_wildcards: the values of selectors that go on with wildcards to their end: by their number if these are
            ``*``, and by minus that if the last of them is a ``**``.
    """

    __slots__ = ("by_wildcards", "children")

    def __init__(self) -> None:
        self.children: dict[str, _Branch[V]] = {}
        self.by_wildcards: dict[int, V] = {}

    def collect(self, remaining: int, found: list[V]) -> None:
        """Collect what matches a topic that has so many segments behind this place."""
        for wildcards, value in self.by_wildcards.items():
            if wildcards == remaining or -1 - remaining <= wildcards < 0:  # a last ``**`` may stand for nothing
                found.append(value)


class _File(Generic[V]):
    """Selectors that are filed under the same literal.

    Attributes:
        size: how many.
        automata: in which they are.
        filling: the one that new selectors go to. Of each other one at least half of the states are in use.
    """

    __slots__ = ("automata", "filling", "size")

    def __init__(self) -> None:
        self.size = 0
        self.filling: JointAutomaton[V] = JointAutomaton()
        self.automata: dict[JointAutomaton[V], None] = {self.filling: None}

    def add(self, selector: Selector, value: V) -> Place[V]:
        self.size += 1
        if not self.filling.has_room(selector):
            self.filling = JointAutomaton()
            self.automata[self.filling] = None
        return self.filling.add(selector, value)


class _Filed(Generic[V]):
    """Where a selector is that has a literal behind a wildcard.

    Attributes:
        literal: under which it is filed.
        place: in the automaton.
    """

    __slots__ = ("literal", "place")

    def __init__(self, literal: str, place: Place[V]) -> None:
        self.literal = literal
        self.place = place


class SelectorMap(Generic[V]):
    """Values by selector, looked up by topic. Not thread-safe."""

    __slots__ = ("_filed", "_files", "_literals", "_root", "_size")

    def __init__(self) -> None:
        """Make an empty map."""
        self._literals: dict[str, V] = {}
        self._root: _Branch[V] = _Branch()
        self._filed: dict[str, _Filed[V]] = {}
        self._files: dict[str, _File[V]] = {}
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
        text = selector.text
        if selector.literal:
            if text in self._literals:
                return self._literals[text], False
            value = self._literals[text] = make(selector)
            self._size += 1
            return value, True
        leading, wildcards = _parts(selector)
        if wildcards is not None:
            branch = self._root
            for segment in leading:
                child = branch.children.get(segment)
                if child is None:
                    child = branch.children[segment] = _Branch()
                branch = child
            if wildcards in branch.by_wildcards:
                return branch.by_wildcards[wildcards], False
            value = branch.by_wildcards[wildcards] = make(selector)
        else:
            filed = self._filed.get(text)
            if filed is not None:
                return filed.place.value, False
            value = make(selector)
            self._file(selector, value)
        self._size += 1
        return value, True

    def remove(self, selector: Selector) -> None:
        """Take a selector out, with what led only to it.

        Raises:
            KeyError: it is not in the map.
        """
        if selector.literal:
            del self._literals[selector.text]
            self._size -= 1
            return
        leading, wildcards = _parts(selector)
        if wildcards is not None:
            path = [self._root]
            for segment in leading:
                path.append(path[-1].children[segment])
            del path[-1].by_wildcards[wildcards]
            for parent, segment, branch in zip(path[-2::-1], leading[::-1], path[:0:-1], strict=True):
                if branch.children or branch.by_wildcards:
                    break
                del parent.children[segment]
        else:
            self._take_out(self._filed.pop(selector.text))
        self._size -= 1

    def match(self, topic: TopicPath, work: Work | None = None) -> list[V]:
        """Collect the values of all selectors that match a topic, each once, in no particular order.

        Args:
            topic: which.
            work: to be counted, if somebody asks for it: a step for each place of the trie, and for each segment that
                an automaton may read.

        Raises:
            WorkSpent: there may be more.
        """
        found = [self._literals[topic]] if topic in self._literals else []
        segments = topic.split(SEPARATOR)
        of_system = is_reserved(topic)
        branch = self._root
        remaining = len(segments)
        if branch.by_wildcards and not of_system:
            # A wildcard in the first place never stands for a root of the system.
            branch.collect(remaining, found)
        for segment in segments:
            child = branch.children.get(segment)
            if child is None:
                break
            branch = child
            remaining -= 1
            if branch.by_wildcards:
                branch.collect(remaining, found)
        if work is not None:
            work.take(1 + len(segments) - remaining)
        if self._files:
            self._read(segments, found, of_system, work)
        return found

    def _read(self, segments: list[str], found: list[V], of_system: bool, work: Work | None) -> None:
        for literal in dict.fromkeys(segments):
            file = self._files.get(literal)
            if file is not None:
                if work is not None:
                    work.take(len(segments) * len(file.automata))
                for automaton in file.automata:
                    automaton.match(segments, found, of_system=of_system)

    # --- Selectors that are filed -------------------------------------------------------------------------------------

    def _file(self, selector: Selector, value: V) -> None:
        literals = [each for each in selector.segments if each not in _WILDCARDS]
        literal = min(literals, key=self._filed_under)
        file = self._files.get(literal)
        if file is None:
            file = self._files[literal] = _File()
        self._filed[selector.text] = _Filed(literal, file.add(selector, value))

    def _filed_under(self, literal: str) -> int:
        file = self._files.get(literal)
        return 0 if file is None else file.size

    def _take_out(self, filed: _Filed[V]) -> None:
        file = self._files[filed.literal]
        if file.size == 1:
            del self._files[filed.literal]
            return
        file.size -= 1
        automaton = filed.place.automaton
        automaton.remove(filed.place)
        if automaton.taken > _SPARSE and 2 * automaton.living < automaton.taken:
            # Half of its selectors have gone since it was filled: the others move, so that none reads for a few.
            del file.automata[automaton]
            if file.filling is automaton:
                file.filling = JointAutomaton()
                file.automata[file.filling] = None
            for place in automaton.places.values():
                file.size -= 1
                self._filed[place.selector.text].place = file.add(place.selector, place.value)


def matching_any(selectors: Iterable[Selector]) -> Callable[[TopicPath], bool]:
    """Make what tells whether any of some selectors matches a topic."""
    found: SelectorMap[Selector] = SelectorMap()
    for selector in selectors:
        found.setdefault(selector, lambda each: each)
    return lambda topic: bool(found.match(topic))


def _parts(selector: Selector) -> tuple[tuple[str, ...], int | None]:
    """Return the literals in front of the first wildcard, and what follows as ``_Branch`` has it.

    The latter is None if it is not wildcards alone.
    """
    segments = selector.segments
    leading = 0
    while segments[leading] not in _WILDCARDS:
        leading += 1
    behind = segments[leading:]
    if not _WILDCARDS.issuperset(behind):
        return segments[:leading], None
    # In canonical form a ``**`` is the last of its run.
    return segments[:leading], -len(behind) if behind[-1] == ANY else len(behind)
