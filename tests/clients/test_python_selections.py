"""The common table of what a client asks for when streams begin and end, played against the Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.client import Session, UpdateStream, connect
from tests.clients.selection_cases import CASES, Case, asked, without_keep
from tests.support.numbering import SESSION_PACKETS
from tests.support.scripted_server import Packet, Peer, ScriptedServer


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as running:
        yield running


async def requests_until_marker(peer: Peer) -> list[Packet]:
    """Answer all requests until the marker, a publish that was asked for last; returns those before it."""
    requests: list[Packet] = []
    while True:
        packet = await peer.packet()
        if packet["type"] not in SESSION_PACKETS:
            continue
        await peer.reply(packet)
        if packet["type"] == "publish":
            return requests
        requests.append(packet)


class Application:
    """Takes the steps of a case.

    Attributes:
        streams: by name, for as long as they are held.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.streams: dict[str, UpdateStream] = {}

    async def act(self, action: str, selector: str) -> None:
        if action.startswith("+"):
            self.streams[action[1:]] = await self.session.subscribe(selector)
        elif action.startswith("-"):
            self.streams[action[1:]].close()
        else:
            await self.session.unsubscribe(selector)

    @property
    def open(self) -> frozenset[str]:
        return frozenset(name for name, stream in self.streams.items() if not stream.closed)


async def play(case: Case, server: ScriptedServer, **greeting: Any) -> list[list[str]]:
    """Take the steps of a case; returns what was asked for after each."""
    opening = asyncio.ensure_future(_open(server.url))
    peer = await server.connection()
    await peer.welcome(**greeting)
    session = await opening
    application = Application(session)
    found = []
    for action, selector, _ in case.steps:
        acting = asyncio.create_task(application.act(action, selector))
        await asyncio.sleep(0)
        marking = asyncio.create_task(session.publish("marker", None))
        found.append([asked(each) for each in await requests_until_marker(peer)])
        await asyncio.gather(acting, marking)
    assert application.open == case.open
    await server.stop()
    await session.close(timeout=0)
    return found


async def _open(url: str) -> Session:
    return await connect(url, "alice")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_a_selection_lasts_as_long_as_one_stream(case: Case, server: ScriptedServer) -> None:
    found = await play(case, server, supports=["keep"])
    assert found == [expected for _, _, expected in case.steps]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_a_server_that_does_not_know_keep_is_asked_again(case: Case, server: ScriptedServer) -> None:
    found = await play(case, server)
    expected = [without_keep(expected) for _, _, expected in case.steps]
    assert [sorted(each) for each in found] == [sorted(each) for each in expected]
    assert [each[:1] for each in found] == [each[:1] for each in expected], "what ended is deselected first"
