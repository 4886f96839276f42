"""Sessions without clients that a node offers which is about to stop: they are kept as if they had been here (P12)."""

from __future__ import annotations

import asyncio

from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.connections.session_factory import SessionFactory
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.session.session import Session
from gateway.core.session.handoff import OFFER, Take, decode_offer, encode_accepted
from gateway.core.types import NodeRef
from gateway.core.wire.codes import GOING_AWAY
from gateway.ports import Ownership


class OfferedSessions:
    """Accepts them.

    The grid is asked first, as with any other claim: from then on the session is this node's, whether the node that
    offered it gives it or not. If it does not, nothing is held here, and the client fails over when it comes back.

    Args:
        context: of the node.
        links: to the other nodes.
        store: where sessions become this node's.
        sessions: the sessions held here.
        session_factory: makes them.
        requests: makes lanes.
        authorisation: what they may do.
        revocations: whose are refused.
        enforcement: ends these.
        taker: asks for what they were.
    """

    def __init__(
        self,
        context: Context,
        links: NodeLinks,
        *,
        store: FencedStore,
        sessions: Sessions,
        session_factory: SessionFactory,
        requests: Requests,
        authorisation: Authorisation,
        revocations: Revocations,
        enforcement: Enforcement,
        taker: SessionTaker,
    ) -> None:
        self._me = context.me
        self._clock = context.clock
        self._limits = context.limits
        self._store = store
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._session_factory = session_factory
        self._requests = requests
        self._authorisation = authorisation
        self._revocations = revocations
        self._enforcement = enforcement
        self._taker = taker
        self._lifecycle = context.lifecycle
        links.on_question(OFFER, self._asked)

    async def _asked(self, body: bytes, owner: NodeRef) -> bytes:
        accepted = await asyncio.gather(*(self.accept(each, owner) for each in decode_offer(body)))
        return encode_accepted(sum(accepted))

    async def accept(self, offered: Take, owner: NodeRef) -> bool:
        """Take over a session without a client.

        Args:
            offered: which, and by which epoch it is the other node's.
            owner: the node that offers it.

        Returns:
            Whether it is kept here now, with all that its client is owed.
        """
        if (
            self._lifecycle.draining
            or self._limits.memory_short
            or not self._store.replicated
            or not self._revocations.loaded
        ):
            return False
        if self._sessions.get(offered.session) is not None:
            return False
        accepted = await self._store.accept(Ownership(offered.session, owner, offered.epoch))
        if accepted is None or self._sessions.get(offered.session) is not None:
            return False  # or its client has come here meanwhile
        record, stored_under = accepted
        if self._revocations.refuses(record):
            self._enforcement.end_claimed(Ownership(record.id, self._me, record.epoch))
            return False
        session = self._session_factory.make(record, stored_under)
        # Should its client come here, it waits for that.
        async with session.resuming:
            try:
                is_kept = await self._keep(session, owner)
            except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
                self._sessions.fail(session, bug)
                return False
            if not is_kept:
                self._sessions.drop(session, GOING_AWAY)
        return is_kept

    async def _keep(self, session: Session, owner: NodeRef) -> bool:
        """Take a session in, have it go on as it was given, and bring it up to where this node is.

        It is taken in first, so that the node hears of it whatever is revoked, withdrawn or claimed meanwhile.

        Returns:
            False if it was not given, or was lost meanwhile.
        """
        withdrawn = self._authorisation.enforce(session)
        self._sessions.add(session)
        arrived = session.machine
        arrived.open(self._clock.monotonic(), generation=session.token_generation)
        cuts = await self._taker.take(session, (owner,))
        if cuts is None:
            return False
        session.lane = self._requests.lane(session)
        withdrawn += self._authorisation.enforce(session)
        self._authorisation.withhold(session)
        session.elsewhere_until = self._clock.monotonic()  # from here on, the other node numbers nothing for it
        replays = self._delivery.replays
        replay = await replays.collect(session, cuts.places)
        if session.dropped:
            return False
        session.arriving = None
        # In one turn of the loop, as for a client that is there.
        self._sessions.add_absent(session)
        for run in arrived.kept():
            session.machine.submit_run(run)  # what its client was to be told meanwhile
        replays.settle(replay)
        if replays.has_values(replay):
            self._delivery.replay(session, replay, cuts.unfinished, declare=True)
        else:
            self._delivery.declare_gap(session, replay.refused)
            self._session_factory.activate(session)
        self._authorisation.declare(session, withdrawn)
        session.lane.take_up(session)
        self._taker.confirm(session)
        return True
