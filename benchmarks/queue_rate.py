"""What a node does with queues and histories, from socket to socket: ``python -m benchmarks.queue_rate``.

One node over one Redis, both as ``benchmarks.systems.gateway`` starts them. What is told is the CPU time of each
process for a message or an event, which a client in Python beside them does not change; messages a second of the whole
are told as well, and are those of a machine on which all of it runs.

```text
queue    one sender, several messages under way ──▶ queue ──▶ four consumers that accept each
history  one reader of all that was published, from the earliest event
```
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.measure import process_cpu
from benchmarks.placement import Placement
from benchmarks.systems.base import Role, Running, StartOptions
from benchmarks.systems.gateway import GatewayNode
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

_MICROSECONDS: Final = 1e6

DECLARED: Final = f"""
[[destination]]
path = "{QUEUE}"
kind = "queue"

[[destination]]
selector = "{TOPIC}"
kind = "history"
count = {2 * EVENTS}
bytes = "256MiB"
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """What was measured.

    Attributes:
        what: was done.
        count: how often.
        seconds: for all of it.
        node: CPU seconds of the node.
        redis: CPU seconds of Redis.
    """

    what: str
    count: int
    seconds: float
    node: float
    redis: float

    def __str__(self) -> str:
        each = _MICROSECONDS / self.count
        return (
            f"| {self.what} | {self.count / self.seconds:,.0f} | {self.count / self.node:,.0f} "
            f"| {self.node * each:.1f} | {self.redis * each:.1f} |"
        )


class Meter:
    """Reads the CPU time of a node and its Redis around a piece of work."""

    def __init__(self, running: Running) -> None:
        self._pids = running.pids()

    def read(self) -> tuple[float, float, float]:
        """Tell the time, and the CPU seconds of node and Redis so far."""
        node, redis = (sum(map(process_cpu, self._pids[role])) for role in (Role.SERVER, Role.STORE))
        return time.monotonic(), node, redis

    def rate(self, what: str, count: int, since: tuple[float, float, float]) -> Rate:
        """Tell what it took since a reading."""
        seconds, node, redis = (now - before for now, before in zip(self.read(), since, strict=True))
        return Rate(what, count, seconds, node, redis)


async def _all(count: int, work: Callable[[], Awaitable[object]]) -> None:
    """Do something many times, ``UNDER_WAY`` of them at a time."""
    for start in range(0, count, UNDER_WAY):
        await asyncio.gather(*(work() for _ in range(start, min(count, start + UNDER_WAY))))


async def measure_queue(url: str, meter: Meter, *, ack: str, messages: int) -> Rate:
    """Send messages and have them accepted by four consumers."""
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
        rate = meter.rate(f"message sent, given and accepted (`{ack}`)", messages, since)
    for each in sessions:
        await each.close()
    await asyncio.gather(*takers)
    return rate


async def measure_history(url: str, meter: Meter, *, events: int) -> list[Rate]:
    """Publish to a topic with history, and read all of it from its beginning."""
    async with connect(url, "writer") as writer:
        since = meter.read()
        await _all(events, lambda: writer.publish(TOPIC, VALUE))
        published = meter.rate("publish to a topic with history", events, since)
    async with connect(url, "reader") as reader:
        since = meter.read()
        stream = await reader.subscribe(TOPIC, start="earliest")
        for _ in range(events):
            await anext(stream)
        return [published, meter.rate("event read from the history", events, since)]


async def measure(running: Running, *, messages: int, events: int) -> list[Rate]:
    """Measure everything at a node."""
    url = f"ws://{running.endpoint.host}:{running.endpoint.port}"
    meter = Meter(running)
    rates = [await measure_queue(url, meter, ack=ack, messages=messages) for ack in ("auto", "each")]
    return rates + await measure_history(url, meter, events=events)


@click.command()
@click.option("--messages", default=MESSAGES, show_default=True, help="How many are sent.")
@click.option("--events", default=EVENTS, show_default=True, help="How many are published and read.")
def main(messages: int, events: int) -> None:
    """Measure what a node and its Redis take for a message of a queue, and for an event of a history."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "destinations.toml"
        file.write_text(DECLARED, "utf-8")
        options = StartOptions(extra={"destinations": str(file), "history-bytes": "512MiB"})
        with GatewayNode().running(Placement.of_this_machine(), options) as running:
            rates = asyncio.run(measure(running, messages=messages, events=events))
    click.echo("| | a second, all on this machine | a second of a core of the node | node, µs | Redis, µs |")
    click.echo("| --- | --: | --: | --: | --: |")
    for rate in rates:
        click.echo(str(rate))


if __name__ == "__main__":
    main()
