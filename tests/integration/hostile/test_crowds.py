"""More addresses and principals than a node remembers: tables stay as they are, and who was there before stays counted.

The tables of these nodes are small, so that a test can fill them. What a full one of the real size takes is measured by
``test_abuse``.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from ipaddress import ip_network
from typing import Any, Final

import pytest

from gateway.app.admission import limits as limits_module
from tests.support.nodes import TestNode, eventually, rejected, running_node
from tests.support.raw_client import Closed, RawClient

MOST: Final = 32
"""Accounts that a node of these tests remembers of each kind."""

UNAUTHENTICATED: Final[dict[str, Any]] = {"limit_exempt": (), "trusted_proxies": (ip_network("127.0.0.1/32"),)}
"""The tests come from this very machine, and pass for proxies of clients elsewhere."""


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "MOST_ACCOUNTS", MOST)


def client(node: TestNode, address: str) -> RawClient:
    return RawClient(node.url, {"X-Forwarded-For": address})


def accounts(node: TestNode, of: str) -> int:
    text = node.gateway.metrics.render().decode()
    (line,) = [each for each in text.splitlines() if each.startswith(f'gateway_limited_accounts{{of="{of}"}}')]
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.promise("P20")
async def test_a_flood_of_addresses_makes_nobody_forgotten_who_is_connected() -> None:
    async with running_node(limit_address_connections=2, rate_address_handshakes=0.1, **UNAUTHENTICATED) as node:
        async with client(node, "192.0.2.1") as one, client(node, "192.0.2.2") as other:
            await one.hello("alice")
            await other.hello("bob")
            for number in range(5 * MOST):
                async with client(node, f"198.51.100.{number}"):
                    pass
            assert accounts(node, "address") <= MOST

            # What is counted of the innocent still is: as many as before may come in, and not one more.
            assert (await rejected(node, "192.0.2.1"))[0] == 429
            assert (await rejected(node, "192.0.2.2"))[0] == 429
            for each in (one, other):
                await each.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1})
                assert "error" not in await each.expect("reply")
        await eventually(lambda: not node.gateway.node.connections)


@pytest.mark.promise("P20")
async def test_unauthenticated_clients_beyond_a_full_table_share_one_account_until_there_is_room() -> None:
    async with running_node(limit_address_connections=2, **UNAUTHENTICATED) as node:
        async with AsyncExitStack() as there:
            for number in range(MOST):
                await (await there.enter_async_context(client(node, f"192.0.2.{number}"))).hello(f"p{number}")
            assert accounts(node, "address") == MOST

            async with client(node, "198.51.100.1") as first, client(node, "198.51.100.2") as second:
                await first.hello()
                await second.hello()
                for address in ("198.51.100.1", "198.51.100.3"):
                    status, _, why = await rejected(node, address)
                    assert (status, "limit_address_connections" in why) == (429, True)
                # Whoever has an account is served from it.
                async with client(node, "192.0.2.5") as neighbour:
                    assert (await neighbour.hello())["outcome"] == "created"
                assert accounts(node, "address") == MOST
        await eventually(lambda: not node.gateway.node.connections)
        for number in (1, 2, 3):
            async with client(node, f"203.0.113.{number}") as late, client(node, f"203.0.113.{number}") as same:
                await late.hello()
                await same.hello()


async def test_a_flood_of_principals_makes_nobody_forgotten_who_has_a_session() -> None:
    running = running_node(limit_principal_sessions=1, window_default=0.05, reap_interval=0.05)
    async with running as node, RawClient(node.url) as alice:
        await alice.hello("alice")
        for number in range(3 * MOST):
            async with RawClient(node.url) as unauthenticated:
                await unauthenticated.hello(f"unauthenticated client {number}")
                await unauthenticated.send({"type": "bye"})
                await unauthenticated.closed()
        assert accounts(node, "principal") <= MOST

        async with RawClient(node.url) as second:
            await second.send({"type": "hello", "principal": "alice"})
            assert (await second.expect("error"))["code"] == "too_many_sessions"
            with pytest.raises(Closed):
                await second.receive()
        await alice.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1})
        assert "error" not in await alice.expect("reply")
