"""What every use case of a node needs."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.app.admission.limits import Limits
from gateway.app.admission.memory import Memory
from gateway.app.admission.reconnect_advice import ReconnectAdvice
from gateway.app.journal import Announcer, Journal
from gateway.app.runtime.background import Background
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.cluster_view import ClusterView
from gateway.app.runtime.lifecycle import Lifecycle
from gateway.app.runtime.parameters import NodeParameters
from gateway.core.destinations.table import DestinationTable
from gateway.core.types import NodeRef
from gateway.ports import NO_TRACER, EventLog, Grid, Metrics, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of one node; two nodes in one process have two of them.

    Attributes:
        me: this run of this node.
        parameters: its numbers.
        clock: time and chance.
        grid: its connection to the grid.
        background: tasks nobody waits for.
        metrics: where numbers go.
        log: where events go.
        tracer: where spans go.
        lifecycle: how far its life has come.
        cluster: the other nodes, as it last saw them.
        destinations: what paths are, as far as the node knows; ``app/destinations`` keeps it in step with the grid.
        limits: what clients may use.
        memory: of the process.
        announce: counts, logs and journals what happens.
        journal: where the facts are told that people ask for afterwards; events come there by ``announce``.
        reconnect_advice: what clients are advised about coming back.
    """

    me: NodeRef
    parameters: NodeParameters
    clock: Clock
    grid: Grid
    background: Background
    metrics: Metrics
    log: EventLog
    lifecycle: Lifecycle
    cluster: ClusterView
    limits: Limits
    memory: Memory
    announce: Announcer
    journal: Journal
    reconnect_advice: ReconnectAdvice
    destinations: DestinationTable
    tracer: Tracer = NO_TRACER
