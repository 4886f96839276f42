"""Centrifugo, whose channels keep a history, from which clients recover: what reading histories is measured beside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.processes import HOST
from benchmarks.systems.base import Endpoint, SystemUnavailable
from benchmarks.systems.gateway import redis_version
from benchmarks.systems.one_program import PEERS, OneProgram, Place, configured

TEMPLATE: Final = PEERS / "centrifugo" / "config.json.template"

PROGRAM: Final = "centrifugo"

CONNECT_TARGET: Final = "/connection/websocket"
API_TARGET: Final = "/api"

MOST_EVENTS: Final = 1_000_000
"""Events that a channel keeps, and that one recovery may bring: more than there will be. By default it brings 300 at
most, and who has missed more is told that it cannot be had."""

QUEUE_MEBIBYTES: Final = 256
"""What may wait to be written to a client, who would be cut off by the default of 1: a recovery is one message."""


class Centrifugo(OneProgram):
    """One server, whose histories are in its memory.

    ``endpoint`` is for ``benchmarks.destinations.centrifugo``, which speaks its protocol; the generator does not.
    """

    name: ClassVar[str] = "centrifugo"
    title: ClassVar[str] = "Centrifugo, in memory"

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

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        engine: dict[str, object] = {"type": "memory"}
        if self.with_redis:
            engine = {"type": "redis", "redis": {"address": place.redis_url}}
        configuration = configured(
            place.folder / "config.json",
            TEMPLATE,
            host=HOST,
            port=place.port,
            events=MOST_EVENTS,
            queue_bytes=QUEUE_MEBIBYTES * 1024**2,
            engine=json.dumps(engine),
        )
        return [self.program, "-c", configuration]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return Endpoint(None, HOST, port, CONNECT_TARGET, API_TARGET)


class CentrifugoRedis(Centrifugo):
    """The same, whose histories are streams of a Redis, so that every server that uses it has them."""

    name: ClassVar[str] = "centrifugo-redis"
    title: ClassVar[str] = "Centrifugo, in Redis"
    with_redis: ClassVar[bool] = True
