"""A node under a stream of updates, turn by turn of its event loop: what it costs, how much it joins, how late it gets.

Why a simulation of events and not a formula: the loop is a queue that serves in bulk. While it writes, further updates
gather, and the next turn brings all of them in one write per session. So the cost of an update depends on how many came
together, which depends on how long the turn before took, which depends on the cost. Seven lines of loop say that
exactly; a formula for it would need an assumption about the distribution of arrivals, and would still give no
percentiles.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

from benchmarks.model.costs import Deliver

READ_ENTRIES: Final = 1_000
"""Updates that a node reads at once at most (as the gateway's own reader)."""

PACKETS_PER_WRITE: Final = 256
"""Updates that one message to a session brings at most: it ends at about 64 KiB."""

ENOUGH_TURNS: Final = 400
ENOUGH_UPDATES: Final = 4_000
"""After which percentiles have settled, whichever comes first."""

BACKLOG: Final = 20_000
"""Updates waiting at which a node counts as saturated: it will never catch up."""

_PLACES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Whose latency is looked at: sessions at these places in the order in which they are written."""

_MICROSECOND: Final = 1e-6
_MILLISECONDS: Final = 1e3
_PERCENTILES: Final = 100
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Stream:
    """What a node is given.

    Attributes:
        rate: updates per second.
        reached: sessions of the node that each of them goes to.
        sessions: of the node, from which these are taken at random; None if each update goes to all.
        elsewhere: updates per second that it reads and nobody here wants.
        background: share of its core that other work takes (0 to 1).
        publish: µs that its publish on this very node costs; 0 if updates are published elsewhere.
        path: milliseconds from there through the grid and back, for updates that are published here.
        paced: whether updates come evenly; else at random, as those of many publishers do.
    """

    rate: float
    reached: float
    sessions: float | None = None
    elsewhere: float = 0.0
    background: float = 0.0
    publish: float = 0.0
    path: float = 0.0
    paced: bool = True


@dataclass(frozen=True)
class Turns:
    """What became of it.

    Attributes:
        busy: share of the core; 1 if it is saturated.
        saturated: whether updates came faster than they could be sent on.
        cpu: µs for each update, other work not counted.
        joined: updates per write, on average.
        p50: milliseconds from when an update (or its publish) reaches the node until a session is written it, median.
        p99: likewise.
    """

    busy: float
    saturated: bool
    cpu: float
    joined: float
    p50: float
    p99: float


def simulate(deliver: Deliver, stream: Stream, *, seed: int = 1) -> Turns:
    """Run a node until percentiles have settled.

    Args:
        deliver: costs.
        stream: what comes.
        seed: for arrivals that are not paced; the same seed gives the same result.

    Raises:
        ValueError: there is no rate, or no core left.
    """
    if stream.rate <= 0 or not 0 <= stream.background < 1:
        raise ValueError("a stream needs a rate above 0 and a background below 1")
    slowdown = _MICROSECOND / (1 - stream.background)
    # Reading what nobody wants is spread over time; it takes its share as other work does.
    foreign = stream.elsewhere * deliver.take * slowdown
    if foreign >= 1:
        return Turns(1.0, saturated=True, cpu=0.0, joined=0.0, p50=0.0, p99=0.0)
    slowdown /= 1 - foreign
    now = used = 0.0
    coming = _Coming(stream, random.Random(seed))
    here = stream.publish > 0
    # What was published here and comes back from the grid: when it is back, and when it came first.
    returning: deque[tuple[float, float]] = deque()
    latencies: list[float] = []
    turns = updates = 0
    writes = 0.0
    sessions = stream.reached if stream.sessions is None else stream.sessions
    while turns < ENOUGH_TURNS and updates < ENOUGH_UPDATES and len(returning) + coming.waiting < BACKLOG:
        now = max(now, min(coming.next, returning[0][0] if returning else coming.next))
        arrived = coming.until(now)
        taken = [] if here else arrived
        while returning and returning[0][0] <= now and len(taken) < READ_ENTRIES:
            taken.append(returning.popleft()[1])
        cost = len(arrived) * stream.publish
        if taken:
            written = deliver.written(len(taken), stream.reached, sessions)
            rounds = -(-len(taken) * stream.reached // (PACKETS_PER_WRITE * written))
            cost += deliver.tick(len(taken), stream.reached, sessions)
            cost += (rounds - 1) * written * deliver.write_at(sessions)
            latencies += [now + place * cost * slowdown - came for came in taken for place in _PLACES]
            turns += 1
            updates += len(taken)
            writes += rounds * written
        now += cost * slowdown
        used += cost
        if here:
            returning.extend((now + stream.path / _MILLISECONDS, came) for came in arrived)
    # A core that never rested, and latencies that grew: it will never catch up.
    rested = used * slowdown < now * (1 - _ROUNDING)
    saturated = len(returning) + coming.waiting >= BACKLOG or (not rested and _behind(latencies))
    cuts = quantiles(latencies, n=_PERCENTILES)
    busy = 1.0 if saturated else 1 - (1 - stream.background) * (1 - foreign) * (1 - used * slowdown / now)
    return Turns(
        busy=busy,
        saturated=saturated,
        cpu=used / updates,
        joined=updates * stream.reached / writes,
        p50=cuts[49] * _MILLISECONDS,
        p99=cuts[98] * _MILLISECONDS,
    )


class _Coming:
    """Arrivals, in order.

    Attributes:
        next: when the next one that was not taken comes.
        waiting: how many have come and were not taken.
    """

    def __init__(self, stream: Stream, chance: random.Random) -> None:
        self._stream = stream
        self._chance = chance
        self._waiting: deque[float] = deque()
        self._following = 0.0

    @property
    def next(self) -> float:
        return self._waiting[0] if self._waiting else self._following

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def until(self, now: float) -> list[float]:
        """Take those that have come, as many as are read at once."""
        rate = self._stream.rate
        while self._following <= now:
            self._waiting.append(self._following)
            self._following += 1 / rate if self._stream.paced else self._chance.expovariate(rate)
        return [self._waiting.popleft() for _ in range(min(READ_ENTRIES, len(self._waiting)))]


def _behind(latencies: Sequence[float]) -> bool:
    """Tell whether the last tenth waited much longer than the second: the queue grows."""
    tenth = len(latencies) // 10
    grown = 2.0
    return sum(latencies[-tenth:]) > grown * sum(latencies[tenth : 2 * tenth])


def saturation(deliver: Deliver, sessions: float, *, joined: float) -> float:
    """Tell the updates per second that fill a node's core when so many are joined in a write.

    Args:
        deliver: costs.
        sessions: that each update goes to.
        joined: updates per write; what publishers have under way bounds it.
    """
    return joined / deliver.tick(joined, sessions) / _MICROSECOND
