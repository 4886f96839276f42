"""The cluster that is broken: nodes, links, HAProxy and a grid, with what faults need to reach them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil  # type: ignore[import-untyped]
import redis.asyncio

from gateway.local import admin
from gateway.local.processes import ManagedProcess, ProcessFailed
from gateway.local.proxy import FaultProxy, Links, Way
from gateway.local.stack import Stack
from tests.chaos.account.clock import Off
from tests.chaos.account.forgotten import NOTHING, Forgotten
from tests.chaos.deadlines import Stuck, bounded
from tests.chaos.grid_links import GridLinks, grid_links
from tests.chaos.load.queueing import declare
from tests.chaos.mirrors import OFF
from tests.chaos.node_links import NodeLinks, node_links
from tests.chaos.replicated import ReplicatedGrid, replicated_grid
from tests.support import preloaded
from tests.support.faults import eventually
from tests.support.redis_clock import Clock
from tests.support.stack import cluster
from tests.support.times import scaled

NODES: Final = ("n1", "n2", "n3")
"""Names of all nodes, as a stack gives them."""

WINDOW: Final = 30.0
"""Seconds that sessions survive without a connection: longer than overlapping faults keep anybody away."""

READY: Final = 30.0
"""Seconds, on a quiet machine, in which a node must be ready after a fault has ended."""

LINKED: Final = 3.0
"""Seconds after a start in which a node is linked to the others: they look into the node table with each renewal of
their leases, and may leave it to the other one to dial, for a second. Whoever restarts nodes waits for that."""

REPLACED: Final = 120.0
"""Seconds, on a quiet machine, for which nodes may wait besides for a master to be replaced, or started again."""

DRAINED: Final = 30.0
"""Seconds, on a quiet machine, that a node may take to drain, of which its own limit is 8."""

STOPPED: Final = 60.0
"""Seconds, on a quiet machine, in which the whole cluster must have stopped, nodes first and without drains; each
process is killed seconds after it was asked to end."""

SEEN: Final = 5.0
"""Seconds after its start in which a node must have read the clock of Redis."""

ANSWER: Final = 20.0
"""Seconds for one command of Redis that changes how it behaves."""

MOVE: Final = aiohttp.ClientTimeout(total=5)
"""For one move; a node that is stopped does not answer."""

SETTINGS: Final[dict[str, Any]] = {
    "grid_timeout": 1,
    "lease": 3,
    "lease_renew": 0.6,
    "reap_interval": 0.5,
    "backoff_initial": 0.1,
    "backoff_maximum": 1,
    "window_default": WINDOW,
    "window_maximum": WINDOW,
    "ping_interval": 2,
    "ping_timeout": 5,
    "drain_timeout": 8,
    "drain_jitter": 0.3,
    "limit_resend_packets": 256,
    "stream_length": 1_000_000,
    "history_bytes": 64 * 2**20,
}
"""Quicker than in production, so that faults are longer than the limits that they meet. Logs and histories of topics
are never cut, so that all of them can be judged."""


class NotHealed(Exception):
    """A fault was ended, and the cluster did not come back; the message says what is missing."""


@dataclass(slots=True)
class Loss:
    """What a Redis loses that is being replaced.

    Attributes:
        kept: when the data was written that is left, in seconds since the beginning of the run.
    """

    kept: float


class Target:
    """A running cluster.

    Args:
        stack: nodes, HAProxy, links and, with one Redis, that.
        replicated: the grid, if it is not one Redis.
        kind: ``single``, ``sentinel`` or ``cluster``.
        clock: of all Redis, if it can be set.
        grid_links: between nodes and the grid, if that is not one Redis and faults need them.
        node_links: between nodes, if faults need them.

    Attributes:
        lineage: changes whenever Redis may have other data than before.
        saved: name of the newest copy of the data, if the grid is one Redis.
        saved_at: when the newest copy was made.
        clock_off: when the clock of Redis was off.
        clock_unknown: until when sessions were opened of which nobody can tell when their window ends.
        now: returns the seconds since the beginning of the run.
        about_to_forget: called before the grid forgets; reads what it holds.
        forgotten: called when it has, with what.
        node_ended: called when a process of a node has ended, with its name.
        live_sessions: returns the sessions that live.
        saves: whether copies of the data are made, as something will be rolled back.
        masters: ports of those that served the grid when somebody looked last.
        grid_away: when the grid did not answer last, past all proxies.
    """

    def __init__(
        self,
        stack: Stack,
        replicated: ReplicatedGrid | None,
        kind: str,
        *,
        clock: Clock | None = None,
        grid_links: GridLinks | None = None,
        node_links: NodeLinks | None = None,
    ) -> None:
        self.stack = stack
        self.kind = kind
        self.lineage = 0
        self.saved: str | None = None
        self.saved_at = NOTHING
        self.clock_unknown = NOTHING
        self.about_to_forget: Callable[[], Awaitable[None]] = _nothing_to_read
        self.forgotten: Callable[[Forgotten], None] = lambda forgotten: None
        self.node_ended: Callable[[str], None] = lambda node: None
        self.live_sessions: Callable[[], Sequence[str]] = list
        began = time.monotonic()
        self.now: Callable[[], float] = lambda: time.monotonic() - began
        self.clock_off: list[Off] = []
        self._replacing = 0
        self._replaced = 0.0
        self._replicated = replicated
        self._clock = clock
        self._grid_links = grid_links
        self._node_links = node_links
        self.saves = False
        self.masters: frozenset[int] = frozenset()
        self.grid_away = 0.0
        self._clock_set: tuple[float, int] | None = None
        self._saves = 0

    @property
    def links(self) -> Links:
        """The proxies on all links."""
        assert self.stack.links is not None, "the target has links"
        return self.stack.links

    def grid_link(self, node: str, master: int | None = None) -> list[FaultProxy]:
        """Return the proxies between a node and the grid.

        Args:
            node: its name.
            master: to one of the masters alone, by its place among their ports; to all servers by default.
        """
        if self.kind == "single":
            return [self.links.grid[node]]
        assert self._grid_links is not None, "the plan has faults of these links"
        ports = sorted(self.masters)
        return self._grid_links.of(node, None if master is None or not ports else ports[master % len(ports)])

    def node_link(self, pair: str) -> list[tuple[FaultProxy, dict[Way, Way]]]:
        """Return the proxies between two nodes; see ``NodeLinks.between``."""
        assert self._node_links is not None, "the plan has faults of these links"
        return self._node_links.between(pair)

    def proxies(self) -> list[FaultProxy]:
        """Return the proxies on all links, those between nodes and the grid and between nodes too."""
        return [*self.links, *(self._grid_links or ()), *(self._node_links or ())]

    @property
    def balancer(self) -> ManagedProcess:
        """The HAProxy."""
        assert self.stack.balancer is not None, "the target has a HAProxy"
        return self.stack.balancer

    @property
    def replicated(self) -> ReplicatedGrid:
        """The grid with replicas."""
        assert self._replicated is not None, "the grid has replicas"
        return self._replicated

    def pids(self) -> dict[str, int]:
        """Tell the process ids of the nodes that run, by name."""
        return {name: process.pid for name, process in self.stack.nodes.items() if process.running}

    # --- Nodes ----------------------------------------------------------------------------------------------------

    async def ready(self, node: str) -> None:
        """Wait until a node is ready, which it is not while its grid is unreachable.

        Raises:
            NotHealed: it is not in time.
        """
        began, late = self.now(), False

        async def is_ready_or_late() -> bool:
            nonlocal late
            if await admin.answers_ok(self.stack.admin_url(node, "/readyz")):
                return True
            # How long Redis takes to replace a master is not the node's matter; faults of it have deadlines as well.
            since = max(began, self._replaced, self.grid_away)
            late = not self._replacing and self.now() > since + scaled(READY)
            return late

        if not await self._holds(is_ready_or_late, READY + REPLACED) or late:
            raise NotHealed(f"{node} is not ready {READY:g} s after its fault has ended")

    async def back(self, node: str) -> None:
        """Start a node that does not run, and wait until it is ready.

        Raises:
            NotHealed: it is not in time.
        """
        self.stack.launch_node(node)
        await self.ready(node)

    async def kill(self, node: str) -> None:
        """Kill a node with SIGKILL."""
        await self.stack.kill_node(node)
        self.node_ended(node)

    async def drain(self, node: str) -> None:
        """Drain a node.

        Raises:
            NotHealed: it does not end, or not cleanly.
        """
        try:
            code = await self.stack.drain_node(node, timeout=scaled(DRAINED))
        except ProcessFailed as failed:
            await self.kill(node)
            raise NotHealed(f"{node} did not end {DRAINED:g} s after SIGTERM") from failed
        self.node_ended(node)
        if code:
            raise NotHealed(f"{node} ended with exit code {code} after SIGTERM")

    async def move_sessions(self, node: str, count: int) -> None:
        """Have an administrator move some sessions to a node; it may be refused, as a node is away for example."""
        headers = {"Authorization": f"Bearer {self.stack.admin_token_file.read_text().strip()}"}
        async with aiohttp.ClientSession(headers=headers, timeout=MOVE) as http:
            for session in self.live_sessions()[:count]:
                url = self.stack.admin_url(node, f"/v1/sessions/{session}/move")
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with http.post(url, json={"node": node}) as answer:
                        await answer.read()

    # --- The grid -------------------------------------------------------------------------------------------------

    async def command(self, *words: str) -> Any:
        """Send a command to the one Redis."""
        client = redis.asyncio.Redis.from_url(self.stack.grid_url, socket_timeout=ANSWER)
        try:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]
        finally:
            await client.aclose()

    async def save(self) -> None:
        """Keep a copy of the data of every Redis, to roll back to."""
        if self._replicated is not None:
            began = self.now()
            await self._replicated.save()
            self.saved_at = began
            return
        self._saves += 1
        name, began = f"copy-{self._saves % 2}", self.now()
        await self.stack.save_grid(name)
        self.saved, self.saved_at = name, began

    def set_clock(self, seconds: int) -> None:
        """Set the clock of all Redis so many seconds ahead of the right time; 0 sets it right."""
        assert self._clock is not None, "Redis was started with a clock of its own"
        self._clock.set(seconds)
        if not any(self._has_seen_the_clock(process) for process in self.stack.nodes.values()):
            # Nobody can tell by how much it was set: windows that run are longer or shorter by that (ADR 0034).
            self.clock_unknown = self.now()
        before, self._clock_set = self._clock_set, (self.now(), seconds) if seconds else None
        if before is not None:
            self.clock_off.append(Off(before[0], self.now(), before[1]))

    @staticmethod
    def _has_seen_the_clock(node: ManagedProcess) -> bool:
        try:
            return node.running and time.time() - psutil.Process(node.pid).create_time() > SEEN
        except psutil.NoSuchProcess:
            return False

    async def clock_shifts(self) -> dict[str, float]:
        """Tell by how many seconds each node takes the clock of Redis to be ahead."""
        found = {}
        for node in self.stack.node_names:
            with suppress(*admin.UNREACHABLE):
                found[node] = (await self.stack.metrics(node))["gateway_grid_clock_shift_seconds"]
        return found

    @asynccontextmanager
    async def grid_changes(self) -> AsyncIterator[None]:
        """Note that Redis is replaced meanwhile."""
        self.lineage += 1
        yield
        self.lineage += 1

    @asynccontextmanager
    async def tail_is_lost(self, kept: float | None = None) -> AsyncIterator[Loss]:
        """Note that a Redis is replaced by one that may lack its last moments.

        Args:
            kept: when the data was written that is left, if that is older than its last moments.

        Yields:
            What is lost, which may turn out to be more.
        """
        began = self.now()
        lost = Loss(began if kept is None else kept)
        self._replacing += 1
        try:
            async with self.grid_changes():
                yield lost
        finally:
            self._replacing -= 1
            self._replaced = self.now()
        self.forgotten(Forgotten(began, self._replaced, lost.kept))

    @asynccontextmanager
    async def grid_forgets(self, kept: float = NOTHING) -> AsyncIterator[None]:
        """Note that Redis loses data meanwhile; what it holds is read before.

        Args:
            kept: when the data was written that is left; nothing is by default.
        """
        await self.about_to_forget()
        async with self.tail_is_lost(kept):
            yield

    # --- The end --------------------------------------------------------------------------------------------------

    async def healed(self, within: float) -> list[str]:
        """Wait until everything works, after all faults have ended.

        Returns:
            What does not.
        """
        wrong = []
        for name, process in self.stack.nodes.items():
            if not process.running:
                wrong.append(f"{name} does not run: {process!r}")
        deadline = time.monotonic() + scaled(within)
        for node in self.stack.node_names:
            left = max(deadline - time.monotonic(), 1.0) / scaled(1.0)
            if not await self._holds(lambda node=node: admin.answers_ok(self.stack.admin_url(node, "/readyz")), left):  # type: ignore[misc]
                wrong.append(f"{node} is not ready")
        everybody = set(self.stack.node_names)

        async def balanced() -> bool:
            return await self.stack.nodes_up() == everybody

        if not await self._holds(balanced, READY):
            wrong.append(f"HAProxy sees {sorted(await self.stack.nodes_up())}")
        return wrong

    async def _holds(self, condition: Callable[[], Awaitable[bool]], within: float) -> bool:
        try:
            await eventually(condition, "", within=within)
        except AssertionError:
            return False
        return True


async def _nothing_to_read() -> None:
    """Nobody keeps an account."""


@asynccontextmanager
async def running(
    kind: str,
    folder: Path,
    *,
    clocked: bool = False,
    linked: bool = False,
    parted: bool = False,
    mirror: str = OFF,
) -> AsyncIterator[Target]:
    """Start a cluster on a grid of a kind, and stop it at the end.

    Args:
        kind: ``single``, ``sentinel`` or ``cluster``.
        folder: for data and logs.
        clocked: whether Redis gets a clock that can be set; it looks into a file then whenever it needs the time.
        linked: whether nodes reach a grid with replicas through proxies; they always do with one Redis.
        parted: whether nodes reach each other through proxies.
        mirror: whether each node has another one that keeps copies of its sessions, and whether it waits for that.

    Raises:
        Stuck: it did not stop in time.
    """
    clock = Clock() if clocked else None
    environment = {} if clock is None else clock.environment
    async with AsyncExitStack() as exits:
        replicated: ReplicatedGrid | None = None
        if kind != "single":
            replicated = exits.enter_context(replicated_grid(kind, environment, folder / "logs"))
        links: GridLinks | None = None
        if replicated is not None and linked:
            links = await exits.enter_async_context(grid_links(NODES, replicated.ports))
        between = await exits.enter_async_context(node_links(NODES)) if parted else None
        settings = SETTINGS | ({} if mirror == OFF else {"backup": "auto", "mirror": mirror})
        if between is not None:
            settings["link"] = between.address
        led = [each.environment() for each in (links, between) if each is not None]
        opened = cluster(
            folder,
            link_proxies=True,
            grid_url="" if replicated is None else replicated.url,
            grid_environment=environment,
            node_environment={node: preloaded.merged(*(each[node] for each in led)) for node in NODES},
            destinations=declare(folder),
            **settings,
        )
        stack = await exits.enter_async_context(stopped_in_time(opened))
        yield Target(stack, replicated, kind, clock=clock, grid_links=links, node_links=between)


@asynccontextmanager
async def stopped_in_time(opened: AbstractAsyncContextManager[Stack], within: float = STOPPED) -> AsyncIterator[Stack]:
    """Start a cluster, and stop it at the end, but do not wait for that for ever.

    Args:
        opened: starts and stops it.
        within: seconds on a quiet machine.

    Raises:
        Stuck: it did not stop in time. Its processes were killed; the message says which, and what was waited for.
    """
    stack = await opened.__aenter__()
    try:
        yield stack
    finally:
        try:
            await bounded(opened.__aexit__(None, None, None), "stopping the cluster", within)
        except Stuck as stuck:
            killed = ", ".join(stack.kill_now()) or "none"
            raise Stuck(f"{stuck}; processes that still ran, and were killed: {killed}") from None
