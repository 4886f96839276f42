"""Rung 3: the node that has served the session is dead, and its backup has a copy of it (protocol 10, seed 002)."""

from __future__ import annotations

from gateway.app.connections.claimer import ClaimedSession
from gateway.app.connections.ladder.handoff import Handoff, former_owners
from gateway.app.session.cuts import Cuts
from gateway.core.wire.codes import Outcome


class Mirror(Handoff):
    """Goes on with a copy, as with what a living node hands over; see ``Rung``.

    A copy may lack what its node did last, unless the node waited for its backup. Then the client has packets, or has
    given some up, of which the copy knows nothing: that is seen before anything is done with it, and the session fails
    over as if there were no copy.
    """

    @property
    def outcome(self) -> Outcome:
        """See ``Rung``."""
        return Outcome.MIRRORED

    def applies(self, claimed: ClaimedSession) -> bool:
        """Tell whether another node has served the session, and this one can ask others."""
        return not claimed.is_uninterrupted and self._taker.has_links

    async def _take(self, claimed: ClaimedSession) -> Cuts | None:
        """Have the session go on with a copy, wherever there is one."""
        session, attempt = claimed.session, claimed.attempt
        backups = await self._taker.find_copies(session, former_owners(claimed))
        if session.dropped:
            return None
        return await self._taker.take_copy(session, backups, attempt.packet, attempt.token.token_generation)
