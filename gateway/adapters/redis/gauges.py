"""What the masters of the grid say of themselves: memory, processor time, disk, replicas.

A node asks over the connection that it has anyway. Every node tells all of it, so that there is an answer as long as
any node lives; whoever adds nodes up takes the maximum over them.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from gateway.adapters.redis.adoption import facts_of
from gateway.adapters.redis.batcher import ScriptFailed, abandon
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.scripts import Command
from gateway.catalogue.metric import Metric
from gateway.catalogue.metrics import (
    GRID_CLIENTS,
    GRID_COMMANDS,
    GRID_CPU_SECONDS,
    GRID_EVICTED_KEYS,
    GRID_MEMORY_BYTES,
    GRID_MEMORY_LIMIT_BYTES,
    GRID_PERSISTENCE_OK,
    GRID_REPLICAS,
)
from gateway.ports import GridState, GridUnavailable, Metrics

ASK_INTERVAL: Final = 10.0
"""Seconds between two questions: as often as Prometheus usually looks. An answer takes Redis a tenth of a millisecond,
so that a hundred nodes take a thousandth of its time."""

ONLY_MASTER: Final = "only"
"""Names the master of a grid that is one Redis: nodes know it by its URL, which may hold a password."""

_QUESTION: Final[Command] = ("INFO", "clients", "memory", "persistence", "stats", "replication", "cpu")


def _number(name: str) -> Callable[[Mapping[str, str]], float]:
    return lambda facts: float(facts[name])


def _persists(facts: Mapping[str, str]) -> float:
    """1 if the last write of each kind that Redis has tried has succeeded; what was never tried says ``ok``."""
    return float(all(facts[name] == "ok" for name in ("aof_last_write_status", "rdb_last_bgsave_status")))


def _processor(facts: Mapping[str, str]) -> float:
    return float(facts["used_cpu_sys"]) + float(facts["used_cpu_user"])


_FIGURES: Final[Mapping[Metric, Callable[[Mapping[str, str]], float]]] = {
    GRID_MEMORY_BYTES: _number("used_memory"),
    GRID_MEMORY_LIMIT_BYTES: _number("maxmemory"),
    GRID_CLIENTS: _number("connected_clients"),
    GRID_REPLICAS: _number("connected_slaves"),
    GRID_PERSISTENCE_OK: _persists,
    GRID_COMMANDS: _number("total_commands_processed"),
    GRID_CPU_SECONDS: _processor,
    GRID_EVICTED_KEYS: _number("evicted_keys"),
}


class ServerGauges:
    """Keeps the figures of all masters fresh.

    Args:
        grid: to the masters.
        metrics: where the figures are shown; those of a master that does not answer are not.
    """

    def __init__(self, grid: GridConnection, metrics: Metrics) -> None:
        self._grid = grid
        self._metrics = metrics
        self._told: dict[str, Mapping[str, str]] = {}
        self._watched: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask from now on, whenever the grid is there; once is enough."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="grid-gauges")

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            await abandon([self._task])
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._grid.attached()
            await self._ask()
            # Nodes that were started together need not ask together.
            await asyncio.sleep(ASK_INTERVAL * random.uniform(0.9, 1.1))  # noqa: S311 - jitter, not a secret

    async def _ask(self) -> None:
        attached = await self._grid.attached()
        told: dict[str, Mapping[str, str]] = {}
        for member, batcher in zip(attached.members, self._grid.batcher.batchers, strict=False):
            # Whoever needs the grid finds out that it is unreachable; a Redis that withholds INFO is no worse a grid.
            with suppress(GridUnavailable, ScriptFailed):
                told[member.label or ONLY_MASTER] = facts_of(await batcher.call(_QUESTION))
        self._told = told
        for master in told.keys() - self._watched:
            self._watched.add(master)
            for metric, read in _FIGURES.items():
                self._metrics.watch(metric, lambda master=master, read=read: self._read(master, read), label=master)  # type: ignore[misc]

    def _read(self, master: str, read: Callable[[Mapping[str, str]], float]) -> float:
        facts = self._told.get(master) if self._grid.state is GridState.UP else None
        return math.nan if facts is None else read(facts)
