"""Rung 4: the session goes on with what the grid holds of it; what that does not preserve is declared (protocol 10).

To a client that says where it was, that is every update it has missed, as long as the grid keeps them (P13).
"""

from __future__ import annotations

from typing import Final

from gateway.app.admission.refusals import overtaken
from gateway.app.connections.arrivals import Arrivals
from gateway.app.connections.claimer import ClaimedSession
from gateway.app.connections.session_factory import RecoveryOutcome
from gateway.app.context import Context
from gateway.app.delivery.replay.replay import Replay
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.core.wire.codes import FailoverReason, Numbering, Outcome
from gateway.core.wire.packets import REPLAY

FROM_OTHER_NODE: Final = RecoveryOutcome(
    Outcome.FAILED_OVER,
    Numbering.RESTARTED,
    reason=FailoverReason.OTHER_NODE,
    resent=None,
    lost=None,
    conflated=None,
    values_follow=True,
)
"""Of a session that another node has served: nobody here knows what that one had sent."""


class Failover:
    """Begins the numbering of a session anew; see ``Rung``.

    Two reasons lead here. ``GAP``: only this node has served the session, but a packet that the other side misses is in
    no buffer any more. ``OTHER_NODE``: another node has served it since, so that whatever is buffered here is out of
    date.

    Args:
        context: of the node.
        sessions: the sessions held here.
        requests: makes lanes.
        arrivals: takes sessions in.
    """

    outcome: Final = Outcome.FAILED_OVER

    def __init__(self, context: Context, *, sessions: Sessions, requests: Requests, arrivals: Arrivals) -> None:
        self._clock = context.clock
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._requests = requests
        self._arrivals = arrivals

    def applies(self, claimed: ClaimedSession) -> bool:  # noqa: ARG002 - the one rung without a condition
        """Whatever was claimed can go on like this."""
        return True

    async def recover(self, claimed: ClaimedSession) -> RecoveryOutcome:
        """Restart the session if it was held here, else take it in.

        What its client says it has had decides whether it is sent every update that it missed, or current values.

        Raises:
            HandshakeRefused: while that was found out, the session was taken away from this node, or has ended.
        """
        if not claimed.was_held:
            self._arrivals.take_in(claimed)
        if not claimed.is_uninterrupted:
            # When it said what it had received: it takes nothing more from the other node (protocol 4.2).
            claimed.session.elsewhere_until = claimed.attempt.heard
        replay = await self._collect(claimed)
        outcome = self._outcome(claimed)
        if claimed.was_held:
            self._restart(claimed)
        if replay is not None:
            # From here on nothing may come between: the session enters the index where this ends.
            self._delivery.replays.settle(replay)
            lost = 0 if replay.is_whole else outcome.lost
            outcome = outcome._replace(
                lost=lost,
                values_follow=not self._delivery.replays.has_values(replay),
                replay=replay,
                unfinished=claimed.attempt.packet.unfinished,
            )
        return outcome

    async def _collect(self, claimed: ClaimedSession) -> Replay | None:
        """Find what a client missed that says where it was; None for one that does not, which gets current values."""
        session, attempt = claimed.session, claimed.attempt
        packet = attempt.packet
        replay: Replay | None = None
        # Others may ask the grid meanwhile: what is waited for here is little of their business.
        attempt.leave()
        try:
            if REPLAY in packet.supports and packet.positions:
                replay = await self._delivery.replays.collect(session, packet.positions)
            elif not claimed.was_held:
                await self._delivery.catch_up(session)
        except Exception as bug:
            self._sessions.fail(session, bug)
            raise
        if session.dropped:
            raise overtaken()
        return replay

    def _outcome(self, claimed: ClaimedSession) -> RecoveryOutcome:
        outcome = FROM_OTHER_NODE
        if claimed.is_uninterrupted:
            attempt = claimed.attempt
            lost = claimed.session.machine.lost(attempt.packet.received, generation=attempt.token.token_generation)
            outcome = RecoveryOutcome(
                Outcome.FAILED_OVER,
                Numbering.RESTARTED,
                resent=None,
                lost=lost,
                conflated=None,
                reason=FailoverReason.GAP,
                values_follow=True,
            )
        return outcome

    def _restart(self, claimed: ClaimedSession) -> None:
        session = claimed.session
        session.machine.restart(self._clock.monotonic(), generation=session.token_generation)
        # Until its selections are in force anew: the current value of a topic comes before what follows it.
        self._delivery.mute(session)
        # With the buffer went what the client may have been told of here.
        session.declared = min(session.declared, self._arrivals.declared_to(claimed.attempt.token))
        # The client asks again for all that it has no answer to, what is being worked on here included.
        session.lane.abandon()
        session.begin_anew()
        self._requests.forget(session)
        session.lane = self._requests.lane(session)
