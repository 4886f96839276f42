"""One node over the in-memory grid, and more clients than it admits: who goes first, what the others are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.adapters.websocket.upgrade import Upgrade
from gateway.adapters.websocket.upgrade_request import comes_back
from gateway.app.admission.handshake_limiter import HandshakeLimiter
from tests.support.nodes import UPGRADE, TestNode, eventually, rejected, running_node
from tests.support.raw_client import RawClient


@asynccontextmanager
async def busy_node(**settings: Any) -> AsyncIterator[TestNode]:
    """Run a node that always has live updates to deliver."""
    async with running_node(**settings) as node:
        node.gateway.node.connection_limiter._busy = lambda: True
        yield node


async def test_more_than_can_be_admitted_are_told_when_to_come_and_counted() -> None:
    async with busy_node(admission_rate=0.5, admission_wait=0.0) as node, AsyncExitStack() as stack:
        status, retry_after, why = await rejected(node)
        assert status == 503, "so that HAProxy tries another node"
        assert int(retry_after) >= 1
        assert "admission_rate: more clients come to this node than the 0.5 a second that it accepts" in why
        assert 'gateway_admissions_total{result="rejected"} 1.0' in node.gateway.metrics.render().decode()
        node.gateway.node.connection_limiter._busy = lambda: False
        client = await stack.enter_async_context(RawClient(node.url))
        assert (await client.hello())["outcome"] == "created"


async def test_who_comes_back_is_admitted_before_who_is_new() -> None:
    async with busy_node(admission_rate=0.2, admission_wait=60.0) as node:

        async def come(url: str) -> None:
            async with RawClient(url):
                pass

        await come(node.url)  # takes the one place there is; the next is free in five seconds
        limiter = node.gateway.node.connection_limiter
        assert limiter._queue is not None
        clients = [asyncio.create_task(come(node.url)) for _ in range(3)]
        await eventually(lambda: len(limiter._queue or ()) == 3)
        clients += [asyncio.create_task(come(f"{node.url}?node=n1")) for _ in range(2)]
        clients.append(asyncio.create_task(come(f"{node.url}?backup=n1")))
        await eventually(lambda: len(limiter._queue or ()) == 6)

        candidates = [each for each in limiter._queue.release(0.0, paced=False, most=6) if isinstance(each, Upgrade)]
        assert [each._request is not None and comes_back(each._request) for each in candidates] == [True] * 3 + [
            False
        ] * 3
        for each in candidates:
            each.accept()
        await asyncio.gather(*clients)


@pytest.mark.promise("P20")
async def test_a_crowd_from_one_address_makes_room_for_another_address() -> None:
    """Nobody has shown yet who it is, and all say that they come back."""
    strangers = {"limit_exempt": (), "trusted_proxies": (ip_network("127.0.0.1/32"),)}
    async with busy_node(admission_rate=0.1, admission_wait=40.0, **strangers) as node, AsyncExitStack() as stack:
        returning = "?node=n1"
        limiter = node.gateway.node.connection_limiter
        # The one that is admitted.
        await stack.enter_async_context(RawClient(node.url + returning, {"X-Forwarded-For": "192.0.2.1"}))
        crowd = []
        for count in range(1, 5):
            crowd.append(asyncio.create_task(rejected(node, "192.0.2.1", returning)))
            await eventually(lambda count=count: len(limiter._queue or ()) == count)  # type: ignore[misc]
        other = asyncio.create_task(rejected(node, "192.0.2.2", returning))

        assert (await crowd[-1])[0] == 503
        assert len(limiter._queue or ()) == 4
        assert [each.done() for each in (*crowd[:-1], other)] == [False] * 4
        for each in (*crowd, other):
            each.cancel()
        await asyncio.gather(*crowd, other, return_exceptions=True)


async def test_a_client_that_leaves_the_line_is_not_admitted() -> None:
    async with busy_node(admission_rate=0.5, admission_wait=30.0) as node:
        async with RawClient(node.url):
            pass
        _, writer = await asyncio.open_connection("127.0.0.1", node.gateway.port)
        head = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items())
        writer.write(f"GET /v1/connect HTTP/1.1\r\nHost: gateway\r\n{head}\r\n".encode())
        await eventually(lambda: len(node.gateway.node.connection_limiter._queue or ()) == 1)
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: not len(node.gateway.node.connection_limiter._queue or ()))


async def test_a_node_that_has_nothing_to_deliver_lets_everybody_in() -> None:
    async with running_node(admission_rate=1.0, admission_wait=0.1) as node, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(node.url)) for _ in range(20)]
        assert len(clients) == 20


async def test_live_updates_make_a_node_busy_and_values_from_memory_do_not() -> None:
    async with running_node() as node, RawClient(node.url) as one, RawClient(node.url) as two:
        flusher = node.gateway.node.sessions.flusher
        await one.hello()
        await two.hello("bob")
        await one.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1})
        await one.expect("reply")
        await two.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a"})
        await two.expect("update")
        assert not flusher.is_live()
        await one.send({"id": 2, "type": "publish", "request": 2, "topic": "a", "value": 2})
        await two.expect("update")
        assert flusher.is_live()


async def test_updates_that_are_kept_for_clients_who_are_away_make_no_node_busy() -> None:
    """Else a crowd whose sockets were cut would wait for admission to a node that has nobody else to serve."""
    async with running_node() as node, RawClient(node.url) as one:
        flusher = node.gateway.node.sessions.flusher
        await one.hello()
        async with RawClient(node.url) as two:
            welcome = await two.hello("bob")
            await two.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a"})
            await two.expect("reply")
        session = node.gateway.node.sessions.get(welcome["session"])
        assert session is not None
        await eventually(lambda: not session.connected)
        await one.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1})
        await one.expect("reply")
        await eventually(lambda: session.machine.unacknowledged + session.machine.waiting > 1)
        assert not flusher.is_live()


async def test_the_welcome_advises_a_window_by_how_many_would_come_back() -> None:
    async with running_node(admission_rate=1.0, backoff_initial=0.05) as node, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(node.url)) for _ in range(4)]
        told = [(await client.hello(f"p{number}"))["backoff"]["initial"] for number, client in enumerate(clients)]
        assert told == [1.5, 3.0, 4.5, 6.0]
        assert node.gateway.node._context.reconnect_advice.advice().initial == 6.0


async def test_connected_clients_are_told_when_their_advice_is_outgrown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.registry.reconnect_adviser.ADVISE_INTERVAL", 0.02)
    async with running_node(admission_rate=1.0, backoff_initial=0.05) as node, AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(RawClient(node.url)) for _ in range(2)]
        await one.hello("alice")
        await two.hello("bob")
        ping = await one.expect("ping")
        assert ping["backoff"]["initial"] == 3.0
        assert not [packet for packet in two.seen if packet["type"] == "ping"], "its advice is as good as new"


async def test_the_handshake_limiter_bounds_what_is_worked_on_together() -> None:
    async with running_node(claims_at_once=2) as node:
        handshake_limiter: HandshakeLimiter = node.gateway.node._handshake_limiter
        await handshake_limiter.enter(returning=False)
        await handshake_limiter.enter(returning=False)
        new = asyncio.create_task(handshake_limiter.enter(returning=False))
        await asyncio.sleep(0)
        back = asyncio.create_task(handshake_limiter.enter(returning=True))
        await asyncio.sleep(0)
        handshake_limiter.leave()
        await back
        assert not new.done(), "who comes back goes first"
        handshake_limiter.leave()
        await new
        handshake_limiter.leave()
        handshake_limiter.leave()
        assert handshake_limiter._inside == 0


async def test_a_hello_that_waits_too_long_is_told_when_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.admission.handshake_limiter.HANDSHAKE_WAIT", 0.05)
    async with running_node(claims_at_once=1) as node, RawClient(node.url) as client:
        handshake_limiter: HandshakeLimiter = node.gateway.node._handshake_limiter
        await handshake_limiter.enter(returning=True)
        await client.send({"type": "hello", "principal": "alice"})
        error = await client.expect("error")
        assert error["code"] == "try_later"
        assert error["message"].startswith("claims_at_once: ")
        assert error["retry_after"] > 0
        assert 'gateway_limits_exceeded_total{limit="claims_at_once"} 1.0' in node.gateway.metrics.render().decode()
        assert await client.closed() == 4101
        handshake_limiter.leave()
        async with RawClient(node.url) as later:
            assert (await later.hello())["outcome"] == "created"


async def test_claims_are_paced_for_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """By how much is a matter of ``tests/unit/app/test_storms.py``."""
    monkeypatch.setattr("gateway.app.admission.handshake_limiter.HANDSHAKE_WAIT", 0.05)
    async with running_node(claim_rate=0.001) as node, RawClient(node.url) as first, RawClient(node.url) as second:
        assert (await first.hello("p1"))["outcome"] == "created"
        await second.send({"type": "hello", "principal": "p2"})
        error = await second.expect("error")
        assert error["code"] == "try_later"
        assert error["message"].startswith("claim_rate: ")
