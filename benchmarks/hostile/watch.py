"""Looks at the attacked node from outside: its health checks, its lease, its memory, and what HAProxy holds of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import redis.asyncio
import redis.exceptions

import lb.names
from benchmarks.hostile.socket_queues import socket_queues
from benchmarks.hostile.stack import ATTACKED, OTHER
from benchmarks.hostile.target import ATTACKER, HOST
from benchmarks.measure import main_thread_cpu, process_cpu, process_waited, resident_bytes
from benchmarks.processes import family
from gateway.adapters.redis.keys import Keys
from gateway.catalogue.log_events import LEASE_EXPIRED, LEASE_LOST
from gateway.local import admin
from gateway.local.stack import Stack
from gateway.settings import SETTINGS

CHECK_EVERY: Final = 0.25
"""Seconds between two questions for /readyz."""

CHECK_PATIENCE: Final = 2.0
"""Seconds for one answer. HAProxy waits for one by default, and holds a node for dead only after several."""

LOOK_EVERY: Final = 0.1
"""Seconds between two looks at the node's memory."""

LEASE_EVERY: Final = 0.25
"""Seconds between two looks at its lease in Redis."""

QUEUES_EVERY: Final = 0.25
"""Seconds between two looks at what the node has not read: with thousands of connections one takes milliseconds."""

_END: Final = 5.0
"""Seconds for a look that is under way when the watch ends."""

_MILLISECONDS: Final = 1e3


@dataclass
class Sight:
    """What was seen. Times are seconds of the monotonic clock.

    Attributes:
        checks: when each /readyz was asked, how long the answer took, and its status; 0 if there was none in time.
        resident: when it was looked at, and bytes of the node.
        leases: when it was looked at, and how many seconds of the lease were left; below 0 if it had expired.
        down: when HAProxy's word for the node was another than UP.
        kept_busy: when it was looked at, how many connections the attacker had, and how many kept the node busy: they
            had sent what it had not read, and it did not have to wait for the attacker to read first.
    """

    checks: list[tuple[float, float, int]] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)
    leases: list[tuple[float, float]] = field(default_factory=list)
    down: list[float] = field(default_factory=list)
    kept_busy: list[tuple[float, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Counts:
    """What only grows, read at one moment.

    Attributes:
        cpu: seconds of the node, its child processes included.
        waited: seconds for which the node was ready to run and had to wait for its core, its own threads and child
            processes not being to blame.
        falls: how often HAProxy has taken the node for dead.
        failed_checks: HAProxy's checks that failed.
        leases_lost: how often the node found its lease expired, or the other node did.
        refused_by_redis: commands that Redis has refused for want of memory.
    """

    cpu: float
    waited: float
    falls: int
    failed_checks: int
    leases_lost: int
    refused_by_redis: int = 0


class Watch:
    """Looks at a stack until it is told to stop."""

    def __init__(self, stack: Stack, peers: Collection[str] = (ATTACKER,)) -> None:
        """Describe a watch.

        Args:
            stack: that is looked at.
            peers: addresses from which the node is attacked, as it sees them.
        """
        self._stack = stack
        self._peers = peers
        self._pid = stack.nodes[ATTACKED].pid
        self._over = False
        self.sight = Sight()

    async def counts(self) -> Counts:
        """Read what only grows."""
        return Counts(
            cpu=(cpu := sum(map(process_cpu, family(self._pid)))),
            # It does not wait for others while its helpers have the core.
            waited=process_waited(self._pid) - (cpu - main_thread_cpu(self._pid)),
            leases_lost=self._logged(ATTACKED, LEASE_LOST.name) + self._logged(OTHER, LEASE_EXPIRED.name),
            refused_by_redis=await self._refused_by_redis(),
            **await self._balancer_counts(),
        )

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Sight]:
        """Look for the length of the block.

        Raises:
            Exception: something could not be looked at for a reason of its own.
        """
        looks = (self._check(), self._look(), self._lease(), self._balancer(), self._queues())
        tasks = [asyncio.ensure_future(each) for each in looks]
        try:
            yield self.sight
        finally:
            # They end by themselves: a library that swallows a cancellation would be waited for without end.
            self._over = True
            done, stuck = await asyncio.wait(tasks, timeout=_END)
            for each in stuck:
                each.cancel()
        for each in done:
            each.result()

    async def _check(self) -> None:
        """Ask for /readyz by a schedule, each on a connection of its own, as HAProxy does."""
        asking: set[asyncio.Task[None]] = set()
        while not self._over:
            task = asyncio.ensure_future(self._ask())
            asking.add(task)
            task.add_done_callback(asking.discard)
            await asyncio.sleep(CHECK_EVERY)

    async def _ask(self) -> None:
        port = self._stack.options.ports.nodes[ATTACKED].admin
        began, status = time.monotonic(), 0
        try:
            async with asyncio.timeout(CHECK_PATIENCE):
                reader, writer = await asyncio.open_connection(HOST, port)
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                    line = await reader.readline()
                finally:
                    writer.transport.abort()
            words = line.split()
            status = int(words[1]) if len(words) > 1 else 0
        except (OSError, TimeoutError, ValueError):
            pass
        self.sight.checks.append((began, time.monotonic() - began, status))

    async def _look(self) -> None:
        while not self._over:
            self.sight.resident.append((time.monotonic(), resident_bytes(family(self._pid))))
            await asyncio.sleep(LOOK_EVERY)

    async def _queues(self) -> None:
        plan = self._stack.options.ports.nodes[ATTACKED]
        while not self._over:
            queues = socket_queues({plan.listen, plan.admin, plan.agent}, self._peers)
            self.sight.kept_busy.append((time.monotonic(), len(queues), sum(each.keeps_busy for each in queues)))
            await asyncio.sleep(QUEUES_EVERY)

    async def _lease(self) -> None:
        """Read when the lease ends, by the clock of Redis; nothing is noted while Redis does not answer."""
        keys = Keys(str(SETTINGS["grid_prefix"].default))
        async with redis.asyncio.from_url(self._stack.grid_url, socket_timeout=CHECK_PATIENCE) as grid:
            while not self._over:
                try:
                    seconds, micros = await grid.time()
                    now = seconds * _MILLISECONDS + micros / _MILLISECONDS
                    leases: Any = await grid.zrange(keys.leases, 0, -1, withscores=True)
                except (redis.exceptions.RedisError, OSError):
                    pass
                else:
                    ends = [end for member, end in leases if member.decode().startswith(ATTACKED)]
                    left = max(ends) - now if ends else -1.0
                    self.sight.leases.append((time.monotonic(), left / _MILLISECONDS))
                await asyncio.sleep(LEASE_EVERY)

    async def _balancer(self) -> None:
        while not self._over:
            if ATTACKED not in await self._stack.nodes_up():
                self.sight.down.append(time.monotonic())
            await asyncio.sleep(CHECK_EVERY)

    async def _balancer_counts(self) -> dict[str, int]:
        values = await admin.read_metrics(self._stack.balancer_metrics_url)
        return {
            "falls": _of_server(values, "haproxy_server_check_up_down_total"),
            "failed_checks": _of_server(values, "haproxy_server_check_failures_total"),
        }

    async def _refused_by_redis(self) -> int:
        async with redis.asyncio.from_url(self._stack.grid_url, socket_timeout=_END) as grid:
            told: dict[str, Any] = await grid.info("errorstats")
        return int(told.get("errorstat_OOM", {}).get("count", 0))

    def _logged(self, node: str, event: str) -> int:
        """Count the lines of a node's log that tell an event."""
        return self._stack.log_of(node).read_text(errors="replace").count(event)


def _of_server(values: Mapping[str, float], metric: str) -> int:
    return int(values[f'{metric}{{proxy="{lb.names.BACKEND}",server="{ATTACKED}"}}'])
