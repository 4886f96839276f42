"""The side of a node whose sessions are copied: it chooses its backup, and sends it all that changes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from gateway.app.cluster.mirror.gate import GatedConnection, OutputGate
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.parameters import AUTO
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import mirror_metrics as catalogue
from gateway.core.mirror.choosing import Chosen, choose
from gateway.core.mirror.frames import FEATURE, MIRROR, MIRRORED, Acknowledged, SessionCut
from gateway.core.mirror.log import MirrorLog
from gateway.core.policy.system_roles import is_of_system
from gateway.core.stream.runs import Run
from gateway.core.stream.transitions import State
from gateway.core.types import Epoch, EventId, NodeRef
from gateway.core.wire.codes import MirrorMode, Outcome
from gateway.core.wire.errors import InvalidExport
from gateway.core.wire.support import understands
from gateway.ports import Backup, Connection, GridUnavailable
from gateway.ports.peers import Down, NoLink, Record, Up

PACE: Final = 0.25
"""Seconds between two looks who the backup is, and how far this node has come for sessions that nothing happens to."""

ACKNOWLEDGED_LATER: Final = 0.02
"""Seconds for which acknowledgements of clients gather that go alone: what they free at the backup is not urgent."""

FILL_PAUSE: Final = 0.01
"""Seconds between two portions of sessions that are written whole."""

FILL_AT_ONCE: Final = 20
"""Sessions of a portion: ``WHOLE_RATE`` with that pause, and half of what a frame takes."""

MOST_UNACKNOWLEDGED: Final = 8 * 1024 * 1024
"""Bytes that were sent to the backup and that it has yet to take in; beyond, it is too slow and begun anew later. A
quarter of what a link holds, which others use, too (P20)."""

ANEW_PAUSE: Final = 2.0
"""Seconds until a backup that was given up is filled anew, or another one is chosen in its place."""

REFUSED_PAUSE: Final = 5.0
"""Seconds until copies are sent again for which the backup had no room."""

TOLD_PAUSE: Final = 1.0
"""Seconds between two times that the grid is told how far the backup is filled."""

TOLD_AGAIN: Final = 0.25
"""Part of the time for which the grid remembers it without the node, after which it is told all the same: whoever took
this node for dead has limited what the grid knows to that time."""

CLOSED_AT_ONCE: Final = 200
"""Sessions that are let go of in one turn of the loop: a millisecond."""


class MirrorSource:
    """Keeps a backup of this node.

    Args:
        context: of the node.
        links: to the other nodes.
        sessions: those held here.
    """

    def __init__(self, context: Context, links: NodeLinks, sessions: Sessions) -> None:
        parameters = context.parameters
        self._me = context.me
        self._clock = context.clock
        self._grid = context.grid
        self._background = context.background
        self._metrics = context.metrics
        self._log_events = context.log
        self._wanted = parameters.mirror.backup
        self._mode = parameters.mirror.mode
        self._domain = parameters.mirror.failure_domain
        self._keep = parameters.max_window
        self._links = links
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._look_now = asyncio.Event()
        self._backup: NodeRef | None = None
        self._is_apart = False
        self._log: MirrorLog[Session] | None = None
        self._ended: MirrorLog[Session] | None = None
        """A log whose sessions have yet to be let go of."""
        self._number = 0
        self._unfilled = 0
        self._filled_in: int | None = None
        """The frame by which all sessions had been written; None if they have not been."""
        self._whole = False
        self._refused: list[int] = []
        self._not_before = 0.0
        self._unacknowledged: deque[tuple[int, float, int]] = deque()
        self._unacknowledged_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._told: Backup | None = None
        self._told_at = 0.0
        self._told_in = context.grid.generation
        self._closed = False
        self._gate: OutputGate | None = None
        links.on_change(self._link_changed)
        links.on_record(MIRRORED, self._taken_in)
        sessions.observer = self
        self._delivery.tell_of_places(self._moved)
        watch = context.metrics.watch
        watch(catalogue.MIRROR_SESSIONS, lambda: self.counts()[0], label="true")
        watch(catalogue.MIRROR_SESSIONS, lambda: self.counts()[1] - self.counts()[0], label="false")
        watch(catalogue.MIRROR_UNACKNOWLEDGED_BYTES, lambda: self._unacknowledged_bytes)

    # --- For others ---------------------------------------------------------------------------------------------------

    @property
    def backup(self) -> NodeRef | None:
        """The node that has copies, or is being given some; None if there is none."""
        return self._backup if self._log is not None else None

    @property
    def log(self) -> MirrorLog[Session] | None:
        """What the backup is sent; None if there is none."""
        return self._log

    def lag(self, now: float) -> float:
        """Tell for how many seconds the backup has owed an acknowledgement; 0 if it owes none.

        Args:
            now: monotonic seconds.
        """
        return now - self._unacknowledged[0][1] if self._unacknowledged else 0.0

    def guard(self, gate: OutputGate) -> None:
        """Have output wait for the backup, where *gate* says so."""
        self._gate = gate

    def wrap(self, connection: Connection) -> Connection:
        """Make the connection of a client one whose output can wait, if there may be sessions whose output does."""
        if self._gate is None or not self._gate.is_needed():
            return connection
        return GatedConnection(connection, self._gate)

    def mode_of(self, session: Session) -> MirrorMode | None:
        """Tell what the output of a session waits for; None if it is not copied."""
        if self._log is None or not self._is_copied(session):
            return None
        connection = session.connection
        return connection.mode if isinstance(connection, GatedConnection) else MirrorMode.ASYNC

    @property
    def is_whole(self) -> bool:
        """Whether the backup has a copy of every session."""
        return self._whole

    def counts(self) -> tuple[int, int]:
        """Tell of how many sessions the backup has a copy, and of how many it should."""
        log = self._log
        if log is None:
            return 0, len(self._sessions)
        return max(0, len(log) - log.waiting - len(self._refused)), len(log) + self._unfilled

    def state(self) -> tuple[NodeRef | None, int, int]:
        """Tell the node that has copies, if there is one, of how many sessions, and of how many it should."""
        return self.backup, *self.counts()

    def close(self) -> None:
        """Send nothing more: what is done with the sessions from now on is of the end of this node, and not theirs."""
        self._closed = True
        self._give_up_log()
        if self._gate is not None:
            self._gate.close()

    async def run(self) -> None:
        """Keep a backup for ever."""
        while True:
            self._look_now.clear()
            await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(PACE):
                    await self._look_now.wait()

    # --- What happens to sessions -------------------------------------------------------------------------------------

    def served(self, session: Session) -> None:
        """See ``SessionObserver``."""
        if not self._is_copied(session):
            return
        if self._log is not None:
            self._log.add(session)
        if self._gate is not None and isinstance(session.connection, GatedConnection):
            self._gate.begin(session.connection, session)

    def left(self, session: Session) -> None:
        """See ``SessionObserver``."""
        for log in (self._log, self._ended):
            if log is not None:
                log.remove(session)

    def sent_together(self, run: Run, sessions: Sequence[Session], others: Iterable[Session]) -> None:
        """See ``DeliveryRecorder``."""
        if self._log is not None:
            self._log.sent_together(run, sessions, others)

    def before_writing(self) -> None:
        """See ``DeliveryRecorder``: whatever a client is shown has been written to the backup before."""
        self._write_news()

    def _moved(self, session: Session) -> None:
        tap = None if self._log is None else self._log.tap(session)
        if tap is not None:
            tap.look_again()

    def _is_copied(self, session: Session) -> bool:
        """Tell whether a session is one whose client may be told that it goes on with a copy."""
        return (
            not session.dropped
            and session.machine.state not in {State.FRESH, State.CLOSED}
            and understands(session.supports, Outcome.MIRRORED)
            and not is_of_system(session.roles)
        )

    def _cut_of(self, session: Session) -> SessionCut:
        return SessionCut(*self._delivery.partitions_of(session))

    # --- The backup ---------------------------------------------------------------------------------------------------

    def _link_changed(self, event: Up | Down) -> None:
        if isinstance(event, Down) and event.peer == self._backup:
            self._give_up("the link broke")
        self._look_now.set()

    async def _look(self) -> None:
        """See who the backup is, fill a new one, and tell the grid."""
        if self._ended is not None:
            await self._let_go(self._ended)
        chosen = self._chosen()
        if self._log is not None and not self._is_good(chosen):
            self._give_up("another node is to be the backup")
            return
        now = self._clock.monotonic()
        if self._log is None and chosen is not None and now >= self._not_before and not self._closed:
            self._begin(chosen)
        self._write()
        self._see_whole()
        await self._tell(now)

    def _chosen(self) -> Chosen | None:
        candidates = self._links.domains(FEATURE)
        if self._wanted != AUTO:
            candidates = {node: domain for node, domain in candidates.items() if node.node == self._wanted}
        return choose(self._me, self._domain, candidates)

    def _is_good(self, chosen: Chosen | None) -> bool:
        """Tell whether the present backup may stay: to fill another one takes time in which there is none."""
        if self._backup not in self._links.domains(FEATURE):
            return False
        return chosen is None or chosen.node == self._backup or self._is_apart or not chosen.is_apart

    def _begin(self, chosen: Chosen) -> None:
        self._number += 1
        self._backup, self._is_apart = chosen
        self._filled_in = None
        self._whole = False
        self._refused.clear()
        self._sessions.flusher.recorder = self
        log = self._log = MirrorLog(
            self._number,
            epoch_of=_epoch_of,
            cut_of=self._cut_of,
            wake=self._wake,
            wake_later=self._wake_later,
        )
        self._delivery.replicas.moved.update(each.number for each in self._delivery.replicas)
        self._metrics.add(catalogue.MIRROR_BEGUN)
        self._log_events.emit(events.BACKUP_CHOSEN, backup=chosen.node.node, apart=chosen.is_apart)
        self._background.once(self._fill(log, list(self._sessions)), "fill-backup")

    async def _fill(self, log: MirrorLog[Session], sessions: Sequence[Session]) -> None:
        """Have all sessions copied, some at a time."""
        self._unfilled = len(sessions)
        left = iter(sessions)
        while log is self._log and (some := list(islice(left, FILL_AT_ONCE))):
            for session in some:
                if self._is_copied(session):
                    log.add(session)
            self._unfilled -= len(some)
            await asyncio.sleep(FILL_PAUSE)
        if log is self._log:
            self._unfilled = 0
            self._wake()

    def _give_up(self, why: str) -> None:
        """There is no backup any more; a new one is chosen, or the same filled anew."""
        backup = self._backup
        if self._log is None or backup is None:
            return
        self._log_events.emit(events.BACKUP_LOST, backup=backup.node, why=why)
        self._give_up_log()
        self._look_now.set()

    def _give_up_log(self) -> None:
        if self._log is not None:
            self._ended, self._log = self._log, None
            self._sessions.flusher.recorder = None
        self._backup = None
        self._whole = False
        self._unfilled = 0
        self._refused.clear()
        self._unacknowledged.clear()
        self._unacknowledged_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gate is not None:
            self._gate.progressed()

    async def _let_go(self, log: MirrorLog[Session]) -> None:
        async for some in portions(log.sessions(), CLOSED_AT_ONCE):
            for session in some:
                log.remove(session)
        self._ended = None

    async def _tell(self, now: float) -> None:
        """Tell the grid who has copies, so that whoever claims a session of this node finds them."""
        backup = None
        if self._backup is not None and self._log is not None:
            whole, of = self.counts()
            backup = Backup(node=self._backup, mode=self._mode, whole=whole, of=of)
        generation = self._grid.generation
        # A grid that lost writes may have lost this.
        told = self._told if generation == self._told_in and now - self._told_at < self._keep * TOLD_AGAIN else None
        is_other = (told is None) != (backup is None) or (told and backup and told.node != backup.node)
        if backup == told or (not is_other and now - self._told_at < TOLD_PAUSE):
            return
        with suppress(GridUnavailable):
            if await self._grid.nodes.tell_backup(self._me, backup, keep=self._keep):
                self._told, self._told_at, self._told_in = backup, now, generation

    # --- Frames -------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        asyncio.get_running_loop().call_soon(self._write_news)

    def _wake_later(self) -> None:
        self._write_after(ACKNOWLEDGED_LATER)

    def _write_after(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._write_now)

    def _write_now(self) -> None:
        self._timer = None
        self._write()

    def _write_news(self) -> None:
        """Send what has changed, if that was not done since."""
        if self._log is not None and self._log.has_news:
            self._write()

    def _write(self) -> None:
        """Send all that has changed in one frame."""
        log, backup = self._log, self._backup
        if log is None or backup is None:
            return
        now = self._clock.monotonic()
        frame = log.frame(self._moved_places(), now)
        if frame is not None:
            try:
                self._links.links.send(backup, MIRROR, frame)
            except NoLink as error:
                # Not at once, or a link that takes nothing would be tried again for ever in this very turn.
                self._not_before = now + PACE
                self._give_up(str(error))
                return
            size = len(frame)
            self._metrics.add(catalogue.MIRROR_BYTES, size)
            self._unacknowledged.append((log.sequence, now, size))
            self._unacknowledged_bytes += size
            if self._unacknowledged_bytes > MOST_UNACKNOWLEDGED:
                self._not_before = now + ANEW_PAUSE
                self._give_up("it takes in less than it is sent")
                return
        elif self._gate is not None:
            self._gate.nothing_written()
        if log.waiting:
            self._write_after(FILL_PAUSE)

    def _moved_places(self) -> dict[int, EventId | None]:
        """Tell how far this node has come in each partition in which that may have changed; None if nobody can tell."""
        replicas = self._delivery.replicas
        moved, replicas.moved = replicas.moved, set()
        places: dict[int, EventId | None] = {}
        for number in moved:
            partition = replicas.whole(number)
            place = None if partition is None else partition.handed_out
            places[number] = None if place is None else place.event(number)
        return places

    def _taken_in(self, record: Record) -> None:
        """The backup has taken frames in."""
        log = self._log
        try:
            said = Acknowledged.decode(record.body)
        except InvalidExport:
            return
        if log is None or record.peer != self._backup or said.log != log.number:
            return
        now = self._clock.monotonic()
        if said.is_broken:
            self._not_before = now + ANEW_PAUSE
            self._give_up("its copies were not what they should be")
            return
        log.acknowledged = max(log.acknowledged, min(said.sequence, log.sequence))
        while self._unacknowledged and self._unacknowledged[0][0] <= log.acknowledged:
            _, sent, size = self._unacknowledged.popleft()
            self._unacknowledged_bytes -= size
            self._metrics.observe(catalogue.MIRROR_LAG_SECONDS, now - sent)
        refused = [slot for slot in said.refused if log.refused(slot, said.sequence)]
        if refused:
            self._refused += refused
            asyncio.get_running_loop().call_later(REFUSED_PAUSE, self._send_again, log, refused)
        self._see_whole()
        if self._gate is not None:
            self._gate.progressed()

    def _see_whole(self) -> None:
        """See whether the backup has come to have a copy of every session; of none at all it has them at once.

        Under steady traffic there is always a frame on its way. What counts is the one by which all had been written.
        """
        log, backup = self._log, self._backup
        if log is None or backup is None or self._whole:
            return
        if self._filled_in is None and not self._unfilled and log.is_written:
            self._filled_in = log.sequence
        if self._filled_in is None or log.acknowledged < self._filled_in or self._refused:
            return
        self._whole = True
        self._look_now.set()
        self._log_events.emit(events.BACKUP_WHOLE, backup=backup.node, sessions=len(log))

    def _send_again(self, log: MirrorLog[Session], slots: Sequence[int]) -> None:
        if log is self._log:
            for slot in slots:
                self._refused.remove(slot)
                log.write_again(slot)


def _epoch_of(session: Session) -> Epoch:
    return session.epoch
