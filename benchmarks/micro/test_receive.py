"""What a node spends on reading: from a client's frames to the receiver of the messages, and from accept to upgrade.

A client in the same process writes and does nothing else, so its system calls are among what is measured.
"""

# ruff: noqa: ARG002, D102, D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from typing import Any, Final

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.storm import wire
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics, OpenAdmission
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.adapters.websocket.frames import FrameReader
from gateway.adapters.websocket.server import ClientInterface, WebSocketServer
from tests.support.calls import NoCalls

MESSAGE_BYTES: Final = 65_536
SHORT: Final = 125
"""Bytes of a message whose length is in the second byte."""
MASK: Final = b"\x01\x02\x03\x04"
REQUEST: Final = wire.upgrade_request("gateway.example", 80, "/v1/connect", "gateway.v1.json")


def frame(message: bytes) -> bytes:
    size = len(message)
    head = bytes([0x81, 0x80 | size]) if size <= SHORT else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + MASK + bytes([byte ^ MASK[at % 4] for at, byte in enumerate(message)])


SMALL: Final = b'{"type":"ack","received":12345}'
LARGE: Final = b"x" * 60_000
ALONE: Final = 50
"""Messages that come one in a turn of the loop."""
JOINED: Final = 500
"""Messages that come together."""
TOGETHER: Final = 100
"""Of them in one read, as many as are read at once."""
NEWCOMERS: Final = 20
ROUNDS: Final = 200
"""Of each, as a round has many steps already."""


class Node:
    """A client port, and one client with a session."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.heard = 0
        self._wanted = 0
        self._done: asyncio.Future[None] | None = None
        self.server = WebSocketServer(
            [ClientInterface("127.0.0.1", 0)],
            serve=self._serve,
            calls=NoCalls(),
            admission=OpenAdmission(),
            accepting=lambda: True,
            message_bytes=MESSAGE_BYTES,
            metrics=MemoryMetrics(),
            log=MemoryEventLog(),
        )
        self.run(self.server.start())
        self.client = self.open(1)[0]

    async def _serve(self, connection: WebSocketConnection) -> None:
        connection.listen(self)
        self._count()

    def received(self, message: bytes) -> None:
        self._count()

    def oversized(self, beginning: bytes, reason: str) -> None:
        raise AssertionError(reason)

    def ended(self) -> None:
        """Nothing hangs on it."""

    def _count(self) -> None:
        self.heard += 1
        if self.heard == self._wanted and self._done is not None:
            self._done.set_result(None)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    async def _until(self, wanted: int) -> None:
        if self.heard < wanted:
            self._wanted, self._done = wanted, self.loop.create_future()
            await self._done

    def open(self, count: int) -> list[socket.socket]:
        """Let clients come that ask at once."""
        wanted = self.heard + count
        clients = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(count)]
        for client in clients:
            client.send(REQUEST)
        self.run(self._until(wanted))
        return clients

    def hear(self, data: bytes, messages: int, times: int) -> None:
        """Read what the client says, each time in turns of its own."""

        async def hear() -> None:
            for _ in range(times):
                wanted = self.heard + messages
                self.client.send(data)
                await self._until(wanted)

        self.run(hear())

    def close(self) -> None:
        self.client.close()
        self.run(self.server.close())
        self.loop.close()


@pytest.fixture
def node() -> Iterator[Node]:
    running = Node()
    yield running
    running.close()


def test_frames_of_small_messages(benchmark: BenchmarkFixture) -> None:
    reader, data = FrameReader(MESSAGE_BYTES), frame(SMALL) * TOGETHER
    arrived, error = benchmark(reader.feed, data)
    assert len(arrived) == TOGETHER
    assert error is None


def test_fifty_small_messages_one_in_a_turn(benchmark: BenchmarkFixture, node: Node) -> None:
    benchmark.pedantic(node.hear, (frame(SMALL), 1, ALONE), rounds=ROUNDS, warmup_rounds=5)  # type: ignore[no-untyped-call]


def test_five_hundred_small_messages_together(benchmark: BenchmarkFixture, node: Node) -> None:
    benchmark.pedantic(node.hear, (frame(SMALL) * JOINED, JOINED, 1), rounds=ROUNDS, warmup_rounds=5)  # type: ignore[no-untyped-call]


def test_a_large_message(benchmark: BenchmarkFixture, node: Node) -> None:
    benchmark.pedantic(node.hear, (frame(LARGE), 1, 1), rounds=ROUNDS, warmup_rounds=5)  # type: ignore[no-untyped-call]


def test_twenty_newcomers(benchmark: BenchmarkFixture, node: Node) -> None:
    def come_and_go() -> None:
        for client in node.open(NEWCOMERS):
            client.close()

    benchmark.pedantic(come_and_go, rounds=ROUNDS, warmup_rounds=5)  # type: ignore[no-untyped-call]
