"""The side of a handoff that has served the session, and gives it."""

from __future__ import annotations

from typing import Final

from gateway.app.cluster.mirror.holder import MirrorHolder
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.core.session.handoff import GONE, TAKE, TAKEN, UNCLAIMED, ClaimRank, Given, Take
from gateway.core.types import Attempt, NodeId, NodeRef
from gateway.core.wire.errors import InvalidExport
from gateway.ports import GridUnavailable, Ownership
from gateway.ports.peers import Record

STEP_SECONDS: Final = 0.05
"""Seconds that what has been begun for a client gets to end: some round trips to the grid. What has not ended by then
may have been executed, and is asked again by the next node as resubmitted."""


class SessionGiver:
    """Answers the nodes that have claimed a session from this one.

    Args:
        context: of the node.
        links: to the other nodes.
        sessions: the sessions held here, and those that were.
        holder: the copies of other nodes' sessions, which are given as those are.
    """

    def __init__(self, context: Context, links: NodeLinks, sessions: Sessions, holder: MirrorHolder) -> None:
        self._grid = context.grid
        self._links = links
        self._sessions = sessions
        self._holder = holder
        sessions.former.wanted = True
        links.on_question(TAKE, self._asked)
        links.on_record(TAKEN, self._taken)

    def may_give(self, session: Session, to: NodeId | None = None) -> bool:
        """Tell whether a session that goes to another node will be handed over there, as far as can be known.

        Args:
            session: which.
            to: the node that it goes to; None for any.
        """
        return self._sessions.former.wants(session) and self._links.is_linked(to)

    @property
    def waiting(self) -> int:
        """How many sessions were given of which nobody has said yet that their clients are served elsewhere."""
        return self._sessions.former.given

    async def _asked(self, body: bytes, claimant: NodeRef) -> bytes:
        return (await self.give(Take.decode(body), claimant)).encode()

    async def give(self, take: Take, claimant: NodeRef) -> Given:
        """Give a session to the node that has claimed it, as it is now, and serve it no more.

        Args:
            take: which, and by which claim.
            claimant: the node that asks.
        """
        former, held = self._sessions.former, self._sessions.get(take.session)
        if held is None and take.session not in former and take.session not in self._holder:
            return GONE
        if held is not None and not former.wants(held):
            return GONE
        claim = Ownership(take.session, claimant, take.epoch)
        attempt = await self._confirm(claim)
        if isinstance(attempt, Given):
            return attempt
        if (held := self._sessions.get(take.session)) is not None:
            await self._freeze(held, ClaimRank(attempt, take.epoch))
        # Of a session that was here, what it was here is newer than any copy.
        return former.give(claim, attempt) if claim.session in former else self._holder.give(claim, attempt)

    async def _confirm(self, claim: Ownership) -> Attempt | Given:
        """Have the grid confirm a claim.

        A link may say what it likes. What the grid says is why a node stops serving a session, and shows it to another.

        Returns:
            For which attempt of its client the session was claimed; what to answer if the grid does not confirm it.
        """
        try:
            record = await self._grid.sessions.find(claim.session)
        except GridUnavailable:
            return UNCLAIMED
        if record is None or record.epoch < claim.epoch:
            return UNCLAIMED
        return record.attempt if Ownership(record.id, record.owner, record.epoch) == claim else GONE

    async def _freeze(self, held: Session, claim: ClaimRank) -> None:
        """Let what has been begun for a session come to its end, for a moment; then stop serving it.

        Meanwhile it is served as before. Its client may come back here, so that it is this node's again.
        """
        await held.lane.halt(STEP_SECONDS)
        if held.claim_rank < claim:
            self._sessions.fence(held)
        else:
            held.lane.go_on(held)

    def _taken(self, record: Record) -> None:
        try:
            taken = Take.decode(record.body)
        except InvalidExport:
            return
        by = Ownership(taken.session, record.peer, taken.epoch)
        self._sessions.former.taken(by)
        self._holder.taken(by)
