"""Records of TLS that say nothing, at the admin port: taken in bounded pieces, in turns, charged, then closed (P20).

Nothing here is timed: bytes are counted by the loop's turn, and a pacer is told that each takes what it is charged.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.adapters.admin import listener, tls_transport
from gateway.adapters.admin.pacing import TURN_SECONDS, Pacer, ServiceClass
from gateway.adapters.admin.tls_transport import CALLER_WORK, LINGER_BYTES, TlsTransport
from gateway.adapters.tls import ServerTls
from gateway.adapters.tls_connection import PIECE_BYTES, RECORD_BYTES, RECORD_MOST_BYTES, SILENT_BYTE_COST
from gateway.adapters.work_budget import UNAUTHENTICATED_WORK, WorkLimits
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.counted_socket import CountedSocket
from tests.support.key_updates import KeyUpdates
from tests.support.times import time_limit
from tests.unit.adapters.admin.test_crowds import BODY_BYTES, HEALTH, METRICS, MISSING, TOKEN, Site

pytestmark = pytest.mark.promise("P20")

CHANGE_BYTES = 27
"""Of a change of keys."""

PATIENT = WorkLimits(rate=1e6, burst=1e6, idle_rate=1e6, idle_burst=1e6)
"""A budget that nobody uses up, for what has to be seen without it."""

ONE_READ = RECORD_MOST_BYTES + 2 * PIECE_BYTES
"""Bytes that are taken at most when one connection is read."""


class Client:
    """A client whose records are made in memory, and whose changes of keys are its own doing.

    Args:
        connection: connected, not blocking.
        trust: of nobody else, as its keys are written into a file for it.
    """

    def __init__(self, connection: socket.socket, trust: ssl.SSLContext) -> None:
        self.socket = connection
        self._trust = trust
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._heard = b""

    def client_hello(self) -> bytes:
        """Begin the handshake; the caller sends it."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    async def shake_hands(self) -> KeyUpdates:
        """Go through the handshake; returns what makes all further records, of which none was sent."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self._outgoing.read())
                await self._fill()
            else:
                break
        await self.send(self._outgoing.read())
        cipher = self._tls.cipher()
        assert cipher is not None
        return KeyUpdates(Path(self._trust.keylog_filename), cipher[0], 0)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def flood(self, data: bytes) -> None:
        """Send as much as is taken until the node ends the connection."""
        with suppress(ConnectionError):
            await self.send(data)

    async def until(self, end: bytes) -> bytes:
        """Read to the next *end*."""
        async with time_limit():
            while end not in self._heard:
                await self._fill()
                with suppress(ssl.SSLWantReadError):
                    self._heard += self._tls.read(1 << 20)
        said, _, self._heard = self._heard.partition(end)
        return said

    async def rest(self) -> bytes:
        """Read to the end of TLS, which must come before that of the connection."""
        async with time_limit():
            while True:
                try:
                    said = self._tls.read(1 << 20)
                except ssl.SSLWantReadError:
                    await self._fill()
                    continue
                except ssl.SSLZeroReturnError:
                    said = b""
                if not said:
                    return self._heard
                self._heard += said

    async def _fill(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        if not data:
            raise EOFError("the connection has ended")
        self._incoming.write(data)


class SecureSite(Site):
    """An admin port with TLS 1.3, whose clients can write their keys down."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self._directory = directory
        self._clients: list[Client] = []
        super().__init__(ServerTls(self._authority.issue("localhost")))
        self.trust = self._authority.trust()

    async def client(self, *, room: int | None = None) -> Client:
        """Connect, and say nothing yet."""
        trust = self._authority.trust()
        trust.minimum_version = ssl.TLSVersion.TLSv1_3
        trust.keylog_filename = str(self._directory / f"keys-{len(self._clients)}")
        dialled = socket.socket()
        if room is not None:
            dialled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        dialled.setblocking(False)
        await asyncio.get_running_loop().sock_connect(dialled, ("127.0.0.1", self.server.port))
        self._clients.append(Client(dialled, trust))
        return self._clients[-1]

    async def close(self) -> None:
        """End everything."""
        await self.server.close()
        for each in self._clients:
            each.socket.close()

    async def transport(self) -> TlsTransport:
        """Tell of the only connection."""
        await eventually(lambda: len(self.listener._shared.transports) == 1)
        (found,) = self.listener._shared.transports
        assert isinstance(found, TlsTransport)
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SecureSite]:
    found = SecureSite(tmp_path)
    await found.server.start()
    yield found
    held = found.listener
    await found.close()
    await eventually(lambda: not held._shared.transports)
    assert not list(held.places)
    assert held.places.held_bytes == 0
    assert held.pacer.queued == held.callers_pacer.queued == 0


class TurnPacer(Pacer):
    """Counts the bytes that connections are read by the loop's turn, and knows no time but what those are charged."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__(share=share or 1e6, burst=1e6, worked=lambda: self.bytes * SILENT_BYTE_COST)
        self.bytes = 0
        self.by_turn = [0]
        self.turns_of: dict[ServiceClass, int] = dict.fromkeys(ServiceClass, 0)
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self.by_turn.append(0)
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    def read(self, amount: int) -> None:
        self.bytes += amount
        self.by_turn[-1] += amount

    def charge(self, service: ServiceClass, begun: float, *, times: int = 1) -> None:
        self.turns_of[service] += times
        super().charge(service, begun, times=times)

    def close(self) -> None:
        self._handle.cancel()
        super().close()


@pytest.fixture
async def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SecureSite]:
    """The same with pacers that count."""
    monkeypatch.setattr(listener, "Pacer", TurnPacer)
    monkeypatch.setattr(tls_transport, "UNAUTHENTICATED_WORK", PATIENT)
    monkeypatch.setattr(tls_transport, "CALLER_WORK", PATIENT)
    found = SecureSite(tmp_path)
    await found.server.start()
    yield found
    await found.close()


def count_reads(site: SecureSite, pacer: Pacer) -> TurnPacer:
    """Have the bytes of all connections that there are now told to a pacer."""
    assert isinstance(pacer, TurnPacer)
    for each in site.listener._shared.transports:
        assert isinstance(each, TlsTransport)
        each._tls._socket = CountedSocket(each._tls._socket, pacer.read)  # type: ignore[assignment]
    return pacer


CROWD = 8
"""Connections that flood at the same time: fewer than places apart."""


@pytest.mark.parametrize("is_caller", [False, True], ids=["unauthenticated", "callers"])
async def test_what_is_taken_in_of_all_floods_in_one_turn_is_bounded(counted: SecureSite, is_caller: bool) -> None:
    clients = [await counted.client() for _ in range(CROWD)]
    updates = [await each.shake_hands() for each in clients]
    shared = counted.listener
    if is_caller:
        for client, its in zip(clients, updates, strict=True):
            await client.send(its.say(TOKEN))
            assert b" 404 " in await client.until(b"\r\n")
        await eventually(lambda: shared.places.callers == CROWD)
    await eventually(lambda: len(shared._shared.transports) == CROWD)
    pacer = count_reads(counted, shared.callers_pacer if is_caller else shared.pacer)
    each_sends = 3 * ONE_READ // CHANGE_BYTES
    floods = [its.change(each_sends) + its.say(METRICS) for its in updates]
    # All of it between two turns of the loop, as far as the kernel takes it.
    for client, data in zip(clients, floods, strict=True):
        client.socket.send(data)
    await eventually(lambda: pacer.bytes == sum(map(len, floods)))

    assert sum(pacer.by_turn) > CROWD * 3 * ONE_READ
    # What fits into the time of a turn, and the one read that goes beyond it.
    assert max(pacer.by_turn) <= TURN_SECONDS / SILENT_BYTE_COST + ONE_READ
    for client in clients:
        await client.until(b" 200 OK\r\n")


async def test_what_is_read_is_charged_to_unauthenticated_clients(counted: SecureSite) -> None:
    client = await counted.client()
    updates = await client.shake_hands()
    await counted.transport()
    pacer = count_reads(counted, counted.listener.pacer)
    before, spent = pacer.turns_of[ServiceClass.READ], pacer._spent[ServiceClass.READ]
    data = updates.change(5_000) + updates.say(METRICS)
    await client.send(data)
    assert b" 200 " in await client.until(b"\r\n")

    assert pacer.turns_of[ServiceClass.READ] - before >= (len(data) - ONE_READ) // ONE_READ
    assert pacer._spent[ServiceClass.READ] - spent >= (len(data) - 2 * ONE_READ) * SILENT_BYTE_COST


async def test_an_unauthenticated_client_who_changes_keys_without_end_is_closed(site: SecureSite) -> None:
    client = await site.client()
    updates = await client.shake_hands()
    borne = UNAUTHENTICATED_WORK.idle_burst / SILENT_BYTE_COST + RECORD_MOST_BYTES
    flood = asyncio.create_task(client.flood(updates.change(2 * round(borne) // CHANGE_BYTES)))
    await eventually(lambda: site.counts() == {"too_much": 1})

    await flood
    await eventually(lambda: site.unauthenticated == 0)
    await site.check()


async def test_a_caller_who_changes_keys_without_end_is_slowed_down_and_closed(
    site: SecureSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pause takes real time, so there are few; and less may come at once than one read brings, so that there are some,
    # however slowly the flood comes.
    limits = WorkLimits(rate=CALLER_WORK.rate, burst=0.001, idle_rate=0.001, idle_burst=0.055)
    monkeypatch.setattr(tls_transport, "CALLER_WORK", limits)
    client = await site.client()
    updates = await client.shake_hands()
    await client.send(updates.say(TOKEN))
    assert b" 404 " in await client.until(b"\r\n")
    transport = await site.transport()
    slowed = 0
    rested = transport._rested

    def rest() -> None:
        nonlocal slowed
        slowed += 1
        rested()

    monkeypatch.setattr(transport, "_rested", rest)
    borne = limits.idle_burst / SILENT_BYTE_COST + RECORD_MOST_BYTES
    flood = asyncio.create_task(client.flood(updates.change(2 * round(borne) // CHANGE_BYTES)))
    await eventually(lambda: site.counts() == {"too_much": 1})

    assert slowed >= 1
    await flood
    await eventually(lambda: site.listener.places.callers == 0)


@pytest.mark.parametrize("said", [METRICS, MISSING, TOKEN], ids=["metrics", "a page", "a token"])
async def test_who_changes_keys_before_each_request_is_served(site: SecureSite, said: bytes) -> None:
    """More often altogether than would be borne without a request in between."""
    client = await site.client()
    updates = await client.shake_hands()
    transport: TlsTransport | None = None
    for _ in range(40):
        await client.send(updates.change(100))
        await client.send(updates.say(said))
        head = await client.until(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 404 ")), head
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        while len(client._heard) < length:
            await client._fill()
            with suppress(ssl.SSLWantReadError):
                client._heard += client._tls.read(1 << 20)
        client._heard = client._heard[length:]
        transport = transport or await site.transport()
    assert site.counts() == {}
    assert transport is not None
    assert not transport.is_closing()


# --- What TLS has to do besides ---------------------------------------------------------------------------------------


async def test_a_handshake_and_a_request_may_come_in_any_pieces(site: SecureSite) -> None:
    client = await site.client()
    client_hello = client.client_hello()
    for at in range(len(client_hello)):
        await client.send(client_hello[at : at + 1])
        await asyncio.sleep(0)
    updates = await client.shake_hands()
    request = updates.say(MISSING)
    for at in range(len(request)):
        await client.send(request[at : at + 1])
        await asyncio.sleep(0)
    assert b" 404 " in await client.until(b"\r\n")


async def test_a_handshake_that_never_ends_is_ended(site: SecureSite) -> None:
    client = await site.client()
    # A ClientHello that says it is long, in records of one byte.
    client_hello = b"\x01\x01\x00\x00" + bytes(60_000)
    await client.flood(b"".join(b"\x16\x03\x01\x00\x01" + client_hello[at : at + 1] for at in range(len(client_hello))))

    await eventually(lambda: site.unauthenticated == 0)


async def test_who_says_that_nothing_more_comes_is_answered(site: SecureSite) -> None:
    """TLS 1.3 ends each direction by itself (RFC 8446 section 6.1)."""
    client = await site.client()
    await client.shake_hands()
    client._tls.write(METRICS)
    with suppress(ssl.SSLWantReadError):
        client._tls.unwrap()
    await client.send(client._outgoing.read())

    async with time_limit():
        heard = b""
        with suppress(EOFError):
            while True:
                heard += await asyncio.get_running_loop().sock_recv(client.socket, 1 << 16) or _ended()
    client._incoming.write(heard)
    assert len(heard) > len(site.text)
    assert site.counts() == {}


def _ended() -> bytes:
    raise EOFError


async def test_an_answer_that_the_kernel_does_not_take_at_once_comes_whole_and_then_tls_ends(site: SecureSite) -> None:
    site.text = b"".join(b"line %07d\n" % number for number in range(BODY_BYTES // 13))
    client = await site.client(room=4096)
    updates = await client.shake_hands()
    await client.send(updates.say(METRICS.replace(b"Host", b"Connection: close\r\nHost")))
    await eventually(lambda: site.listener.places.held_bytes > 0)

    assert (await client.rest()).partition(b"\r\n\r\n")[2] == site.text
    client.socket.close()
    await eventually(lambda: site.unauthenticated == 0)


async def test_an_answer_that_was_taken_counts_no_more(site: SecureSite) -> None:
    site.text = b"#" * BODY_BYTES
    client = await site.client(room=4096)
    updates = await client.shake_hands()
    await client.send(updates.say(METRICS))
    await eventually(lambda: site.listener.places.held_bytes >= len(site.text))
    await client.until(b"#" * len(site.text))

    await eventually(lambda: site.listener.places.held_bytes == 0)
    assert site.unauthenticated == 1


async def test_who_goes_on_sending_after_the_end_is_cut_off(site: SecureSite) -> None:
    client = await site.client()
    updates = await client.shake_hands()
    await client.send(updates.say(HEALTH))
    assert b" 200 " in await client.until(b"\r\n")
    await client.flood(bytes(64 * LINGER_BYTES))

    await eventually(lambda: site.unauthenticated == 0)


async def test_what_was_tampered_with_ends_the_connection(site: SecureSite) -> None:
    client = await site.client()
    updates = await client.shake_hands()
    record = bytearray(updates.say(METRICS))
    record[-1] ^= 1
    await client.flood(bytes(record))

    await eventually(lambda: site.unauthenticated == 0)


async def test_a_large_body_of_a_caller_comes_whole(site: SecureSite) -> None:
    """In records of every size; it is read to its end before it is refused."""
    client = await site.client()
    updates = await client.shake_hands()
    body = bytes(5 * RECORD_BYTES)
    head = TOKEN.replace(b"GET", b"POST").replace(b"Host", b"Content-Length: %d\r\nHost" % len(body))
    await client.send(updates.say(head) + b"".join(updates.say(body[:RECORD_BYTES]) for _ in range(5)))
    assert b" 4" in await client.until(b"\r\n")
