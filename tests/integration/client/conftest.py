"""A scripted server, sessions at it, and the certainty that nothing of them is left over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol, TypeVar

import pytest

from gateway.client import Session, connect
from tests.support.scripted_server import Peer, ScriptedServer


@pytest.fixture(autouse=True)
async def nothing_left_over() -> AsyncIterator[None]:
    """Fail a test after which tasks of the client are still running, or which made the event loop complain."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    yield
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("gateway-client")]

    assert left == []
    assert complaints == []


@pytest.fixture
async def server(nothing_left_over: None) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as running:
        yield running


T = TypeVar("T")


async def first(iterator: AsyncIterator[T]) -> T:
    """Return the next value; unlike ``anext`` a coroutine, so that it can be a task."""
    return await anext(iterator)


class OpenSession(Protocol):
    def __call__(self, **arguments: Any) -> Awaitable[tuple[Session, Peer]]: ...


@pytest.fixture
async def opened(server: ScriptedServer) -> AsyncIterator[OpenSession]:
    """Open sessions whose first connection is greeted; they are abandoned at the end of the test."""
    sessions: list[Session] = []

    async def open_session(greeting: dict[str, Any] | None = None, **arguments: Any) -> tuple[Session, Peer]:
        opening = asyncio.ensure_future(_await(connect(arguments.pop("urls", server.url), "alice", **arguments)))
        peer = await server.connection()
        await peer.welcome(**(greeting or {}))
        session = await opening
        sessions.append(session)
        return session, peer

    yield open_session
    # Cut first, or each session would wait for its server to answer a close frame that nobody reads.
    await server.stop()
    for session in sessions:
        await session.close(timeout=0)


async def _await(connecting: Awaitable[Session]) -> Session:
    return await connecting
