"""The notices of what a node, or the grid, has lost (protocol 5.8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.wire.packets import Notice, NoticeCode

GRID_LOST_WRITES: Final = Notice(
    NoticeCode.GRID_LOST_WRITES,
    "The grid came back with less than it had. Sessions and the values known here have been restored; "
    "publishes acknowledged shortly before may be lost.",
)


def values_reread(partitions: Iterable[int]) -> Notice:
    """Make the notice that current values of *partitions* follow instead of every update."""
    return Notice(
        NoticeCode.VALUES_REREAD,
        "The node lost its place in the stream of updates; current values follow instead of every update between.",
        partitions=tuple(sorted(partitions)),
    )
