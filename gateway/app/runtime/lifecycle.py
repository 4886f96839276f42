"""How far the life of a node has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Lifecycle:
    """What a node is about; each stage is set by who brings the node there, and read by whoever it concerns.

    Attributes:
        joined: whether it has had its first lease (set by ``Node``).
        draining: whether its clients are being moved, or have been (``PlannedStop``).
        stopping: whether it ends as soon as they are (``PlannedStop``).
    """

    joined: bool = False
    draining: bool = False
    stopping: bool = False
