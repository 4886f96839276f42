"""A private master with replicas and the Sentinels that watch over it, for tests.

```python
with RedisSentinels() as servers:
    grid = RedisGrid(servers.url, prefix=unique_prefix(), ...)
    servers.master().kill()     # a replica is promoted within two seconds
```
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
import redis
from redis.exceptions import RedisError, ResponseError

from tests.support.redis_server import HOST, ONCE, RedisServer
from tests.support.times import scaled

MASTER: Final = "the-master"
"""Name by which the Sentinels know it."""

DOWN_AFTER_MS: Final = round(scaled(500))
"""Milliseconds without an answer after which a Sentinel calls the master dead."""

FORM_DEADLINE: Final = scaled(30.0)
"""Seconds until the Sentinels must know everybody; three at most, as they ask and greet every other second."""

_POLL: Final = 0.02

_PATIENCE: Final = scaled(1.0)
"""Seconds that a Sentinel may take to answer, before another one is asked."""


class SentinelServer(RedisServer):
    """One Sentinel.

    Args:
        master: what it watches over.
        quorum: Sentinels that must agree that it is dead.
        lines: more lines of its configuration.
    """

    def __init__(self, master: RedisServer, *, quorum: int, lines: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._master = master
        self._quorum = quorum
        self._lines = lines

    def _command(self, *, aof: bool) -> list[str]:
        configuration = self.folder / "sentinel.conf"
        if not self._started:
            lines = (
                f"bind {HOST}",
                f"port {self.port}",
                f'dir "{self._data}"',
                f'logfile "{self.folder / "redis.log"}"',
                f"sentinel monitor {MASTER} {HOST} {self._master.port} {self._quorum}",
                f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
                f"sentinel failover-timeout {MASTER} 3000",
                *self._lines,
            )
            configuration.write_text("\n".join(lines) + "\n")
        return [self._binary, str(configuration), "--sentinel"]

    def hurry(self) -> None:
        """Have it greet and ask more often; a master that comes back is made a replica after four greetings."""
        self.ask("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 250, "INFO-PERIOD", 500)

    def ask(self, *arguments: str | bytes | float) -> Any:
        """Send one command, blocking."""
        return self._call(*arguments)


class RedisSentinels:
    """A master, its replicas and its Sentinels.

    Args:
        replicas: of the master.
        sentinels: how many watch.
        aof: write every change to disk before answering it, so that a kill loses nothing.
        environment: more variables of master and replicas.
        arguments: more command-line arguments of master and replicas.
        lines: more lines of the configuration of the Sentinels.
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
        sentinels: int = 3,
        aof: bool = False,
        environment: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        lines: tuple[str, ...] = (),
    ) -> None:
        self._aof = aof
        self._environment = environment
        self._arguments = arguments
        self._lines = lines
        self._replicas = replicas
        self._sentinels = sentinels
        self.redis: list[RedisServer] = []
        self.sentinels: list[SentinelServer] = []

    @property
    def url(self) -> str:
        """Where it is, as ``RedisGrid`` wants it."""
        return f"redis+sentinel://{','.join(f'{HOST}:{each.port}' for each in self.sentinels)}/{MASTER}/0"

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything and delete the folders."""
        for each in (*self.sentinels, *self.redis):
            each.close()

    def kill(self) -> None:
        """Kill -9 the master."""
        self.master().kill()

    async def restart(self, *, emptied: bool = False, snapshot: Path | None = None) -> None:
        """Restart a master that has no replicas, until no Sentinel calls it down; see ``RedisServer.restart``."""
        assert len(self.redis) == 1, "the Sentinels would promote a replica"
        await self.redis[0].restart(emptied=emptied, snapshot=snapshot)
        await asyncio.to_thread(self.wait_until_whole)

    # --- looking inside -----------------------------------------------------------------------------------------------

    def master(self) -> RedisServer:
        """The master, as the first Sentinel that runs names it."""
        sentinel = next(each for each in self.sentinels if each.running)
        _, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(each for each in self.redis if each.port == int(port))

    def fail_over(self) -> None:
        """Have the Sentinels promote a replica, though the master runs; waits until they are at it."""

        def begun() -> bool:
            sentinel = next(each for each in self.sentinels if each.running)
            try:
                sentinel.ask("SENTINEL", "FAILOVER", MASTER)
            except ResponseError as refused:
                # NOGOODSLAVE: the replica has not been in touch for long enough. INPROG: they are at it already.
                return "INPROG" in str(refused)
            return True

        self._wait(begun, "the Sentinels fail over")

    def follow(self, master: RedisServer, replicas: Sequence[RedisServer]) -> None:
        """Have servers that were restarted be what they were: by their command lines they are what they began as."""
        master._call("REPLICAOF", "NO", "ONE")
        for replica in replicas:
            replica._call("REPLICAOF", HOST, master.port)

    async def call(self, *arguments: str | bytes | float) -> Any:
        """Send one command to the master."""
        return await (await asyncio.to_thread(self.master)).call(*arguments)

    async def keys(self, prefix: str) -> set[str]:
        """Names of all keys that begin with *prefix*."""
        return await (await asyncio.to_thread(self.master)).keys(prefix)

    async def snapshot(self) -> Path:
        """Copy the data of the master as it is now."""
        return await (await asyncio.to_thread(self.master)).snapshot()

    def wait_until_whole(self) -> None:
        """Wait until all Sentinels know each other and all replicas, and these are in touch with the master."""
        self._wait(self._whole, "the Sentinels know everybody")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        arguments = ("--repl-diskless-sync-delay", "0", *self._arguments)
        master = RedisServer(aof=self._aof, arguments=arguments, environment=self._environment)
        self.redis.append(master)
        master.__enter__()
        for _ in range(self._replicas):
            replica = RedisServer(
                aof=self._aof,
                arguments=("--replicaof", f"{HOST} {master.port}", *arguments),
                environment=self._environment,
            )
            self.redis.append(replica)
            replica.__enter__()
        for _ in range(self._sentinels):
            sentinel = SentinelServer(master, quorum=self._sentinels // 2 + 1, lines=self._lines)
            self.sentinels.append(sentinel)
            sentinel.__enter__()
            sentinel.hurry()
        self.wait_until_whole()

    def _whole(self) -> bool:
        states = [_state(each) for each in self.sentinels if each.running]
        running = [each for each in self.redis if each.running]
        return all(
            int(state["num-other-sentinels"]) == self._sentinels - 1
            and int(state["num-slaves"]) == len(self.redis) - 1
            and state["flags"] == "master"
            for state in states
        ) and sorted(_role(each) for each in running) == ["in touch"] * (len(running) - 1) + ["master"]

    def _wait(self, condition: Callable[[], bool], message: str) -> None:
        deadline = time.monotonic() + FORM_DEADLINE
        failed: RedisError | None = None
        while True:
            try:
                if condition():
                    return
            except RedisError as error:  # restarting
                failed = error
            if time.monotonic() > deadline:
                seen = [*map(_replication, self.redis), *map(_state, self.sentinels)]
                pytest.fail(f"not within {FORM_DEADLINE:g} s: {message}; last error {failed!r}: {seen}")
            time.sleep(_POLL)


def _state(sentinel: SentinelServer) -> dict[str, str]:
    with sentinel._client() as client:
        client.response_callbacks.clear()
        reply: Any = client.execute_command("SENTINEL", "MASTER", MASTER)
    texts = [each.decode() for each in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _replication(server: RedisServer) -> dict[str, str]:
    try:
        about = server._call("INFO", "replication")
    except RedisError as error:
        about = {"error": repr(error)}
    return {"port": str(server.port), "running": str(server.running), **about}


def _role(server: RedisServer) -> str:
    about = server._call("INFO", "replication")
    if about["role"] == "master":
        return "master"
    return "in touch" if about["master_link_status"] == "up" else "out of touch"


def master_address(sentinels: Sequence[tuple[str, int]], name: str) -> tuple[str, int]:
    """Ask Sentinels for a master, blocking."""
    for host, port in sentinels:
        client = redis.Redis(host=host, port=port, socket_timeout=_PATIENCE, retry=ONCE)
        with contextlib.suppress(RedisError), client as sentinel:
            address: Any = sentinel.sentinel_get_master_addr_by_name(name)
            return address[0].decode(), int(address[1])
    raise LookupError("no Sentinel answers")
