"""What servers do with queues and histories, from socket to socket.

What is told is the CPU time of each process for a message or an event, which a client in Python beside them does not
change; messages a second of the whole are told as well, and are those of a machine on which all of it runs.

```text
queue    one sender, several messages under way ──▶ queue ──▶ four consumers that accept each
history  one reader of all that was published, from the earliest event
```
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measure import process_cpu
from benchmarks.systems.base import Role, Running, StartOptions
from gateway.client import MessageConsumer, Session, connect

QUEUE: Final = "jobs/bench"
TOPIC: Final = "log/bench"
CONSUMERS: Final = 4
CREDIT: Final = 200
UNDER_WAY: Final = 200
"""Messages that are sent at a time, and events that are published at a time."""

VALUE: Final = "x" * 100

MESSAGES: Final = 20_000
EVENTS: Final = 100_000
QUICK_SHARE: Final = 10
"""A quick run has so many times less of them."""

_MICROSECONDS: Final = 1e6

_DECLARED: Final = f"""
[[destination]]
path = "{QUEUE}"
kind = "queue"

[[destination]]
selector = "{TOPIC}"
kind = "history"
count = {2 * EVENTS}
bytes = "256MiB"
"""
_HISTORY_BYTES: Final = "512MiB"
"""That a node may keep of histories: more than there will be."""


@contextlib.contextmanager
def declared(folder: Path) -> Iterator[StartOptions]:
    """Say how a node is started that knows the queue and the history; *folder* has their file for so long."""
    file = folder / "destinations.toml"
    file.write_text(_DECLARED, "utf-8")
    try:
        yield StartOptions(extra={"destinations": str(file), "history-bytes": _HISTORY_BYTES})
    finally:
        file.unlink()


@dataclass(frozen=True, slots=True)
class Rate:
    """What was measured.

    Attributes:
        count: how often something was done.
        seconds: for all of it.
        server: CPU seconds of the server.
        redis: CPU seconds of its Redis; 0 if it has none.
    """

    count: int
    seconds: float
    server: float
    redis: float

    @property
    def per_second(self) -> float:
        """How often it was done in a second, by all that runs on this machine."""
        return self.count / self.seconds

    @property
    def per_core(self) -> float:
        """How often a core of the server would do it in a second."""
        return self.count / self.server

    @property
    def server_microseconds(self) -> float:
        """CPU of the server for each."""
        return self.server * _MICROSECONDS / self.count

    @property
    def redis_microseconds(self) -> float:
        """CPU of its Redis for each."""
        return self.redis * _MICROSECONDS / self.count


class Meter:
    """Reads the CPU time of a server and its Redis around a piece of work."""

    def __init__(self, running: Running) -> None:
        self._pids = running.pids()

    def read(self) -> tuple[float, float, float]:
        """Tell the time, and the CPU seconds of server and Redis so far."""
        server, redis = (sum(map(process_cpu, self._pids.get(role, ()))) for role in (Role.SERVER, Role.STORE))
        return time.monotonic(), server, redis

    def rate(self, count: int, since: tuple[float, float, float]) -> Rate:
        """Tell what it took since a reading."""
        seconds, server, redis = (now - before for now, before in zip(self.read(), since, strict=True))
        return Rate(count, seconds, server, redis)


def url_of(running: Running) -> str:
    """Tell where clients of a gateway connect."""
    return f"ws://{running.endpoint.host}:{running.endpoint.port}"


async def _all(count: int, work: Callable[[], Awaitable[object]]) -> None:
    """Do something many times, ``UNDER_WAY`` of them at a time."""
    for start in range(0, count, UNDER_WAY):
        await asyncio.gather(*(work() for _ in range(start, min(count, start + UNDER_WAY))))


async def measure_queue(running: Running, *, ack: str, messages: int) -> Rate:
    """Send messages and have them accepted by four consumers."""
    url, meter = url_of(running), Meter(running)
    left, done = messages, asyncio.Event()

    async def take(consumer: MessageConsumer) -> None:
        nonlocal left
        async for message in consumer:
            if ack == "each":
                accepting.add(task := asyncio.create_task(message.accept()))
                task.add_done_callback(accepting.discard)
            left -= 1
            if not left:
                done.set()

    accepting: set[asyncio.Task[None]] = set()
    sessions: list[Session] = [await connect(url, f"consumer-{number}") for number in range(CONSUMERS)]
    takers = [asyncio.create_task(take(await each.consume(QUEUE, credit=CREDIT, ack=ack))) for each in sessions]
    async with connect(url, "sender") as sender:
        since = meter.read()
        await _all(messages, lambda: sender.send(QUEUE, VALUE))
        await done.wait()
        await asyncio.gather(*accepting)
        rate = meter.rate(messages, since)
    for each in sessions:
        await each.close()
    await asyncio.gather(*takers)
    return rate


async def measure_history(running: Running, *, events: int) -> Rate:
    """Publish to a topic with history, and measure how all of it is read from its beginning."""
    url, meter = url_of(running), Meter(running)
    async with connect(url, "writer") as writer:
        await _all(events, lambda: writer.publish(TOPIC, VALUE))
    async with connect(url, "reader") as reader:
        since = meter.read()
        stream = await reader.subscribe(TOPIC, start="earliest")
        for _ in range(events):
            await anext(stream)
        return meter.rate(events, since)
