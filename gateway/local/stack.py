"""A whole gateway on loopback: Redis, nodes, HAProxy; each a process of its own, each of them to be hurt at will.

```text
clients ──▶ HAProxy :base ──▶ n1, n2, n3 :base+11, +21, +31 ──▶ Redis :base+2
```

Where it is asked for, a Prometheus on base+3 watches all of them, and a demo page on base+4 shows live values.

Everything is inside one run folder: configuration, data, logs, sockets. Attached (the default) the parts die with
this process, however it ends; detached they go on, and the folder's state file says what there is to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import lb.names
from gateway.core.wire.codes import ClusterMode
from gateway.local import admin
from gateway.local.grid_server import GridRestart
from gateway.local.identity import ProcessIdentity
from gateway.local.ports import LOOPBACK
from gateway.local.processes import ManagedProcess, ProcessFailed
from gateway.local.proxy import FaultProxy, Links
from gateway.local.recipes import Recipes, StackOptions
from gateway.local.run_folder import RunFolder, StackState

NODE_START_SECONDS: Final = 120.0
"""How long a node may take from its start until it is ready: usually one second, a minute on two cores with a load
average of 20. A node that ends is noticed at once."""
BALANCER_START_SECONDS: Final = 60.0
"""How long HAProxy may take to listen, and then to have seen every node."""
PAGE_START_SECONDS: Final = 30.0
"""How long the demo page may take to answer: usually half a second."""
DRAIN_SECONDS: Final = 60.0
"""How long a drain may take: the node's own limit (30 s by default) and as much again."""


class Stack:
    """Redis, nodes and HAProxy. Use as ``async with Stack(options) as stack``, or ``start`` and ``stop``.

    Methods that wait do so by a condition with a deadline and raise ``ProcessFailed`` with the tail of the log.

    Attributes:
        options: what it is made of.
        grid: the Redis.
        grid_proxy: what stands between nodes and Redis, if it was asked for.
        links: the proxies on all links, if they were asked for.
        nodes: the node processes by name.
        balancer: the HAProxy process, if there is one.
        observatory: the Prometheus, if there is one.
        demo_page: what serves the demo page, if there is one.
        logs: the folder of all logs.
        admin_token_file: holds the token of an administrator of all nodes.
    """

    def __init__(self, options: StackOptions) -> None:
        """Describe a stack; nothing starts yet.

        Raises:
            ProgramMissing: redis-server or haproxy is not installed.
        """
        self.options = options
        self._ports = options.ports
        self._folder = RunFolder(options.folder.resolve())
        self._recipes = Recipes(options, self._folder)
        self._adopted: dict[str, ProcessIdentity] = {}
        self.logs = self._folder.logs
        self.admin_token_file = self._folder.admin_token
        self.grid = self._recipes.grid()
        self.grid_proxy = FaultProxy(LOOPBACK, self._ports.grid) if options.grid_proxy else None
        self.links = Links(self._ports, grid=not options.grid_url) if options.link_proxies else None
        self.nodes: dict[str, ManagedProcess] = {}
        self._reloaded: list[ManagedProcess] = []
        self.balancer = self._recipes.balancer() if options.balancer else None
        self.observatory = None if options.observation is None else self._recipes.observatory(options.observation)
        self.demo_page = self._recipes.demo_page() if options.demo_page else None

    # --- Where things are -----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where clients connect, through HAProxy."""
        return f"ws://{LOOPBACK}:{self._ports.entry}/v1/connect"

    @property
    def grid_url(self) -> str:
        """Where the grid is, not through the fault proxy."""
        return self.options.grid_url or self.grid.url

    @property
    def balancer_metrics_url(self) -> str:
        """HAProxy's metrics."""
        return f"http://{LOOPBACK}:{self._ports.balancer_metrics}/metrics"

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of all nodes, running or not."""
        return tuple(self._ports.nodes)

    @property
    def balancer_stats_url(self) -> str:
        """HAProxy's page for people."""
        return f"http://{LOOPBACK}:{self._ports.balancer_metrics}/stats"

    @property
    def demo_page_url(self) -> str:
        """Where the demo page is, if there is one."""
        return f"http://{LOOPBACK}:{self._ports.demo_page}/"

    @property
    def runtime_socket(self) -> Path:
        """HAProxy's runtime socket, for ``lb.runtime``."""
        return self._folder.runtime_socket

    def node_url(self, node: str) -> str:
        """Where clients connect to *node* without HAProxy."""
        return f"ws://{LOOPBACK}:{self._ports.nodes[node].listen}/v1/connect"

    def admin_url(self, node: str, path: str = "") -> str:
        """Where the admin port of *node* answers; *path* begins with a slash."""
        return f"http://{LOOPBACK}:{self._ports.nodes[node].admin}{path}"

    async def metrics(self, node: str) -> dict[str, float]:
        """Read the metrics of *node*; see ``gateway.local.admin.read_metrics``."""
        return await admin.read_metrics(self.admin_url(node, "/metrics"))

    def log_of(self, name: str) -> Path:
        """The log file of ``redis``, ``haproxy`` or a node; all runs of it, one after the other."""
        return self._folder.log_of(name)

    # --- Life -----------------------------------------------------------------------------------------------------

    async def start(self, *, adopted: Mapping[str, ProcessIdentity] | None = None) -> None:
        """Start everything and wait until HAProxy sees every node ready.

        Args:
            adopted: parts that run already, by name; they are left alone, now and by ``stop``.

        Raises:
            PortsTaken: a port is in use.
            ProcessFailed: a part did not come up; what was started is stopped again.
        """
        self._adopted = dict(adopted or {})
        if not self._adopted:
            self._ports.require_free()
        self._folder.prepare()
        try:
            if self.grid.process.name not in self._adopted and not self.options.grid_url:
                await self.grid.start()
                self._write_state()
            if self.grid_proxy is not None:
                await self.grid_proxy.start()
            if self.links is not None:
                await self.links.start()
            await asyncio.gather(*(self.start_node(node) for node in self.node_names if node not in self._adopted))
            if self.balancer is not None and self.balancer.name not in self._adopted:
                self._recipes.configure_balancer(self.links)
                await self._start_balancer()
            if self.observatory is not None and self.observatory.process.name not in self._adopted:
                await self.observatory.start(balancer=self.balancer is not None)
                self._write_state()
            if self.demo_page is not None and self.demo_page.name not in self._adopted:
                self.demo_page.start()
                self._write_state()
                await self.demo_page.ready(lambda: admin.answers_ok(self.demo_page_url), timeout=PAGE_START_SECONDS)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything, nodes first, without waiting for drains. No effect on what does not run."""
        if self.demo_page is not None:
            await self.demo_page.stop(grace=0)
        await asyncio.gather(*(node.stop(grace=0) for node in self.nodes.values()))
        if self.balancer is not None:
            await self.balancer.stop()
        await asyncio.gather(*(old.stop(grace=0) for old in self._reloaded))
        if self.observatory is not None:
            await self.observatory.process.stop()
        if self.grid_proxy is not None:
            await self.grid_proxy.stop()
        if self.links is not None:
            await self.links.stop()
        await self.grid.process.stop()
        self._write_state()

    def kill_now(self) -> list[str]:
        """Kill what runs, without an event loop: for clean-up where ``stop`` did not end.

        Returns:
            Names of the processes that ran.
        """
        left = [process for process in (*self._processes(), *self._reloaded) if process.running]
        for process in left:
            process.kill_now()
        return [process.name for process in left]

    def release(self) -> None:
        """Let go of a detached stack: it runs on, and only its state file knows it."""
        for process in self._processes():
            process.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def clear(self) -> None:
        """Remove what earlier runs left in the run folder: data, logs, keys. Nothing else that may be there.

        Only for a stack that does not run.
        """
        self._folder.clear()

    # --- Nodes ----------------------------------------------------------------------------------------------------

    async def start_node(self, node: str, **settings: object) -> None:
        """Start a node, for the first time or again, and wait until it is ready to take sessions.

        Args:
            node: which one.
            settings: settings of this run only, over those of all nodes.

        Raises:
            ProcessFailed: it runs already, or did not become ready.
        """
        self.launch_node(node, **settings)
        await self.ready(node)

    def launch_node(self, node: str, **settings: object) -> None:
        """Start a node and do not wait for it: its grid may be unreachable.

        Args:
            node: which one.
            settings: settings of this run only, over those of all nodes.

        Raises:
            ProcessFailed: it runs already.
        """
        previous = self.nodes.get(node)
        if previous is not None and previous.running:
            raise ProcessFailed(f"{node} runs already, with pid {previous.pid}")
        process = self._recipes.node(node, self._grid_url_of(node), settings)
        self.nodes[node] = process
        process.start()
        self._write_state()

    async def ready(self, node: str) -> None:
        """Wait until a node says that it is ready to take sessions.

        Raises:
            ProcessFailed: it did not in time.
        """
        await self.nodes[node].ready(
            lambda: admin.answers_ok(self.admin_url(node, "/readyz")), timeout=NODE_START_SECONDS
        )

    async def kill_node(self, node: str) -> None:
        """Kill a node with SIGKILL."""
        await self.nodes[node].kill()

    def pause_node(self, node: str) -> None:
        """Stop a node with SIGSTOP: it hangs, its sockets open."""
        self.nodes[node].pause()

    def resume_node(self, node: str) -> None:
        """Let a paused node go on with SIGCONT."""
        self.nodes[node].resume()

    async def drain_node(self, node: str, *, timeout: float = DRAIN_SECONDS) -> int:  # noqa: ASYNC109
        """Drain a node with SIGTERM and wait for its end.

        Returns:
            Its exit code; 0 is a clean drain.

        Raises:
            ProcessFailed: it still runs after *timeout* seconds.
        """
        return await self.nodes[node].terminate(timeout=timeout)

    async def balanced(self, nodes: Sequence[str] | None = None) -> None:
        """Wait until HAProxy sends new sessions to exactly these nodes (all by default).

        Raises:
            ProcessFailed: it did not in time.
        """
        if self.balancer is None:
            raise ValueError("this stack has no HAProxy")
        wanted = set(self.node_names if nodes is None else nodes)

        async def sees_them() -> bool:
            return await self.nodes_up() == wanted

        await self.balancer.ready(sees_them, timeout=BALANCER_START_SECONDS)

    async def nodes_up(self) -> set[str]:
        """Return the nodes that HAProxy holds for alive and willing; empty if it does not answer."""
        try:
            values = await admin.read_metrics(self.balancer_metrics_url)
        except admin.UNREACHABLE:
            return set()
        labels = 'proxy="' + lb.names.BACKEND + '",server="{}"'
        return {
            node
            for node in self.node_names
            if values.get("haproxy_server_status{" + labels.format(node) + ',state="UP"}') == 1
            and values.get("haproxy_server_weight{" + labels.format(node) + "}", 0) > 0
        }

    # --- HAProxy and Redis ----------------------------------------------------------------------------------------

    async def restart_haproxy(self) -> None:
        """Kill HAProxy with SIGKILL, which cuts every client, and start it again."""
        if self.balancer is None:
            raise ValueError("this stack has no HAProxy")
        await self.balancer.kill()
        await self._start_balancer()

    async def start_haproxy(self) -> None:
        """Start a HAProxy that was killed, and wait until it sees the nodes that run.

        Raises:
            ProcessFailed: it does not see them in time, as a node is hung for example; it runs all the same.
        """
        await self._start_balancer()

    def reload_haproxy(self) -> None:
        """Have a new HAProxy take over, which refuses nobody; the old one goes on with the connections that it has.

        Raises:
            ProcessFailed: no HAProxy runs.
        """
        if self.balancer is None:
            raise ValueError("this stack has no HAProxy")
        self._reloaded = [old for old in (*self._reloaded, self.balancer) if old.running]
        self.balancer = self._recipes.reloaded_balancer(self.balancer)
        self.balancer.start()
        self._write_state()

    async def restart_redis(self, state: GridRestart, *, snapshot: str = "latest") -> None:
        """Kill Redis with SIGKILL and start it again: as it was, empty, or with an older snapshot of its data.

        Raises:
            FileNotFoundError: there is no such snapshot.
        """
        await self.grid.restart(state, snapshot=snapshot)
        self._write_state()

    async def save_grid(self, name: str = "latest") -> None:
        """Keep a snapshot of the grid's data for ``restart_redis``."""
        await self.grid.snapshot(name)

    # --- How it is made -------------------------------------------------------------------------------------------

    def _processes(self) -> list[ManagedProcess]:
        balancer = [self.balancer] if self.balancer is not None else []
        observatory = [self.observatory.process] if self.observatory is not None else []
        demo_page = [self.demo_page] if self.demo_page is not None else []
        return [self.grid.process, *self.nodes.values(), *balancer, *observatory, *demo_page]

    def _grid_url_of(self, node: str) -> str:
        if self.links is not None and self.links.grid:
            return self.links.grid_url(node)
        return self.grid_url if self.grid_proxy is None else f"redis://{LOOPBACK}:{self.grid_proxy.port}/0"

    def _write_state(self) -> None:
        """Write down what runs, at every start, so that even a half-started stack can be stopped by ``down``."""
        running = {name: identity for name, identity in self._adopted.items() if identity.alive()}
        for process in self._processes():
            # One that ends in this moment is none that is left to stop.
            with suppress(ProcessFailed):
                if process.running:
                    running[process.name] = process.identity()
        if running:
            StackState(self._ports.base, running).write(self._folder.path)
        else:
            StackState.forget(self._folder.path)

    async def _start_balancer(self) -> None:
        if self.balancer is None:
            raise AssertionError("only called where there is one")
        if self._reloaded:
            # One that took over from another cannot do so again: nobody is left to take over from.
            self._reloaded.append(self.balancer)
            self.balancer = self._recipes.balancer()
        self.balancer.start()
        self._write_state()
        started = {name for name, process in self.nodes.items() if process.running} | set(self._adopted)
        if self.options.node_settings.get("cluster_mode") == ClusterMode.REPLICATION:
            # The others stand by.
            await self.balancer.ready(self._one_serves, timeout=BALANCER_START_SECONDS)
        else:
            await self.balanced([name for name in self.node_names if name in started])

    async def _one_serves(self) -> bool:
        return len(await self.nodes_up()) == 1
