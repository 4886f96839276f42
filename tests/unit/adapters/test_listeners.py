"""How ports are listened on, whatever is spoken there."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gateway.adapters.listeners import listen
from tests.support.haproxy import LOOPBACK

OTHER = "127.0.0.2"


@pytest.fixture
def _two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each name two addresses, one of which is found twice."""

    def found(_host: str, port: int, *_rest: Any, **_options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in (LOOPBACK, OTHER, LOOPBACK)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.usefixtures("_two_addresses")
async def test_all_addresses_of_a_name_have_one_port() -> None:
    first, second = await listen("anything", 0, backlog=1)
    with first, second:
        port = first.getsockname()[1]
        assert port != 0
        assert (first.getsockname(), second.getsockname()) == ((LOOPBACK, port), (OTHER, port))


@pytest.mark.usefixtures("_two_addresses")
async def test_where_one_address_is_taken_none_is_listened_on() -> None:
    with socket.socket() as taken:
        taken.bind((OTHER, 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(OSError, match=f"{OTHER}, port {port}, cannot be listened on: Address already in use"):
            await listen("anything", port, backlog=1)

    first, second = await listen("anything", port, backlog=1)
    first.close()
    second.close()
