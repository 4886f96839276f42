"""At which pace the client port accepts connections."""

from __future__ import annotations

import socket

import pytest
from websockets.frames import Frame, Opcode

from gateway.adapters.websocket.read_scheduler import Share
from gateway.adapters.websocket.server import ClientInterface
from tests.support.clock import eventually
from tests.unit.adapters.websocket.conftest import REQUEST, Port


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_no_more_are_accepted_in_a_turn_than_the_limiter_allows(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop gets its turn in between, so that those who are in are served meanwhile."""
    accepted = [0]
    welcome = port.server._welcome

    def count(interface: ClientInterface, connection: socket.socket, peer: str, share: Share) -> None:
        accepted[-1] += 1
        welcome(interface, connection, peer, share)

    def pause(*, more: bool) -> float:
        accepted.append(0)
        port.admission.together = 5
        return 0.0

    monkeypatch.setattr(port.server, "_welcome", count)
    monkeypatch.setattr(port.admission, "pause", pause)
    port.admission.together = 20
    assert port.server._scheduler is not None
    port.server._scheduler.unauthenticated.clock = lambda: (
        0.0
    )  # else a turn might end earlier, on a machine that has other work
    (listening,) = port.server._listeners.values()
    listening.stop()
    peers = [await port.dial() for _ in range(40)]
    listening.start()
    for peer in peers:
        await peer.send(REQUEST + b"\r\n")

    assert [status(await peer.until(b"\r\n\r\n")) for peer in peers] == [101] * 40
    assert accepted == [20, 5, 5, 5, 5, 0]


async def test_what_is_not_to_be_accepted_yet_waits_in_the_kernel(port: Port) -> None:
    port.admission.rest = 3600.0
    first = await port.upgraded()
    second = await port.dial()
    await second.send(REQUEST + b"\r\n")
    # Whoever says something on an open connection is heard: the loop has had its turns, and nobody else has come.
    await first.send(Frame(Opcode.TEXT, b"one").serialize(mask=True))
    await eventually(lambda: port.ears[0].heard == [b"one"])
    assert len(port.server._connections) == 1
    assert not port.server._requests

    (listening,) = port.server._listeners.values()
    assert listening.is_resting
    listening._end_rest()
    assert (await second.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


async def test_a_crowd_that_is_accepted_one_by_one_is_served_all_the_same(port: Port) -> None:
    port.admission.rest = 0.001
    peers = [await port.dial() for _ in range(20)]
    for peer in peers:
        await peer.send(REQUEST + b"\r\n")
    for peer in peers:
        assert (await peer.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
