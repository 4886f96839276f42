"""A selection lasts as long as one stream that asked for it: the common table, played against each client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.clients.driver import Driver
from tests.clients.selection_cases import CASES, Case, asked, without_keep
from tests.support.numbering import SESSION_PACKETS
from tests.support.scripted_server import Packet, Peer, ScriptedServer

KNOWS_KEEP = {"supports": ["keep"]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as running:
        yield running


async def open_session(server: ScriptedServer, client: Driver, **greeting: Any) -> Peer:
    opening = client.begin("connect", urls=[server.url], options={"principal": "alice"})
    peer = await server.connection()
    await peer.welcome(**greeting)
    await opening
    return peer


async def answered(peer: Peer, doing: asyncio.Future[Any], marker: asyncio.Future[Any]) -> list[Packet]:
    """Answer all requests until the marker, a publish that was asked for last; returns those before it."""
    requests: list[Packet] = []
    while True:
        packet = await peer.packet()
        if packet["type"] not in SESSION_PACKETS:
            continue
        await peer.reply(packet)
        if packet["type"] == "publish":
            await asyncio.gather(doing, marker)
            return requests
        requests.append(packet)


async def play(case: Case, server: ScriptedServer, client: Driver, **greeting: Any) -> list[list[str]]:
    """Take the steps of a case; returns what was asked for after each."""
    peer = await open_session(server, client, **greeting)
    found = []
    for action, selector, _ in case.steps:
        if action.startswith("+"):
            doing = client.begin("subscribe", selector=selector, name=action[1:])
        elif action.startswith("-"):
            doing = client.begin("closeStream", name=action[1:])
        else:
            doing = client.begin("unsubscribe", selector=selector)
        # The driver works its lines off in order, and requests go out in the order in which they were asked for.
        marker = client.begin("publish", topic="marker", value=None)
        found.append([asked(each) for each in await answered(peer, doing, marker)])
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_a_selection_lasts_as_long_as_one_stream(case: Case, server: ScriptedServer) -> None:
    async with Driver() as client:
        found = await play(case, server, client, **KNOWS_KEEP)
        assert found == [expected for _, _, expected in case.steps]
        assert set(await client.do("openStreams")) == case.open


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_a_server_that_does_not_know_keep_is_asked_again(case: Case, server: ScriptedServer) -> None:
    async with Driver() as client:
        found = await play(case, server, client)
        expected = [without_keep(expected) for _, _, expected in case.steps]
        assert [sorted(each) for each in found] == [sorted(each) for each in expected]
        assert [each[:1] for each in found] == [each[:1] for each in expected], "what ended is deselected first"
