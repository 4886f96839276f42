"""What follows from a revocation: sessions held here are found, closed and ended; likewise of whoever is known no more.

Which sessions are concerned is found by looking at all of them, once for all changes that arrive together. That is
about a millisecond for 10,000 sessions; an index by principal and credential would cost each of them memory all its
life, for something that happens a few times a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from gateway.app.context import Context
from gateway.app.journal.session_events import SessionClosed
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Directory, Ownership, SessionRecord

CLOSED_PER_TURN: Final = 100
"""Sessions whose sockets are closed in one turn of the loop: some milliseconds, then others have their turn."""

ENDED_TOGETHER: Final = 100
"""Sessions that are ended in the grid at the same time: some milliseconds of the grid's time."""


class Enforcement:
    """Ends the sessions of those who are to be here no more.

    Args:
        context: of the node.
        sessions: the sessions held here.
        store: ends them in the grid.
        directory: of all principals: those that it does not know any more count as revoked; None if nobody knows all.
        administrators: likewise of those who have consoles; what is vouched for of them must not have changed either.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        store: FencedStore,
        directory: Directory | None = None,
        administrators: Directory | None = None,
    ) -> None:
        self._directory = directory
        self._administrators = administrators
        self._background = context.background
        self._announce = context.announce
        self._sessions = sessions
        self._store = store

    def is_unknown(self, session: Session | SessionRecord) -> bool:
        """Tell whether the principal of a session is not there any more, or is another than it was."""
        if is_of_system(session.roles):
            if self._administrators is None:
                return False
            # A console's rights are those of its hello. If they are others now, it has to sign in again for them.
            known = self._administrators.find(session.principal)
            return known is None or (known.roles, known.properties) != (session.roles, session.principal_properties)
        return not self.knows(session.principal)

    def knows(self, principal: str) -> bool:
        """Tell whether a principal of clients is there, as far as anybody can tell."""
        return self._directory is None or self._directory.find(principal) is not None

    def review(self) -> None:
        """End the sessions held here whose principals the directories do not know any more, or know otherwise."""
        concerned = [each for each in self._sessions if self.is_unknown(each)]
        if concerned:
            self._background.once(self._close(concerned), "close-unknown")
        self._sessions.readers.look_again()

    def enforce(self, made: Iterable[Revocation]) -> None:
        """Close what is held here and concerned: the first sockets now, all in this and the next turns of the loop.

        Args:
            made: revocations that are in force.
        """
        concerned = self._concerned(made)
        if concerned:
            self._background.once(self._close(concerned), "close-revoked")
        self._sessions.readers.look_again()

    def end_claimed(self, ownership: Ownership) -> None:
        """End a session that this node has claimed and found to be revoked."""
        self._announce(SessionClosed(ownership.session, ownership.epoch, ErrorCode.REVOKED))
        self._background.once(self._end([ownership]), "end-revoked")

    def end_held(self, session: Session) -> None:
        """End a session that is held here and was found to be revoked."""
        if self._sessions.revoke(session):
            self._background.once(self._end([session]), "end-revoked")

    def _concerned(self, made: Iterable[Revocation]) -> list[Session]:
        revoked: dict[RevocationKind, set[str]] = {kind: set() for kind in RevocationKind}
        for each in made:
            revoked[each.kind].add(each.value)
        sessions, principals, credentials = (
            revoked[kind] for kind in (RevocationKind.SESSION, RevocationKind.PRINCIPAL, RevocationKind.CREDENTIAL)
        )
        if principals or credentials:
            return [
                each
                for each in self._sessions
                if each.principal in principals or each.id in sessions or each.credential in credentials
            ]
        found = (self._sessions.get(SessionId(each)) for each in sessions)
        return [each for each in found if each is not None]

    async def _close(self, concerned: Sequence[Session]) -> None:
        closed: list[Session] = []
        async for some in portions(concerned, CLOSED_PER_TURN):
            closed += [each for each in some if self._sessions.revoke(each)]
        await self._end(closed)

    async def _end(self, revoked: Sequence[Session | Ownership]) -> None:
        """End sessions in the grid; those that another node has claimed are that node's to end."""
        for start in range(0, len(revoked), ENDED_TOGETHER):
            batch = revoked[start : start + ENDED_TOGETHER]
            ends = (partial(self._store.end, each, ErrorCode.REVOKED) for each in batch)
            await asyncio.gather(*map(self._store.until_known, ends))
