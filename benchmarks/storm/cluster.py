"""Redis, nodes and HAProxy for a storm: each process on its core, and its CPU time told by its role."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import redis

import lb.render
import lb.settings
import lb.topology
from benchmarks.checkout import THIS, Checkout
from benchmarks.measure import process_cpu, resident_bytes
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, redis_server, scratch_folder, wait_until
from benchmarks.systems.base import Role
from gateway.adapters.link_authority import LINKS, make_certificates
from gateway.local.ports import free_port

NODES: Final = ("n1", "n2")
"""Names; storms begin on the first."""
_TOKEN_KEY_BYTES: Final = 32
_ANSWER_SECONDS: Final = 2.0
"""For one look at an admin port of the same machine."""
_OK: Final = 200
_CONNECTIONS: Final = 8_192
"""Bound on HAProxy's clients; each needs two of its descriptors, and 20,000 are what many systems allow."""
_CHECK_SECONDS: Final = 0.5
"""HAProxy's health checks; a storm does not wait for them."""
_RUNTIME_SOCKET: Final = "haproxy.sock"
"""Relative to the scratch folder, because absolute paths may be too long for a socket."""
_PROXY_PATHS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where HAProxy is, though it may not be on a user's PATH."""


class Cluster:
    """Nodes on one core; Redis and HAProxy on the other, which the storm shares.

    Attributes:
        processes: all that run, by name: ``redis``, ``haproxy`` and the nodes'.
        grid: a connection to Redis.
    """

    def __init__(
        self,
        folder: Path,
        placement: Placement,
        *,
        links: bool = False,
        connection_rate: int | None = None,
        checkout: Checkout = THIS,
    ) -> None:
        """Describe a cluster; ``running`` starts it."""
        self._links = links
        self._checkout = checkout
        self._connection_rate = connection_rate
        self._folder = folder
        self._placement = placement
        self._listen: dict[str, int] = {}
        self._admin: dict[str, int] = {}
        self._agent: dict[str, int] = {}
        self._entry = 0
        self.processes: dict[str, PinnedProcess] = {}
        self.grid: redis.Redis

    # --- Where things are -------------------------------------------------------------------------------------------

    @property
    def entry(self) -> tuple[str, int]:
        """Where clients connect, through HAProxy."""
        return HOST, self._entry

    def direct(self, node: str) -> tuple[str, int]:
        """Where clients connect to a node without HAProxy."""
        return HOST, self._listen[node]

    def metric(self, node: str, sample: str) -> float:
        """Read one sample of a node's metrics, such as ``gateway_sessions{state="connected"}``; 0 if there is none."""
        text = self._ask(node, "/metrics")
        for line in text.splitlines():
            if line.startswith(sample + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    # --- What they use ----------------------------------------------------------------------------------------------

    def cpu(self, nodes: Iterable[str]) -> dict[Role, float]:
        """Tell the CPU seconds used so far by role, of these nodes; and of the storm's own process by its own clock."""
        used = {Role.SERVER: sum(process_cpu(self.processes[node].pid) for node in nodes)}
        used[Role.STORE] = process_cpu(self.processes["redis"].pid)
        if "haproxy" in self.processes:
            used[Role.BALANCER] = process_cpu(self.processes["haproxy"].pid)
        return used

    def resident(self, node: str) -> int:
        """Tell the resident set size of a node, in bytes."""
        return resident_bytes([self.processes[node].pid])

    def commands(self) -> dict[str, int]:
        """Tell how often Redis has run each command so far, those called by scripts included."""
        stats: Mapping[str, Mapping[str, Any]] = self.grid.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(each["calls"]) for name, each in stats.items()}

    def used_memory(self) -> int:
        """Tell the bytes that Redis has allocated."""
        return int(self.grid.info("memory")["used_memory"])

    # --- Life -------------------------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """Kill a node with SIGKILL."""
        process = self.processes.pop(node)
        process.process.kill()
        process.process.wait()

    def wait_connected(self, node: str, sessions: int) -> None:
        """Wait until a node has noticed that it serves just so many connected sessions.

        Raises:
            SystemFailed: not in time.
        """
        sample = 'gateway_sessions{state="connected"}'
        wait_until(lambda: self.metric(node, sample) == sessions, f"{node} has {sessions} connected sessions")

    def wait_linked(self) -> None:
        """Wait until each node has a link to each other one.

        Raises:
            SystemFailed: not in time.
        """
        sample, others = 'gateway_links{state="up"}', len(self._listen) - 1
        wait_until(lambda: all(self.metric(node, sample) == others for node in self._listen), "the nodes have links")

    @contextlib.contextmanager
    def start(self, nodes: Iterable[str], settings: Mapping[str, str], *, balancer: bool) -> Iterator[None]:
        """Run it for the length of the block."""
        with contextlib.ExitStack() as stack:
            process, port = stack.enter_context(redis_server(self._placement.others))
            self.processes["redis"] = process
            self.grid = stack.enter_context(redis.Redis(host=HOST, port=port))
            keys = self._folder / "token-keys"
            keys.touch(mode=0o600)
            keys.write_text(f"{secrets.token_urlsafe(_TOKEN_KEY_BYTES)}\n")
            if self._links:
                make_certificates(self._folder, nodes, now=time.time())
            for node in nodes:
                self.processes[node] = stack.enter_context(self._node(node, port, keys, settings))
            for node in nodes:
                self.processes[node].wait_ready(lambda node=node: self._is_ready(node))  # type: ignore[misc]
            if balancer:
                self._entry = free_port()
                self.processes["haproxy"] = stack.enter_context(self._balancer())
                self.processes["haproxy"].wait_ready(lambda: listens(self._entry))
            yield

    def _node(self, node: str, grid: int, keys: Path, settings: Mapping[str, str]) -> PinnedProcess:
        self._listen[node], self._admin[node], self._agent[node] = free_port(), free_port(), free_port()
        # What the caller has set for nodes of his own is not meant for these: flags win over the environment.
        arguments = {
            "node": node,
            "grid": f"redis://{HOST}:{grid}/0",
            "auth": "anonymous",
            "listen": f"{HOST}:{self._listen[node]}",
            "admin": f"{HOST}:{self._admin[node]}",
            "agent": f"{HOST}:{self._agent[node]}",
            "token-keys-file": str(keys),
            "trusted-proxies": f"{HOST}/32",
            # Whoever publishes as fast as it can is what these limits are there to slow down.
            "rate-packets": "0",
            "rate-bytes": "0",
            **(self._link_of(node) if self._links else {}),
            **settings,
        }
        return PinnedProcess(
            self._checkout.command(arguments),
            core=self._placement.server,
            folder=self._folder,
            environment=self._checkout.environment(),
        )

    def _link_of(self, node: str) -> Mapping[str, str]:
        return {
            "link": f"{HOST}:{free_port()}",
            "link-tls-ca": str(self._folder / LINKS.file),
            "link-tls-certificate": str(self._folder / f"{node}.pem"),
            "link-tls-key": str(self._folder / f"{node}.key"),
        }

    def _balancer(self) -> PinnedProcess:
        topology = lb.topology.build(
            {
                "runtime_socket": _RUNTIME_SOCKET,
                "frontend": {"bind": [f"{HOST}:{self._entry}"], "connection_rate": self._connection_rate},
                "checks": {"interval": _CHECK_SECONDS},
                "process": {"connections": _CONNECTIONS},
                "nodes": [
                    {
                        "name": node,
                        "host": HOST,
                        "client_port": port,
                        "admin_port": self._admin[node],
                        "agent_port": self._agent[node],
                    }
                    for node, port in self._listen.items()
                ],
            },
            source="benchmarks",
        )
        configuration = self._folder / "haproxy.cfg"
        configuration.write_text(lb.render.render(topology))
        program = shutil.which("haproxy") or shutil.which("haproxy", path=_PROXY_PATHS) or "haproxy"
        return PinnedProcess([program, "-db", "-f", configuration], core=self._placement.others, folder=self._folder)

    def _is_ready(self, node: str) -> bool:
        try:
            self._ask(node, "/readyz")
        except OSError:
            return False
        return True

    def _ask(self, node: str, path: str) -> str:
        url = f"http://{HOST}:{self._admin[node]}{path}"
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def running(
    placement: Placement,
    *,
    nodes: Iterable[str] = NODES,
    settings: Mapping[str, str] | None = None,
    links: bool = False,
    balancer: bool = True,
    connection_rate: int | None = None,
    checkout: Checkout = THIS,
) -> Iterator[Cluster]:
    """Run a cluster for the length of the block and leave nothing behind.

    Args:
        placement: cores.
        nodes: names of the nodes.
        settings: of ``gateway serve`` that are not the default, by flag without the dashes; nothing for a switch.
        links: whether they have links to each other, with TLS.
        balancer: whether HAProxy stands before them, by the configuration that ``lb render`` writes.
        connection_rate: connections a second that HAProxy accepts; all that come if None.
        checkout: the version that nodes are run from.

    Raises:
        SystemUnavailable: redis-server or haproxy is not installed.
        SystemFailed: a part did not come up.
    """
    with scratch_folder("storm") as folder:
        cluster = Cluster(folder, placement, links=links, connection_rate=connection_rate, checkout=checkout)
        with cluster.start(nodes, settings or {}, balancer=balancer):
            yield cluster
