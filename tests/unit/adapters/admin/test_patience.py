"""The admin port and those who say nothing, say it slowly, or come in crowds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.adapters.admin import AdminServer, patience
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.catalogue import metrics as catalogue
from tests.support.clock import eventually
from tests.support.times import time_limit

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def metrics() -> MemoryMetrics:
    return MemoryMetrics()


@pytest.fixture
async def server(metrics: MemoryMetrics) -> AsyncIterator[AdminServer]:
    running = AdminServer("127.0.0.1", 0, ready=list, metrics_text=bytes, metrics=metrics, log=MemoryEventLog())
    await running.start()
    yield running
    await running.close()
    assert not running._patience._timers


async def dial(server: AdminServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def rest(reader: asyncio.StreamReader) -> bytes:
    try:
        async with time_limit(10):
            return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("said", [b"", b"GET /heal", HEALTH[:-2]], ids=["nothing", "half a line", "no end"])
async def test_who_asks_nothing_is_not_waited_for(
    server: AdminServer, metrics: MemoryMetrics, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(patience, "REQUEST_SECONDS", 0.1)
    reader, writer = await dial(server)
    writer.write(said)

    assert await rest(reader) == b""
    assert metrics.counts(catalogue.ADMIN_CONNECTIONS_REFUSED) == {"silent": 1}
    writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(
    server: AdminServer, metrics: MemoryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "REQUEST_SECONDS", 0.1)
    reader, writer = await dial(server)
    writer.write(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")

    await rest(reader)
    assert metrics.counts(catalogue.ADMIN_CONNECTIONS_REFUSED) == {"slow": 1}
    writer.close()


async def test_who_has_asked_in_time_may_stay(
    server: AdminServer, metrics: MemoryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "REQUEST_SECONDS", 0.2)
    reader, writer = await dial(server)
    other, silent = await dial(server)
    for _ in range(2):
        writer.write(HEALTH)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"}\n")
        # A whole time limit goes by: that of a connection that says nothing.
        await rest(other)
        silent.close()
        other, silent = await dial(server)
    silent.close()
    writer.close()
    await eventually(lambda: not server._patience._open)


async def test_connections_are_bounded(
    server: AdminServer, metrics: MemoryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_CONNECTIONS", 3)
    held = [await dial(server) for _ in range(3)]
    reader, writer = await dial(server)

    assert await rest(reader) == b""
    assert metrics.counts(catalogue.ADMIN_CONNECTIONS_REFUSED) == {"crowded_out": 1}
    writer.close()
    held[0][1].close()
    await eventually(lambda: len(server._patience._open) == 2)
    reader, writer = await dial(server)
    writer.write(HEALTH)
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    for _, each in [*held, (reader, writer)]:
        each.close()
