"""The client port over TLS, byte by byte: the rest is in the contract of ``Connection``, which holds for TLS too."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from gateway.adapters.tls import ServerTls
from gateway.adapters.tls_connection import RECORD_BYTES, TlsConnection
from gateway.adapters.websocket import connection as connection_module
from gateway.adapters.websocket import upgrade as upgrade_module
from gateway.adapters.websocket.connection import SecureWebSocketConnection, WebSocketConnection
from gateway.adapters.websocket.server import ClientInterface
from gateway.adapters.websocket.upgrade_request import HEAD_BYTES
from gateway.catalogue import metrics as catalogue
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.times import time_limit
from tests.unit.adapters.websocket.conftest import REQUEST, Peer, Port

SMALL_BUFFER = 4096
"""Bytes that the client's kernel takes in for a client that does not read."""

PLENTY = 1 << 20
"""Bytes of a message that no kernel takes at once."""


class SecurePeer(Peer):
    """The client's end of a connection over TLS: records are made in memory, so that tests can cut and mend them."""

    def __init__(self, peer: Peer, trust: ssl.SSLContext) -> None:
        super().__init__(peer.socket)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def shake(self) -> None:
        """Shake hands."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                await self._fill()
            else:
                return await self.flush()

    async def flush(self) -> None:
        """Send what the last steps have produced."""
        await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())

    def records(self, data: bytes) -> bytes:
        """Encrypt *data*; the caller sends it."""
        self.tls.write(data)
        return self._outgoing.read()

    async def send(self, data: bytes) -> None:
        await super().send(self.records(data) if data else b"")

    async def _fill(self) -> None:
        data = await super()._more()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _more(self) -> bytes:
        while True:
            try:
                return self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                await self._fill()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                raise AssertionError("cut off: TLS did not end before the connection did") from None


class SecurePort(Port):
    """A server whose port speaks TLS."""

    def __init__(self, tls: ServerTls, trust: ssl.SSLContext) -> None:
        super().__init__()
        self.tls = tls
        self.server._interfaces = (ClientInterface(self.host, 0, tls=self._context),)
        self.trust = trust

    def _context(self) -> ssl.SSLContext:
        return self.tls.context()

    async def secured(self, *, receive_buffer: int | None = None) -> SecurePeer:
        """Connect and shake hands."""
        peer = SecurePeer(await self.dial(receive_buffer=receive_buffer), self.trust)
        await peer.shake()
        return peer

    async def upgraded(self, early: bytes = b"", *, receive_buffer: int | None = None) -> SecurePeer:
        """Connect, shake hands and open a WebSocket."""
        peer = await self.secured(receive_buffer=receive_buffer)
        await peer.send(REQUEST + b"\r\n" + early)
        assert (await peer.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return peer

    def refusals(self) -> dict[str, float]:
        return self.metrics.counts(catalogue.UPGRADES_REFUSED)


@pytest.fixture
async def port(authority: Authority) -> AsyncIterator[SecurePort]:
    """A server that must have let go of everything in the end."""
    running = SecurePort(ServerTls(authority.issue("server")), authority.trust())
    await running.server.start()
    async with time_limit():
        yield running
    await running.close()
    assert not running.server._requests
    assert not running.server._connections


async def joined(port: SecurePort, *, receive_buffer: int | None = None) -> tuple[WebSocketConnection, SecurePeer]:
    before = len(port.connections)
    peer = await port.upgraded(receive_buffer=receive_buffer)
    await eventually(lambda: len(port.connections) > before)
    return port.connections[-1], peer


def text(message: bytes) -> bytes:
    """Write a message as a client does, under the mask 0."""
    return b"\x81%c\0\0\0\0%b" % (0x80 | len(message), message)


# --- Before the WebSocket ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [REQUEST + b"\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 100_000],
    ids=["no TLS", "no handshake", "zeroes", "a record too long"],
)
async def test_who_does_not_speak_tls_is_refused_and_counted(port: SecurePort, data: bytes) -> None:
    peer = await port.dial()
    await peer.send(data)

    assert b"HTTP" not in await peer.rest()
    await eventually(lambda: port.refusals() == {"tls": 1})


async def test_a_handshake_may_come_in_any_pieces(port: SecurePort) -> None:
    peer = SecurePeer(await port.dial(), port.trust)
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    hello = peer._outgoing.read()
    for start, end in pairwise(range(len(hello) + 1)):
        await asyncio.get_running_loop().sock_sendall(peer.socket, hello[start:end])
        await asyncio.sleep(0)
    await peer._fill()
    await peer.shake()
    data = peer.records(REQUEST + b"\r\n" + text(b"early"))
    for start, end in pairwise(range(len(data) + 1)):
        await asyncio.get_running_loop().sock_sendall(peer.socket, data[start:end])
        await asyncio.sleep(0)

    assert (await peer.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    await eventually(lambda: len(port.ears) == 1 and port.ears[0].heard == [b"early"])


@pytest.mark.promise("P20")
async def test_who_begins_tls_and_says_nothing_more_is_dropped(
    port: SecurePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_module, "REQUEST_TIMEOUT", 0.1)
    half, whole = SecurePeer(await port.dial(), port.trust), await port.secured()
    with pytest.raises(ssl.SSLWantReadError):
        half.tls.do_handshake()
    await asyncio.get_running_loop().sock_sendall(half.socket, half._outgoing.read()[:20])

    assert await Peer(half.socket).rest() == b""
    assert await whole.rest() == b""
    assert port.refusals() == {"silent": 2}


async def test_a_refusal_is_read_in_full(port: SecurePort) -> None:
    peer = await port.secured()
    await peer.send(REQUEST.replace(b"/v1/connect", b"/v1/connect?token=secret") + b"\r\n" + b"more" * 5000)

    answer = await peer.rest()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\n")
    assert port.refusals() == {"secret_in_url": 1}


async def test_who_is_gone_before_it_is_looked_at_is_let_go(port: SecurePort, authority: Authority) -> None:
    """It is never taken for one in clear text."""
    with socket.socket() as unconnected, pytest.raises(OSError, match="not connected"):
        TlsConnection(unconnected, port.tls.context()).shake_hands()
    for _ in range(50):
        (await port.dial()).reset()

    await eventually(lambda: sum(port.refusals().values()) == 50)
    assert not port.server._requests


# --- Connections ------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_lying_in_openssl(port: SecurePort) -> None:
    """Many records in one read, records of the largest size, and a pause between: all must be heard."""
    connection, peer = await joined(port)
    assert isinstance(connection, SecureWebSocketConnection)
    ear = port.ears[-1]
    ear.on_message = lambda _: connection.pause()
    big = b"\x81\xfe" + (40_000).to_bytes(2, "big") + b"\0\0\0\0" + b"x" * 40_000
    await peer.send(big + b"".join(text(b"%d" % number) for number in range(100)) + big)

    expected = [b"x" * 40_000, *(b"%d" % number for number in range(100)), b"x" * 40_000]
    for count in range(1, len(expected) + 1):
        await eventually(lambda count=count: len(ear.heard) >= count)  # type: ignore[misc]
        connection.resume()
    assert ear.heard == expected


async def test_what_the_kernel_takes_in_pieces_arrives_whole(port: SecurePort) -> None:
    connection, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    messages = [bytes([65 + number]) * (PLENTY + number) for number in range(5)]
    for message in messages:
        connection.write(message)
        connection.write(b"between")
    assert 0 < connection.backlog() <= sum(map(len, messages)) + 200
    connection.close(4000, "after all that")

    for message in messages:
        assert await peer.exactly(10) == b"\x81\x7f" + len(message).to_bytes(8, "big")
        assert await peer.exactly(len(message)) == message
        assert await peer.exactly(9) == b"\x81\x07between"
    assert (await peer.exactly(18))[:4] == b"\x88\x10\x0f\xa0"
    await peer.send(b"\x88\x82\0\0\0\0\x0f\xa0")
    assert await peer.rest() == b""


async def test_the_backlog_shrinks_record_by_record(port: SecurePort) -> None:
    connection, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    while connection.backlog() < 8 * PLENTY:
        connection.write(b"x" * PLENTY)
    before = connection.backlog()
    while connection.backlog() >= before:
        await peer.exactly(SMALL_BUFFER)

    assert connection.backlog() > 0


async def test_many_are_written_to_over_tls_and_never_in_the_clear(port: SecurePort) -> None:
    joint = [await joined(port) for _ in range(3)]
    connections = [connection for connection, _ in joint]
    secret = b"the same for all of them"
    type(connections[0]).write_all(connections, [secret] * 3)

    for _, peer in joint:
        raw = await Peer(peer.socket)._more()
        assert secret not in raw
        peer._incoming.write(raw)
        assert await peer.exactly(2 + len(secret)) == b"\x81\x18" + secret


async def test_those_that_cannot_be_written_to_keep_nothing_from_the_others(port: SecurePort) -> None:
    first, full, broken, last = [await joined(port, receive_buffer=SMALL_BUFFER) for _ in range(4)]
    while not full[0].backlog():
        full[0].write(b"x" * PLENTY)
    broken[0].pause()
    broken[1].reset()
    connections = [each[0] for each in (first, full, broken, last)]
    for number in range(3):
        SecureWebSocketConnection.write_all(connections, [b"%d" % number] * 4)  # type: ignore[arg-type]
        await asyncio.sleep(0)

    for _, peer in (first, last):
        assert await peer.exactly(9) == b"\x81\x010" + b"\x81\x011" + b"\x81\x012"
    await eventually(lambda: port.ears[2].over == 1)
    assert (await full[1].exactly(full[0].backlog()))[:2] == b"\x81\x7f"


@pytest.mark.parametrize("how", ["half", "reset", "end of TLS", "forged record"])
@pytest.mark.parametrize("state", ["open", "unsent", "closing", "failed"])
async def test_a_break_in_any_state_ends_the_connection_once(port: SecurePort, state: str, how: str) -> None:
    connection, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    ear = port.ears[-1]
    if state == "unsent":
        while not connection.backlog():
            connection.write(b"x" * PLENTY)
    elif state == "closing":
        connection.close(4000, "going")
    elif state == "failed":
        await peer.send(b"\x81\x00")
        await eventually(lambda: connection.close_code == 1002)

    if how == "half":
        peer.socket.shutdown(socket.SHUT_WR)
    elif how == "reset":
        peer.reset()
    elif how == "end of TLS":
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        await peer.flush()
    else:
        record = bytearray(peer.records(text(b"forged")))
        record[-1] ^= 1
        await asyncio.get_running_loop().sock_sendall(peer.socket, record)
        # Who has been told to close is given time to read that; what it sends means nothing any more.
        if state == "failed":
            peer.socket.close()

    await eventually(lambda: not port.server._connections)
    await eventually(lambda: ear.over == 1)
    assert b"forged" not in ear.heard
    assert connection._socket.fileno() == -1


async def test_who_does_not_answer_a_close_is_dropped(port: SecurePort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_TIMEOUT", 0.05)
    connection, _ = await joined(port, receive_buffer=SMALL_BUFFER)
    while not connection.backlog():
        connection.write(b"x" * PLENTY)
    connection.close(4000, "going")

    await eventually(lambda: not port.server._connections)
    assert port.ears[-1].over == 1


async def test_a_change_of_keys_in_the_middle_goes_unnoticed(port: SecurePort) -> None:
    """TLS 1.3 lets either side change keys at any time; the standard library cannot, OpenSSL's command can."""
    client = await asyncio.create_subprocess_exec(
        *["openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{port.server.port}"],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stderr is not None
    client.stdin.write(REQUEST + b"\r\n")
    await client.stdout.readuntil(b"HTTP/1.1 101 ")
    await eventually(lambda: len(port.ears) == 1)
    for number in range(3):
        client.stdin.write(b"K\n")
        await client.stderr.readuntil(b"KEYUPDATE\n")
        client.stdin.write(text(b"%d" % number))
        await eventually(lambda number=number: len(port.ears[0].heard) == number + 1)  # type: ignore[misc]
        port.connections[0].write(b"answer %d" % number)
        await client.stdout.readuntil(b"answer %d" % number)
    client.stdin.close()
    await client.wait()

    await eventually(lambda: port.ears[0].over == 1)
    assert port.ears[0].heard == [b"0", b"1", b"2"]


async def test_connections_outlive_a_reload_and_new_ones_see_it(port: SecurePort, authority: Authority) -> None:
    tls = ServerTls(authority.issue("rotating"))
    port.tls = tls
    connection, old = await joined(port)
    before = old.tls.getpeercert(binary_form=True)
    authority.issue("rotating")
    tls.reload()
    _, new = await joined(port)

    assert new.tls.getpeercert(binary_form=True) != before
    connection.write(b"still here")
    assert await old.exactly(12) == b"\x81\x0astill here"
    await old.send(text(b"so am I"))
    await eventually(lambda: port.ears[0].heard == [b"so am I"])


def test_a_record_is_what_is_read_at_once() -> None:
    """Else something could lie in OpenSSL while the descriptor says that nothing has come."""
    assert min(connection_module.READ_BYTES, HEAD_BYTES) >= RECORD_BYTES
