"""The Redis of a local stack, and the three ways in which it comes back: as it was, empty, or older than it was.

It writes an append-only file, flushed to disk every second, as a production grid would. A copy of that file is a
consistent earlier state, so that a snapshot needs no command and does not stop the server.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from gateway.local.ports import LOOPBACK
from gateway.local.processes import ManagedProcess

START_SECONDS: Final = 60.0
"""How long Redis may take to load its data and answer; small data takes a tenth of a second on a quiet machine."""
_PROBE_SECONDS: Final = 1.0
"""How long one PING may take."""
_APPEND_ONLY_FOLDER: Final = "appendonlydir"

_CONFIGURATION: Final = """\
# Written by gateway.local; changes are lost.
bind {host}
port {port}
dir "{data}"
daemonize no
save ""
appendonly yes
appendfsync everysec
# Never rewritten: the file only grows, so that a copy of it at any moment is a state the server was in.
auto-aof-rewrite-percentage 0
# Sessions must not be evicted for lack of memory.
maxmemory-policy noeviction
"""


class GridRestart(StrEnum):
    """What Redis holds after a restart."""

    AS_IT_WAS = "as it was"
    EMPTY = "empty"
    OLDER = "older"


class GridServer:
    """One redis-server with a folder of its own."""

    def __init__(
        self,
        program: str,
        *,
        port: int,
        folder: Path,
        logs: Path,
        detached: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the server; nothing starts yet.

        Args:
            program: path of redis-server.
            port: where it listens on the loopback.
            folder: for its configuration, data and snapshots.
            logs: folder for its log.
            detached: whether it outlives this process.
            environment: variables in addition to ours.
        """
        self.port = port
        self._folder = folder
        self._data = folder / "data"
        self._snapshots = folder / "snapshots"
        self._configuration = folder / "redis.conf"
        self.process = ManagedProcess(
            "redis",
            [program, str(self._configuration)],
            log=logs / "redis.log",
            environment=environment,
            detached=detached,
        )

    @property
    def url(self) -> str:
        """Where it is, as the setting ``grid`` of a node wants it."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    async def start(self) -> None:
        """Start it and wait until it has loaded its data.

        Raises:
            ProcessFailed: it did not come up.
        """
        self._data.mkdir(parents=True, exist_ok=True)
        self._configuration.write_text(_CONFIGURATION.format(host=LOOPBACK, port=self.port, data=self._data.resolve()))
        self.process.start()
        await self.process.ready(self._answers, timeout=START_SECONDS)

    async def snapshot(self, name: str = "latest") -> None:
        """Keep a copy of the data as it is now, under *name*, for a later restart as ``OLDER``."""
        copy = self._snapshots / name

        def replace() -> None:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self._data / _APPEND_ONLY_FOLDER, copy)

        await asyncio.to_thread(replace)

    async def restart(self, state: GridRestart, *, snapshot: str = "latest") -> None:
        """Kill it and start it again.

        Args:
            state: what it shall hold afterwards.
            snapshot: for ``OLDER``, which one.

        Raises:
            FileNotFoundError: there is no such snapshot; the server was left alone.
            ProcessFailed: it did not come up again.
        """
        copy = self._snapshots / snapshot
        if state is GridRestart.OLDER and not copy.is_dir():
            raise FileNotFoundError(f"no snapshot {snapshot!r} was taken of this Redis")
        if self.process.running:
            await self.process.kill()
        if state is not GridRestart.AS_IT_WAS:
            shutil.rmtree(self._data, ignore_errors=True)
        if state is GridRestart.OLDER:
            shutil.copytree(copy, self._data / _APPEND_ONLY_FOLDER)
        await self.start()

    async def _answers(self) -> bool:
        """Tell whether PING is answered by PONG; while it loads its data, Redis answers with an error."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
                try:
                    writer.write(b"PING\r\n")
                    return await reader.readline() == b"+PONG\r\n"
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
