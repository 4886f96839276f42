"""What a stack is made of, and how each of its processes is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import lb.render
import lb.topology
from gateway.local.grid_server import GridServer
from gateway.local.observatory import Observation, Observatory
from gateway.local.ports import LOOPBACK, PortPlan
from gateway.local.processes import ManagedProcess, find_program
from gateway.local.proxy import Links
from gateway.local.run_folder import RUNTIME_SOCKET, RunFolder


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
        node_environment: environment variables of nodes, by node, in addition to ours.
        stickiness: of HAProxy: ``hint``, ``cookie`` or ``off``.
        observation: how closely a Prometheus watches the stack; None to go without one.
        demo_page: True to have a page with live values for browsers; needs HAProxy.
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
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stickiness: str = "hint"
    observation: Observation | None = None
    demo_page: bool = False
    node_program: Sequence[str] = (sys.executable, "-m", "gateway", "serve")

    def __post_init__(self) -> None:
        if self.demo_page and not self.balancer:
            raise ValueError("the demo page connects through HAProxy, and this stack has none")
        if self.detached and (self.grid_proxy or self.link_proxies):
            raise ValueError("a fault proxy lives in this process, so that a detached stack can not have one")
        if self.grid_url and self.grid_proxy:
            raise ValueError("a fault proxy stands before the stack's own Redis, and this stack has none")
        if self.grid_proxy and self.link_proxies:
            raise ValueError("nodes reach Redis through one proxy for all or through one for each, not through both")
        if self.link_proxies and not self.balancer:
            raise ValueError("the first link leads to HAProxy, and this stack has none")


BACKED_UP: Final[Mapping[str, object]] = {"backup": "auto"}
"""Settings of nodes that keep copies of their sessions at each other, as those of people do."""

_SETTING_PREFIX: Final = "GATEWAY_"
"""Begins the names of the environment variables that hold settings."""
_CONNECTIONS: Final = 8192
"""Bound on HAProxy's connections; without one it sizes its tables by the limit of open files, which may be huge."""
_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])
"""For PYTHONPATH: a checkout works without being installed."""
_CHECK_INTERVAL_SECONDS: Final = 0.5
"""Health checks of the local HAProxy: twice as often as its default, so that a demonstration need not wait."""


class Recipes:
    """Describes the parts of one stack; nothing of it starts by that.

    Args:
        options: what the stack is made of.
        folder: where it runs.
    """

    def __init__(self, options: StackOptions, folder: RunFolder) -> None:
        self._options = options
        self._ports = options.ports
        self._folder = folder

    def grid(self) -> GridServer:
        """Describe the Redis.

        Raises:
            ProgramMissing: redis-server is not installed.
        """
        return GridServer(
            find_program("redis-server"),
            port=self._ports.grid,
            folder=self._folder.redis,
            logs=self._folder.logs,
            detached=self._options.detached,
            environment=self._options.grid_environment,
        )

    def node(self, node: str, grid: str, settings: Mapping[str, object]) -> ManagedProcess:
        """Describe a node.

        Args:
            node: its name.
            grid: URL of the grid, as the node is to reach it.
            settings: of this run only, over those of all nodes.
        """
        ports = self._ports.nodes[node]
        given: dict[str, object] = {
            "token_keys_file": self._folder.token_keys,
            "admin_tokens_file": self._folder.admins,
            "trusted_proxies": f"{LOOPBACK}/32",
            "journal": "true",
            # Pages that are being developed, and the demo page, on whatever port of this machine.
            "origins": "loopback",
            # Links without certificates, on loopback, are a shortcut of development.
            "dev": "true",
            "link": f"{LOOPBACK}:{ports.link}",
            **self._options.node_settings,
            **settings,
        }
        authentication = str(given.pop("auth", "anonymous"))
        return ManagedProcess(
            node,
            [
                *self._options.node_program,
                *("--node", node, "--grid", grid, "--auth", authentication),
                *("--listen", f"{LOOPBACK}:{ports.listen}", "--admin", f"{LOOPBACK}:{ports.admin}"),
                *("--agent", f"{LOOPBACK}:{ports.agent}"),
            ],
            log=self._folder.log_of(node),
            environment={
                # What the caller has set for nodes of his own is not meant for these.
                **{name: None for name in os.environ if name.startswith(_SETTING_PREFIX)},
                **{
                    f"{_SETTING_PREFIX}{name.upper()}": str(value(node) if callable(value) else value)
                    for name, value in given.items()
                },
                "PYTHONPATH": _PACKAGE_ROOT,
                **self._options.node_environment.get(node, {}),
            },
            directory=self._folder.path,
            detached=self._options.detached,
        )

    def balancer(self) -> ManagedProcess:
        """Describe the HAProxy; ``configure_balancer`` writes what it reads.

        Raises:
            ProgramMissing: haproxy is not installed.
        """
        return ManagedProcess(
            "haproxy",
            # -db: in the foreground, without a master process.
            [find_program("haproxy"), "-db", "-f", str(self._folder.balancer_configuration)],
            log=self._folder.log_of("haproxy"),
            directory=self._folder.path,
            detached=self._options.detached,
        )

    def reloaded_balancer(self, old: ManagedProcess) -> ManagedProcess:
        """Describe a HAProxy that takes the place of a running one.

        It takes the listening sockets over through the runtime socket, so that nobody is refused, and then has the old
        one end when its connections have (``hard-stop-after`` at the latest).
        """
        return ManagedProcess(
            old.name,
            [*old.command[:4], "-x", RUNTIME_SOCKET, "-sf", str(old.pid)],
            log=old.log,
            directory=self._folder.path,
            detached=self._options.detached,
        )

    def configure_balancer(self, links: Links | None) -> None:
        """Write HAProxy's configuration; it reaches nodes through *links*, if there are any."""
        topology = lb.topology.build(
            {
                "stickiness": self._options.stickiness,
                "runtime_socket": RUNTIME_SOCKET,
                "frontend": {"bind": [f"{LOOPBACK}:{self._ports.entry}"]},
                "statistics": {"bind": f"{LOOPBACK}:{self._ports.balancer_metrics}"},
                "checks": {"interval": _CHECK_INTERVAL_SECONDS},
                "process": {"connections": _CONNECTIONS},
                "nodes": [
                    {
                        "name": name,
                        "host": LOOPBACK,
                        "client_port": ports.listen if links is None else links.nodes[name].port,
                        "admin_port": ports.admin,
                        "agent_port": ports.agent,
                    }
                    for name, ports in self._ports.nodes.items()
                ],
            },
            source="gateway.local",
        )
        self._folder.balancer_configuration.write_text(lb.render.render(topology))

    def demo_page(self) -> ManagedProcess:
        """Describe the process that serves the demo page and publishes its values."""
        options = {"--folder": self._folder.path, "--port-base": self._ports.base, "--nodes": len(self._ports.nodes)}
        return ManagedProcess(
            "demo-page",
            [
                *(sys.executable, "-m", "gateway.local.demo_page"),
                *(str(each) for option in options.items() for each in option),
            ],
            log=self._folder.log_of("demo-page"),
            environment={"PYTHONPATH": _PACKAGE_ROOT},
            directory=self._folder.path,
            detached=self._options.detached,
        )

    def observatory(self, observation: Observation) -> Observatory:
        """Describe the Prometheus.

        Raises:
            ProgramMissing: prometheus is not installed.
        """
        return Observatory(
            find_program("prometheus"),
            ports=self._ports,
            folder=self._folder.observatory,
            logs=self._folder.logs,
            observation=observation,
            detached=self._options.detached,
        )
