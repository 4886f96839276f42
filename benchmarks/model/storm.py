"""Sessions that come back at once: how long until the last one is served.

Why a simulation of events: whether a storm passes or feeds itself depends on how random delays, queues in a row and
clients that lose patience play together, and each of these is one line here. Nodes are alike and HAProxy spreads
sessions evenly, so one survivor is simulated with its share of the sessions; HAProxy and Redis are shared by all
survivors, so to this one they are as much slower. A million sessions therefore cost no more time than those of a node.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import Final

from benchmarks.model.costs import Step
from gateway.core.pacing.backoff import GROWTH
from gateway.core.wire.packets import Backoff

DEFAULT_PATIENCE: Final = 8.0
"""Seconds after which an attempt is given up: HAProxy asks four times (retries = 3) for 2 s each, then answers 504."""

_MICROSECOND: Final = 1e-6


@dataclass(frozen=True)
class Comeback:
    """A storm, as one survivor sees it.

    Attributes:
        sessions: that come to this survivor.
        step: what each costs.
        haproxy: share of HAProxy's cores that works for this survivor, in cores.
        redis: share of the Redis masters, in cores.
        busy: share of the survivor's core that other work takes (0 to 1).
        detection: seconds until clients notice; their delays begin then.
        backoff: advice that they follow. None if all come in the same instant, as in the benchmark.
        patience: seconds after which an attempt is given up and delayed anew.
        shared: whether HAProxy, Redis and, at a further ``client`` µs per session, the clients share one core, as in
            the benchmark.
        client: CPU of a client in µs, where it counts.
    """

    sessions: int
    step: Step
    haproxy: float = 1.0
    redis: float = 1.0
    busy: float = 0.0
    detection: float = 0.0
    backoff: Backoff | None = None
    patience: float = DEFAULT_PATIENCE
    shared: bool = False
    client: float = 0.0


@dataclass(frozen=True)
class Recovered:
    """How it went.

    Attributes:
        typical: seconds until half of the sessions were served.
        late: until 99 % were.
        last: until all were.
        attempts: per session, on average; above 1 clients have lost patience.
        bottleneck: what was busy longest: ``clients``, ``HAProxy``, ``node`` or ``Redis``; ``clients`` if none of the
            others was busy for half of the time, so that the storm lasted as long as its random delays.
    """

    typical: float
    late: float
    last: float
    attempts: float
    bottleneck: str


MOST_ATTEMPTS: Final = 30
"""Per session; a storm in which someone needs more does not end."""


class NeverEnds(Exception):
    """Clients lose patience faster than they are served."""


def simulate(storm: Comeback, *, seed: int = 1) -> Recovered:
    """Let the sessions come.

    Args:
        storm: what happens.
        seed: of the random delays; the same seed gives the same result.

    Raises:
        ValueError: there is nobody, or nothing to serve them.
        NeverEnds: see there.
    """
    if storm.sessions < 1 or storm.haproxy <= 0 or storm.redis <= 0 or not 0 <= storm.busy < 1:
        raise ValueError("a storm needs sessions, and cores that serve them")
    chance = random.Random(seed)
    # The stations in a row, each serving in the order of arrival.
    haproxy = storm.step.haproxy * _MICROSECOND / storm.haproxy
    node = storm.step.server * _MICROSECOND / (1 - storm.busy)
    redis = storm.step.redis * _MICROSECOND / storm.redis
    if storm.shared:
        haproxy, redis = haproxy + redis + storm.client * _MICROSECOND, 0.0
    free = [0.0, 0.0, 0.0]
    arrivals = [(storm.detection + _delay(storm.backoff, 0, chance), 1) for _ in range(storm.sessions)]
    heapq.heapify(arrivals)
    served: list[float] = []
    attempts = 0
    while arrivals:
        came, attempt = heapq.heappop(arrivals)
        attempts += 1
        if attempt > MOST_ATTEMPTS:
            raise NeverEnds(f"after {attempt} attempts there are sessions that were not served")
        now = came
        for station, length in enumerate((haproxy, node, redis)):
            if station == 1 and max(now, free[station]) - came > storm.patience:
                # It gave up before its turn came; what HAProxy had to do for it was done in vain.
                heapq.heappush(arrivals, (came + storm.patience + _delay(storm.backoff, attempt, chance), attempt + 1))
                break
            free[station] = max(now, free[station]) + length
            now = free[station]
        else:
            served.append(now)
    served.sort()
    last = served[-1]
    work = {"HAProxy": haproxy, "node": node, "Redis": redis}
    busiest = max(work, key=lambda name: work[name])
    half = 0.5
    began = storm.detection
    return Recovered(
        typical=served[len(served) // 2],
        late=served[min(len(served) - 1, len(served) * 99 // 100)],
        last=last,
        attempts=attempts / storm.sessions,
        bottleneck=busiest if work[busiest] * storm.sessions > half * (last - began) else "clients",
    )


def _delay(backoff: Backoff | None, failures: int, chance: random.Random) -> float:
    """Draw a delay as clients do (protocol 8.3): from 0 to a bound that grows with each failure."""
    if backoff is None:
        return 0.0
    return chance.uniform(0, min(backoff.maximum, backoff.initial * GROWTH**failures))
