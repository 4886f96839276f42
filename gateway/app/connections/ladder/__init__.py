"""The recovery ladder: how a session that this node has just claimed goes on (protocol 10, P2).

The table is the docstring of ``RecoveryLadder.recover``. A rung is a module of this package with one class, a ``Rung``.

What a new rung touches:

* here: a module, a line in the tuple of rungs, and one in the table. What it returns says whether numbering goes on, so
  the welcome needs no change;
* ``Outcome`` in ``gateway.core.wire.codes``, in the order of the ladder. Metrics, system topics and the decoding of
  packets take the names from there;
* the protocol (4.3 and 10), and which clients may be told the new name: those that say so in ``supports``
  (``gateway.core.wire.support``);
* ``clients/javascript/src/codes.js``, which a test compares. Clients need no more, as they act by the numbering;
* what people look at, where each outcome has a word and a colour: ``rungs.js`` of ``gateway/adapters/admin/page``, and
  ``pipeline/report/charts.py``; both show what they do not know, too. ``scripts/dashboards`` takes the names from
  ``Outcome``; ``deploy/prometheus/rules`` names some;
* what judges recoveries: ``gateway/local/checker.py``, ``loadtests/tally.py``;
* columns of tables: ``RUNGS`` in ``pipeline/gold/words.py``; what is not among them counts as ``other_rungs``;
* ``docs/explanation/recovery-ladder.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.connections.arrivals import Arrivals
from gateway.app.connections.claimer import ClaimedSession
from gateway.app.connections.ladder.failover import Failover
from gateway.app.connections.ladder.handoff import Handoff
from gateway.app.connections.ladder.mirror import Mirror
from gateway.app.connections.ladder.reattach import Reattach
from gateway.app.connections.session_factory import KEPT, RecoveryOutcome, SessionFactory
from gateway.app.context import Context
from gateway.app.journal.session_events import SessionResumed
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.codes import FailoverReason, Outcome
from gateway.core.wire.support import understands

_REPLAYED: Final = {True: "true", False: "false", None: "nothing"}
"""Values of the label of ``FAILOVERS``."""


class Rung(Protocol):
    """One way to go on with a session, and what it preserves."""

    @property
    def outcome(self) -> Outcome:
        """What the client is told."""

    def applies(self, claimed: ClaimedSession) -> bool:
        """Tell whether the rung's condition holds, as far as is known without asking anybody."""

    async def recover(self, claimed: ClaimedSession) -> RecoveryOutcome | None:
        """Bring the session into the state in which it goes on. The welcome is not this method's matter.

        Returns:
            What was preserved; None if it turned out that the rung cannot serve the session, which is as it was before.
        """


class RecoveryLadder:
    """Recovers sessions on the best rung there is, and tells their clients and the operators which it was.

    Args:
        context: of the node.
        sessions: the sessions held here.
        requests: makes lanes.
        session_factory: welcomes clients.
        authorisation: what sessions may receive.
        taker: asks other nodes for what they held of a session.
        has_lost: whether the grid has lost writes since this node began to work.
    """

    def __init__(
        self,
        context: Context,
        *,
        sessions: Sessions,
        requests: Requests,
        session_factory: SessionFactory,
        authorisation: Authorisation,
        taker: SessionTaker,
        has_lost: Callable[[], bool],
    ) -> None:
        self._clock = context.clock
        self._reconnect_advice = context.reconnect_advice
        self._metrics = context.metrics
        self._announce = context.announce
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._session_factory = session_factory
        arrivals = Arrivals(context, sessions=sessions, has_lost=has_lost)
        failover = Failover(context, sessions=sessions, requests=requests, arrivals=arrivals)
        handoff, mirror = (
            rung(
                context,
                sessions=sessions,
                requests=requests,
                authorisation=authorisation,
                arrivals=arrivals,
                taker=taker,
                failover=failover,
            )
            for rung in (Handoff, Mirror)
        )
        self._rungs: tuple[Rung, ...] = (Reattach(context), handoff, mirror, failover)

    async def recover(self, claimed: ClaimedSession) -> Session:
        """Choose the rung, and recover a session on it.

        ====  ==========  ====================================  ===============================  ====================
        rung  module      when                                  both directions                  the client is told
        ====  ==========  ====================================  ===============================  ====================
        1     `reattach`  held here, nobody has served it       every unacknowledged packet is   ``reattached``
                          since, both resend buffers reach      sent again once, in order
        2     `handoff`   the node that served it last lives,   as rung 1; what was published    ``handed_over``
                          and answers over its link             meanwhile follows
        3     `mirror`    that node is dead, and its backup     as rung 1; what was published    ``mirrored``
                          has a copy of the session             meanwhile follows
        4     `failover`  always; reason ``gap`` if only the    numbering begins anew; requests  ``failed_over`` and
                          buffers do not reach, else            are asked again, publishes       the reason; what of
                          ``other_node``                        executed once; what was missed   it is ``replayed``
                                                                is replayed, or full values
        5     refused     unknown, expired, closed, revoked,    nothing                          ``error`` with the
                          bad token                                                              reason
        ====  ==========  ====================================  ===============================  ====================

        Rung 5 is ``HandshakeRefused``. It is reached before there is anything to choose from: by whoever reads the
        token, verifies credentials or claims the session. A rung is passed over for clients that do not say that they
        understand its outcome, if that is newer than the protocol's first version. No rung waits for a failure to be
        detected (protocol 10.2).

        Args:
            claimed: the session; whoever holds ``session.resuming`` for it holds it until this is done.

        Returns:
            The session, whose client has its welcome.
        """
        supports = claimed.attempt.packet.supports
        for rung in self._rungs:
            if understands(supports, rung.outcome) and rung.applies(claimed):
                outcome = await rung.recover(claimed)
                if outcome is not None:
                    self._go_on(claimed, outcome)
                    self._announce_resume(claimed, outcome)
                    return claimed.session
        raise AssertionError("failover needs nothing but the claim")

    def _go_on(self, claimed: ClaimedSession, outcome: RecoveryOutcome) -> None:
        """Attach the session to its new connection; welcome, what is sent again and values at hand leave together."""
        session, attempt = claimed.session, claimed.attempt
        self._session_factory.welcome(
            session,
            attempt.connection,
            outcome,
            supports=attempt.packet.supports,
            withdrawn=claimed.withdrawn + outcome.withdrawn,
        )
        if outcome.replay is not None and not outcome.values_follow:
            is_told = outcome.numbering is not KEPT  # by the welcome
            self._delivery.replay(session, outcome.replay, outcome.unfinished, declare=not is_told)
        elif outcome.values_follow and (claimed.was_held or not self._delivery.restore(session)):
            if outcome.numbering is KEPT and outcome.replay is not None:
                self._delivery.declare_gap(session, outcome.replay.refused)
            elif outcome.numbering is KEPT:
                self._delivery.declare_reread(session)
            # Not waited for: what the client says meanwhile must be received, and it may lose this connection, too.
            self._session_factory.activate(session)
        self._sessions.flusher.flush(session)

    def _announce_resume(self, claimed: ClaimedSession, outcome: RecoveryOutcome) -> None:
        """Announce that a session was recovered; the numbers are None where they cannot be known."""
        attempt, reason = claimed.attempt, outcome.reason
        why: str | None = None
        if reason is not None:
            why = reason.value
            self._metrics.add(catalogue.FAILOVERS, label=_REPLAYED[claimed.session.replayed])
            if reason is FailoverReason.GAP and outcome.replayed is not True:
                self._metrics.add(catalogue.LOSSES_DECLARED, label="gap")
            elif reason is FailoverReason.OTHER_NODE:
                self._reconnect_advice.returned()
        # As the client says, and for as long as it has waited here.
        away = attempt.packet.away
        if away is not None:
            away += round((self._clock.monotonic() - attempt.heard) * 1000)
        self._announce(
            SessionResumed(
                session=claimed.session,
                reason=why,
                previous=claimed.previous,
                away=away,
                resent=outcome.resent,
                conflated=outcome.conflated,
                lost=outcome.lost,
            )
        )
