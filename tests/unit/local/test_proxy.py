"""The fault proxy does the faults it is asked for, exactly, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.local.ports import LOOPBACK, free_port
from gateway.local.proxy import FaultProxy, Way
from tests.support.times import time_limit


class Echo:
    """A server that sends back what it gets, and counts it."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.open = 0
        self.resets = 0
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await until(lambda: self.open == 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while chunk := await reader.read(65_536):
                self.received += chunk
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            self.resets += 1
        finally:
            writer.close()
            self.open -= 1


async def until(condition: Callable[[], bool]) -> None:
    async with time_limit():
        while not condition():  # noqa: ASYNC110 - the condition is of another party
            await asyncio.sleep(0.001)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    server = Echo()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(LOOPBACK, echo.port) as proxy:
        yield proxy
    assert proxy.connections == 0


class Client:
    """One connection through the proxy, closed at the end of the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def exchange(self, message: bytes) -> bytes:
        self.writer.write(message)
        async with time_limit():
            return await self.reader.readexactly(len(message))

    async def read(self) -> bytes:
        async with time_limit():
            return await self.reader.read(65_536)


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection(LOOPBACK, proxy.port))
    yield client
    client.writer.close()
    with contextlib.suppress(ConnectionError):
        await client.writer.wait_closed()


async def test_passes_bytes_unchanged_both_ways(proxy: FaultProxy, client: Client) -> None:
    message = bytes(range(256)) * 1000

    assert await client.exchange(message) == message
    assert proxy.passed == {Way.UP: len(message), Way.DOWN: len(message)}
    assert (proxy.accepted, proxy.connections) == (1, 1)


async def test_passes_the_end_of_the_stream(client: Client, echo: Echo) -> None:
    client.writer.write(b"last words")
    client.writer.write_eof()

    async with time_limit():
        assert await client.reader.read(-1) == b"last words"
    assert echo.resets == 0


async def test_cut_resets_both_sides(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.exchange(b"hello")

    assert proxy.cut() == 1
    assert proxy.cuts == 1

    with pytest.raises(ConnectionResetError):
        await client.read()
    await until(lambda: echo.resets == 1)
    await until(lambda: proxy.connections == 0)


async def test_after_a_cut_new_connections_pass(proxy: FaultProxy, client: Client) -> None:
    await client.exchange(b"hello")
    proxy.cut()

    again = Client(*await asyncio.open_connection(LOOPBACK, proxy.port))

    assert await again.exchange(b"again") == b"again"
    again.writer.close()
    await again.writer.wait_closed()


@pytest.mark.parametrize("count", [0, 1, 7])
async def test_cut_after_bytes_on_the_way_up(proxy: FaultProxy, client: Client, echo: Echo, count: int) -> None:
    proxy.cut_after(count, Way.UP)
    client.writer.write(b"12345678")

    with pytest.raises(ConnectionResetError):
        await client.reader.readexactly(8)
    await until(lambda: echo.open == 0)

    assert bytes(echo.received) == b"12345678"[:count]


async def test_cut_after_zero_on_the_way_down_loses_the_reply_only(
    proxy: FaultProxy, client: Client, echo: Echo
) -> None:
    proxy.cut_after(0, Way.DOWN)
    client.writer.write(b"do it")

    with pytest.raises(ConnectionResetError):
        await client.read()

    assert bytes(echo.received) == b"do it"
    assert proxy.passed[Way.DOWN] == 0
    await until(lambda: proxy.cuts == 1)


async def test_cut_after_is_good_for_one_cut(proxy: FaultProxy, client: Client) -> None:
    proxy.cut_after(0, Way.UP)
    client.writer.write(b"x")
    with pytest.raises(ConnectionResetError):
        await client.read()

    again = Client(*await asyncio.open_connection(LOOPBACK, proxy.port))

    assert await again.exchange(b"again") == b"again"
    again.writer.close()
    await again.writer.wait_closed()


async def test_stall_holds_bytes_back_until_flow(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.exchange(b"before")
    proxy.stall(Way.DOWN)
    reply = asyncio.create_task(client.exchange(b"during"))
    await until(lambda: bytes(echo.received) == b"beforeduring")
    passed = proxy.passed[Way.DOWN]

    assert passed == len(b"before")
    assert not reply.done()

    proxy.flow()
    assert await reply == b"during"


async def test_what_fits_a_pattern_is_caught_on_its_way(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    sprung = proxy.stall_at(re.compile(rb"take.over"), Way.UP)
    await client.exchange(b"before ta")
    reply = asyncio.create_task(client.exchange(b"ke over"))
    async with time_limit():
        await sprung.wait()
    proxy.stall(Way.DOWN)

    assert bytes(echo.received) == b"before ta"

    proxy.flow(Way.UP)
    await until(lambda: bytes(echo.received) == b"before take over")
    assert not reply.done()
    proxy.flow()
    assert await reply == b"ke over"
    assert await client.exchange(b"take over") == b"take over", "it was caught once"


async def test_a_stalled_connection_can_be_cut(proxy: FaultProxy, client: Client) -> None:
    await client.exchange(b"before")
    proxy.stall()

    assert proxy.cut() == 1
    with pytest.raises(ConnectionResetError):
        await client.read()


async def test_delay_holds_each_way_back_and_keeps_order(proxy: FaultProxy, client: Client) -> None:
    proxy.delay(0.05)
    loop = asyncio.get_running_loop()
    began = loop.time()
    message = b"".join(b"%04d" % number for number in range(100))

    assert await client.exchange(message) == message
    assert loop.time() - began >= 0.1


async def test_limit_bounds_the_bandwidth(proxy: FaultProxy, client: Client) -> None:
    proxy.limit(100_000, Way.UP)
    loop = asyncio.get_running_loop()
    began = loop.time()

    assert await client.exchange(bytes(20_000)) == bytes(20_000)
    # The pause that pays for the last slice comes after it.
    assert loop.time() - began >= 0.1


async def test_refuse_turns_new_connections_away_and_keeps_open_ones(proxy: FaultProxy, client: Client) -> None:
    await client.exchange(b"before")
    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOOPBACK, proxy.port)
    assert await client.exchange(b"still here") == b"still here"

    port = proxy.port
    await proxy.start()
    assert proxy.port == port
    again = Client(*await asyncio.open_connection(LOOPBACK, port))
    assert await again.exchange(b"again") == b"again"
    again.writer.close()
    await again.writer.wait_closed()


async def test_a_target_that_refuses_resets_the_client() -> None:
    async with FaultProxy(LOOPBACK, free_port()) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_target_that_resets_resets_the_client() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        peer = writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(slam, LOOPBACK, 0)
    async with FaultProxy(LOOPBACK, server.sockets[0].getsockname()[1]) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        writer.write(b"1")
        async with time_limit():
            with pytest.raises(ConnectionResetError):
                await reader.read()
        writer.close()
        await until(lambda: proxy.connections == 0)
    server.close()


@pytest.mark.parametrize("turns", range(10))
async def test_a_connection_that_is_just_arriving_is_not_left_behind(turns: int) -> None:
    """Asyncio takes some turns of the loop from accepting it to letting it be used."""
    with socket.create_server((LOOPBACK, 0)) as target, socket.socket() as client:
        proxy = FaultProxy(LOOPBACK, target.getsockname()[1])
        await proxy.start()
        client.setblocking(False)
        client.connect_ex((LOOPBACK, proxy.port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await proxy.stop()
        gc.collect()  # which complains of what nobody has closed
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_half_close_ends_one_way_and_leaves_the_other(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    assert await client.exchange(b"before") == b"before"

    assert proxy.half_close(Way.DOWN) == 1
    assert await client.read() == b""
    client.writer.write(b"after")
    await until(lambda: echo.received == b"beforeafter")
    assert echo.open == 1, "the server has not noticed"
    proxy.half_close(Way.UP)
    await until(lambda: echo.open == 0)


async def test_half_close_of_a_connection_that_was_reset_in_that_moment(proxy: FaultProxy, echo: Echo) -> None:
    with socket.create_connection((LOOPBACK, proxy.port)) as client:
        await until(lambda: echo.open == 1)
        # Closed with this, it is reset; the proxy's loop gets no turn to notice.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert proxy.half_close(Way.DOWN) == 1
    await until(lambda: proxy.connections == echo.open == 0)


async def test_heal_ends_what_was_asked_for(proxy: FaultProxy, client: Client) -> None:
    proxy.stall()
    proxy.delay(60)
    proxy.limit(1)
    proxy.heal()
    assert await client.exchange(b"through") == b"through"
