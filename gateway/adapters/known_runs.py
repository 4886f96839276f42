"""Which runs of other nodes there are, as the node table and greetings tell: shared by the adapters of node links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.types import NodeId, NodeRef
from gateway.ports.peers import PeerPlace

MOST_REMEMBERED: Final = 1024
"""Names of nodes that are remembered, and runs that have left: far more than a cluster has nodes."""


class KnownRuns:
    """Tells runs that may have a link from those that may not.

    The grid decides which nodes there are: what the node table lists counts, and of several runs the newest. A run that
    the table does not list may have started just now, unless it was listed before, or a newer one is known.
    """

    def __init__(self) -> None:
        self.listed: Mapping[NodeRef, PeerPlace] = {}
        self._newest: dict[NodeId, tuple[float, NodeRef]] = {}
        self._gone: dict[NodeRef, None] = {}

    def meet(self, peers: Mapping[NodeRef, PeerPlace]) -> None:
        """Take the node table."""
        for run in self.listed.keys() - peers.keys():
            self._gone[run] = None
        for run in peers:
            self._gone.pop(run, None)
        while len(self._gone) > MOST_REMEMBERED:
            del self._gone[next(iter(self._gone))]
        listed: dict[NodeId, tuple[float, NodeRef]] = {}
        for run, place in peers.items():
            listed[run.node] = max(listed.get(run.node, (place.started, run)), (place.started, run))
        self._newest |= listed
        for node in list(self._newest)[: max(0, len(self._newest) - MOST_REMEMBERED)]:
            del self._newest[node]
        self.listed = dict(peers)

    def is_old(self, run: NodeRef, started: float) -> bool:
        """Tell whether *run* has left, or a newer one of its name is known."""
        since, newest = self._newest.get(run.node, (started, run))
        # A run may tell of its start in two places, a moment apart.
        return run in self._gone or (newest != run and (started, run) < (since, newest))

    def greeted(self, run: NodeRef, started: float) -> None:
        """Note a run that has shown who it is; it is not old."""
        self._newest.pop(run.node, None)
        self._newest[run.node] = (started, run)
        while len(self._newest) > MOST_REMEMBERED:
            del self._newest[next(iter(self._newest))]

    def wanted(self) -> dict[NodeRef, PeerPlace]:
        """List the nodes to have a link with: of each name the newest run that is listed, if it has an address."""
        return {
            run: place for run, place in self.listed.items() if place.address and not self.is_old(run, place.started)
        }

    def is_listed(self, run: NodeRef) -> bool:
        """Tell whether the node table lists it."""
        return run in self.listed

    def has_left(self, run: NodeRef) -> bool:
        """Tell whether the node table has listed it and does not any more."""
        return run in self._gone
