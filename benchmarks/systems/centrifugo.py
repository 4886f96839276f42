"""Centrifugo, whose channels keep a history, from which clients recover: what reading histories is measured beside."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, redis_server, scratch_folder
from benchmarks.systems.base import (
    Endpoint,
    Role,
    Running,
    StartOptions,
    SystemFailed,
    SystemUnavailable,
    SystemUnderTest,
)
from benchmarks.systems.gateway import redis_version
from benchmarks.systems.one_program import PEERS, configured
from gateway.local.ports import free_port

TEMPLATE: Final = PEERS / "centrifugo" / "config.json.template"

PROGRAM: Final = "centrifugo"

CONNECT_TARGET: Final = "/connection/websocket"
API_TARGET: Final = "/api"

MOST_EVENTS: Final = 1_000_000
"""Events that a channel keeps, and that one recovery may bring: more than there will be. By default it brings 300 at
most, and who has missed more is told that it cannot be had."""

QUEUE_MEBIBYTES: Final = 256
"""What may wait to be written to a client, who would be cut off by the default of 1: a recovery is one message."""


class Centrifugo(SystemUnderTest):
    """One server, whose histories are in its memory.

    ``endpoint`` is for ``benchmarks.destinations.centrifugo``, which speaks its protocol; the generator does not.

    Attributes:
        with_redis: whether histories are streams of a Redis instead, so that every server that uses it has them.
    """

    name: ClassVar[str] = "centrifugo"
    title: ClassVar[str] = "Centrifugo, in memory"
    with_redis: ClassVar[bool] = False

    _program: Path | None = None

    def prepare(self, folder: Path) -> None:
        """Find the server that ``scripts/bench-packages`` built.

        Raises:
            SystemUnavailable: there is none.
        """
        built = folder.with_name(Centrifugo.name) / PROGRAM
        if not built.exists():
            raise SystemUnavailable(f"{PROGRAM} is not built; scripts/bench-packages does it where there is Go")
        self._program = built

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        output = subprocess.run([self.program, "version"], capture_output=True, text=True, check=True).stdout
        redis = {"redis-server": redis_version()} if self.with_redis else {}
        return {PROGRAM: output.split()[1].removeprefix("v"), **redis}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "history": "force_recovery; kept are all events, for ten minutes",
            "engine": "Redis, AOF and snapshots off, as for every system with one" if self.with_redis else "memory",
            "recovery_max_publication_limit": f"{MOST_EVENTS:,}, so that one recovery brings all",
            "queue_max_size": f"{QUEUE_MEBIBYTES} MiB, for a recovery is one message",
            "insecure": "no tokens and no keys: they would cost it more",
            "transport": "WebSocket, JSON, without compression",
        }

    @property
    def program(self) -> Path:
        """What ``prepare`` has found.

        Raises:
            SystemFailed: it was not called.
        """
        if self._program is None:
            raise SystemFailed(f"{self.name} was not prepared")
        return self._program

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(scratch_folder(self.name))
            engine: dict[str, object] = {"type": "memory"}
            redis: PinnedProcess | None = None
            if self.with_redis:
                redis, redis_port = stack.enter_context(redis_server(placement.others))
                engine = {"type": "redis", "redis": {"address": f"redis://{HOST}:{redis_port}"}}
            port = free_port()
            configuration = configured(
                folder / "config.json",
                TEMPLATE,
                host=HOST,
                port=port,
                events=MOST_EVENTS,
                queue_bytes=QUEUE_MEBIBYTES * 1024**2,
                engine=json.dumps(engine),
            )
            arguments: list[str | Path] = [self.program, "-c", configuration]
            server = stack.enter_context(PinnedProcess(arguments, core=placement.server, folder=folder))
            server.wait_ready(lambda: listens(port))

            def pids() -> dict[Role, list[int]]:
                store = {Role.STORE: redis.pids()} if redis else {}
                return {Role.SERVER: server.pids()} | store

            def alive() -> None:
                server.check()
                if redis:
                    redis.check()

            yield Running(endpoint=Endpoint(None, HOST, port, CONNECT_TARGET, API_TARGET), pids=pids, alive=alive)


class CentrifugoRedis(Centrifugo):
    """The same with a Redis, as whoever runs several of them has it."""

    name: ClassVar[str] = "centrifugo-redis"
    title: ClassVar[str] = "Centrifugo, in Redis"
    with_redis: ClassVar[bool] = True
