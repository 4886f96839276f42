"""A private redis-server for tests: own port, own folder, and every way in which it can be hurt.

```python
async with RedisServer() as server:
    grid = RedisGrid(server.url, prefix=unique_prefix(), ...)
    server.kill()                      # kill -9
    await server.restart(emptied=True)
```

Signals (``kill``, ``suspend``, ``resume``) act at once. What has to wait for the server is a coroutine that waits in a
thread, so that the loop under test goes on.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.local.ports import free_port
from tests.support.times import PATIENCE, scaled

HOST: Final = "127.0.0.1"

START_DEADLINE: Final = scaled(PATIENCE)
"""Seconds until a server must answer PING."""

ONCE: Final = Retry(NoBackoff(), 0)
"""By itself redis-py asks eleven times: a server that hangs would keep a thread for as many time-outs."""

_POLL: Final = 0.01
"""Seconds between looks at a condition."""

_PORT_TRIES: Final = 20
"""Ports to try when another test takes the chosen one first."""

_running: weakref.WeakSet[RedisServer] = weakref.WeakSet()


def unique_prefix() -> str:
    """Make a key prefix that no other test uses, so that tests may share a server."""
    return f"test-{uuid.uuid4().hex[:12]}"


def redis_binary() -> str:
    """Find redis-server: skips the test where it is missing, but fails it under CI.

    Returns:
        Its path.
    """
    path = shutil.which("redis-server")
    if path is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("redis-server is not installed, and CI must not skip tests", pytrace=False)
        pytest.skip("redis-server is not installed")
    return path


class RedisServer:
    """One redis-server process that keeps its port and folder over restarts.

    Args:
        aof: write every change to disk before answering it (``appendfsync always``), so that a kill loses nothing.
        arguments: more command-line arguments, such as ``["--maxmemory", "10mb"]``.
        environment: more variables of its environment.
    """

    def __init__(
        self, *, aof: bool = False, arguments: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = None if environment is None else {**os.environ, **environment}
        self._binary = redis_binary()
        self._aof = aof
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._once: tuple[str, ...] = ()
        self._started = False
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-redis-"))
        self._data = self.folder / "data"
        self._data.mkdir()

    @property
    def url(self) -> str:
        """Where it listens, as ``RedisGrid`` wants it."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def running(self) -> bool:
        """Whether it was started and not killed."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __enter__(self) -> Self:
        for left in self._tries():
            self._launch()
            if self._wait_until_ready(fail=left == 0):
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def start(self) -> None:
        """Start it and wait until it answers PING with its data loaded."""
        await self._start()

    def close(self) -> None:
        """Kill it and delete its folder; harmless if that was done before."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- harm ---------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill -9 and wait for the end; harmless if it is not running."""
        _running.discard(self)
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # works on a suspended process too
            process.wait()

    def suspend(self) -> None:
        """SIGSTOP: the port still accepts connections, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def restart(
        self, *, emptied: bool = False, snapshot: Path | None = None, arguments: tuple[str, ...] = ()
    ) -> None:
        """Kill it if it runs, and start it again on the same port.

        Args:
            emptied: without any data.
            snapshot: with the data of a copy that ``snapshot`` made. By default it comes back with what is in its
                folder: everything with *aof*, and else what ``save`` wrote last.
            arguments: of its command line, over all others, this time.
        """
        self.kill()
        self._once = arguments
        if emptied or snapshot is not None:
            shutil.rmtree(self._data)
            self._data.mkdir()
        if snapshot is not None:
            shutil.copyfile(snapshot, self._data / "dump.rdb")
        await self._start(from_snapshot=snapshot is not None)

    async def save(self) -> None:
        """Write the data to the folder, so that a server without *aof* comes back with it."""
        await self.call("SAVE")

    async def snapshot(self) -> Path:
        """Copy the data as it is now, to restart from later. A restart without the copy does not find it."""
        await self.save()
        copy = self.folder / f"{uuid.uuid4().hex}.rdb"
        shutil.move(self._data / "dump.rdb", copy)
        return copy

    # --- looking inside -----------------------------------------------------------------------------------------------

    async def call(self, *arguments: str | bytes | float) -> Any:
        """Send one command over a connection of its own."""
        return await asyncio.to_thread(self._call, *arguments)

    async def keys(self, prefix: str) -> set[str]:
        """Names of all keys that begin with *prefix*."""
        found = await self.call("KEYS", f"{prefix}*")
        return {key.decode() for key in found}

    async def command_counts(self) -> dict[str, int]:
        """How often each command ran since the start, ``INFO commandstats``; scripts count what they call too."""
        stats = await self.call("INFO", "commandstats")
        return {name.removeprefix("cmdstat_"): int(values["calls"]) for name, values in stats.items()}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _call(self, *arguments: str | bytes | float) -> Any:
        with self._client() as client:
            return client.execute_command(*arguments)

    def _client(self) -> redis.Redis:
        return redis.Redis(
            host=HOST,
            port=self.port,
            protocol=2,
            socket_timeout=START_DEADLINE,
            single_connection_client=True,
            retry=ONCE,
        )

    async def _start(self, *, from_snapshot: bool = False) -> None:
        # With appendonly a Redis 7 without an append-only folder ignores dump.rdb, so it is switched on afterwards.
        late_aof = self._aof and from_snapshot
        for left in self._tries():
            # Not in a thread: setpriv ties the server's life to the thread that started it.
            self._launch(aof=not late_aof)
            if await asyncio.to_thread(self._wait_until_ready, fail=left == 0):
                break
        if late_aof:
            await self.call("CONFIG", "SET", "appendonly", "yes")
            await asyncio.to_thread(self._wait_for_rewrite)

    def _tries(self) -> Iterator[int]:
        """Count down the tries; only a server that nobody knows yet may take another port for the next one."""
        assert self._process is None, "the server is running"
        for left in reversed(range(1 if self._started else _PORT_TRIES)):
            yield left
            self.kill()
            self.port = free_port()

    def _launch(self, *, aof: bool = True) -> None:
        command = [*self._command(aof=aof and self._aof), *self._once]
        if (setpriv := shutil.which("setpriv")) is not None:
            # Even when the test run itself is killed with SIGKILL, the server must not stay.
            command = [setpriv, "--pdeathsig", "KILL", *command]
        self._process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        _running.add(self)

    def _command(self, *, aof: bool) -> list[str]:
        """The program and its arguments; a server that nobody knows yet may be given other ports each time."""
        return [
            self._binary,
            *("--bind", HOST, "--port", str(self.port), "--dir", str(self._data)),
            *("--logfile", str(self.folder / "redis.log"), "--save", "", "--daemonize", "no"),
            *("--appendonly", "yes" if aof else "no", "--appendfsync", "always"),
            *self._arguments,
        ]

    def _wait_until_ready(self, *, fail: bool) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_DEADLINE
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                if not fail:
                    return False
                break
            try:
                with self._client() as client:
                    # The process id tells our server from one of another test that took the port first.
                    if client.info("server")["process_id"] == self._process.pid and client.ping():
                        self._started = True
                        return True
            except redis.RedisError:  # not listening yet, or loading its data
                pass
            time.sleep(_POLL)
        log = (self.folder / "redis.log").read_text(errors="replace")
        self.kill()
        pytest.fail(f"redis-server did not start on port {self.port}:\n{log}")

    def _wait_for_rewrite(self) -> None:
        deadline = time.monotonic() + START_DEADLINE
        while time.monotonic() < deadline:
            info = self._call("INFO", "persistence")
            if not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]:
                return
            time.sleep(_POLL)
        pytest.fail("redis-server did not finish writing its append-only file")


def _kill_all() -> None:
    for server in list(_running):
        server.close()


atexit.register(_kill_all)
