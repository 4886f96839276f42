"""Takes down what happens, as typed events of the journal's schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from gateway.app.journal.buffer import Buffer
from gateway.app.journal.event import Event
from gateway.app.journal.node_events import MICROSECONDS
from gateway.app.journal.principals import Named, plainly
from gateway.app.journal.queue_traffic import QueueTally, QueueTraffic
from gateway.app.journal.traffic import Tally, Traffic
from gateway.app.journal.writer import Writer
from gateway.app.journal.zone_traffic import CountedLink, LinkTally, ZoneTraffic
from gateway.app.runtime.clock import Clock
from gateway.catalogue import journal_log_events
from gateway.catalogue import journal_metrics as catalogue
from gateway.core.journal import EventType, JournalEvent, Stamp, journal_partition, record, write_records
from gateway.core.journal import events as happened
from gateway.core.types import NodeRef
from gateway.ports import EventLog, Grid, Metrics

BUFFER_EVENTS: Final = 100_000
"""Events that wait while the grid takes none: some minutes of a storm, some hours of an ordinary day."""

BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Bytes that they may have: a small part of what a node with as many sessions holds anyway."""

ROOT_LENGTH: Final = 256
"""Characters of a root of topics that are told."""


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

    Args:
        me: the node that tells.
        options: how it is written; None if there is no journal.
        grid: where it is written.
        clock: of the node.
        metrics: where it is measured.
        log: where it is said that events had to be dropped.

    Attributes:
        traffic: counts deliveries and publishes; None if there is no journal.
        queues: counts messages; None likewise.
        zones: counts what crosses links with other clusters; None likewise.
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
        self._stopped = False
        self.traffic = Traffic() if self._on else None
        self.queues = QueueTraffic() if self._on else None
        self.zones = ZoneTraffic() if self._on else None
        self.writer = (
            Writer(self._buffer, grid, clock=clock, metrics=metrics, relieved=self._tell_dropped) if self._on else None
        )
        metrics.watch(catalogue.JOURNAL_WAITING, lambda: self._buffer.events)

    # --- Events -------------------------------------------------------------------------------------------------------

    def take_down(self, event: Event) -> None:
        """Take down an event that is announced, if the journal tells of it."""
        kind = event.journal
        if kind is None or not self._on:
            return
        subject = event.about()
        if subject is None:
            return
        session, epoch = subject
        partition = self._own_partition if session is None else journal_partition(session)
        told = event.told()
        if "principal" in told:
            told["principal"] = self._options.principals(str(told["principal"]))
        self._put_or_drop(partition, JournalEvent(kind, self._now(), session, epoch, told))

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
        span = {"since": round(since * MICROSECONDS), "until": self._now()}
        node = {"connections": connections, "sessions": sessions, "cpu_ms": round(cpu * 1000)}
        self._own(happened.TRAFFIC_MEASURED, {**span, **_counted(everything), **node})
        for root, tally in roots.items():
            self._own(happened.TRAFFIC_MEASURED, {"root": root[:ROOT_LENGTH], **span, **_counted(tally)})

    def measured_queues(self, since: float, queues: dict[str, QueueTally]) -> None:
        """Tell what passed through queues since *since*, in seconds since 1970."""
        span = {"since": round(since * MICROSECONDS), "until": self._now()}
        for queue, tally in queues.items():
            self._own(happened.QUEUE_MEASURED, {"queue": queue, **span, **asdict(tally)})

    def measured_links(self, since: float, links: Mapping[CountedLink, LinkTally]) -> None:
        """Tell what crossed links with other clusters since *since*, in seconds since 1970."""
        span = {"since": round(since * MICROSECONDS), "until": self._now()}
        for link, tally in links.items():
            self._own(happened.ZONE_LINK_MEASURED, {**link._asdict(), **span, **asdict(tally)})

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
            self._log.emit(journal_log_events.JOURNAL_INCOMPLETE, events=left)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return round(self._clock.wall() * MICROSECONDS)

    def _own(self, kind: EventType, told: Mapping[str, object]) -> None:
        if self._on:
            self._put_or_drop(self._own_partition, JournalEvent(kind, self._now(), told=told))

    def _put_or_drop(self, partition: int, event: JournalEvent) -> None:
        if self._stopped or self._put(partition, event):
            return
        reason = self.writer.trouble if self.writer is not None else catalogue.JOURNAL_STOPPED
        if self._dropped is None:
            self._dropped = _Dropped(event.at, reason)
            self._log.emit(journal_log_events.JOURNAL_FULL, reason=reason)
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


def _counted(tally: Tally) -> dict[str, object]:
    return {"deliveries": tally.deliveries, "publishes": tally.publishes, "bytes": tally.bytes}
