"""What every use case of a node needs."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.app.admission.limits import Limits
from gateway.app.admission.memory import Memory
from gateway.app.admission.reconnect_advice import ReconnectAdvice
from gateway.app.journal import Journal
from gateway.app.runtime.background import Background
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.policy import NodePolicy
from gateway.core.types import NodeRef
from gateway.ports import NO_TRACER, EventLog, Grid, Metrics, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of one node; two nodes in one process have two of them.

    Attributes:
        me: this run of this node.
        policy: its numbers.
        clock: time and chance.
        grid: its connection to the grid.
        background: tasks nobody waits for.
        metrics: where numbers go.
        log: where events go.
        tracer: where spans go.
        limits: what clients may use.
        memory: of the process.
        journal: where the facts are told that people ask for afterwards.
        reconnect_advice: what clients are advised about coming back.
    """

    me: NodeRef
    policy: NodePolicy
    clock: Clock
    grid: Grid
    background: Background
    metrics: Metrics
    log: EventLog
    limits: Limits
    memory: Memory
    journal: Journal
    reconnect_advice: ReconnectAdvice
    tracer: Tracer = NO_TRACER
