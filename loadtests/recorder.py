"""From what sessions see to what locust shows: requests by name, failures with a reason, and counts that add up.

Each process has one ``Recorder``. Those of workers report to the master, which judges all of them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from locust.env import Environment
from locust.stats import RequestStats

from gateway.core.client.endings import Ending
from gateway.core.client.errors import SessionClosed, SessionEnded, SessionExpired, SessionRefused
from gateway.core.client.types import Notice, Recovery
from gateway.core.wire.codec import encode_value
from gateway.core.wire.codes import Numbering, Outcome
from gateway.core.wire.exchange_packets import Question
from gateway.core.wire.packets import NoticeCode, Update, Welcome
from gateway.core.wire.queue_packets import Message
from loadtests.figures import CONNECT, DELIVER, RESUME_PREFIX, Requests
from loadtests.greenlets import sleep
from loadtests.integrity import PublicationWatch, SubscriptionWatch
from loadtests.payload import wall_clock
from loadtests.queue_integrity import HistoryWatch, QueueWatch
from loadtests.request_integrity import RequestWatch
from loadtests.shell.session import GatewaySession
from loadtests.tally import Tally

REQUEST_TYPE: Final = "WS"
INTEGRITY: Final = "integrity"
"""Name of the requests that stand for a broken promise."""

REPORT_KEY: Final = "gateway_tally"
"""Under which a worker's counts travel to the master."""

TICK: Final = 0.1
"""Seconds between two looks at whether the generator keeps up."""

LATE: Final = 0.05
"""Seconds by which such a look may come late; more would show in the latencies that are measured."""

_MOST_MESSAGES: Final = 50
"""Different messages of violations that are kept; a node that breaks everything must not fill the report."""
_MORE: Final = "a promise was broken, as above; further messages are left out"

_MILLISECONDS: Final = 1000.0


class PromiseBroken(Exception):
    """What a request of the name ``integrity`` fails with."""


class Recorder:
    """What one process counts.

    Args:
        environment: of locust.

    Attributes:
        tally: counts of this process.
        queue: judges all messages that this process is given.
        requests: judges all requests of this process, asked and handled.
        sessions: those that are open.
        stopping: whether the test is ending: from then on nothing counts, as sockets are closed on purpose.
        numbers: for what must differ within this process.
    """

    _known: Final[WeakKeyDictionary[Environment, Recorder]] = WeakKeyDictionary()

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._workers: dict[str, Tally] = {}
        self._messages: set[str] = set()
        self._watches: set[Watching] = set()
        self.tally = Tally()
        self.queue = QueueWatch(self.tally, self.violated)
        self.requests = RequestWatch(self.tally, self.violated)
        self.sessions: set[GatewaySession] = set()
        self.stopping = False
        self.numbers = count(1)
        self._known[environment] = self

    @classmethod
    def of(cls, environment: Environment) -> Recorder:
        """Return the one of an environment."""
        return cls._known[environment]

    # --- The test's life ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Count from nothing."""
        self.tally = Tally()
        self.queue = QueueWatch(self.tally, self.violated)
        self.requests = RequestWatch(self.tally, self.violated)
        self._workers.clear()
        self._messages.clear()
        self.stopping = False

    def stop(self) -> None:
        """Stop counting: what follows is the test's own end."""
        now = time.monotonic()
        for watch in list(self._watches):
            watch.finish(now)
        self.stopping = True

    def accrue(self) -> None:
        """Bring what counts seconds up to date."""
        now = time.monotonic()
        for watch in self._watches:
            watch.accrue(now)

    def cut_all(self) -> int:
        """Lose all connections at once, as a network or a load balancer does; returns how many there were."""
        return sum(session.cut() for session in list(self.sessions))

    def keep_time(self) -> None:
        """Watch for ever whether this process keeps up; for a greenlet of its own."""
        while True:
            due = time.monotonic() + TICK
            sleep(TICK)
            if not self.stopping:
                self.tally.ticks += 1
                self.tally.late_ticks += time.monotonic() - due > LATE

    # --- Over processes -----------------------------------------------------------------------------------------------

    def report(self, data: dict[str, Any]) -> None:
        """Put the counts into a worker's report: sums since the beginning, so that a report may be lost."""
        self.accrue()
        data[REPORT_KEY] = self.tally.dump()

    def reported(self, worker: str, data: Mapping[str, Any]) -> None:
        """Take a worker's report in."""
        if REPORT_KEY in data:
            self._workers[worker] = Tally.load(data[REPORT_KEY])

    def total(self) -> Tally:
        """Add up the counts of all processes."""
        self.accrue()
        total = Tally()
        for each in (self.tally, *self._workers.values()):
            total.add(each)
        return total

    # --- What happens -------------------------------------------------------------------------------------------------

    def request(self, name: str, seconds: float | None, error: Exception | None = None, size: int = 0) -> None:
        """Count a request, unless the test is ending.

        Args:
            name: what for.
            seconds: how long it took; None for what takes no time.
            error: why it failed, or None.
            size: bytes of the answer.
        """
        if not self.stopping:
            self._environment.events.request.fire(  # type: ignore[no-untyped-call]
                request_type=REQUEST_TYPE,
                name=name,
                response_time=None if seconds is None else seconds * _MILLISECONDS,
                response_length=size,
                exception=error,
                context={},
            )

    def violated(self, message: str) -> None:
        """Count a broken promise."""
        if self.stopping:
            return
        self.tally.violations += 1
        if message not in self._messages:
            if len(self._messages) >= _MOST_MESSAGES:
                message = _MORE
            self._messages.add(message)
        self.request(INTEGRITY, None, PromiseBroken(message))

    def watched(self, watch: Watching) -> None:
        """Have a watch finished when the test stops."""
        self._watches.add(watch)

    def unwatched(self, watch: Watching) -> None:
        """Forget a watch that is finished."""
        self._watches.discard(watch)


class Watching:
    """The ``Observer`` of one session.

    Args:
        recorder: of the process.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._subscription: SubscriptionWatch | None = None
        self._publishing_since: float | None = None
        self.publication = PublicationWatch(recorder.violated)
        self._history: HistoryWatch | None = None
        self._work: Callable[[Message], None] | None = None
        self._handle: Callable[[Question], None] | None = None
        recorder.watched(self)

    def subscribed(self) -> None:
        """Count from now on what a subscriber is owed."""
        self._subscription = SubscriptionWatch(self._recorder.tally, self._recorder.violated, time.monotonic())

    def publishing(self) -> None:
        """Count from now on what a publisher is expected to publish."""
        self._publishing_since = time.monotonic()

    def works(self, work: Callable[[Message], None]) -> None:
        """Hand messages of queues on from now on."""
        self._work = work

    def handles(self, handle: Callable[[Question], None]) -> None:
        """Hand requests on from now on."""
        self._handle = handle

    def reads(self, history: HistoryWatch) -> None:
        """Have a reader of history told what is told of the grid."""
        self._history = history

    def finish(self, now: float) -> None:
        """Stop watching; no effect the second time."""
        self.accrue(now)
        self._publishing_since = None
        if self._subscription is not None:
            self._subscription.finish(now)
        self._recorder.unwatched(self)

    def accrue(self, now: float) -> None:
        """Count the time up to now, so that figures can be looked at meanwhile."""
        if self._subscription is not None:
            self._subscription.accrue(now)
        if self._publishing_since is not None:
            self._recorder.tally.publishing_seconds += now - self._publishing_since
            self._publishing_since = now

    # --- The observer -------------------------------------------------------------------------------------------------

    def opened(self, _welcome: Welcome, seconds: float) -> None:
        """See ``Observer``."""
        if not self._recorder.stopping:
            self._recorder.tally.sessions_opened += 1
        self._recorder.request(CONNECT, seconds)

    def recovered(self, recovery: Recovery) -> None:
        """See ``Observer``."""
        recorder = self._recorder
        if recorder.stopping:
            return
        tally = recorder.tally
        kept = recovery.numbering is Numbering.KEPT
        if kept and recovery.outcome == Outcome.HANDED_OVER:
            tally.handed_over += 1
        elif kept and recovery.outcome == Outcome.MIRRORED:
            tally.mirrored += 1
        elif kept:
            # Other words than those of the rungs between (4.3.2) are counted by what they mean for the numbering.
            tally.reattached += 1
        else:
            tally.failed_over += 1
        tally.declared_lost += recovery.lost or 0
        tally.longest_recovery = max(tally.longest_recovery, recovery.gap_seconds)
        recorder.request(f"{RESUME_PREFIX}{recovery.outcome}", recovery.gap_seconds)
        if self._subscription is not None:
            if not kept and recovery.replayed:
                tally.replayed += 1
            elif not kept:
                tally.not_replayed += 1
            self._subscription.recovered(recovery.numbering, replayed=recovery.replayed)

    def updated(self, update: Update, now: float) -> None:
        """See ``Observer``."""
        if self._subscription is not None:
            latency = self._subscription.updated(update, now, wall_clock())
            if latency is not None:
                self._recorder.request(DELIVER, latency, size=len(encode_value(update.value)))

    def received(self, message: Message) -> None:
        """See ``Observer``."""
        if self._work is not None and not self._recorder.stopping:
            self._work(message)

    def given(self, question: Question) -> None:
        """See ``Observer``."""
        if self._handle is not None:
            self._handle(question)

    def noticed(self, notice: Notice) -> None:
        """See ``Observer``."""
        self._recorder.tally.notices += 1
        if notice.code == NoticeCode.GRID_LOST_WRITES:
            self._recorder.queue.forget()
            if self._history is not None:
                self._history.forget()
        self.publication.disturbed()
        if self._subscription is not None:
            self._subscription.noticed()

    def violated(self, message: str) -> None:
        """See ``Observer``."""
        self._recorder.violated(message)

    def attempt_failed(self, _ending: Ending) -> None:
        """See ``Observer``."""
        if not self._recorder.stopping:
            self._recorder.tally.attempts_failed += 1

    def ended(self, error: SessionEnded, gap_seconds: float) -> None:
        """See ``Observer``."""
        if not self._recorder.stopping:
            self._recorder.tally.sessions_lost += 1
        self._recorder.request(f"{RESUME_PREFIX}{_outcome_of(error)}", gap_seconds, error)


def _outcome_of(error: SessionEnded) -> str:
    match error:
        case SessionRefused():
            return "refused"
        case SessionExpired():
            return "expired"
        case SessionClosed():
            return "closed"
        case _:
            return "failed"


def request_counts(stats: RequestStats) -> dict[str, Requests]:
    """Bring what locust counted into the form that figures are computed from."""
    return {
        name: Requests(
            entry.num_requests,
            entry.num_failures,
            {float(time): number for time, number in entry.response_times.items()},
        )
        for (name, _), entry in stats.entries.items()
    }
