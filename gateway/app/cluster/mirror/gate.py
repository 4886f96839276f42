"""Output waits until the backup has what it follows from: then whatever a client has seen survives its node (M2).

```text
flusher ─▶ GatedConnection ─▶ held back, with the frame that says what it follows from ─▶ connection
                                          ▲
                             the backup has taken that frame in
```

Nothing else of the node waits: what a client has not been shown may be lost with the node, and is made again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol, Self

from gateway.app.context import Context
from gateway.app.session.session import Session
from gateway.catalogue import mirror_metrics as catalogue
from gateway.core.mirror.log import MirrorLog
from gateway.core.mirror.tap import SessionTap
from gateway.core.wire.codes import MirrorMode
from gateway.core.wire.packets import Notice, NoticeCode
from gateway.ports import Access, Connection
from gateway.ports.connection import Receiver

LAPSED_AT_ONCE: Final = 200
"""Connections that give up waiting in one turn of the loop: a millisecond or two."""

UNMIRRORED: Final = Notice(
    NoticeCode.UNMIRRORED, "The backup did not answer in time; packets leave without it until it has caught up."
)


class _Held(NamedTuple):
    """A message that waits.

    Attributes:
        log: number of the log in which its frame is; 0 for none yet.
        need: its frame.
        since: monotonic seconds.
        message: None for the end of the connection.
    """

    log: int
    need: int
    since: float
    message: bytes | None


class _Source(Protocol):
    """What the gate has to know of the source."""

    @property
    def log(self) -> MirrorLog[Session] | None:
        """The log of the present backup; None if there is none."""

    def lag(self, now: float) -> float:
        """Tell for how many seconds the backup has owed an acknowledgement; 0 if it owes none."""


class OutputGate:
    """Decides when messages may leave.

    Args:
        context: of the node.
        source: sends the backup what messages follow from.
        mode_of: tells what a session waits for.
        is_needed: tells whether there may be sessions that wait at all.
        notify: declares something to a session.
    """

    def __init__(
        self,
        context: Context,
        source: _Source,
        *,
        mode_of: Callable[[Session], MirrorMode],
        is_needed: Callable[[], bool],
        notify: Callable[[Session, Notice], None],
    ) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._patience = context.parameters.mirror.patience
        self._source = source
        self.mode_of = mode_of
        self.is_needed = is_needed
        self._notify = notify
        self._by_need: dict[int, list[GatedConnection]] = {}
        self._undecided: OrderedDict[GatedConnection, None] = OrderedDict()
        """Those of whom nobody knows yet what they have to wait for: their sessions have yet to be copied."""
        self._waiting: OrderedDict[GatedConnection, None] = OrderedDict()
        """All that hold something, those first that have held it for longest."""
        self._timer: asyncio.TimerHandle | None = None
        context.metrics.watch(catalogue.MIRROR_HELD, lambda: len(self._waiting))

    def begin(self, connection: GatedConnection, session: Session) -> None:
        """A session has got a connection; its welcome is next."""
        connection.session = session
        connection.mode = self.mode_of(session)
        log = self._source.log
        connection.waits = connection.mode is MirrorMode.STRICT or (
            connection.mode is MirrorMode.SYNC and log is not None and session in log
        )

    def may_leave(self, connection: GatedConnection, *, is_numbered: bool = False) -> _Held | None:
        """Tell whether a message that is written now may leave at once.

        Args:
            connection: on which.
            is_numbered: something of it was numbered in this turn of the loop, which the last frame tells of, or the
                next one if there is one to come.

        Returns:
            What it has to wait for; None if it may leave.
        """
        session = connection.session
        if session is None or connection.mode is MirrorMode.ASYNC or session.dropped:
            return None
        log = self._source.log
        tap = None if log is None else log.tap(session)
        if not connection.waits:
            if log is None or tap is None or not self._has_caught_up(connection, log, tap):
                return None
            connection.waits = True
        if log is None or tap is None or tap.must_rewrite:
            return _Held(0, 0, self._clock.monotonic(), b"")
        if tap.is_queued:
            need = log.sequence + 1
        elif is_numbered:
            need = log.sequence + log.has_news
        else:
            need = tap.written
        return None if need <= log.acknowledged else _Held(log.number, need, self._clock.monotonic(), b"")

    def hold(self, connection: GatedConnection) -> None:
        """A connection has begun to hold something."""
        self._waiting[connection] = None
        self._line_up(connection)
        self._arm()

    def progressed(self) -> None:
        """The backup has taken frames in, or there is none any more."""
        log = self._source.log
        if log is None:
            for connections in self._by_need.values():
                self._undecided.update(dict.fromkeys(each for each in connections if each.held))
            self._by_need.clear()
            return
        for need in sorted(each for each in self._by_need if each <= log.acknowledged):
            for connection in self._by_need.pop(need):
                self._release(connection)
        for connection in list(islice(self._undecided, LAPSED_AT_ONCE)):
            del self._undecided[connection]
            self._release(connection)

    def nothing_written(self) -> None:
        """What had happened came to nothing that the backup had to be told: nobody waits for a frame of it."""
        log = self._source.log
        if log is not None:
            for connection in self._by_need.pop(log.sequence + 1, ()):
                self._release(connection)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _has_caught_up(self, connection: GatedConnection, log: MirrorLog[Session], tap: SessionTap[Session]) -> bool:
        """Tell whether the backup has what a connection did not wait for, and answers in time again.

        Under steady traffic there is always a frame on its way, so it is not asked whether the backup has all. Whatever
        is held from now on waits for a later frame, and frames are acknowledged in order.
        """
        number, frame = connection.lapsed_at
        if not tap.is_whole or log.acknowledged < max(tap.whole_in, frame if number == log.number else 0):
            return False
        return self._source.lag(self._clock.monotonic()) < self._patience

    def _need_of(self, connection: GatedConnection) -> int | None:
        """Tell which frame the first message that is held waits for; None if nobody knows yet, 0 for none."""
        session = connection.session
        if session is None or session.dropped:
            return 0
        log = self._source.log
        tap = None if log is None else log.tap(session)
        if log is None or tap is None or tap.must_rewrite:
            return None
        held = connection.held[0]
        need = held.need if held.log == log.number else tap.written
        if need > log.sequence and not (log.has_news or tap.is_queued):
            need = log.sequence  # what it was to wait for came to nothing, so there is no such frame
        return max(tap.whole_in, need)

    def _line_up(self, connection: GatedConnection) -> None:
        need = self._need_of(connection)
        if need is None:
            self._undecided[connection] = None
        else:
            self._by_need.setdefault(need, []).append(connection)

    def _release(self, connection: GatedConnection) -> None:
        """Let out what may leave by now."""
        log = self._source.log
        acknowledged = 0 if log is None else log.acknowledged
        while connection.held:
            need = self._need_of(connection)
            if need is None or need > acknowledged:
                self._waiting.move_to_end(connection)
                self._line_up(connection)
                return
            connection.let_out()
        self._waiting.pop(connection, None)

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            oldest = next(iter(self._waiting))
            since = oldest.held[0].since if oldest.held else 0.0
            delay = max(0.0, since + self._patience - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        """See who has waited for too long."""
        self._timer = None
        now = self._clock.monotonic()
        for connection in list(islice(self._waiting, LAPSED_AT_ONCE)):
            if connection.held and now < connection.held[0].since + self._patience:
                break
            self._lapse(connection, now)
        self._arm()

    def _lapse(self, connection: GatedConnection, now: float) -> None:
        session = connection.session
        if connection.mode is MirrorMode.STRICT and session is not None and not session.dropped:
            if connection.is_closing:
                connection.drop()
                self._waiting.pop(connection, None)
                self._undecided.pop(connection, None)
            else:
                # It goes on waiting; its client, who hears nothing, gives the connection up in the end.
                connection.held[0] = connection.held[0]._replace(since=now)
                self._waiting.move_to_end(connection)
            return
        connection.waits = False
        log = self._source.log
        connection.lapsed_at = (0, 0) if log is None else (log.number, log.sequence)
        self._waiting.pop(connection, None)
        self._undecided.pop(connection, None)
        while connection.held:
            connection.let_out()
        if session is not None and not session.dropped and session.connection is connection:
            self._metrics.add(catalogue.MIRROR_LAPSES)
            self._notify(session, UNMIRRORED)


class GatedConnection:
    """A connection on which messages may have to wait; see ``Connection``.

    Args:
        connection: on which they leave.
        gate: decides when.

    Attributes:
        held: messages that wait.
        session: whose connection it is; None before its welcome.
        mode: what the session waits for.
        waits: whether that is done: not while there is no copy of the session, or the backup is silent.
        is_ending: whether it is to be closed when what is held has left.
        lapsed_at: number of the log, and the newest frame of it, when what was held left without the backup.
    """

    __slots__ = (
        "_connection",
        "_end",
        "_gate",
        "_held_bytes",
        "held",
        "is_ending",
        "lapsed_at",
        "mode",
        "session",
        "waits",
    )

    def __init__(self, connection: Connection, gate: OutputGate) -> None:
        self._connection = connection
        self._gate = gate
        self.held: deque[_Held] = deque()
        self._held_bytes = 0
        self._end = (0, "")
        self.session: Session | None = None
        self.mode = MirrorMode.ASYNC
        self.waits = self.is_ending = False
        self.lapsed_at = (0, 0)

    @property
    def address(self) -> str:
        """See ``Connection``."""
        return self._connection.address

    @property
    def access(self) -> Access:
        """See ``Connection``."""
        return self._connection.access

    async def receive(self) -> bytes | None:
        """See ``Connection``."""
        return await self._connection.receive()

    def listen(self, receiver: Receiver) -> None:
        """See ``Connection``."""
        self._connection.listen(receiver)

    def pause(self) -> None:
        """See ``Connection``."""
        self._connection.pause()

    def resume(self) -> None:
        """See ``Connection``."""
        self._connection.resume()

    @property
    def close_code(self) -> int | None:
        """See ``Connection``."""
        return self._connection.close_code

    @property
    def is_closing(self) -> bool:
        """See ``Connection``."""
        return self.is_ending or self._connection.is_closing

    def backlog(self) -> int:
        """See ``Connection``; what waits here is not taken by the transport either."""
        return self._connection.backlog() + self._held_bytes

    def write(self, message: bytes) -> None:
        """See ``Connection``."""
        free = self.admit(message)
        if free is not None:
            free.write(message)

    @classmethod
    def write_all(cls, connections: Sequence[Self], messages: Sequence[bytes]) -> None:
        """See ``Connection``; those that need not wait are written to together.

        What is written to many at once has just been numbered for them, and is not noted by each of their sessions.
        """
        free: list[Connection] = []
        theirs: list[bytes] = []
        for connection, message in zip(connections, messages, strict=True):
            # Consoles may be among them, on connections of another kind.
            if type(connection) is not cls:
                connection.write(message)
            elif (at_once := connection.admit(message, is_numbered=True)) is not None:
                free.append(at_once)
                theirs.append(message)
        if free:
            type(free[0]).write_all(free, theirs)

    def admit(self, message: bytes, *, is_numbered: bool = False) -> Connection | None:
        """Hold a message back, if it has to wait.

        Args:
            message: what is written.
            is_numbered: see ``OutputGate.may_leave``.

        Returns:
            The connection on which it may leave at once; None if it may not.
        """
        if self.is_ending:
            return None
        why = self._gate.may_leave(self, is_numbered=is_numbered)
        if why is None and not self.held:
            return self._connection
        self._hold(message, why)
        return None

    def close(self, code: int, reason: str) -> None:
        """See ``Connection``; what is held leaves first, for as long as the gate is patient."""
        if not self.held:
            self._connection.close(code, reason)
        elif not self.is_ending:
            self._end = (code, reason)
            self._hold(None, self._gate.may_leave(self))
            self.is_ending = True

    # --- For the gate -------------------------------------------------------------------------------------------------

    def let_out(self) -> None:
        """Let the first message out that is held."""
        message = self.held.popleft().message
        if message is None:
            self._connection.close(*self._end)
        else:
            self._held_bytes -= len(message)
            self._connection.write(message)

    def drop(self) -> None:
        """Forget what is held, and close, unless the connection is over already."""
        self.held.clear()
        self._held_bytes = 0
        if self.is_ending:
            self._connection.close(*self._end)

    def _hold(self, message: bytes | None, why: _Held | None) -> None:
        last = self.held[-1] if self.held else _Held(0, 0, 0.0, b"")
        held = (why or last)._replace(message=message)
        self.held.append(held)
        self._held_bytes += len(message or b"")
        if len(self.held) == 1:
            self._gate.hold(self)
