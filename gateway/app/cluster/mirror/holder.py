"""The side of a backup: the copies of other nodes' sessions, and who is given them."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.runtime.portions import portions
from gateway.catalogue import log_events as events
from gateway.catalogue import mirror_metrics as catalogue
from gateway.core.mirror.copies import Copies
from gateway.core.mirror.frames import FEATURE, MIRROR, MIRRORED, Acknowledged, read_frame
from gateway.core.session.handoff import GONE, ClaimRank, Given
from gateway.core.types import Attempt, NodeRef, SessionId
from gateway.core.wire.errors import InvalidExport
from gateway.ports import Ownership
from gateway.ports.peers import Down, NoLink, Record, Up

FORGOTTEN_AT_ONCE: Final = 200
"""Copies that are forgotten in one turn of the loop: about a millisecond."""

LEASES_MORE: Final = 3
"""Leases after which the windows of a dead node's sessions have begun to run in any case."""


class _Held:
    """The copies of one node's sessions.

    Attributes:
        copies: as far as they were sent.
        is_broken: whether they were not what they should be; then there are none until the next log.
        timer: forgets them when the windows of all of them must be over; None while there is a link.
        claims: to whom some of them were given.
    """

    __slots__ = ("claims", "copies", "is_broken", "timer")

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.is_broken = False
        self.timer: asyncio.TimerHandle | None = None
        self.claims: dict[SessionId, Ownership] = {}


class MirrorHolder:
    """Keeps copies for the nodes that have chosen this one as their backup.

    Args:
        context: of the node.
        links: to the other nodes.
    """

    def __init__(self, context: Context, links: NodeLinks) -> None:
        parameters = context.parameters
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._links = links
        self._most_bytes = parameters.mirror.copies_bytes
        self._kept = parameters.max_window + LEASES_MORE * parameters.lease
        self._nodes: dict[NodeRef, _Held] = {}
        self._answers: dict[NodeRef, None] = {}
        links.on_record(MIRROR, self._take_in)
        links.on_change(self._link_changed)
        watch = context.metrics.watch
        watch(catalogue.MIRROR_COPIES, lambda: sum(len(held.copies) for held in self._nodes.values()))
        watch(catalogue.MIRROR_COPY_BYTES, lambda: sum(held.copies.size for held in self._nodes.values()))

    def __contains__(self, session: object) -> bool:
        return any(session in held.copies for held in self._nodes.values())

    def __len__(self) -> int:
        return sum(len(held.copies) for held in self._nodes.values())

    def give(self, claim: Ownership, attempt: Attempt) -> Given:
        """Answer who has claimed a session, as the grid has confirmed, for this attempt of its client."""
        newest = self._newest(claim.session)
        if newest is None:
            return GONE
        given = newest.copies.give(claim.session, ClaimRank(attempt, claim.epoch))
        if given is not GONE:
            newest.claims[claim.session] = claim
        return given

    def taken(self, by: Ownership) -> None:
        """The client of a session was heard elsewhere: its copy need not be kept, unless another node was given it.

        Args:
            by: the node where, and the epoch by which the session is served there now.
        """
        for held in self._nodes.values():
            claim = held.claims.get(by.session)
            if claim is not None and claim.owner == by.owner and claim.epoch <= by.epoch:
                del held.claims[by.session]
                held.copies.forget(by.session)

    def close(self) -> None:
        """Stop the timers."""
        for held in self._nodes.values():
            if held.timer is not None:
                held.timer.cancel()

    # --- Frames -------------------------------------------------------------------------------------------------------

    def _take_in(self, record: Record) -> None:
        """Take in a frame of another node's log."""
        held = self._nodes.get(record.peer)
        try:
            frame = read_frame(record.body)
            if frame.integer("sequence", 1) == 1:
                held = self._begin(record.peer)
            if held is None or held.is_broken:
                return
            held.copies.apply(frame)
        except InvalidExport as error:
            self._broken(record.peer, held, error)
        if record.peer not in self._answers:
            if not self._answers:
                asyncio.get_running_loop().call_soon(self._answer)
            self._answers[record.peer] = None

    def _begin(self, peer: NodeRef) -> _Held:
        """A node begins to send all its sessions anew."""
        self._forget(peer)
        held = self._nodes[peer] = _Held(Copies(self._most_bytes))
        return held

    def _broken(self, peer: NodeRef, held: _Held | None, error: InvalidExport) -> None:
        if held is None:
            held = self._nodes[peer] = _Held(Copies())
        self._metrics.add(catalogue.MIRROR_COPIES_LOST, len(held.copies), label="broken")
        self._log.emit(events.COPIES_BROKEN, peer=peer.node, error=repr(error))
        held.is_broken = True
        copies = held.copies
        held.copies = Copies()
        held.copies.log, held.copies.sequence = copies.log, copies.sequence
        self._background.once(self._forget_all(copies), "forget-copies")

    def _answer(self) -> None:
        """Tell those whose frames were taken in in this turn of the loop how far."""
        answers, self._answers = self._answers, {}
        for peer in answers:
            held = self._nodes.get(peer)
            if held is None:
                continue
            copies = held.copies
            refused, copies.refused = tuple(copies.refused), []
            if refused:
                self._metrics.add(catalogue.MIRROR_COPIES_LOST, len(refused), label="room")
            said = Acknowledged(copies.log, copies.sequence, refused, held.is_broken)
            try:
                self._links.links.send(peer, MIRRORED, said.encode())
            except NoLink:
                continue

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _link_changed(self, event: Up | Down) -> None:
        held = self._nodes.get(event.peer)
        if held is None:
            return
        if isinstance(event, Down):
            # It is dead, or only cut off: whether its sessions are another's is for the grid to say.
            loop = asyncio.get_running_loop()
            held.timer = loop.call_later(self._kept, self._forget, event.peer)
        elif FEATURE in event.features:
            # It lives, and what it did meanwhile is not here: it begins anew.
            self._forget(event.peer)

    def _forget(self, peer: NodeRef) -> None:
        held = self._nodes.pop(peer, None)
        if held is not None:
            if held.timer is not None:
                held.timer.cancel()
            self._background.once(self._forget_all(held.copies), "forget-copies")

    async def _forget_all(self, copies: Copies) -> None:
        async for some in portions(copies.sessions(), FORGOTTEN_AT_ONCE):
            for session in some:
                copies.forget(session)

    def _newest(self, session: SessionId) -> _Held | None:
        """Find the copy of a session that was made last, by the claims of those whose sessions they were."""
        found: _Held | None = None
        newest: ClaimRank | None = None
        for held in self._nodes.values():
            copy = held.copies.copy_of(session)
            if copy is not None and (newest is None or copy.rank > newest):
                found, newest = held, copy.rank
        return found
