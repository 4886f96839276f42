"""What a stack is made of."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.local.observatory import Observation
from gateway.local.ports import PortPlan


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What a stack is made of.

    Attributes:
        ports: who listens where, and with that how many nodes there are.
        folder: the run folder; made if it does not exist.
        detached: True if the processes shall outlive this one.
        node_settings: settings of every node by their name in the settings reference, for example
            ``{"window_default": 5}``. A function is called with the name of the node and returns its value.
        balancer: False to go without HAProxy; clients then use ``Stack.node_url``.
        grid_proxy: True to put a ``FaultProxy`` between the nodes and Redis (attached stacks only).
        link_proxies: True to put a ``FaultProxy`` on every link, see ``Stack.links`` (attached stacks only).
        grid_url: of a grid that runs already and is not this stack's to stop; without it the stack has its own Redis.
        grid_environment: environment variables of the stack's own Redis, in addition to ours.
        stickiness: of HAProxy: ``hint``, ``cookie`` or ``off``.
        observation: how closely a Prometheus watches the stack; None to go without one.
        node_program: what runs a node; flags and settings are added to it.
    """

    ports: PortPlan
    folder: Path
    detached: bool = False
    node_settings: Mapping[str, object] = field(default_factory=dict)
    balancer: bool = True
    grid_proxy: bool = False
    link_proxies: bool = False
    grid_url: str = ""
    grid_environment: Mapping[str, str] = field(default_factory=dict)
    stickiness: str = "hint"
    observation: Observation | None = None
    node_program: Sequence[str] = (sys.executable, "-m", "gateway", "serve")

    def __post_init__(self) -> None:
        if self.detached and (self.grid_proxy or self.link_proxies):
            raise ValueError("a fault proxy lives in this process, so that a detached stack can not have one")
        if self.grid_url and self.grid_proxy:
            raise ValueError("a fault proxy stands before the stack's own Redis, and this stack has none")
        if self.grid_proxy and self.link_proxies:
            raise ValueError("nodes reach Redis through one proxy for all or through one for each, not through both")
        if self.link_proxies and not self.balancer:
            raise ValueError("the first link leads to HAProxy, and this stack has none")
