"""Clients that are to be at the master: sent there when they come to another node, and when it changes (P19).

These are clients that follow it, and in the cluster mode ``replication`` all clients.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.app.admission.refusals import HandshakeRefused, not_master
from gateway.app.cluster.cluster_list import ClusterList
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.cluster.session_mover import SessionMover
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.catalogue import topology_metrics as catalogue
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import NodeId
from gateway.core.wire.codes import GOING_AWAY, ClusterMode, ErrorCode
from gateway.core.wire.packets import Hello, Resume
from gateway.core.wire.topology_packets import FOLLOW, MOST_REDIRECTS
from gateway.ports import Access, Master

LOOK_AGAIN: Final = 30.0
"""Seconds after which clients are sent to the master again that could not reach it when they came."""

FIRST_LOOK: Final = 0.5
"""Seconds after a change of master at which clients are sent there that have come since; each further look is after
twice as long. Who was refused in the name of the former master, which could not take it any more, counts as one that
cannot reach the master: it is served wherever it comes, and that may be just after the change was seen there."""

SENT_AT_ONCE: Final = 50
"""Clients that are sent to the master in one turn of the loop: each is a handshake and a handover there."""


class Followers:
    """Sends clients that follow the master to it.

    Args:
        context: of the node.
        sessions: the sessions held here.
        moves: sends one client to another node.
        cluster_list: tells where clients reach it.
        links: to the other nodes, by which one that is gone is noticed before its lease is over; None without.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        *,
        moves: SessionMover,
        cluster_list: ClusterList,
        links: NodeLinks | None = None,
    ) -> None:
        self._me = context.me
        self._is_alone = context.parameters.cluster_mode is ClusterMode.REPLICATION
        self._metrics = context.metrics
        self._reconnect_advice = context.reconnect_advice
        self._sessions = sessions
        self._moves = moves
        self._cluster = context.cluster
        self._cluster_list = cluster_list
        self._links = links
        self._clock = context.clock
        self._patience = context.parameters.lease + context.parameters.renew
        self._silent: tuple[Master, float] | None = None
        self._changed = asyncio.Event()

    def refuse_elsewhere(self, packet: Hello | Resume, access: Access) -> None:
        """Refuse a client that follows the master and is not at it; unless it could not get there (protocol 15.4).

        A node that stands by refuses every client; of those it has accepted before, some may be as late as this.

        Raises:
            HandshakeRefused: with the name of the master, and where clients reach it.
        """
        if self.stands_by:
            raise HandshakeRefused(ErrorCode.DRAINING, "the node stands by; the master will serve you", GOING_AWAY)
        if FOLLOW not in packet.supports or packet.redirects >= MOST_REDIRECTS:
            return
        master = self._elsewhere()
        if master is not None:
            self._metrics.add(catalogue.FOLLOWERS_REDIRECTED)
            raise not_master(master.node.node, self._cluster_list.urls_of(master.node.node, access))

    @property
    def stands_by(self) -> bool:
        """Whether clients are to be served by the master alone, and this node is not it."""
        return self._is_alone and not self._cluster.is_master

    @property
    def name_elsewhere(self) -> NodeId | None:
        """The name of the master that serves clients in the place of this node; None if there is no other that does."""
        master = self._cluster.master if self.stands_by else None
        return None if master is None else master.node.node

    def master_changed(self) -> None:
        """Send those who are here to the master, if that is another node now."""
        self._changed.set()

    async def run(self) -> None:
        """Send clients to the master whenever it changes, for ever; and now and then who could not reach it before."""
        pause = LOOK_AGAIN
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            pause = FIRST_LOOK if self._changed.is_set() else min(2 * pause, LOOK_AGAIN)
            self._changed.clear()
            if self._elsewhere() is not None:
                await self._send()

    async def _send(self) -> None:
        async for portion in portions(list(self._sessions), SENT_AT_ONCE):
            sent = 0
            for session in portion:
                master = self._elsewhere()
                if master is None:
                    return
                if self._is_to_go(session):
                    self._moves.send(session, master.node.node, reason=f"the master is {master.node.node}")
                    self._metrics.add(catalogue.FOLLOWERS_MOVED)
                    sent += 1
            # No faster than the others can take them.
            await asyncio.sleep(sent / self._reconnect_advice.capacity)

    def _is_to_go(self, session: Session) -> bool:
        wanted = FOLLOW in session.supports or (self._is_alone and not is_of_system(session.roles))
        return session.connected and wanted and not session.moving

    def _elsewhere(self) -> Master | None:
        """Tell the master to which clients are sent; None if there is none, it is this node, or it seems to be gone.

        A node to which there is no link has died, mostly, and nobody is sent there; who was would miss what comes
        meanwhile. If it is the master still when its lease would be over, it lives, and only the link is missing.
        """
        master = self._cluster.master
        if master is None or master.node.node == self._me.node:
            return None
        if self._links is None or self._links.state(master.node).up:
            self._silent = None
            return master
        now = self._clock.monotonic()
        if self._silent is None or self._silent[0] != master:
            self._silent = (master, now)
        return master if now - self._silent[1] > self._patience else None
