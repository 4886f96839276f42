"""Rung 1: the session goes on where both sides are, and nothing is lost (protocol 10)."""

from __future__ import annotations

from typing import Final

from gateway.app.connections.claimer import ClaimedSession
from gateway.app.connections.session_factory import KEPT, REATTACHED, RecoveryOutcome
from gateway.app.context import Context
from gateway.core.wire.codes import Outcome


class Reattach:
    """Resynchronises the resend buffers of both sides; see ``Rung``.

    Args:
        context: of the node.
    """

    outcome: Final = Outcome.REATTACHED

    def __init__(self, context: Context) -> None:
        self._clock = context.clock

    def applies(self, claimed: ClaimedSession) -> bool:
        """Tell whether only this node has served the session, and both buffers reach back far enough."""
        attempt = claimed.attempt
        return claimed.is_uninterrupted and claimed.session.machine.can_reattach(
            received=attempt.packet.received, oldest=attempt.packet.oldest, generation=attempt.token.token_generation
        )

    async def recover(self, claimed: ClaimedSession) -> RecoveryOutcome:
        """Send again what the client has not received."""
        session = claimed.session
        conflated = session.machine.conflated
        resent = session.machine.reattach(received=claimed.attempt.packet.received, now=self._clock.monotonic())
        # A session that was to go on elsewhere is sent no updates until its selections are in force again.
        values_follow = session.muted
        return RecoveryOutcome(REATTACHED, KEPT, resent, 0, conflated, None, values_follow)
