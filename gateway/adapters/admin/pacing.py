"""How much of the node's time unauthenticated clients get, and how it is shared among what they want."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from gateway.core.pacing.rates import TokenBucket

SHARE: Final = 0.3
"""Of the event loop's time that unauthenticated clients at the admin port may take in the long run. What is asked for
in earnest, a few dozen requests a second, takes a hundredth."""

CALLERS_SHARE: Final = 1.0
"""The same of those who have shown a valid token, as far as they are read over TLS: all of it. Only what is read of
them in one turn of the loop is bounded."""

BURST_SECONDS: Final = 0.2
"""Time that unauthenticated clients may take at once after they have left some: 2,000 connections that come together,
or a page."""

TURN_SECONDS: Final = 0.003
"""Work for unauthenticated clients before everybody else comes once: what was measured, and the loop's own part by
``COSTS``. Not time on the wall: on a busy machine little is done in that, and what aiohttp does for a request comes
after it."""


LEAST_WAIT: Final = 0.001
"""Seconds until it is looked again whether there is time, if there is none. uvloop counts in milliseconds and rounds: a
shorter wait is none, and the loop would spin as long as somebody waits. What is waited for too long is not lost."""


class ServiceClass(Enum):
    """What unauthenticated clients want; each kind has a queue and a weight of its own."""

    ACCEPT = auto()
    """To be accepted, one after another as they came."""
    OPEN = auto()
    """To have a transport: the first bytes are there."""
    OPEN_TLS = auto()
    """To have one with TLS: the node signs, once for each handshake."""
    HANDSHAKE = auto()
    """To go on with the handshake."""
    FIRST_READ = auto()
    """To be read for the first time after it."""
    READ = auto()
    """To be read once more: it says little at a time."""
    HEALTH = auto()
    """To be told whether the node is alive or ready."""
    METRICS = auto()
    """To be told the metrics."""
    OTHER = auto()
    """All the rest, which aiohttp does: pages, and refusals."""
    FURTHER = auto()
    """To be told what was asked for together with another request, whatever it is: read, and answered."""


COSTS: Final = {
    ServiceClass.ACCEPT: 4e-6,
    ServiceClass.OPEN: 50e-6,
    ServiceClass.OPEN_TLS: 50e-6,
    ServiceClass.HANDSHAKE: 15e-6,
    ServiceClass.FIRST_READ: 15e-6,
    ServiceClass.READ: 10e-6,
    ServiceClass.HEALTH: 6e-6,
    ServiceClass.METRICS: 6e-6,
    ServiceClass.OTHER: 90e-6,
    ServiceClass.FURTHER: 150e-6,
}
"""Seconds that each takes besides what can be measured here, which is the loop's own part: waiting for a descriptor,
reading and writing, making and ending a task. Measured by ``python -m benchmarks.micro.costs`` on uvloop, the least of
five rounds on a machine of two cores, in µs: 3 to 6, 40 to 64, 43 to 64, 15 to 17, the same, 7 to 10, 4 to 7, 2 to 7,
88 to 108 and 107 to 178, in the order above. A first request is charged twice: when it is opened, and when it is
answered. What OpenSSL does is measured, as it is done in turns."""

WEIGHTS: Final = {ServiceClass.ACCEPT: 4.0, ServiceClass.HEALTH: 4.0, ServiceClass.METRICS: 2.0}
"""Classes that get so many times the time of another. Nobody is answered who is not accepted, and the queue of the
kernel knows no order but that of arrival. What a crowd asks for, and asks for again, gets the smallest part."""

NEWEST_FIRST: Final = frozenset(
    {ServiceClass.OPEN, ServiceClass.OPEN_TLS, ServiceClass.FIRST_READ, ServiceClass.HEALTH}
)
"""Where the newest comes first. In a flood more connections begin than can be opened in useful time; whoever began one
in earnest has just come, and those that the newest keep waiting are closed in time. Nobody comes to these twice with
one connection."""


class Paced(Protocol):
    """Somebody whose turn can come."""

    def take_turn(self) -> int:
        """Do what was asked for; must not raise.

        Returns:
            How often it was done.
        """


class Pacer:
    """Lets unauthenticated clients have their turns, in a bounded share of the time.

    Whatever is asked for while there is time left is done at once, as far as a turn goes. Else it queues, each
    class by itself, and the classes share the time by their weights: floods of one hold up that one alone. That is
    start-time fair queueing (Goyal, Vin, Cheng 1996): a class that begins to wait is as far as the one served last.

    Args:
        share: of the time.
        burst: seconds that may be taken at once.
        clock: seconds that never go back.
        worked: seconds of processor time of this thread. Time in which other processes had the processor is not
            charged: on a busy machine nothing would be left for health checks.
        later: has something called after so many seconds; by default, the event loop does.
    """

    def __init__(
        self,
        share: float = SHARE,
        burst: float = BURST_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] = time.thread_time,
        later: Callable[[float, Callable[[], None]], asyncio.Handle] | None = None,
    ) -> None:
        self._bucket = TokenBucket(share, burst)
        self._clock = clock
        self._worked = worked
        self._later = later or asyncio.get_running_loop().call_later
        self._queues: dict[ServiceClass, OrderedDict[Paced, None]] = {
            service: OrderedDict() for service in ServiceClass
        }
        self._spent = dict.fromkeys(ServiceClass, 0.0)
        self._virtual_time = 0.0
        self._free_at = clock()
        self._turn_spent = 0.0
        self._is_working = False
        self._timer: asyncio.Handle | None = None
        self._closed = False

    @property
    def queued(self) -> int:
        """How many wait for their turn."""
        return sum(map(len, self._queues.values()))

    def is_free(self) -> bool:
        """Tell whether something can be done now."""
        if self._timer is not None or self._is_working:
            return False
        return self._turn_spent < TURN_SECONDS and self._clock() >= self._free_at

    def ask(self, who: Paced, service: ServiceClass) -> None:
        """Have *who* take its turn: at once, or when there is time. Nobody queues twice for the same."""
        if self.is_free():
            self._work(who, service)
        else:
            self.queue(who, service)

    def queue(self, who: Paced, service: ServiceClass) -> None:
        """Have *who* take its turn later, behind those who have asked already."""
        if self._closed:
            return
        queue = self._queues[service]
        if not queue:
            # Time that a class did not take is not kept for it: it must not hold up all others with it.
            self._spent[service] = max(self._spent[service], self._virtual_time)
        queue[who] = None
        self._schedule()

    def forget(self, who: Paced) -> None:
        """Take no more turns of *who*."""
        for queue in self._queues.values():
            queue.pop(who, None)

    def charge(self, service: ServiceClass, begun: float, *, times: int = 1) -> None:
        """Tell of work that was done outside a turn; within one, its time is measured with the turn.

        Args:
            service: what was done.
            begun: when, as ``now`` told.
            times: how often it was done since.
        """
        now = self._clock()
        measured = 0.0 if self._is_working else self._worked() - begun
        seconds = measured + COSTS[service] * times
        self._spent[service] += seconds / WEIGHTS.get(service, 1.0)
        if not any(self._queues.values()):
            # What a class took while no other waited is not held against it either.
            self._virtual_time = max(self._virtual_time, self._spent[service])
        self._free_at = now + self._bucket.charge(now, seconds)
        self._turn_spent += seconds
        if self._turn_spent >= TURN_SECONDS:
            # Whoever asks next does so after everybody else came once.
            self._schedule()

    def now(self) -> float:
        """Tell how long this thread has worked, for ``charge``."""
        return self._worked()

    def close(self) -> None:
        """Give nobody a turn any more."""
        self._closed = True
        for queue in self._queues.values():
            queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _work(self, who: Paced, service: ServiceClass) -> None:
        begun, times = self._worked(), 1
        self._is_working = True  # what is asked for meanwhile is no part of this work, and is charged by itself
        try:
            times = who.take_turn()
        finally:
            self._is_working = False
            self.charge(service, begun, times=times)

    def _schedule(self) -> None:
        if self._timer is None and not self._closed:
            wait = max(0.0, self._free_at - self._clock())
            if 0 < wait < LEAST_WAIT:
                wait = LEAST_WAIT
            self._timer = self._later(wait, self._turns)

    def _turns(self) -> None:
        self._turn_spent = 0.0
        while self._turn_spent < TURN_SECONDS and self._clock() >= self._free_at:
            waiting = [service for service, queue in self._queues.items() if queue]
            if not waiting:
                break
            service = min(waiting, key=self._spent.__getitem__)
            self._virtual_time = max(self._virtual_time, self._spent[service])
            who, _ = self._queues[service].popitem(last=service in NEWEST_FIRST)
            self._work(who, service)
        self._timer = None
        if any(self._queues.values()) or self._turn_spent >= TURN_SECONDS:
            self._schedule()
