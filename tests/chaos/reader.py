"""Redis read behind the gateway's back, by plain commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import redis.asyncio
from redis.exceptions import RedisError

from gateway.adapters.redis.keys import Keys
from gateway.core.types import SessionId
from gateway.settings.grid_url import GridKind, read_grid_url
from tests.chaos.account.messages import QueueLook
from tests.chaos.account.publishes import Entry, Snapshot
from tests.chaos.account.remains import Key
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.support.redis_server import HOST
from tests.support.times import time_limit

LOOK: Final = 5.0
"""Seconds that one look may take; while Redis is unreachable there is nothing to see."""

SEED: Final = 1.0
"""Seconds for one node of a cluster to tell who serves what, before another one is asked."""

READ: Final = 30.0
"""Seconds that reading everything may take; a Redis that hangs is asked again by its client for much longer."""

UNREADABLE: Final = (RedisError, OSError, TimeoutError, LookupError, StopIteration, KeyError, ValueError, TypeError)
"""What a look may meet while Redis is unreachable, is being replaced, or has just forgotten everything."""

AWAY: Final = (RedisError, OSError, TimeoutError)
"""Those of them by which Redis does not answer."""

_KEYS: Final = Keys(PREFIX)


class Server(NamedTuple):
    """A Redis at one moment.

    Attributes:
        port: of it.
        run: identifies its process.
        history: identifies the master whose data it took over when it was promoted last, and where that was.
        is_master: whether it takes writes.
    """

    port: int
    run: str
    history: tuple[str, int]
    is_master: bool

    def has_been_promoted_since(self, before: Server) -> bool:
        """Tell whether it has become a master; one that was only started again reads its history from its file."""
        return self.is_master and self.run == before.run and self.history != before.history


class Claims(NamedTuple):
    """What servers say of themselves.

    Attributes:
        masters: how many call themselves that.
        promoted: whether one of them has become it since somebody looked last.
    """

    masters: int
    promoted: bool


class Reader:
    """Looks into a grid, also into one that has moved since the last look.

    Args:
        url: of the grid, as nodes have it, past all proxies.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = read_grid_url(url)
        self._servers: dict[int, Server] = {}

    @asynccontextmanager
    async def _grid(self) -> AsyncIterator[GridReader]:
        # Asking Sentinels blocks, and they may be stopped.
        async with time_limit(READ), await asyncio.to_thread(GridReader, self._url) as grid:
            yield grid

    async def generation(self) -> int:
        """Tell the generation that nodes have adopted.

        Raises:
            UNREADABLE: it cannot be told now.
        """
        async with time_limit(LOOK), self._grid() as grid:
            return int(await grid.call("HGET", _KEYS.grid, "generation"))

    async def adopted(self) -> bool:
        """Tell whether the masters that run are those that nodes have adopted."""
        masters = await self.masters()
        async with time_limit(LOOK), self._grid() as grid:
            runs = [(await _info(port, "server"))["run_id"] for port in masters]
            known = str(await grid.call("HGET", _KEYS.grid, "run_id"))
            return all(str(run) in known for run in runs)

    async def owners(self, sessions: Iterable[str]) -> dict[str, tuple[int, str]]:
        """Tell epoch and owner of sessions; those that there are not are left out."""
        found = {}
        async with time_limit(LOOK), self._grid() as grid:
            for session in sessions:
                epoch, owner = await grid.call("HMGET", _KEYS.session(SessionId(session)), "epoch", "owner")
                if owner is not None:
                    found[session] = (int(epoch), str(owner))
        return found

    async def properties(self, sessions: Iterable[str]) -> dict[str, dict[str, str] | None]:
        """Tell the user-defined properties of sessions; None for those that there are not."""
        found = {}
        async with self._grid() as grid:
            for session in sessions:
                stored = await grid.session(session)
                found[session] = None if stored is None else dict(stored.properties)
        return found

    async def values(self) -> dict[str, tuple[int, int]]:
        """Tell value and version of every topic."""
        async with self._grid() as grid:
            return await grid.values()

    async def queue(self, queue: str, now: float) -> QueueLook:
        """Tell what is in a queue, at one moment.

        Args:
            queue: its path.
            now: when this begins.
        """
        async with time_limit(LOOK), self._grid() as grid:
            stored = await grid.queue(queue)
        values = {message: int(text) for message, text in stored.messages.items()}
        return QueueLook(now, queue, values, stored.ready, stored.delayed, stored.held, stored.dead, stored.consumers)

    async def masters(self) -> frozenset[int]:
        """Tell the ports of the masters that serve the grid; they change when a replica takes over."""
        async with time_limit(LOOK):
            if self._place.kind is GridKind.CLUSTER:
                return await self._masters_of_cluster()
            return frozenset(await self._ports())

    async def claims(self, ports: Iterable[int]) -> Claims:
        """Ask the servers themselves which of them are masters, and whether one has become it since the last time.

        Sentinels that disagree may name another one for a moment, and the one before
        again, between two looks.

        Args:
            ports: of all servers that keep data; those that do not answer now are asked again the next time.
        """
        found = await asyncio.gather(*map(_server, ports), return_exceptions=True)
        known, servers = self._servers, [each for each in found if isinstance(each, Server)]
        self._servers = known | {each.port: each for each in servers}
        promoted = any(each.has_been_promoted_since(known[each.port]) for each in servers if each.port in known)
        return Claims(sum(each.is_master for each in servers), promoted)

    async def snapshot(self, now: float) -> Snapshot:
        """Read the logs of all topics.

        Args:
            now: when this begins.
        """
        async with self._grid() as grid:
            generation = int(await grid.call("HGET", _KEYS.grid, "generation"))
            logs: dict[str, list[Entry]] = {}
            for topic, entries in (await grid.logs()).items():
                logs[topic] = [Entry(each.event, each.version, each.value) for each in entries]
        return Snapshot(now, generation, logs)

    async def keys(self) -> list[Key]:
        """Tell all keys of sessions, with the time they have left."""
        async with self._grid() as grid:
            return [Key(name, int(await grid.call("PTTL", name))) for name in await grid.of_sessions()]

    async def connections(self) -> dict[str, int]:
        """Tell how many clients each Redis has that serves the grid."""
        found = {}
        for port in await self._ports():
            found[f"redis:{port}"] = int((await _info(port, "clients"))["connected_clients"])
        return found

    async def _masters_of_cluster(self) -> frozenset[int]:
        for seed in self._place.hosts:
            client: Any = redis.asyncio.Redis(host=seed.host, port=seed.port, socket_timeout=SEED)
            client.response_callbacks.clear()
            try:
                slots = await client.execute_command("CLUSTER SLOTS")
            except (RedisError, OSError, TimeoutError):  # that one is dead, or stopped
                continue
            finally:
                await client.aclose()
            return frozenset(int(master[1]) for _, _, master, *_ in slots)
        raise LookupError("no node of the cluster answers")

    async def _ports(self) -> list[int]:
        if self._place.kind is GridKind.CLUSTER:
            return [each.port for each in self._place.hosts]
        async with self._grid() as grid:
            info = await grid.call("INFO", "server")
            return [int(info["tcp_port"])]


async def _server(port: int) -> Server:
    async with time_limit(SEED):
        found = await _info(port, "everything")
    history = str(found["master_replid2"]), int(found["second_repl_offset"])
    return Server(port, str(found["run_id"]), history, found["role"] == "master")


async def _info(port: int, section: str) -> Any:
    client: Any = redis.asyncio.Redis(host=HOST, port=port, socket_timeout=LOOK, decode_responses=True)
    try:
        return await client.info(section)
    finally:
        await client.aclose()
