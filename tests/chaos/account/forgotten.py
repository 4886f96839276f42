"""What the grid was made to forget, and which nodes ended: what neither has can be had from nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOTHING: Final = float("-inf")
"""The time of the newest data that is left when nothing is."""


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
