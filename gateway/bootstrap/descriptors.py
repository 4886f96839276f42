"""How many files the process may open, and how many connections of clients that leaves room for."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from gateway.adapters.websocket.server import MOST_REQUESTS

ADMIN: Final = 512
"""Descriptors for the connections of the admin port, which serves as many; never more than a quarter of all."""

ADMIN_SHARE: Final = 4
"""See above."""

OTHERS: Final = 256
"""Descriptors for all but clients and the admin port: connections to Redis, other nodes and identity providers, the
agent port, listeners, logs, files that are read again. A node with everything has some 60."""

REQUESTS_SHARE: Final = 4
"""Of how many descriptors one may belong to a connection that has asked for nothing yet."""

FEW: Final = 4096
"""Connections below which operators are told, whatever they have configured: few systems are meant to have so few."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What a process may open.

    Attributes:
        most: descriptors; None for no limit.
    """

    most: int | None

    @property
    def requests(self) -> int:
        """Connections of clients that have asked for nothing yet."""
        return MOST_REQUESTS if self.most is None else min(MOST_REQUESTS, max(1, self._for_clients // REQUESTS_SHARE))

    def connections(self, configured: int) -> int:
        """Tell how many connections of clients a node may have.

        Args:
            configured: as many are wanted; 0 for as many as there is room for.

        Returns:
            No more than there are descriptors for, when the admin port, Redis and all else have theirs; 0 if nothing
            limits them.
        """
        if self.most is None:
            return configured
        room = max(1, self._for_clients - self.requests)
        return min(configured, room) if configured else room

    def address_connections(self, configured: int, *, of: int) -> int:
        """Tell how many of them may come from one address, so that none gets a larger share than it was to have (P20).

        Args:
            configured: as many are wanted; 0 for no limit.
            of: connections that are wanted of all addresses; 0 for as many as there is room for.
        """
        if not configured or not of:
            return configured
        return min(configured, max(1, configured * self.connections(of) // of))

    @property
    def _for_clients(self) -> int:
        return 0 if self.most is None else max(0, self.most - OTHERS - min(ADMIN, self.most // ADMIN_SHARE))


UNLIMITED: Final = Descriptors(None)


def raise_limit() -> Descriptors:
    """Raise the soft limit of open files to the hard one, which no privilege is needed for.

    Shells and service managers set the soft limit to 1,024, for programs that use ``select``.

    Returns:
        What the process may open from now on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems call the hard limit infinite and allow less.
            hard = soft
    return Descriptors(None if hard == resource.RLIM_INFINITY else hard)
