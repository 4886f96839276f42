"""How many nodes, masters and cores a workload needs: every resource is asked how many nodes it wants, the most win.

In a steady state work is so many thousand equal pieces a second that only its sum matters, so it is added up as a
fluid. Only what is not a sum is simulated: how updates join on a busy node (``tick``), and a recovery (``storm``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.model import storm, tick
from benchmarks.model.costs import Costs, Step
from gateway.core.pacing.backoff import DEFAULT_BACKOFF
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import EventId, Version
from gateway.core.wire import codec

MEASURED_SELECTIONS: Final = 3
"""Of each session, in the measurements."""

MOST_NODES: Final = 20_000
"""Where the search gives up: whatever would need more, needs something else."""

_MICRO: Final = 1e-6
_GIB: Final = 1024.0**3
_TOPIC_EXAMPLE: Final = "market/segment/name"


class Impossible(Exception):
    """No number of nodes is enough; the message says why and what to do."""


@dataclass(frozen=True)
class Workload:
    """What is asked of the cluster.

    Attributes:
        sessions: connected.
        updates: published per second, all topics together.
        audience: sessions that receive each update.
        topics: with a value in the grid.
        roots: first segments over which updates are spread evenly; they decide the partition.
        interest: share of all updates that are in partitions of which a node follows, 0 to 1. 1 unless sessions are
            brought to nodes by what they select.
        churn: sessions that connect or come back per second on an ordinary day.
        selections: of each session.
        value_bytes: of each value.
    """

    sessions: int
    updates: float = 0.0
    audience: float = 1.0
    topics: int = 0
    roots: int = TOPIC_PARTITIONS
    interest: float = 1.0
    churn: float = 0.0
    selections: int = MEASURED_SELECTIONS
    value_bytes: int = 100

    @property
    def update_bytes(self) -> int:
        """Of one update on the wire, by the gateway's own encoder."""
        event = EventId("1-1000000")
        body = codec.encode_update(_TOPIC_EXAMPLE, Version(1_000), event, b"v" * self.value_bytes, snapshot=False)
        return len(body) + len(b'{"id":1000,')

    @property
    def entry_bytes(self) -> int:
        """Of one stream entry, as a reading node receives it."""
        return self.value_bytes + len(_TOPIC_EXAMPLE) + _ENTRY_FRAME


_ENTRY_FRAME: Final = 60
"""Bytes of id, version and RESP framing around an entry."""


@dataclass(frozen=True)
class Rules:
    """What is assumed, and how much is left free.

    Attributes:
        busy: share of a node's core that ordinary work may take.
        busy_after_loss: likewise when the lost nodes' sessions have come to the others.
        redis_busy: share of a master's core.
        haproxy_busy: share of HAProxy's cores.
        nodes_lost: at the same moment, that must not matter.
        recover_within: seconds until the last session of the lost nodes is served.
        detection: seconds until clients notice: nothing if the process died, as its kernel resets the connections.
        node_memory: GiB for one node.
        node_base: GiB of a node without sessions.
        socket: bytes of the kernel for an idle socket.
        ports: connections between one HAProxy address and one node address: Linux's default range of ports.
        balancers: HAProxy processes, each with an address of its own towards the nodes.
        segment: bytes of TCP, IP and Ethernet headers and the WebSocket frame around each write.
    """

    busy: float = 0.6
    busy_after_loss: float = 0.85
    redis_busy: float = 0.5
    haproxy_busy: float = 0.6
    nodes_lost: int = 1
    recover_within: float = 10.0
    detection: float = 0.0
    node_memory: float = 2.0
    node_base: float = 0.0625
    socket: int = 4_096
    ports: int = 28_232
    balancers: int = 2
    segment: int = 70


@dataclass(frozen=True)
class Plan:
    """What the workload needs.

    Attributes:
        nodes: processes, a core each.
        wanted: how many nodes each resource asks for, the lost ones included.
        bottleneck: what asks for the most.
        node_busy: share of a node's core.
        node_memory: GiB of one node, kernel included.
        joined: updates in a write, on average.
        p99: milliseconds that an update waits on a node, 99th percentile.
        masters: of Redis.
        redis_cores: that they use together.
        redis_memory: GiB, together.
        redis_egress: Gbit/s, together.
        haproxy_cores: needed together.
        haproxy_memory: GiB, together, kernel included.
        client_traffic: Gbit/s towards clients.
        recovery: of the sessions of the lost nodes.
        lost_sessions: how many these are.
    """

    nodes: int
    wanted: Mapping[str, int]
    bottleneck: str
    node_busy: float
    node_memory: float
    joined: float
    p99: float
    masters: int
    redis_cores: float
    redis_memory: float
    redis_egress: float
    haproxy_cores: int
    haproxy_memory: float
    client_traffic: float
    recovery: storm.Recovered
    lost_sessions: int


def plan(costs: Costs, workload: Workload, rules: Rules, *, nodes: int | None = None) -> Plan:
    """Find how many nodes are enough, or what a given number means.

    Args:
        costs: measured.
        workload: what is asked.
        rules: what is assumed.
        nodes: to look at; None to find the least.

    Raises:
        Impossible: no number is enough, or this one is not.
    """
    return _Planner(costs, workload, rules).plan(nodes)


class _Planner:
    def __init__(self, costs: Costs, workload: Workload, rules: Rules) -> None:
        self._costs = costs
        self._ran: dict[float, tick.Turns] = {}
        self._work = workload
        self._rules = rules
        more = max(0, workload.selections - MEASURED_SELECTIONS)
        self._session_node = costs.session_node + more * costs.selection_node + rules.socket
        self._session_grid = costs.session_grid + more * costs.selection_grid
        self._connect = _with_selections(costs.connect, more * costs.selection_server)
        self._failover = _with_selections(costs.failover, more * costs.selection_server)

    def plan(self, nodes: int | None) -> Plan:
        rules = self._rules
        self._check_partitions()
        wanted = {
            "CPU": self._least("CPU", self._enough_cpu),
            "memory": self._least("memory", self._enough_memory),
            "ports": self._least("ports", self._enough_ports),
            "recovery": self._least("recovery", self._enough_for_recovery),
        }
        bottleneck = max(wanted, key=lambda name: wanted[name])
        if nodes is None:
            nodes = wanted[bottleneck]
        elif nodes < wanted[bottleneck]:
            raise Impossible(f"{nodes} nodes are too few: {bottleneck} asks for {wanted[bottleneck]:,}")
        turns = self._turns(nodes)
        writes = self._writes(turns)
        redis = self._redis(nodes)
        recovery, masters, cores = self._recover(nodes)
        traffic = self._deliveries * self._work.update_bytes + writes * rules.segment
        streams = TOPIC_PARTITIONS * _STREAM_LENGTH * self._work.entry_bytes if self._work.updates else 0
        return Plan(
            nodes=nodes,
            wanted=wanted,
            bottleneck=bottleneck,
            node_busy=turns.busy,
            node_memory=self._memory(nodes),
            joined=turns.joined,
            p99=turns.p99,
            masters=masters,
            redis_cores=redis,
            redis_memory=(
                self._work.sessions * self._session_grid + self._work.topics * self._costs.topic_grid + streams
            )
            / _GIB,
            redis_egress=self._work.updates * self._work.interest * nodes * self._work.entry_bytes * _GIGABITS,
            haproxy_cores=cores,
            haproxy_memory=self._work.sessions * (self._costs.session_haproxy + 2 * rules.socket) / _GIB,
            client_traffic=traffic * _GIGABITS,
            recovery=recovery,
            lost_sessions=self._lost(nodes),
        )

    # --- One node ---------------------------------------------------------------------------------------------------

    @property
    def _deliveries(self) -> float:
        """Per second, all sessions together."""
        return self._work.updates * min(self._work.audience, self._work.sessions)

    def _turns(self, nodes: float) -> tick.Turns:
        """Run one of so many nodes, once."""
        if nodes not in self._ran:
            self._ran[nodes] = self._run(nodes)
        return self._ran[nodes]

    def _run(self, nodes: float) -> tick.Turns:
        work, costs = self._work, self._costs
        background = (
            _MICRO
            / nodes
            * (
                work.sessions * costs.idle_server
                + work.churn * self._connect.server
                + work.updates * costs.publish.server
            )
        )
        if background >= 1:
            return tick.Turns(1.0, saturated=True, cpu=0.0, joined=1.0, p50=0.0, p99=0.0)
        if work.updates == 0:
            return tick.Turns(background, saturated=False, cpu=0.0, joined=1.0, p50=0.0, p99=0.0)
        reached = min(work.audience, work.sessions) / nodes
        wanted = work.updates * min(1.0, reached)
        stream = tick.Stream(
            rate=wanted,
            reached=max(1.0, reached),
            sessions=max(1.0, work.sessions / nodes),
            elsewhere=max(0.0, work.interest * work.updates - wanted),
            background=background,
            paced=False,
        )
        return tick.simulate(costs.deliver, stream)

    def _writes(self, turns: tick.Turns) -> float:
        """Messages per second to all sessions."""
        return self._deliveries / max(1.0, turns.joined)

    def _memory(self, nodes: float) -> float:
        """GiB of one of so many nodes."""
        values = self._work.topics * self._work.interest * self._costs.topic_node
        return self._rules.node_base + (self._work.sessions / nodes * self._session_node + values) / _GIB

    def _lost(self, nodes: int) -> int:
        return math.ceil(self._work.sessions * self._rules.nodes_lost / nodes)

    # --- How many nodes ---------------------------------------------------------------------------------------------

    def _least(self, name: str, enough: Callable[[int], bool]) -> int:
        """Find the least number of nodes that is enough; more nodes never are worse."""
        low, high = self._rules.nodes_lost, self._rules.nodes_lost + 1
        while not enough(high):
            low, high = high, 2 * high
            if high > MOST_NODES:
                raise Impossible(_WHY[name].format(**self._figures()))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def _figures(self) -> Mapping[str, float]:
        work, costs = self._work, self._costs
        return {
            "reading": work.updates * work.interest * costs.deliver.take * _MICRO * 100,
            "copies": work.topics * work.interest * costs.topic_node / _GIB,
            "memory": self._rules.node_memory,
            "within": self._rules.recover_within,
        }

    def _enough_cpu(self, nodes: int) -> bool:
        before, after = self._turns(nodes), self._turns(nodes - self._rules.nodes_lost)
        return before.busy <= self._rules.busy and not after.saturated and after.busy <= self._rules.busy_after_loss

    def _enough_memory(self, nodes: int) -> bool:
        return self._memory(nodes - self._rules.nodes_lost) <= self._rules.node_memory

    def _enough_ports(self, nodes: int) -> bool:
        survivors = nodes - self._rules.nodes_lost
        return self._work.sessions / survivors <= self._rules.ports * self._rules.balancers

    def _enough_for_recovery(self, nodes: int) -> bool:
        turns = self._turns(nodes)
        if turns.saturated:
            return False
        # What the survivors' cores have to do tells most numbers of nodes apart; only the others are simulated.
        work = self._lost(nodes) / (nodes - self._rules.nodes_lost) * self._failover.server * _MICRO
        if self._rules.detection + work > self._rules.recover_within:
            return False
        try:
            return self._recover(nodes)[0].last <= self._rules.recover_within
        except storm.NeverEnds:
            return False

    # --- What all share -----------------------------------------------------------------------------------------------

    def _check_partitions(self) -> None:
        """A partition is served by one Redis core, however many masters there are."""
        work, costs = self._work, self._costs
        partitions = min(work.roots, TOPIC_PARTITIONS)
        # As few nodes as can be; each further one that follows adds to it.
        busiest = work.updates / partitions * (costs.publish.redis + costs.follow_redis) * _MICRO
        if busiest > self._rules.redis_busy:
            raise Impossible(
                f"the updates of one partition keep {busiest:.1f} Redis cores busy, and a partition has one: "
                "spread topics over more first segments, or raise topic_depth"
            )

    def _redis(self, nodes: int) -> float:
        """Cores that Redis uses on an ordinary day."""
        work, costs = self._work, self._costs
        topics = work.updates * (costs.publish.redis + work.interest * nodes * costs.follow_redis)
        return (topics + work.churn * self._connect.redis + nodes * costs.idle_redis) * _MICRO

    def _haproxy(self, turns: tick.Turns) -> float:
        """Cores that HAProxy uses on an ordinary day."""
        return (self._writes(turns) * self._costs.forward + self._work.churn * self._connect.haproxy) * _MICRO

    def _recover(self, nodes: int) -> tuple[storm.Recovered, int, int]:
        """Lose nodes; returns how it goes, and the Redis masters and HAProxy cores that are there for it."""
        rules, turns = self._rules, self._turns(nodes)
        survivors, lost = nodes - rules.nodes_lost, self._lost(nodes)
        redis, haproxy = self._redis(nodes), self._haproxy(turns)
        # They are to be there before clients lose patience.
        hurry = lost / min(rules.recover_within, storm.DEFAULT_PATIENCE / 2) * _MICRO
        masters = max(1, math.ceil(max(redis / rules.redis_busy, redis + hurry * self._failover.redis)))
        cores = max(1, math.ceil(max(haproxy / rules.haproxy_busy, haproxy + hurry * self._failover.haproxy)))
        comeback = storm.Comeback(
            sessions=max(1, math.ceil(lost / survivors)),
            step=self._failover,
            haproxy=(cores - haproxy) / survivors,
            redis=(masters - redis) / survivors,
            busy=min(turns.busy, _NEARLY_ALL),
            detection=rules.detection,
            backoff=DEFAULT_BACKOFF,
        )
        return storm.simulate(comeback), masters, cores


def _with_selections(step: Step, server: float) -> Step:
    return replace(step, server=step.server + server)


_GIGABITS: Final = 8e-9
_STREAM_LENGTH: Final = 10_000
"""Entries kept for each partition, by default."""
_NEARLY_ALL: Final = 0.99
_WHY: Final = {
    "CPU": (
        "no number of nodes is enough: reading the updates alone takes {reading:.0f} % of each node's core, however "
        "many nodes there are. Bring sessions together by what they select, so that a node follows fewer partitions "
        "(--interest), or run several clusters"
    ),
    "memory": (
        "no number of nodes is enough: copies of the values alone take {copies:.1f} of {memory:g} GiB on each node. "
        "Give nodes more (--node-memory), or bring sessions together by what they select (--interest)"
    ),
    "ports": "no number of nodes is enough for the ports between HAProxy and nodes: add balancers (--balancers)",
    "recovery": "no number of nodes recovers within {within:g} s: detection takes too long (--detection)",
}
