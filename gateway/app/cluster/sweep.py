"""Which partitions were swept since the grid last lost writes: what every sweep of the nodes has in common."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import GridGeneration
from gateway.ports import Grid


class Sweep:
    """What one node has swept in the generation that is in force.

    It is kept by partition: when a node dies between a loss and its sweep, its partitions fall to nodes that have swept
    theirs already, and these sweep the new ones, too.

    Args:
        grid: tells which generation is in force, and whether writes were lost before this node began.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._generation: GridGeneration | None = None
        self._swept: set[int] = set()

    def due(self, share: Iterable[int]) -> list[int]:
        """Tell which partitions of a share have yet to be swept."""
        generation = self._grid.generation
        if self._generation != generation:
            is_first = self._generation is None
            self._generation = generation
            in_order = is_first and self._grid.lost_writes_ago() is None
            self._swept = set(range(TOPIC_PARTITIONS)) if in_order else set()
        return [each for each in share if each not in self._swept]

    def done(self, partition: int) -> None:
        """A partition that was due was swept; that means nothing if another generation has come into force since."""
        if self._grid.generation == self._generation:
            self._swept.add(partition)
