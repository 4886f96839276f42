"""Measures what the model needs and no case of the benchmark tells: the same work at several sizes.

The benchmark measures each kind of work at one size, to compare systems. A model needs several, to know what is
proportional to what, and one more that it is not shown, to be put to the test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import measure
from benchmarks.cases.base import OURS, Row
from benchmarks.generator.driver import GeneratorFailed, Load, build, drive
from benchmarks.placement import Placement
from benchmarks.progress import Progress
from benchmarks.storm.cluster import NODES, Cluster, running
from benchmarks.storm.crowd import Crowd, allow_descriptors, crowd_on
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.publisher import Publisher
from benchmarks.storm.scenarios import HOME, LINKED, REFUGE, SCENARIOS, publish_everything
from benchmarks.systems.base import Endpoint, Role, SystemFailed, SystemUnavailable, WireProtocol
from benchmarks.systems.gateway import BENCHMARK_SETTINGS, CONNECT_TARGET

CASE: Final = "model"
"""Of the rows, whose other keys are as those of the benchmark's JSON."""

DELIVERIES: Final[Mapping[int, Sequence[float]]] = {
    1: (1_500.0, 3_000.0),
    100: (300.0, 600.0, 2_000.0),
    500: (60.0, 120.0, 1_000.0),
    2_000: (15.0, 25.0, 150.0),
    10_000: (2.0, 3.0, 5.0),
}
"""Updates per second to all, by subscribers: from a node that is busy half of the time to one that joins them. None is
much less busy: a core that mostly rests is slower when it is woken, by up to a half, and nobody plans for that."""

OWN_TOPIC: Final[Mapping[int, Sequence[float]]] = {500: (20_000.0,), 2_000: (20_000.0, 4_000.0)}
"""Updates per second over all, by sessions with a topic each: more than a node can do, so that its turns are full, and
what it can do well."""

OWN_TOPIC_PUBLISHERS: Final = 4
"""Connections that publish."""

OWN_TOPIC_WINDOW: Final = 256
"""Unanswered publishes of each: as many as a client may have."""

STORMS: Final = (500, 2_000, 5_000)
"""Sessions that come at once."""

FOREIGN: Final = 20_000
"""Updates that a node reads although none of its sessions wants them."""

FOREIGN_RATE: Final = 4_000.0
"""Of them per second: as many as leave no core without a pause, so that batches are as a living cluster has them."""

TOPICS: Final = 20_000
"""Values of which nodes keep copies."""

SELECTIONS: Final = (3, 53)
"""Selections of each session: as everywhere else, and fifty more."""

SELECTING: Final = 1_000
"""Sessions that have so many."""

REST: Final = 4.0
"""Seconds; Redis gives buffers back that were not used for two."""

FORWARDED: Final = 2_000
"""Connections behind HAProxy."""

FORWARD_RATE: Final = 10.0
"""Updates per second to all of them: a third of what the cores can do."""

WARM_UP: Final = 0.7
MEASURE: Final = 2.0
"""Seconds."""

_MICROSECONDS: Final = 1e6
_MILLISECONDS: Final = 1e3
_DESCRIPTORS_PER_SESSION: Final = 3
_DESCRIPTORS: Final = 1_000
_LEAST_WINDOW: Final = 64
_WRITES: Final = "gateway_writes_total"
_DELIVERED: Final = "gateway_deliveries_total"
_FOLLOWED: Final = "foreign/followed"
_SELECTED_LAST: Final = "selected/last/value"
_OTHER: Final = "foreign/other-{}"


class Sweep:
    """Measures all points, one after the other.

    Args:
        placement: cores.
        folder: scratch, for the compiled generator.
        progress: is told what goes on.
    """

    def __init__(self, placement: Placement, folder: Path, progress: Progress) -> None:
        self._placement = placement
        self._folder = folder
        self._progress = progress

    def parts(self) -> Mapping[str, Callable[[], Iterator[Row]]]:
        """Tell what can be measured by itself, by name."""
        return {
            "deliveries": self.deliveries,
            "own_topics": self.own_topics,
            "storms": self.storms,
            "replicas": self.replicas,
            "forward": self.forward,
            "selections": self.selections,
        }

    def deliveries(self) -> Iterator[Row]:
        """Paced updates of one topic, at several rates and numbers of subscribers."""
        program = build(self._folder / "generator")
        for subscribers, rates in DELIVERIES.items():
            allow_descriptors(subscribers + _DESCRIPTORS)
            with self._nodes([HOME], BENCHMARK_SETTINGS) as cluster:
                for number, rate in enumerate(rates):
                    self._progress.say(f"{subscribers:,} subscribers, {rate:g} updates/s")
                    load = Load(
                        subscribers,
                        rate=rate,
                        window=max(_LEAST_WINDOW, int(rate)),
                        warm_up=WARM_UP,
                        measure=MEASURE,
                    )
                    yield self._deliver(program, cluster, load, f"model{number}x", "deliver")

    def own_topics(self) -> Iterator[Row]:
        """Updates of a topic for each session: nothing is shared, and nothing joined."""
        program = build(self._folder / "generator")
        for sessions, rates in OWN_TOPIC.items():
            allow_descriptors(sessions + _DESCRIPTORS)
            with self._nodes([HOME], BENCHMARK_SETTINGS) as cluster:
                for number, rate in enumerate(rates):
                    self._progress.say(f"{sessions:,} sessions with a topic each, {rate:g} updates/s")
                    load = Load(
                        sessions,
                        topics=sessions,
                        publishers=OWN_TOPIC_PUBLISHERS,
                        rate=rate,
                        window=OWN_TOPIC_PUBLISHERS * OWN_TOPIC_WINDOW,
                        warm_up=WARM_UP,
                        measure=MEASURE,
                    )
                    yield self._deliver(program, cluster, load, f"model{number}x", "own topic")

    def _deliver(self, program: Path, cluster: Cluster, load: Load, topic: str, kind: str) -> Row:
        host, port = cluster.direct(HOME)
        pids = {Role.SERVER: [cluster.processes[HOME].pid], Role.STORE: [cluster.processes["redis"].pid]}
        before = {name: cluster.metric(HOME, name) for name in (_WRITES, _DELIVERED)}
        report = drive(
            program,
            Endpoint(WireProtocol.GATEWAY, host, port, CONNECT_TARGET, CONNECT_TARGET),
            load,
            topic=topic,
            core=self._placement.others,
            progress=self._progress,
            pids=pids,
        )
        made = {name: cluster.metric(HOME, name) - before[name] for name in before}
        # What answers the subscriptions and the publishes is written, too.
        writes = max(1.0, made[_WRITES] - load.subscribers)
        values = {
            "subscribers": float(load.subscribers),
            "topics": float(load.topics),
            "rate": report.updates_per_second,
            "server_cpu": report.cpu[Role.SERVER] / report.published * _MICROSECONDS,
            "redis_cpu": report.cpu[Role.STORE] / report.published * _MICROSECONDS,
            "updates_per_write": max(1.0, made[_DELIVERED] / writes),
            "p50": report.delivery.p50 / _MILLISECONDS,
            "p99": report.delivery.p99 / _MILLISECONDS,
            "server_busy": report.utilisation(Role.SERVER),
        }
        return self._row(
            f"{kind}: {load.subscribers:,} subscribers, {load.rate:g} updates/s", values, report.sentences()
        )

    def storms(self) -> Iterator[Row]:
        """Sessions that come all at once, through HAProxy, in several numbers."""
        for name in (each for each in SCENARIOS if each not in LINKED):
            for sessions in STORMS:
                self._progress.say(f"{name}: {sessions:,} sessions at once")
                allow_descriptors(sessions * _DESCRIPTORS_PER_SESSION + _DESCRIPTORS)
                with running(self._placement) as cluster, crowd_on(self._placement.others) as crowd:
                    storm = SCENARIOS[name](cluster, crowd, sessions)
                values = {
                    "sessions": float(sessions),
                    "server_cpu": storm.per_session(Role.SERVER) * _MICROSECONDS,
                    "redis_cpu": storm.per_session(Role.STORE) * _MICROSECONDS,
                    "haproxy_cpu": storm.per_session(Role.BALANCER) * _MICROSECONDS,
                    "client_cpu": storm.own_cpu / sessions * _MICROSECONDS,
                    "seconds": storm.seconds,
                    "typical": median(storm.waits) if storm.waits else 0.0,
                }
                yield self._row(f"{name}: {sessions:,} sessions", values, [storm.failure] if storm.failure else [])

    def replicas(self) -> Iterator[Row]:
        """What nodes pay for topics that are not their sessions': reading updates of them, and keeping their values."""
        self._progress.say("updates and values that nobody on the node has selected")
        with self._nodes(NODES, {**BENCHMARK_SETTINGS}) as cluster, crowd_on(self._placement.others) as crowd:
            try:
                yield from _foreign(cluster, crowd, self._row)
            except StormFailed as failed:
                yield self._row("foreign updates", {}, [str(failed)])

    def forward(self) -> Iterator[Row]:
        """What HAProxy pays to pass on what nodes send, and to keep a connection."""
        program = build(self._folder / "generator")
        self._progress.say(f"{FORWARDED:,} subscribers behind HAProxy")
        allow_descriptors(FORWARDED * _DESCRIPTORS_PER_SESSION + _DESCRIPTORS)
        with running(self._placement, nodes=[HOME], settings=BENCHMARK_SETTINGS) as cluster:
            host, port = cluster.entry
            balancer = cluster.processes["haproxy"]
            resident = measure.resident_bytes([balancer.pid])
            report = drive(
                program,
                Endpoint(WireProtocol.GATEWAY, host, port, CONNECT_TARGET, CONNECT_TARGET),
                Load(FORWARDED, rate=FORWARD_RATE, window=_LEAST_WINDOW, warm_up=WARM_UP, measure=MEASURE),
                topic="modelx",
                core=self._placement.others,
                progress=self._progress,
                pids={Role.BALANCER: [balancer.pid]},
            )
            # Pages that connections have touched stay with HAProxy, so they can still be counted after the run.
            grown = measure.resident_bytes([balancer.pid]) - resident
        values = {
            "connections": float(FORWARDED),
            "haproxy_cpu": report.cpu[Role.BALANCER] / report.delivered * _MICROSECONDS,
            "haproxy_memory": grown / FORWARDED,
        }
        yield self._row(f"forward: {FORWARDED:,} connections", values, report.sentences())

    def selections(self) -> Iterator[Row]:
        """New sessions with a few selections, then with many."""
        with self._nodes([HOME], BENCHMARK_SETTINGS) as cluster, crowd_on(self._placement.others) as crowd:
            try:
                publish_everything(cluster, crowd, [_SELECTED_LAST])
                # The first have a node grow that had nobody; what they need is not counted.
                self._select(cluster, crowd, SELECTIONS[0], prefix="first")
                for selections in SELECTIONS:
                    self._progress.say(f"{SELECTING:,} sessions with {selections} selections")
                    yield self._select(cluster, crowd, selections)
            except StormFailed as failed:
                yield self._row("selections: preparing", {}, [str(failed)])

    def _select(self, cluster: Cluster, crowd: Crowd, selections: int, *, prefix: str = "next") -> Row:
        members = [
            Member(
                crowd.loop,
                crowd,
                f"{prefix}-{selections}-{number}",
                # Requests are answered in order: whoever is sent the last topic's value has all selections.
                Interest(
                    (*(f"selected/{prefix}-{number}/{each}" for each in range(selections - 1)), _SELECTED_LAST),
                    (_SELECTED_LAST,),
                ),
            )
            for number in range(SELECTING)
        ]
        used, resident, grid = cluster.cpu([HOME])[Role.SERVER], cluster.resident(HOME), cluster.used_memory()
        crowd.arrive(cluster.direct(HOME), expected="created", members=members)
        crowd.settle()
        used = cluster.cpu([HOME])[Role.SERVER] - used
        # Only then does Redis give back the buffers that the storm's pipelines have filled.
        crowd.idle(REST)
        values = {
            "selections": float(selections),
            "server_cpu": used / SELECTING * _MICROSECONDS,
            "resident": (cluster.resident(HOME) - resident) / SELECTING,
            "grid": (cluster.used_memory() - grid) / SELECTING,
        }
        return self._row(f"selections: {selections} each", values, [])

    @contextmanager
    def _nodes(self, nodes: Sequence[str], settings: Mapping[str, str]) -> Iterator[Cluster]:
        with running(self._placement, nodes=nodes, settings=settings, balancer=False) as cluster:
            yield cluster

    @staticmethod
    def _row(variant: str, values: Mapping[str, float], failures: Sequence[str]) -> Row:
        return Row(CASE, variant, OURS, values, failures)


def _foreign(
    cluster: Cluster, crowd: Crowd, row: Callable[[str, Mapping[str, float], Sequence[str]], Row]
) -> Iterator[Row]:
    publisher = Publisher(crowd.loop, "model-publisher")
    publisher.connect(cluster.direct(HOME))
    publisher.publish_all((_OTHER.format(number), 1) for number in range(100))
    paced = {}
    # First nobody follows, then one node, then both: what each reader adds is the difference.
    for followers in range(len(NODES) + 1):
        if followers:
            _follow(cluster, crowd, NODES[-followers])
        before, began = {name: cluster.cpu([name]) for name in NODES}, time.monotonic()
        _pace(crowd, publisher, first=2 + followers * FOREIGN)
        after, seconds = {name: cluster.cpu([name]) for name in NODES}, time.monotonic() - began
        used = {
            name: (after[name][Role.SERVER] - before[name][Role.SERVER]) / FOREIGN * _MICROSECONDS for name in NODES
        }
        store = (after[HOME][Role.STORE] - before[HOME][Role.STORE]) / FOREIGN * _MICROSECONDS
        paced[followers] = (used, store)
        values = {
            "followers": float(followers),
            "rate": FOREIGN / seconds,
            "publisher_cpu": used[HOME],
            "reader_cpu": used[REFUGE],
            "redis_cpu": store,
        }
        yield row(f"foreign updates: {followers} nodes follow", values, [])
    resident, used_memory = cluster.resident(REFUGE), cluster.used_memory()
    topics = [f"foreign/topic-{number}" for number in range(TOPICS)]
    publisher.publish_all((topic, 1) for topic in topics)
    # Updates of a partition come in order: who can be sent the last one has copies of all.
    crowd.goals[topics[-1]] = 1
    last = Member(crowd.loop, crowd, "follower-last", Interest((topics[-1],), (topics[-1],)))
    crowd.arrive(cluster.direct(REFUGE), expected="created", members=[last])
    values = {
        "topics": float(TOPICS),
        "resident": (cluster.resident(REFUGE) - resident) / TOPICS,
        "grid": (cluster.used_memory() - used_memory) / TOPICS,
    }
    yield row(f"values: {TOPICS:,} topics", values, [])


def _follow(cluster: Cluster, crowd: Crowd, node: str) -> None:
    """Give a node a session with interest in the partition."""
    member = Member(crowd.loop, crowd, f"follower-{node}", Interest((_FOLLOWED,), ()))
    crowd.members.append(member)
    member.arrive(cluster.direct(node), expected="created")
    crowd.idle(1.0)


def _pace(crowd: Crowd, publisher: Publisher, *, first: int) -> None:
    """Publish by a schedule, a hundredth of a second's worth at a time."""
    chunk = int(FOREIGN_RATE / 100)
    begin = time.monotonic()
    for done in range(0, FOREIGN, chunk):
        publisher.publish_all((_OTHER.format(number % 100), first + number) for number in range(done, done + chunk))
        ahead = begin + done / FOREIGN_RATE - time.monotonic()
        if ahead > 0:
            crowd.idle(ahead)


FAILURES: Final = (SystemFailed, SystemUnavailable, GeneratorFailed, StormFailed)
"""What measuring may raise."""
