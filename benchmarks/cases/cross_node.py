"""How late a subscriber on another node sees a publish."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import crowd_on
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.publisher import Publisher
from benchmarks.storm.scenarios import HOME, REFUGE

_NAME: Final = "cross_node"
VARIANT: Final = "20 publishes/s"
INTERVAL: Final = 0.05
"""Seconds between publishes: everything has come to rest before the next."""
PUBLISHES: Final = 200
QUICK_PUBLISHES: Final = 60
WARM_UP: Final = 20
_TOPIC: Final = "latency/value"
_SECONDS: Final = 5.0
"""For one publish to be seen."""
_MICROSECONDS_PER_NS: Final = 1e-3
_PERCENTILES: Final = 100

TYPICAL: Final = Figure("p50", "seen after, p50", "µs", Better.LOWER, 0)
LATE: Final = Figure("p99", "p99", "µs", Better.LOWER, 0)
ROUND_TRIP: Final = Figure("redis_p50", "Redis round trip, p50", "µs", Better.NEITHER, 0)
RATIO: Final = Figure("ratio", "in Redis round trips", "", Better.LOWER, 2)


class CrossNodeCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Latency across nodes"
    about: ClassVar[str] = (
        "A client publishes through HAProxy on one node, a client of the other node sees it, also through HAProxy: "
        "five processes and ten sockets in a row. Before each publish the same process asks Redis by a PING of "
        "redis-py, as rested as the publish is."
    )
    figures: ClassVar[Sequence[Figure]] = (TYPICAL, LATE, ROUND_TRIP, RATIO)
    contestants: ClassVar[Sequence[str]] = (OURS,)
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "publish seen on another node through HAProxy, p50: at most 5 Redis round trips",
            Reference(_NAME, VARIANT, OURS, RATIO.name),
            None,
            factor=5.0,
            at_least=False,
        ),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        context.progress.say("cross_node: 20 publishes a second")
        failures = []
        seen: list[float] = []
        round_trips: list[float] = []
        with (
            running(context.placement, checkout=context.checkout) as cluster,
            crowd_on(context.placement.others) as crowd,
        ):
            subscriber = Member(crowd.loop, crowd, "subscriber", Interest((_TOPIC,), (_TOPIC,)))
            publisher = Publisher(crowd.loop, "publisher")
            try:
                publisher.connect(cluster.entry, hint=HOME)
                crowd.goals[_TOPIC] = 1
                publisher.publish_all([(_TOPIC, 1)])
                crowd.arrive(cluster.entry, expected="created", hint=REFUGE, members=[subscriber])
                if subscriber.node != REFUGE:
                    raise StormFailed(f"the subscriber is on {subscriber.node}")
                for number in range(WARM_UP + (QUICK_PUBLISHES if context.quick else PUBLISHES)):
                    crowd.idle(INTERVAL / 2)
                    began = time.monotonic_ns()
                    cluster.grid.ping()
                    round_trip = time.monotonic_ns() - began
                    crowd.idle(INTERVAL / 2)
                    crowd.goals[_TOPIC] += 1
                    crowd.expect([subscriber], [_TOPIC])
                    publisher.publish([(_TOPIC, crowd.goals[_TOPIC])])
                    crowd.wait_current()
                    _, sent, received = subscriber.latest
                    crowd.loop.run(lambda: publisher.done, seconds=_SECONDS)
                    if number >= WARM_UP:
                        seen.append((received - sent) * _MICROSECONDS_PER_NS)
                        round_trips.append(round_trip * _MICROSECONDS_PER_NS)
            except StormFailed as failed:
                failures.append(str(failed))
        values = {}
        if not failures:
            values = {
                TYPICAL.name: median(seen),
                LATE.name: quantiles(seen, n=_PERCENTILES)[-1],
                ROUND_TRIP.name: median(round_trips),
                RATIO.name: median(seen) / median(round_trips),
            }
        return [Row(_NAME, VARIANT, contestant, values, failures)]
