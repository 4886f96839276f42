"""Protocol 5.9 packet by packet: the notice, the refresh, the end, and the way back, on every rung."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import log_events as events
from gateway.core.policy.revocations import RevocationKind
from gateway.core.types import SessionId
from gateway.ports import GridState
from gateway.settings import CallbackUsers, ChainedUsers, JwtUsers
from tests.support.clock import eventually
from tests.support.issuers import AUDIENCE, ISSUER, SECRET, HttpStandIn, token
from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import RawClient

LONG, SHORT = 300.0, 0.4
"""Seconds that tokens live: longer than any test, and soon over."""


def fresh(life: float = LONG, **changes: Any) -> str:
    """A token of now."""
    now = time.time()
    return token("HS256", **({"iat": now - 1, "exp": now + life} | changes))


class Cluster:
    """Two nodes over one grid, whose clients show tokens or the key ``away``, of which nobody can tell who has it."""

    def __init__(self, n1: TestNode, n2: TestNode, memory: MemoryGridServer, stack: AsyncExitStack) -> None:
        self.n1, self.n2, self.memory, self._stack = n1, n2, memory, stack

    async def opened(self, node: TestNode, secret: str) -> tuple[RawClient, dict[str, Any]]:
        """Open a session."""
        client = await self._stack.enter_async_context(RawClient(node.url))
        await client.send({"type": "hello", "secret": secret})
        welcome = await client.expect("welcome")
        await client.send({"type": "ack", "received": 0})
        return client, welcome

    async def resumed(
        self, node: TestNode, welcome: dict[str, Any], attempt: int, **fields: Any
    ) -> tuple[RawClient, dict[str, Any]]:
        """Resume, and return the welcome or the error."""
        client = await self._stack.enter_async_context(RawClient(node.url))
        numbers = {"attempt": attempt, "received": 0, "oldest": 1}
        await client.send({"type": "resume", "token": welcome["token"], **(numbers | fields)})
        while True:
            packet = await client.receive()
            if packet["type"] in {"welcome", "error"}:
                return client, packet

    def held(self, node: TestNode, session: str) -> Any:
        found = node.gateway.node.sessions.get(SessionId(session))
        assert found is not None
        return found

    def stored(self, session: str) -> Any:
        return self.memory.snapshot().sessions.find(SessionId(session))


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async def no_answer(_request: web.Request) -> web.Response:
        return web.Response(status=503)

    (tmp_path / "secret").write_text(SECRET, "utf-8")
    (tmp_path / "jwt.toml").write_text(
        f'issuer = "{ISSUER}"\naudience = ["{AUDIENCE}"]\nalgorithms = ["HS256"]\nsecret_file = "secret"\n'
        'leeway = 0\nroles_claim = "realm_access.roles"\nproperties = { team = "team" }\n',
        "utf-8",
    )
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(HttpStandIn(no_answer))
        (tmp_path / "http.toml").write_text(f'url = "{service.url}"', "utf-8")
        auth = ChainedUsers((JwtUsers(tmp_path / "jwt.toml"), CallbackUsers(tmp_path / "http.toml")))
        memory = MemoryGridServer(now=time.monotonic)

        async def started(**settings: Any) -> Cluster:
            nodes = [
                await stack.enter_async_context(running_node(name, memory=memory, auth=auth, **settings))
                for name in ("n1", "n2")
            ]
            return Cluster(nodes[0], nodes[1], memory, stack)

        yield started


async def ask(client: RawClient, number: int, kind: str, **fields: Any) -> dict[str, Any]:
    await client.send({"id": number, "type": kind, "request": number, **fields})
    return await client.expect("reply", where=lambda reply: reply["request"] == number)


@pytest.mark.promise("P4")
async def test_a_refresh_replaces_all_that_credentials_gave_before_it_is_answered(start: Start) -> None:
    """P4: what is promised is in the grid, and another node finds it there."""
    cluster = await start()
    client, welcome = await cluster.opened(cluster.n1, fresh(4.0))
    try:
        notice = await client.expect("notice")
        assert notice["code"] == "credentials_expiring"

        new = fresh(2 * LONG, jti="token-2", team="rates", realm_access={"roles": ["auditor"]})
        assert "error" not in await ask(client, 1, "authenticate", secret=new, principal="alice")

        for record in (cluster.held(cluster.n1, welcome["session"]), cluster.stored(welcome["session"])):
            assert record.roles == {"auditor"}
            assert record.credential == "token-2"
            assert record.principal_properties == {"team": "rates"}
            assert record.credential_expires == pytest.approx(time.time() + 2 * LONG, abs=30)
    finally:
        await client.cut()

    client, answer = await cluster.resumed(cluster.n2, welcome, 1)
    assert (answer["outcome"], answer["properties"]["$principal.team"]) == ("failed_over", "rates")
    assert cluster.held(cluster.n2, welcome["session"]).roles == {"auditor"}
    await client.cut()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sub": "mallory"}, "unauthenticated"),
        ({"life": -100.0}, "unauthenticated"),
        ({"aud": "somebody-else"}, "authentication_unavailable"),
    ],
)
async def test_a_refresh_that_fails_changes_nothing_and_holds_nothing_back(
    start: Start, changes: dict[str, Any], code: str
) -> None:
    cluster = await start()
    client, welcome = await cluster.opened(cluster.n1, fresh())
    before = cluster.stored(welcome["session"])

    await client.send(
        {"id": 1, "type": "authenticate", "request": 1, "secret": fresh(**changes)},
        {"id": 2, "type": "publish", "request": 2, "topic": "a", "value": 1},
    )
    refused = await client.expect("reply", where=lambda reply: reply["request"] == 1)
    published = await client.expect("reply", where=lambda reply: reply["request"] == 2)

    assert refused["error"]["code"] == code
    assert ("retry_after" in refused["error"]) is (code == "authentication_unavailable")
    assert published["version"] == 1
    # The refusal is not acknowledged yet, and still nothing else is refused for it.
    assert (await ask(client, 3, "publish", topic="a", value=2))["version"] == 2
    after = cluster.stored(welcome["session"])
    assert (after.roles, after.credential, after.credential_expires) == (
        before.roles,
        before.credential,
        before.credential_expires,
    )
    await client.cut()


async def test_a_request_without_a_secret_only_gets_a_reply(start: Start) -> None:
    cluster = await start()
    client, _ = await cluster.opened(cluster.n1, fresh())

    assert (await ask(client, 1, "authenticate"))["error"]["code"] == "bad_request"
    assert "error" not in await ask(client, 2, "authenticate", secret=fresh())
    await client.cut()


@pytest.mark.parametrize("rung", ["reattached", "failed_over"])
async def test_the_end_closes_and_only_fresh_credentials_bring_the_session_back(start: Start, rung: str) -> None:
    cluster = await start(credential_notice=0.2)
    client, welcome = await cluster.opened(cluster.n1, fresh(SHORT))

    assert (await client.expect("notice"))["code"] == "credentials_expiring"
    assert (await client.expect("error"))["code"] == "credentials_expired"
    assert await client.closed() == 4006
    assert cluster.n1.log.of(events.CREDENTIALS_EXPIRED) == [{"session": welcome["session"]}]
    node = cluster.n1 if rung == "reattached" else cluster.n2

    client, answer = await cluster.resumed(node, welcome, 1)
    assert answer["code"] == "credentials_expired"
    assert await client.closed() == 4202
    client, answer = await cluster.resumed(node, welcome, 2, secret=fresh(sub="mallory"))
    assert answer["code"] == "unauthenticated"
    assert await client.closed() == 4201
    client, answer = await cluster.resumed(node, welcome, 3, secret=fresh(-100.0))
    assert answer["code"] == "unauthenticated"
    client, answer = await cluster.resumed(node, welcome, 4, secret="away")
    assert answer["code"] == "authentication_unavailable"
    assert await client.closed() == 4104

    client, answer = await cluster.resumed(node, welcome, 5, secret=fresh(jti="token-2"), received=1)
    assert answer["outcome"] == rung
    assert answer["session"] == welcome["session"]
    assert cluster.stored(welcome["session"]).credential == "token-2"
    await client.send({"type": "ack", "received": 1 if rung == "reattached" else 0})
    assert "version" in await ask(client, 1, "publish", topic="a", value=1)
    await client.cut()


async def test_credentials_that_end_while_the_client_is_away_are_refused_when_it_comes(start: Start) -> None:
    cluster = await start()
    client, welcome = await cluster.opened(cluster.n1, fresh(SHORT))
    await client.cut()
    stored = cluster.stored(welcome["session"])
    await eventually(lambda: time.time() > stored.credential_expires)

    for node in (cluster.n1, cluster.n2):
        client, answer = await cluster.resumed(node, welcome, 1)
        assert answer["code"] == "credentials_expired"
        await client.cut()
    # A refused attempt took nothing: the session is where it was.
    assert cluster.stored(welcome["session"]).owner == stored.owner


async def test_an_unreachable_grid_does_not_let_ended_credentials_in_and_keeps_nobody_out(start: Start) -> None:
    cluster = await start(credential_notice=0.0)
    client, welcome = await cluster.opened(cluster.n1, fresh(SHORT))
    cluster.memory.go_away()
    await eventually(lambda: cluster.n1.gateway.node._context.grid.state is not GridState.UP)
    assert await client.closed() == 4006

    client, answer = await cluster.resumed(cluster.n1, welcome, 1)
    assert answer["code"] == "credentials_expired"
    client, answer = await cluster.resumed(cluster.n1, welcome, 2, secret=fresh(sub="mallory"))
    assert answer["code"] == "unauthenticated"
    client, answer = await cluster.resumed(cluster.n1, welcome, 3, secret=fresh(jti="token-2"))
    assert answer["outcome"] == "reattached"

    cluster.memory.come_back()
    await eventually(lambda: cluster.stored(welcome["session"]).credential == "token-2")
    await client.cut()


async def test_a_refresh_while_the_grid_is_unreachable_is_asked_again(start: Start) -> None:
    cluster = await start()
    client, _ = await cluster.opened(cluster.n1, fresh())
    cluster.memory.go_away()
    await eventually(lambda: cluster.n1.gateway.node._context.grid.state is not GridState.UP)

    reply = await ask(client, 1, "authenticate", secret=fresh())
    assert reply["error"]["code"] == "grid_unavailable"

    cluster.memory.come_back()
    await eventually(lambda: cluster.n1.gateway.node._context.grid.state is GridState.UP)
    await client.send({"type": "ack", "received": reply["id"]})
    assert "error" not in await ask(client, 2, "authenticate", secret=fresh())
    await client.cut()


async def test_revoked_credentials_refresh_nothing(start: Start) -> None:
    cluster = await start()
    client, welcome = await cluster.opened(cluster.n1, fresh())
    await cluster.n1.gateway.node.revocations.revoke(RevocationKind.CREDENTIAL, "token-2")

    assert (await ask(client, 1, "authenticate", secret=fresh(jti="token-2")))["error"]["code"] == "revoked"
    await client.cut()
    client, answer = await cluster.resumed(cluster.n1, welcome, 1, secret=fresh(jti="token-2"))
    assert answer["code"] == "revoked"
    client, answer = await cluster.resumed(cluster.n1, welcome, 2, secret=fresh(jti="token-3"))
    assert answer["outcome"] == "reattached"
    await client.cut()


async def test_the_ends_of_many_sessions_come_by_one_timer(start: Start) -> None:
    """No task and no timer of its own for any session."""
    cluster = await start(credential_notice=0.0)
    clients = await asyncio.gather(*(cluster.opened(cluster.n1, fresh()) for _ in range(50)))
    tasks = {task.get_name() for task in asyncio.all_tasks()}
    for _, welcome in clients:
        held = cluster.held(cluster.n1, welcome["session"])
        held.credential_expires = time.time() + SHORT
        cluster.n1.gateway.node.sessions.refreshed(held)
    assert {task.get_name() for task in asyncio.all_tasks()} <= tasks

    assert await asyncio.gather(*(client.closed() for client, _ in clients)) == [4006] * 50


@pytest.mark.promise("P7")
async def test_a_resume_that_is_refused_just_after_a_lost_lease_leaves_the_session_on_the_clock(start: Start) -> None:
    """It was written again as one that is just coming back. Given back like that, it would stay for ever."""
    cluster = await start()
    client, welcome = await cluster.opened(cluster.n1, fresh())
    session = cluster.held(cluster.n1, welcome["session"])
    await client.cut()
    await eventually(lambda: session.on_clock)
    cluster.n1.gateway.node._store.lease_expired()
    assert cluster.n1.gateway.node._store.must_restore(session)
    _, error = await cluster.resumed(cluster.n1, welcome, 1, secret=fresh(sub="mallory"), principal="mallory")
    assert (error["type"], error["code"]) == ("error", "unauthenticated")
    await eventually(lambda: session.on_clock and not session.resuming.locked())
    assert not cluster.stored(welcome["session"]).connected
