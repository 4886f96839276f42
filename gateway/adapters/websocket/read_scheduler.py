"""Shares out each turn of the loop among the connections that have something to say (P20, ADR 0047).

The loop calls whoever is readable, and timers, deliveries and the admin port only get their turn when all of them are
done: a lease can be lost to a crowd that never stops talking. So what is read in one turn is bounded by the time that
it takes. Whoever comes after that waits for the next turn, in a queue that is fair to addresses. Sessions and
unauthenticated clients, who have none yet, have a share of their own each, so that no crowd of unauthenticated clients
stands in the way of those who are connected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeAlias

from gateway.core.pacing.fair_queue import FairQueue
from gateway.core.pacing.rates import TokenBucket

SESSIONS_TIME: Final = 0.004
"""Seconds of a turn in which what sessions say is read. With the share of unauthenticated clients it is what a delivery
may wait for, and about what a node spends in a turn anyway."""

UNAUTHENTICATED_TIME: Final = 0.002
"""Seconds of a turn for connections without a session: accepting, TLS handshakes, requests, first packets. Half of what
sessions have; some five TLS handshakes of RSA 2048 (0.43 ms each), or twenty requests."""

UNAUTHENTICATED_SHARE: Final = 0.5
"""Of the time of a node that has others to serve, for all unauthenticated clients together. Those 600 clients a second
that such a node admits by default take a quarter without TLS, and half with a certificate of RSA."""

UNAUTHENTICATED_BURST: Final = 0.02
"""Seconds that unauthenticated clients may take in a row before they are bounded: who comes now and then is never
kept waiting."""

ASKED_FROM: Final = 0.25
"""Share of a turn's time from which on the next turn is asked for. Below, nothing has to be bounded, and to ask would
cost each turn of a quiet loop a callback, and the loop a turn without waiting."""

Read: TypeAlias = Callable[[], bool]
"""Reads some of what has come; returns whether there may be more, which nobody but the caller would tell of."""


class ReadScheduler:
    """Decides who is read in which turn of the loop that runs.

    Args:
        is_paced: whether the node has others to serve, so that unauthenticated clients are bounded in their share of
        the time.
        deferred: called with the name of the share when a connection has to wait for another turn.
        clock: seconds, as fine as the time that one read takes.

    Attributes:
        sessions: the share of connections that have a session.
        unauthenticated: the share of those that have none.
    """

    def __init__(
        self,
        *,
        is_paced: Callable[[], bool] = lambda: False,
        deferred: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_paced = is_paced
        self._is_asked = False
        self._rest: asyncio.TimerHandle | None = None
        self._bucket = TokenBucket(UNAUTHENTICATED_SHARE, UNAUTHENTICATED_BURST)
        self._clock = clock
        self.sessions = Share("sessions", SESSIONS_TIME, self._ask, deferred, clock)
        self.unauthenticated = Share("unauthenticated", UNAUTHENTICATED_TIME, self._ask, deferred, clock)

    def close(self) -> None:
        """Read nothing more from those who wait."""
        self.sessions.close()
        self.unauthenticated.close()
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the next turn: with those who wait since the last one."""
        self._is_asked = False
        self.sessions.begin()
        if self._rest is None:
            owed = self._bucket.charge(self._clock(), self.unauthenticated.spent) if self._is_paced() else 0.0
            if owed:
                self.unauthenticated.spent = self.unauthenticated.time
                self._rest = self._loop.call_later(owed, self._end_rest)
            else:
                self.unauthenticated.begin()

    def _end_rest(self) -> None:
        self._rest = None
        self.unauthenticated.begin()


class Share:
    """What one kind of connections may take of a turn.

    Args:
        name: for those who count.
        time: seconds.
        ask: has ``begin`` called in the next turn.
        deferred: see ``ReadScheduler``.
        clock: see ``ReadScheduler``.

    Attributes:
        clock: as given.
        time: as given.
        ask: as given.
        asked_from: seconds from which on it is called.
        spent: seconds since the last turn that has been asked for.
    """

    __slots__ = ("_deferred", "_name", "_queue", "ask", "asked_from", "clock", "spent", "time")

    def __init__(
        self,
        name: str,
        time: float,
        ask: Callable[[], None],
        deferred: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self.ask = ask
        self._deferred = deferred
        self.clock = clock
        self._queue: FairQueue[PacedReader] = FairQueue()
        self.asked_from = time * ASKED_FROM
        self.time = time
        self.spent = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_spent(self) -> bool:
        """Whether whoever comes now has to wait for the next turn."""
        return self.spent >= self.time

    def close(self) -> None:
        """Forget those who wait."""
        self._queue = FairQueue()

    def begin(self) -> None:
        """Begin a turn: serve those who wait, each once, in the order of their queue, for as long as there is time."""
        self.spent = 0.0
        for _ in range(len(self._queue)):
            if self.is_spent:
                break
            reader = self._queue.pop()
            try:
                reader.serve_queued()
            except Exception as error:  # noqa: BLE001 - the others in the queue must be served all the same
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "what a client sent could not be read", "exception": error}
                )
        if self._queue:
            self.ask()

    def has_time(self, started: float) -> bool:
        """Tell whether whoever began to read at *started*, by the clock, may go on in this turn."""
        return self.clock() - started < self.time

    def run(self, read: Read) -> bool:
        """Read, and count the time that it takes."""
        clock = self.clock
        started = clock()
        try:
            return read()
        finally:
            spent = self.spent = self.spent + clock() - started
            if spent >= self.asked_from:
                self.ask()

    def defer(self, reader: PacedReader) -> None:
        """Let *reader* wait for a turn that has time for it."""
        self._queue.push(reader.key, reader)
        self.ask()

    def note_deferred(self) -> None:
        """Count somebody who would have been served at once if there had been time."""
        self._deferred(self._name)


class PacedReader:
    """Calls *read* when a descriptor has something to be read, as often as the turns of the loop allow.

    At any time it is watched by the loop, or is in the queue of its share once, or neither; so nothing can pile up.

    Args:
        share: that it is served from.
        descriptor: to wait for.
        key: as whose it is served; see ``FairQueue``.
        read: reads some.

    Attributes:
        key: as given.
        read: as given.
        is_wanted: whether anything is read at all, at once or later.
        is_readable: whether it is read now: it is wanted, and does not rest.
        is_queued: whether it waits in the queue of its share.
    """

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_is_watched",
        "_loop",
        "_rest",
        "_share",
        "is_queued",
        "is_readable",
        "is_wanted",
        "key",
        "read",
    )

    def __init__(self, share: Share, descriptor: int, key: str, read: Read) -> None:
        self._share = share
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._is_watched = False
        self._rest: asyncio.TimerHandle | None = None
        self.key = key
        self.read = read
        self.is_wanted = False
        self.is_readable = False
        self.is_queued = False

    @property
    def is_resting(self) -> bool:
        """Whether nothing is read before some time has passed."""
        return self._rest is not None

    def take_over(self, key: str, read: Read) -> None:
        """Have *read* called from now on; the loop notices nothing of it, and nothing that has come is lost."""
        self.key = key
        self.read = read

    def move(self, share: Share) -> None:
        """Be served from another share from now on."""
        self._share = share

    def start(self) -> None:
        """Read from now on."""
        self.is_wanted = True
        self.is_readable = self._rest is None
        self._watch()

    def stop(self) -> None:
        """Read nothing any more, until ``start`` is called."""
        self.is_wanted = self.is_readable = False
        self._unwatch()

    def go_on(self) -> None:
        """Call *read* in the next turn: there is something, perhaps, that the descriptor does not tell of."""
        if self.is_readable and not self.is_queued:
            self._queue()

    def rest(self, seconds: float) -> None:
        """Read nothing for so many seconds."""
        self.is_readable = False
        self._unwatch()
        if self._rest is not None:
            self._rest.cancel()
        self._rest = self._loop.call_later(seconds, self._end_rest)

    def close(self) -> None:
        """Let go of the descriptor, which is about to be closed, and of whoever reads it: they hold each other."""
        self.stop()
        self.read = _nothing
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def serve_queued(self) -> None:
        """Read; called by the share when it is this one's turn."""
        self.is_queued = False
        if not self.is_readable:
            return
        more = False
        try:
            more = self._share.run(self.read)
        finally:
            if more:
                self.go_on()
            else:
                self._watch()

    def _on_readable(self) -> None:
        share = self._share
        if share.spent >= share.time:
            share.note_deferred()
            self._queue()
            return
        # As ``Share.run``, without a call: it is the one way of all that comes from a client who keeps to the rules.
        clock = share.clock
        started = clock()
        more = False
        try:
            more = self.read()
        finally:
            spent = share.spent = share.spent + clock() - started
            if spent >= share.asked_from:
                share.ask()
        if more:
            self.go_on()

    def _queue(self) -> None:
        self._unwatch()
        self.is_queued = True
        self._share.defer(self)

    def _end_rest(self) -> None:
        self._rest = None
        self.is_readable = self.is_wanted
        self.go_on()

    def _watch(self) -> None:
        if self.is_readable and not (self._is_watched or self.is_queued):
            self._is_watched = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._descriptor)


def _nothing() -> bool:
    """Read nothing: in the place of whoever has ended, so that it is gone without the collector."""
    return False
