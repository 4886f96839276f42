"""Makes sessions, and welcomes clients to them: what is told of how a session begins or goes on (protocol 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.app.cluster.cluster_list import ClusterList
from gateway.app.cluster.mirror.source import MirrorSource
from gateway.app.context import Context
from gateway.app.delivery.replay.replay import Replay
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session, StoredUnder
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.types import PacketId, RequestNumber
from gateway.core.wire.codes import FailoverReason, Numbering, Outcome
from gateway.core.wire.packets import SERVER_SUPPORTS, Replayed, Welcome
from gateway.core.wire.topology_packets import FOLLOW
from gateway.ports import Connection, SessionRecord


class RecoveryOutcome(NamedTuple):
    """What a client finds when it has its session: the same for the welcome, the metrics, the log and the journal (P2).

    Attributes:
        outcome: that the session is new, or by which rung of the ladder it goes on.
        numbering: whether packet numbers go on; clients act by it, whatever the outcome is called.
        reason: why it failed over, if it did.
        resent: session packets that are sent again; None where numbering begins anew, so that none can be.
        lost: session packets that will never arrive; None for a number that cannot be known.
        conflated: updates that were replaced by later ones; None likewise.
        values_follow: whether its selections have to be put in force anew, and all values sent (P6).
        replay: what a client missed that has said where it was; None if it has not, or nothing can be missed.
        unfinished: selectors of subscribes of which it has not had all current values, by their requests.
        withdrawn: selectors that it may not select any more, of those that were not in its record.
    """

    outcome: Outcome
    numbering: Numbering
    resent: int | None
    lost: int | None
    conflated: int | None
    reason: FailoverReason | None = None
    values_follow: bool = False
    replay: Replay | None = None
    unfinished: Mapping[RequestNumber, str] = MappingProxyType({})
    withdrawn: tuple[str, ...] = ()

    @property
    def replayed(self) -> Replayed | None:
        """Whether every update that was missed is sent, or why not, as the welcome says it; None if nobody asked."""
        if self.replay is None or self.numbering is KEPT:
            return None
        return True if self.replay.is_whole else {number: why.value for number, why in self.replay.refused.items()}

    @property
    def is_replayed(self) -> bool | None:
        """Whether every update that was missed follows a failover; None if this is none."""
        return None if self.reason is None else self.replayed is True


REATTACHED: Final = Outcome.REATTACHED
"""For what is done for every resume: Python 3.11 finds a member of an enumeration by a function call, in 70 ns."""

KEPT: Final = Numbering.KEPT
"""Likewise."""

_MILLISECONDS: Final = 1_000
"""In a second."""

_SECONDS: Final = 2
"""Moments whose text is remembered, to the second: thousands of clients come back within one."""

CREATED: Final = RecoveryOutcome(Outcome.CREATED, Numbering.RESTARTED, resent=0, lost=0, conflated=0)
"""Of a new session."""


def _utc(now: float) -> str:
    """Write a moment, in seconds since 1970, as ISO 8601 does, with milliseconds."""
    second, part = divmod(now, 1)
    return f"{_utc_second(second)}.{int(part * _MILLISECONDS):03d}+00:00"


@lru_cache(_SECONDS)
def _utc_second(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class SessionFactory:
    """Makes sessions and welcomes clients to them.

    Args:
        context: of the node.
        store: tells whether sessions are replicated.
        sessions: the sessions held here; makes the tokens that clients come back with.
        requests: makes lanes.
        authorisation: tells what sessions may do.
        mirror: tells who has copies of sessions; None if nobody has.
        cluster_list: tells where clients reach the nodes.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        requests: Requests,
        authorisation: Authorisation,
        mirror: MirrorSource | None,
        cluster_list: ClusterList,
    ) -> None:
        self._mirror = mirror
        self._cluster_list = cluster_list
        self._authorisation = authorisation
        self._me = context.me
        self._cluster = context.cluster
        self._parameters = context.parameters
        self._clock = context.clock
        self._grid = context.grid
        self._reconnect_advice = context.reconnect_advice
        self._background = context.background
        self._store = store
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._requests = requests

    def make(self, record: SessionRecord, stored_under: StoredUnder) -> Session:
        """Make a session of its record, and of where that is stored; nobody else knows of it yet."""
        session = Session(record, SessionMachine(Role.SERVER, self._parameters.session), stored_under=stored_under)
        session.lane = self._requests.lane(session)
        session.permissions = self._authorisation.permissions_of(session)
        return session

    def welcome(
        self,
        session: Session,
        connection: Connection,
        recovery: RecoveryOutcome,
        *,
        supports: frozenset[str],
        withdrawn: tuple[str, ...] = (),
    ) -> None:
        """Attach a session to a connection and queue the welcome, which is written when the caller flushes.

        Args:
            session: whose machine has been opened, reattached or restarted.
            connection: the connection.
            recovery: what the client is told (protocol 4.3).
            supports: what of later releases the client understands (protocol 4.1.1).
            withdrawn: selectors that it may not select any more; declared by a notice, too.
        """
        now = self._clock.wall()
        session.fixed = {
            "$session": session.id,
            "$principal": session.principal,
            "$address": connection.address,
            "$node": self._me.node,
            # Diffusion: the start time is not replicated; it is that of the connection to this node.
            **({"$interface": interface} if (interface := connection.access.interface) else {}),
            "$connected": _utc(now),
        }
        session.outcome = recovery.outcome
        # Who selects nothing can have missed nothing.
        session.replayed = recovery.is_replayed if session.selections else None
        session.token_confirmed = recovery is CREATED
        session.supports = supports
        kept = recovery.numbering is KEPT
        self._sessions.attach(session, connection)
        machine, parameters = session.machine, self._parameters
        grid_generation = self._grid.generation
        writes_lost = session.declared < grid_generation
        if not kept:
            # The notice is the first packet of a new numbering and leaves in the message of the welcome: who has the
            # token has the notice.
            session.declared = grid_generation
        session.advised_backoff = self._reconnect_advice.advice()
        backup = mode = None
        if self._mirror is not None and (mode := self._mirror.mode_of(session)) is not None:
            backup = self._mirror.backup
        machine.send_link(
            Welcome(
                session=session.id,
                principal=session.principal,
                node=self._me.node,
                token=self._sessions.token(session),
                outcome=recovery.outcome,
                numbering=recovery.numbering,
                reason=recovery.reason,
                received=machine.received if kept else PacketId(0),
                resent=recovery.resent or 0,
                lost=recovery.lost,
                conflated=recovery.conflated,
                window=session.window,
                ping_interval=parameters.session.ping_interval,
                ping_timeout=parameters.session.ping_timeout,
                replicated=self._store.replicated,
                limits=parameters.limits,
                backoff=session.advised_backoff,
                properties=session.all_properties(),
                selections=session.selections.to_wire(),
                withdrawn=withdrawn or None,
                supports=SERVER_SUPPORTS,
                replayed=recovery.replayed,
                backup=None if backup is None else backup.node,
                mirror=None if mode is None else mode.value,
                cluster=self._cluster_list.of(connection.access, supports),
                following=self._cluster.is_master if FOLLOW in supports else None,
            )
        )
        if writes_lost:
            self._delivery.declare_loss((session,))
        self._authorisation.declare(session, withdrawn)

    def activate(self, session: Session) -> None:
        """Put the restored selections in force and push the full values, in the background (P6)."""
        self._delivery.restoring(session)
        self._background.once(self._activate(session), f"activate-{session.id}")

    async def _activate(self, session: Session) -> None:
        async with session.selecting:
            prepared = None
            while prepared != (selections := session.selections):
                # Another resume may bring another list meanwhile.
                await self._delivery.prepare(session, selections)
                prepared = selections
            self._delivery.select(session, selections)
            self._delivery.feed(session)
