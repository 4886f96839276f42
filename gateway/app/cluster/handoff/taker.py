"""The side of a handoff that has claimed the session, and takes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.delivery.delivery import Cuts
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.session.export import restore
from gateway.core.session.handoff import TAKE, TAKEN, Given, GiveStatus, Take, assume, is_outdated
from gateway.core.types import NodeRef, TokenGeneration
from gateway.core.wire.errors import InvalidExport
from gateway.ports import Ownership
from gateway.ports.peers import Declined, NoLink, Silent

TAKE_SECONDS: Final = 0.25
"""Seconds in which the former owners have to answer, all together: five times what one waits for requests that it has
begun. Then the session fails over; its client, which waits for a welcome meanwhile, hardly notices."""

SILENCE_SECONDS: Final = 1.0
"""Seconds since another node was heard, after which it is not asked: two heartbeats, so that it hangs or is cut off."""


class SessionTaker:
    """Asks the nodes that have served a session for what it was there.

    Args:
        context: of the node.
        links: to the other nodes; None if there are none.
        sessions: the sessions held here, and those that were.
    """

    def __init__(self, context: Context, links: NodeLinks | None, sessions: Sessions) -> None:
        self._me = context.me
        self._clock = context.clock
        self._metrics = context.metrics
        self._session_parameters = context.parameters.session
        self._links = links
        self._sessions = sessions

    def may_take(self, session: Session, former: Sequence[NodeRef]) -> bool:
        """Tell whether one of the former owners of a session can be asked for it."""
        return self._links is not None and any(self._is_reachable(each, session) for each in dict.fromkeys(former))

    async def take(
        self, session: Session, former: Sequence[NodeRef], presented: TokenGeneration | None = None
    ) -> Cuts | None:
        """Have a session that was claimed go on with what a former owner held of it.

        Args:
            session: as it was made of its record, without a connection; its machine, requests and answers are replaced.
            former: the owners before, the last one first.
            presented: generation of the token that its client has shown; None if it is away.

        Returns:
            How far it has come, now detached; None if nobody gave it and it is as it was, or if it was lost meanwhile.
        """
        until = self._clock.monotonic() + TAKE_SECONDS
        for node in dict.fromkeys(former):
            if not self._is_reachable(node, session):
                continue
            given = await self._ask(node, session, until)
            if session.dropped:
                return None
            if given is not None and self._assume(session, given, presented):
                session.given_by = None if node == self._me else node
                return Cuts(given.cuts, given.unfinished)
        return None

    def confirm(self, session: Session) -> None:
        """Tell the node that gave a session that its client is served here: it need not be kept there any more."""
        node, session.given_by = session.given_by, None
        if node is not None and self._links is not None:
            with suppress(NoLink):  # then it is kept there for some seconds more
                self._links.links.send(node, TAKEN, Take(session.id, session.epoch).encode())

    def _is_reachable(self, node: NodeRef, session: Session) -> bool:
        if self._links is None:
            return False
        if node == self._me:
            return session.id in self._sessions.former
        state = self._links.state(node)
        return state.up and state.silence < SILENCE_SECONDS

    async def _ask(self, node: NodeRef, session: Session, until: float) -> Given | None:
        """Ask one node; counts why it has given nothing."""
        began = self._clock.monotonic()
        try:
            given = await self._asked(node, Take(session.id, session.epoch), until - began)
        except NoLink:
            result = "no_link"
        except Declined:
            result = "declined"
        except Silent:
            result = "silent"
        except InvalidExport:
            result = "invalid"
        else:
            if given.status is GiveStatus.GIVEN:
                self._metrics.observe(catalogue.HANDOFF_SECONDS, self._clock.monotonic() - began)
                return given
            result = given.status.value
        self._metrics.add(catalogue.HANDOFFS, label=result)
        return None

    async def _asked(self, node: NodeRef, take: Take, within: float) -> Given:
        if node == self._me:  # it has been elsewhere, and nobody there had a word with its client
            return self._sessions.former.give(Ownership(take.session, node, take.epoch))
        if self._links is None or within <= 0:
            raise NoLink("there is no time left to ask")
        return Given.decode(await self._links.links.ask(node, TAKE, take.encode(), within=within))

    def _assume(self, session: Session, given: Given, presented: TokenGeneration | None) -> bool:
        """Have a session go on with what was given, detached; False if it cannot."""
        result = "given"
        try:
            restored = restore(given.session, self._clock.monotonic())
            if presented is not None and is_outdated(restored, presented):
                result = "outdated"
            else:
                assume(session, restored)
                session.machine.adopt(self._session_parameters)
        except InvalidExport:
            result = "invalid"
        self._metrics.add(catalogue.HANDOFFS, label=result)
        return result == "given"
