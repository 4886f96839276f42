"""One write per session and loop tick, and what happens when a transport pushes back (P9, ADR 0006).

Two steps:

```text
number:  outbox ─▶ ids, resend buffer, messages     (``_number``; ``_number_at_once`` for what needs no outbox)
write:   messages ─▶ transports                     (``Numbered.write``; ``_write_together``)
```

What needs no outbox is numbered for some dozens of sessions, then written for all of them. Otherwise a message may be
large, and is written while it is in the processor's cache: numbered for dozens first, a burst took twice the time.

A recorder (that of a backup) hears of what was numbered before any of it is written (ADR 0110). What is numbered early
in a turn of the loop then leaves at its end, and what is numbered there in portions that the cache still holds:

```text
turn:  number … number │ number the rest ─▶ recorder.before_writing ─▶ write all
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from gateway.app.context import Context
from gateway.app.delivery.feeds.feeds import Feeds
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Run
from gateway.ports import Connection

POLL_BLOCKED: Final = 0.01
"""Seconds between two looks at transports that push back: short against a person's patience."""

LOOKED_AT_ONCE: Final = 200
"""Blocked sessions that are looked at each time, those first that have waited for longest: at 5 µs each a tenth of a
core, however many clients do not read (P20). Of ten thousand each is looked at twice a second; looking at all of them
each time took 50 to 60 ms of every 60 to 70."""

FLUSH_SLICE: Final = 1000
"""Sessions written before the loop gets its turn: five to ten milliseconds, so that what ten thousand are sent delays
neither the first of them nor anything else."""


TOLD_BYTES: Final = 256 * 1024
"""Bytes of messages that are numbered before the recorder is told and they are written: what a cache holds, and much
beside what it costs to tell."""

SPREAD: Final = 64
"""Sessions whose messages are made before the first of them is written (see ``Connection.write_all``). With 16, 64 and
250 no difference was measured; what is made must fit into the processor's cache until it is written."""


LIVE: Final = 0.5
"""Seconds for which a node counts as one that has updates to deliver after the last of them: for people, updates twice
a second are a flow."""


class Numbered(NamedTuple):
    """What was numbered for a session, and is to be written.

    Attributes:
        session: whose it is.
        connection: its connection when it was numbered.
        messages: at least one.
    """

    session: Session
    connection: Connection
    messages: list[bytes]

    def write(self) -> int:
        """Write it; returns how many messages that were."""
        for message in self.messages:
            self.connection.write(message)
        return len(self.messages)


class DeliveryRecorder(Protocol):
    """Hears what is numbered for many sessions at once. Its methods return at once and raise nothing."""

    def sent_together(self, run: Run, sessions: Sequence[Session], others: Iterable[Session]) -> None:
        """A run of updates was numbered for sessions, but for some *others* of them.

        Buffers that tell what they number tell of nothing of this.
        """

    def before_writing(self) -> None:
        """What has been numbered so far leaves now: whoever is to have it before the clients has to be given it.

        It is called between two steps of the node, and never while updates are being handed to sessions: what sessions
        have been given, and how far the node has come, agree.
        """


class Flusher:
    """Collects the sessions that have something to send and writes for each of them once per loop tick.

    Args:
        context: of the node.
        too_slow: called with a session whose outbox is above its bounds.
        failed: called with a session for which writing met a bug; the others must get theirs all the same.

    Attributes:
        feeds: what sessions are to be sent besides, as fast as they take it.
        recorder: who hears of what is numbered before it is written; None for nobody.
    """

    def __init__(
        self,
        context: Context,
        too_slow: Callable[[Session], None],
        failed: Callable[[Session, Exception], None],
    ) -> None:
        self._parameters = context.parameters
        self._clock = context.clock
        self._metrics = context.metrics
        self._too_slow = too_slow
        self._failed = failed
        self.feeds = Feeds(context.clock, context.metrics, write=self.mark, wait=self._block, failed=failed)
        self.recorder: DeliveryRecorder | None = None
        self._dirty: dict[Session, None] = {}
        self._early: set[Session] = set()
        """Sessions written to in this loop tick before its end: what else comes for them waits until then."""
        self._early_together: list[Sequence[Session]] = []
        """Many sessions that were written to early, as they were given; put into the set only when somebody asks."""
        self._written = 0
        """Messages written for them."""
        self._held: list[tuple[Sequence[Connection], Sequence[bytes], Sequence[Session]]] = []
        """Of these, the messages for many that the recorder has yet to hear of."""
        self._held_alone: tuple[list[Connection], list[bytes], list[Session]] = ([], [], [])
        """The same, of the messages for one session each."""
        self._flushing: Iterator[Session] | None = None
        self._behind: dict[Session, None] = {}
        """Sessions that could not be written all that waited, blocked or not."""
        self._blocked: dict[Session, None] = {}
        self._scheduled = False
        self._poll: asyncio.TimerHandle | None = None
        self._update_arrived: float | None = None
        self._delivered_at = float("-inf")

    @property
    def blocked(self) -> int:
        """How many sessions wait for their transport or for acknowledgements."""
        return len(self._blocked)

    def blocked_sessions(self) -> list[Session]:
        """List them."""
        return list(self._blocked)

    def mark(self, session: Session) -> None:
        """Have *session* written at the end of this loop tick."""
        self._dirty[session] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_dirty)

    def deliver(self, run: Run, sessions: Sequence[Session], *, more: bool) -> None:
        """Send the same to each of *sessions*.

        What comes first in a loop tick, and alone, is written at once: numbered and encoded in one go for some dozens
        of sessions, whose messages are then handed to the kernel in one go. What follows in the same tick is collected,
        as one write costs as much as ten updates. What is for one session alone is looked at by itself: it is the first
        if this session has not been written to yet.

        Args:
            run: what to send.
            sessions: to whom.
            more: whether further runs are known to follow.
        """
        dirty = self._dirty
        left: Iterable[Session] = sessions
        if len(sessions) == 1:
            if self._deliver_alone(run, sessions[0]):
                left = ()
        elif not (more or self._scheduled or len(sessions) > FLUSH_SLICE):
            left = self._deliver_now(run, sessions)
        for session in left:
            try:
                session.machine.submit_run(run)
                dirty[session] = None
            except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
                self._failed(session, bug)
        self._schedule()

    def _is_early(self, session: Session) -> bool:
        """Tell whether *session* was written to in this loop tick already."""
        if self._early_together:
            self._early.update(*self._early_together)
            self._early_together.clear()
        return session in self._early

    def _deliver_alone(self, run: Run, session: Session) -> bool:
        """Number and write at once for one session; returns whether there is nothing left to do for it.

        It is flat, because of all deliveries this one is not shared with anybody (figures: ADR 0061).
        """
        connection = session.connection
        if connection is None or session in self._dirty or self._is_early(session):
            return False
        try:
            message = session.machine.send_now(SharedFrame(run), self._parameters.high_water - connection.backlog())
            if message is None:
                return False
            if self.recorder is None:
                connection.write(message)
            else:
                self._hold_alone(connection, message, session)
        except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
            self._failed(session, bug)
            return True
        self._written += 1
        self._early.add(session)
        return True

    def _hold_alone(self, connection: Connection, message: bytes, session: Session) -> None:
        """Have a message wait for the end of this turn of the loop."""
        connections, messages, sessions = self._held_alone
        connections.append(connection)
        messages.append(message)
        sessions.append(session)

    def _write_held(self) -> None:
        """Write what was numbered early and has waited for the recorder."""
        alone = self._held_alone
        if not (self._held or alone[0]):
            return
        held, self._held, self._held_alone = self._held, [], ([], [], [])
        connections, messages, sessions = alone
        for start in range(0, len(connections), SPREAD):
            end = start + SPREAD
            held.append((connections[start:end], messages[start:end], sessions[start:end]))
        self._tell()
        for together in held:
            self._write_together(*together)

    def _tell(self) -> None:
        """Tell the recorder, if there is one, that what has been numbered leaves now."""
        if self.recorder is not None:
            self.recorder.before_writing()

    def _deliver_now(self, run: Run, sessions: Sequence[Session]) -> list[Session]:
        """Number and write at once for those sessions for which that is all there is to do; returns the others."""
        others: list[Session] = []
        recorder = self.recorder
        shared = SharedFrame(run, is_told=recorder is not None)
        written = 0
        for start in range(0, len(sessions), SPREAD):
            together = sessions if len(sessions) <= SPREAD else sessions[start : start + SPREAD]
            connections, messages = self._number_at_once(shared, together, others)
            if connections:
                written += len(connections)
                if recorder is None:
                    self._write_together(connections, messages, together)
                else:
                    self._held.append((connections, messages, together))
        if written:
            self._written += written
            self._early_together.append(sessions)
            if recorder is not None:
                recorder.sent_together(run, sessions, others)
        return others

    def _number_at_once(
        self, shared: SharedFrame, sessions: Sequence[Session], others: list[Session]
    ) -> tuple[list[Connection], list[bytes]]:
        """Number a run for those sessions for which nothing waits; the others are added to *others*.

        Returns:
            Where to write what, a message for each.
        """
        connections: list[Connection] = []
        messages: list[bytes] = []
        high_water = self._parameters.high_water
        for session in sessions:
            try:
                connection = session.connection
                room = 0 if connection is None else high_water - connection.backlog()
                message = session.machine.send_now(shared, room)
            except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
                self._failed(session, bug)
                continue
            if connection is None or message is None:
                others.append(session)
            else:
                connections.append(connection)
                messages.append(message)
        return connections, messages

    def _write_together(
        self, connections: Sequence[Connection], messages: Sequence[bytes], sessions: Sequence[Session]
    ) -> None:
        """Write what has been numbered: a message to each connection, and *sessions* are whose they are."""
        try:
            type(connections[0]).write_all(connections, messages)
        except Exception as bug:  # noqa: BLE001 - whose message was lost cannot be told: all of them resume
            for session in sessions:
                self._failed(session, bug)

    def mark_update(self, arrived: float) -> None:
        """Note when the oldest update of this tick arrived, for the delivery latency, if it is to be written at all."""
        if self._update_arrived is None and self._scheduled:
            self._update_arrived = arrived

    def mark_live(self, sessions: Iterable[Session]) -> None:
        """Note that sessions have just been sent updates that somebody has published, and not values from memory.

        What is kept for clients that are away delays nobody, so at least one of them has to be there; nearly always it
        is the first that is looked at.
        """
        if any(session.connection is not None for session in sessions):
            self._delivered_at = self._clock.monotonic()

    def is_live(self) -> bool:
        """Tell whether updates that sessions wait for are on their way through this node: it has others to serve."""
        return self._clock.monotonic() - self._delivered_at < LIVE

    def flush(self, session: Session) -> None:
        """Write for *session* now."""
        self._dirty.pop(session, None)
        self._write_held()
        numbered = self._number(session)
        if numbered is not None:
            self._tell()
            self._metrics.add(catalogue.WRITES, numbered.write())

    def _number(self, session: Session) -> Numbered | None:
        """Number what may be written now; returns it, or None if there is nothing to write."""
        connection = session.connection
        if connection is None:
            self._blocked.pop(session, None)
            return None
        machine = session.machine
        messages = machine.flush(self._parameters.high_water - connection.backlog())
        if machine.has_output or session in self._behind:
            self._look_after(session, wrote=bool(messages))
        if session in self.feeds.feeding:
            self.feeds.flushed(session)
        return Numbered(session, connection, messages) if messages else None

    def _look_after(self, session: Session, *, wrote: bool) -> None:
        """See to a session for which something waits, or did so before."""
        self._count_conflated(session)
        machine = session.machine
        if not machine.has_output:
            self._behind.pop(session, None)
            self._blocked.pop(session, None)
            return
        self._behind[session] = None
        fed, fed_bytes = self.feeds.waiting(session)
        parameters = self._parameters
        exceeds = machine.exceeds(packets=parameters.outbox_packets + fed, size=parameters.outbox_bytes + fed_bytes)
        if wrote:
            # Much came at once, and so far the transport has taken it: no reason to call the client slow. The rest
            # follows in the next tick, when everybody else has had a turn; memory stays bounded also until then.
            self._blocked.pop(session, None)
            if exceeds:
                machine.conflate()
            self.mark(session)
        elif exceeds and machine.is_spared:
            # What was replayed has not been folded yet; it is before anybody is called slow.
            machine.conflate()
            self._block(session)
        elif exceeds:
            self._blocked.pop(session, None)
            self._too_slow(session)
        else:
            self._block(session)

    def _block(self, session: Session) -> None:
        """Look again soon whether the transport or the client has taken something."""
        self._behind[session] = self._blocked[session] = None
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_BLOCKED, self._poll_blocked)

    def _count_conflated(self, session: Session) -> None:
        conflated = session.machine.conflated
        if conflated != session.conflated:
            self._metrics.add(catalogue.CONFLATED, max(0, conflated - session.conflated))
            session.conflated = conflated

    def forget(self, session: Session) -> None:
        """The session has no connection any more."""
        if self._behind.pop(session, self) is None:
            self._count_conflated(session)
        self._dirty.pop(session, None)
        self._blocked.pop(session, None)

    def close(self) -> None:
        """Stop the timer."""
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _flush_dirty(self) -> None:
        """Write for the next sessions in line; whoever is marked meanwhile comes after all of them."""
        if self._flushing is None:
            dirty, self._dirty = self._dirty, {}
            self._flushing = iter(dirty)
        flushed = self._flush_all(islice(self._flushing, FLUSH_SLICE))
        if flushed == FLUSH_SLICE:
            asyncio.get_running_loop().call_soon(self._flush_dirty)
            return
        self._flushing = None
        self._scheduled = False
        if self._written:
            self._metrics.add(catalogue.WRITES, self._written)
            self._written = 0
            self._early.clear()
            self._early_together.clear()
        if self._update_arrived is not None:
            self._metrics.observe(catalogue.DELIVERY_SECONDS, self._clock.monotonic() - self._update_arrived)
            self._update_arrived = None
        if self._dirty:
            self._schedule()

    def _flush_all(self, sessions: Iterable[Session]) -> int:
        """Write for sessions, none of which may keep the others from theirs; returns how many they were."""
        self._write_held()
        if self.recorder is not None:
            return self._flush_told(sessions)
        flushed = written = 0
        for session in sessions:
            flushed += 1
            try:
                numbered = self._number(session)
                if numbered is not None:
                    written += numbered.write()
            except Exception as bug:  # noqa: BLE001 - see above
                self._failed(session, bug)
        if written:
            self._metrics.add(catalogue.WRITES, written)
        return flushed

    def _flush_told(self, sessions: Iterable[Session]) -> int:
        """The same where the recorder has to hear of everything before it is written: in portions."""
        flushed = size = 0
        portion: list[Numbered] = []
        for session in sessions:
            flushed += 1
            try:
                numbered = self._number(session)
            except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
                self._failed(session, bug)
                continue
            if numbered is not None:
                portion.append(numbered)
                size += sum(map(len, numbered.messages))
                if size >= TOLD_BYTES:
                    self._write_told(portion)
                    portion, size = [], 0
        self._write_told(portion)
        return flushed

    def _write_told(self, portion: Sequence[Numbered]) -> None:
        """Tell the recorder of a portion, and write it."""
        if not portion:
            return
        self._tell()
        written = 0
        for numbered in portion:
            try:
                written += numbered.write()
            except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
                self._failed(numbered.session, bug)
        self._metrics.add(catalogue.WRITES, written)

    def _poll_blocked(self) -> None:
        self._poll = None
        looked_at = list(islice(self._blocked, LOOKED_AT_ONCE))
        for session in looked_at:
            del self._blocked[session]  # who is blocked still goes to the end of the line
        self._flush_all(looked_at)
        if self._blocked and self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_BLOCKED, self._poll_blocked)
