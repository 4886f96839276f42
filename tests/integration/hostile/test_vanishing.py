"""Clients that vanish: no FIN, no RST, nothing is answered any more, and what the node sends leads nowhere (P7).

Twice: behind a relay that stops passing anything on, which works everywhere; and at the end of a cable that is pulled,
which needs the right to make network interfaces. Behind the relay, the node's kernel still gets its bytes confirmed;
at the cable's end it repeats them in vain, as for a laptop that was closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.adapters.websocket import connection as connection_module
from gateway.core.wire.codes import PING_TIMEOUT
from gateway.local.proxy import FaultProxy
from gateway.settings import HostPort
from tests.fuzz.wire import TEXT, Wire, frame
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P7")

CLIENTS: Final = 40
"""That vanish together: half of them come back elsewhere, of the others nothing may be left."""

PATIENCE: Final = 60.0
"""Seconds for anything that must come."""

WINDOW: Final = 600
"""Seconds that the sessions are kept whose clients come back elsewhere: their old node does not wait for that, but lets
them go when it is told of the claim, or asks for them."""

NEAR, FAR = "198.18.251.1", "198.18.251.2"
"""The two ends of the cable, in a network that is set aside for tests (RFC 2544)."""

CLONE_NEWNET: Final = 0x40000000


class Network(NamedTuple):
    """What is between clients and a node.

    Attributes:
        host: where the node listens.
        lead: tells how to connect, once the node's port is known.
        fail: makes everybody vanish who has connected so.
    """

    host: str
    lead: Callable[[int], Awaitable[Callable[[], Awaitable[socket.socket]]]]
    fail: Callable[[], Any]


async def connected(address: tuple[str, int]) -> socket.socket:
    end = socket.socket()
    end.setblocking(False)
    await asyncio.get_running_loop().sock_connect(end, address)
    return end


@asynccontextmanager
async def relay() -> AsyncIterator[Network]:
    proxies: list[FaultProxy] = []

    async def lead(port: int) -> Callable[[], Awaitable[socket.socket]]:
        proxies.append(FaultProxy("127.0.0.1", port))
        await proxies[0].start()
        return lambda: connected(("127.0.0.1", proxies[0].port))

    def fail() -> None:
        for proxy in proxies:
            proxy.stall()

    try:
        yield Network("127.0.0.1", lead, fail)
    finally:
        for proxy in proxies:
            await proxy.stop()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@asynccontextmanager
async def cable() -> AsyncIterator[Network]:
    """Lay a cable into a network namespace of its own."""
    name, near, far = f"vanish{os.getpid()}", f"near{os.getpid()}", f"far{os.getpid()}"
    try:
        ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespace can be made here: {error}")
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("address", "add", f"{NEAR}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "address", "add", f"{FAR}/30", "dev", far)
        ip("-n", name, "link", "set", far, "up")

        async def lead(port: int) -> Callable[[], Awaitable[socket.socket]]:
            async def connect() -> socket.socket:
                with inside(name):
                    end = socket.socket()
                end.setblocking(False)
                await asyncio.get_running_loop().sock_connect(end, (NEAR, port))
                return end

            return connect

        yield Network(NEAR, lead, lambda: ip("-n", name, "link", "set", far, "down"))
    finally:
        with suppress(subprocess.CalledProcessError):
            ip("link", "delete", near)
        ip("netns", "delete", name)


@contextmanager
def inside(namespace: str) -> Any:
    """Have this thread make its sockets in a network namespace: where a socket was made is where it stays."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as here, Path(f"/run/netns/{namespace}").open("rb") as there:
        assert libc.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(here.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


def closes(node: TestNode, code: int) -> float:
    text = node.gateway.metrics.render().decode()
    (line,) = [each for each in text.splitlines() if each.startswith(f'gateway_closes_total{{code="{code}"}}')]
    return float(line.rpartition(" ")[2])


async def begin(connect: Callable[[], Awaitable[socket.socket]], number: int) -> tuple[Wire, dict[str, Any]]:
    """Open a session that selects ``a/**``; return its connection and its welcome."""
    wire = Wire(0)
    await wire.dial(await connect())
    assert await wire.upgrade()
    for packet in (
        {"type": "hello", "principal": f"p{number}", "window": WINDOW if number % 2 else 1},
        [{"type": "ack", "received": 0}, {"type": "subscribe", "id": 1, "request": 1, "selector": "a/**"}],
    ):
        await wire.send(frame(TEXT, orjson.dumps(packet)))
        await wire.frame()
    welcome: dict[str, Any] = orjson.loads(wire.messages[0])
    assert welcome["type"] == "welcome"
    return wire, welcome


async def close_all(wires: list[Wire]) -> None:
    for wire in wires:
        await wire.close()


@pytest.mark.promise("P20")
@pytest.mark.parametrize("network", [relay, cable])
async def test_who_vanishes_is_noticed_and_keeps_its_session(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_TIMEOUT", 0.5)
    memory = MemoryGridServer()
    quick: dict[str, Any] = {
        "memory": memory,
        "ping_interval": scaled(0.5),
        "ping_timeout": scaled(1.5),
        "reap_interval": 0.1,
    }
    async with (
        time_limit(PATIENCE),
        AsyncExitStack() as stack,
        network() as way,
        running_node("n1", listen=HostPort(way.host, 0), **quick) as n1,
        running_node("n2", **quick | {"ping_interval": scaled(10.0), "ping_timeout": scaled(30.0)}) as n2,
    ):
        connect = await way.lead(n1.gateway.port)
        gone = [await begin(connect, number) for number in range(CLIENTS)]
        stack.push_async_callback(close_all, [wire for wire, _ in gone])
        assert len(n1.gateway.node.sessions) == CLIENTS
        way.fail()

        # They are written to all the time: that the kernel takes it must not look like a sign of life.
        async with RawClient(n2.url) as speaker, RawClient(n2.url) as witness:
            await witness.hello("witness")
            await witness.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
            await witness.expect("reply")
            await speaker.hello("speaker")
            number = 0
            while closes(n1, PING_TIMEOUT.code) < CLIENTS or n1.gateway.node.connections:
                number += 1
                await speaker.send(
                    {"id": number, "type": "publish", "request": number, "topic": "a/b", "value": number},
                    {"type": "ack", "received": number - 1},
                )
                await speaker.expect("reply")
                assert (await witness.expect("update"))["value"] == number, "nobody else notices"
            assert closes(n1, PING_TIMEOUT.code) == CLIENTS
            await eventually(lambda: not n1.gateway._clients._connections, within=PATIENCE)

            for which in range(1, CLIENTS, 2):
                _, welcome = gone[which]
                async with RawClient(n2.url) as back:
                    again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
                    assert (again["type"], again["session"]) == ("welcome", welcome["session"]), again
                    assert again["selections"] == ["+a/**"]
                    assert (await back.expect("update"))["value"] == number
                    await back.send({"type": "bye"})
                    await back.closed()
            await eventually(lambda: not n1.gateway.node.sessions, within=PATIENCE)
        await eventually(lambda: not n2.gateway.node.connections)
        ended = {welcome["session"] for _, welcome in gone}
        # Tombstones are what a client is told from, should it come back too late (protocol 5.5); they have their end.
        kept = [name for name in memory.inventory() if "tombstone" not in name]
        assert [name for name in kept if any(each in name for each in ended)] == []
