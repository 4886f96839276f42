"""What the storm cases have in common: figures, contestants, and how each contestant is driven."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import closing
from statistics import median
from typing import ClassVar, Final

import redis

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.measure import process_cpu
from benchmarks.processes import HOST, wait_until
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import allow_descriptors, crowd_on, shared_topics
from benchmarks.storm.echo import Echoes
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.scenarios import LINKED, SCENARIOS, WARM_UP, Storm
from benchmarks.storm.socketio import SocketIoCrowd
from benchmarks.systems.base import Role, StartOptions, SystemFailed
from benchmarks.systems.c_floor import CFloor
from benchmarks.systems.socketio_nodes import Cluster as SocketIoCluster
from benchmarks.systems.socketio_nodes import Node, SocketIoNodes

SESSIONS: Final = 2_000
BARE: Final = "C handshake"
"""A WebSocket handshake and one message there and back, in C and without a framework: the least that a session costs,
and what the gateway's work is measured in."""
MICROSECONDS: Final = 1e6
MILLISECONDS: Final = 1e3
_PERCENT: Final = 100.0
_DESCRIPTORS_PER_SESSION: Final = 3
"""One in this process, two in HAProxy, which inherits the bound."""
_DESCRIPTORS: Final = 1_000

TOTAL_CPU: Final = Figure("total_cpu", "CPU / session, all processes", "µs", Better.LOWER)
"""What ratios are made of: server, Redis and HAProxy, as far as a system needs them."""
SERVER_CPU: Final = Figure("server_cpu", "… the server's", "µs", Better.LOWER)
STORE_CPU: Final = Figure("redis_cpu", "… Redis's", "µs", Better.LOWER)
STORE_SHARE: Final = Figure("redis_share", "Redis / server CPU", "%", Better.LOWER)
BALANCER_CPU: Final = Figure("haproxy_cpu", "… HAProxy's", "µs")
RATE: Final = Figure("rate", "sessions/s", "/s", Better.HIGHER, 0)
TYPICAL: Final = Figure("typical", "current after, median", "ms", Better.LOWER)
LAST: Final = Figure("last", "last one current after", "ms", Better.LOWER)
RECOVERED: Final = Figure("recovered", "recovered", "%", Better.HIGHER)
CLIENT_CPU: Final = Figure("client_cpu", "generator CPU / session", "µs")

VARIANT: Final = f"{SESSIONS:,} sessions at once"


def allow_sessions(sessions: int) -> None:
    """Raise the bound on open files for a storm of so many sessions.

    Raises:
        OSError: the system does not allow so many.
    """
    allow_descriptors(sessions * _DESCRIPTORS_PER_SESSION + _DESCRIPTORS)


def at_most(case: str, text: str, factor: float) -> Target:
    """Demand that the CPU per session of node, Redis and HAProxy together is at most so many bare handshakes."""
    return Target(
        text,
        Reference(case, VARIANT, OURS, TOTAL_CPU.name),
        Reference(case, VARIANT, BARE, TOTAL_CPU.name),
        factor=factor,
        at_least=False,
    )


def all_recovered(case: str, variant: str = VARIANT) -> Target:
    """Demand that no session is lost."""
    return Target(
        f"{case}: all sessions recovered" + ("" if variant == VARIANT else f" ({variant})"),
        Reference(case, variant, OURS, RECOVERED.name),
        None,
        factor=_PERCENT,
        at_least=True,
    )


def row_of(case: str, variant: str, contestant: str, storm: Storm, more: Mapping[str, float] | None = None) -> Row:
    """Tell what a storm cost as a row of a case; *more* are figures that only that case has."""
    server, store = storm.per_session(Role.SERVER), storm.per_session(Role.STORE)
    values = {
        TOTAL_CPU.name: sum(map(storm.per_session, storm.cpu)) * MICROSECONDS,
        SERVER_CPU.name: server * MICROSECONDS,
        STORE_CPU.name: store * MICROSECONDS,
        STORE_SHARE.name: store / server * _PERCENT,
        RATE.name: storm.sessions / storm.seconds if storm.seconds > 0 else 0.0,
        LAST.name: storm.seconds * MILLISECONDS,
        RECOVERED.name: storm.recovered / storm.sessions * _PERCENT,
        CLIENT_CPU.name: storm.own_cpu / storm.sessions * MICROSECONDS,
        **(more or {}),
    }
    if Role.BALANCER in storm.cpu:
        values[BALANCER_CPU.name] = storm.per_session(Role.BALANCER) * MICROSECONDS
    if storm.waits:
        values[TYPICAL.name] = median(storm.waits) * MILLISECONDS
    return Row(case, variant, contestant, values, [storm.failure] if storm.failure else [])


class StormCase(Case):
    """A storm of ``SCENARIOS`` that the gateway, Socket.IO and a bare handshake go through.

    Attributes:
        variant: of its rows.
    """

    variant: ClassVar[str] = VARIANT
    figures: ClassVar[Sequence[Figure]] = (
        TOTAL_CPU, SERVER_CPU, STORE_CPU, BALANCER_CPU, STORE_SHARE, RATE, TYPICAL, LAST, RECOVERED, CLIENT_CPU,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = (OURS, "socketio", BARE)

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        allow_sessions(SESSIONS)
        context.progress.say(f"{self.name}: {SESSIONS:,} sessions of {contestant}")
        if contestant == OURS:
            return [row_of(self.name, VARIANT, contestant, self._gateway(context))]
        if contestant == BARE:
            return [self._handshakes(context)]
        return [row_of(self.name, VARIANT, contestant, self._socketio(context))]

    def _gateway(self, context: Context) -> Storm:
        with (
            running(context.placement, links=self.name in LINKED, checkout=context.checkout) as cluster,
            crowd_on(context.placement.others) as crowd,
        ):
            try:
                return SCENARIOS[self.name](cluster, crowd, SESSIONS)
            except StormFailed as failed:
                raise SystemFailed(f"preparing the storm: {failed}") from failed

    def _handshakes(self, context: Context) -> Row:
        floor = CFloor()
        floor.prepare(context.folder / floor.name)
        with (
            floor.running(context.placement, StartOptions(SESSIONS)) as server,
            crowd_on(context.placement.others),
            closing(Echoes()) as warm,
            closing(Echoes()) as echoes,
        ):
            address = server.endpoint.host, server.endpoint.port
            pid = server.pids()[Role.SERVER][0]
            failures = []
            before = after = 0.0
            try:
                warm.arrive(address, WARM_UP)
                before = process_cpu(pid)
                echoes.arrive(address, SESSIONS)
                after = process_cpu(pid)
            except StormFailed as failed:
                failures.append(str(failed))
        values = {
            TOTAL_CPU.name: (after - before) / SESSIONS * MICROSECONDS,
            SERVER_CPU.name: (after - before) / SESSIONS * MICROSECONDS,
            RATE.name: SESSIONS / echoes.seconds if echoes.seconds else 0.0,
            LAST.name: echoes.seconds * MILLISECONDS,
            CLIENT_CPU.name: echoes.own_cpu / SESSIONS * MICROSECONDS,
        }
        return Row(self.name, self.variant, BARE, values, failures)

    def _socketio(self, context: Context) -> Storm:
        system = context.systems["socketio"]
        if not isinstance(system, SocketIoNodes):
            raise SystemFailed("Socket.IO cannot be run as a cluster")
        with (
            system.cluster(context.placement, StartOptions(SESSIONS), size=2) as cluster,
            crowd_on(context.placement.others),
            closing(SocketIoCrowd(SESSIONS, cluster.nodes[0].endpoint.subscribe_target)) as crowd,
            closing(SocketIoCrowd(WARM_UP, cluster.nodes[0].endpoint.subscribe_target)) as warm,
        ):
            for node in cluster.nodes:
                warm.arrive(_address(node))
                warm.cut()
            return self._socketio_storm(cluster, crowd)

    def _socketio_storm(self, cluster: SocketIoCluster, crowd: SocketIoCrowd) -> Storm:
        home = cluster.nodes[0]
        missed = 0
        if self.name != "connect":
            crowd.arrive(_address(home))
            # A client without an offset cannot ask for recovery, so each gets something first.
            crowd.publish(_address(home), shared_topics(SESSIONS), 1, listeners=True)
            if self.name == "failover":
                home.process.signal(signal.SIGKILL)
                home.process.process.wait()
                home = cluster.nodes[1]
            crowd.cut()
            if self.name == "reattach":
                wait_until(lambda: _saved(cluster) >= SESSIONS, "Socket.IO has saved the sessions")
            crowd.publish(_address(home), shared_topics(SESSIONS), 2, listeners=False)
            missed = 2
        before = _cpu(home, cluster)
        failure = ""
        try:
            crowd.arrive(_address(home), missed=missed)
        except StormFailed as failed:
            failure = str(failed)
        after = _cpu(home, cluster)
        return Storm(
            sessions=SESSIONS,
            recovered=crowd.served if self.name == "connect" else crowd.recovered,
            seconds=crowd.seconds,
            waits=(),
            cpu={role: after[role] - before[role] for role in after},
            own_cpu=crowd.own_cpu,
            failure=failure,
        )


def _address(node: Node) -> tuple[str, int]:
    return node.endpoint.host, node.endpoint.port


def _cpu(node: Node, cluster: SocketIoCluster) -> Mapping[Role, float]:
    return {Role.SERVER: process_cpu(node.process.pid), Role.STORE: process_cpu(cluster.redis.pid)}


def _saved(cluster: SocketIoCluster) -> int:
    """Count the sessions that the adapter has put into Redis; each is a key of its own."""
    with redis.Redis(host=HOST, port=cluster.redis_port) as connection:
        return sum(1 for _ in connection.scan_iter(match="sio:session:*", count=1_000))
