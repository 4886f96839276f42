"""What the work costs that clients cause, authenticated or not, beside the constants that it is charged by.

``python -m benchmarks.micro.costs`` prints a table. Everything happens in one thread: what the peers do is done before
the processor time is read, so only the node's side is in it, the kernel's part of it too. The least of some rounds is
taken, as other work of the machine can only add to it.

Of the admin port, a class of service is charged what its turn was measured to take, and a constant for what cannot be
measured there; the same is taken off here. Of the client port, all is charged by constants.
"""

# ruff: noqa: D102, D103, SLF001 - names tell what is measured; nobody else has to look into a pacer

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

import trustme
import uvloop

from gateway.adapters.admin import AdminServer
from gateway.adapters.admin.listener import AdminListener
from gateway.adapters.admin.pacing import COSTS, Pacer, ServiceClass
from gateway.adapters.admin.places import UNAUTHENTICATED
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.websocket import connection as connection_module
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.adapters.websocket.read_scheduler import PacedReader, ReadScheduler
from gateway.adapters.websocket.work import BYTE_COST, FRAME_COST, READ_COST
from gateway.adapters.work_budget import WorkLimits
from gateway.ports import Access

ROUNDS: Final = 5
"""Measurements of each, of which the least is shown."""

CONNECTIONS: Final = 400
"""At once: fewer than there are places."""

TOGETHER: Final = 20
"""Requests sent together, on each of ``CONNECTIONS / TOGETHER`` connections."""

HANDSHAKES: Final = 100
"""Of TLS at once."""

READS: Final = 20
"""Pieces of a request on each connection."""

QUIET_TURNS: Final = 10
"""Turns of the loop in which nothing happens, after which all is done."""

IDLE_TURN: Final = 20e-6
"""Seconds that a turn takes at most in which nothing was read."""

TOO_FAR: Final = 1.5
"""A constant further off than by this factor is marked."""

METRICS: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
MISSING: Final = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF: Final = b"GET /h"


class Tally:
    """Sums up what a pacer is told, and never lets it owe anything."""

    def __init__(self, pacer: Pacer) -> None:
        self.done: Counter[ServiceClass] = Counter()
        self.measured = 0.0
        self._inner = pacer.charge
        self._pacer = pacer
        pacer._bucket = type(pacer._bucket)(1e6, 1e6)
        pacer.charge = self.charge  # type: ignore[method-assign]

    def charge(self, service: ServiceClass, begun: float, *, times: int = 1) -> None:
        self.done[service] += times
        self.measured += 0.0 if self._pacer._is_working else time.thread_time() - begun
        self._inner(service, begun, times=times)


class AdminPort:
    """An admin port, and sockets at it that never read.

    Attributes:
        tally: of what it was charged.
        sockets: those that are connected.
    """

    def __init__(self, listener: AdminListener) -> None:
        self._listener = listener
        self.tally = Tally(listener.pacer)
        self.sockets: list[socket.socket] = []

    def dial(self, said: bytes) -> None:
        dialled = socket.socket()
        dialled.setblocking(False)
        with suppress(BlockingIOError):
            dialled.connect(("127.0.0.1", self._listener.port))
        if said:
            dialled.send(said)
        self.sockets.append(dialled)

    async def work(self) -> float:
        """Let it do all that there is to do; returns the seconds of the processor that were not measured by it."""
        measured, begun = self.tally.measured, time.thread_time()
        quiet, before, end, turn = 0, (-1, -1), 0.0, begun
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            now, ended = (self.tally.done.total(), self._listener.pacer.queued), time.thread_time()
            # An end of a connection is work, too, of which nobody is told.
            quiet = quiet + 1 if now == before and ended - turn <= IDLE_TURN else 0
            if not quiet:
                end = ended
            before, turn = now, ended
        return end - begun - (self.tally.measured - measured)


@asynccontextmanager
async def admin_port(tls: Callable[[], ssl.SSLContext] | None = None) -> AsyncIterator[AdminPort]:
    """Run one."""
    server = AdminServer(
        "127.0.0.1",
        0,
        ready=list,
        metrics_text=lambda: b"gateway_up 1\n",
        metrics=MemoryMetrics(),
        log=MemoryEventLog(),
        tls=tls,
        value_bytes=1024,
    )
    await server.start()
    listener = server._listener
    if listener is None:
        raise AssertionError("it was started")
    port = AdminPort(listener)
    yield port
    for each in port.sockets:
        each.close()
    await server.close()


async def accepted() -> float:
    """Each makes room by ending another: that is part of it."""
    async with admin_port() as port:
        for _ in range(UNAUTHENTICATED):
            port.dial(b"")
        await port.work()
        for _ in range(CONNECTIONS):
            port.dial(b"")
        return await port.work() / CONNECTIONS


async def checked() -> float:
    async with admin_port() as port:
        for _ in range(CONNECTIONS):
            port.dial(HEALTH)
        return await port.work() / CONNECTIONS - COSTS_FOUND[ServiceClass.ACCEPT]


async def read() -> float:
    async with admin_port() as port:
        for _ in range(CONNECTIONS):
            port.dial(HALF)
        await port.work()
        seconds = 0.0
        before = port.tally.done[ServiceClass.READ]
        for _ in range(READS):
            for each in port.sockets:
                each.send(b"e")
            seconds += await port.work()
        return seconds / (port.tally.done[ServiceClass.READ] - before)


async def _whole(said: bytes, *found: ServiceClass) -> float:
    """What a connection costs that says something and ends, without what was *found* to cost a part of it."""
    async with admin_port() as port:
        for _ in range(CONNECTIONS):
            port.dial(said)
        seconds = await port.work()
        for each in port.sockets:
            each.close()
        port.sockets.clear()
        seconds += await port.work()
        return seconds / CONNECTIONS - sum(COSTS_FOUND[each] for each in found)


async def opened() -> float:
    """With its end, which others may cause."""
    return await _whole(HALF, ServiceClass.ACCEPT, ServiceClass.READ)


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make those of a node, by RSA 2048, the dearest of the usual keys, and of its clients."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", key_type=trustme.KeyType.RSA).configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return context, trust


async def shaken() -> float:
    """A piece of a handshake that is not whole by it."""
    context, _ = contexts()
    async with admin_port(lambda: context) as port:
        for _ in range(CONNECTIONS):
            port.dial(b"\x16\x03\x01\x02\x00")
        await port.work()
        seconds = 0.0
        before = port.tally.done[ServiceClass.HANDSHAKE]
        for at in range(READS):
            for each in port.sockets:
                each.send(b"\x01\x00\x01\xfc"[at : at + 1] or b"\x03")
            seconds += await port.work()
        return seconds / (port.tally.done[ServiceClass.HANDSHAKE] - before)


async def secured() -> float:
    """Shake hands and end, without accepting and the further turns; what OpenSSL does is measured by the pacer."""
    context, trust = contexts()
    async with admin_port(lambda: context) as port:
        for _ in range(HANDSHAKES):
            port.dial(b"")
        seconds = await port.work()
        port.sockets = [
            trust.wrap_socket(each, server_hostname="localhost", do_handshake_on_connect=False) for each in port.sockets
        ]
        shaking: list[socket.socket] = port.sockets
        while shaking:
            left = []
            for each in shaking:
                try:
                    each.do_handshake()  # type: ignore[attr-defined]
                except ssl.SSLWantReadError:
                    left.append(each)
            shaking = left
            seconds += await port.work()
        for each in port.sockets:
            each.close()
        port.sockets = []
        seconds += await port.work()
        done = port.tally.done
        further = sum(done[each] for each in (ServiceClass.HANDSHAKE, ServiceClass.FIRST_READ, ServiceClass.READ))
        others = COSTS_FOUND[ServiceClass.ACCEPT] + further / HANDSHAKES * COSTS_FOUND[ServiceClass.HANDSHAKE]
        return seconds / HANDSHAKES - others


async def _first(request: bytes) -> float:
    """What a first request costs, in two turns: that in which it is opened, and that in which it is answered."""
    return await _whole(request, ServiceClass.ACCEPT, ServiceClass.READ, ServiceClass.OPEN) / 2


async def scraped() -> float:
    return await _first(METRICS)


async def asked() -> float:
    return await _first(MISSING)


async def asked_further() -> float:
    async with admin_port() as port:
        for _ in range(CONNECTIONS // TOGETHER):
            port.dial(MISSING)
        await port.work()
        for each in port.sockets:
            each.send(MISSING * TOGETHER)
        seconds = await port.work()
        return seconds / (CONNECTIONS // TOGETHER) / TOGETHER


COSTS_FOUND: Final[dict[ServiceClass, float]] = {}

ADMIN: Final[dict[ServiceClass, Callable[[], Awaitable[float]]]] = {
    ServiceClass.ACCEPT: accepted,
    ServiceClass.READ: read,
    ServiceClass.OPEN: opened,
    ServiceClass.HANDSHAKE: shaken,
    ServiceClass.OPEN_TLS: secured,
    ServiceClass.HEALTH: checked,
    ServiceClass.METRICS: scraped,
    ServiceClass.OTHER: asked,
    ServiceClass.FURTHER: asked_further,
}
"""In this order, as each takes off what was found before."""


# --- The client port --------------------------------------------------------------------------------------------------


UNBOUNDED: Final = WorkLimits(rate=1e6, burst=1e6, idle_rate=1e6, idle_burst=1e6)

FLOOD: Final = 20_000
"""Frames of a flood that is measured."""

MESSAGE_BYTES: Final = 65_536

LONG: Final = 60_000
"""Bytes of a large frame."""


class Deaf:
    """Hears everything, and does nothing with it."""

    def received(self, message: bytes) -> None:
        """See ``Receiver``."""

    def oversized(self, beginning: bytes, reason: str) -> None:
        """See ``Receiver``."""

    def ended(self) -> None:
        """See ``Receiver``."""


def masked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """Write a frame as a client does."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2)  # noqa: PLR2004 - RFC 6455 section 5.2
    body = bytes(each ^ KEY[at % len(KEY)] for at, each in enumerate(payload))
    return bytes([opcode | (0x80 if final else 0)]) + length + KEY + body


KEY: Final = b"\x01\x02\x03\x04"


@contextmanager
def serving(scheduler: ReadScheduler) -> Iterator[socket.socket]:
    """Make a connection, and tell the other end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        transport, _ = listener.accept()
    transport.setblocking(False)
    peer.setblocking(False)
    reading = PacedReader(scheduler.sessions, transport.fileno(), "", lambda: False)
    connection = WebSocketConnection(
        transport,
        "127.0.0.1",
        access=Access(),
        reading=reading,
        sessions=scheduler.sessions,
        message_bytes=MESSAGE_BYTES,
        violated=lambda _, rule: sys.exit(f"the flood was taken for a violation: {rule}"),
        slowed=lambda _: None,
        over=lambda _: None,
    )
    connection.begin(b"")
    connection.listen(Deaf())
    with peer:
        yield peer
        connection.abort()


async def taken_in(peer: socket.socket, data: bytes) -> float:
    """Send, and let the connection read all of it; returns the processor's seconds that the reading took."""
    left, seconds, quiet = memoryview(data), 0.0, 0
    while quiet < QUIET_TURNS:
        with suppress(BlockingIOError):
            left = left[peer.send(left) :] if left else left
        with suppress(BlockingIOError):
            peer.recv(1 << 20)
        begun = time.thread_time()
        await asyncio.sleep(0)
        took = time.thread_time() - begun
        quiet = 0 if left or took > IDLE_TURN else quiet + 1
        seconds += took if took > IDLE_TURN else 0.0
    return seconds


async def frame() -> float:
    """The dearest of the frames that make no message, without their bytes."""
    found = []
    for begin, more in (
        (b"", masked(9, b"")),
        (b"", masked(10, b"")),
        (masked(1, b"x", final=False), masked(0, b"", final=False)),
    ):
        with serving(ReadScheduler()) as peer:
            found.append(await taken_in(peer, begin + more * FLOOD) / FLOOD)
    return max(found)


async def byte() -> float:
    """In large messages, and in long pongs; the dearer."""
    found = []
    for one, size in ((masked(1, b"x" * LONG), LONG), (masked(1, "\u00fc".encode() * (LONG // 2)), LONG)):
        with serving(ReadScheduler()) as peer:
            found.append(await taken_in(peer, one * 100) / 100 / size)
    return max(found)


async def piece() -> float:
    """One byte, again and again, on many connections: nothing is complete."""
    scheduler = ReadScheduler()
    with ExitStack() as stack:
        peers = [stack.enter_context(serving(scheduler)) for _ in range(CONNECTIONS)]
        seconds = 0.0
        for peer in peers:
            peer.send(masked(1, b"x" * 100)[:6])
        for _ in range(READS):
            await taken_in(peers[0], b"")
            for peer in peers:
                peer.send(b"x")
            seconds += await taken_in(peers[0], b"")
        return seconds / READS / CONNECTIONS


CLIENT: Final[dict[str, tuple[float, Callable[[], Awaitable[float]]]]] = {
    "FRAME_COST": (FRAME_COST, frame),
    "BYTE_COST": (BYTE_COST, byte),
    "READ_COST": (READ_COST, piece),
}


async def main() -> None:
    """Measure, and print."""
    vars(connection_module)["SESSION"] = UNBOUNDED
    rows: list[tuple[str, float, float]] = []
    for service, measure in ADMIN.items():
        COSTS_FOUND[service] = min([await measure() for _ in range(ROUNDS)])
        rows.append((f"COSTS[{service.name}]", COSTS[service], COSTS_FOUND[service]))
    for name, (constant, measure) in CLIENT.items():
        rows.append((name, constant, min([await measure() for _ in range(ROUNDS)])))
    sys.stdout.write(f"{'constant':<20}{'is, µs':>12}{'measured':>12}{'ratio':>8}\n")
    for name, constant, found in rows:
        ratio = constant / found if found > 0 else math.inf
        mark = "" if 1 / TOO_FAR <= ratio <= TOO_FAR else "  <- off"
        sys.stdout.write(f"{name:<20}{constant * 1e6:>12.4g}{found * 1e6:>12.4g}{ratio:>8.2f}{mark}\n")


if __name__ == "__main__":
    uvloop.run(main())
