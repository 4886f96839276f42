"""WebSockets whose other end keeps no rules: floods, silence, breaks at every moment (RFC 6455 sections 5 to 7)."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import tracemalloc
import weakref

import pytest
from websockets.frames import Frame, Opcode

from gateway.adapters.websocket import connection as connection_module
from gateway.adapters.websocket.connection import PONG_BACKLOG, WebSocketConnection
from gateway.adapters.websocket.frames import BEGINNING, Breach
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.refusals import FrameRule
from gateway.garbage import uncollected
from tests.support.clock import eventually
from tests.unit.adapters.websocket.conftest import MESSAGE_BYTES, Ear, Peer, Port

SMALL_BUFFER = 4096
"""Bytes that the client's kernel takes in for a client that does not read."""

PLENTY = 1 << 20
"""Bytes of a message that no kernel takes at once."""


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, mask: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin=final).serialize(mask=mask)


def text(message: bytes) -> bytes:
    return frame(1, message)


def close(code: int | None = 1000) -> bytes:
    return frame(8, b"" if code is None else code.to_bytes(2, "big"))


async def joined(port: Port, *, receive_buffer: int | None = None) -> tuple[WebSocketConnection, Ear, Peer]:
    before = len(port.connections)
    peer = await port.upgraded(receive_buffer=receive_buffer)
    await eventually(lambda: len(port.connections) > before)
    return port.connections[-1], port.ears[-1], peer


def violations(port: Port) -> dict[str, float]:
    return port.metrics.counts(catalogue.FRAME_VIOLATIONS)


async def closed_with(peer: Peer) -> int | None:
    """Read to the end, of which the last must be a close frame; tell its code."""
    data = await peer.rest()
    at = data.index(b"\x88")
    assert len(data) == at + 2 + data[at + 1], "nothing follows a close frame"
    return int.from_bytes(data[at + 2 : at + 4], "big") if data[at + 1] else None


# --- What comes -------------------------------------------------------------------------------------------------------


async def test_thousands_of_messages_that_nobody_wants_yet_are_kept_in_order(port: Port) -> None:
    connection, ear, peer = await joined(port)
    connection.pause()
    messages = [b"%d" % number for number in range(10_000)]
    ear.on_message = lambda _: connection.pause() if len(ear.heard) % 1000 == 0 else None
    sending = asyncio.create_task(peer.send(b"".join(map(text, messages))))

    for heard in range(1000, 10_001, 1000):
        connection.resume()
        await eventually(lambda heard=heard: len(ear.heard) >= heard)  # type: ignore[misc]
        assert len(ear.heard) == heard
    await sending

    assert ear.heard == messages


async def test_who_pauses_does_not_read(port: Port) -> None:
    connection, _, peer = await joined(port)
    connection.pause()
    await peer.send(text(b"x"))
    flood = asyncio.create_task(peer.send(text(b"y" * 60_000) * 1000))

    await eventually(lambda: connection._inbox is None and not connection._reading.is_wanted)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not flood.done()

    flood.cancel()
    await asyncio.gather(flood, return_exceptions=True)


async def test_what_came_before_the_end_is_heard_before_the_end_also_after_a_pause(port: Port) -> None:
    connection, ear, peer = await joined(port)
    ear.on_message = lambda _: connection.pause()
    await peer.send(text(b"one") + text(b"two") + text(b"three") + close(1000))
    assert await closed_with(peer) == 1000

    for number in (1, 2, 3):
        await eventually(lambda number=number: len(ear.heard) == number)  # type: ignore[misc]
        assert ear.over == 0 or number == 3
        connection.resume()

    await eventually(lambda: ear.over == 1)
    assert ear.heard == [b"one", b"two", b"three"]


async def test_who_closes_hears_nothing_more_and_is_told_of_the_end_though_paused(port: Port) -> None:
    connection, ear, peer = await joined(port)
    ear.on_message = lambda _: connection.pause()
    await peer.send(text(b"one") + text(b"two"))
    await eventually(lambda: len(ear.heard) == 1)

    connection.close(4000, "enough")
    await eventually(lambda: ear.over == 1)
    connection.resume()

    assert ear.heard == [b"one"]


async def test_pings_are_answered_in_order_with_messages(port: Port) -> None:
    connection, ear, peer = await joined(port)
    ear.on_message = connection.write
    await peer.send(frame(9, b"a") + frame(9, b"b") + text(b"echo") + frame(9, b"c"))

    assert await peer.exactly(15) == b"\x8a\x01a" + b"\x8a\x01b" + b"\x81\x04echo" + b"\x8a\x01c"


async def test_a_ping_within_a_fragmented_message_is_answered_before_it(port: Port) -> None:
    connection, ear, peer = await joined(port)
    ear.on_message = connection.write
    await peer.send(frame(1, b"ec", final=False) + frame(9, b"p") + frame(0, b"ho"))

    assert await peer.exactly(9) == b"\x8a\x01p" + b"\x81\x04echo"


async def test_pongs_mean_nothing(port: Port) -> None:
    _, ear, peer = await joined(port)
    await peer.send(frame(10, b"unasked") + text(b"x"))

    await eventually(lambda: ear.heard == [b"x"])


@pytest.mark.promise("P9", "P20")
async def test_a_flood_of_pings_costs_who_does_not_read_his_answers_and_nobody_else(port: Port) -> None:
    connection, ear, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    flood = frame(9, b"x" * 125) * 500 + text(b"")
    # Until the kernel takes no more: then the backlog is at its bound, and the pings go unanswered but are read.
    for _ in range(400):
        await peer.send(flood)
        if connection.backlog() > PONG_BACKLOG:
            break
    bound = PONG_BACKLOG + connection_module.READ_BYTES
    for _ in range(20):
        await peer.send(flood)
        assert connection.backlog() <= bound
    await peer.send(text(b"still heard"))

    await eventually(lambda: b"still heard" in ear.heard)
    assert PONG_BACKLOG < connection.backlog() <= bound


@pytest.mark.promise("P20")
async def test_a_message_that_is_announced_too_long_is_refused_before_it_takes_memory(port: Port) -> None:
    _, ear, peer = await joined(port)
    await peer.send(b"\x81\xff" + (MESSAGE_BYTES + 1).to_bytes(8, "big") + b"mask")

    assert await closed_with(peer) == Breach.MESSAGE_TOO_BIG
    await eventually(lambda: ear.over == 1)
    assert ear.too_big == [b""]


async def test_a_message_of_many_small_fragments_takes_no_more_than_its_size(port: Port) -> None:
    _, ear, peer = await joined(port)
    fragments = frame(1, b"x", final=False) + frame(0, b"y", final=False) * 20_000 + frame(0, b"z")
    tracemalloc.start()
    await peer.send(fragments)
    await eventually(lambda: bool(ear.heard))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert ear.heard == [b"x" + b"y" * 20_000 + b"z"]
    assert peak < 40 * 20_000 + (1 << 20)


async def test_fragments_that_grow_too_long_together_are_refused(port: Port) -> None:
    _, _, peer = await joined(port)
    await peer.send(frame(1, b"x" * 1000, final=False) + frame(0, b"x" * 1000, final=False) * 70)

    assert await closed_with(peer) == Breach.MESSAGE_TOO_BIG


async def test_text_that_is_not_utf_8_is_refused(port: Port) -> None:
    _, ear, peer = await joined(port)
    await peer.send(text(b"good") + text(b"\xff"))

    assert await closed_with(peer) == Breach.INVALID_TEXT
    assert ear.heard == [b"good"]


@pytest.mark.parametrize("parts", [[b"\xc3", b"\xa9"], [b"\xf0\x9f", b"", b"\x98\x80"], [b"", b""]])
async def test_a_character_may_cross_the_border_of_fragments(port: Port, parts: list[bytes]) -> None:
    _, ear, peer = await joined(port)
    for at, part in enumerate(parts):
        await peer.send(frame(0 if at else 1, part, final=at == len(parts) - 1) + frame(9, b"between"))
        assert await peer.exactly(9) == b"\x8a\x07between"

    await eventually(lambda: ear.heard == [b"".join(parts)])


@pytest.mark.parametrize(
    "parts", [[b"\xc3", b"("], [b"\xed\xa0", b"\x80"], [b"ok", b"\xf4\x90\x80\x80"], [b"\xc3", b""]]
)
async def test_a_character_that_breaks_at_the_border_of_fragments_is_refused(port: Port, parts: list[bytes]) -> None:
    connection, ear, peer = await joined(port)
    for at, part in enumerate(parts):
        await peer.send(frame(0 if at else 1, part, final=at == len(parts) - 1))

    assert await closed_with(peer) == Breach.INVALID_TEXT
    assert (connection.close_code, ear.heard) == (Breach.INVALID_TEXT, [])


async def test_a_close_between_fragments_is_answered(port: Port) -> None:
    _, ear, peer = await joined(port)
    await peer.send(frame(1, b"never whole", final=False) + close(1001))

    assert await closed_with(peer) == 1001
    await eventually(lambda: ear.over == 1)
    assert ear.heard == []


@pytest.mark.parametrize("bit", [0x40, 0x20, 0x10])
@pytest.mark.parametrize("opcode", [0x1, 0x9])
async def test_reserved_bits_are_refused(port: Port, bit: int, opcode: int) -> None:
    _, _, peer = await joined(port)
    await peer.send(bytes([0x80 | bit | opcode, 0x80]) + b"mask")

    assert await closed_with(peer) == Breach.PROTOCOL_ERROR


async def test_binary_is_refused(port: Port) -> None:
    _, ear, peer = await joined(port)
    await peer.send(frame(2, b"x") + text(b"after") + close())

    assert await closed_with(peer) == Breach.UNSUPPORTED_DATA
    await eventually(lambda: ear.over == 1)
    assert ear.heard == []


BROKEN: list[tuple[bytes, int, str]] = [
    (b"\x81\x00", 1002, "unmasked"),
    (b"\xc1\x80mask", 1002, "reserved_bits"),
    (b"\x81\xfe\x00\x01maskx", 1002, "length"),
    (b"\x83\x80mask", 1002, "opcode"),
    (b"\x8b\x80mask", 1002, "opcode"),
    (b"\x09\x80mask", 1002, "control"),
    (b"\x89\xfe\x00\x7emask", 1002, "control"),
    (b"\x80\x80mask", 1002, "order"),
    (frame(1, b"x", final=False) + text(b"y"), 1002, "order"),
    (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask", 1009, "too_big"),
    (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffmask", 1009, "too_big"),
    (text(b"\xff"), 1007, "not_utf_8"),
    (frame(2, b"x"), 1003, "binary"),
    (close(1005), 1002, "close"),
]
"""Frames, the code they are answered with, and the rule they break."""


@pytest.mark.parametrize(("data", "code", "rule"), BROKEN, ids=[f"{at}-{each[2]}" for at, each in enumerate(BROKEN)])
async def test_each_violation_is_counted_once_by_its_rule(port: Port, data: bytes, code: int, rule: str) -> None:
    _, ear, peer = await joined(port)
    await peer.send(data + data + close(code))  # without an answer to its close, the connection would wait for one

    assert await closed_with(peer) == code
    await eventually(lambda: ear.over == 1)
    assert violations(port) == {rule: 1}


def test_all_rules_are_those_that_can_be_broken() -> None:
    assert {rule for _, _, rule in BROKEN} | {FrameRule.FLOOD} == set(FrameRule)


async def test_of_a_message_that_is_too_big_is_told_what_comes_in_time(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enough to tell which request it is (protocol 4.8.1); who sends no more is not waited for long."""
    monkeypatch.setattr(connection_module, "CULPRIT_TIMEOUT", 0.01)
    _, ear, peer = await joined(port)
    await peer.send(b"\x81\xff\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00\x00\x00" + b"x" * 1000)
    await eventually(lambda: ear.too_big == [b"x" * 1000])
    await peer.send(close(1009))

    assert await closed_with(peer) == Breach.MESSAGE_TOO_BIG
    assert violations(port) == {"too_big": 1}


async def test_of_a_message_that_is_too_big_no_more_is_read_than_may_tell_which_it_is(port: Port) -> None:
    _, ear, peer = await joined(port)
    await peer.send(frame(1, b"x" * (3 * MESSAGE_BYTES)) + close(1009))

    assert await closed_with(peer) == Breach.MESSAGE_TOO_BIG
    assert [len(beginning) for beginning in ear.too_big] == [MESSAGE_BYTES + BEGINNING]


# --- Ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 1001, 1007, 1011, 3000, 4999, None])
async def test_a_close_is_answered_with_its_code_and_nothing_after_it_counts(port: Port, code: int | None) -> None:
    connection, ear, peer = await joined(port)
    await peer.send(close(code) + text(b"after"))

    assert await closed_with(peer) == code
    await eventually(lambda: ear.over == 1)
    assert (connection.close_code, ear.heard) == (code, [])


@pytest.mark.parametrize("payload", [b"\x03", *(code.to_bytes(2, "big") for code in (0, 999, 1004, 1005, 1006, 1015))])
async def test_a_close_that_nobody_may_send_is_a_violation(port: Port, payload: bytes) -> None:
    connection, _, peer = await joined(port)
    await peer.send(frame(8, payload))

    assert await closed_with(peer) == Breach.PROTOCOL_ERROR
    assert connection.close_code == Breach.PROTOCOL_ERROR


async def test_who_says_goodbye_and_hangs_up_its_half_still_gets_all_that_was_written(port: Port) -> None:
    connection, ear, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    while not connection.backlog():
        connection.write(b"x" * PLENTY)
    await peer.send(close(1000))
    peer.socket.shutdown(socket.SHUT_WR)
    await eventually(lambda: ear.over == 1)

    data = await peer.rest()

    assert data.endswith(b"\x88\x02\x03\xe8")
    assert (len(data) - 4) % (PLENTY + 10) == 0
    await eventually(lambda: not port.server._connections)


async def test_nothing_is_written_behind_a_close(port: Port) -> None:
    connection, _, peer = await joined(port)
    connection.write(b"before")
    connection.close(4000, "")
    connection.write(b"after")
    connection.close(4001, "")
    await peer.send(frame(9, b"ping") + close(4000))

    assert await peer.rest() == b"\x81\x06before" + b"\x88\x02\x0f\xa0"
    assert connection.close_code == 4000


async def test_a_violation_is_told_though_the_client_goes_on_sending(port: Port) -> None:
    """A socket that is closed with something unread in it throws away what the client has not read yet."""
    _, ear, peer = await joined(port)
    await peer.send(text(b"bad")[:1] + b"\x00" + b"more" * 50_000)

    assert await closed_with(peer) == Breach.PROTOCOL_ERROR
    peer.socket.close()
    await eventually(lambda: not port.server._connections)
    assert ear.over == 1


async def test_a_violation_after_the_close_of_the_node_does_not_hide_it(port: Port) -> None:
    connection, _, peer = await joined(port)
    connection.close(4200, "told")
    await peer.send(b"\x81\x00" + b"more" * 50_000)

    assert await closed_with(peer) == 4200
    assert connection.close_code == 4200


async def test_messages_that_cross_a_close_mean_nothing(port: Port) -> None:
    connection, ear, peer = await joined(port)
    connection.close(4000, "going")
    await peer.send(text(b"crossing") + frame(9, b"ping") + close(4000))

    assert await closed_with(peer) == 4000
    await eventually(lambda: not port.server._connections)
    assert (ear.heard, ear.over) == ([], 1)


@pytest.mark.parametrize("reads", [True, False])
async def test_who_does_not_answer_a_close_is_dropped(port: Port, monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_TIMEOUT", 0.05)
    connection, ear, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    if not reads:
        while not connection.backlog():
            connection.write(b"x" * PLENTY)
    connection.close(4000, "going")

    await eventually(lambda: not port.server._connections)
    assert ear.over == 1
    assert connection.backlog() == 0
    assert connection._socket.fileno() == -1
    if reads:
        assert await closed_with(peer) == 4000


@pytest.mark.parametrize("how", ["half", "reset"])
@pytest.mark.parametrize("state", ["open", "unsent", "closing", "closing with unsent", "failed"])
async def test_a_break_in_any_state_ends_the_connection_once(port: Port, state: str, how: str) -> None:
    connection, ear, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    if "unsent" in state:
        while not connection.backlog():
            connection.write(b"x" * PLENTY)
    if "closing" in state:
        connection.close(4000, "going")
    if state == "failed":
        await peer.send(b"\x81\x00")
        await eventually(lambda: connection.close_code == Breach.PROTOCOL_ERROR)

    if how == "half":
        peer.socket.shutdown(1)
    else:
        peer.reset()

    await eventually(lambda: not port.server._connections)
    await eventually(lambda: ear.over == 1)
    connection.write(b"into the void")
    connection.close(4001, "too late")
    connection.pause()
    connection.resume()
    connection.abort()
    await asyncio.sleep(0)
    assert ear.over == 1
    assert connection._socket.fileno() == -1


@pytest.mark.parametrize(
    "last", [text(b"last words"), frame(0x9), b"\x81\x80half"], ids=["message", "ping", "half a frame"]
)
async def test_a_break_right_behind_the_last_words_is_noticed(port: Port, last: bytes) -> None:
    """Uvloop tells of a break once; whoever reads only the words then never hears of it."""
    for _ in range(20):
        _, ear, peer = await joined(port)
        # Without a turn of the loop between them, so that both have come when the node looks.
        assert peer.socket.send(last) == len(last)
        peer.reset()
        await eventually(lambda ear=ear: ear.over == 1)  # type: ignore[misc]


@pytest.mark.promise("P20")
async def test_a_client_that_never_stops_talking_does_not_hold_up_the_others(port: Port) -> None:
    _, ear, peer = await joined(port)
    _, other_ear, other = await joined(port)
    order: list[str] = []
    words = text(b"x")

    def go_on(_: bytes) -> None:
        order.append("chatter")
        if "other" not in order:
            peer.socket.send(words)

    ear.on_message = go_on
    other_ear.on_message = lambda _: order.append("other")
    await peer.send(words)
    await other.send(text(b"y"))
    await eventually(lambda: "other" in order)
    assert order.index("other") < 100


async def test_a_write_that_meets_a_broken_socket_ends_the_connection_soon_but_not_at_once(port: Port) -> None:
    """Whoever is just writing need not expect to lose its session meanwhile."""
    connection, ear, peer = await joined(port)
    connection.pause()  # so that only the write can notice
    peer.reset()
    while port.server._connections:
        connection.write(b"x")
        assert ear.over == 0
        if port.server._connections:
            await asyncio.sleep(0)

    await eventually(lambda: ear.over == 1)


async def test_what_the_kernel_takes_in_pieces_arrives_whole(port: Port) -> None:
    connection, _, peer = await joined(port, receive_buffer=SMALL_BUFFER)
    messages = [bytes([65 + number]) * (PLENTY + number) for number in range(5)]
    for message in messages:
        connection.write(message)
    assert connection.backlog() > 0
    connection.close(4000, "after all that")

    for message in messages:
        assert await peer.exactly(10) == b"\x81\x7f" + len(message).to_bytes(8, "big")
        assert await peer.exactly(len(message)) == message
    await peer.send(close(4000))
    assert await closed_with(peer) == 4000


class Sluggish:
    """A socket whose kernel takes one byte, then none, then one byte, and so on."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._socket = connection._socket
        self._turn = 0

    def send(self, data: bytes) -> int:
        self._turn += 1
        if self._turn % 2:
            raise BlockingIOError(errno.EAGAIN, "later")
        return self._socket.send(memoryview(data)[:1])

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)


async def test_a_kernel_that_takes_single_bytes_gets_each_once(port: Port) -> None:
    connection, _, peer = await joined(port)
    connection._socket = Sluggish(connection)  # type: ignore[assignment]
    connection.write(b"one")
    connection.write(b"two")
    assert connection.backlog() == 10
    assert await peer.exactly(10) == b"\x81\x03one" + b"\x81\x03two"
    await eventually(lambda: connection.backlog() == 0)

    await peer.send(close())
    assert await closed_with(peer) == 1000


@pytest.mark.promise("P20")
@pytest.mark.parametrize("how", ["closed", "reset", "violation", "refused"])
async def test_what_has_ended_is_gone_without_the_collector(port: Port, how: str) -> None:
    """A collector that comes round seldom would leave it for hours."""
    there: weakref.ref[object]
    gc.collect()
    with uncollected():
        if how == "refused":
            peer = await port.dial()
            await eventually(lambda: len(port.server._requests) == 1)
            there = weakref.ref(next(iter(port.server._requests)).reading)
            await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await peer.rest()
            peer.socket.close()
        else:
            connection, ear, peer = await joined(port)
            there = weakref.ref(connection)
            del connection
            port.connections.clear()
            await peer.send({"closed": close(), "reset": b"", "violation": b"\x81\x00"}[how])
            peer.reset() if how == "reset" else peer.socket.close()
            await eventually(lambda: ear.over == 1)
        await eventually(lambda: there() is None)


# --- Many at once -----------------------------------------------------------------------------------------------------


def fill(connection: WebSocketConnection) -> int:
    """Leave no room in the kernel, unknown to the connection; returns after how many bytes there was none."""
    taken = 0
    try:
        while True:
            taken += connection._socket.send(b"x" * PLENTY)
    except BlockingIOError:
        return taken


async def test_all_get_what_is_theirs(port: Port) -> None:
    joint = [await joined(port) for _ in range(3)]
    shared = b"the same"
    WebSocketConnection.write_all([connection for connection, _, _ in joint], [shared, shared, b"another"])

    received = [await peer.exactly(2 + length) for (_, _, peer), length in zip(joint, (8, 8, 7), strict=True)]
    assert received == [b"\x81\x08the same", b"\x81\x08the same", b"\x81\x07another"]


@pytest.mark.thorough
async def test_those_that_cannot_be_written_to_keep_nothing_from_the_others(port: Port) -> None:
    """Between sound ones: a kernel without room, one that takes a part, a connection that breaks."""
    first, full, partial, broken, last = [await joined(port, receive_buffer=SMALL_BUFFER) for _ in range(5)]
    filled = fill(full[0])
    broken[0]._socket.shutdown(socket.SHUT_WR)
    huge = b"x" * (16 * PLENTY)
    connections = [each[0] for each in (first, full, partial, broken, last)]
    WebSocketConnection.write_all(connections, [b"m", b"m", huge, b"m", b"m"])

    assert await first[2].exactly(3) == b"\x81\x01m"
    assert await last[2].exactly(3) == b"\x81\x01m"
    assert 0 < partial[0].backlog() < len(huge)
    await eventually(lambda: broken[1].over == 1)

    WebSocketConnection.write_all(connections, [b"n"] * 5)

    assert await first[2].exactly(3) == b"\x81\x01n"
    assert await last[2].exactly(3) == b"\x81\x01n"
    assert (await full[2].exactly(filled + 6))[filled:] == b"\x81\x01m" + b"\x81\x01n"
    header = b"\x81\x7f" + len(huge).to_bytes(8, "big")
    assert await partial[2].exactly(len(header) + len(huge) + 3) == header + huge + b"\x81\x01n"
    assert [connection.backlog() for connection in connections] == [0] * 5
