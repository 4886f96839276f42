"""Grids with replicas under one face: Sentinels with a master and a replica, and a cluster of three masters."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from tests.support.faults import eventually
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinels, SentinelServer
from tests.support.redis_server import HOST, RedisServer
from tests.support.times import scaled

PROMOTED: Final = 60.0
"""Seconds, on a quiet machine, in which a replica takes over; two if all goes well. A vote that fails costs six more,
and a Sentinel that is held up for two seconds does nothing for thirty (TILT)."""

ANSWERED: Final = 20.0
"""Seconds, on a quiet machine, in which a server that runs answers a command."""

WHOLE: Final = 120.0
"""Seconds, on a quiet machine, in which all servers of a Redis Cluster must find it whole. Usually two; but they go by
their clocks: a server whose clock was 90 s ahead (``redis-clock-set``) has heard of the others in the future of now,
asks them nothing until then, and takes one for failed that has come back meanwhile."""

REPLICATION: Final = ("psync", "sync")
"""Commands that a replica needs to follow its master."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A master and its replicas.

    Attributes:
        master: takes the writes.
        replicas: follow it.
    """

    master: RedisServer
    replicas: Sequence[RedisServer]

    @property
    def servers(self) -> tuple[RedisServer, ...]:
        """All of them, the master first."""
        return (self.master, *self.replicas)


class Servers(Protocol):
    """What faults need to know of a grid with replicas; all methods block.

    Attributes:
        url: as nodes want it.
        tags: hash tags that are worth hitting.
        redis: masters and replicas.
        sentinels: those that watch, if there are any.
    """

    url: str
    redis: Sequence[RedisServer]
    tags: Sequence[str]
    sentinels: Sequence[SentinelServer]

    def master(self, tag: str) -> RedisServer:
        """The master of a hash tag."""

    def shards(self) -> Sequence[Shard]:
        """All masters with their replicas."""

    def follow(self, shard: Shard) -> None:
        """Have the servers of a shard, which have just been started, be again what they were."""

    def joining(self, master: RedisServer) -> tuple[str, ...]:
        """Arguments with which a server that was replaced joins as a replica that nobody promotes.

        Args:
            master: that has taken its place.
        """

    def joined(self, server: RedisServer) -> None:
        """That server is in step with its master: it may be promoted again."""

    def wait_until_whole(self) -> None:
        """Wait until every replica follows its master."""

    def fail_over(self, tag: str) -> None:
        """Have a replica take over from the master of a hash tag that runs."""

    def move(self, tags: Sequence[str]) -> None:
        """Move the slots of hash tags to other masters."""


class SentinelServers:
    """A master, a replica and three Sentinels that run."""

    tags: Sequence[str] = ("all",)

    def __init__(self, servers: RedisSentinels) -> None:
        self._servers = servers
        self.url = servers.url
        self.redis: Sequence[RedisServer] = servers.redis
        self.sentinels: Sequence[SentinelServer] = servers.sentinels

    def master(self, tag: str) -> RedisServer:
        """See ``Servers``."""
        del tag
        return self._servers.master()

    def shards(self) -> Sequence[Shard]:
        """See ``Servers``."""
        master = self._servers.master()
        return [Shard(master, [each for each in self._servers.redis if each is not master])]

    def follow(self, shard: Shard) -> None:
        """See ``Servers``: by their command lines they are what they were at the beginning."""
        self._servers.follow(shard.master, shard.replicas)

    def joining(self, master: RedisServer) -> tuple[str, ...]:
        """See ``Servers``."""
        return ("--replicaof", HOST, str(master.port), "--replica-priority", "0")

    def joined(self, server: RedisServer) -> None:
        """See ``Servers``."""
        server._call("CONFIG", "SET", "replica-priority", "100")

    def wait_until_whole(self) -> None:
        """See ``Servers``."""
        self._servers.wait_until_whole()

    def fail_over(self, tag: str) -> None:
        """See ``Servers``."""
        del tag
        self._servers.fail_over()

    def move(self, tags: Sequence[str]) -> None:
        """See ``Servers``."""
        raise AssertionError(f"a master of Sentinels has no slots, not of {tags}")


class ClusterServers:
    """Three masters with a replica each that run."""

    tags: Sequence[str] = (
        "nodes",
        *(f"t{number}" for number in range(0, 64, 5)),
        *(f"s{number}" for number in range(0, 64, 5)),
    )

    def __init__(self, servers: RedisCluster) -> None:
        self._servers = servers
        self.url = servers.url
        self.redis: Sequence[RedisServer] = servers.nodes
        self.sentinels: Sequence[SentinelServer] = ()

    def master(self, tag: str) -> RedisServer:
        """See ``Servers``."""
        return self._servers.master_of(tag)

    def shards(self) -> Sequence[Shard]:
        """See ``Servers``."""
        return [Shard(each, self._servers.replicas_of(each)) for each in self._servers.masters()]

    def follow(self, shard: Shard) -> None:
        """See ``Servers``: nodes of a cluster remember what they were."""

    def joining(self, master: RedisServer) -> tuple[str, ...]:
        """See ``Servers``: who its master is, the others tell it."""
        del master
        return ("--cluster-replica-no-failover", "yes")

    def joined(self, server: RedisServer) -> None:
        """See ``Servers``."""
        server._call("CONFIG", "SET", "cluster-replica-no-failover", "no")

    def wait_until_whole(self) -> None:
        """See ``Servers``."""
        self._servers.wait_until_whole(scaled(WHOLE))
        self._servers.wait_until_replicated()

    def fail_over(self, tag: str) -> None:
        """See ``Servers``."""
        self._servers.fail_over(tag)

    def move(self, tags: Sequence[str]) -> None:
        """See ``Servers``."""
        self._servers.move(tags)


class ReplicatedGrid:
    """A grid with replicas that can be hurt without holding the event loop up.

    Args:
        servers: what runs.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.url = servers.url
        self.tags = servers.tags
        self._copies: dict[RedisServer, Path] = {}

    @property
    def ports(self) -> list[int]:
        """Where all of it listens: masters, replicas and Sentinels."""
        return [each.port for each in (*self._servers.redis, *self._servers.sentinels)]

    @property
    def redis_ports(self) -> list[int]:
        """Where masters and replicas listen."""
        return [each.port for each in self._servers.redis]

    async def shards(self, tag: str | None = None) -> list[Shard]:
        """Masters with their replicas.

        Args:
            tag: hash tag of the one to tell; all by default.
        """
        shards = list(await asyncio.to_thread(self._servers.shards))
        if tag is None:
            return shards
        master = await self.master(tag)
        return [shard for shard in shards if shard.master is master]

    async def master(self, tag: str) -> RedisServer:
        """The master of a hash tag."""
        return await asyncio.to_thread(self._servers.master, tag)

    async def promoted(self, tag: str, old: RedisServer) -> None:
        """Wait until another server than *old* is the master of a hash tag.

        Raises:
            AssertionError: none is in time.
        """

        async def another() -> bool:
            with suppress(RedisError, LookupError, StopIteration):
                return await self.master(tag) is not old
            return False

        await eventually(another, f"another Redis takes over {tag}", within=PROMOTED)

    async def come_back(self, tag: str, server: RedisServer, *, emptied: bool = False) -> bool:
        """Start a master that was killed, once another server has taken its place, and wait until it is in step.

        It must not be promoted before: it has no data, or old ones. Sentinels that are held up for half a second by a
        busy machine would do so, as would replicas of a cluster.

        Args:
            tag: hash tag of what it served.
            server: that was killed.
            emptied: whether it comes back without the data in its folder.

        Returns:
            Whether another server had taken its place; if not, it is a master again, with what its folder holds.
        """
        try:
            await self.promoted(tag, server)
            arguments = self._servers.joining(await self.master(tag))
        except AssertionError:
            # Now and then Sentinels find no replica fit to take over, for as long as the master is away.
            arguments = ()
        await server.restart(emptied=emptied, arguments=arguments)
        await self.whole()
        if arguments:
            await asyncio.to_thread(self._servers.joined, server)
        return bool(arguments)

    async def whole(self) -> None:
        """Wait until every replica follows its master."""
        await asyncio.to_thread(self._servers.wait_until_whole)

    async def move(self, tags: Sequence[str]) -> None:
        """Move the slots of hash tags to other masters."""
        await asyncio.to_thread(self._servers.move, tags)

    async def fail_over(self, tag: str) -> None:
        """Have a replica take over from the master of a hash tag, both of which run."""
        await asyncio.to_thread(self._servers.fail_over, tag)

    async def everywhere(self, *words: str) -> Sequence[RedisServer]:
        """Send a command to every master; returns them."""
        masters = [shard.master for shard in await self.shards()]
        for master in masters:
            await self.tell(master, *words)
        return masters

    async def tell(self, server: RedisServer, *words: str) -> None:
        """Send a server a command that may be repeated, until it answers or has ended.

        Sentinels close the connections of a master that they make a replica, also the one that a command came by.
        """

        async def answered() -> bool:
            if server.running:
                try:
                    await server.call(*words)
                except RedisConnectionError:
                    return False
            return True

        await eventually(answered, f"{' '.join(words)} is answered", within=ANSWERED)

    async def empty_replica(self, replica: RedisServer) -> None:
        """Let a replica lose all it holds, and go on as one."""
        await self.tell(replica, "CONFIG", "SET", "replica-read-only", "no")
        await self.tell(replica, "FLUSHALL")
        await self.tell(replica, "CONFIG", "SET", "replica-read-only", "yes")

    async def save(self) -> None:
        """Copy the data of every server, to roll back to."""
        copies = {server: await server.snapshot() for server in self._servers.redis}
        for old in self._copies.values():
            old.unlink()
        self._copies = copies

    def kill(self, shards: Sequence[Shard]) -> None:
        """Kill whole shards, so that nobody can take over."""
        for shard in shards:
            for server in shard.servers:
                server.kill()

    async def restart(self, shards: Sequence[Shard], *, rolled_back: bool = False) -> None:
        """Start shards that were killed, and wait until all is whole.

        Args:
            shards: which.
            rolled_back: whether they come back with the data that ``save`` has copied; without any data by default.
        """
        servers = [server for shard in shards for server in shard.servers]
        copies = self._copies if rolled_back else {}
        await asyncio.gather(*(each.restart(emptied=True, snapshot=copies.get(each)) for each in servers))
        for shard in shards:
            await asyncio.to_thread(self._servers.follow, shard)
        await self.whole()

    async def cut_replication(self, master: RedisServer) -> None:
        """Let no replica follow a master any more, though everybody else goes on: what it accepts it alone has."""
        await self.tell(master, "ACL", "SETUSER", "default", *(f"-{command}" for command in REPLICATION))
        await self.tell(master, "CLIENT", "KILL", "TYPE", "replica")

    async def mend_replication(self, master: RedisServer) -> None:
        """End what ``cut_replication`` began."""
        await self.tell(master, "ACL", "SETUSER", "default", *(f"+{command}" for command in REPLICATION))

    def kill_sentinels(self) -> None:
        """Kill all Sentinels. Stopped ones would do nothing for half a minute after they go on (TILT)."""
        for each in self._servers.sentinels:
            each.kill()

    async def restart_sentinels(self) -> None:
        """Start them again, with what they knew."""
        for each in self._servers.sentinels:
            await each.restart()
            each.hurry()


@contextmanager
def replicated_grid(kind: str, environment: Mapping[str, str], logs: Path) -> Iterator[ReplicatedGrid]:
    """Start a grid with replicas; blocks for some seconds, and so does the end.

    Args:
        kind: ``sentinel`` or ``cluster``.
        environment: more variables of masters and replicas.
        logs: gets the logs of all servers at the end.
    """
    if kind == "sentinel":
        with RedisSentinels(environment=environment) as sentinels:
            try:
                yield ReplicatedGrid(SentinelServers(sentinels))
            finally:
                _keep_logs([*sentinels.redis, *sentinels.sentinels], logs)
    else:
        with RedisCluster(replicas=1, environment=environment) as servers:
            try:
                yield ReplicatedGrid(ClusterServers(servers))
            finally:
                _keep_logs(servers.nodes, logs)


def _keep_logs(servers: Sequence[RedisServer], folder: Path) -> None:
    """Copy the log of each server before its own folder is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    for server in servers:
        kind = "sentinel" if isinstance(server, SentinelServer) else "redis"
        log = server.folder / "redis.log"
        if log.exists():  # not of a server that never came up
            shutil.copyfile(log, folder / f"{kind}-{server.port}.log")
