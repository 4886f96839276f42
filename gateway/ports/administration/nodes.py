"""The nodes of the cluster, as administrators see and drain them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class NodeState(StrEnum):
    """What a node is fit for."""

    READY = "ready"
    """It takes new sessions."""
    NOT_READY = "not_ready"
    """It keeps its sessions and takes no new ones; its reasons say why."""
    DRAINING = "draining"
    """It moves its sessions to other nodes, or has done so."""
    LAPSED = "lapsed"
    """Its lease is over; the others take over from it."""
    UNKNOWN = "unknown"
    """Its lease holds, but it has not told of itself: it has just started, or is of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as an administrator sees it.

    Attributes:
        node: its name.
        incarnation: which run of it.
        state: what it is fit for.
        reasons: why it is not ready, for people.
        listen: where its clients connect; None if unknown, as are all of the following then.
        admin: where other nodes reach its admin port, as a URL without a path.
        version: of the gateway it runs.
        started: when it started, in seconds since 1970 by its own clock.
        connected: sessions with a client.
        disconnected: sessions whose window runs.
        lag: seconds by which its event loop was late when it last looked.
        here: whether it is the node that answers.
    """

    node: str
    incarnation: str
    state: NodeState
    reasons: tuple[str, ...] = ()
    listen: str | None = None
    admin: str | None = None
    version: str | None = None
    started: float | None = None
    connected: int | None = None
    disconnected: int | None = None
    lag: float | None = None
    here: bool = False


class NodeAdministration(Protocol):
    """The nodes of the cluster."""

    async def list(self) -> Sequence[NodeView]:
        """Tell of all nodes that hold a lease, or whose lease lapsed and whose sessions are not on the clock yet.

        Sorted by name. What a node tells of itself is as old as its last renewal.

        Raises:
            GridUnavailable: see the module.
        """

    async def find(self, node: str) -> NodeView:
        """Tell of one node by its name, with what it knows of itself now.

        Raises:
            NotThere: there is none.
            HeldElsewhere: ask that node, which knows better.
            GridUnavailable: see the module.
        """

    async def as_reported(self, node: str) -> NodeView:
        """Tell of one node what it last told of itself.

        Raises:
            NotThere: there is none.
            GridUnavailable: see the module.
        """

    async def drain(self, node: str) -> NodeView:
        """Begin to move all clients of a node to others, and return; asked again, nothing more happens.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
        """

    async def undrain(self, node: str) -> NodeView:
        """Take new sessions again; moves that have begun are finished. Harmless if the node does not drain.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
            Conflict: the node is being stopped.
        """
