"""Verifications: when slow work is done on credentials, for whom, and who is told to come again (P20).

A secret that is hashed slowly on purpose, or asked about outside, costs whoever verifies it a thousand times what it
costs to show it. So such work has places of its own, and nobody who waits for one holds anything that others need. Who
is next, says ``gateway.core.pacing.verification_queue``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, TypeVar

from gateway.app.admission.addresses import account_key
from gateway.app.runtime.clock import Clock
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.verification_queue import FailureRanks, VerificationQueue
from gateway.ports import Credentials, EventLog, Metrics, VerificationRefused

T = TypeVar("T")

PATIENCE: Final = 2.0
"""Seconds that credentials wait at most for their turn: with as much for the turn at the handshake limiter, less than
the 5 s that clients wait for a welcome."""

WAITING_PER_PLACE: Final = 32
"""Credentials that may wait for each place of a pool: what it verifies within the patience if one takes 60 ms, which is
less than a secret takes to be hashed. More would wait in vain."""

LOG_AGAIN: Final = 1.0
"""Seconds between two log lines about refusals: an attacker must not fill the disk. The metric counts all."""


class _Job:
    """Work for the same credentials, whoever shows them.

    Args:
        key: of the credentials.
        work: what is to be done.

    Attributes:
        key: as given.
        work: as given.
        task: does it; None before its turn.
        waiting: those who wait for its turn.
    """

    __slots__ = ("key", "task", "waiting", "work")

    def __init__(self, key: bytes, work: Callable[[], Awaitable[Any]]) -> None:
        self.key = key
        self.work = work
        self.task: asyncio.Task[Any] | None = None
        self.waiting: set[_Waiting] = set()


class _Waiting:
    """One caller that waits for its turn.

    Args:
        job: what for.
        credentials: shown by whom.
        address: as which it counts.

    Attributes:
        job: as given.
        credentials: as given.
        address: as given.
        turn: done when the job has begun, or with an error if it will not for this caller.
    """

    __slots__ = ("address", "credentials", "job", "turn")

    def __init__(self, job: _Job, credentials: Credentials, address: str) -> None:
        self.job = job
        self.credentials = credentials
        self.address = address
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Verifications:
    """All pools of a node, and who failed often.

    Args:
        clock: time.
        metrics: where numbers go.
        log: where it is told that some are refused.
    """

    def __init__(self, *, clock: Clock, metrics: Metrics, log: EventLog) -> None:
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._told = float("-inf")
        self._pools: list[Pool] = []
        self.ranks = FailureRanks()
        metrics.watch(catalogue.VERIFICATIONS_WAITING, lambda: sum(each.waiting for each in self._pools))

    def pool(self, places: int, *, patience: float = inf) -> Pool:
        """Make a pool.

        Args:
            places: works at the same time.
            patience: seconds that one waits at most for its turn, if that is less than usual.
        """
        pool = Pool(self, places, patience=min(PATIENCE, patience), clock=self._clock, metrics=self._metrics)
        self._pools.append(pool)
        return pool

    def failed(self, credentials: Credentials) -> None:
        """Credentials were refused by everybody who was asked."""
        address, principal = account_key(credentials.address), credentials.principal
        self.ranks.failed(address, principal, self._clock.monotonic())

    def told_to_come_again(self, waiting: _Waiting, reason: str, pool: Pool) -> None:
        """Count that somebody was refused, and log it at times."""
        self._metrics.add(catalogue.VERIFICATIONS_REFUSED, label=reason)
        now = self._clock.monotonic()
        if now >= self._told:
            self._told = now + LOG_AGAIN
            self._log.emit(
                events.VERIFICATION_REFUSED,
                address=waiting.credentials.address,
                reason=reason,
                waiting=pool.waiting,
                failing=len(self.ranks.addresses),
            )

    async def close(self) -> None:
        """Give up all work that is waited for; threads that hash cannot be stopped."""
        for pool in self._pools:
            await pool.close()


class Pool:
    """Implements ``gateway.ports.VerificationPool``; to be made by ``Verifications.pool``."""

    def __init__(
        self, verifications: Verifications, places: int, *, patience: float, clock: Clock, metrics: Metrics
    ) -> None:
        self._verifications = verifications
        self._places = places
        self._patience = patience
        self._clock = clock
        self._metrics = metrics
        self._queue: VerificationQueue[_Waiting] = VerificationQueue(
            most=places * WAITING_PER_PLACE, patience=patience, ranks=verifications.ranks
        )
        self._jobs: dict[bytes, _Job] = {}
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def places(self) -> int:
        """See the port."""
        return self._places

    @property
    def waiting(self) -> int:
        """Callers that wait for their turn."""
        return len(self._queue)

    async def run(self, credentials: Credentials, key: bytes, work: Callable[[], Awaitable[T]]) -> T:
        """See the port."""
        if credentials.before_work is not None:
            await credentials.before_work()
        if self._closed:
            raise self._refusal("the node stops; try again at another one")
        if credentials.abandoned():
            self._metrics.add(catalogue.VERIFICATIONS_REFUSED, label="hung_up")
            raise self._refusal("you have hung up")
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(key, work)
        if job.task is None:
            await self._turn(_Waiting(job, credentials, account_key(credentials.address)))
        assert job.task is not None  # noqa: S101 - that is what was waited for
        # A caller that gives up does not take the verdict away from the others.
        result: T = await asyncio.shield(job.task)
        return result

    async def close(self) -> None:
        """Refuse those who wait, and cancel what is being done."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiting in self._queue.waiting():
            self._refuse(waiting, self._refusal("the node stops; try again at another one"))
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- Turns --------------------------------------------------------------------------------------------------------

    async def _turn(self, waiting: _Waiting) -> None:
        """Wait until the job has begun."""
        job = waiting.job
        if len(self._queue) >= self._places * WAITING_PER_PLACE:
            self._let_go_of_who_hung_up()
        job.waiting.add(waiting)
        now = self._clock.monotonic()
        leaves = self._queue.put(waiting, address=waiting.address, principal=waiting.credentials.principal, now=now)
        if leaves is not None:
            self._verifications.told_to_come_again(leaves, "crowded", self)
            self._refuse(leaves, self._refusal("more credentials wait to be verified than can be; try again"))
        self._begin()
        try:
            await waiting.turn
        finally:
            self._queue.remove(waiting)
            job.waiting.discard(waiting)
            if job.task is None and not job.waiting and self._jobs.get(job.key) is job:
                del self._jobs[job.key]

    def _begin(self) -> None:
        """Give free places to those whose turn it is."""
        while self._running < self._places and not self._closed:
            last = 1 < self._places == self._running + 1
            waiting = self._queue.take(self._clock.monotonic(), last=last)
            if waiting is None:
                break
            if waiting.turn.done():
                continue  # cancelled in this turn of the loop
            if waiting.credentials.abandoned():
                self._hung_up(waiting)
                continue
            self._start(waiting.job)
        self._arm()

    def _let_go_of_who_hung_up(self) -> None:
        """Make room in a full queue: nobody who is there is refused for somebody who is not."""
        for waiting in self._queue.waiting():
            if waiting.credentials.abandoned():
                self._hung_up(waiting)

    def _hung_up(self, waiting: _Waiting) -> None:
        self._metrics.add(catalogue.VERIFICATIONS_REFUSED, label="hung_up")
        self._refuse(waiting, self._refusal("you have hung up"))

    def _start(self, job: _Job) -> None:
        self._running += 1
        job.task = asyncio.create_task(self._work(job), name="verify-credentials")
        job.task.add_done_callback(_read)
        for waiting in job.waiting:
            self._queue.remove(waiting)
            if not waiting.turn.done():
                waiting.turn.set_result(None)

    async def _work(self, job: _Job) -> Any:
        try:
            return await job.work()
        finally:
            self._running -= 1
            del self._jobs[job.key]
            self._begin()

    def _refuse(self, waiting: _Waiting, why: VerificationRefused) -> None:
        self._queue.remove(waiting)
        if not waiting.turn.done():
            waiting.turn.set_exception(why)

    def _refusal(self, why: str) -> VerificationRefused:
        return VerificationRefused(why, self._patience)

    # --- Patience -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Look for those who have waited too long when the first of them has; one timer serves all."""
        until = self._queue.until
        if until is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            wait = max(0.0, until - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        for waiting in self._queue.impatient(self._clock.monotonic()):
            self._verifications.told_to_come_again(waiting, "late", self)
            late = self._refusal("those whose credentials are verified before yours took too long; try again")
            self._refuse(waiting, late)
        self._arm()


def _read(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # read, lest asyncio complains when every caller has given up
