"""The contract of ``Connection``: the loopback of the tests, and a real WebSocket, in the clear and over TLS."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from gateway.adapters.admin.console_connection import ConsoleConnection
from gateway.adapters.memory import LoopbackConnection, MemoryEventLog, MemoryMetrics, OpenAdmission
from gateway.adapters.tls import ServerTls
from gateway.adapters.websocket.server import ClientInterface, WebSocketServer
from gateway.adapters.websocket.upgrade_request import CONNECT_PATH
from gateway.core.wire.codec import SUBPROTOCOL
from gateway.core.wire.codes import FENCED, GOING_AWAY
from gateway.ports import Connection
from tests.support.calls import NoCalls
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.times import time_limit

MESSAGE_BYTES = 65_536
"""Largest message in this suite."""


class Pair(ABC):
    """A connection and the client at its other end."""

    connection: Connection

    @abstractmethod
    async def send(self, text: str) -> None:
        """Have the client send."""

    @abstractmethod
    async def next(self) -> str | tuple[int | None, str]:
        """Wait for the next message at the client, or the code and reason of the close."""

    @abstractmethod
    async def close(self, code: int) -> None:
        """Have the client close."""

    @abstractmethod
    async def vanish(self) -> None:
        """Have the client's transport break without a close."""

    @abstractmethod
    def stop_reading(self) -> None:
        """Let the client take nothing from its transport until ``next`` is called."""


class LoopbackPair(Pair):
    """The loopback."""

    def __init__(self) -> None:
        self.loopback = LoopbackConnection("127.0.0.1")
        self.connection: Connection = self.loopback

    async def send(self, text: str) -> None:
        self.loopback.send(text.encode())

    async def next(self) -> str | tuple[int | None, str]:
        self.loopback.take_all()
        message = await self.loopback.next_written()
        if message is None:
            assert self.loopback.closed is not None
            return self.loopback.closed
        return message.decode()

    async def close(self, code: int) -> None:
        self.loopback.hang_up(code)

    async def vanish(self) -> None:
        self.loopback.hang_up()

    def stop_reading(self) -> None:
        self.loopback.pushing_back = True


class WebSocketPair(Pair):
    """A WebSocket of the server and an independent client."""

    def __init__(self, connection: Connection, client: ClientConnection) -> None:
        self.connection = connection
        self.client = client

    async def send(self, text: str) -> None:
        await self.client.send(text)

    async def next(self) -> str | tuple[int | None, str]:
        self.client.transport.resume_reading()
        try:
            message = await self.client.recv()
        except ConnectionClosed as closed:
            return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd is not None else (None, "")
        assert isinstance(message, str)
        return message

    async def close(self, code: int) -> None:
        await self.client.close(code)

    async def vanish(self) -> None:
        self.client.transport.abort()

    def stop_reading(self) -> None:
        self.client.transport.pause_reading()


@asynccontextmanager
async def console_pair() -> AsyncIterator[Pair]:
    """A console's connection, as the admin port makes it."""
    connections: asyncio.Queue[ConsoleConnection] = asyncio.Queue()

    async def handle(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), compress=False, max_msg_size=MESSAGE_BYTES)
        await websocket.prepare(request)
        connection = ConsoleConnection(websocket, request.remote or "")
        connections.put_nowait(connection)
        await connection.run()
        return websocket

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"ws://127.0.0.1:{runner.addresses[0][1]}/"
    async with connect(url, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, proxy=None) as client:
        yield WebSocketPair(await connections.get(), client)
        client.transport.abort()
    await runner.cleanup()


@pytest.fixture(params=["loopback", "websocket", "tls", "console"])
async def pair(request: pytest.FixtureRequest, authority: Authority) -> AsyncIterator[Pair]:
    """A connection with its other end; what is written at the application is not read by anybody else."""
    if request.param == "loopback":
        yield LoopbackPair()
        return
    if request.param == "console":
        async with console_pair() as pair:
            yield pair
        return
    connections: asyncio.Queue[Connection] = asyncio.Queue()
    over = asyncio.Event()

    async def serve(connection: Connection) -> None:
        connections.put_nowait(connection)
        await over.wait()

    is_secure = request.param == "tls"
    server = WebSocketServer(
        [ClientInterface("127.0.0.1", 0, tls=ServerTls(authority.issue("server")).context if is_secure else None)],
        serve=serve,
        calls=NoCalls(),
        admission=OpenAdmission(),
        accepting=lambda: True,
        message_bytes=MESSAGE_BYTES,
        metrics=MemoryMetrics(),
        log=MemoryEventLog(),
    )
    await server.start()
    url = f"{'wss' if is_secure else 'ws'}://127.0.0.1:{server.port}{CONNECT_PATH}"
    async with connect(
        url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        compression=None,
        proxy=None,
        ssl=authority.trust() if is_secure else None,
    ) as client:
        yield WebSocketPair(await connections.get(), client)
        client.transport.abort()
    over.set()
    await server.close()


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """Nothing in this suite may wait for ever."""
    async with time_limit():
        yield


async def test_messages_of_the_client_are_received_in_order(pair: Pair) -> None:
    """Wait for the next text message. Returns: its UTF-8 bytes."""
    texts = ["one", "", "日本 🙂", "x" * 50_000]
    for text in texts:
        await pair.send(text)
    assert [await pair.connection.receive() for _ in texts] == [text.encode() for text in texts]
    waiting = asyncio.create_task(pair.connection.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    await pair.send("later")
    assert await waiting == b"later"


async def test_what_is_written_arrives_in_order(pair: Pair) -> None:
    """Send one text message."""
    texts = ["one", "日本 🙂", *(f"message {number}" for number in range(500)), "x" * 70_000]
    for text in texts:
        pair.connection.write(text.encode())
    assert [await pair.next() for _ in texts] == texts


async def test_the_address_is_known(pair: Pair) -> None:
    """Where the client comes from, as far as trusted proxies tell."""
    assert pair.connection.address == "127.0.0.1"


async def test_a_close_of_the_application_reaches_the_client(pair: Pair) -> None:
    """Send a close frame and drop the transport."""
    pair.connection.write(b"before")
    reading = asyncio.create_task(pair.connection.receive())
    before = pair.connection.is_closing
    pair.connection.close(GOING_AWAY.code, "the node drains")
    assert (before, pair.connection.is_closing) == (False, True)
    assert await pair.next() == "before"
    assert await pair.next() == (GOING_AWAY.code, "the node drains")
    assert await reading is None
    assert await pair.connection.receive() is None
    assert pair.connection.close_code == GOING_AWAY.code


async def test_nothing_is_written_after_a_close(pair: Pair) -> None:
    """write: no effect after a close. / The first close counts."""
    pair.connection.close(FENCED.code, "first")
    pair.connection.write(b"after")
    pair.connection.close(GOING_AWAY.code, "second")
    assert await pair.next() == (FENCED.code, "first")
    assert pair.connection.close_code == FENCED.code


async def test_a_close_of_the_client_ends_the_connection(pair: Pair) -> None:
    """receive: None once the connection is over. / close_code: the close code with which the connection ended."""
    await pair.send("last words")
    closing = asyncio.create_task(pair.close(1000))
    assert await pair.connection.receive() == b"last words"
    assert await pair.connection.receive() is None
    assert await pair.connection.receive() is None
    assert pair.connection.close_code == 1000
    assert pair.connection.is_closing
    await closing
    pair.connection.write(b"into the void")
    pair.connection.close(GOING_AWAY.code, "too late")


async def test_a_broken_transport_ends_the_connection_without_a_code(pair: Pair) -> None:
    """close_code: None while it is open and if it ended without one."""
    await pair.vanish()
    assert await pair.connection.receive() is None
    assert pair.connection.close_code is None
    assert pair.connection.is_closing
    pair.connection.write(b"into the void")


async def test_the_backlog_tells_of_push_back(pair: Pair) -> None:
    """write: its bytes are queued if the transport pushes back. / backlog: bytes […] not yet taken by the transport."""
    assert pair.connection.backlog() == 0
    pair.stop_reading()
    written = 0
    # Loopback sockets take some MB before they push back.
    while pair.connection.backlog() < 10 * MESSAGE_BYTES and written < 1000:
        pair.connection.write(f"{written} ".encode() + b"x" * (MESSAGE_BYTES - 10))
        written += 1
        await asyncio.sleep(0)
    assert pair.connection.backlog() >= 10 * MESSAGE_BYTES
    for number in range(written):
        message = await pair.next()
        assert isinstance(message, str)
        assert int(message.split(" ", 1)[0]) == number, "nothing is lost or reordered"
    await eventually(lambda: pair.connection.backlog() == 0)


async def test_to_write_to_many_is_to_write_to_each(pair: Pair) -> None:
    """write_all: means the same as ``write`` for one after the other."""
    connection = pair.connection
    type(connection).write_all([connection], [b"first"])
    connection.write(b"second")
    type(connection).write_all([], [])
    assert [await pair.next(), await pair.next()] == ["first", "second"]
    connection.close(GOING_AWAY.code, "over")
    type(connection).write_all([connection], [b"into the void"])
    assert await pair.next() == (GOING_AWAY.code, "over")


class Ear:
    """A receiver that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.too_big: list[bytes] = []
        self.over = 0

    def received(self, message: bytes) -> None:
        self.heard.append(message)

    def oversized(self, beginning: bytes, reason: str) -> None:
        self.too_big.append(beginning)

    def ended(self) -> None:
        self.over += 1


async def test_a_receiver_hears_what_comes_and_first_what_came_before(pair: Pair) -> None:
    """listen: beginning with those that receive has not returned yet."""
    for text in ("hello", "early"):
        await pair.send(text)
    assert await pair.connection.receive() == b"hello"
    ear = Ear()
    pair.connection.listen(ear)
    await pair.send("later")
    await eventually(lambda: ear.heard == [b"early", b"later"])
    assert not ear.over


async def test_a_paused_receiver_hears_everything_afterwards(pair: Pair) -> None:
    """pause: hand no messages to the receiver. / resume: go on, with what came before it first."""
    ear = Ear()
    pair.connection.listen(ear)
    await pair.send("before")
    await eventually(lambda: ear.heard == [b"before"])
    pair.connection.pause()
    for text in ("one", "two", "three"):
        await pair.send(text)
    await asyncio.sleep(0)
    assert ear.heard == [b"before"]
    pair.connection.resume()
    await eventually(lambda: ear.heard == [b"before", b"one", b"two", b"three"])


async def test_a_receiver_may_pause_while_it_is_handed_messages(pair: Pair) -> None:
    """pause: also from within received, where more of them have come already."""

    class Cautious(Ear):
        def received(self, message: bytes) -> None:
            super().received(message)
            pair.connection.pause()

    ear = Cautious()
    for text in ("one", "two", "three"):
        await pair.send(text)
    pair.connection.listen(ear)
    for number in (1, 2, 3):
        await eventually(lambda number=number: len(ear.heard) == number)  # type: ignore[misc]
        await asyncio.sleep(0)
        assert len(ear.heard) == number
        pair.connection.resume()


@pytest.mark.parametrize("by", ["application", "client", "nobody"])
async def test_a_receiver_is_told_of_the_end_once(pair: Pair, by: str) -> None:
    """ended: the connection is over; called once, after the last message."""
    ear = Ear()
    pair.connection.listen(ear)
    await pair.send("last words")
    await eventually(lambda: ear.heard == [b"last words"])
    closing = None
    if by == "application":
        pair.connection.close(GOING_AWAY.code, "the node drains")
        assert not ear.over, "whoever closes need not expect to be told before it returns"
    elif by == "client":
        closing = asyncio.create_task(pair.close(1000))
    else:
        await pair.vanish()
    await eventually(lambda: ear.over == 1)
    if closing is not None:
        await closing
    pair.connection.close(FENCED.code, "too late")
    await asyncio.sleep(0)
    assert (ear.heard, ear.over) == ([b"last words"], 1)


async def test_who_listens_too_late_is_told_so(pair: Pair) -> None:
    """listen: if the connection is over already, the receiver is told so soon."""
    pair.connection.close(GOING_AWAY.code, "the node drains")
    ear = Ear()
    pair.connection.listen(ear)
    await eventually(lambda: ear.over == 1)
    await asyncio.sleep(0)
    assert (ear.heard, ear.over) == ([], 1)
