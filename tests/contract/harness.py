"""What the contract suite needs of an implementation of the grid beyond the port: time, faults and inventory."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryGrid, MemoryGridServer, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.adapters.redis.grid import DEFAULT_TIMEOUT
from gateway.adapters.redis.keys import JOURNAL_TAGS, Keys
from gateway.core.types import Incarnation, NodeId, NodeRef, SessionId
from gateway.local.proxy import FaultProxy, Way
from gateway.ports import Grid, GridState, GridUnavailable
from gateway.settings.values import HostPort
from tests.support.clock import VirtualClock, eventually
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinels
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.redis_user import as_user
from tests.support.times import scaled

T = TypeVar("T")

LONG: Final = 600.0
"""A window, lease or right that never runs out during a test, in seconds of the grid's clock."""

STREAM_LENGTH: Final = 100
"""Entries kept per topic partition in this suite; small, so that tests can trim."""

STREAM_BYTES: Final = 1024 * 1024
"""Bytes kept per topic partition in this suite: a test with large values can trim by them, all others do not."""

TRIMMED_AFTER: Final = 5 * STREAM_LENGTH
"""Publishes after which the first ones are gone for sure, though Redis trims only whole nodes of about 100 entries."""

HISTORY_BYTES: Final = 256 * 1024
"""Bytes kept of the histories of a topic partition in this suite."""

JOURNAL_LENGTH: Final = 8
"""Entries kept per stream of the journal in this suite."""

NOBODY: Final = SessionId("nobody")
"""A session that no test creates."""

_PUBLISHES_BEFORE_CUT: Final = 7
_BYTES_BEFORE_CUT: Final = 75_000
"""Where a call of some dozens of publishes of 4 KB each is cut: after several, before most. A step of the grid takes
some 64 KiB of them."""

_CONNECTIONS: Final = 2
"""Connections of a ``RedisGrid`` to each master: one for commands, one for streams."""


def node(name: str, run: str = "first") -> NodeRef:
    """Make a node reference."""
    return NodeRef(NodeId(name), Incarnation(run))


@dataclass(frozen=True)
class JournalView:
    """What the grid holds of one partition of the journal.

    Attributes:
        incarnation: of the partition; empty if there is nothing of it.
        entries: id, number of events and events of each.
        lost: events that were cut before the reader had them.
        unclaimed: events that were cut while there was no reader.
    """

    incarnation: str = ""
    entries: tuple[tuple[tuple[int, int], int, bytes], ...] = ()
    lost: int = 0
    unclaimed: int = 0


class Harness(ABC):
    """One grid under test, to which any number of nodes connect.

    Attributes:
        short: a window or lease that a test lets run out, in seconds of the grid's clock.
        roomy: one that it lets run out only after some steps that must come in time, also on a busy machine.
    """

    short: float
    roomy: float

    def __init__(self) -> None:
        self._grids: list[Grid] = []

    async def grid(self, name: str = "n1", run: str = "first") -> Grid:
        """Connect a node and start."""
        grid = await self.unstarted(name, run)
        await grid.start()
        return grid

    async def unstarted(self, name: str = "n1", run: str = "first") -> Grid:
        """Make a node's connection that is not started; closed at the end of the test."""
        grid = await self._connect(node(name, run))
        self._grids.append(grid)
        return grid

    async def close(self) -> None:
        """Close everything."""
        await asyncio.gather(*(grid.close() for grid in self._grids))

    async def up(self, grid: Grid) -> None:
        """Wait until a grid accepts commands."""
        await eventually(lambda: grid.state is GridState.UP, message="the grid is up again")

    async def asked_again(self, grid: Grid, call: Callable[[], Awaitable[T]]) -> T:
        """Have *call* executed and its answer lost, then ask again when the grid is back, and return that answer."""
        await self.lose_next_answer(grid)
        with pytest.raises(GridUnavailable):
            await call()
        await self.up(grid)
        return await call()

    @abstractmethod
    async def _connect(self, ref: NodeRef) -> Grid: ...

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let the grid's clock go on by at least *seconds*."""

    @abstractmethod
    async def lose_next_answer(self, grid: Grid) -> None:
        """Arrange that the next call of *grid* is executed and its answer lost."""

    @abstractmethod
    async def cut_next_publish(self, grid: Grid) -> None:
        """Arrange that of the next publish call of *grid* only a part is executed, and its answer lost."""

    @abstractmethod
    async def cut(self, grid: Grid) -> None:
        """Break the connection of one node until ``mend``."""

    @abstractmethod
    async def mend(self, grid: Grid) -> None:
        """End ``cut``."""

    @abstractmethod
    async def stall(self) -> None:
        """Let calls wait without an answer until ``flow``."""

    @abstractmethod
    async def flow(self) -> None:
        """End ``stall``."""

    @abstractmethod
    async def go_away(self) -> None:
        """Let no node reach the grid."""

    @abstractmethod
    async def come_back(self, *, restarted: bool = False, emptied: bool = False, snapshot: Any = None) -> None:
        """End ``go_away``: as the same run, another run with all data, without data, or with those of *snapshot*."""

    @abstractmethod
    async def restart(self, *grids: Grid, snapshot: Any = None) -> None:
        """Restart, with all data or those of *snapshot*, and wait for *grids*; others may be cut off."""

    @abstractmethod
    async def flush(self) -> None:
        """Delete all data, of every prefix, under the open connections of a running grid."""

    @abstractmethod
    async def snapshot(self) -> Any:
        """Copy the grid's data."""

    @abstractmethod
    async def journal(self, partition: int) -> JournalView:
        """Look into a partition of the journal."""

    @abstractmethod
    async def commit_journal(self, partition: int, entry: tuple[int, int]) -> None:
        """Note, as the reader does, that it needs nothing any more up to *entry*."""

    @abstractmethod
    async def inventory(self) -> set[str]:
        """Name everything that belongs to a session or a node; values and streams of topics stay and do not count."""


START_OF_TIME = 1_700_000_000.0
"""When the virtual clock began, in seconds since 1970."""


class MemoryHarness(Harness):
    """The in-memory grid on a virtual clock."""

    short = 10.0
    roomy = 100.0

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.server = MemoryGridServer(
            now=self.clock,
            wall=lambda: START_OF_TIME + self.clock(),
            stream_length=STREAM_LENGTH,
            stream_bytes=STREAM_BYTES,
            history_bytes=HISTORY_BYTES,
            journal_length=JOURNAL_LENGTH,
        )

    async def _connect(self, ref: NodeRef) -> Grid:
        return MemoryGrid(self.server, node=ref)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def lose_next_answer(self, grid: Grid) -> None:
        self.server.lose_answers()

    async def cut_next_publish(self, grid: Grid) -> None:
        self.server.lose_answers(publishes=_PUBLISHES_BEFORE_CUT)

    async def cut(self, grid: Grid) -> None:
        assert isinstance(grid, MemoryGrid)
        grid.cut()

    async def mend(self, grid: Grid) -> None:
        assert isinstance(grid, MemoryGrid)
        grid.mend()

    async def stall(self) -> None:
        self.server.stall()

    async def flow(self) -> None:
        self.server.flow()

    async def go_away(self) -> None:
        self.server.go_away()

    async def come_back(self, *, restarted: bool = False, emptied: bool = False, snapshot: Any = None) -> None:
        self.server.come_back(restarted=restarted, emptied=emptied, snapshot=snapshot)

    async def restart(self, *grids: Grid, snapshot: Any = None) -> None:
        self.server.come_back(restarted=True, snapshot=snapshot)

    async def flush(self) -> None:
        self.server.flush()

    async def snapshot(self) -> Any:
        return self.server.snapshot()

    async def journal(self, partition: int) -> JournalView:
        held = self.server.journal(partition)
        if held is None:
            return JournalView()
        entries = tuple((each.id, each.count, each.events) for each in held.entries)
        return JournalView(held.incarnation, entries, held.lost, held.unclaimed)

    async def commit_journal(self, partition: int, entry: tuple[int, int]) -> None:
        held = self.server.journal(partition)
        assert held is not None
        held.committed = entry

    async def inventory(self) -> set[str]:
        return {name for name in self.server.inventory() if not name.startswith(("value of", "stream ", "journal "))}


Servers: TypeAlias = RedisServer | RedisSentinels | RedisCluster
"""What a ``RedisHarness`` may run on."""


class RedisHarness(Harness):
    """A real Redis, master of Sentinels or Redis Cluster, each node behind proxies of its own, on real time.

    Args:
        servers: running; restarted only by tests that use ``come_back``.
    """

    short = scaled(0.25)
    roomy = scaled(2.0)

    _LASTING = (
        *("grid", "renewed", "opened", "values", "sizes", "stream", "removed", "revocations", "revoked", "revisions"),
        *("journal", "journal-state", "logs", "log-marks"),
        *("destinations", "destination-news", "zones", "zone-news", "interest-news", "origins"),
        *("exchange-state", "exchanges", "watched"),
        "lost",  # goes away by itself
    )
    """Last parts of the names of keys that stay, see ``gateway.adapters.redis.keys``."""

    def __init__(self, servers: Servers) -> None:
        super().__init__()
        self.servers = servers
        self.prefix = unique_prefix()
        self.log = MemoryEventLog()
        self._proxies: dict[NodeRef, dict[int, FaultProxy]] = {}
        self._proxies_of: dict[int, dict[int, FaultProxy]] = {}
        self._name_of: dict[int, str] = {}

    @property
    def _redis(self) -> list[RedisServer]:
        """The servers that hold data."""
        match self.servers:
            case RedisSentinels() as sentinels:
                return sentinels.redis
            case RedisCluster() as cluster:
                return list(cluster.nodes)
            case single:
                return [single]

    async def _connect(self, ref: NodeRef) -> Grid:
        proxies = self._proxies.setdefault(ref, {})
        for server in self._redis:
            if server.port not in proxies:
                proxies[server.port] = FaultProxy("127.0.0.1", server.port)
                await proxies[server.port].start()

        def remap(address: HostPort) -> HostPort:
            proxy = proxies.get(address.port)
            return address if proxy is None else HostPort("127.0.0.1", proxy.port)

        url = self.servers.url
        if isinstance(self.servers, RedisServer):
            url = f"redis://127.0.0.1:{proxies[self.servers.port].port}/0"
        grid = RedisGrid(
            as_user(url),
            prefix=self.prefix,
            node=ref,
            metrics=MemoryMetrics(),
            log=self.log,
            timeout=scaled(DEFAULT_TIMEOUT),
            stream_length=STREAM_LENGTH,
            stream_bytes=STREAM_BYTES,
            history_bytes=HISTORY_BYTES,
            journal_length=JOURNAL_LENGTH,
            remap=remap,
        )
        self._proxies_of[id(grid)] = proxies
        self._name_of[id(grid)] = ref.node
        return grid

    def _all_proxies(self) -> list[FaultProxy]:
        return [proxy for proxies in self._proxies.values() for proxy in proxies.values()]

    async def close(self) -> None:
        await super().close()
        await asyncio.gather(*(proxy.stop() for proxy in self._all_proxies()))

    async def advance(self, seconds: float) -> None:
        start = await self._time()

        async def passed() -> bool:
            return await self._time() >= start + seconds

        # It is time itself that is waited for: Redis has no other clock.
        await asyncio.sleep(seconds)
        await eventually(passed, message="the clock of Redis goes on")

    async def lose_next_answer(self, grid: Grid) -> None:
        await self._readers_idle(grid)
        # Nobody knows which master will be asked. A cut at one of them is enough to lose them all, and the others' are
        # used up by the attempts to come back.
        for proxy in self._proxies_of[id(grid)].values():
            proxy.cut_after(0, Way.DOWN)

    async def _readers_idle(self, grid: Grid) -> None:
        proxies = self._proxies_of[id(grid)]

        async def reader_waits(server: RedisServer) -> bool:
            # The reader of streams dials by itself after the start: the answer to lose must not be one to it.
            clients = (await server.call("CLIENT", "LIST")).decode().splitlines()
            ours = [each for each in clients if f"name=gateway-{self._name_of[id(grid)]} " in each]
            idle = [each for each in ours if re.search(r" cmd=(client\|id|client\|tracking|xread) ", each)]
            return proxies[server.port].connections == len(ours) == _CONNECTIONS and bool(idle)

        async def readers_wait() -> bool:
            return all([await reader_waits(server) for server in self._redis])

        await eventually(readers_wait, message="both connections of the node are there and idle")
        await grid.sessions.find(NOBODY)

    async def cut_next_publish(self, grid: Grid) -> None:
        await self._readers_idle(grid)
        for proxy in self._proxies_of[id(grid)].values():
            proxy.cut_after(_BYTES_BEFORE_CUT, Way.UP)

    async def cut(self, grid: Grid) -> None:
        for proxy in self._proxies_of[id(grid)].values():
            proxy.refuse()
            proxy.cut()
        await eventually(lambda: grid.state is GridState.UNREACHABLE, message="the node notices that it is cut off")

    async def mend(self, grid: Grid) -> None:
        for proxy in self._proxies_of[id(grid)].values():
            await proxy.start()
        await self.up(grid)

    async def stall(self) -> None:
        for proxy in self._all_proxies():
            proxy.stall()

    async def flow(self) -> None:
        for proxy in self._all_proxies():
            proxy.flow()

    async def go_away(self) -> None:
        for proxy in self._all_proxies():
            proxy.refuse()
            proxy.cut()
        await eventually(lambda: all(grid.state is GridState.UNREACHABLE for grid in self._grids))

    async def come_back(self, *, restarted: bool = False, emptied: bool = False, snapshot: Any = None) -> None:
        if restarted or emptied or snapshot is not None:
            await self.servers.restart(emptied=emptied, snapshot=snapshot)
        for proxy in self._all_proxies():
            await proxy.start()
        await asyncio.gather(*(self.up(grid) for grid in self._grids))

    async def restart(self, *grids: Grid, snapshot: Any = None) -> None:
        self.servers.kill()
        await eventually(lambda: all(grid.state is GridState.UNREACHABLE for grid in grids))
        await self.servers.restart(snapshot=snapshot)
        await asyncio.gather(*(self.up(grid) for grid in grids))

    async def flush(self) -> None:
        match self.servers:
            case RedisSentinels() as sentinels:
                masters = [await asyncio.to_thread(sentinels.master)]
            case RedisCluster() as cluster:
                masters = [*await asyncio.to_thread(cluster.masters)]
            case single:
                masters = [single]
        for server in masters:
            await server.call("FLUSHALL")

    async def snapshot(self) -> Any:
        return await self.servers.snapshot()

    async def journal(self, partition: int) -> JournalView:
        keys = Keys(self.prefix)
        state = await self._call_for(partition, "HGETALL", keys.journal_state[partition])
        found = await self._call_for(partition, "XRANGE", keys.journal[partition], "-", "+")
        entries = []
        for name, fields in found:
            generation, sequence = name.decode().split("-")
            entries.append(((int(generation), int(sequence)), int(fields[b"count"]), fields[b"events"]))
        held = {name.decode(): value.decode() for name, value in state.items()}
        lost, unclaimed = (int(held.get(name, 0)) for name in ("lost", "unclaimed"))
        return JournalView(held.get("incarnation", ""), tuple(entries), lost, unclaimed)

    async def commit_journal(self, partition: int, entry: tuple[int, int]) -> None:
        committed = f"{entry[0]}-{entry[1]}"
        await self._call_for(partition, "HSET", Keys(self.prefix).journal_state[partition], "committed", committed)

    async def _call_for(self, partition: int, *arguments: str) -> Any:
        """Ask the server of a partition of the journal."""
        if isinstance(self.servers, RedisCluster):
            return await self.servers.master_of(JOURNAL_TAGS[partition]).call(*arguments)
        return await self.servers.call(*arguments)

    async def inventory(self) -> set[str]:
        found: set[str] = set()
        for key in await self.servers.keys(self.prefix):
            kind = key.rsplit(":", 1)[-1]
            # What keeps late publishes of ended sessions out lasts for long, and has an end.
            if kind not in self._LASTING and (kind != "closed" or await self._lasts_for_ever(key)):
                found.add(key)
        return found

    async def _lasts_for_ever(self, key: str) -> bool:
        servers = self.servers
        tag = key.partition("{")[2].partition("}")[0]
        server = servers.master_of(tag) if isinstance(servers, RedisCluster) else servers
        return int(await server.call("PTTL", key)) == -1

    async def _time(self) -> float:
        seconds, microseconds = await self._redis[0].call("TIME")
        return float(seconds) + float(microseconds) / 1e6
