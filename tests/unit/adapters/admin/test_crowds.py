"""The admin port and clients without a token that say nothing or little, take no answers, or come in crowds (P20)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from ssl import SSLContext

import pytest
import uvloop

from gateway.adapters.admin import AdminServer, connection, listener, places
from gateway.adapters.admin import server as http_server
from gateway.adapters.admin.listener import ACCEPTED_AT_ONCE
from gateway.adapters.admin.pacing import Pacer, ServiceClass
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.tls import ServerTls
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.times import PATIENCE, scaled, time_limit

pytestmark = pytest.mark.promise("P20")

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
MISSING = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOKEN = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\n\r\n"
MANY = 600
"""More than there are places."""

BODY_BYTES = 4 * 1024 * 1024
"""Of the metrics: more than the kernel takes for a peer that does not read."""


class Site:
    """An admin port of an administrator whose token is ``good``, with metrics that a test can make large.

    Attributes:
        text: of the metrics.
        renderings: how often the metrics were written.
    """

    def __init__(self, tls: ServerTls | None = None) -> None:
        self.metrics, self.log = MemoryMetrics(), MemoryEventLog()
        self.text = b"gateway_up 1\n"
        self.renderings = 0
        self.trust: SSLContext | None = None
        self.server = AdminServer(
            "127.0.0.1",
            0,
            ready=list,
            metrics_text=self._render,
            metrics=self.metrics,
            log=self.log,
            knows=lambda said: said == "Bearer good",
            tls=None if tls is None else tls.context,
            value_bytes=1024,
        )

    def _render(self) -> bytes:
        self.renderings += 1
        return self.text

    @property
    def listener(self) -> listener.AdminListener:
        assert self.server._listener is not None
        return self.server._listener

    async def dial(self, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = None if self.trust is None else "localhost"
        return await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=self.trust, server_hostname=name, local_addr=(source, 0)
        )

    async def check(self) -> None:
        """Ask for the node's health as HAProxy does: over a connection of its own."""
        async with time_limit():
            reader, writer = await self.dial()
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b'\r\n\r\n{"alive":true}\n')

    def counts(self) -> dict[str, float]:
        return self.metrics.counts(catalogue.ADMIN_CONNECTIONS_REFUSED)

    @property
    def unauthenticated(self) -> int:
        return self.listener.places.unauthenticated


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    await found.server.start()
    yield found
    held = found.listener
    await found.server.close()
    await eventually(lambda: not held._shared.transports)
    assert not list(held.places)
    assert held.places.held_bytes == 0
    assert held.pacer.queued == 0


@pytest.fixture
async def tls_site(tmp_path: Path) -> AsyncIterator[Site]:
    authority = Authority(tmp_path)
    found = Site(ServerTls(authority.issue("localhost")))
    found.trust = authority.trust()
    await found.server.start()
    yield found
    await found.server.close()


def plain(site: Site, said: bytes = b"", *, room: int | None = None) -> socket.socket:
    """Connect by a bare socket, say something, and never read."""
    dialled = socket.socket()
    if room is not None:
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    dialled.connect(("127.0.0.1", site.server.port))
    if said:
        dialled.sendall(said)
    dialled.setblocking(False)
    return dialled


def is_closed(dialled: socket.socket) -> bool:
    try:
        return not dialled.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def rest(reader: asyncio.StreamReader) -> bytes:
    try:
        async with time_limit():
            return await reader.read()
    except ConnectionResetError:
        return b""


async def answer_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes) -> bytes:
    """Ask over a connection that stays; returns the status line."""
    async with time_limit():
        writer.write(said)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        await reader.readexactly(length)
    return head.partition(b"\r\n")[0]


# --- Crowds -----------------------------------------------------------------------------------------------------------

CROWDS = {
    "nothing": b"",
    "half a request": b"GET /heal",
    "a head without an end": HEALTH[:-2],
    "health, and then nothing": HEALTH,
    "metrics, and then nothing": METRICS,
    "metrics that nobody reads": METRICS * 20,
    "pages that nobody reads": MISSING * 20,
    "a wrong token": b"GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer bad\r\n\r\n",
    "a body in chunks without an end": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
    "a WebSocket": b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a large header": b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 50_000,
    "no HTTP": b"\x16\x03\x01\x00\xa5\x01",
}


@pytest.mark.parametrize("said", CROWDS.values(), ids=CROWDS)
async def test_whatever_a_crowd_does_health_metrics_and_administrators_are_answered(
    site: Site, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those are tried below. Here they would only end, on a machine that has no time for the test, what it waits for.
    for deadline in ("REQUEST_SECONDS", "ANSWER_SECONDS", "KEEP_ALIVE_SECONDS"):
        monkeypatch.setattr(connection, deadline, scaled(PATIENCE))
    kept, keeper = await site.dial()
    assert await answer_to(kept, keeper, TOKEN) == b"HTTP/1.1 404 Not Found"
    if said.startswith(METRICS * 2):
        site.text = b"#" * (BODY_BYTES // 16)
    with ExitStack() as stack:
        for number in range(MANY):
            stack.enter_context(plain(site, said))
            if number % 50 == 0:
                await site.check()
        await site.check()

        reader, writer = await site.dial()
        assert await answer_to(reader, writer, METRICS) == b"HTTP/1.1 200 OK"
        writer.close()
        # Over a connection that was there before the crowd, and over a new one.
        assert await answer_to(kept, keeper, TOKEN) == b"HTTP/1.1 404 Not Found"
        reader, writer = await site.dial()
        assert await answer_to(reader, writer, TOKEN) == b"HTTP/1.1 404 Not Found"
        writer.close()

        assert site.unauthenticated <= places.UNAUTHENTICATED
        assert site.listener.places.held_bytes <= places.UNAUTHENTICATED_BYTES + BODY_BYTES + 1024
    keeper.close()
    await eventually(lambda: site.unauthenticated == 0)


class Counted(Pacer):
    """Counts turns of the loop, and work; knows no time but the constants, and never has too little of it.

    So it is as on a machine so busy that the node does not get the share of time that unauthenticated clients have at
    most.
    """

    def __init__(self, share: float = 0.0) -> None:
        super().__init__(share=share or 1e6, worked=lambda: 0.0)
        self.turns = 0
        self.done: Counter[ServiceClass] = Counter()
        self.at_check: tuple[int, Counter[ServiceClass]] | None = None
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self.turns += 1
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    def charge(self, service: ServiceClass, begun: float, *, times: int = 1) -> None:
        self.done[service] += times
        if service is ServiceClass.HEALTH:
            self.at_check = self.turns, self.done.copy()
        super().charge(service, begun, times=times)

    def close(self) -> None:
        self._handle.cancel()
        super().close()


AHEAD = 900
"""Connections that wait in the kernel's queue ahead of a health check: fewer than it has room for."""

CHECK = b"GET /healthz HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"


@pytest.mark.thorough
@pytest.mark.parametrize("said", [b"", MISSING * 50, METRICS * 50], ids=["nothing", "pages", "metrics"])
async def test_a_health_check_behind_a_crowd_is_answered_in_a_few_turns(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """All of the crowd are accepted before it, and it goes before what they have sent together."""
    monkeypatch.setattr(listener, "Pacer", Counted)
    site = Site()
    await site.server.start()
    pacer = site.listener.pacer
    assert isinstance(pacer, Counted)
    with ExitStack() as stack:
        # A crowd that has places, is being answered and has asked for more.
        for _ in range(places.UNAUTHENTICATED):
            stack.enter_context(plain(site, said))
            await asyncio.sleep(0)
        before, turn = pacer.done.copy(), pacer.turns
        # And one in the kernel's queue, all of it between two turns of the loop.
        for _ in range(AHEAD):
            stack.enter_context(plain(site, said))
        check = stack.enter_context(plain(site, CHECK))
        await eventually(lambda: pacer.at_check is not None)
        assert check.recv(4096).startswith(b"HTTP/1.1 200 OK")

    assert pacer.at_check is not None
    turns, done = pacer.at_check[0] - turn, pacer.at_check[1] - before
    assert turns <= AHEAD // ACCEPTED_AT_ONCE // 2, done
    assert done[ServiceClass.ACCEPT] == AHEAD + 1, "each is charged once"
    assert done[ServiceClass.FURTHER] <= AHEAD // 10, done
    await site.server.close()


async def test_whoever_was_idle_for_longest_makes_room_and_it_is_told(site: Site) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(plain(site)) for _ in range(places.UNAUTHENTICATED)]
        await eventually(lambda: site.unauthenticated == places.UNAUTHENTICATED)
        more = [stack.enter_context(plain(site)) for _ in range(100)]

        await eventually(lambda: site.counts() == {"crowded_out": 100})
        await eventually(lambda: all(map(is_closed, crowd[:100])))
        assert not any(map(is_closed, [*crowd[100:], *more]))
    told = site.log.of(events.ADMIN_PORT_CROWDED)
    assert [each["address"] for each in told] == ["127.0.0.1"]


async def test_an_answer_makes_a_connection_the_newest_of_the_idle(site: Site) -> None:
    with ExitStack() as stack:
        reader, writer = await site.dial()
        crowd = [stack.enter_context(plain(site)) for _ in range(places.UNAUTHENTICATED - 1)]
        await eventually(lambda: site.unauthenticated == places.UNAUTHENTICATED)
        assert await answer_to(reader, writer, METRICS) == b"HTTP/1.1 200 OK"
        stack.enter_context(plain(site))

        await eventually(lambda: is_closed(crowd[0]))
        assert await answer_to(reader, writer, METRICS) == b"HTTP/1.1 200 OK"
        writer.close()


async def test_callers_have_places_apart_of_which_the_idle_ones_go_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.listener.places, "_callers", 3)
    callers = [await site.dial() for _ in range(4)]
    for reader, writer in callers:
        assert await answer_to(reader, writer, TOKEN) == b"HTTP/1.1 404 Not Found"

    assert await rest(callers[0][0]) == b""
    for reader, writer in callers[1:]:
        assert await answer_to(reader, writer, TOKEN) == b"HTTP/1.1 404 Not Found"
    assert (site.unauthenticated, site.listener.places.callers) == (0, 3)
    for _, writer in callers:
        writer.close()


async def test_answers_that_nobody_takes_are_bounded_altogether(site: Site) -> None:
    site.text = b"#" * BODY_BYTES
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(plain(site, METRICS, room=4096))

        await eventually(lambda: site.counts().get("crowded_out", 0) >= 10)
        assert site.listener.places.held_bytes <= places.UNAUTHENTICATED_BYTES + BODY_BYTES + 1024
        await site.check()


async def test_whoever_asks_without_end_is_answered_in_turns(site: Site) -> None:
    """10,000 requests sent together hold up nobody: between two of them everybody else has a turn."""
    reader, writer = await site.dial()
    writer.write(METRICS * 10_000)
    reading = asyncio.create_task(_count(reader, b"HTTP/1.1 200 OK\r\n"))
    for _ in range(20):
        await site.check()
    assert len(site.listener.places._held) <= 1
    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert await reading == 10_001
    writer.close()


async def _count(reader: asyncio.StreamReader, what: bytes) -> int:
    return (await reader.read()).count(what)


@pytest.mark.parametrize(
    ("said", "status", "keeps"),
    [
        (HEALTH, b"200 OK", False),
        (b"GET /readyz HTTP/1.0\r\n\r\n", b"200 OK", False),
        (b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK", False),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"200 OK", False),
        (b"GET /healthz HTTP/1.1\r\n: x\r\n\r\n", b"400 Bad Request", False),
        (HEALTH + HEALTH, b"200 OK", False),
        (TOKEN.replace(b"nowhere", b"healthz"), b"200 OK", True),
    ],
    ids=["plain", "HTTP/1.0", "HEAD", "a body", "a bad head", "two", "a token"],
)
async def test_a_health_check_is_answered_once_for_each_connection(
    site: Site, said: bytes, status: bytes, keeps: bool
) -> None:
    """Whichever way it takes: by the bare socket, by a transport, or by aiohttp."""
    for pieces in ([said], [said[:9], said[9:]]):
        reader, writer = await site.dial()
        async with time_limit():
            for piece in pieces:
                writer.write(piece)
                await eventually(lambda: not site.listener._shared.pacer.queued)
                await asyncio.sleep(0)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + status)
            assert (b"Connection: close" not in head) == keeps
            if not keeps:
                assert (await rest(reader)).count(b"HTTP/1.1 ") == 0
        writer.close()


async def test_metrics_are_written_so_often_and_shared_by_all_who_come_between(site: Site) -> None:
    async def scrape() -> None:
        reader, writer = await site.dial()
        for _ in range(3):
            assert await answer_to(reader, writer, METRICS) == b"HTTP/1.1 200 OK"
        writer.close()

    begun = asyncio.get_running_loop().time()
    await asyncio.gather(*(scrape() for _ in range(40)))
    seconds = asyncio.get_running_loop().time() - begun

    assert site.renderings <= 20 + 4 * seconds + 1


# --- Time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"GET /heal", HEALTH[:-2]], ids=["nothing", "half a line", "no end"])
async def test_who_asks_nothing_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.1)
    reader, writer = await site.dial()
    writer.write(said)

    assert await rest(reader) == b""
    assert site.counts() == {"silent": 1}
    writer.close()


async def test_a_second_request_is_not_waited_for_longer_than_the_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await site.dial()
    assert await answer_to(reader, writer, METRICS) == b"HTTP/1.1 200 OK"
    # Not before: the first request would have to come within it.
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.1)
    writer.write(b"GET ")

    assert await rest(reader) == b""
    assert site.counts() == {"silent": 1}
    writer.close()


async def test_an_unauthenticated_client_who_has_asked_is_let_go_soon_and_a_caller_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "KEEP_ALIVE_SECONDS", 0.1)
    (unauthenticated, first), (page, second), (caller, third) = [await site.dial() for _ in range(3)]
    assert await answer_to(caller, third, TOKEN) == b"HTTP/1.1 404 Not Found"
    assert await answer_to(unauthenticated, first, METRICS) == b"HTTP/1.1 200 OK"
    assert await answer_to(page, second, MISSING) == b"HTTP/1.1 404 Not Found"

    assert await rest(unauthenticated) == b""
    assert await rest(page) == b""
    assert await answer_to(caller, third, TOKEN) == b"HTTP/1.1 404 Not Found"
    assert site.counts() == {}
    for each in (first, second, third):
        each.close()


async def test_a_connection_may_be_used_again_for_whatever_is_asked(site: Site) -> None:
    reader, writer = await site.dial()
    for said, status in [(MISSING, b"404 Not Found"), (METRICS, b"200 OK"), (TOKEN, b"404")] * 2:
        assert status in await answer_to(reader, writer, said)
    writer.close()


@pytest.mark.parametrize("said", [METRICS, METRICS.replace(b"Host", b"Connection: close\r\nHost")])
async def test_who_does_not_take_the_answer_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.1)
    site.text = b"#" * BODY_BYTES
    with plain(site, said, room=4096):
        await eventually(lambda: site.counts() == {"slow": 1})


async def test_a_callers_body_that_does_not_come_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    reader, writer = await site.dial()
    writer.write(TOKEN.replace(b"GET", b"POST").replace(b"Host", b"Content-Length: 100\r\nHost") + b"half")

    await rest(reader)
    assert site.counts() == {"slow": 1}
    writer.close()


async def test_an_unauthenticated_clients_body_is_wanted_by_nobody(site: Site) -> None:
    """The answer comes before the body has; more than a body may have is cut off."""
    reader, writer = await site.dial()
    writer.write(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nhalf")
    assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
    with suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(b"x" * 10_000)
            await writer.drain()
    assert site.counts() == {"too_much": 1}
    writer.close()


async def test_a_head_without_end_is_cut_off(site: Site) -> None:
    reader, writer = await site.dial()
    writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 30_000)

    assert (await rest(reader)).startswith((b"HTTP/1.1 431 ", b""))
    assert site.counts() == {"too_much": 1}
    writer.close()


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_handshakes_that_stall_keep_nobody_out(tls_site: Site) -> None:
    reader, writer = await tls_site.dial()
    assert await answer_to(reader, writer, TOKEN) == b"HTTP/1.1 404 Not Found"
    hello = _client_hello()
    with ExitStack() as stack:
        for number in range(MANY):
            stack.enter_context(plain(tls_site, [b"", hello[:50], hello][number % 3]))
        await tls_site.check()
        assert await answer_to(reader, writer, TOKEN) == b"HTTP/1.1 404 Not Found"
        assert tls_site.unauthenticated <= places.UNAUTHENTICATED
    writer.close()
    await eventually(lambda: tls_site.unauthenticated == 0)


async def test_a_handshake_is_not_waited_for(tls_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.1)
    with plain(tls_site, _client_hello()[:50]) as dialled:
        await eventually(lambda: is_closed(dialled))
    assert tls_site.counts() == {"silent": 1}


async def test_over_tls_all_is_served_as_without(tls_site: Site) -> None:
    reader, writer = await tls_site.dial()
    for said, status in [(MISSING, b"404 Not Found"), (METRICS, b"200 OK"), (TOKEN, b"404")] * 2:
        assert status in await answer_to(reader, writer, said)
    writer.close()
    await tls_site.check()


async def test_a_renewed_certificate_is_shown_to_who_connects_from_then_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ServerTls(authority.issue("node"))
    site = Site(tls)
    site.trust = authority.trust()
    await site.server.start()

    async def shown() -> bytes:
        _, writer = await site.dial()
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return der

    first = await shown()
    authority.issue("node")
    assert await shown() == first
    tls.reload()
    assert await shown() != first
    await site.server.close()


@pytest.mark.parametrize("speaks_tls", [False, True])
def test_all_of_it_holds_on_uvloop_too(tmp_path: Path, speaks_tls: bool) -> None:
    """Nodes run on uvloop, whose transports are others."""

    async def once() -> None:
        authority = Authority(tmp_path)
        site = Site(ServerTls(authority.issue("node")) if speaks_tls else None)
        site.trust = authority.trust() if speaks_tls else None
        await site.server.start()
        kept, keeper = await site.dial()
        for said, status in [(MISSING, b"404"), (METRICS, b"200 OK"), (TOKEN, b"404")] * 2:
            assert status in await answer_to(kept, keeper, said)
        with ExitStack() as stack:
            for number in range(MANY):
                said = [b"", _client_hello()[:50], _client_hello(), HEALTH, METRICS, MISSING * 3][number % 6]
                stack.enter_context(plain(site, said))
                if number % 100 == 0:
                    await site.check()
            await site.check()
            assert b"404" in await answer_to(kept, keeper, TOKEN)
            assert site.unauthenticated <= places.UNAUTHENTICATED
        keeper.close()
        await eventually(lambda: site.unauthenticated == 0)
        await site.server.close()
        assert site.listener.pacer.queued == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(once())


@cache
def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
