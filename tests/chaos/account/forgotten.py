"""What the grid was made to forget, and which nodes ended: what neither has can be had from nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

NOTHING: Final = float("-inf")
"""The time of the newest data that is left when nothing is."""

LAG: Final = 2.0
"""Seconds by which what is left of the grid may be older than is said: a replica is behind its master."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The grid forgot something, in seconds since the beginning of the run.

    Attributes:
        began: from when it may have been without it.
        ended: when its nodes had been told of another Redis, at the latest.
        kept: when the data was written that is left for sure; ``NOTHING`` where that is unknown.
    """

    began: float
    ended: float
    kept: float = NOTHING


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """A process of a node ended, killed or as planned; its memory is gone.

    Attributes:
        at: when, in seconds since the beginning of the run.
        node: which.
    """

    at: float
    node: str


def undone(forgotten: Sequence[Forgotten], since: float, done: float, *, until: float = inf) -> bool:
    """Tell whether the grid may have forgotten before a time what was done between two others.

    Args:
        forgotten: what the grid was made to forget.
        since: when it was asked for.
        done: when it was confirmed; infinite without an answer.
        until: the time.
    """
    return any(each.kept - LAG <= done and since <= each.ended and each.began <= until for each in forgotten)
