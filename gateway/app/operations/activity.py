"""What happened to the sessions of a node, counted and remembered for a while.

It listens where every event of a session's life passes anyway: at the log. Nothing is added to the paths of packets.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import starmap
from typing import Final, NamedTuple

from gateway.catalogue import log_events as events
from gateway.catalogue.log_event import LogEvent
from gateway.core.wire.codes import Outcome
from gateway.ports import EventLog

INTERVAL: Final = 5.0
"""Seconds that one column of the history stands for: fine enough to see a storm rise and fall."""

COLUMNS: Final = 180
"""Columns kept: a quarter of an hour, in which people look at a screen after an alert, in some 10 kB."""

RECENT: Final = 50
"""Happenings told per report; a storm has thousands a second, and nobody reads them one by one. The rest is counted."""

KEPT: Final = 100
"""Happenings remembered for those who begin to watch later: two screenfuls, in some 10 kB."""

KEPT_SECONDS: Final = COLUMNS * INTERVAL
"""How long happenings and counts are of interest, also to a later run of the node."""

REFUSED: Final = Outcome.REFUSED.value
"""How resumes are counted that got no session."""

_TOLD: Final[Mapping[LogEvent, str]] = {
    events.SESSION_OPENED: "opened",
    events.SESSION_RESUMED: "resumed",
    events.SESSION_DISCONNECTED: "disconnected",
    events.SESSION_ENDED: "ended",
    events.SESSION_FENCED: "fenced",
    events.SLOW_CONSUMER_CLOSED: "too_slow",
}
"""Events of single sessions that are told, and what they are called there."""


class Happening(NamedTuple):
    """Something happened to a session.

    Attributes:
        at: when, in seconds since 1970.
        what: ``opened``, ``resumed``, ``disconnected``, ``ended``, ``fenced`` or ``too_slow``.
        session: its id.
        detail: the rung of a resume, the reason of an end, or nothing.
        replayed: of a failover, whether every update that was missed follows; else nothing.
    """

    at: float
    what: str
    session: str
    detail: str | None
    replayed: bool | None


class Column(NamedTuple):
    """Resumes within one interval.

    Attributes:
        begins: in seconds since 1970; a multiple of the interval, so that those of several nodes can be added up.
        counts: by outcome.
    """

    begins: float
    counts: Counter[str]


class Activity:
    """An ``EventLog`` that counts what passes on its way to another one.

    Args:
        log: where events go on to.
        wall: seconds since 1970.

    Attributes:
        happened: happenings since the start, those included that were taken over.
        resumes: resumes since the start, by outcome; refusals together.
        opened: sessions opened since the start.
        ended: sessions ended since the start, by reason.
        slow_closes: connections closed since the start because their client read too slowly.
    """

    def __init__(self, log: EventLog, *, wall: Callable[[], float]) -> None:
        self._log = log
        self._wall = wall
        self._columns: deque[Column] = deque(maxlen=COLUMNS)
        self._column = Column(-INTERVAL, Counter())
        self._happenings: deque[tuple[float, str, str, str | None, object]] = deque(maxlen=RECENT)
        """Made into ``Happening`` when they are told, as nearly none is in a storm."""
        self._happened = 0
        self._kept: deque[tuple[float, str, str, str | None, object]] = deque(maxlen=KEPT)
        self.happened = 0
        self.resumes: Counter[str] = Counter()
        self.opened = 0
        self.ended: Counter[str] = Counter()
        self.slow_closes = 0

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """See ``EventLog.emit``."""
        self._log.emit(event, **fields)
        if event is events.RESUME_REFUSED:
            self._resumed(REFUSED, self._wall())
            return
        what = _TOLD.get(event)
        if what is None:
            return
        detail: str | None = None
        replayed: object = None
        now = self._wall()
        if event is events.SESSION_RESUMED:
            detail = str(fields["outcome"])
            replayed = fields["replayed"]
            self._resumed(detail, now)
        elif event is events.SESSION_OPENED:
            self.opened += 1
        elif event is events.SESSION_ENDED:
            detail = str(fields["reason"])
            self.ended[detail] += 1
        elif event is events.SLOW_CONSUMER_CLOSED:
            self.slow_closes += 1
        self._happened += 1
        happening = (now, what, str(fields["session"]), detail, replayed)
        self._happenings.append(happening)
        self._kept.append(happening)
        self.happened += 1

    def _resumed(self, outcome: str, now: float) -> None:
        self.resumes[outcome] += 1
        if not 0 <= now - self._column.begins < INTERVAL:
            self._column = Column(now // INTERVAL * INTERVAL, Counter())
            self._columns.append(self._column)
        self._column.counts[outcome] += 1

    # --- What there is to tell ----------------------------------------------------------------------------------------

    def history(self) -> list[Column]:
        """List the intervals in which sessions were resumed, the oldest first; those without are left out."""
        return list(self._columns)

    def recent(self) -> list[Happening]:
        """List what happened lately, the oldest first, whether it was taken out or not."""
        since = self._wall() - KEPT_SECONDS
        return list(starmap(Happening, (each for each in self._kept if each[0] >= since)))

    def restore(self, columns: Iterable[Column], happenings: Iterable[Happening]) -> None:
        """Put what an earlier run of the node told before what this one has seen; what is too old is left out.

        Args:
            columns: its resumes by interval, the oldest first.
            happenings: of its sessions, the oldest first.
        """
        since = self._wall() - KEPT_SECONDS
        merged: dict[float, Counter[str]] = {}
        for each in (*(each for each in columns if each.begins >= since), *self._columns):
            merged.setdefault(each.begins, Counter()).update(each.counts)
        self._columns = deque((Column(*each) for each in sorted(merged.items())), maxlen=COLUMNS)
        if self._columns and self._columns[-1].begins == self._column.begins:
            self._column = self._columns[-1]
        earlier = [
            (each.at, each.what, each.session, each.detail, each.replayed) for each in happenings if each.at >= since
        ]
        self._kept = deque((*earlier, *self._kept), maxlen=KEPT)
        self.happened += len(earlier)

    def take(self) -> tuple[list[Happening], int]:
        """Take out what happened since this was asked last.

        Returns:
            The newest, in order, and how many more there were.
        """
        happenings, happened = list(starmap(Happening, self._happenings)), self._happened
        self._happenings.clear()
        self._happened = 0
        return happenings, happened - len(happenings)
