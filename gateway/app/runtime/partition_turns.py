"""Takes a step for each of several partitions: one that is refused keeps no other from its turn (P20)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from gateway.ports import Grid, GridState, GridUnavailable

T = TypeVar("T")


async def each_in_turn(
    grid: Grid, partitions: Iterable[int], step: Callable[[int], Awaitable[T]]
) -> list[tuple[int, T]]:
    """Take a step for one partition after the other.

    A grid that is there may refuse one of them for long: it is full, or a slot of a Redis Cluster stays half moved.

    Args:
        grid: in which they are.
        partitions: which.
        step: takes it.

    Returns:
        What came of it, by partition, where it was taken.

    Raises:
        GridUnavailable: the grid is unreachable as a whole; those that were left had no turn.
        Exception: a step has failed for another reason, which is a bug or foreign data; all have had their turn.
    """
    taken: list[tuple[int, T]] = []
    left = iter(partitions)
    for partition in left:
        try:
            taken.append((partition, await step(partition)))
        except GridUnavailable:
            if grid.state is not GridState.UP:
                raise
        except Exception:
            await each_in_turn(grid, left, step)
            raise
    return taken
