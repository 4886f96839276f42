"""Who may connect to a node, and when, if more come than it can take on at once.

A node that serves live updates accepts clients at a steady pace, because what it does for newcomers delays those it has
already. A node that has nothing to deliver accepts them as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.app.admission.addresses import AddressConnection
from gateway.app.admission.limits import Limits
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.parameters import StormParameters
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.admission import AdmissionQueue
from gateway.core.pacing.rates import TokenBucket
from gateway.ports import Candidate, Metrics


@dataclass(frozen=True)
class TurnSize:
    """How much is done for newcomers before the loop gets its turn.

    Attributes:
        accepted: connections accepted. Their requests are there already, as a rule, and are read in the next turn.
        admitted: clients accepted of those that wait.
    """

    accepted: int
    admitted: int


SHORT: Final = TurnSize(accepted=16, admitted=32)
"""Of a node that has others to serve, who may have to wait for so long: a millisecond, and two."""

LONG: Final = TurnSize(accepted=64, admitted=64)
"""Of a node that has nobody to delay. Those who come together share turns of the loop and pipelines to the grid, and
what is done for each finds its code in the processor's cache: a failover costs a sixth less than in short turns. It is
some milliseconds, so that whoever turns up meanwhile is not kept waiting either."""

ASKED_PER_ADMISSION: Final = 2.0
"""Clients that may ask for each that is admitted; beyond, no connections are accepted. To accept one, read its request
(with TLS: shake hands first) and refuse it costs a third of an admission or more, so that a crowd which is refused as
fast as it comes costs more than to serve it. With two, the waiting room fills, and the load balancer hears of refusals
early enough to ask another node; and yet the work for those who are refused is less than half of that for those who are
admitted. Who asks for nothing, hangs up or has had enough for its address is not counted: it is bounded by the time
that unauthenticated clients have, and a crowd of such must not keep everybody else in the kernel's queue."""

ASKED_AT_LEAST: Final = 100.0
"""Clients a second that may ask however few are admitted: it is a hundredth of a core."""

OPENING: Final = 0.02
"""Seconds between two turns in which a node that has others to serve admits clients. Who came in between is admitted
together: their questions share a pipeline to the grid, and their steps a turn of the loop, so that each costs a third
less than alone. At the default rate it is the work of some milliseconds, in several turns."""


class ConnectionLimiter:
    """Implements ``gateway.ports.Admission``.

    Args:
        limits: of addresses and of the node.
        parameters: how storms are met.
        busy: whether the node has live updates to deliver.
        longest: seconds after which a refused client is asked to come back at the latest.
        clock: time.
        metrics: where numbers go.
    """

    def __init__(
        self,
        limits: Limits,
        parameters: StormParameters,
        *,
        busy: Callable[[], bool],
        longest: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._limits = limits
        self._parameters = parameters
        self._busy = busy
        self._clock = clock
        self._metrics = metrics
        self._queue: AdmissionQueue[Candidate] | None = None
        self._accepts: TokenBucket | None = None
        if parameters.admission_rate:
            pace = max(ASKED_PER_ADMISSION * parameters.admission_rate, ASKED_AT_LEAST)
            self._accepts = TokenBucket(pace, max(1.0, pace * OPENING))
            self._queue = AdmissionQueue(
                rate=parameters.admission_rate, patience=parameters.admission_wait, longest=longest
            )
        self._came: dict[Candidate, float] = {}
        self._turn: asyncio.Handle | None = None
        metrics.watch(catalogue.ADMISSIONS_WAITING, lambda: len(self._queue or ()))

    def close(self) -> None:
        """Admit nobody any more."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def is_paced(self) -> bool:
        """See ``Admission``."""
        return self._busy()

    def acceptable(self) -> int:
        """See ``Admission``."""
        return (SHORT if self._busy() else LONG).accepted

    def pause(self, *, more: bool) -> float:
        """See ``Admission``."""
        if self._accepts is None or not self._busy():
            return 0.0
        owed = self._accepts.owed(self._clock.monotonic())
        return owed if more else max(OPENING, owed)

    def arrive(self, address: str) -> AddressConnection:
        """See ``Admission``."""
        return self._limits.arrive(address)

    def shake_hands(self, peer: str, *, proxy: bool) -> None:
        """See ``Admission``."""
        self._limits.shake_hands(peer, proxy=proxy)

    def admit(self, candidate: Candidate, *, address: str, returning: bool) -> None:
        """See ``Admission``."""
        if self._queue is None:
            candidate.accept()
            return
        now = self._clock.monotonic()
        self._asked(now)
        paced = self._busy()
        # One that is exempt from limits stands for many clients, so each of its connections stands for itself.
        key = self._limits.address_keys.of(address)
        self._came[candidate] = now
        refused = self._queue.arrive(candidate, now, address=key, returning=returning, paced=paced)
        if refused is not None:
            self._reject(*refused)
            if refused[0] is candidate:
                return
        if self._turn is None:
            self._open_after(OPENING if paced else 0.0)

    def withdraw(self, candidate: Candidate) -> None:
        """See ``Admission``."""
        if self._queue is not None and self._came.pop(candidate, None) is not None:
            self._queue.withdraw(candidate)
            # Who asks and hangs up has cost a little, and keeps nobody else from being accepted.
            if self._accepts is not None:
                self._accepts.give_back()

    def _asked(self, now: float) -> None:
        """Count a client that has asked for something."""
        if self._accepts is not None:
            self._accepts.charge(now)

    def _take_turn(self) -> None:
        self._turn = None
        queue = self._queue
        if queue is None:
            return
        now, paced = self._clock.monotonic(), self._busy()
        for candidate in queue.release(now, paced=paced, most=(SHORT if paced else LONG).admitted):
            self._metrics.observe(catalogue.ADMISSION_WAIT_SECONDS, now - self._came.pop(candidate))
            self._metrics.add(catalogue.ADMISSIONS, label="accepted")
            candidate.accept()
        # At full speed nobody could serve them sooner; whoever loses patience hangs up.
        for candidate, retry_after in queue.expired(now) if paced else ():
            self._reject(candidate, retry_after)
        following = queue.next(now, paced=paced)
        if following is not None:
            self._open_after(max(OPENING, following) if paced else following)

    def _open_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._turn = loop.call_later(seconds, self._take_turn) if seconds else loop.call_soon(self._take_turn)

    def _reject(self, candidate: Candidate, retry_after: float) -> None:
        del self._came[candidate]
        self._metrics.add(catalogue.ADMISSIONS, label="rejected")
        candidate.reject(
            self._limits.rejection(
                "admission_rate",
                f"more clients come to this node than the {self._parameters.admission_rate:g} a second that it accepts",
                retry_after,
                elsewhere=True,
            )
        )
