"""Sessions ask their feeds for more when there is room; all of them share a part of each turn of the loop (P9, P20).

```text
            add                  portion                     flush
feed ──▶ in line ──(its turn)──▶ outbox of the session ──▶ numbered, written ──▶ in line again, until the feed is done
                                    └─ the transport or the client takes nothing: the feed stands still
```

A session takes one portion at a time, and the next one only when that has gone out. So what it is owed by its feeds
never stands in memory at once, however slowly it reads, and what waits for it besides keeps its place in line. While
its client is away its feeds stand still, and go on when it is back with nothing lost.

A portion takes a few milliseconds at most, but hundreds of sessions may want one together: if each had its time in
every turn, a turn would take as long as all of them. Whoever has had its time waits behind the others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from gateway.app.delivery.feeds.feed import PORTION_BYTES, PORTION_PACKETS, Feed
from gateway.app.delivery.partition import Partition
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session
from gateway.catalogue.metrics import DELIVERIES
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import ATTACHED
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import Metrics

FEED_SECONDS: Final = 0.002
"""Seconds after which others get their turn: among many selectors made for it a topic is found slowly."""

FEEDS_SECONDS: Final = 2 * FEED_SECONDS
"""Seconds of a turn of the loop for all feeds, about: as for what sessions say. Who wants little does not wait as long
as that is not used up."""

MOST_FEEDS: Final = 16
"""Feeds that a session may have at once before its next one has to wait: a client that reads never has as many."""

PARTED_AT_MOST: Final = 1_000
"""Sets of sessions that are remembered parted; then the memory of them starts anew."""


class _Feeding:
    """What a session has yet to be sent by its feeds.

    Attributes:
        feeds: one after the other.
        last: id that the last packet of its last portion gets at the latest.
        oldest: id of the oldest packet that was not acknowledged when it was handed in.
        packets: of that portion, until it has gone out.
        size: bytes of them.
        waiting: for one of the feeds to be done.
    """

    __slots__ = ("feeds", "last", "oldest", "packets", "size", "waiting")

    def __init__(self) -> None:
        self.feeds: deque[Feed] = deque()
        self.last = self.oldest = 0
        self.packets = self.size = 0
        self.waiting: list[asyncio.Future[None]] = []

    def let_on(self) -> None:
        """Those that wait for room may look again."""
        for each in self.waiting:
            if not each.done():
                each.set_result(None)
        self.waiting.clear()


def _room(feeding: _Feeding, machine: SessionMachine) -> tuple[int, int]:
    """Tell how many packets and bytes a session may be handed.

    Half of what is kept for its client is left for updates, should it leave now: else the first of them would cost it
    the reattach. Where updates take more than half, it is handed half as much as its client has acknowledged since the
    last portion; and where they wait, a portion takes its place in the line like each of them.
    """
    packets, size = machine.room
    spare = packets - machine.parameters.resend_packets // 2
    spare_bytes = size - machine.parameters.resend_bytes // 2
    if spare <= 0 or spare_bytes <= 0:
        if machine.waiting:
            return PORTION_PACKETS, PORTION_BYTES
        spare, spare_bytes = min(packets, (machine.oldest - feeding.oldest) // 2), size
    return min(spare, PORTION_PACKETS), min(spare_bytes, PORTION_BYTES)


class Feeds:
    """The feeds of all sessions of a node.

    Args:
        clock: time.
        metrics: where what is sent is counted.
        write: has a session written that was handed something.
        wait: has a session flushed later, from which acknowledgements are needed first.
        failed: called with a session for which a feed met a bug; the others must get theirs all the same.

    Attributes:
        feeding: the sessions that have feeds; for whoever asks for every update, which must not cost a call.
        changed: called with a session that has a feed more or less from now on; None for nobody.
    """

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        *,
        write: Callable[[Session], None],
        wait: Callable[[Session], None],
        failed: Callable[[Session, Exception], None],
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._write = write
        self._wait = wait
        self._failed = failed
        self.feeding: dict[Session, _Feeding] = {}
        self.changed: Callable[[Session], None] | None = None
        self._line: OrderedDict[Session, None] = OrderedDict()
        """Sessions whose feeds can go on, in the order of their turns."""
        self._spent = 0.0
        """Seconds since the begin of the turn, or of more of them if little was spent in each."""
        self._scheduled = False
        self._parted: dict[int, tuple[tuple[Session, ...], tuple[Session, ...], tuple[Session, ...]]] = {}

    def __len__(self) -> int:
        return len(self.feeding)

    def __contains__(self, session: Session) -> bool:
        return session in self.feeding

    def add(self, session: Session, feed: Feed) -> None:
        """Let a session be sent what a feed has; what there is time for at once, so that it leaves with what waits."""
        if feed.is_done:
            return
        feeding = self.feeding.get(session)
        if feeding is None:
            feeding = self.feeding[session] = _Feeding()
            self._parted.clear()
        feeding.feeds.append(feed)
        if self.changed is not None:
            self.changed(session)
        if len(feeding.feeds) == 1 and not feeding.packets:
            if self._spent < FEEDS_SECONDS:
                self._serve(session)
            else:
                self._line[session] = None
            self._schedule_if_needed()

    async def room(self, session: Session) -> None:
        """Wait while a session has as many feeds as it may have."""
        while (feeding := self.feeding.get(session)) is not None and len(feeding.feeds) >= MOST_FEEDS:
            come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            feeding.waiting.append(come)
            await come

    def drop(self, session: Session) -> None:
        """Send a session nothing more from its feeds."""
        feeding = self.feeding.pop(session, None)
        if feeding is not None:
            self._line.pop(session, None)
            self._parted.clear()
            feeding.let_on()
            if self.changed is not None:
                self.changed(session)

    def owes(self, session: Session, partition: Partition, topic: TopicPath) -> bool:
        """Tell whether a feed of a session will bring the current value of a topic: an update is left to it."""
        feeding = self.feeding.get(session)
        return feeding is not None and any(feed.owes(partition, topic) for feed in feeding.feeds)

    def unfinished(self, session: Session) -> tuple[dict[RequestNumber, str], frozenset[int]]:
        """Tell what a session has yet to be handed by its feeds, for who goes on with it.

        Returns:
            The selectors of the subscribes of which it has not had all values, by their requests; and the partitions of
            all other values that it was to have.
        """
        subscribes: dict[RequestNumber, str] = {}
        numbers: frozenset[int] = frozenset()
        feeding = self.feeding.get(session)
        for feed in () if feeding is None else feeding.feeds:
            if feed.subscribe is None:
                numbers |= feed.numbers
            else:
                request, selector = feed.subscribe
                subscribes[request] = selector
        return subscribes, numbers

    def part(self, sessions: tuple[Session, ...]) -> tuple[tuple[Session, ...], tuple[Session, ...]]:
        """Part sessions into those without feeds and those with.

        The answer for the same object is the same objects, so that runs of updates for the same sessions stay in one
        piece while somebody is sent a long snapshot.
        """
        parted = self._parted.get(id(sessions))
        if parted is None:
            fed = tuple([each for each in sessions if each in self.feeding])
            others = tuple([each for each in sessions if each not in self.feeding]) if fed else sessions
            if len(self._parted) >= PARTED_AT_MOST:
                self._parted.clear()
            # With the sessions themselves: while they are held, nothing else has their id.
            parted = self._parted[id(sessions)] = (sessions, others, fed)
        return parted[1], parted[2]

    def waiting(self, session: Session) -> tuple[int, int]:
        """Tell how many packets of a session's outbox, and bytes of them, may be of its feeds.

        They do not count against the bounds of the outbox: nobody is closed as slow for having subscribed (P9).
        """
        feeding = self.feeding.get(session)
        return (0, 0) if feeding is None else (feeding.packets, feeding.size)

    def flushed(self, session: Session) -> None:
        """A session's outbox has been numbered as far as there was room; if its portion was, the next one may come."""
        feeding = self.feeding.get(session)
        if feeding is None or session in self._line:
            return
        machine = session.machine
        # Ids turn out lower where what waits is folded or withheld; but if nothing waits, all of it has gone.
        if machine.last_numbered < feeding.last and machine.waiting:
            return
        feeding.packets = feeding.size = 0
        if feeding.feeds:
            self._line[session] = None
            self._schedule_if_needed()
        else:
            self.drop(session)

    def _serve(self, session: Session) -> None:
        """Hand a session its next portion, if there is somebody to send it to; else it goes on when it is flushed."""
        feeding, machine = self.feeding[session], session.machine
        if session.connection is None or machine.state is not ATTACHED:
            return
        packets, size = _room(feeding, machine)
        if packets <= 0 or size <= 0:
            self._wait(session)
            return
        feeding.oldest = machine.oldest
        began = self._clock.monotonic()
        feed = feeding.feeds[0]
        try:
            portion = feed.pull(began + FEED_SECONDS, packets=packets, size=size)
            for run in portion:
                machine.submit_run(run)
        except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
            self.drop(session)
            self._failed(session, bug)
            return
        finally:
            self._spent += self._clock.monotonic() - began
        if feed.is_done:
            feeding.feeds.popleft()
            feeding.let_on()
            if self.changed is not None:
                self.changed(session)
        if portion:
            feeding.last = machine.last_numbered + machine.waiting
            feeding.packets = sum([run.count for run in portion])
            feeding.size = sum([run.size for run in portion])
            self._metrics.add(DELIVERIES, feeding.packets)
            self._write(session)
        elif feeding.feeds:
            self._line[session] = None
        else:
            self.drop(session)

    def _schedule_if_needed(self) -> None:
        if not self._scheduled and (self._line or self._spent >= FEEDS_SECONDS):
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn: with those who wait."""
        self._scheduled = False
        self._spent = 0.0
        while self._line and self._spent < FEEDS_SECONDS:
            session, _ = self._line.popitem(last=False)
            self._serve(session)
        self._schedule_if_needed()
