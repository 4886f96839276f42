"""TLS handshakes by the hundred that nobody means: a few in each turn of the loop, and others come through (P20)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from gateway.adapters.tls import ServerTls
from gateway.adapters.tls_connection import TlsConnection
from gateway.adapters.websocket.pending_requests import PendingRequests
from gateway.adapters.websocket.read_scheduler import UNAUTHENTICATED_TIME
from gateway.ports import ConnectionRejected
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.times import time_limit
from tests.unit.adapters.websocket.conftest import REQUEST, Peer
from tests.unit.adapters.websocket.test_floods import MovedClock, TurnCounter
from tests.unit.adapters.websocket.test_tls import SecurePeer, SecurePort

pytestmark = pytest.mark.promise("P20")

COST = UNAUTHENTICATED_TIME * 0.55
"""Seconds that a handshake takes by the clock of these tests: two of them are more than a turn has."""

CROWD = 60
"""Connections that send a canned ClientHello and nothing more."""

ELSEWHERE = "127.0.0.2"
"""An address of this machine that the crowd does not come from."""


@pytest.fixture
async def port(authority: Authority) -> AsyncIterator[SecurePort]:
    running = SecurePort(ServerTls(authority.issue("server")), authority.trust())
    await running.server.start()
    async with time_limit():
        yield running
    await running.close()


@pytest.fixture
async def handshakes(port: SecurePort, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TurnCounter]:
    """Counts by the turn how many handshakes are computed, each of which takes its time by the clock."""
    counter, clock = TurnCounter(), MovedClock()
    assert port.server._scheduler is not None
    port.server._scheduler.unauthenticated.clock = port.server._scheduler._clock = clock
    original = TlsConnection.shake_hands

    def shake_hands(self: TlsConnection) -> None:
        counter.add()
        clock.now += COST
        original(self)

    monkeypatch.setattr(TlsConnection, "shake_hands", shake_hands)
    yield counter
    counter.close()


def canned(port: SecurePort) -> bytes:
    """What a client says first; it can be said again and again, and costs nothing then."""
    outgoing = ssl.MemoryBIO()
    tls = port.trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


async def crowd(port: SecurePort) -> None:
    client_hello = canned(port)
    for _ in range(CROWD):
        await (await port.dial()).send(client_hello)


async def from_elsewhere(port: SecurePort) -> SecurePeer:
    connection = port._sockets.enter_context(socket.socket())
    connection.setblocking(False)
    connection.bind((ELSEWHERE, 0))
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port.server.port))
    return SecurePeer(Peer(connection), port.trust)


async def test_few_handshakes_are_computed_in_a_turn_whatever_the_crowd(
    port: SecurePort, handshakes: TurnCounter
) -> None:
    (listening,) = port.server._listeners.values()
    listening.stop()
    await crowd(port)
    listening.start()

    await eventually(lambda: handshakes.counted.total() >= CROWD)
    assert handshakes.most == 2


async def test_an_honest_client_comes_through_beside_a_crowd(port: SecurePort, handshakes: TurnCounter) -> None:
    """From another address it is served after one of the crowd, not after all of them."""
    (listening,) = port.server._listeners.values()
    listening.stop()
    await crowd(port)
    honest = await from_elsewhere(port)
    shaking = asyncio.create_task(honest.shake())
    listening.start()
    await shaking
    computed = handshakes.counted.total()
    await honest.send(REQUEST + b"\r\n")

    assert (await honest.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    assert computed <= CROWD + 2


async def test_a_newcomer_waits_for_none_of_a_crowd_that_has_yet_to_be_read(
    port: SecurePort, handshakes: TurnCounter
) -> None:
    """Where there is no room: whoever has many connections makes it, though it has said something with each."""
    port.server._requests = PendingRequests(8)
    (listening,) = port.server._listeners.values()
    listening.stop()
    await crowd(port)
    honest = await from_elsewhere(port)
    shaking = asyncio.create_task(honest.shake())
    listening.start()
    await shaking

    assert handshakes.counted.total() <= 8 + 2


async def test_who_never_ends_its_handshake_goes_first(port: SecurePort) -> None:
    """Where there is no more room: of the address that has the most, one that has not shaken hands."""
    port.server._requests = PendingRequests(8)
    done = await port.secured()
    await crowd(port)
    honest = await from_elsewhere(port)
    await honest.shake()
    await crowd(port)
    await eventually(lambda: port.refusals().get("crowded_out", 0) == 2 * CROWD + 2 - 8)
    await honest.send(REQUEST + b"\r\n")

    assert (await honest.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    assert await done.rest() == b"", "the crowd had its address, and among those it was the oldest"


async def test_an_address_that_has_had_enough_costs_no_handshake(port: SecurePort, handshakes: TurnCounter) -> None:
    port.admission.refuse_with = ConnectionRejected(
        "enough", limit="rate_address_handshakes", retry_after=1.0, elsewhere=False
    )
    peer = await port.dial()
    await peer.send(canned(port))

    assert await peer.rest() == b"", "there is nothing yet that an answer could be sent over"
    assert port.refusals() == {"limit": 1}
    assert handshakes.counted.total() == 0


async def test_an_exempt_address_or_proxy_that_has_had_enough_costs_no_handshake(
    port: SecurePort, handshakes: TurnCounter
) -> None:
    port.admission.refuse_handshakes_with = ConnectionRejected(
        "enough", limit="rate_exempt_tls_handshakes", retry_after=1.0, elsewhere=False
    )
    peer = await port.dial()
    await peer.send(canned(port))

    assert await peer.rest() == b""
    assert port.refusals() == {"limit": 1}
    assert (handshakes.counted.total(), port.admission.connections) == (0, 0)


async def test_a_connection_over_tls_is_counted_once_and_leaves_once(port: SecurePort) -> None:
    peer = await port.upgraded()
    assert port.admission.connections == 1
    half = SecurePeer(await port.dial(), port.trust)
    await half.shake()
    await eventually(lambda: port.admission.connections == 2)
    half.socket.close()
    peer.socket.close()

    await eventually(lambda: port.admission.connections == 0)
