"""A work queue of NATS JetStream beside a queue of the gateway: ``python -m benchmarks.queue_peers``.

Both are given the same work by clients in Python beside them: one producer with many messages under way, of which each
is confirmed, and four consumers that acknowledge each message. What is told is the CPU time of all server processes for
a message, which the clients do not change, and messages a second of the whole, which they do. JetStream is spoken to
over TCP and in its own protocol, the gateway over WebSocket.

```text
producer ──▶ stream (retention: work queue) ──▶ four members of a deliver group, explicit acknowledgements
```
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.measure import process_cpu
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, scratch_folder
from benchmarks.queue_rate import (
    CONSUMERS,
    CREDIT,
    DECLARED,
    MESSAGES,
    UNDER_WAY,
    VALUE,
    Meter,
    Rate,
    measure_queue,
)
from benchmarks.systems.base import StartOptions, SystemFailed, SystemUnavailable
from benchmarks.systems.gateway import GatewayNode
from gateway.local.ports import free_port

PROGRAM: Final = "nats-server"
STREAM: Final = "WORK"
SUBJECT: Final = "jobs.bench"
DELIVERED: Final = "deliver.work"
GROUP: Final = "workers"
STORAGE: Final = ("memory", "file")
"""Of the stream. With ``file`` it is written at once, and forced to the disk every two minutes (``sync_interval``)."""

ANSWER_SECONDS: Final = 60.0
"""Within which an answer of the server has to come."""

LOOK: Final = 0.02
"""Seconds between two looks whether all is acknowledged."""

_ACK: Final = b"+ACK"


class NatsConnection:
    """A connection that speaks as much of the NATS protocol as this needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader, self._writer = reader, writer
        self._inbox = f"_INBOX.{name}"
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._heard: dict[bytes, Callable[[str, str, bytes], None]] = {}
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, port: int, name: str) -> AsyncIterator[NatsConnection]:
        """Connect to the server on *port*; closes at the end of the block."""
        reader, writer = await asyncio.open_connection(HOST, port)
        connection = cls(reader, writer, name)
        writer.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":false,"protocol":1}\r\n')
        connection.subscribe(f"{connection._inbox}.*", connection._answered)
        try:
            yield connection
        finally:
            connection._reading.cancel()
            await asyncio.gather(connection._reading, return_exceptions=True)
            writer.close()

    def subscribe(self, subject: str, hear: Callable[[str, str, bytes], None], group: str = "") -> None:
        """Have *hear* called with subject, reply subject and content of each message."""
        number = next(self._numbers)
        self._heard[b"%d" % number] = hear
        self._writer.write(f"SUB {subject} {group} {number}\r\n".encode())

    def publish(self, subject: str, content: bytes, reply: str = "") -> None:
        """Send a message."""
        self._writer.write(f"PUB {subject} {reply} {len(content)}\r\n".encode() + content + b"\r\n")

    async def ask(self, subject: str, content: bytes) -> bytes:
        """Send a message and wait for its answer."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[reply] = answer
        self.publish(subject, content, reply)
        async with asyncio.timeout(ANSWER_SECONDS):
            return await answer

    async def ask_api(self, subject: str, content: Mapping[str, object]) -> dict[str, Any]:
        """Ask JetStream to do something.

        Raises:
            SystemFailed: it refuses.
        """
        answer: dict[str, Any] = json.loads(await self.ask(f"$JS.API.{subject}", json.dumps(content).encode()))
        if "error" in answer:
            raise SystemFailed(f"{subject}: {answer['error']}")
        return answer

    def _answered(self, subject: str, _reply: str, content: bytes) -> None:
        answer = self._answers.pop(subject, None)
        if answer is not None and not answer.done():
            answer.set_result(content)

    async def _read(self) -> None:
        while line := await self._reader.readline():
            if line.startswith(b"MSG "):
                subject, number, *reply, size = line.split()[1:]
                content = (await self._reader.readexactly(int(size) + 2))[:-2]
                self._heard[number](subject.decode(), reply[0].decode() if reply else "", content)
            elif line.startswith(b"PING"):
                self._writer.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise SystemFailed(f"{PROGRAM}: {line.decode().strip()}")


async def measure_jetstream(port: int, pid: int, *, storage: str, messages: int) -> Rate:
    """Send messages to a work queue, and have four consumers acknowledge each."""
    async with contextlib.AsyncExitStack() as stack:
        producer = await stack.enter_async_context(NatsConnection.opened(port, "producer"))
        await producer.ask_api(
            f"STREAM.CREATE.{STREAM}",
            {"name": STREAM, "subjects": [SUBJECT], "retention": "workqueue", "storage": storage, "num_replicas": 1},
        )
        for number in range(CONSUMERS):
            consumer = await stack.enter_async_context(NatsConnection.opened(port, f"consumer{number}"))

            def take(_subject: str, reply: str, _content: bytes, consumer: NatsConnection = consumer) -> None:
                consumer.publish(reply, _ACK)

            consumer.subscribe(DELIVERED, take, GROUP)
        await producer.ask_api(
            f"CONSUMER.DURABLE.CREATE.{STREAM}.{GROUP}",
            {
                "stream_name": STREAM,
                "config": {
                    "durable_name": GROUP,
                    "deliver_subject": DELIVERED,
                    "deliver_group": GROUP,
                    "ack_policy": "explicit",
                    "max_ack_pending": CONSUMERS * CREDIT,
                },
            },
        )
        content = json.dumps(VALUE).encode()
        began, cpu = asyncio.get_running_loop().time(), process_cpu(pid)
        for start in range(0, messages, UNDER_WAY):
            count = min(UNDER_WAY, messages - start)
            answers = await asyncio.gather(*(producer.ask(SUBJECT, content) for _ in range(count)))
            if any(b'"error"' in each for each in answers):
                raise SystemFailed(f"a message was refused: {answers[0]!r}")
        async with asyncio.timeout(ANSWER_SECONDS):
            while (await producer.ask_api(f"STREAM.INFO.{STREAM}", {}))["state"]["messages"]:  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
        seconds = asyncio.get_running_loop().time() - began
        rate = Rate(
            f"JetStream, in {storage}: sent, given and acknowledged", messages, seconds, process_cpu(pid) - cpu, 0.0
        )
        await producer.ask_api(f"STREAM.DELETE.{STREAM}", {})
        return rate


async def measure_gateway(url: str, meter: Meter, messages: int) -> list[Rate]:
    """Do the same with a queue of the gateway."""
    return [await measure_queue(url, meter, ack=ack, messages=messages) for ack in ("auto", "each")]


@click.command()
@click.option("--messages", default=MESSAGES, show_default=True, help="How many are sent.")
def main(messages: int) -> None:
    """Measure a work queue of JetStream beside a queue of the gateway."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise SystemUnavailable(f"{PROGRAM} is not installed; on Debian: apt-get install {PROGRAM}")
    placement, rates = Placement.of_this_machine(), []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "destinations.toml"
        file.write_text(DECLARED, "utf-8")
        with GatewayNode().running(placement, StartOptions(extra={"destinations": str(file)})) as running:
            url = f"ws://{running.endpoint.host}:{running.endpoint.port}"
            rates += asyncio.run(measure_gateway(url, Meter(running), messages))
    for storage in STORAGE:
        port = free_port()
        with scratch_folder(PROGRAM) as store:
            command = (program, "-a", HOST, "-p", str(port), "-js", "-sd", str(store))
            with PinnedProcess(command, core=placement.server, folder=store) as process:
                process.wait_ready(lambda port=port: listens(port))  # type: ignore[misc]
                (pid,) = process.pids()
                rates.append(asyncio.run(measure_jetstream(port, pid, storage=storage, messages=messages)))
    click.echo("| | a second, all on this machine | a second of a core of the node | node, µs | Redis, µs |")
    click.echo("| --- | --: | --: | --: | --: |")
    for rate in rates:
        click.echo(str(rate))


if __name__ == "__main__":
    main()
