"""The admin API on real processes behind HAProxy: moves arrive where they should, and dead nodes stop nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.client import Session, SessionEnded, connect
from gateway.local.stack import Stack
from tests.support.clock import eventually
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]


@asynccontextmanager
async def administrator(stack: Stack) -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody who has the stack's token."""
    headers = {"Authorization": f"Bearer {stack.admin_token_file.read_text().strip()}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        yield http


@pytest.mark.promise("P1")
async def test_a_session_goes_where_it_is_sent_and_outlives_whoever_it_left(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, lease=scaled(1.5), lease_renew=scaled(0.4)) as stack,
        administrator(stack) as http,
        await connect(stack.url, principal="alice") as session,
        await connect(stack.url, principal="feed") as feed,
    ):
        stream = await session.subscribe("prices/ACME")
        seen: list[Any] = []

        async def read() -> None:
            async for update in stream:
                seen.append(update.value)  # noqa: PERF401 - it is looked at while it grows

        async def publish() -> None:
            for number in range(100_000):
                await feed.publish("prices/ACME", number)

        reading, publishing = asyncio.create_task(read()), asyncio.create_task(publish())

        # To each node by its name, asked at any of them: HAProxy follows the hint that the go-away names.
        for target in (*stack.node_names, *stack.node_names):
            if session.node == target:
                continue
            before = len(seen)
            url = stack.admin_url(stack.node_names[0], f"/v1/sessions/{session.id}/move")
            assert await _moved(http, url, target) == {"session": session.id, "node": target}
            await _arrived(session, target)
            await eventually(partial(_longer, seen, before), message="updates go on")
        publishing.cancel()
        reading.cancel()
        assert seen == sorted(set(seen)), "an update came twice or went back"

        # Its node dies: what the grid holds is shown, and it can be closed all the same.
        owner = session.node
        survivor = next(name for name in stack.node_names if name != owner)
        away = await _held_by(stack, owner, http)
        await stack.kill_node(owner)
        url = stack.admin_url(survivor, f"/v1/sessions/{away.session.id}")
        async with http.get(url) as answer:
            shown = await answer.json()
        assert (answer.status, shown["principal"]) == (200, "doomed")
        async with http.delete(url) as answer:
            assert answer.status == 204
        with pytest.raises(SessionEnded):
            await away.ended()
        async with http.get(url) as answer:
            assert answer.status == 404, await answer.text()


async def _moved(http: aiohttp.ClientSession, url: str, node: str) -> Any:
    """Ask for a move until it is granted: a node hears that another one is ready when it next renews its lease."""
    async with time_limit(20):
        while True:
            async with http.post(url, json={"node": node}) as answer:
                told = await answer.json()
            if answer.status != 409:
                assert answer.status == 202, told
                return told


async def _arrived(session: Session, node: str) -> None:
    await eventually(lambda: session.node == node, message=f"the session is at {node}")


def _longer(seen: list[Any], before: int) -> bool:
    return len(seen) > before


class _Held:
    """A session at one node, which its client can reach by HAProxy alone."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def ended(self) -> None:
        """Ask for something until the session is known to be over."""
        async with time_limit(20):
            while True:
                await self.session.publish("doomed/alive", 1)


async def _held_by(stack: Stack, node: str, http: aiohttp.ClientSession) -> _Held:
    session = await connect(stack.url, principal="doomed")
    if session.node != node:
        url = stack.admin_url(stack.node_names[0], f"/v1/sessions/{session.id}/move")
        await _moved(http, url, node)
        await _arrived(session, node)
    return _Held(session)
