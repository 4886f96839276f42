"""The console: who gets in, what its page may do, and where its session is worth something."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from gateway.adapters.admin.console import PAGE, SECURITY_HEADERS
from gateway.adapters.authentication import AnonymousAuthenticator
from gateway.adapters.memory.session_store import MemorySessionStore
from gateway.catalogue import log_events as events
from gateway.client import ConnectFailed, Forbidden, SessionRefused, Unauthenticated, connect
from gateway.client.session import Connecting
from gateway.core.pacing.failures import FORGIVEN
from gateway.core.policy.revocations import RevocationKind
from gateway.core.policy.system_roles import CONSOLE, CONSOLE_TOPICS
from gateway.core.types import SessionId
from gateway.core.wire.codec import SUBPROTOCOL
from gateway.core.wire.codes import TRY_LATER, UNAUTHENTICATED, Outcome
from gateway.local.proxy import FaultProxy
from gateway.ports import Credentials, Identity, SessionRecord
from gateway.settings.admin_tokens import new_token, tokens_line
from tests.integration.admin.support import Admins, Pair
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled, time_limit


def sign_in(pair: Pair, *urls: str, role: str = "viewer") -> Connecting:
    return connect(urls or pair.n1.admin, principal="console", secret=pair.admins.tokens[role])


# --- The page -------------------------------------------------------------------------------------------------------


async def test_the_page_is_served_with_everything_that_keeps_it_harmless(pair: Pair) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{pair.n1.admin}/console/") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/html"
        assert answer.charset == "utf-8"
        policy = answer.headers["Content-Security-Policy"]
        assert {name: value for name, value in SECURITY_HEADERS.items() if answer.headers[name] != value}.keys() == {
            "Content-Security-Policy"
        }
        [sources] = re.findall(r"connect-src ([^;]*)", policy)
        nodes = (pair.n1.admin, pair.n2.admin)
        assert set(sources.split()) == {"'self'", *nodes, *(each.replace("http", "ws") for each in nodes)}
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert "Set-Cookie" not in answer.headers


async def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)
    sources = [path for path in PAGE.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"}]
    assert len(sources) > 10
    for path in sources:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]{2,}/", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path
        )


async def test_parts_are_kept_and_asked_for_again(pair: Pair) -> None:
    async with aiohttp.ClientSession() as http:
        for part in ("main.js", "client/index.js", "views/overview.js", "console.css", "icon.svg"):
            async with http.get(f"{pair.n1.admin}/console/{part}") as answer:
                assert answer.status == 200
                assert answer.headers["Cache-Control"] == "no-cache"
                tag = answer.headers["ETag"]
            async with http.get(f"{pair.n1.admin}/console/{part}", headers={"If-None-Match": tag}) as again:
                assert again.status == 304
                assert await again.read() == b""


@pytest.mark.parametrize("short", ["", "/", "/console"])
async def test_the_short_address_leads_to_the_page(pair: Pair, short: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(pair.n1.admin + short, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (308, "/console/")


@pytest.mark.parametrize("path", ["nothing.js", "..%2Fserver.py", "client/..%2F..%2Fserver.py", "client", "%00"])
async def test_no_path_leads_out_of_the_page(pair: Pair, path: str) -> None:
    url = URL(f"{pair.n1.admin}/console/{path}", encoded=True)
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert answer.status == 404


async def test_the_page_is_not_served_under_a_strange_name(pair: Pair) -> None:
    """A page elsewhere that has its name resolve to this node must not get to talk to it as its own."""
    said = {"Host": "evil.example"}
    async with aiohttp.ClientSession() as http, http.get(f"{pair.n1.admin}/console/", headers=said) as answer:
        assert answer.status == 421


# --- Signing in -----------------------------------------------------------------------------------------------------


async def test_an_administrator_gets_a_session_that_may_see_the_system_and_all_topics(pair: Pair) -> None:
    async with sign_in(pair) as console, connect(pair.n2.url, principal="alice") as alice:
        assert console.principal == "admin:the-viewer"
        states = await console.subscribe("$gateway/nodes/*")
        async with time_limit(10):
            update = await anext(states)
        assert update.topic == "$gateway/nodes/n1"
        await alice.publish("prices/ACME", 1)
        prices = await console.subscribe("prices/**")
        async with time_limit(10):
            assert (await anext(prices)).value == 1


async def test_nobody_else_may_see_the_system_or_write_there(pair: Pair) -> None:
    async with connect(pair.n1.url, principal="admin:the-viewer") as alice:
        with pytest.raises(Forbidden):
            await alice.subscribe("$gateway/nodes/*")
        with pytest.raises(Forbidden):
            await alice.publish("$gateway/nodes/n1", {"node": "n1", "state": "expired"})
    async with sign_in(pair) as console:
        with pytest.raises(Forbidden):
            await console.publish("$gateway/nodes/n1", {"node": "n1", "state": "expired"})
        with pytest.raises(Forbidden):
            await console.publish("prices/ACME", 1)
        with pytest.raises(Forbidden):
            await console.set_properties({"team": "fx"})


@pytest.mark.parametrize("secret", [None, "", "gwadm_wrong", "x" * 10_000])
async def test_without_a_token_there_is_no_session(pair: Pair, secret: str | None) -> None:
    with pytest.raises(Unauthenticated):
        await connect(pair.n1.admin, principal="console", secret=secret)


async def test_who_fails_too_often_is_told_to_wait_and_fills_no_log_and_locks_nobody_out(pair: Pair) -> None:
    """As at the API, and counted together with what fails there."""

    async def wrong() -> tuple[str, float, int | None]:
        async with RawClient(f"{pair.n1.admin}/v1/connect") as client:
            await client.send({"type": "hello", "principal": "x", "secret": "gwadm_wrong"})
            error = await client.expect("error")
            return error["code"], error.get("retry_after", 0.0), await client.closed()

    answer = await pair.asker.ask(
        pair.n1, "GET", "/v1/nodes", role=None, headers={"Authorization": "Bearer gwadm_wrong"}
    )
    assert answer.status == 401
    for _ in range(FORGIVEN - 1):
        assert await wrong() == ("unauthenticated", 0.0, UNAUTHENTICATED.code)
    logged = len(pair.n1.log.of(events.AUTHENTICATION_REFUSED))
    for _ in range(FORGIVEN):
        code, retry_after, closed = await wrong()
        assert (code, closed) == ("try_later", TRY_LATER.code)
        assert retry_after > 0
    answer = await pair.asker.ask(
        pair.n1, "GET", "/v1/nodes", role=None, headers={"Authorization": "Bearer gwadm_wrong"}
    )
    assert answer.status == 429
    assert len(pair.n1.log.of(events.AUTHENTICATION_REFUSED)) == logged == FORGIVEN - 1
    async with sign_in(pair) as session:
        assert session.principal == "admin:the-viewer"


async def test_where_administration_is_off_there_is_no_console() -> None:
    async with running_node() as node:
        with pytest.raises(Unauthenticated):
            await connect(node.admin, principal="console", secret="whatever")


async def test_no_authenticator_of_clients_can_make_a_console(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def generous(_self: AnonymousAuthenticator, credentials: Credentials) -> Identity:
        return Identity(principal=credentials.principal, roles=frozenset({CONSOLE, CONSOLE_TOPICS, "trader"}))

    monkeypatch.setattr(AnonymousAuthenticator, "authenticate", generous)
    async with connect(pair.n1.url, principal="mallory") as mallory:
        session = next(each for each in pair.n1.gateway.node.sessions if each.id == mallory.id)
        assert session.roles == {"trader"}
        with pytest.raises(Forbidden):
            await mallory.subscribe("$gateway/**")


# --- The upgrade ----------------------------------------------------------------------------------------------------


async def upgrade(node: TestNode, path: str = "/v1/connect", **headers: str) -> int:
    said = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": SUBPROTOCOL,
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as http,
        http.get(node.admin + path, headers={name: value for name, value in said.items() if value}) as answer,
    ):
        return answer.status


async def test_other_pages_cannot_connect(pair: Pair) -> None:
    assert await upgrade(pair.n1, Origin="https://evil.example") == 403
    assert await upgrade(pair.n1, Origin="null") == 403
    assert await upgrade(pair.n1, Host="evil.example") == 421


async def test_what_is_no_upgrade_of_this_protocol_is_refused(pair: Pair) -> None:
    assert await upgrade(pair.n1, Upgrade="") == 426
    assert await upgrade(pair.n1, Sec_WebSocket_Protocol="other.v1") == 400
    assert await upgrade(pair.n1, path="/v1/connect?token=secret") == 400


async def test_who_drains_a_node_looks_on_from_there_until_it_stops(pair: Pair) -> None:
    node = pair.n1.gateway.node
    async with connect([pair.n1.url, pair.n2.url], principal="alice") as alice:
        console = await sign_in(pair)
        node.begin_drain()
        await eventually(lambda: alice.node == "n2")
        await asyncio.wait_for(node.drain(), scaled(10))
        assert console.state == "connected"
        assert await upgrade(pair.n1) == 503, "a node that stops takes no further one"
        await pair.n1.gateway.close()
        record = await pair.n2.gateway.node._context.grid.sessions.find(SessionId(console.id))
        assert record is not None
        assert not record.connected, "its window runs, so that nothing of it stays"
        await console.close(timeout=0.1)


async def test_a_node_that_drains_for_a_while_takes_consoles(pair: Pair) -> None:
    pair.n1.gateway.node.begin_drain()
    async with sign_in(pair) as console:
        _held = await console.subscribe("$gateway/nodes/*")
        await pair.n1.gateway.node.undrain()
        assert console.state == "connected"


# --- Its session ----------------------------------------------------------------------------------------------------


async def test_a_cut_connection_costs_a_console_nothing(pair: Pair) -> None:
    async with FaultProxy("127.0.0.1", pair.n1.gateway.admin_port) as proxy:
        console = await sign_in(pair, f"ws://127.0.0.1:{proxy.port}")
        _held = await console.subscribe("$gateway/nodes/*")
        proxy.cut()
        async with time_limit(10):
            recovery = await anext(console.recoveries())
        assert recovery.outcome is Outcome.REATTACHED
        await console.close()


async def test_a_console_survives_its_node_where_another_admin_port_is_reached(pair: Pair) -> None:
    async with sign_in(pair, pair.n2.admin, pair.n1.admin) as console:
        states = await console.subscribe("$gateway/nodes/*")
        await pair.n2.gateway.close()
        async with time_limit(10):
            recovery = await anext(console.recoveries())
            assert (recovery.outcome, recovery.node) == (Outcome.FAILED_OVER, "n1")
            async for update in states:
                if update.topic == "$gateway/nodes/n1" and not update.snapshot:
                    break


@pytest.mark.parametrize("outside", ["n1", "n2"])
async def test_its_token_is_worth_nothing_at_the_client_port(pair: Pair, outside: str) -> None:
    """Neither at the node that holds the session, nor at one that would claim it."""
    ports = {"n1": pair.n1.gateway, "n2": pair.n2.gateway}
    async with FaultProxy("127.0.0.1", pair.n1.gateway.admin_port) as proxy:
        stolen = await sign_in(pair, f"ws://127.0.0.1:{proxy.port}")
        # The same client, led to another port.
        proxy._target = ("127.0.0.1", ports[outside].port)
        proxy.cut()
        await stolen.wait_closed()
        assert isinstance(stolen.closed_reason, SessionRefused)
        assert str(stolen.closed_reason.code) == "session_unknown"
        # If it was claimed, it is on the clock and not with that node for ever.
        await eventually(
            lambda: all(
                not each.connected
                for node in ports.values()
                for each in node.node.sessions
                if each.principal.startswith("admin:")
            )
        )


@pytest.mark.parametrize("inside", ["n1", "n2"])
async def test_the_token_of_anybody_else_is_worth_nothing_at_the_admin_port(pair: Pair, inside: str) -> None:
    """There, neither the limits nor the line for those who come back would hold for it."""
    nodes = {"n1": pair.n1.gateway, "n2": pair.n2.gateway}
    async with FaultProxy("127.0.0.1", pair.n1.gateway.port) as proxy:
        strayed = await connect(f"ws://127.0.0.1:{proxy.port}", principal="alice")
        proxy._target = ("127.0.0.1", nodes[inside].admin_port)
        proxy.cut()
        async with time_limit(10):
            await strayed.wait_closed()
        assert isinstance(strayed.closed_reason, SessionRefused)
        assert str(strayed.closed_reason.code) == "session_unknown"


async def test_revoking_an_administrator_closes_the_console(pair: Pair) -> None:
    console = await sign_in(pair)
    await pair.n2.gateway.node.revocations.revoke(RevocationKind.CREDENTIAL, "admin:the-viewer")
    async with time_limit(10):
        await console.wait_closed()
    assert isinstance(console.closed_reason, SessionRefused)


# --- Rights that change ---------------------------------------------------------------------------------------------


def give(pair: Pair, role: str, token: str) -> None:
    """Write other roles, or another token, for the viewer into the file of administrators."""
    lines = {f"the-{each}": (each, known) for each, known in pair.admins.tokens.items()} | {"the-viewer": (role, token)}
    text = "\n".join(tokens_line(name, frozenset({role}), token) for name, (role, token) in lines.items())
    pair.admins.file.write_text(text)


async def test_a_token_that_is_replaced_ends_the_sessions_it_opened(pair: Pair) -> None:
    console, other = await sign_in(pair), await sign_in(pair, role="operator")
    give(pair, "viewer", new_token())
    pair.n1.gateway.reload()
    async with time_limit(10):
        await console.wait_closed()
    assert isinstance(console.closed_reason, SessionRefused)
    assert str(console.closed_reason.code) == "revoked"
    assert other.state == "connected", "nobody else is concerned"
    await other.close()
    with pytest.raises(Unauthenticated):
        await sign_in(pair)


async def test_rights_that_do_not_concern_the_session_leave_it_alone(pair: Pair) -> None:
    async with sign_in(pair) as console:
        give(pair, "operator", pair.admins.tokens["viewer"])
        pair.n1.gateway.reload()
        states = await console.subscribe("$gateway/nodes/*")
        async with time_limit(10):
            await anext(states)
        assert console.state == "connected"


async def until_nothing_is_left_of(pair: Pair, session: str) -> None:
    """Wait until no node holds a session and the grid does not know it."""
    nodes, grid = (pair.n1.gateway.node, pair.n2.gateway.node), pair.n2.gateway.node._context.grid
    async with time_limit(10):
        while (  # noqa: ASYNC110 - a grid is asked, it does not tell
            any(each.id == session for node in nodes for each in node.sessions)
            or await grid.sessions.find(SessionId(session)) is not None
        ):
            await asyncio.sleep(0.005)


async def test_rights_that_go_while_the_session_is_written_make_no_session(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the review could not find it yet, and it stayed with the rights that were gone."""
    create = MemorySessionStore.create
    written: list[str] = []

    async def late(self: MemorySessionStore, record: SessionRecord) -> None:
        await create(self, record)
        written.append(record.id)
        give(pair, "nobody", pair.admins.tokens["viewer"])
        pair.n1.gateway.reload()

    monkeypatch.setattr(MemorySessionStore, "create", late)
    with pytest.raises(ConnectFailed, match="revoked"):
        await sign_in(pair)
    await until_nothing_is_left_of(pair, written[0])


@pytest.mark.parametrize("at", ["n1", "n2"])
async def test_rights_that_went_while_it_was_away_are_gone_on_every_rung(pair: Pair, at: str) -> None:
    """No node has reviewed the session: it is the resume that has to tell, at its node and at another one."""
    nodes = {"n1": pair.n1.gateway, "n2": pair.n2.gateway}
    async with FaultProxy("127.0.0.1", pair.n1.gateway.admin_port) as proxy:
        console = await sign_in(pair, f"ws://127.0.0.1:{proxy.port}")
        give(pair, "nobody", pair.admins.tokens["viewer"])
        tokens = nodes[at]._admin_tokens
        assert tokens is not None
        tokens.reload()
        proxy._target = ("127.0.0.1", nodes[at].admin_port)
        proxy.cut()
        async with time_limit(10):
            await console.wait_closed()
        assert isinstance(console.closed_reason, SessionRefused)
        assert str(console.closed_reason.code) == "revoked"
        await until_nothing_is_left_of(pair, console.id)


async def test_a_policy_takes_the_topics_away(tmp_path: Path) -> None:
    admins, policy = Admins.make(tmp_path), tmp_path / "policy.toml"
    policy.write_text('[roles.viewer]\nadmin = ["nodes:read", "topics:read"]\n')
    async with running_node(admin_tokens_file=admins.file, policy=policy) as node:
        console = await connect(node.admin, principal="console", secret=admins.tokens["viewer"])
        _held = await console.subscribe("prices/**")
        policy.write_text('[roles.viewer]\nadmin = ["nodes:read"]\n')
        node.gateway.reload()
        async with time_limit(10):
            await console.wait_closed()
        async with connect(node.admin, principal="console", secret=admins.tokens["viewer"]) as again:
            await again.subscribe("$gateway/nodes/*")
            with pytest.raises(Forbidden):
                await again.subscribe("prices/**")
