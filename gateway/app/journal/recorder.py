"""Takes down what happens, as typed events of the journal's schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.app.journal.buffer import Buffer
from gateway.app.journal.principals import Named, plainly
from gateway.app.journal.traffic import Tally, Traffic
from gateway.app.journal.writer import Writer
from gateway.app.runtime.clock import Clock
from gateway.catalogue import log_events
from gateway.catalogue import metrics as catalogue
from gateway.core.journal import EventType, JournalEvent, Stamp, journal_partition, record, write_records
from gateway.core.journal import events as happened
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import Epoch, NodeRef, SessionId
from gateway.core.wire.codes import CLOSE_CODES, ErrorCode
from gateway.ports import EventLog, Grid, GridChange, GridState, LapsedLease, Metrics

if TYPE_CHECKING:
    from gateway.app.session.session import Session

BUFFER_EVENTS: Final = 100_000
"""Events that wait while the grid takes none: some minutes of a storm, some hours of an ordinary day."""

BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Bytes that they may have: a small part of what a node with as many sessions holds anyway."""

NAMES_TOLD: Final = 20
"""Names of changed properties or selections in one event; there may be a thousand."""

NAME_LENGTH: Final = 256
"""Characters of each of them."""

CONNECTION_LOST: Final = "connection_lost"
"""The cause of a disconnect without a close code."""

OTHER_CODE: Final = "other"
"""The cause of one with a code that is none of ours; the code is told, too."""

_CAUSES: Final = {each.code: each.name for each in CLOSE_CODES}
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """How the journal is written.

    Attributes:
        release: version of the gateway.
        principals: how it names them.
        buffer_events: events that may wait for the grid.
        buffer_bytes: bytes that they may have.
    """

    release: str
    principals: Named = plainly
    buffer_events: int = BUFFER_EVENTS
    buffer_bytes: int = BUFFER_BYTES


@dataclass(slots=True)
class _Dropped:
    """Events that found no room.

    Attributes:
        since: when the first of them happened, in microseconds since 1970.
        reason: why there was no room.
        count: how many.
        until: when the last of them happened.
    """

    since: int
    reason: str
    count: int = 0
    until: int = 0


class Journal:
    """Takes down events; nothing here waits or fails, and without options nothing is done.

    Sessions of the system, which are the consoles of administrators, are left out.

    Args:
        me: the node that tells.
        options: how it is written; None if there is no journal.
        grid: where it is written.
        clock: of the node.
        metrics: where it is measured.
        log: where it is said that events had to be dropped.

    Attributes:
        traffic: counts deliveries and publishes; None if there is no journal.
        writer: takes events to the grid; None if there is no journal.
    """

    def __init__(
        self,
        me: NodeRef,
        options: JournalOptions | None,
        *,
        grid: Grid,
        clock: Clock,
        metrics: Metrics,
        log: EventLog,
    ) -> None:
        self._me = me
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._on = options is not None
        self._options = options = options or JournalOptions(release="")
        self._stamp = Stamp(me, options.release)
        self._own_partition = journal_partition(me.node)
        self._buffer = Buffer(most_events=options.buffer_events, most_bytes=options.buffer_bytes)
        self._number = 0
        self._dropped: _Dropped | None = None
        self._grid_lost: float | None = None
        self._stopped = False
        self.traffic = Traffic() if self._on else None
        self.writer = (
            Writer(self._buffer, grid, clock=clock, metrics=metrics, relieved=self._tell_dropped) if self._on else None
        )
        metrics.watch(catalogue.JOURNAL_WAITING, lambda: self._buffer.events)

    # --- Sessions -----------------------------------------------------------------------------------------------------

    def opened(self, session: Session, client: str) -> None:
        """A client opened a session; *client* is what it says it is."""
        if self._on:
            told = {
                "principal": self._options.principals(session.principal),
                "client": client,
                "window_ms": round(session.window * 1000),
            }
            self._of(happened.SESSION_OPENED, session, told)

    def resumed(
        self,
        session: Session,
        *,
        reason: str | None,
        away: int | None,
        resent: int | None,
        conflated: int | None,
        lost: int | None,
        previous: NodeRef,
    ) -> None:
        """A client came back.

        Args:
            session: to which session.
            reason: of a failover.
            away: milliseconds, as the client measured them.
            resent: packets that were sent once more.
            conflated: updates that were left out.
            lost: packets known to be lost.
            previous: the node that owned the session before.
        """
        if self._on:
            told = {
                "principal": self._options.principals(session.principal),
                "rung": session.outcome.value,
                "reason": reason,
                "away_ms": away,
                "resent": resent,
                "conflated": conflated,
                "lost": lost,
                "peer": previous.node,
                "peer_incarnation": previous.incarnation,
            }
            self._of(happened.SESSION_RESUMED, session, told)

    def disconnected(self, session: Session, code: int | None) -> None:
        """A session lost its connection, with a close code if there was one."""
        if self._on:
            told = {
                "cause": CONNECTION_LOST if code is None else _CAUSES.get(code, OTHER_CODE),
                "code": code,
                "deduplicated": session.deduplicated,
                "packets": session.machine.waiting,
            }
            self._of(happened.SESSION_DISCONNECTED, session, told)

    def strayed(self, session: SessionId, epoch: Epoch) -> None:
        """A session was found that the grid holds for this node, and the node does not serve."""
        self._about(happened.SESSION_DISCONNECTED, session, epoch, {"cause": CONNECTION_LOST})

    def orphaned(self, sessions: Iterable[tuple[SessionId, Epoch]], lapsed: NodeRef, lease: LapsedLease) -> None:
        """Sessions of a dead node were put on the clock here."""
        if self._on:
            told = self._lapse(lapsed, lease)
            for session, epoch in sessions:
                self._about(happened.SESSION_ORPHANED, session, epoch, told)

    def fenced(self, session: Session) -> None:
        """Another node owns the session."""
        self._of(happened.SESSION_FENCED, session, {})

    def slow_closed(self, session: Session) -> None:
        """The client read too slowly."""
        if self._on:
            told = {"packets": session.machine.waiting, "bytes": session.machine.waiting_bytes}
            self._of(happened.SESSION_SLOW_CLOSED, session, told)

    def ended(self, session: Session, reason: ErrorCode) -> None:
        """A session held here was ended."""
        if self._on and not is_of_system(session.roles):
            self.ended_elsewhere(session.id, session.epoch, reason)

    def ended_elsewhere(self, session: SessionId, epoch: Epoch, reason: ErrorCode) -> None:
        """A session that is not held here was ended from here."""
        if reason is ErrorCode.SESSION_EXPIRED:
            self._about(happened.SESSION_EXPIRED, session, epoch, {})
        else:
            self._about(happened.SESSION_CLOSED, session, epoch, {"reason": reason.value})

    def refused(self, session: SessionId | None, reason: ErrorCode, away: int | None) -> None:
        """A resume was refused; *session* only if its token was genuine."""
        self._about(happened.SESSION_REFUSED, session, None, {"reason": reason.value, "away_ms": away})

    def properties_changed(self, session: Session, names: Collection[str]) -> None:
        """Properties were set or removed."""
        if self._on:
            self._of(happened.SESSION_PROPERTIES_CHANGED, session, {"names": _shortened(names), "count": len(names)})

    def selections_changed(self, session: Session, selectors: Sequence[str]) -> None:
        """Selections were added or taken away."""
        if self._on:
            told = {"names": _shortened(selectors), "count": len(session.selections)}
            self._of(happened.SESSION_SELECTIONS_CHANGED, session, told)

    # --- The node -----------------------------------------------------------------------------------------------------

    def node_started(self) -> None:
        """The node accepts sessions."""
        self._own(happened.NODE_STARTED, {})

    def node_draining(self, sessions: int) -> None:
        """The node moves its clients."""
        self._own(happened.NODE_DRAINING, {"sessions": sessions})

    def node_stopped(self, sessions: int) -> None:
        """The node stops, and held so many sessions still."""
        self._own(happened.NODE_STOPPED, {"sessions": sessions})

    def lease_lost(self) -> None:
        """The node found its lease lapsed."""
        self._own(happened.NODE_LEASE_LOST, {})

    def node_lapsed(self, lapsed: NodeRef, lease: LapsedLease) -> None:
        """Another node's lease has lapsed, and this one takes over."""
        if self._on:
            self._own(happened.NODE_LAPSED, self._lapse(lapsed, lease))

    def taken_over(self, lapsed: NodeRef, sessions: int) -> None:
        """All its sessions are on the clock."""
        told = {"peer": lapsed.node, "peer_incarnation": lapsed.incarnation, "count": sessions}
        self._own(happened.NODE_TAKEN_OVER, told)

    def grid_changed(self, change: GridChange) -> None:
        """The grid went away, or is back."""
        now = self._clock.monotonic()
        if change.state is GridState.AWAY:
            if self._grid_lost is None:
                self._grid_lost = now
            self._own(happened.GRID_LOST, {})
            return
        lost, self._grid_lost = self._grid_lost, None
        told = {
            "generation": change.grid_generation,
            "lost_writes": change.lost_writes,
            "away_ms": None if lost is None else round((now - lost) * 1000),
        }
        self._own(happened.GRID_REGAINED, told)

    def measured(
        self, since: float, everything: Tally, roots: dict[str, Tally], *, connections: int, sessions: int, cpu: float
    ) -> None:
        """Tell of the traffic since *since*, in seconds since 1970.

        Args:
            since: when counting began.
            everything: that passed.
            roots: the same by root.
            connections: open now.
            sessions: held now.
            cpu: seconds that the process took.
        """
        span = {"since": round(since * _MICROSECONDS), "until": self._now()}
        node = {"connections": connections, "sessions": sessions, "cpu_ms": round(cpu * 1000)}
        self._own(happened.TRAFFIC_MEASURED, {**span, **_counted(everything), **node})
        for root, tally in roots.items():
            self._own(happened.TRAFFIC_MEASURED, {"root": root[:NAME_LENGTH], **span, **_counted(tally)})

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is left as long as there is time; the rest is lost, counted and logged."""
        if self.writer is None:
            return
        await self.writer.finish()
        self._stopped = True
        left = self._buffer.events + (0 if self._dropped is None else self._dropped.count)
        if left:
            self._metrics.add(catalogue.JOURNAL_DROPPED, self._buffer.events, label=catalogue.JOURNAL_STOPPED)
            self._log.emit(log_events.JOURNAL_INCOMPLETE, events=left)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return round(self._clock.wall() * _MICROSECONDS)

    def _of(self, kind: EventType, session: Session, told: Mapping[str, object]) -> None:
        if self._on and not is_of_system(session.roles):
            self._about(kind, session.id, session.epoch, told)

    def _about(
        self, kind: EventType, session: SessionId | None, epoch: Epoch | None, told: Mapping[str, object]
    ) -> None:
        if self._on:
            partition = self._own_partition if session is None else journal_partition(session)
            self._take_down(partition, JournalEvent(kind, self._now(), session, epoch, told))

    def _own(self, kind: EventType, told: Mapping[str, object]) -> None:
        if self._on:
            self._take_down(self._own_partition, JournalEvent(kind, self._now(), told=told))

    def _take_down(self, partition: int, event: JournalEvent) -> None:
        if self._stopped or self._put(partition, event):
            return
        reason = self.writer.trouble if self.writer is not None else catalogue.JOURNAL_STOPPED
        if self._dropped is None:
            self._dropped = _Dropped(event.at, reason)
            self._log.emit(log_events.JOURNAL_FULL, reason=reason)
        self._drop(self._dropped, event.at)

    def _put(self, partition: int, event: JournalEvent) -> bool:
        """Number an event and have it written; False if there is no room for it, and its number is missing."""
        self._number += 1
        line = write_records((record(event, self._stamp, self._number),))
        # A copy of just its size: what the encoder returns is the beginning of a larger block, and keeping many of
        # those costs five times as much as making them.
        if not self._buffer.put(partition, bytes(memoryview(line))):
            return False
        if self.writer is not None:
            self.writer.wake()
        return True

    def _drop(self, dropped: _Dropped, at: int) -> None:
        dropped.count += 1
        dropped.until = at
        self._metrics.add(catalogue.JOURNAL_DROPPED, label=dropped.reason)

    def _tell_dropped(self) -> None:
        """Tell what is missing, now that there is room again."""
        dropped = self._dropped
        if dropped is None:
            return
        told = {"count": dropped.count, "since": dropped.since, "until": dropped.until, "reason": dropped.reason}
        now = self._now()
        if self._put(self._own_partition, JournalEvent(happened.EVENTS_DROPPED, now, told=told)):
            self._dropped = None
        else:
            self._drop(dropped, now)

    def _lapse(self, lapsed: NodeRef, lease: LapsedLease) -> dict[str, object]:
        until = self._clock.wall() - lease.ago
        return {
            "peer": lapsed.node,
            "peer_incarnation": lapsed.incarnation,
            "since": round((until - lease.length) * _MICROSECONDS),
            "until": round(until * _MICROSECONDS),
        }


def _counted(tally: Tally) -> dict[str, object]:
    return {"deliveries": tally.deliveries, "publishes": tally.publishes, "bytes": tally.bytes}


def _shortened(names: Iterable[str]) -> list[str]:
    return [name[:NAME_LENGTH] for name, _ in zip(names, range(NAMES_TOLD), strict=False)]
