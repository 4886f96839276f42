"""Topics in the order of their paths, so that a part of very many is found without a look at the others.

```text
blocks   [a/1 … c/7] [c/8 … k/2] [k/3 … z/9]      each in order, and all of one before all of the next
                          ▲
after "d": the block is found by halving, then the place in it
```

A sorted list alone would move half a megabyte for each of a hundred thousand topics that is put into its middle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from gateway.core.topics.selectors import Selector, literal_prefix
from gateway.core.topics.topics import SEPARATOR
from gateway.core.types import TopicPath

LONGEST_BLOCK: Final = 1_000
"""Topics of a block, above which it is halved: to put one into it takes a microsecond."""

BEHIND_SEPARATOR: Final = chr(ord(SEPARATOR) + 1)
"""The character that follows the separator in comparisons."""


class SortedTopics:
    """A set of topics, in order."""

    __slots__ = ("_blocks", "_count", "_ends")

    def __init__(self) -> None:
        self._blocks: list[list[TopicPath]] = []
        self._ends: list[TopicPath] = []
        """The last topic of each block."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, topic: TopicPath) -> None:
        """Put a topic in its place; no effect if it is there."""
        if not self._blocks:
            self._blocks, self._ends, self._count = [[topic]], [topic], 1
            return
        number = min(bisect_left(self._ends, topic), len(self._blocks) - 1)
        block = self._blocks[number]
        place = bisect_left(block, topic)
        if place < len(block) and block[place] == topic:
            return
        block.insert(place, topic)
        self._count += 1
        if len(block) > LONGEST_BLOCK:
            half = len(block) // 2
            self._blocks[number : number + 1] = [block[:half], block[half:]]
            self._ends[number : number + 1] = [block[half - 1], block[-1]]
        else:
            self._ends[number] = block[-1]

    def take(self, start: str, end: str | None, most: int, *, behind: bool = False) -> list[TopicPath]:
        """List topics from a place on.

        Args:
            start: from this path on, which may be none of them.
            end: and before this one; None for up to the last.
            most: so many at most.
            behind: begin behind *start*, and not at it.

        Returns:
            The topics, in order; fewer than *most* only if there are no more.
        """
        found: list[TopicPath] = []
        place_of = bisect_right if behind else bisect_left
        for number in range(place_of(self._ends, start), len(self._blocks)):
            block = self._blocks[number]
            first = place_of(block, start)
            stop = len(block) if end is None else bisect_left(block, end, first)
            found += block[first : min(stop, first + most - len(found))]
            if stop < len(block) or len(found) >= most:
                break
        return found


def span(selector: Selector) -> tuple[str, str | None]:
    """Tell between which paths all topics stand that a selector matches.

    Returns:
        The path at which, or behind which, the first one stands, and one before which the last one does; None if any
        may be the last.
    """
    prefix = literal_prefix(selector)
    # "a/**" matches "a" and what begins with "a/"; "a0" is the first path behind all of those.
    return prefix, prefix + BEHIND_SEPARATOR if prefix else None
