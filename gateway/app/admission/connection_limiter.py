"""The door of a node: who may connect, and when, if more come than it can take on at once.

A node that serves live updates lets clients in at a steady pace, because what it does for newcomers delays those it has
already. A node that has nothing to deliver lets them in as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.app.admission.addresses import AddressVisit
from gateway.app.admission.limits import Limits
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.policy import StormPolicy
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.admission import AdmissionQueue
from gateway.core.pacing.rates import TokenBucket
from gateway.ports import Metrics, Visitor


@dataclass(frozen=True)
class Turn:
    """How much is done for newcomers before the loop gets its turn.

    Attributes:
        accepted: connections accepted. Their requests are there already, as a rule, and are read in the next turn.
        let_in: clients let in.
    """

    accepted: int
    let_in: int


SHORT: Final = Turn(accepted=16, let_in=32)
"""Of a node that has others to serve, who may have to wait for so long: a millisecond, and two."""

LONG: Final = Turn(accepted=64, let_in=64)
"""Of a node that has nobody to delay. Those who come together share turns of the loop and pipelines to the grid, and
what is done for each finds its code in the processor's cache: a failover costs a sixth less than in short turns. It is
some milliseconds, so that whoever turns up meanwhile is not kept waiting either."""

ACCEPTED_PER_ADMISSION: Final = 2.0
"""Connections that are accepted for each client that is let in. To accept one, read its request (with TLS: shake hands
first) and refuse it costs a third of an admission or more, so that a crowd which is refused as fast as it comes costs
more than to serve it. With two, the waiting room fills, and the load balancer hears of refusals early enough to ask
another node; and yet the work for those who are refused is less than half of that for those who are let in."""

ACCEPTED_AT_LEAST: Final = 100.0
"""Connections a second that are accepted however few are let in: it is a hundredth of a core."""

OPENING: Final = 0.02
"""Seconds between two openings of the door of a node that has others to serve. Who came in between is let in together:
their questions share a pipeline to the grid, and their steps a turn of the loop, so that each costs a third less than
alone. At the default rate it is the work of some milliseconds, in several turns."""


class ConnectionLimiter:
    """Implements ``gateway.ports.Admission``.

    Args:
        limits: of addresses and of the node.
        policy: how storms are met.
        busy: whether the node has live updates to deliver.
        longest: seconds after which a refused client is asked to come back at the latest.
        clock: time.
        metrics: where numbers go.
    """

    def __init__(
        self,
        limits: Limits,
        policy: StormPolicy,
        *,
        busy: Callable[[], bool],
        longest: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._limits = limits
        self._policy = policy
        self._busy = busy
        self._clock = clock
        self._metrics = metrics
        self._queue: AdmissionQueue[Visitor] | None = None
        self._accepts: TokenBucket | None = None
        if policy.admission_rate:
            pace = max(ACCEPTED_PER_ADMISSION * policy.admission_rate, ACCEPTED_AT_LEAST)
            self._accepts = TokenBucket(pace, max(1.0, pace * OPENING))
            self._queue = AdmissionQueue(rate=policy.admission_rate, patience=policy.admission_wait, longest=longest)
        self._came: dict[Visitor, float] = {}
        self._turn: asyncio.Handle | None = None
        metrics.watch(catalogue.ADMISSIONS_WAITING, lambda: len(self._queue or ()))

    def close(self) -> None:
        """Let nobody in any more."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def is_paced(self) -> bool:
        """See ``Admission``."""
        return self._busy()

    def acceptable(self) -> int:
        """See ``Admission``."""
        return (SHORT if self._busy() else LONG).accepted

    def accepted(self, connections: int) -> float:
        """See ``Admission``."""
        if self._accepts is None or not self._busy():
            return 0.0
        return max(OPENING, self._accepts.charge(self._clock.monotonic(), connections))

    def arrive(self, address: str) -> AddressVisit:
        """See ``Admission``."""
        return self._limits.arrive(address)

    def admit(self, visitor: Visitor, *, returning: bool) -> None:
        """See ``Admission``."""
        if self._queue is None:
            visitor.let_in()
            return
        now = self._clock.monotonic()
        paced = self._busy()
        retry_after = self._queue.arrive(visitor, now, returning=returning, paced=paced)
        if retry_after:
            self._turn_away(visitor, retry_after)
            return
        self._came[visitor] = now
        if self._turn is None:
            self._open_after(OPENING if paced else 0.0)

    def withdraw(self, visitor: Visitor) -> None:
        """See ``Admission``."""
        if self._queue is not None and self._came.pop(visitor, None) is not None:
            self._queue.withdraw(visitor)

    def _take_turn(self) -> None:
        self._turn = None
        queue = self._queue
        if queue is None:
            return
        now, paced = self._clock.monotonic(), self._busy()
        for visitor in queue.release(now, paced=paced, most=(SHORT if paced else LONG).let_in):
            self._metrics.observe(catalogue.ADMISSION_WAIT_SECONDS, now - self._came.pop(visitor))
            self._metrics.add(catalogue.ADMISSIONS, label="let_in")
            visitor.let_in()
        # At full speed nobody could serve them sooner; whoever loses patience hangs up.
        for visitor, retry_after in queue.expired(now) if paced else ():
            del self._came[visitor]
            self._turn_away(visitor, retry_after)
        following = queue.next(now, paced=paced)
        if following is not None:
            self._open_after(max(OPENING, following) if paced else following)

    def _open_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._turn = loop.call_later(seconds, self._take_turn) if seconds else loop.call_soon(self._take_turn)

    def _turn_away(self, visitor: Visitor, retry_after: float) -> None:
        self._metrics.add(catalogue.ADMISSIONS, label="turned_away")
        visitor.turn_away(
            self._limits.turned_away(
                "admission_rate",
                f"more clients come to this node than the {self._policy.admission_rate:g} a second that it lets in",
                retry_after,
                elsewhere=True,
            )
        )
