"""The list of the cluster: where its nodes say that clients reach them, and who is told of it (protocol section 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.portions import portions
from gateway.core.topology import list_of
from gateway.core.types import NodeId
from gateway.core.wire.support import understands
from gateway.core.wire.topology_packets import TOPOLOGY, Cluster, Topology
from gateway.ports import Access, NodeEntry

TOLD_AT_ONCE: Final = 200
"""Sessions that are told of a change in one turn of the loop: a millisecond or two of encoding."""


class ClusterList:
    """What this node knows of where clients reach the nodes.

    It is as old as the last look at the grid. So a node may be listed for a moment after it has died, which costs a
    client one attempt.

    Args:
        context: of the node.
        sessions: the sessions held here; those that want it are told of changes.
    """

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._background = context.background
        self._sessions = sessions
        self._lists = {secure: list_of({}, secure=secure) for secure in (False, True)}

    def heard(self, entries: Sequence[NodeEntry]) -> None:
        """Take in what the nodes tell of themselves; those that drain take nobody, so they are not listed."""
        nodes: dict[NodeId, tuple[str, ...]] = {}
        for each in sorted(entries, key=lambda entry: entry.joined):
            report = each.report
            if each.alive and report is not None and report.urls and not report.draining:
                nodes[each.node.node] = report.urls
        lists = {secure: list_of(nodes, secure=secure) for secure in self._lists}
        changed = {secure for secure, cluster in lists.items() if cluster != self._lists[secure]}
        self._lists = lists
        if changed:
            self._background.once(self._tell(changed), "tell-topology")

    def of(self, access: Access, supports: frozenset[str]) -> Cluster | None:
        """Tell a client that has just come; None if there is nothing to tell, or it would not understand.

        Args:
            access: how it has come: it is told of nothing that is less safe.
            supports: the words of its first packet.
        """
        cluster = self._lists[access.secure]
        return cluster if cluster.nodes and understands(supports, TOPOLOGY) else None

    def urls_of(self, node: NodeId, access: Access) -> tuple[str, ...]:
        """Tell where clients reach a node, of what it advertises, to a client that has come in a certain way."""
        listed = self._lists[access.secure].nodes
        return next((each.urls for each in listed if each.node == node), ())

    async def _tell(self, changed: set[bool]) -> None:
        wanting = [session for session in self._sessions if understands(session.supports, TOPOLOGY)]
        async for portion in portions(wanting, TOLD_AT_ONCE):
            for session in portion:
                connection = session.connection
                if connection is None or connection.access.secure not in changed:
                    continue
                session.machine.send_link(Topology(self._lists[connection.access.secure]))
                self._sessions.flusher.mark(session)
