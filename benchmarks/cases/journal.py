"""What the session journal costs the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.cases.generated import CPU as DELIVERY_CPU
from benchmarks.cases.generated import measure, row
from benchmarks.generator.driver import Load
from benchmarks.storm.cluster import Cluster, running
from benchmarks.storm.crowd import Crowd, allow_descriptors, crowd_on, shared_topics
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, publish_everything, settle_in, warm_up
from benchmarks.systems.base import Role, StartOptions, SystemFailed

_NAME: Final = "journal"
ON: Final = "gateway with journal"
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {OURS: {}, ON: {"journal": ""}}
"""Of the nodes; a switch has no value."""

SESSIONS: Final = 2_000
WRITTEN: Final = 1.0
"""Seconds until the node has written what it told: twice the time in which it gathers events."""
_DESCRIPTORS: Final = 8_000
_MICROSECONDS: Final = 1e6

SHARED: Final = "delivery, 1,000 sessions share a topic"
ALONE: Final = "delivery, each session has a topic"
REATTACH: Final = "a connection lost and a reattach"
FAILOVER: Final = "a failover"

LOADS: Final[Mapping[str, Load]] = {
    SHARED: Load(1_000, rate=50.0, window=64, warm_up=0.7, measure=2.0),
    ALONE: Load(500, topics=500, window=500, warm_up=0.7, measure=2.0),
}

CPU: Final = Figure("cpu", "node CPU", "µs", Better.LOWER, 2)
STORE_CPU: Final = Figure("redis_cpu", "Redis CPU", "µs", Better.LOWER, 2)


def _within(variant: str, factor: float) -> Target:
    return Target(
        f"journal, {variant}: at most {factor - 1:.0%} more CPU",
        Reference(_NAME, variant, ON, CPU.name),
        Reference(_NAME, variant, OURS, CPU.name),
        factor=factor,
        at_least=False,
    )


class JournalCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Price of the journal"
    about: ClassVar[str] = (
        "CPU of the node for one delivery, and for one session of 2,000 that lose their connection and come back, "
        "straight to the node and 500 at a time, with the session journal off and on in turn. A second is waited after "
        "each step, so that writing the events is counted in."
    )
    figures: ClassVar[Sequence[Figure]] = (CPU, STORE_CPU)
    contestants: ClassVar[Sequence[str]] = (OURS, ON)
    targets: ClassVar[Sequence[Target]] = (
        _within(SHARED, 1.03),
        _within(ALONE, 1.03),
        _within(REATTACH, 1.10),
        _within(FAILOVER, 1.10),
    )
    rounds: ClassVar[int] = 5
    published: ClassVar[bool] = False

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        allow_descriptors(_DESCRIPTORS)
        return [
            *self._deliveries(contestant, context),
            self._comeback(contestant, context, REATTACH, _reattach),
            self._comeback(contestant, context, FAILOVER, _fail_over),
        ]

    def _deliveries(self, contestant: str, context: Context) -> Sequence[Row]:
        options = StartOptions(connections=1_000, extra=SETTINGS[contestant])
        rows = []
        with context.systems[OURS].running(context.placement, options) as node:
            for variant, load in LOADS.items():
                found = row(_NAME, variant, contestant, load, measure(node, load, context))
                values = {CPU.name: found.values[DELIVERY_CPU.name]}
                rows.append(Row(_NAME, variant, contestant, values, found.failures, found.flags, found.details))
        return rows

    def _comeback(
        self, contestant: str, context: Context, variant: str, storm: Callable[[Cluster, Crowd], Mapping[Role, float]]
    ) -> Row:
        context.progress.say(f"{_NAME}: {variant}, {contestant}")
        settings = SETTINGS[contestant]
        with (
            running(context.placement, settings=settings, balancer=False) as cluster,
            crowd_on(context.placement.others) as crowd,
        ):
            try:
                settle_in(cluster, crowd, SESSIONS)
                crowd.idle(WRITTEN)
                cpu = storm(cluster, crowd)
            except StormFailed as failed:
                raise SystemFailed(f"{variant}: {failed}") from failed
        values = {
            CPU.name: cpu[Role.SERVER] / SESSIONS * _MICROSECONDS,
            STORE_CPU.name: cpu[Role.STORE] / SESSIONS * _MICROSECONDS,
        }
        return Row(_NAME, variant, contestant, values)


def _reattach(cluster: Cluster, crowd: Crowd) -> Mapping[Role, float]:
    """Cut all sockets and let all come back to the node that keeps their buffers."""

    def lose() -> None:
        crowd.cut()
        cluster.wait_connected(HOME, 0)

    lost = _cost(cluster, crowd, HOME, lose)
    publish_everything(cluster, crowd, shared_topics(SESSIONS))
    crowd.idle(WRITTEN)

    def come_back() -> None:
        crowd.arrive(cluster.direct(HOME), expected="reattached", at_once=PREPARING_AT_ONCE)
        crowd.settle()

    back = _cost(cluster, crowd, HOME, come_back)
    return {role: lost[role] + back[role] for role in back}


def _fail_over(cluster: Cluster, crowd: Crowd) -> Mapping[Role, float]:
    """Kill the node and let all come back to the other one, whose CPU is counted."""
    warm_up(cluster, crowd, SESSIONS, [REFUGE])
    cluster.kill(HOME)
    crowd.cut()
    publish_everything(cluster, crowd, shared_topics(SESSIONS), node=REFUGE)
    crowd.idle(WRITTEN)

    def come_back() -> None:
        crowd.arrive(cluster.direct(REFUGE), expected="failed_over", at_once=PREPARING_AT_ONCE)
        crowd.settle()

    return _cost(cluster, crowd, REFUGE, come_back)


def _cost(cluster: Cluster, crowd: Crowd, node: str, work: Callable[[], None]) -> Mapping[Role, float]:
    """Do something and tell what it took, with what the node does about it afterwards."""
    before = cluster.cpu([node])
    work()
    crowd.idle(WRITTEN)
    after = cluster.cpu([node])
    return {role: after[role] - before[role] for role in after}
