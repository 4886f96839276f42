"""The node's link to the grid: connects, adopts its generation, notices its loss, and comes back by itself (P10).

A connection carries commands only after three things are certain, in this order: the server is a loaded master of a
version that will do; what is left of our previous connection to the same process is cut off, so that a command which
its caller has given up cannot be executed after newer ones; and the grid's generation is adopted and open in every
topic partition. Until then every command fails with ``GridUnavailable``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import Batcher, abandon
from gateway.adapters.redis.dialer import Dialer, abort, converse, discard
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.lease import Leases
from gateway.adapters.redis.scripts import Command
from gateway.catalogue import log_events, metrics
from gateway.core.types import GridGeneration
from gateway.ports import EventLog, GridChange, GridState, GridUnavailable, Metrics

SHORTEST_BACKOFF: Final = 0.05
"""Seconds: first bound of the random delay between attempts to reconnect; a restart of Redis takes about as long."""

LONGEST_BACKOFF: Final = 1.0
"""Seconds: the bound that the delay doubles up to; one attempt a second and node is nothing to Redis."""

OLDEST_REDIS: Final = (7, 0)
"""``XADD key <generation>-*``, on which the numbering of events rests, came with it."""

_REFUSAL_LOG_INTERVAL: Final = 1.0
"""Seconds between log events about refused writes: under ``maxmemory`` every publish is refused."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a Redis process says of itself.

    Attributes:
        run_id: new at every start of the process.
        client: id of our connection there.
    """

    run_id: str
    client: int


class Link:
    """One node's link.

    Args:
        dialer: opens connections.
        keys: names of all keys.
        stream_length: entries that streams keep, about.
        timeout: seconds for each step, connecting included.
        leases: gate of the batcher.
        metrics: where it is measured.
        log: where it is told.

    Attributes:
        batcher: sends commands while the link is up.
        attachment: counts the connections that were adopted, so that a reader of many pages sees a change between two.
    """

    def __init__(
        self,
        *,
        dialer: Dialer,
        keys: Keys,
        stream_length: int,
        timeout: float,
        leases: Leases,
        metrics: Metrics,
        log: EventLog,
    ) -> None:
        self._dialer = dialer
        self._keys = keys
        self._stream_length = stream_length
        self._timeout = timeout
        self._log = log
        self.batcher = Batcher(
            timeout=timeout, leases=leases, metrics=metrics, broken=self._fail, refused=self._write_refused
        )
        self.attachment = 0
        self._generation = GridGeneration(0)
        self._state = GridState.AWAY
        self._server: Server | None = None
        self._connection: AbstractConnection | None = None
        self._forsaken: list[Server] = []
        self._changes: asyncio.Queue[GridChange] = asyncio.Queue()
        self._forgetful: list[Callable[[], None]] = []
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._away_since: float | None = None
        self._refusal_logged = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._discarding: set[asyncio.Task[None]] = set()
        self._watch(metrics)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GridState:
        """Whether commands are accepted now."""
        return self._state

    @property
    def generation(self) -> GridGeneration:
        """The newest generation adopted; 0 before the first."""
        return self._generation

    @property
    def stream_length(self) -> int:
        """Entries that streams keep, about."""
        return self._stream_length

    @property
    def run_id(self) -> str | None:
        """Of the Redis process that is adopted, None before the first."""
        return None if self._server is None else self._server.run_id

    async def wait_until_up(self) -> None:
        """Wait until commands are accepted."""
        await self._up.wait()

    def when_writes_are_lost(self, tell: Callable[[], None]) -> None:
        """Have *tell* called when the grid is back as one that may have lost writes, before it accepts commands."""
        self._forgetful.append(tell)

    async def changes(self) -> AsyncIterator[GridChange]:
        """Yield each change of state after ``start``; for one listener."""
        while True:
            yield await self._changes.get()

    def suspect(self, why: str) -> None:
        """Something does not fit the adopted grid: give the connection up, adopt again, and see."""
        if self._state is GridState.UP:
            self._fail(GridUnavailable(why))

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and adopt.

        Raises:
            GridUnavailable: that failed; it is tried again in the background.
        """
        self._task = asyncio.create_task(self._stay_connected(), name="grid-link")
        try:
            await self._connect()
        except (RedisError, OSError, GridUnavailable) as error:
            self._mark_away(error)
            self._down.set()
            raise GridUnavailable(f"the grid cannot be reached: {error}") from error

    async def close(self) -> None:
        """Let what was started finish within the time limit, then disconnect for good."""
        if self._state is GridState.UP:
            try:
                async with asyncio.timeout(self._timeout):
                    await self.batcher.drain()
            except TimeoutError:
                pass
        if self._task is not None:
            await abandon([self._task])
        self._state = GridState.AWAY
        self._up.clear()
        self.batcher.shut(GridUnavailable("this node has closed its link to the grid"))
        connection, self._connection = self._connection, None
        if connection is not None:
            await discard(connection)
        if self._discarding:
            await asyncio.wait(self._discarding)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _watch(self, sink: Metrics) -> None:
        sink.watch(metrics.GRID_UP, lambda: float(self._state is GridState.UP))
        sink.watch(metrics.GRID_GENERATION, lambda: float(self._generation))

    async def _stay_connected(self) -> None:
        while True:
            await self._down.wait()
            bound = SHORTEST_BACKOFF
            while self._down.is_set():
                await asyncio.sleep(random.uniform(0, bound))  # noqa: S311 - jitter, not a secret
                bound = min(2 * bound, LONGEST_BACKOFF)
                try:
                    await self._connect()
                except (RedisError, OSError, GridUnavailable) as error:
                    self._mark_away(error)
                except Exception as error:  # noqa: BLE001 - the link must outlive its own bugs
                    self._log.emit(log_events.BACKGROUND_TASK_FAILED, task="grid-link", error=error)

    async def _connect(self) -> None:
        connection = await self._dialer.dial()
        try:
            async with asyncio.timeout(self._timeout):
                server = await self._greet(connection)
                await self._prepare(connection, server)
                generation = await self._adopt(connection, server)
        except BaseException:
            await discard(connection)
            raise
        self._go_up(connection, server, generation)

    async def _greet(self, connection: AbstractConnection) -> Server:
        about, replication, persistence, client = await converse(
            connection, [("INFO", "server"), ("INFO", "replication"), ("INFO", "persistence"), ("CLIENT", "ID")]
        )
        facts = _facts(about) | _facts(replication) | _facts(persistence)
        version = tuple(int(part) for part in facts["redis_version"].split(".")[:2])
        if version < OLDEST_REDIS:
            raise GridUnavailable(f"Redis {facts['redis_version']} is too old, 7.0 or newer is needed")
        if facts.get("role") != "master":
            raise GridUnavailable("this Redis is a replica and takes no writes")
        if facts.get("loading") == "1":
            raise GridUnavailable("Redis is loading its data")
        return Server(facts["run_id"], client)

    async def _prepare(self, connection: AbstractConnection, server: Server) -> None:
        """Cut off what is left of earlier connections, and load the scripts."""
        commands: list[Command] = [
            ("CLIENT", "KILL", "ID", old.client) for old in self._forsaken if old.run_id == server.run_id
        ]
        commands += [("SCRIPT", "LOAD", each.text) for each in scripts.SCRIPTS]
        await converse(connection, commands)

    async def _adopt(self, connection: AbstractConnection, server: Server) -> GridGeneration:
        keys = self._keys
        known: int = self._generation
        known_from = self.run_id or ""
        while True:
            adopt = scripts.ADOPT(
                *(keys.grid, keys.leases, keys.members, keys.renewed, keys.takeovers), server.run_id, known, known_from
            )
            (generation,) = await converse(connection, [adopt])
            opened = await converse(
                connection, [scripts.SEAL(stream, generation, self._stream_length) for stream in keys.stream]
            )
            known = max(opened)
            if known == generation:
                return GridGeneration(generation)
            # A stream knows more: another node adopts at this moment, or the grid lost only a part of its keys.
            known_from = ""

    def _go_up(self, connection: AbstractConnection, server: Server, generation: GridGeneration) -> None:
        lost_writes = self._generation not in {0, generation}
        self._connection, self._server, self._generation = connection, server, generation
        self._forsaken.clear()
        self.attachment += 1
        self._state = GridState.UP
        self._down.clear()
        if lost_writes:
            for tell in self._forgetful:
                tell()
        self.batcher.open(connection)
        self._up.set()
        if self._away_since is not None:
            away = asyncio.get_running_loop().time() - self._away_since
            self._away_since = None
            self._log.emit(
                log_events.GRID_BACK, generation=generation, lost_writes=lost_writes, away_seconds=round(away, 3)
            )
            self._changes.put_nowait(GridChange(GridState.UP, generation, lost_writes))

    def _fail(self, error: Exception) -> None:
        """The connection is of no more use: tell everybody, once, and come back."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._state = GridState.AWAY
        self._up.clear()
        if self._server is not None:
            self._forsaken.append(self._server)
        abort(connection)
        self._changes.put_nowait(GridChange(GridState.AWAY, self._generation))
        self._mark_away(error)
        self.batcher.shut(GridUnavailable(f"the grid is away: {error}"))
        task = asyncio.create_task(discard(connection), name="grid-discard")
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)
        self._down.set()

    def _mark_away(self, error: Exception) -> None:
        if self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
            self._log.emit(log_events.GRID_AWAY, error=str(error) or type(error).__name__)

    def _write_refused(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._refusal_logged >= _REFUSAL_LOG_INTERVAL:
            self._refusal_logged = now
            self._log.emit(log_events.GRID_WRITE_REFUSED, error=why)


def _facts(info: Any) -> dict[str, str]:
    """Read what INFO answers."""
    lines = info.decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
