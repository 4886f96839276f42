"""Rung 2: the node that has served the session hands over what only it knows, and nothing is lost (protocol 10)."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.app.admission.refusals import overtaken
from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.connections.arrivals import Arrivals
from gateway.app.connections.claimer import ClaimedSession
from gateway.app.connections.ladder.failover import Failover
from gateway.app.connections.session_factory import KEPT, RecoveryOutcome
from gateway.app.context import Context
from gateway.app.delivery.replay.replay import Replay
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.cuts import Cuts
from gateway.core.stream.runs import Run
from gateway.core.types import NodeRef
from gateway.core.wire.codes import Outcome


class Handoff:
    """Goes on with the buffers of another node, as reattaching does with this node's; see ``Rung``.

    What has been published since the session stopped being served there is sent as it would have been: its updates are
    found by its places in the streams, and it enters the index in the same turn.

    Args:
        context: of the node.
        sessions: the sessions held here.
        requests: makes lanes.
        authorisation: what sessions may receive.
        arrivals: takes sessions in.
        taker: asks the other nodes.
        failover: serves those of which something was lost there before.
    """

    @property
    def outcome(self) -> Outcome:
        """See ``Rung``."""
        return Outcome.HANDED_OVER

    def __init__(
        self,
        context: Context,
        *,
        sessions: Sessions,
        requests: Requests,
        authorisation: Authorisation,
        arrivals: Arrivals,
        taker: SessionTaker,
        failover: Failover,
    ) -> None:
        self._clock = context.clock
        self._sessions = sessions
        self._replays = sessions.delivery.replays
        self._requests = requests
        self._authorisation = authorisation
        self._arrivals = arrivals
        self._taker = taker
        self._failover = failover

    def applies(self, claimed: ClaimedSession) -> bool:
        """Tell whether a node that has served it before is within reach."""
        return not claimed.is_uninterrupted and self._taker.may_take(claimed.session, former_owners(claimed))

    async def recover(self, claimed: ClaimedSession) -> RecoveryOutcome | None:
        """Ask the former owner, bring the session up to where this node is, and send again what was not received.

        Returns:
            What was preserved; with the outcome of a failover if the former owner did not have all of it any more. None
            if nobody gave it.

        Raises:
            HandshakeRefused: meanwhile, the session was taken away from this node, or has ended.
        """
        session = claimed.session
        if not claimed.was_held:
            self._arrivals.take_in(claimed)
        attempt, arrived, replay = claimed.attempt, session.machine, None
        withdrawn: tuple[str, ...] = ()
        try:
            # It keeps its place meanwhile: were thousands asked for together, most would be given too late.
            cuts = await self._take(claimed)
            attempt.leave()  # what is waited for now is little of the business of others
            if cuts is not None:
                withdrawn = self._assume(claimed)
                if self._is_whole(claimed):
                    replay = await self._replays.collect(session, cuts.places)
        except Exception as bug:
            self._sessions.fail(session, bug)
            raise
        if session.dropped:
            raise overtaken()
        session.arriving = None
        if cuts is None:
            return None
        if replay is None or not self._is_whole(claimed):
            # As if it had been here all the time: what was lost there before is known, and declared.
            outcome = await self._failover.recover(claimed._replace(was_held=True, is_uninterrupted=True))
        else:
            said = () if claimed.was_held else list(arrived.kept())
            outcome = self._reattach(claimed, cuts, replay, said)
        return outcome._replace(withdrawn=withdrawn) if withdrawn else outcome

    async def _take(self, claimed: ClaimedSession) -> Cuts | None:
        """Have the session go on as a former owner gives it."""
        return await self._taker.take(claimed.session, former_owners(claimed), claimed.attempt.token.token_generation)

    def _assume(self, claimed: ClaimedSession) -> tuple[str, ...]:
        """Have the session worked on here as it was given.

        Returns:
            The selectors that it may not select any more, of those that its record did not have.
        """
        session = claimed.session
        if claimed.was_held:
            self._sessions.delivery.mute(session)
        session.lane.abandon()
        self._requests.forget(session)
        session.lane = self._requests.lane(session)
        withdrawn = self._authorisation.enforce(session)
        self._authorisation.withhold(session)
        session.machine.resume()
        # Not when its client came: the other node served it until it was asked, and all of that is sent from here.
        session.elsewhere_until = self._clock.monotonic()
        return withdrawn

    def _is_whole(self, claimed: ClaimedSession) -> bool:
        packet, token = claimed.attempt.packet, claimed.attempt.token
        return claimed.session.machine.can_reattach(
            received=packet.received, oldest=packet.oldest, generation=token.token_generation
        )

    def _reattach(self, claimed: ClaimedSession, cuts: Cuts, replay: Replay, said: Sequence[Run]) -> RecoveryOutcome:
        """Go on; from here to the welcome nothing may come between.

        Args:
            claimed: the session.
            cuts: how far it had come.
            replay: what it has missed since.
            said: what its client was to be told while the other node was asked.
        """
        session = claimed.session
        machine = session.machine
        conflated = machine.conflated
        resent = machine.reattach(received=claimed.attempt.packet.received, now=self._clock.monotonic())
        for run in said:
            machine.submit_run(run)
        self._replays.settle(replay)
        session.lane.take_up(session)
        return RecoveryOutcome(
            self.outcome,
            KEPT,
            resent,
            0,
            conflated,
            None,
            values_follow=not self._replays.has_values(replay),
            replay=replay,
            unfinished=cuts.unfinished,
        )


def former_owners(claimed: ClaimedSession) -> tuple[NodeRef, NodeRef]:
    """Tell who may have served a session before, the last one first."""
    return claimed.previous, claimed.before
