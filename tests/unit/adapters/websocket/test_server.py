"""The client port before a connection is a WebSocket: who says nothing, crowds, and clients that mean no good."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from gateway.adapters.websocket import server as server_module
from gateway.adapters.websocket import upgrade as upgrade_module
from gateway.adapters.websocket.server import ClientInterface
from gateway.adapters.websocket.upgrade_request import HEAD_BYTES
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.ports import Candidate
from tests.support.clock import eventually
from tests.support.times import time_limit
from tests.unit.adapters.websocket.conftest import REQUEST, Peer, Port


def text(message: str) -> bytes:
    """Write a message as a client does."""
    return Frame(Opcode.TEXT, message.encode()).serialize(mask=True)


def descriptors() -> list[int]:
    return [int(each.name) for each in Path("/proc/self/fd").iterdir()]


def refusals(port: Port) -> dict[str, float]:
    return port.metrics.counts(catalogue.UPGRADES_REFUSED)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# --- Requests ---------------------------------------------------------------------------------------------------------


async def test_what_comes_right_behind_the_request_is_not_lost(port: Port) -> None:
    await port.upgraded(text("one") + text("two"))

    await eventually(lambda: len(port.ears) == 1 and port.ears[0].heard == [b"one", b"two"])


async def test_half_a_frame_behind_the_request_is_not_lost(port: Port) -> None:
    frame = text("one")
    peer = await port.upgraded(frame[:5])
    await peer.send(frame[5:])

    await eventually(lambda: len(port.ears) == 1 and port.ears[0].heard == [b"one"])


async def test_a_break_right_behind_half_a_request_is_noticed(port: Port) -> None:
    """Uvloop tells of a break once; whoever reads only the half then holds the connection until the timer ends it."""
    for _ in range(20):
        peer = await port.dial()
        await eventually(lambda: len(port.server._requests) == 1)
        # Without a turn of the loop between them, so that both have come when the node looks.
        peer.socket.send(REQUEST[:60])
        peer.reset()
        await eventually(lambda: not port.server._requests)

    assert refusals(port) == {"gone": 20}


@pytest.mark.parametrize("waits", [False, True])
async def test_a_break_right_behind_a_request_is_noticed(
    port: Port, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """Also by the connection, which takes the place of whoever has read the request."""
    if waits:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(port.admission, "admit", lambda candidate, **_: loop.call_soon(candidate.accept))
    early = text("x" * 1000)
    for _ in range(20):
        peer = await port.dial()
        await eventually(lambda: len(port.server._requests) == 1)
        peer.socket.send(REQUEST + b"\r\n" + early)
        peer.reset()
        await eventually(lambda: not (port.server._requests or port.server._waiting or port.server._connections))
    for reads in (1, upgrade_module.READS_AT_ONCE):
        monkeypatch.setattr(upgrade_module, "READS_AT_ONCE", reads)
        peer = await port.upgraded(early)
        await peer.send(early)
        await eventually(lambda: len(port.ears[-1].heard) == 2)
        peer.reset()
        await eventually(lambda: not port.server._connections)


async def test_who_hangs_up_while_it_waits_is_not_admitted_later(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Candidate] = []
    monkeypatch.setattr(
        port.admission,
        "admit",
        lambda candidate, **_: waiting.append(candidate),
    )
    monkeypatch.setattr(port.admission, "withdraw", waiting.remove)
    peer = await port.dial()
    await peer.send(REQUEST + b"\r\n")
    await eventually(lambda: len(waiting) == 1)

    peer.reset()

    await eventually(lambda: not waiting)
    assert refusals(port) == {"gone": 1}


@pytest.mark.parametrize("early", [b"\x88\x80abcd", b"\x81\x00"], ids=["close", "violation"])
async def test_a_connection_that_ends_with_its_first_bytes_leaves_nothing(port: Port, early: bytes) -> None:
    peer = await port.upgraded(early)

    assert (await peer.rest())[:1] == b"\x88"
    peer.socket.close()
    await eventually(lambda: len(port.ears) == 1 and port.ears[0].over == 1)
    await eventually(lambda: not port.server._connections)


async def test_a_request_may_come_in_any_pieces(port: Port) -> None:
    peer = await port.dial()
    data = REQUEST + b"\r\n"
    for start, end in pairwise(range(len(data) + 1)):
        await peer.send(data[start:end])
        await asyncio.sleep(0)

    assert status(await peer.until(b"\r\n\r\n")) == 101


async def test_a_second_request_is_not_taken_for_a_part_of_the_first(port: Port) -> None:
    """None of the two opens a WebSocket: the first asks for none, and the second comes where none may come."""
    peer = await port.dial()
    await peer.send(b"GET /v1/connect?x HTTP/1.1\r\nHost: a\r\n\r\n" + REQUEST + b"\r\n")

    assert status(await peer.rest()) == 426


@pytest.mark.parametrize(
    ("data", "expected", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed"),
        (REQUEST + b"X: y\n\r\n", 400, "malformed"),
        (REQUEST + b"X: y\r\n folded\r\n\r\n", 400, "malformed"),
        (REQUEST + b"X: y\0z\r\n\r\n", 400, "malformed"),
        (REQUEST + b"X : y\r\n\r\n", 400, "malformed"),
        (REQUEST + b"Host: other.example\r\n\r\n", 400, "ambiguous"),
        (REQUEST.replace(b"Host: gateway.example\r\n", b"") + b"\r\n", 400, "ambiguous"),
        (REQUEST + b"Origin: https://app.example\r\nOrigin: https://app.example\r\n\r\n", 400, "ambiguous"),
        (REQUEST + b"Origin: https://app.example.evil\r\n\r\n", 403, "origin"),
        (REQUEST + b"Origin: https://app.example:443\r\n\r\n", 403, "origin"),
        (REQUEST + b"Origin: null\r\n\r\n", 403, "origin"),
        (REQUEST + b"Origin:\r\n\r\n", 403, "origin"),
        (REQUEST + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 400, "ambiguous"),
        (REQUEST + b"Sec-WebSocket-Version: 13\r\n\r\n", 400, "ambiguous"),
        (REQUEST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n", 400, "malformed"),
        (REQUEST + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed"),
        (REQUEST + b"Transfer-Encoding: identity\r\n\r\n", 400, "body"),
        (REQUEST + b"Content-Length: 5\r\n\r\n", 400, "body"),
        (REQUEST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "body"),
        (REQUEST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed"),
        (REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n", 505, "http_version"),
        (REQUEST.replace(b"HTTP/1.1", b"HTTP/3.7") + b"\r\n", 400, "malformed"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed"),
        (REQUEST.replace(b"GET", b"OPTIONS") + b"\r\n", 405, "method"),
        (REQUEST.replace(b"GET", b"HEAD") + b"\r\n", 405, "method"),
        (REQUEST.replace(b"GET /v1/connect", b"CONNECT gateway.example:80") + b"\r\n", 404, "path"),
        (REQUEST.replace(b"/v1/connect", b"http://gateway.example") + b"\r\n", 404, "path"),
        (REQUEST.replace(b"/v1/connect", b"http://gateway.example?/v1/connect") + b"\r\n", 404, "path"),
        (REQUEST + b"X: %b\r\n\r\n" % (b"y" * HEAD_BYTES), 431, "head_too_long"),
        (REQUEST + b"X: y\r\n" * (HEAD_BYTES // 6) + b"\r\n", 431, "head_too_long"),
    ],
    ids=[
        "TLS",
        "bare LF",
        "folded",
        "NUL",
        "blank before the colon",
        "two hosts",
        "no host",
        "two origins",
        "origin with a tail",
        "origin with a port",
        "null origin",
        "empty origin",
        "two keys",
        "two versions",
        "two lengths of a body",
        "no body in chunks",
        "identity",
        "body",
        "chunked",
        "both lengths",
        "HTTP/1.0",
        "HTTP/3.7",
        "HTTP/2",
        "OPTIONS",
        "HEAD",
        "CONNECT",
        "absolute root",
        "absolute with a query only",
        "long header",
        "many headers",
    ],
)
async def test_a_refusal_is_read_in_full_is_counted_and_ends_the_connection(
    port: Port, data: bytes, expected: int, reason: str
) -> None:
    """Also by a client that has sent more than was looked at: closing with unread bytes would throw the answer away."""
    peer = await port.dial()
    await peer.send(data + b"more" * 20_000)

    answer = await peer.rest()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert status(head) == expected
    assert b"\r\nConnection: close" in head or b"\r\nConnection: Upgrade, close" in head
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
    assert len(body) == (0 if data.startswith(b"HEAD") else length)
    peer.socket.close()
    await eventually(lambda: not port.server._requests)
    assert not port.connections
    assert refusals(port) == {reason: 1}


@pytest.mark.parametrize(
    "data",
    [
        REQUEST.replace(b"/v1/connect", b"http://gateway.example/v1/connect?node=n1"),
        REQUEST.replace(b"/v1/connect", b"HTTPS://gateway.example:443/v1/connect"),
        REQUEST.replace(b"Upgrade: websocket", b"upgrade: h2c, WEBSOCKET"),
        REQUEST.replace(b"Connection: Upgrade", b"CONNECTION: keep-alive,upgrade"),
        REQUEST + b"Origin: https://app.example\r\n",
        REQUEST + b"Sec-WebSocket-Protocol: other\r\n",
    ],
    ids=["absolute", "absolute with a port", "list of protocols", "keep-alive", "origin", "two lines of protocols"],
)
async def test_unusual_but_good_requests_are_served(port: Port, data: bytes) -> None:
    peer = await port.dial()
    await peer.send(data + b"\r\n")

    assert status(await peer.until(b"\r\n\r\n")) == 101


async def test_who_says_all_at_once_and_nothing_more_is_still_answered(port: Port) -> None:
    """A half-closed connection is one that listens."""
    peer = await port.dial()
    await peer.send(REQUEST + b"\r\n" + text("one") + b"\x88\x80mask")
    peer.socket.shutdown(socket.SHUT_WR)

    assert status(await peer.until(b"\r\n\r\n")) == 101
    assert await peer.rest() == b"\x88\x00"
    await eventually(lambda: len(port.ears) == 1 and port.ears[0].over == 1)
    assert port.ears[0].heard == [b"one"]


async def test_who_gives_up_in_the_middle_of_the_request_is_let_go(port: Port) -> None:
    peer = await port.dial()
    await peer.send(REQUEST)
    peer.socket.shutdown(socket.SHUT_WR)

    assert await peer.rest() == b""
    await eventually(lambda: not port.server._requests)
    assert refusals(port) == {"gone": 1}


async def test_a_node_that_takes_nobody_says_so_to_everybody(port: Port) -> None:
    port.is_accepting = False
    peer = await port.dial()
    await peer.send(REQUEST + b"\r\n" + text("early"))

    answer = await peer.rest()

    assert status(answer) == 503
    assert b"\r\nRetry-After: 1\r\n" in answer
    assert refusals(port) == {"unavailable": 1}


# --- Time and numbers -------------------------------------------------------------------------------------------------


async def test_who_sends_a_byte_now_and_then_is_told_that_it_took_too_long(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_module, "REQUEST_TIMEOUT", 0.2)
    peer = await port.dial()

    async def trickle() -> None:
        for at in range(len(REQUEST)):
            await peer.send(REQUEST[at : at + 1])
            await asyncio.sleep(0.01)

    trickling = asyncio.create_task(trickle())
    answer = await peer.rest()
    trickling.cancel()
    await asyncio.gather(trickling, return_exceptions=True)

    assert status(answer) == 408
    assert refusals(port) == {"slow": 1}


async def test_who_says_nothing_is_dropped_without_a_word(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_module, "REQUEST_TIMEOUT", 0.05)
    peer = await port.dial()

    assert await peer.rest() == b""
    await eventually(lambda: not port.server._requests)
    assert refusals(port) == {"silent": 1}


async def test_who_is_refused_and_stays_is_dropped(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_module, "LINGER_TIMEOUT", 0.05)
    peer = await port.dial()
    await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await peer.until(b"\r\n\r\n")

    await eventually(lambda: not port.server._requests)
    assert refusals(port) == {"path": 1}, "once"


@pytest.mark.parametrize("sent", [0, 1, len(REQUEST)], ids=["nothing", "a byte", "all but the end"])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_thousand_broken_handshakes_leave_no_descriptor(port: Port, sent: int, how: str) -> None:
    before = len(descriptors())
    for _ in range(20):
        peers = [await port.dial() for _ in range(50)]
        for peer in peers:
            await peer.send(REQUEST[:sent])
            if how == "reset":
                peer.reset()
            else:
                peer.socket.close()

    await eventually(lambda: not port.server._requests)
    # The kernel may hold some that have not been accepted yet; each comes, ends, and is let go.
    await eventually(lambda: len(descriptors()) <= before)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_connections_that_break_leave_no_descriptor(port: Port, how: str) -> None:
    before = len(descriptors())
    for _ in range(50):
        peer = await port.upgraded()
        if how == "reset":
            peer.reset()
        else:
            peer.socket.close()

    await eventually(lambda: sum(ear.over for ear in port.ears) == 50)
    await eventually(lambda: len(descriptors()) <= before)
    assert not port.server._connections


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(descriptors()), hard))
    held: list[int] = []
    try:
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE  # noqa: PT017 - how else to take all there are
                break
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.promise("P20")
@pytest.mark.usefixtures("accept_pause")
async def test_a_process_without_descriptors_neither_spins_nor_goes_deaf(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0
    original = port.server._tell

    def count(*arguments: Any, **fields: Any) -> None:
        nonlocal attempts
        attempts += 1
        original(*arguments, **fields)
        if attempts == 2:
            # It has tried again by itself; now it shall be seen while it waits.
            monkeypatch.setattr(server_module, "ACCEPT_PAUSE", 3600.0)

    monkeypatch.setattr(port.server, "_tell", count)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with socket.socket() as early:
        early.setblocking(False)
        with no_descriptor_left():
            await asyncio.get_running_loop().sock_connect(early, ("127.0.0.1", port.server.port))
            await eventually(lambda: attempts >= 2)
            (listening,) = port.server._listeners.values()
            assert listening.is_resting, "it would be readable all the time"
        listening._end_rest()
        await Peer(early).send(REQUEST + b"\r\n")
        assert status(await Peer(early).until(b"\r\n\r\n")) == 101
    assert list(port.log.events) == [(events.CONNECTIONS_NOT_ACCEPTED, {"error": "[Errno 24] Too many open files"})], (
        "told once, in a sentence"
    )
    assert not complaints, "and with no trace"


async def test_a_page_that_is_refused_is_named_in_the_log_now_and_again(port: Port) -> None:
    for _ in range(3):
        peer = await port.dial()
        await peer.send(REQUEST + b"Origin: https://app.example.evil/" + b"x" * 300 + b"\r\n\r\n")
        assert status(await peer.rest()) == 403

    (told,) = [fields for event, fields in port.log.events if event is events.ORIGIN_REFUSED]
    assert told == {"origin": ("https://app.example.evil/" + "x" * 300)[:200], "address": "127.0.0.1"}


# --- The end ----------------------------------------------------------------------------------------------------------


async def test_a_server_stops_with_requests_and_connections_in_every_state(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SHUTDOWN_TIMEOUT", 0.05)
    await port.dial()
    begun = await port.dial()
    await begun.send(REQUEST[:50])
    refused = await port.dial()
    await refused.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await refused.until(b"\r\n\r\n")
    await port.upgraded()
    await port.upgraded()
    await eventually(lambda: len(port.connections) == 2)
    port.connections[1].close(4000, "going away")

    await port.server.close()

    assert not port.server._requests
    assert not port.server._connections
    await eventually(lambda: [ear.over for ear in port.ears] == [1, 1])


async def test_a_server_that_stops_waits_for_no_connection_that_was_not_told_to_close(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SHUTDOWN_TIMEOUT", 3600.0)
    peer = await port.upgraded()
    await eventually(lambda: len(port.connections) == 1)

    await port.server.close()

    assert await peer.rest() == b""


async def test_a_server_that_stops_lets_connections_say_goodbye(port: Port) -> None:
    peer = await port.upgraded()
    await eventually(lambda: len(port.connections) == 1)
    port.connections[0].close(4000, "going away")
    closing = asyncio.create_task(port.server.close())

    assert (await peer.until(b"going away"))[:4] == b"\x88\x0c\x0f\xa0"
    await peer.send(b"\x88\x82\0\0\0\0\x0f\xa0")
    await closing
    assert await peer.rest() == b""


async def test_a_server_stops_though_somebody_will_not_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SHUTDOWN_TIMEOUT", 0.05)
    port = Port()
    stubborn = asyncio.Event()
    cancelled = asyncio.Event()

    async def serve(_: Any) -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                cancelled.set()

    port.server._serve = serve
    await port.server.start()
    async with time_limit(20):
        await port.upgraded()
        await eventually(lambda: bool(port.server._tasks))
        await port.close()
    assert cancelled.is_set()
    stubborn.set()
    await eventually(lambda: not port.server._tasks)


async def test_a_server_that_was_stopped_hears_nobody(port: Port) -> None:
    number = port.server.port
    await port.server.close()

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", number)


# --- Addresses --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def port_of_6() -> AsyncIterator[Port]:
    running = Port("::1")
    try:
        await running.server.start()
    except OSError:
        pytest.skip("this machine has no IPv6")
    yield running
    await running.close()


async def test_ipv6_is_served(port_of_6: Port) -> None:
    await port_of_6.upgraded()

    await eventually(lambda: [connection.address for connection in port_of_6.connections] == ["::1"])


async def test_a_name_of_both_families_is_served_on_one_port() -> None:
    found = {each[0] for each in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    running = Port("localhost")
    try:
        await running.server.start()
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            if family in found:
                with socket.socket(family, socket.SOCK_STREAM) as connection:
                    connection.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(connection, (address, running.server.port))
                    await Peer(connection).send(REQUEST + b"\r\n")
                    assert status(await Peer(connection).until(b"\r\n\r\n")) == 101
        assert len(running.server._listeners) == len(found)
    finally:
        await running.close()


async def test_a_port_that_is_taken_is_an_error(port: Port) -> None:
    other = Port()
    other.server._interfaces = (ClientInterface(other.host, port.server.port),)

    with pytest.raises(OSError, match="in use"):
        await other.server.start()
    await other.close()


async def test_small_messages_are_not_held_back(port: Port) -> None:
    await port.upgraded()
    await eventually(lambda: len(port.connections) == 1)

    transport = port.connections[0]._socket
    assert isinstance(transport, socket.socket)
    assert transport.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
