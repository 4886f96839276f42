"""What every use case of a node needs."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.app.background import Background
from gateway.app.clock import Clock
from gateway.app.journal import Journal
from gateway.app.limits import Limits
from gateway.app.memory import Memory
from gateway.app.policy import NodePolicy
from gateway.app.storms import Comebacks
from gateway.app.tracing import NO_TRACER
from gateway.core.types import NodeRef
from gateway.ports import EventLog, Grid, Metrics, Tracer


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
        comebacks: what clients are advised about coming back.
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
    comebacks: Comebacks
    tracer: Tracer = NO_TRACER
