"""What each step of a session's life costs the grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Row
from benchmarks.storm.cluster import NODES, Cluster, running
from benchmarks.storm.crowd import Crowd, all_topics, crowd_on, shared_topics
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.publisher import Publisher
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, publish_everything, warm_up
from benchmarks.systems.base import Role

_NAME: Final = "grid_cost"
SESSIONS: Final = 1_000
PUBLISHES: Final = 10_000
IDLE_SECONDS: Final = 15.0
QUICK_IDLE_SECONDS: Final = 5.0
LOSS_SECONDS: Final = 1.0
"""Until the loss of connections has been written to the grid; below the backoff of most clients."""
_HOUR: Final = 3_600.0
_MICROSECONDS: Final = 1e6
_SENT: Final = ("evalsha", "xread", "script|load")
"""What nodes send; anything else was called by a script, but for the first read of a partition's values."""
_OURS: Final = ("info",)
"""What this measurement sends."""

SENT: Final = Figure("sent", "commands sent", "", Better.LOWER, 2)
CALLED: Final = Figure("called", "called by scripts", "", Better.LOWER, 2)
STORE_CPU: Final = Figure("redis_cpu", "Redis CPU", "µs", Better.LOWER)
WARM_UP_TOPIC: Final = "grid-cost/value"


class GridCostCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Cost to the grid"
    about: ClassVar[str] = (
        "Redis commands (INFO commandstats) and CPU for each step of a session, averaged over 1,000 sessions with "
        "three selections that take it together, so that pipelines are as full as in a storm; the lease, reaper and "
        "stream reads of the nodes that fall into the window are counted in. The idle hour is extrapolated from a "
        "window of 15 s."
    )
    figures: ClassVar[Sequence[Figure]] = (SENT, CALLED, STORE_CPU)
    contestants: ClassVar[Sequence[str]] = (OURS,)
    rounds: ClassVar[int] = 1

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        with (
            running(context.placement, checkout=context.checkout) as cluster,
            crowd_on(context.placement.others) as crowd,
        ):
            meter = _Meter(cluster, contestant, context)
            idle = QUICK_IDLE_SECONDS if context.quick else IDLE_SECONDS
            try:
                _live(meter, cluster, crowd, idle)
            except StormFailed as failed:
                meter.rows.append(Row(_NAME, "a session's life", contestant, {}, [str(failed)]))
        return meter.rows


def _live(meter: _Meter, cluster: Cluster, crowd: Crowd, idle: float) -> None:
    """Take a thousand sessions through everything that can happen to them."""
    publish_everything(cluster, crowd, all_topics(SESSIONS))
    for node in NODES:
        warm_up(cluster, crowd, SESSIONS, [node])
    hours = idle / _HOUR
    meter.measure("hour of two nodes without sessions, extrapolated", hours, lambda: crowd.idle(idle))
    crowd.add(SESSIONS)

    def connect() -> None:
        crowd.arrive(cluster.direct(HOME), expected="created", at_once=PREPARING_AT_ONCE)
        crowd.settle()

    meter.measure("connect with three selections", SESSIONS, connect)
    meter.measure("hour of two nodes and 1,000 idle sessions, extrapolated", hours, lambda: crowd.idle(idle))

    def lose() -> None:
        crowd.cut()
        cluster.wait_connected(HOME, 0)
        # What the node writes to the grid about it may come a moment later.
        crowd.idle(LOSS_SECONDS)

    meter.measure("connection lost", SESSIONS, lose)

    def reattach() -> None:
        crowd.arrive(cluster.entry, expected="reattached")
        crowd.settle()

    meter.measure("claim by the same node (reattach)", SESSIONS, reattach)
    publisher = Publisher(crowd.loop, "grid-cost")
    publisher.connect(cluster.direct(REFUGE))
    publishes = ((WARM_UP_TOPIC, number + 1) for number in range(PUBLISHES))
    meter.measure("publish nobody follows", PUBLISHES, lambda: publisher.publish_all(publishes))
    cluster.kill(HOME)
    crowd.cut()
    publish_everything(cluster, crowd, shared_topics(SESSIONS), node=REFUGE)

    def fail_over() -> None:
        crowd.arrive(cluster.entry, expected="failed_over")
        crowd.settle()

    meter.measure("claim by another node (failover)", SESSIONS, fail_over)

    def leave() -> None:
        crowd.bye(crowd.members)

    meter.measure("end of a session (bye)", SESSIONS, leave)


class _Meter:
    """Reads Redis's own counters before and after a step."""

    def __init__(self, cluster: Cluster, contestant: str, context: Context) -> None:
        self._cluster = cluster
        self._contestant = contestant
        self._context = context
        self.rows: list[Row] = []

    def measure(self, step: str, operations: float, work: Callable[[], None]) -> None:
        """Do *work* and divide what Redis did meanwhile by *operations*."""
        self._context.progress.say(f"grid_cost: {step}")
        commands, used = self._cluster.commands(), self._cluster.cpu([])[Role.STORE]
        began = time.monotonic()
        work()
        after, used_after = self._cluster.commands(), self._cluster.cpu([])[Role.STORE]
        counts = {name: after[name] - commands.get(name, 0) for name in after if name not in _OURS}
        counts = {name: count for name, count in counts.items() if count}
        sent = sum(count for name, count in counts.items() if name in _SENT)
        values = {
            SENT.name: sent / operations,
            CALLED.name: (sum(counts.values()) - sent) / operations,
            STORE_CPU.name: (used_after - used) / operations * _MICROSECONDS,
        }
        details = {"commands": counts, "operations": operations, "seconds": time.monotonic() - began}
        self.rows.append(Row(_NAME, step, self._contestant, values, details=details))
