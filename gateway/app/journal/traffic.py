"""What passed through the node, in total and by the first segment of the topics: counted where many are sent at once.

A delivery costs nothing: each update is counted once, with the number of sessions that it was sent to. What is below
``$gateway`` is the node's own and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gateway.core.types import TopicPath
from gateway.ports import PublishCommand, Published, PublishResult

ROOTS_TOLD: Final = 50
"""Roots with a record of their own, the busiest ones: a person reads no more, and a node writes one record a second at
most."""

ROOTS_COUNTED: Final = 4_096
"""Roots that are counted apart, as clients can make up as many as they like; the others are counted together."""

TOPICS_KNOWN: Final = 65_536
"""Topics whose root is remembered: some 10 MB, for the ones that are published most."""

THE_REST: Final = "*"
"""Stands for all roots without a record of their own."""


def add_up(tally: Any, other: Any, *, most: str = "") -> None:
    """Add what another tally of the same kind has counted.

    Args:
        tally: a dataclass of counts, which grow.
        other: the other one.
        most: the field of which both have the most of one of many, which is not added up.
    """
    for name, count in asdict(other).items():
        mine = getattr(tally, name)
        setattr(tally, name, max(mine, count) if name == most else mine + count)


@dataclass(slots=True)
class Tally:
    """What was counted for one root.

    Attributes:
        deliveries: updates written to sessions.
        publishes: publishes accepted from clients.
        bytes: of the values that were delivered.
    """

    deliveries: int = 0
    publishes: int = 0
    bytes: int = 0

    def add(self, other: Tally) -> None:
        """Add what another one has counted."""
        add_up(self, other)


class Traffic:
    """Counts traffic until it is taken out."""

    def __init__(self) -> None:
        self._roots: dict[str, Tally] = {}
        self._known: dict[TopicPath, Tally] = {}
        self._rest = Tally()
        self._own = Tally()

    def of(self, topic: TopicPath) -> Tally:
        """Find where to count a topic."""
        tally = self._known.get(topic)
        if tally is None:
            if len(self._known) >= TOPICS_KNOWN:
                self._known.clear()
            tally = self._known[topic] = self._tally(topic.partition("/")[0])
        return tally

    def delivered(self, topic: TopicPath, size: int, receivers: int) -> None:
        """Count an update that was sent to sessions; *size* is that of its value in bytes."""
        tally = self.of(topic)
        tally.deliveries += receivers
        tally.bytes += size * receivers

    def accepted(self, commands: Sequence[PublishCommand], results: Sequence[PublishResult]) -> None:
        """Count the publishes that were accepted now, each of which has its result."""
        for command, result in zip(commands, results, strict=True):
            if isinstance(result, Published) and not result.duplicate:
                self.of(command.topic).publishes += 1

    def take(self) -> tuple[Tally, dict[str, Tally]]:
        """Take out what was counted since the last time.

        Returns:
            All together, and the busiest roots; the rest of them, if there is any, under ``*``.
        """
        counted = {root: each for root, each in self._roots.items() if each.deliveries or each.publishes}
        rest = self._rest
        busiest = sorted(counted, key=lambda root: counted[root].deliveries + counted[root].publishes, reverse=True)
        for root in busiest[ROOTS_TOLD:]:
            rest.add(counted[root])
        told = {root: counted[root] for root in busiest[:ROOTS_TOLD]}
        if rest.deliveries or rest.publishes:
            told[THE_REST] = rest
        everything = Tally()
        for each in told.values():
            everything.add(each)
        self._roots, self._known, self._rest, self._own = {}, {}, Tally(), Tally()
        return everything, told

    def _tally(self, root: str) -> Tally:
        if root.startswith("$"):
            return self._own
        tally = self._roots.get(root)
        if tally is None:
            if len(self._roots) >= ROOTS_COUNTED:
                return self._rest
            tally = self._roots[root] = Tally()
        return tally
