"""A private Redis Cluster for tests: masters with a third of the slots each, and a replica for each if wanted.

```python
with RedisCluster(replicas=1) as servers:
    grid = RedisGrid(servers.url, prefix=unique_prefix(), ...)
    servers.master_of("nodes").kill()     # its replica is promoted within two seconds
```
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
import redis.asyncio as asyncio_redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway.local.ports import free_port
from tests.support.redis_server import HOST, RedisServer
from tests.support.times import scaled, time_limit

SLOTS: Final = 16_384

NODE_TIMEOUT_MS: Final = round(scaled(1_000))
"""Milliseconds without an answer after which a node is called dead; a failover takes about as long again."""

FORM_DEADLINE: Final = scaled(30.0)
"""Seconds until a new cluster must serve all slots; two, by Redis' own rules, if nothing else goes on."""

_POLL: Final = 0.02

_SEED_PATIENCE: Final = 1.0
"""Seconds that a node may take to tell who serves what, before another one is asked."""


class ClusterServer(RedisServer):
    """One node of a cluster. What it knows of the others outlives even a restart without data."""

    cluster_port = 0

    def _command(self, *, aof: bool) -> list[str]:
        if not self._started:
            self.cluster_port = free_port()
        return [
            *super()._command(aof=aof),
            *("--cluster-enabled", "yes", "--cluster-port", str(self.cluster_port)),
            *("--cluster-config-file", str(self.folder / "nodes.conf")),
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-replica-validity-factor", "0"),
            *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
        ]

    def ask(self, *arguments: str | bytes | float) -> Any:
        """Send one command, blocking."""
        return self._call(*arguments)


class RedisCluster:
    """Some nodes that form a cluster.

    Args:
        masters: how many have slots.
        replicas: how many each of them has.
        aof: write every change to disk before answering it, so that a kill loses nothing.
        environment: more variables of all nodes.
        arguments: more command-line arguments of all nodes.

    Attributes:
        nodes: masters first, as they began.
    """

    def __init__(
        self,
        *,
        masters: int = 3,
        replicas: int = 0,
        aof: bool = False,
        environment: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self._masters = masters
        self.nodes = [
            ClusterServer(aof=aof, environment=environment, arguments=arguments)
            for _ in range(masters * (1 + replicas))
        ]

    @property
    def url(self) -> str:
        """Where it is, as ``RedisGrid`` wants it; a third of the nodes are named, the others must be found."""
        return f"redis+cluster://{','.join(f'{HOST}:{each.port}' for each in self.nodes[: self._masters])}"

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.__enter__()
            self._form()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all nodes and delete their folders."""
        for node in self.nodes:
            node.close()

    async def restart(self, *, emptied: bool = False, snapshot: Sequence[Path] | None = None) -> None:
        """Restart all nodes, see ``RedisServer.restart``, and wait until the cluster serves all slots."""
        for node in self.nodes:
            node.kill()
        copies: Sequence[Path | None] = snapshot or [None] * len(self.nodes)
        await asyncio.gather(
            *(node.restart(emptied=emptied, snapshot=copy) for node, copy in zip(self.nodes, copies, strict=True))
        )
        await asyncio.to_thread(self.wait_until_whole)

    def kill(self) -> None:
        """Kill -9 all nodes."""
        for node in self.nodes:
            node.kill()

    # --- looking inside -----------------------------------------------------------------------------------------------

    def running(self) -> list[ClusterServer]:
        """The nodes that run."""
        return [node for node in self.nodes if node.running]

    def masters(self) -> list[ClusterServer]:
        """The nodes that run and are masters with slots, as they say themselves."""
        return [node for node in self.running() if re.search(rb"myself,master \S+ .*\d$", self._myself(node))]

    def master_of(self, tag: str) -> ClusterServer:
        """The master of a hash tag, as the first node that answers sees it."""
        slot = key_slot(tag.encode())
        for first, last, (_, port, *_), *_ in self._slots():
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(f"nobody serves slot {slot}")

    def fail_over(self, tag: str) -> None:
        """Have the replica of a hash tag's master take over, though that runs; they agree, so that nothing is lost."""
        self.replicas_of(self.master_of(tag))[0].ask("CLUSTER", "FAILOVER")

    def replicas_of(self, master: ClusterServer) -> list[ClusterServer]:
        """The nodes that run and are replicas of a master, as they say themselves."""
        known = self._myself(master).split()[0]
        return [each for each in self.running() if known in self._myself(each).split()[3:4]]

    def move(self, tags: Iterable[str]) -> None:
        """Move the slots of hash tags, each to another master, live and with all their keys, as redis-cli does."""
        for tag in sorted(tags):
            slot = key_slot(tag.encode())
            masters = self.masters()
            source = self.master_of(tag)
            target = next(each for each in masters if each is not source)
            target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
            source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
            while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 10):
                source.ask("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
            for each in (target, source, *(other for other in masters if other not in {target, source})):
                each.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))

    async def keys(self, prefix: str) -> set[str]:
        """Names of all keys that begin with *prefix*."""
        return set().union(*[await node.keys(prefix) for node in await asyncio.to_thread(self.masters)])

    async def snapshot(self) -> list[Path]:
        """Copy the data of all nodes as they are now."""
        return [await node.snapshot() for node in self.nodes]

    def wait_until_whole(self, within: float = FORM_DEADLINE) -> None:
        """Wait until all running nodes find that all slots are served, for so many seconds at most."""
        served = "all slots are served"
        self._wait(lambda: all(b"cluster_state:ok" in _info(node) for node in self.running()), served, within)

    def wait_until_replicated(self) -> None:
        """Wait until every running replica is in touch with its master."""
        self._wait(lambda: all(map(_in_touch, self.running())), "all replicas are in touch with their masters")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _slots(self) -> list[Any]:
        with self.running()[0]._client() as client:
            client.response_callbacks.clear()
            reply: list[Any] = client.execute_command("CLUSTER", "SLOTS")
            return reply

    def _myself(self, node: ClusterServer) -> bytes:
        lines: list[bytes] = _raw(node, "CLUSTER", "NODES").splitlines()
        return next(line for line in lines if b"myself" in line)

    def _form(self) -> None:
        masters, replicas = self.nodes[: self._masters], self.nodes[self._masters :]
        share = -(-SLOTS // len(masters))
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < len(masters):
                first = number * share
                node.ask("CLUSTER", "ADDSLOTSRANGE", first, min(first + share, SLOTS) - 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", HOST, self.nodes[0].port, self.nodes[0].cluster_port)
        everybody = f"cluster_known_nodes:{len(self.nodes)}".encode()
        self._wait(lambda: all(everybody in _info(node) for node in self.nodes), "all nodes know each other")
        for number, replica in enumerate(replicas):
            replica.ask("CLUSTER", "REPLICATE", masters[number % len(masters)].ask("CLUSTER", "MYID"))
        self.wait_until_whole()
        self.wait_until_replicated()
        # Without having heard of a replica nobody would vote for it.
        expected = len(replicas)
        self._wait(
            lambda: all(
                len(re.findall(rb"[ ,]slave ", _raw(node, "CLUSTER", "NODES"))) == expected for node in self.nodes
            ),
            "all nodes know who is a replica",
        )

    def _wait(self, condition: Callable[[], bool], message: str, within: float = FORM_DEADLINE) -> None:
        deadline = time.monotonic() + within
        while True:
            try:
                if condition():
                    return
            except RedisError:  # restarting
                pass
            if time.monotonic() > deadline:
                states = [_info(node).decode() for node in self.running()]
                pytest.fail(f"not within {within:g} s: {message}: {states}")
            time.sleep(_POLL)


def _raw(node: ClusterServer, *arguments: str) -> bytes:
    """Ask a node without having redis-py read the answer."""
    with node._client() as client:
        client.response_callbacks.clear()
        reply: Any = client.execute_command(*arguments)
        return bytes(reply)


def _info(node: ClusterServer) -> bytes:
    return _raw(node, "CLUSTER", "INFO")


def _in_touch(node: ClusterServer) -> bool:
    about = node.ask("INFO", "replication")
    return bool(about["role"] == "master" or about["master_link_status"] == "up")


class ClusterClient:
    """Just enough of a client to read a cluster that stays as it is while it is read.

    redis-py's own keeps connections open that it has given up, which fails a test that is strict about that.

    Args:
        seeds: host and port of some nodes.
        options: of redis-py's client of one node.
    """

    def __init__(self, seeds: Sequence[tuple[str, int]], **options: Any) -> None:
        self._seeds = seeds
        self._options = options
        self._clients: dict[tuple[str, int], Any] = {}
        self._ranges: list[tuple[int, int, tuple[str, int]]] = []

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()

    async def execute_command(self, name: str, key: str, *arguments: Any) -> Any:
        """Send one command to the master of its key."""
        return await (await self._of(key)).execute_command(name, key, *arguments)

    async def hgetall(self, key: str) -> Any:
        """HGETALL."""
        return await (await self._of(key)).hgetall(key)

    async def xrange(self, key: str) -> Any:
        """XRANGE of all there is."""
        return await (await self._of(key)).xrange(key)

    async def zrange(self, key: str, first: int, last: int) -> Any:
        """ZRANGE."""
        return await (await self._of(key)).zrange(key, first, last)

    async def server_of(self, key: str) -> Any:
        """Return redis-py's client of the master of a key."""
        return await self._of(key)

    async def scan_iter(self, pattern: str) -> AsyncIterator[str]:
        """SCAN on every master."""
        await self._of("any")
        for address in {address for *_, address in self._ranges}:
            async for key in self._client(address).scan_iter(pattern):
                yield key

    async def _of(self, key: str) -> Any:
        if not self._ranges:
            self._ranges = await self._ask()
        slot = key_slot(key.encode())
        return self._client(next(address for first, last, address in self._ranges if first <= slot <= last))

    async def _ask(self) -> list[tuple[int, int, tuple[str, int]]]:
        for seed in self._seeds:
            try:
                async with time_limit(_SEED_PATIENCE):
                    slots = await self._client(seed).cluster("SLOTS")
            except (RedisError, TimeoutError):  # that one is dead, or stopped
                continue
            return [(first, last, (host, port)) for first, last, (host, port, *_), *_ in slots]
        raise LookupError("no node of the cluster answers")

    def _client(self, address: tuple[str, int]) -> Any:
        if address not in self._clients:
            self._clients[address] = asyncio_redis.Redis(host=address[0], port=address[1], protocol=2, **self._options)
        return self._clients[address]
