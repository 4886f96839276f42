"""Verifications: when slow work is done on credentials, for whom, and who is told to come again (P20).

A secret that is hashed slowly on purpose, or asked about outside, costs whoever verifies it a thousand times what it
costs to show it. So such work has places of its own, and nobody who waits for one holds anything that others need. Who
is next, says ``gateway.core.pacing.verification_queue``.

Whether a principal exists must not be told by time. Credentials of one that does not are *decoys*: they wait as others
do, and are hashed as others are while there is nothing better to do; otherwise that is only pretended, so that no
number of them keeps those from being verified who may be somebody. When they are refused, is a matter of whole seconds
(``Verifications.until_refusal``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from math import ceil, inf
from typing import Any, Final, TypeVar

from gateway.app.admission.addresses import account_key
from gateway.app.runtime.clock import Clock
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.verification_queue import VerificationQueue
from gateway.core.pacing.verification_ranks import FailureRanks, TurnedAway, VerificationRates
from gateway.ports import Credentials, EventLog, Metrics, VerificationRefused

T = TypeVar("T")

PATIENCE: Final = 2.0
"""Seconds that credentials wait at most for their turn: with as much for the turn at the handshake limiter, less than
the 5 s that clients wait for a welcome."""

WAITING_PER_PLACE: Final = 32
"""Credentials that may wait for each place of a pool: what it verifies within the patience if one takes 60 ms, which is
less than a secret takes to be hashed. More would wait in vain."""

CROWDING: Final = 4
"""Works under way for one address, from which on the last place is kept from it: who asks a service that is slow to say
no has all places otherwise, before one of its guesses has failed. Of a pool as small as those for hashes, an address
may have all: hashes are done soon."""

RETRY: Final = 1.0
"""Seconds after which those are asked to come again whose principal or address fails often: they go before others then,
and the rates let somebody through in less."""

REFUSAL_STEP: Final = 1.0
"""Seconds: where time could tell whether a principal exists, credentials are refused so many after they came, or twice
as many, and so on. Several times as long as a hash takes, and short for people who have mistyped a secret."""

RATES: Final = ("rate_address_verifications", "rate_principal_verifications")
"""Settings by which those wait who failed often, for the metric of limits."""

NEWEST_SHARE: Final = 0.2
"""Of the time that the last work took, in what is remembered of how long it takes: that of about five."""

LOG_AGAIN: Final = 1.0
"""Seconds between two log lines about refusals: an attacker must not fill the disk. The metric counts all."""


class _Job:
    """Work for the same credentials, whoever shows them.

    Args:
        key: of the credentials.
        work: what is to be done.
        decoy: whether the verdict is no, whatever the work says.

    Attributes:
        key: as given.
        work: as given.
        decoy: as given.
        task: does it; None before its turn.
        waiting: who waits for its turn, by address.
    """

    __slots__ = ("decoy", "key", "task", "waiting", "work")

    def __init__(self, key: bytes, work: Callable[[], Awaitable[Any]], *, decoy: bool) -> None:
        self.key = key
        self.work = work
        self.decoy = decoy
        self.task: asyncio.Task[Any] | None = None
        self.waiting: dict[str, _Waiting] = {}


class _Waiting:
    """Callers that show the same credentials at the same address, and wait for their turn in one place of the queue.

    Args:
        job: what for.
        address: as which it counts.
        principal: who they say they are.

    Attributes:
        job: as given.
        address: as given.
        principal: as given.
        callers: each with what becomes of it: done when the job has begun, or with an error if it will not for it.
    """

    __slots__ = ("address", "callers", "job", "principal")

    def __init__(self, job: _Job, address: str, principal: str) -> None:
        self.job = job
        self.address = address
        self.principal = principal
        self.callers: dict[asyncio.Future[None], Credentials] = {}


class Verifications:
    """All pools of a node, and who failed often.

    Args:
        clock: time.
        metrics: where numbers go.
        log: where it is told that some are refused.
        rates: how fast those are verified who failed often.
    """

    def __init__(
        self, *, clock: Clock, metrics: Metrics, log: EventLog, rates: VerificationRates | None = None
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._told = float("-inf")
        self._pools: list[Pool] = []
        self._hides_principals = False
        self.ranks = FailureRanks()
        self.rates = rates or VerificationRates()
        metrics.watch(catalogue.VERIFICATIONS_WAITING, lambda: sum(each.waiting for each in self._pools))

    def pool(self, places: int, *, patience: float = inf, hides_principals: bool = False) -> Pool:
        """Make a pool.

        Args:
            places: works at the same time.
            patience: seconds that one waits at most for its turn, if that is less than usual.
            hides_principals: whether time must not tell if a principal exists, see ``until_refusal``.
        """
        self._hides_principals |= hides_principals
        pool = Pool(self, places, patience=min(PATIENCE, patience), clock=self._clock, metrics=self._metrics)
        self._pools.append(pool)
        return pool

    def failed(self, credentials: Credentials) -> None:
        """Credentials were refused by everybody who was asked."""
        address, principal = account_key(credentials.address), credentials.principal
        self.ranks.failed(address, principal, self._clock.monotonic())

    def until_refusal(self, taken: float) -> float:
        """Tell how long credentials that are refused have to wait for the answer, so that time tells nothing.

        Args:
            taken: seconds since they came.

        Returns:
            Seconds until the next whole step; 0 if there is nothing to hide.
        """
        return max(1, ceil(taken / REFUSAL_STEP)) * REFUSAL_STEP - taken if self._hides_principals else 0.0

    def told_to_come_again(self, waiting: _Waiting, reason: str, pool: Pool) -> None:
        """Count that some were refused, and log it at times."""
        self._metrics.add(catalogue.VERIFICATIONS_REFUSED, len(waiting.callers), label=reason)
        now = self._clock.monotonic()
        if now >= self._told and waiting.callers:
            self._told = now + LOG_AGAIN
            self._log.emit(
                events.VERIFICATION_REFUSED,
                address=next(iter(waiting.callers.values())).address,
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
            most=places * WAITING_PER_PLACE, patience=patience, ranks=verifications.ranks, rates=verifications.rates
        )
        self._turned_away = TurnedAway()
        self._jobs: dict[bytes, _Job] = {}
        self._running: Counter[str] = Counter()
        """Works under way, by the address for which each was begun."""
        self._typical = 0.0
        """Seconds that work takes."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._closed = False

    @property
    def places(self) -> int:
        """See the port."""
        return self._places

    @property
    def waiting(self) -> int:
        """Credentials that wait for their turn; the same from one address count as one."""
        return len(self._queue)

    async def run(self, credentials: Credentials, key: bytes, work: Callable[[], Awaitable[T]]) -> T:
        """See the port."""
        result: T = await self._run(credentials, key, work, decoy=False)
        return result

    async def pretend(self, credentials: Credentials, key: bytes, work: Callable[[], Awaitable[object]]) -> None:
        """See the port."""
        await self._run(credentials, key, work, decoy=True)

    async def _run(
        self, credentials: Credentials, key: bytes, work: Callable[[], Awaitable[Any]], *, decoy: bool
    ) -> Any:
        if credentials.before_work is not None:
            await credentials.before_work()
        if self._closed:
            raise self._refusal("the node stops; try again at another one")
        if credentials.abandoned():
            self._metrics.add(catalogue.VERIFICATIONS_REFUSED, label="hung_up")
            raise self._refusal("you have hung up")
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(key, work, decoy=decoy)
        if job.task is None:
            await self._turn(job, credentials)
        assert job.task is not None  # noqa: S101 - that is what was waited for
        # A caller that gives up does not take the verdict away from the others.
        return await asyncio.shield(job.task)

    async def close(self) -> None:
        """Refuse those who wait, and cancel what is being done."""
        self._closed = True
        self._disarm()
        for waiting in self._queue.waiting():
            self._refuse(waiting, self._refusal("the node stops; try again at another one"))
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- Turns --------------------------------------------------------------------------------------------------------

    async def _turn(self, job: _Job, credentials: Credentials) -> None:
        """Wait until the job has begun."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        address = account_key(credentials.address)
        waiting = job.waiting.get(address)
        if waiting is None:
            waiting = job.waiting[address] = _Waiting(job, address, credentials.principal)
            waiting.callers[turn] = credentials
            self._put(waiting)
            self._begin()
        else:
            waiting.callers[turn] = credentials
        try:
            await turn
        finally:
            waiting.callers.pop(turn, None)
            if not waiting.callers:
                self._drop(waiting)

    def _put(self, waiting: _Waiting) -> None:
        """Let somebody wait, and send away who has to leave for it."""
        if self._queue.genuine >= self._places * WAITING_PER_PLACE:
            self._let_go_of_who_hung_up()
        leaving = self._queue.put(
            waiting,
            address=waiting.address,
            principal=waiting.principal,
            now=self._clock.monotonic(),
            level=self._turned_away.level(waiting.job.key),
            decoy=waiting.job.decoy,
        )
        for each in leaving:
            self._turn_away(each, "crowded", "more credentials wait to be verified than can be")

    def _begin(self) -> None:
        """Give free places to those whose turn it is."""
        while (running := self._running.total()) < self._places and not self._closed:
            last = 1 < self._places == running + 1
            crowding = {address for address, works in self._running.items() if works >= CROWDING}
            waiting = self._queue.take(self._clock.monotonic(), last=last, crowding=crowding)
            if waiting is None:
                break
            self._let_go(waiting)
            if waiting.callers:
                self._start(waiting)
            else:
                self._drop(waiting)
        self._arm()

    def _let_go_of_who_hung_up(self) -> None:
        """Make room in a full queue: nobody who is there is refused for somebody who is not."""
        for waiting in self._queue.waiting():
            self._let_go(waiting)
            if not waiting.callers:
                self._drop(waiting)

    def _let_go(self, waiting: _Waiting) -> None:
        """Take out callers that were cancelled or have hung up."""
        for turn, credentials in list(waiting.callers.items()):
            if turn.done():
                del waiting.callers[turn]
            elif credentials.abandoned():
                del waiting.callers[turn]
                self._metrics.add(catalogue.VERIFICATIONS_REFUSED, label="hung_up")
                turn.set_exception(self._refusal("you have hung up"))

    def _drop(self, waiting: _Waiting) -> None:
        """Take somebody out of the queue who waits no more, and the job with the last who waits for it."""
        self._queue.remove(waiting)
        job = waiting.job
        if job.waiting.get(waiting.address) is waiting:
            del job.waiting[waiting.address]
        if job.task is None and not job.waiting and self._jobs.get(job.key) is job:
            del self._jobs[job.key]

    def _start(self, chosen: _Waiting) -> None:
        job = chosen.job
        self._turned_away.forget(job.key)
        if job.decoy and not self._has_time_for_decoy(chosen):
            job.task = asyncio.create_task(self._pretend(job), name="pretend-to-verify")
        else:
            self._running[chosen.address] += 1
            job.task = asyncio.create_task(self._work(job, chosen.address), name="verify-credentials")
        job.task.add_done_callback(_read)
        for waiting in job.waiting.values():
            self._queue.remove(waiting)
            for turn in waiting.callers:
                if not turn.done():
                    turn.set_result(None)
        job.waiting.clear()

    def _has_time_for_decoy(self, waiting: _Waiting) -> bool:
        """Tell whether there is nothing better to do; the last place of several is left free."""
        return (
            not self._queue.genuine
            and self._running.total() < max(1, self._places - 1)
            and self._queue.may_work_for_decoy(waiting.address, waiting.principal, self._clock.monotonic())
        )

    async def _work(self, job: _Job, address: str) -> Any:
        began = self._clock.monotonic()
        try:
            return await job.work()
        finally:
            taken = self._clock.monotonic() - began
            self._typical += (taken - self._typical) * (NEWEST_SHARE if self._typical else 1.0)
            self._running -= Counter([address])
            del self._jobs[job.key]
            self._begin()

    async def _pretend(self, job: _Job) -> None:
        """Take as long as work takes, and do none."""
        try:
            await asyncio.sleep(self._typical)
        finally:
            del self._jobs[job.key]

    def _turn_away(self, waiting: _Waiting, reason: str, why: str) -> None:
        """Tell somebody without a verdict to come again; it goes before others then, if somebody fails often."""
        self._turned_away.again(waiting.job.key)
        self._verifications.told_to_come_again(waiting, reason, self)
        held = self._queue.held_by_rates(waiting.address, waiting.principal, self._clock.monotonic())
        for limit, is_why in zip(RATES, held, strict=True):
            if is_why:
                self._metrics.add(catalogue.LIMITS_EXCEEDED, len(waiting.callers), label=limit)
        fails = self._verifications.ranks.of(waiting.address, waiting.principal, self._clock.monotonic()) > 0
        self._refuse(waiting, self._refusal(f"{why}; try again", RETRY if fails else None))

    def _refuse(self, waiting: _Waiting, why: VerificationRefused) -> None:
        for turn in waiting.callers:
            if not turn.done():
                turn.set_exception(why)
        self._drop(waiting)

    def _refusal(self, why: str, retry_after: float | None = None) -> VerificationRefused:
        return VerificationRefused(why, self._patience if retry_after is None else retry_after)

    # --- Patience -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Look again when the first has waited for too long, or a rate lets somebody through; one timer serves all."""
        until = self._queue.until
        at = inf if until is None else until
        if self._running.total() < self._places:
            at = min(at, self._queue.again_at)
        if at == inf:
            self._disarm()
        elif self._timer is None or at < self._timer_at:
            self._disarm()
            self._timer_at = at
            wait = max(0.0, at - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._on_time)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, inf

    def _on_time(self) -> None:
        self._disarm()
        for waiting in self._queue.impatient(self._clock.monotonic()):
            self._turn_away(waiting, "late", "those whose credentials are verified before yours took too long")
        self._begin()


def _read(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # read, lest asyncio complains when every caller has given up
