"""The connections of a node to the masters of an adopted grid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.adapters.redis.adoption import Member
from gateway.adapters.redis.topology import Topology


class Attachment:
    """The connections to an adopted grid.

    Args:
        topology: who serves what.
        members: the masters.

    Attributes:
        topology: as given, or as slots have moved since.
        members: as given.
        over: set once the connections are given up.
    """

    def __init__(self, topology: Topology, members: tuple[Member, ...]) -> None:
        self.topology = topology
        self.members = members
        self.over = asyncio.Event()
        self._interested: list[Callable[[], None]] = []

    def when_slots_move(self, tell: Callable[[], None]) -> None:
        """Have *tell* called whenever the masters serve other slots than before."""
        self._interested.append(tell)

    def slots_moved(self, topology: Topology) -> None:
        """The same masters serve other slots by now."""
        self.topology = topology
        for tell in self._interested:
            tell()
