"""Claims sessions: how a node gets the right to serve one that comes back (protocol 10, P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.app.admission.refusals import HandshakeRefused, grid_recovering, grid_unavailable, refusal
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.batched import Batched
from gateway.app.session.session import Session, StoredUnder
from gateway.catalogue import metrics as catalogue
from gateway.core.types import Attempt, NodeRef, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Claimed,
    ClaimRefused,
    ClaimResult,
    GridUnavailable,
    Identity,
    LeaseUnverified,
    Operation,
    Ownership,
    TokenClaims,
)

TELL_DELAY: Final = 0.05
"""Seconds in which claims from the same node gather before it is told of them: a half-open connection there ends that
much later."""

VERIFY_PATIENCE: Final = 2.0
"""Seconds a resume waits until the node has verified its lease: a hundred times what that takes, and less than a client
waits for a welcome."""

VERIFY_POLL: Final = 0.02
"""Seconds between two looks whether it has: some round trips to the grid."""

_MAY_CHANGE: Final = frozenset({ErrorCode.SESSION_UNKNOWN, ErrorCode.SESSION_EXPIRED})
"""Refusals that mean nothing yet in a grid that has just lost writes: the session's node may restore it any moment."""


@dataclass(frozen=True, slots=True)
class Won:
    """A claim that succeeded.

    Attributes:
        claimed: what the grid holds now.
        stored_under: under which generation and lease, as it was known before the grid was asked.
    """

    claimed: Claimed
    stored_under: StoredUnder

    def continues(self, session: Session) -> bool:
        """Tell whether nobody else has served a session since this node did; before it takes on what was claimed."""
        return self.claimed.previous == session.owner and self.claimed.record.epoch == session.epoch + 1


class SessionClaimer:
    """Claims sessions, and ends what has to end with it.

    Args:
        context: of the node.
        store: claims sessions held here.
        sessions: the sessions held here.
        is_recovering: whether the grid has just lost writes, so that a session may be unknown to it and yet exist.
    """

    def __init__(
        self, context: Context, *, store: FencedStore, sessions: Sessions, is_recovering: Callable[[], bool]
    ) -> None:
        self._me = context.me
        self._clock = context.clock
        self._grid = context.grid
        self._background = context.background
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._store = store
        self._sessions = sessions
        self._is_recovering = is_recovering
        self._claimed: Batched[Ownership, None] = Batched(
            context.background, "tell-claimed", delay=TELL_DELAY, work=self._tell_former_owners
        )

    async def claim_held(
        self, session: Session, token: TokenClaims, attempt: Attempt, identity: Identity | None
    ) -> Won | None:
        """Claim a session that this node holds.

        Args:
            session: which one.
            token: what the client's token says.
            attempt: of the resume.
            identity: whose fresh credentials the client showed with it; None if it showed none.

        Returns:
            What the grid holds now; None if it has to be done without the grid.

        Raises:
            HandshakeRefused: another node may serve the session, or nobody any more.
        """
        if not self._store.replicated or not self._store.available:
            return None
        started = self._clock.monotonic()
        try:
            result, stored_under = await self._once_verified(
                lambda: self._store.claim(
                    session, token.token_generation, attempt, now=self._clock.wall(), identity=identity
                )
            )
        except LeaseUnverified:
            raise grid_unavailable() from None
        except GridUnavailable:
            return None
        self._metrics.observe(catalogue.CLAIM_SECONDS, self._clock.monotonic() - started)
        if isinstance(result, ClaimRefused):
            raise refusal(result.reason)
        self._tell(result)
        return Won(result, stored_under)

    async def claim_stored(self, token: TokenClaims, attempt: Attempt, identity: Identity | None) -> Won:
        """Claim a session that this node does not hold; the arguments are those of ``claim_held``.

        Raises:
            HandshakeRefused: the session cannot be had, or the grid cannot tell now.
        """
        if not self._store.available:
            raise grid_unavailable()
        started = self._clock.monotonic()
        try:
            result, stored_under = await self._once_verified(
                lambda: self._store.claim(
                    token.session, token.token_generation, attempt, now=self._clock.wall(), identity=identity
                )
            )
        except GridUnavailable:
            self.disown(token.session)
            raise grid_unavailable() from None
        self._metrics.observe(catalogue.CLAIM_SECONDS, self._clock.monotonic() - started)
        if isinstance(result, ClaimRefused):
            raise self._refused(result.reason)
        self._tell(result)
        return Won(result, stored_under)

    async def check(self, token: TokenClaims, attempt: Attempt) -> None:
        """Look whether a session that this node does not hold could be claimed, before something slow is done for that.

        Raises:
            HandshakeRefused: it could not, or the grid cannot tell now.
        """
        if not self._store.available:
            raise grid_unavailable()
        try:
            reason = await self._grid.sessions.why_not_claimable(
                token.session, by=self._me, token_generation=token.token_generation, attempt=attempt
            )
        except GridUnavailable:
            raise grid_unavailable() from None
        if reason is not None:
            raise self._refused(reason)

    def _refused(self, reason: ErrorCode) -> HandshakeRefused:
        return grid_recovering() if reason in _MAY_CHANGE and self._is_recovering() else refusal(reason)

    async def _once_verified(self, claim: Callable[[], Awaitable[ClaimResult]]) -> tuple[ClaimResult, StoredUnder]:
        """Claim as soon as the node may.

        A node that was suspended wakes up among resumes that may be long out of date. Which ones are, the grid will
        tell in a moment; to serve them as if it were away would be to let an old attempt win (P3).
        """
        patience = self._clock.monotonic() + VERIFY_PATIENCE
        with self._tracer.span(Operation.CLAIM):
            while True:
                stored_under = self._store.writes_under
                try:
                    return await claim(), stored_under
                except LeaseUnverified:
                    if self._clock.monotonic() >= patience:
                        raise
                await asyncio.sleep(VERIFY_POLL)

    def _tell(self, claimed: Claimed) -> None:
        """Have the node that had a session told that it is claimed.

        Whether that node lives is asked of the grid when it is told, not of what is known here: that is as old as the
        last renewal of the lease, and a node that has just started, or come back, would be taken for none.
        """
        if claimed.previous != self._me:
            self._claimed.put(Ownership(claimed.record.id, claimed.previous, claimed.record.epoch), None)

    async def _tell_former_owners(self, claimed: dict[Ownership, None]) -> None:
        by_owner: dict[NodeRef, list[Ownership]] = {}
        for ownership in claimed:
            by_owner.setdefault(ownership.owner, []).append(ownership)
        for former, ownerships in by_owner.items():
            # It may have been told without an answer; to hear it twice does no harm.
            await self._store.until_known(partial(self._grid.nodes.tell_claimed, former, *ownerships))

    def disown(self, session: SessionId) -> None:
        """See to it that a session does not stay here whose creation or claim had no answer.

        Should the grid say, once it can be asked, that the session is here, its window is started (P7). Otherwise it
        would count as connected to this node for ever, and nobody would miss it.
        """
        self._background.once(self._disown(session), "disown")

    async def _disown(self, session: SessionId) -> None:
        await self._store.until_available()
        is_held = partial(self._is_held, session)
        await self._store.until_known(partial(self._store.release, session, is_held=is_held))

    def _is_held(self, session: SessionId) -> bool:
        return self._sessions.get(session) is not None
