"""All destinations that a node knows, and which of them counts for a path."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from sys import getsizeof
from typing import Final

from gateway.core.destinations.destination import Destination, Origin, Rank, name_of, rank
from gateway.core.destinations.limits import HistoryLimits, Kind, PresenceLimits, QueueLimits
from gateway.core.destinations.presence import literal_beginnings, pattern_of
from gateway.core.topics.remembered import Remembered
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import Selector
from gateway.core.topics.topics import SEPARATOR
from gateway.core.types import TopicPath
from gateway.core.wire.publish_packet import FOR_EVER

REMEMBERED_BYTES: Final = 1024**2
"""Bytes of answers that are remembered: some 5,000 usual paths. What is asked beyond that is found anew, at 2 to 300
µs each (see ``MAX_DESTINATIONS``)."""

_ANSWER_BYTES: Final = 16
"""Bytes of an answer besides the path: a tuple's place for a destination that is held anyway, shared with others."""


class _Place:
    """What is said of one selector.

    Attributes:
        rank: of the selector; the lowest of all that match a path counts.
        said: destinations by origin.
    """

    __slots__ = ("rank", "said")

    def __init__(self, selector: Selector) -> None:
        self.rank: Rank = rank(selector)
        self.said: dict[Origin, Destination] = {}

    @property
    def counts(self) -> Destination:
        """The destination that counts: administrators come before the file."""
        return self.said[Origin.ADMINISTRATOR] if Origin.ADMINISTRATOR in self.said else self.said[Origin.FILE]


class DestinationTable:
    """All destinations that a node knows, and which of them counts for a path; see ``destination`` for the rule.

    While there are none, whoever asks for each publish should look at ``empty`` (or ``has_history``, ``has_queues``)
    and leave it at that. Not thread-safe.

    Args:
        destinations: to begin with.

    Attributes:
        empty: there are none.
        has_history: some topics may have history.
        has_queues: there are queues.
        has_ttl: values of some topics end.
        has_presence: some trees tell who has subscribed to them.
        revision: grows with every change.
    """

    def __init__(self, destinations: Iterable[Destination] = ()) -> None:
        self._by_name: dict[str, Destination] = {}
        self._places: dict[str, _Place] = {}
        self._map: SelectorMap[_Place] = SelectorMap()
        self._kinds = dict.fromkeys(Kind, 0)
        self._answers: Remembered[TopicPath, tuple[Destination | None]] = Remembered(
            REMEMBERED_BYTES, lambda path, _answer: getsizeof(path) + _ANSWER_BYTES
        )
        self.empty = True
        self.has_history = False
        self.has_queues = False
        self.has_ttl = False
        self.has_presence = False
        self.revision = 0
        self._with_ttl = self._with_presence = 0
        self._trees: Remembered[str, tuple[TopicPath, ...]] = Remembered(
            REMEMBERED_BYTES, lambda text, trees: getsizeof(text) + getsizeof(trees) + sum(map(getsizeof, trees))
        )
        for each in destinations:
            self.put(each)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Destination]:
        return iter(self._by_name.values())

    # --- What counts --------------------------------------------------------------------------------------------------

    def find(self, path: TopicPath) -> Destination | None:
        """Return the destination that counts for a path; None if nobody says anything, so that it is a plain value."""
        if self.empty:
            return None
        answer = self._answers.get(path)
        if answer is None:
            places = self._map.match(path)
            answer = (min(places, key=lambda place: place.rank).counts if places else None,)
            self._answers.put(path, answer)
        return answer[0]

    def history(self, topic: TopicPath) -> HistoryLimits | None:
        """Return how much history a topic has; None if it has none."""
        if not self.has_history:
            return None
        found = self.find(topic)
        return found.limits if found is not None and isinstance(found.limits, HistoryLimits) else None

    def ttl(self, topic: TopicPath) -> float:
        """Return the seconds after which a value of a topic ends if its publisher says nothing; 0 for never."""
        if not self.has_ttl:
            return FOR_EVER
        found = self.find(topic)
        if found is None or isinstance(found.limits, QueueLimits):
            return FOR_EVER
        return found.limits.ttl or FOR_EVER

    def presence(self, tree: TopicPath) -> PresenceLimits | None:
        """Return what is told of the members of a tree; None if that path is not the one of a tree with presence."""
        if not self.has_presence:
            return None
        found = self.find(tree)
        if found is None or isinstance(found.limits, QueueLimits) or not found.limits.presence:
            return None
        return found.limits if len(pattern_of(found.selector)) == tree.count(SEPARATOR) + 1 else None

    def trees(self, selector: Selector) -> tuple[TopicPath, ...]:
        """Tell of which trees a session is a member that selects *selector*; see ``presence``."""
        if not self.has_presence:
            return ()
        known = self._trees.get(selector.text)
        if known is None:
            known = tuple([path for path in literal_beginnings(selector) if self.presence(path) is not None])
            self._trees.put(selector.text, known)
        return known

    def queue(self, path: TopicPath) -> QueueLimits | None:
        """Return the limits of a queue; None if there is no such queue."""
        if not self.has_queues:
            return None
        found = self.find(path)
        return found.limits if found is not None and isinstance(found.limits, QueueLimits) else None

    def counts(self, destination: Destination) -> bool:
        """Tell whether a destination of this table counts for its selector, and is not replaced by an administrator."""
        return self._places[destination.selector.text].counts is destination

    # --- What is said -------------------------------------------------------------------------------------------------

    def get(self, origin: Origin, selector: Selector) -> Destination | None:
        """Return what *origin* says of a selector."""
        return self._by_name.get(name_of(origin, selector))

    def named(self, name: str) -> Destination | None:
        """Return the destination of that name."""
        return self._by_name.get(name)

    def count(self, kind: Kind) -> int:
        """Count the destinations of a kind, of both origins."""
        return self._kinds[kind]

    def of(self, origin: Origin) -> list[Destination]:
        """List what one origin says, in the order of selectors."""
        return sorted((each for each in self if each.origin is origin), key=place_in_list)

    def after(self, place: tuple[str, str], limit: int) -> Sequence[Destination]:
        """List destinations in the order of their selectors' texts, those of administrators first.

        Args:
            place: ``place_in_list`` of the last one of the page before; two empty texts for the first page.
            limit: most in this page.
        """
        listed = sorted(self, key=place_in_list)
        start = bisect_right(listed, place, key=place_in_list)
        return listed[start : start + limit]

    def put(self, destination: Destination) -> bool:
        """Take a destination in, in the place of an earlier one of the same name.

        Returns:
            False if exactly this one was there already.
        """
        known = self._by_name.get(destination.name)
        if known == destination:
            return False
        place, _ = self._map.setdefault(destination.selector, _Place)
        self._places[destination.selector.text] = place
        place.said[destination.origin] = destination
        self._by_name[destination.name] = destination
        self._changed(known, destination)
        return True

    def drop(self, name: str) -> Destination | None:
        """Take a destination out; returns what was there."""
        known = self._by_name.pop(name, None)
        if known is None:
            return None
        place = self._places[known.selector.text]
        del place.said[known.origin]
        if not place.said:
            del self._places[known.selector.text]
            self._map.remove(known.selector)
        self._changed(known, None)
        return known

    def _changed(self, before: Destination | None, now: Destination | None) -> None:
        if before is not None:
            self._kinds[before.kind] -= 1
        if now is not None:
            self._kinds[now.kind] += 1
        self.empty = not self._by_name
        self.has_history = self._kinds[Kind.HISTORY] > 0
        self.has_queues = self._kinds[Kind.QUEUE] > 0
        self._with_ttl += _has_ttl(now) - _has_ttl(before)
        self.has_ttl = self._with_ttl > 0
        self._with_presence += _has_presence(now) - _has_presence(before)
        self.has_presence = self._with_presence > 0
        self.revision += 1
        self._answers.clear()
        self._trees.clear()


def _has_ttl(destination: Destination | None) -> bool:
    return destination is not None and not isinstance(destination.limits, QueueLimits) and bool(destination.limits.ttl)


def _has_presence(destination: Destination | None) -> bool:
    limits = None if destination is None else destination.limits
    return isinstance(limits, PresenceLimits) and limits.presence


def place_in_list(destination: Destination) -> tuple[str, str]:
    """Return what orders destinations in lists."""
    return destination.selector.text, destination.origin.value
