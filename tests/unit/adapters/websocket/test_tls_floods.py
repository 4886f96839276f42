"""Records of TLS that say nothing, more than anybody needs: taken in bounded pieces, slowed down, then closed (P20).

OpenSSL takes in changes of keys by itself, without a word to who reads. Nothing here is timed: bytes are counted by the
loop's turn.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.adapters.tls import ServerTls
from gateway.adapters.tls_connection import (
    HANDSHAKE_PIECES,
    PIECE_BYTES,
    RECORD_BYTES,
    RECORD_MOST_BYTES,
    SILENT_BYTE_COST,
    UNSENT_MOST_BYTES,
    NothingSaid,
    TlsConnection,
)
from gateway.adapters.websocket import connection as connection_module
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.adapters.websocket.frames import Breach
from gateway.adapters.websocket.work import BYTE_COST, SESSION
from gateway.adapters.work_budget import WorkLimits
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.counted_socket import CountedSocket
from tests.support.key_updates import KeyUpdates
from tests.support.times import time_limit
from tests.unit.adapters.websocket.conftest import Peer
from tests.unit.adapters.websocket.test_floods import TurnCounter
from tests.unit.adapters.websocket.test_tls import SecurePeer, SecurePort, joined, text

pytestmark = pytest.mark.promise("P20")

CHANGES = 1_000
"""Changes of keys: 27 KB, for which OpenSSL would compute for some 13 ms within one call."""


@pytest.fixture
async def port(authority: Authority, tmp_path: Path) -> AsyncIterator[SecurePort]:
    trust = authority.trust()
    trust.minimum_version = ssl.TLSVersion.TLSv1_3
    trust.keylog_filename = str(tmp_path / "keys")
    running = SecurePort(ServerTls(authority.issue("server")), trust)
    await running.server.start()
    async with time_limit():
        yield running
    await running.close()


def updates_of(port: SecurePort, peer: SecurePeer, *, sent: int) -> KeyUpdates:
    cipher = peer.tls.cipher()
    assert cipher is not None
    return KeyUpdates(Path(port.trust.keylog_filename), cipher[0], sent)


async def flooding(port: SecurePort) -> tuple[WebSocketConnection, Peer, KeyUpdates]:
    """Open a WebSocket whose client changes its keys by itself from now on; its request was its first record."""
    connection, peer = await joined(port)
    return connection, Peer(peer.socket), updates_of(port, peer, sent=1)


async def test_what_is_taken_in_of_a_flood_in_one_turn_is_bounded(
    port: SecurePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "SESSION", WorkLimits(rate=1e6, burst=1e6, idle_rate=1e6, idle_burst=1e6))
    connection, peer, updates = await flooding(port)
    turns = TurnCounter()
    transport = connection._socket
    assert isinstance(transport, TlsConnection)
    transport._socket = CountedSocket(transport._socket, turns.add)  # type: ignore[assignment]
    await peer.send(updates.change(5 * CHANGES) + updates.say(text(b"after all that")))
    await eventually(lambda: port.ears[-1].heard == [b"after all that"])
    turns.close()

    assert turns.counted.total() > 6 * RECORD_MOST_BYTES
    # At first it may be the largest of records; what cannot be one any more is taken in small pieces.
    assert turns.most <= RECORD_MOST_BYTES + 2 * PIECE_BYTES
    assert sorted(turns.counted.values())[-3] <= PIECE_BYTES + 100


async def test_who_changes_keys_without_end_is_slowed_down_and_closed(port: SecurePort) -> None:
    connection, peer, updates = await flooding(port)
    bytes_borne = (SESSION.idle_burst + SESSION.burst) / SILENT_BYTE_COST + RECORD_MOST_BYTES
    flood = asyncio.create_task(peer.send(updates.change(int(1.5 * bytes_borne / 27))))
    await eventually(lambda: connection.is_closing)

    assert connection.close_code == Breach.POLICY_VIOLATION
    assert port.metrics.counts(catalogue.FRAME_VIOLATIONS) == {"flood": 1}
    assert port.metrics.count(catalogue.READING_SLOWED, label="sessions") >= 1
    assert list(port.log.events) == [(events.FLOOD_CLOSED, {"address": "127.0.0.1"})]
    flood.cancel()
    await asyncio.gather(flood, return_exceptions=True)


async def test_who_changes_keys_as_the_standard_asks_is_not_charged(port: SecurePort) -> None:
    """Before each message, for as long as there are no more of them than fit into a record."""
    connection, peer, updates = await flooding(port)
    messages = [b"%d" % number for number in range(200)]
    for message in messages:
        await peer.send(updates.change(1) + updates.say(text(message)))
    await eventually(lambda: port.ears[-1].heard == messages)

    assert not connection.is_closing
    assert connection._work == pytest.approx(200 * len(text(b"100")) * BYTE_COST, abs=200 * 2e-6)
    assert port.metrics.count(catalogue.READING_SLOWED, label="sessions") == 0


@pytest.mark.parametrize("size", [1, 100, RECORD_BYTES])
async def test_records_that_come_in_pieces_are_no_flood(port: SecurePort, size: int) -> None:
    """What is under way is not charged as if it said nothing, however it is cut."""
    connection, peer, updates = await flooding(port)
    transport = connection._socket
    assert isinstance(transport, TlsConnection)
    content = b"\x81\xfe" + size.to_bytes(2, "big") + b"\0\0\0\0" + b"x" * size if size > 125 else text(b"x" * size)
    data = updates.say(content[:RECORD_BYTES]) + (updates.say(content[RECORD_BYTES:]) if size > 16_000 else b"")
    for count in range(1, 6):
        step = max(1, len(data) // 50)
        for start in range(0, len(data), step):
            await peer.send(data[start : start + step])
            await asyncio.sleep(0)
        await eventually(lambda count=count: len(port.ears[-1].heard) == count)  # type: ignore[misc]
        assert transport._surplus == 0
        data = updates.say(content[:RECORD_BYTES]) + (updates.say(content[RECORD_BYTES:]) if size > 16_000 else b"")

    assert port.ears[-1].heard == [b"x" * size] * 5
    assert not connection.is_closing


async def test_many_small_records_are_charged_beside_what_they_say(port: SecurePort) -> None:
    """A frame that is cut into records of one byte costs OpenSSL far more than the frame."""
    connection, peer, updates = await flooding(port)
    before = connection._work
    pieces = text(b"x" * 100)
    await peer.send(b"".join([updates.say(pieces[at : at + 1]) for at in range(len(pieces))]))
    await eventually(lambda: port.ears[-1].heard == [b"x" * 100])

    assert connection._work - before > 50e-6


async def test_who_says_nothing_before_its_request_is_dropped(port: SecurePort) -> None:
    peer = await port.secured()
    updates = updates_of(port, peer, sent=0)
    raw = Peer(peer.socket)
    flood = asyncio.create_task(raw.send(updates.change(CHANGES)))
    await eventually(lambda: port.refusals() == {"tls": 1})

    assert not port.server._requests
    await asyncio.gather(flood, return_exceptions=True)


# --- The connection alone ---------------------------------------------------------------------------------------------


class Kernel:
    """Stands for a socket: gives what it was given, and takes as much as it is told."""

    def __init__(self) -> None:
        self.incoming = b""
        self.outgoing = bytearray()
        self.room = 1 << 30
        self.reads: list[int] = []

    def recv(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        data, self.incoming = self.incoming[:size], self.incoming[size:]
        self.reads.append(len(data))
        return data

    def send(self, data: bytes) -> int:
        taken = min(len(data), self.room)
        self.room -= taken
        if not taken:
            raise BlockingIOError
        self.outgoing += data[:taken]
        return taken


class Client:
    """The other end, in memory."""

    def __init__(self, kernel: Kernel, trust: ssl.SSLContext) -> None:
        self._kernel = kernel
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trust.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def exchange(self) -> None:
        self.incoming.write(bytes(self._kernel.outgoing))
        self._kernel.outgoing.clear()
        self._kernel.incoming += self.outgoing.read()

    def heard(self) -> bytes:
        self.exchange()
        said = b""
        while True:
            try:
                said += self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                return said


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def ends(authority: Authority, request: pytest.FixtureRequest) -> tuple[TlsConnection, Kernel, Client]:
    """A connection after its handshake."""
    kernel, trust = Kernel(), authority.trust()
    trust.maximum_version = request.param
    connection = TlsConnection(kernel, ServerTls(authority.issue("server")).context())  # type: ignore[arg-type]
    client = Client(kernel, trust)
    done = False
    while not done:
        with suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        client.exchange()
        try:
            connection.shake_hands()
        except BlockingIOError:
            continue
        done = True
    client.heard()
    return connection, kernel, client


def test_what_comes_before_an_error_is_told_before_it(ends: tuple[TlsConnection, Kernel, Client]) -> None:
    connection, kernel, client = ends
    client.tls.write(b"said")
    kernel.incoming = client.outgoing.read() + b"\x17\x03\x03\x00\x20" + bytes(32)

    assert connection.recv(RECORD_BYTES) == b"said"
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            connection.recv(RECORD_BYTES)
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        client.heard()


def test_what_comes_before_the_end_is_told_before_it(ends: tuple[TlsConnection, Kernel, Client]) -> None:
    connection, _, client = ends
    client.tls.write(b"said")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.exchange()

    assert [connection.recv(RECORD_BYTES) for _ in range(3)] == [b"said", b"", b""]


def test_what_the_kernel_does_not_take_is_offered_again_and_sent_once(
    ends: tuple[TlsConnection, Kernel, Client],
) -> None:
    """In whatever pieces it is taken, and also if OpenSSL has sent what was left in the meantime."""
    connection, kernel, client = ends
    message = b"".join(b"%08d" % number for number in range(20_000))
    data, heard = bytearray(message), b""
    rooms = iter([0, 1, 5, 300, 16_000, 20_000, 7, 70_000, 70_000, 70_000])
    while data:
        kernel.room = next(rooms, 1 << 30)
        try:
            taken = connection.send(data)
        except BlockingIOError:
            assert connection._unsent
            continue
        finally:
            heard += client.heard()
        del data[:taken]
    assert heard == message

    kernel.room = 10
    with pytest.raises(BlockingIOError):
        connection.send(b"half")
    kernel.room = 1 << 30
    connection._flush()
    assert client.heard() == b"half"
    assert connection.send(b"half and more") == 13
    assert client.heard() == b" and more"


def test_a_handshake_that_never_ends_is_taken_in_pieces(authority: Authority) -> None:
    kernel = Kernel()
    connection = TlsConnection(kernel, ServerTls(authority.issue("server")).context())  # type: ignore[arg-type]
    # A ClientHello that says it is long, in records of one byte.
    client_hello = b"\x01\x01\x00\x00" + bytes(60_000)
    kernel.incoming = b"".join(b"\x16\x03\x01\x00\x01" + client_hello[at : at + 1] for at in range(len(client_hello)))

    with pytest.raises(NothingSaid):
        connection.shake_hands()
    assert kernel.reads == [PIECE_BYTES] * HANDSHAKE_PIECES


def test_answers_of_openssl_do_not_pile_up(ends: tuple[TlsConnection, Kernel, Client]) -> None:
    """Whoever causes them and reads none is a broken connection."""
    connection, kernel, client = ends
    kernel.room = 0
    connection._unsent = bytes(UNSENT_MOST_BYTES + 1)
    connection._surplus = RECORD_MOST_BYTES + 1
    client.tls.write(b"x" * 10)
    data = client.outgoing.read()
    kernel.incoming = data[:-1]

    with pytest.raises(ConnectionAbortedError):
        connection.recv(RECORD_BYTES)
