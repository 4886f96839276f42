"""Confirmed, deduplicated, persisted publishes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, ClassVar, Final, Protocol

import orjson
import redis

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.measure import process_cpu
from benchmarks.processes import HOST
from benchmarks.references import redis_bare
from benchmarks.storm import values
from benchmarks.storm.cluster import Cluster, running
from benchmarks.storm.crowd import crowd_on
from benchmarks.storm.loop import Loop, StormFailed
from benchmarks.storm.publisher import Publisher
from benchmarks.storm.socketio import SocketIoPublisher
from benchmarks.systems.base import Role, StartOptions, SystemFailed
from benchmarks.systems.socketio_nodes import SocketIoNodes
from gateway.core.topics.topics import TOPIC_PARTITIONS

_NAME: Final = "publish"
PUBLISHERS: Final = 32
"""Sessions, each with a topic of its own; each stays below a node's default rate limit of 2,000 a second."""
WINDOW: Final = 64
"""Requests of each without a reply, a quarter of what a node allows by default."""
PUBLISHES: Final = 60_000
QUICK_PUBLISHES: Final = 15_000
WARM_UP: Final = 4_000
LARGEST: Final = f"{PUBLISHERS} publishers, {WINDOW} open requests each, as many in a message as there are"
"""What a client gets that hands everything over at once: up to WINDOW publishes in a message."""
ALONE: Final = f"{PUBLISHERS} publishers, {WINDOW} open requests each, one in a message"
"""What Socket.IO does always."""
ARRAYS: Final[Mapping[str, int | None]] = {
    ALONE: 1,
    f"{PUBLISHERS} publishers, {WINDOW} open requests each, ten in a message": 10,
    LARGEST: None,
}
"""Publishes in a message of ours, by variant."""
REDIS_PY: Final = "redis-py XADD"
_REFERENCE_SECONDS: Final = 0.5
"""For each of the nine ways in which redis-py is tried."""
_STREAM_LENGTH: Final = "1000000"
"""All entries are kept, so that each can be found again; the work of adding one is the same."""
_SECONDS: Final = 60.0
_MICROSECONDS: Final = 1e6
_MILLISECONDS_PER_NS: Final = 1e-6
_SOCKET_IO_STREAM: Final = "socket.io"

RATE: Final = Figure("rate", "publishes/s", "/s", Better.HIGHER, 0)
PER_CPU_SECOND: Final = Figure("per_cpu_second", "publishes / s of CPU, all processes", "/s", Better.HIGHER, 0)
"""What ratios are made of: CPU with CPU, each with its Redis; a rate on the clock depends on what runs beside."""
PER_CORE: Final = Figure("per_core", "publishes / s of the server's CPU", "/s", Better.HIGHER, 0)
TOTAL_CPU: Final = Figure("total_cpu", "CPU / publish, all processes", "µs", Better.LOWER)
SERVER_CPU: Final = Figure("server_cpu", "… the server's", "µs", Better.LOWER)
STORE_CPU: Final = Figure("redis_cpu", "… Redis's", "µs", Better.LOWER)
LATENCY: Final = Figure("latency", "reply after, median", "ms", Better.LOWER)
CLIENT_CPU: Final = Figure("client_cpu", "generator CPU / publish", "µs")


class Publishing(Protocol):
    """A publisher of either kind."""

    latencies: list[int]

    @property
    def done(self) -> bool:
        """Whether everything has been published and answered."""

    def publish(self, values_by_topic: Iterable[tuple[str, int]]) -> None:
        """Publish a sequence number to each topic."""


class PublishCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Confirmed publishes"
    about: ClassVar[str] = (
        "Clients keep windows of publishes open; each is answered when the grid holds it, and afterwards the grid's "
        "streams are read and must hold each exactly once, in order. Socket.IO acknowledges when its adapter has "
        "written to its Redis stream, and deduplicates nothing; it knows no arrays, so its publishes are alone. "
        "redis-py: bare XADDs in the best of several pipelines."
    )
    figures: ClassVar[Sequence[Figure]] = (
        PER_CPU_SECOND, RATE, PER_CORE, TOTAL_CPU, SERVER_CPU, STORE_CPU, LATENCY, CLIENT_CPU,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = (OURS, "socketio", REDIS_PY)
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "confirmed publishes per second of CPU, all processes: a quarter of redis-py's bare pipelined XADDs",
            Reference(_NAME, LARGEST, OURS, PER_CPU_SECOND.name),
            Reference(_NAME, LARGEST, REDIS_PY, PER_CPU_SECOND.name),
            factor=0.25,
            at_least=True,
        ),
        Target(
            "confirmed publishes per second of CPU, all processes, one in a message: 1.5 times Socket.IO's",
            Reference(_NAME, ALONE, OURS, PER_CPU_SECOND.name),
            Reference(_NAME, ALONE, "socketio", PER_CPU_SECOND.name),
            factor=1.5,
            at_least=True,
        ),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        context.progress.say(f"publish: {contestant}")
        count = (QUICK_PUBLISHES if context.quick else PUBLISHES) // PUBLISHERS
        if contestant == OURS:
            return [_gateway(context, count, variant) for variant in ARRAYS]
        if contestant == REDIS_PY:
            return [_redis_py(context)]
        return [_socketio(context, count)]


def _gateway(context: Context, count: int, variant: str) -> Row:
    with (
        running(
            context.placement,
            nodes=["n1"],
            settings={"stream-length": _STREAM_LENGTH},
            balancer=False,
            checkout=context.checkout,
        ) as cluster,
        crowd_on(context.placement.others) as crowd,
    ):
        publishers = [
            Publisher(crowd.loop, f"publisher-{number}", window=WINDOW, array=ARRAYS[variant])
            for number in range(PUBLISHERS)
        ]
        failures = []
        warm = WARM_UP // PUBLISHERS
        figures: dict[str, float] = {}
        try:
            for publisher in publishers:
                publisher.connect(cluster.direct("n1"))
            _publish(crowd.loop, publishers, 1, warm)
            for publisher in publishers:
                publisher.latencies.clear()
            before = cluster.cpu(["n1"])
            seconds, own = _publish(crowd.loop, publishers, warm + 1, count)
            after = cluster.cpu(["n1"])
            used = {role: after[role] - before[role] for role in after}
            figures = _figures(used, seconds, own, publishers, count * PUBLISHERS)
            failures += _not_exactly_once(cluster, warm + count)
        except StormFailed as failed:
            failures.append(str(failed))
    return Row(_NAME, variant, OURS, figures, failures)


def _socketio(context: Context, count: int) -> Row:
    system = context.systems["socketio"]
    if not isinstance(system, SocketIoNodes):
        raise SystemFailed("Socket.IO cannot be run as a cluster")
    with (
        system.cluster(context.placement, StartOptions(PUBLISHERS), size=1) as cluster,
        crowd_on(context.placement.others) as crowd,
        redis.Redis(host=HOST, port=cluster.redis_port) as grid,
    ):
        endpoint, node = cluster.nodes[0].endpoint, cluster.nodes[0].process
        publishers = [SocketIoPublisher(crowd.loop, window=WINDOW) for _ in range(PUBLISHERS)]
        failures = []
        warm = WARM_UP // PUBLISHERS
        figures: dict[str, float] = {}
        try:
            for publisher in publishers:
                publisher.connect((endpoint.host, endpoint.port), endpoint.publish_target)
            _publish(crowd.loop, publishers, 1, warm)
            for publisher in publishers:
                publisher.latencies.clear()
            before = {Role.SERVER: process_cpu(node.pid), Role.STORE: process_cpu(cluster.redis.pid)}
            seconds, own = _publish(crowd.loop, publishers, warm + 1, count)
            after = {Role.SERVER: process_cpu(node.pid), Role.STORE: process_cpu(cluster.redis.pid)}
            used = {role: after[role] - before[role] for role in after}
            figures = _figures(used, seconds, own, publishers, count * PUBLISHERS)
            stream: dict[str, Any] = grid.xinfo_stream(_SOCKET_IO_STREAM)
            if stream["entries-added"] < (warm + count) * PUBLISHERS:
                failures.append(f"its stream was given {stream['entries-added']} entries only")
        except StormFailed as failed:
            failures.append(str(failed))
    return Row(_NAME, ALONE, "socketio", figures, failures)


def _redis_py(context: Context) -> Row:
    bare = redis_bare.measure(context.placement, seconds=_REFERENCE_SECONDS)
    best = bare.best
    figures = {
        PER_CPU_SECOND.name: _MICROSECONDS / (best.cpu_per_entry_us + bare.redis_cpu_per_entry_us),
        RATE.name: best.per_second,
        PER_CORE.name: _MICROSECONDS / best.cpu_per_entry_us,
        TOTAL_CPU.name: best.cpu_per_entry_us + bare.redis_cpu_per_entry_us,
        SERVER_CPU.name: best.cpu_per_entry_us,
        STORE_CPU.name: bare.redis_cpu_per_entry_us,
    }
    details = {"client": best.client, "writers": best.writers, "batch": best.batch}
    return Row(_NAME, LARGEST, REDIS_PY, figures, details=details)


def _publish(loop: Loop, publishers: Sequence[Publishing], first: int, count: int) -> tuple[float, float]:
    """Let each publisher give its topic *count* values; returns the seconds and this process's CPU seconds."""
    began, cpu = time.monotonic(), time.process_time()
    for number, publisher in enumerate(publishers):
        publisher.publish((_topic(number), first + index) for index in range(count))
    loop.run(lambda: all(publisher.done for publisher in publishers), seconds=_SECONDS)
    return time.monotonic() - began, time.process_time() - cpu


def _topic(number: int) -> str:
    # Each below a root of its own, so that they spread over the grid's partitions.
    return f"publish-{number}/value"


def _figures(
    used: Mapping[Role, float],
    seconds: float,
    own: float,
    publishers: Sequence[Publishing],
    count: int,
) -> dict[str, float]:
    return {
        PER_CPU_SECOND.name: count / sum(used.values()),
        RATE.name: count / seconds,
        PER_CORE.name: count / used[Role.SERVER],
        TOTAL_CPU.name: sum(used.values()) / count * _MICROSECONDS,
        SERVER_CPU.name: used[Role.SERVER] / count * _MICROSECONDS,
        STORE_CPU.name: used[Role.STORE] / count * _MICROSECONDS,
        LATENCY.name: median(each for publisher in publishers for each in publisher.latencies) * _MILLISECONDS_PER_NS,
        CLIENT_CPU.name: own / count * _MICROSECONDS,
    }


def _not_exactly_once(cluster: Cluster, count: int) -> list[str]:
    """Read every stream of the grid and look for each value."""
    found: dict[str, list[int]] = {}
    for partition in range(TOPIC_PARTITIONS):
        entries: Any = cluster.grid.xrange(f"gateway:{{t{partition}}}:stream")
        for _, fields in entries:
            for topic, text in fields.items():
                # Entry 0 of each stream is a marker without a topic.
                if topic:
                    sequence, _ = values.read(orjson.loads(text.partition(b" ")[2]))
                    found.setdefault(topic.decode(), []).append(sequence)
    wanted = list(range(1, count + 1))
    return [
        f"the grid holds {len(found.get(topic, []))} entries of {topic}, not each of {count} once and in order"
        for topic in map(_topic, range(PUBLISHERS))
        if found.get(topic) != wanted
    ]
