"""More connections than there is room for before their requests are read: who goes, and who is read first (P20)."""

from __future__ import annotations

import pytest

from gateway.adapters.websocket.pending_requests import PendingRequests
from tests.support.clock import eventually
from tests.unit.adapters.websocket.conftest import REQUEST, Port
from tests.unit.adapters.websocket.test_server import refusals, status


@pytest.mark.promise("P20")
async def test_those_who_say_nothing_make_room_for_others(port: Port) -> None:
    port.server._requests = PendingRequests(3)
    silent = [await port.dial() for _ in range(5)]
    await eventually(lambda: len(port.server._requests) == 3)

    assert [await peer.rest() for peer in silent[:2]] == [b"", b""]
    assert refusals(port) == {"crowded_out": 2}
    await port.upgraded()
    await silent[4].send(REQUEST + b"\r\n")
    assert status(await silent[4].until(b"\r\n\r\n")) == 101


@pytest.mark.promise("P9", "P20")
async def test_those_whose_request_is_there_make_room_for_nobody_before_it_is_read(port: Port) -> None:
    """Behind a load balancer all of a storm come from one address, faster than they can be read."""
    port.server._requests = PendingRequests(3, is_proxy=lambda _: True)
    (listening,) = port.server._listeners.values()
    listening.stop()
    crowd = [await port.dial() for _ in range(12)]
    for peer in crowd:
        await peer.send(REQUEST + b"\r\n")
    listening.start()

    assert [status(await peer.until(b"\r\n\r\n")) for peer in crowd] == [101] * 12
    assert refusals(port) == {}


@pytest.mark.promise("P20")
async def test_who_has_begun_a_request_and_says_more_now_and_then_makes_room(port: Port) -> None:
    port.server._requests = PendingRequests(3)
    crowd = [await port.dial() for _ in range(3)]
    for peer in crowd:
        await peer.send(REQUEST[:10])
    await eventually(lambda: all(each._reader is not None and each._reader.has_begun for each in port.server._requests))

    await port.upgraded()
    assert refusals(port) == {"crowded_out": 1}
