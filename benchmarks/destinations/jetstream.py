"""As much of NATS as it takes to give JetStream the work that queues and histories of the gateway are given.

```text
queue    producer ──▶ stream (retention: work queue) ──▶ four members of a deliver group, explicit acknowledgements
history  producer ──▶ stream (retention: limits)     ──▶ one consumer of all messages, from the first
```
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from benchmarks.destinations.rates import CONSUMERS, CREDIT, UNDER_WAY, VALUE, Meter, Rate
from benchmarks.processes import HOST
from benchmarks.systems.base import Running, SystemFailed

STREAM: Final = "BENCH"
SUBJECT: Final = "jobs.bench"
DELIVERED: Final = "deliver.bench"
GROUP: Final = "workers"

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
        self._pongs: deque[asyncio.Future[None]] = deque()
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

    async def flush(self) -> None:
        """Wait until the server knows all that was said, such as a subscription: it answers in order."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self._writer.write(b"PING\r\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            await pong

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
            elif line.startswith(b"PONG"):
                self._pongs.popleft().set_result(None)
            elif line.startswith(b"PING"):
                self._writer.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise SystemFailed(f"nats-server: {line.decode().strip()}")


@contextlib.asynccontextmanager
async def _stream(port: int, *, storage: str, retention: str) -> AsyncIterator[NatsConnection]:
    """Have a stream for the length of the block; yields a connection of its producer."""
    async with NatsConnection.opened(port, "producer") as producer:
        await producer.ask_api(
            f"STREAM.CREATE.{STREAM}",
            {"name": STREAM, "subjects": [SUBJECT], "retention": retention, "storage": storage, "num_replicas": 1},
        )
        yield producer
        await producer.ask_api(f"STREAM.DELETE.{STREAM}", {})


async def _send(producer: NatsConnection, count: int) -> None:
    """Send messages, of which each is confirmed."""
    content = json.dumps(VALUE).encode()
    for start in range(0, count, UNDER_WAY):
        asked = (producer.ask(SUBJECT, content) for _ in range(start, min(count, start + UNDER_WAY)))
        answers = await asyncio.gather(*asked)
        if any(b'"error"' in each for each in answers):
            raise SystemFailed(f"a message was refused: {answers[0]!r}")


async def _consume(producer: NatsConnection, name: str, config: Mapping[str, object]) -> None:
    content = {"stream_name": STREAM, "config": {"durable_name": name, "deliver_subject": DELIVERED, **config}}
    await producer.ask_api(f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", content)


async def measure_work_queue(running: Running, *, storage: str, messages: int) -> Rate:
    """Send messages to a work queue, and have four consumers acknowledge each."""
    port, meter = running.endpoint.port, Meter(running)
    async with contextlib.AsyncExitStack() as stack:
        producer = await stack.enter_async_context(_stream(port, storage=storage, retention="workqueue"))
        for number in range(CONSUMERS):
            consumer = await stack.enter_async_context(NatsConnection.opened(port, f"consumer{number}"))

            def take(_subject: str, reply: str, _content: bytes, consumer: NatsConnection = consumer) -> None:
                consumer.publish(reply, _ACK)

            consumer.subscribe(DELIVERED, take, GROUP)
            await consumer.flush()
        group = {"deliver_group": GROUP, "ack_policy": "explicit", "max_ack_pending": CONSUMERS * CREDIT}
        await _consume(producer, GROUP, group)
        since = meter.read()
        await _send(producer, messages)
        async with asyncio.timeout(ANSWER_SECONDS):
            while (await producer.ask_api(f"STREAM.INFO.{STREAM}", {}))["state"]["messages"]:  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
        return meter.rate(messages, since)


async def measure_replay(running: Running, *, storage: str, events: int) -> Rate:
    """Have one consumer read all that a stream has."""
    port, meter = running.endpoint.port, Meter(running)
    async with (
        _stream(port, storage=storage, retention="limits") as producer,
        NatsConnection.opened(port, "reader") as reader,
    ):
        await _send(producer, events)
        left, done = events, asyncio.Event()

        def take(_subject: str, _reply: str, _content: bytes) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        reader.subscribe(DELIVERED, take)
        await reader.flush()
        since = meter.read()
        await _consume(producer, "reader", {"deliver_policy": "all", "ack_policy": "none"})
        async with asyncio.timeout(ANSWER_SECONDS):
            await done.wait()
        return meter.rate(events, since)
