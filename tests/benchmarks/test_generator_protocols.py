"""The generator does its own part of each protocol: no server is measured with a client that it would never meet."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.generator.driver import COMPILER_OPTIONS, SOURCES, GeneratorFailed, Load, compiler, drive
from benchmarks.progress import Silent
from benchmarks.systems.base import Endpoint, WireProtocol
from tests.benchmarks.fault_server import HOST, FaultServer

pytestmark = pytest.mark.thorough

LOAD = Load(subscribers=5, updates=200, warm_up=0, measure=60, patience=20)


async def test_acknowledgements_come_after_a_quarter_of_the_resend_limit(generator: Path) -> None:
    """The server sends no packet more than its limit beyond the last acknowledged one (protocol 5.3.4)."""
    window = 4
    load = Load(subscribers=5, updates=200, warm_up=0, measure=60, window=window)
    async with FaultServer(WireProtocol.GATEWAY, resend_packets=40) as server:
        report = await server.drive(generator, load)

    assert report.failures == {}
    # Up to 9 packets may be owed when another read brings what is under way.
    assert all(0 < each.largest_step < 40 // 4 + window for each in server.subscribers)


async def test_acknowledgements_come_after_256_packets_where_the_limit_is_large(generator: Path) -> None:
    window = 16
    load = Load(subscribers=2, updates=2_000, warm_up=0, measure=60, window=window)
    async with FaultServer(WireProtocol.GATEWAY, resend_packets=4_096) as server:
        report = await server.drive(generator, load)

    assert report.failures == {}
    assert all(0 < each.largest_step < 256 + window for each in server.subscribers)


async def test_what_no_packet_count_makes_due_is_acknowledged_by_time(generator: Path) -> None:
    """Slower than 256 packets in the time that an acknowledgement may take (protocol 5.3.2)."""
    async with FaultServer(WireProtocol.GATEWAY) as server:
        report = await server.drive(generator, Load(subscribers=2, rate=20, warm_up=0, measure=1))

    assert report.failures == {}
    assert all(each.acknowledged > 1 for each in server.subscribers)


@pytest.mark.parametrize("protocol", list(WireProtocol))
async def test_every_ping_is_answered(generator: Path, protocol: WireProtocol) -> None:
    async with FaultServer(protocol, ping=True) as server:
        report = await server.drive(generator, LOAD)

    assert report.failures == {}
    assert [each.pongs for each in server.subscribers] == [1] * LOAD.subscribers


@pytest.mark.parametrize("protocol", list(WireProtocol))
async def test_values_are_of_the_size_that_was_asked_for(generator: Path, protocol: WireProtocol) -> None:
    """Around the sizes at which a frame's head grows (126 and 65,536 bytes with what is around the value)."""
    for size in (40, 100, 125, 126, 1000, 4000):
        async with FaultServer(protocol) as server:
            report = await server.drive(generator, Load(subscribers=2, updates=40, measure=60, warm_up=0, size=size))
        assert report.failures == {}


async def test_a_schedule_is_kept_and_latency_counts_from_it(generator: Path) -> None:
    load = Load(subscribers=3, rate=100, updates=50, warm_up=0, measure=60)
    async with FaultServer(WireProtocol.PLAIN) as server:
        report = await server.drive(generator, load)

    assert report.failures == {}
    # 50 updates at 100 per second span 49 intervals of 10 ms; none may be sent before its time.
    assert report.seconds >= 0.49
    assert report.delivery.count == 150


async def test_a_stall_counts_for_every_update_that_it_delayed(generator: Path) -> None:
    """No coordinated omission: half a second without service delays every update that the schedule had in it."""
    stalled = asyncio.Event()

    class OneStall(FaultServer):
        async def _publish(self, value: str, send: object) -> None:
            if value.startswith("0000000020") and not stalled.is_set():
                stalled.set()
                # The time of the fault itself, not a wait for something.
                await asyncio.sleep(0.5)
            await super()._publish(value, send)  # type: ignore[arg-type]

    # One update may be under way, so the publisher has to wait with the stall; what it could not send still counts.
    load = Load(subscribers=1, rate=100, updates=120, warm_up=0, measure=60, window=1)
    async with OneStall(WireProtocol.PLAIN) as server:
        report = await server.drive(generator, load)

    assert report.failures == {}
    # About 50 of 120 updates were due in those 0.5 s and waited half of it on average; a publisher that waits with
    # its schedule would have seen one.
    assert report.delivery.p90 >= 200_000
    assert report.largest_lag >= 300_000


@asynccontextmanager
async def http_server(status: str = "202 Accepted") -> AsyncIterator[Endpoint]:
    """Run a server with plain WebSocket subscribers and publishing by POST, written byte by byte."""
    subscribers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                if head.startswith("GET /sub/topic HTTP/1.1"):
                    writer.write(
                        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                    )
                    subscribers.append(writer)
                else:
                    assert head.startswith("POST /pub/topic HTTP/1.1")
                    value = await reader.readexactly(100)
                    for each in subscribers:
                        each.write(bytes([0x81, 100]) + value)
                    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nhello".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Endpoint(WireProtocol.PLAIN, HOST, port, "/sub/{topic}", "/pub/{topic}", publish_by_http=True)


async def test_publishing_by_post(generator: Path) -> None:
    async with http_server() as endpoint:
        report = await asyncio.to_thread(drive, generator, endpoint, LOAD, topic="topic", core=None, progress=Silent())

    assert report.failures == {}
    assert report.delivered == LOAD.subscribers * 200


async def test_a_refused_post_fails(generator: Path) -> None:
    async with http_server("507 Insufficient Storage") as endpoint:
        report = await asyncio.to_thread(drive, generator, endpoint, LOAD, topic="topic", core=None, progress=Silent())

    assert report.failures["refused"] == 1


async def test_nobody_listening_fails(generator: Path, unused_tcp_port: int) -> None:
    endpoint = Endpoint(WireProtocol.PLAIN, HOST, unused_tcp_port, "/", "/")
    report = await asyncio.to_thread(drive, generator, endpoint, LOAD, topic="topic", core=None, progress=Silent())

    assert set(report.failures) == {"refused"}


def test_the_compiler_has_nothing_to_say(generator: Path, tmp_path: Path) -> None:
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wstrict-prototypes", "-Wvla", "-Werror"]
    sources = sorted(SOURCES.glob("*.c"))
    outcome = subprocess.run(
        [compiler(), *COMPILER_OPTIONS, *warnings, "-o", tmp_path / "generator", *sources],
        capture_output=True,
        text=True,
        check=False,
    )

    assert outcome.stderr == ""
    assert outcome.returncode == 0


def test_wrong_use_is_no_result(generator: Path) -> None:
    endpoint = Endpoint(WireProtocol.PLAIN, HOST, 1, "/", "/")
    with pytest.raises(GeneratorFailed, match="more topics than subscribers"):
        drive(generator, endpoint, Load(1, topics=2), topic="topic", core=None, progress=Silent())
