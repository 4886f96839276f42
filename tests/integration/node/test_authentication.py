"""Clients that authenticate by tokens, by a callback and by several ways, against whole nodes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.adapters.authentication import HashParameters, hash_secret, users_line
from gateway.catalogue import log_events as events
from gateway.client import ConnectFailed, Unauthenticated, connect
from gateway.core.types import SessionId
from gateway.settings import CallbackUsers, ChainedUsers, JwtUsers, StaticUsers
from tests.support.clock import eventually
from tests.support.issuers import AUDIENCE, ISSUER, HttpStandIn, Provider, jwk, token
from tests.support.nodes import running_node
from tests.support.times import scaled

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "authenticate.md"


def fresh(number: int = 1, *, life: float = 300.0, **changes: Any) -> str:
    """A token of now."""
    now = time.time()
    return token("ES256", number, **({"iat": now, "exp": now + life} | changes))


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider(jwk("ES256")) as running:
        yield running


@pytest.fixture
def jwt_file(tmp_path: Path, provider: Provider) -> Path:
    file = tmp_path / "jwt.toml"
    file.write_text(
        f"""
        issuer = "{ISSUER}"
        audience = ["{AUDIENCE}"]
        algorithms = ["ES256"]
        jwks_url = "{provider.url}/keys"
        roles_claim = "realm_access.roles"
        properties = {{ team = "team" }}
        """,
        "utf-8",
    )
    return file


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    made = users_line("reports", hash_secret("wonderland", HashParameters(2, 1, 1)), ["reader"], {"team": "ops"})
    file.write_text(made + "\n", "utf-8")
    return file


async def test_a_token_opens_a_session_with_roles_and_properties(jwt_file: Path) -> None:
    async with running_node(auth=JwtUsers(jwt_file)) as node, connect(node.url, "", fresh()) as session:
        assert session.principal == "alice"
        assert session.properties["$principal.team"] == "fx"
        held = node.gateway.node.sessions.get(SessionId(session.id))
        assert held is not None
        assert held.roles == {"trader", "auditor"}
        assert held.credential == "token-1"
        assert held.credential_expires is not None
        # What is vouched for cannot be changed by the client.
        with pytest.raises(Exception, match="the server's"):
            await session.set_properties({"$principal.team": "rates"})


async def test_a_bad_token_is_refused_and_only_the_log_says_why(jwt_file: Path) -> None:
    async with running_node(auth=JwtUsers(jwt_file)) as node:
        with pytest.raises(Unauthenticated) as caught:
            await connect(node.url, "", fresh(life=-100))

        assert "expired" not in str(caught.value)
        (told,) = node.log.of(events.AUTHENTICATION_REFUSED)
        assert told["reason"] == "the token has expired"


async def test_a_rotation_at_the_provider_is_followed_while_clients_connect(jwt_file: Path, provider: Provider) -> None:
    async with running_node(auth=JwtUsers(jwt_file)) as node:
        async with connect(node.url, "", fresh()):
            provider.keys = [jwk("ES256", 2)]
            node.gateway.reload()
            await eventually(lambda: len(node.log.of(events.ISSUER_KEYS_FETCHED)) == 2)
        async with connect(node.url, "", fresh(2)) as session:
            assert session.principal == "alice"


async def test_clients_come_again_while_it_cannot_be_told_who_they_are(jwt_file: Path, provider: Provider) -> None:
    await provider.stop()
    async with running_node(auth=JwtUsers(jwt_file)) as node:
        with pytest.raises(ConnectFailed) as caught:
            await connect(node.url, "", fresh(), connect_timeout=scaled(0.5))
        assert caught.value.retryable
        assert node.log.of(events.AUTHENTICATION_UNAVAILABLE)

        async with provider, connect(node.url, "", fresh()) as session:
            assert session.principal == "alice"


async def test_several_ways_one_after_the_other(jwt_file: Path, users_file: Path, tmp_path: Path) -> None:
    async def who(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"principal": "guest"}, status=200 if asked["secret"] == "key of a guest" else 401)

    async with HttpStandIn(who) as service:
        callback = tmp_path / "callback.toml"
        callback.write_text(f'url = "{service.url}/who"', "utf-8")
        chain = ChainedUsers((StaticUsers(users_file), JwtUsers(jwt_file), CallbackUsers(callback)))
        async with running_node(auth=chain) as node:
            for principal, secret, expected in (
                ("reports", "wonderland", "reports"),
                ("", fresh(), "alice"),
                ("x", "key of a guest", "guest"),
            ):
                async with connect(node.url, principal, secret) as session:
                    assert session.principal == expected
            before = service.requests
            for principal, secret in (("reports", "key of a guest"), ("", fresh(life=-100))):
                with pytest.raises(Unauthenticated):
                    await connect(node.url, principal, secret)
            assert service.requests == before, "a definite no is not passed on"
            with pytest.raises(Unauthenticated):
                await connect(node.url, "nobody", "knows this")
            node.gateway.reload()
            assert node.log.of(events.USERS_RELOADED) == [{"users": 1}]


async def test_the_programs_of_the_how_to_page_do_what_it_says(jwt_file: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, HOW_TO.name, "exec"), page)
    greet, watch, service = page["greet"], page["watch"], page["app"]
    runner = web.AppRunner(service, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    callback = tmp_path / "callback.toml"
    callback.write_text(f'url = "http://127.0.0.1:{runner.addresses[0][1]}/who"', "utf-8")
    try:
        async with running_node(auth=ChainedUsers((JwtUsers(jwt_file), CallbackUsers(callback)))) as node:
            assert await greet(node.url, fresh()) == "alice of team fx"
            asked = asyncio.Event()

            async def fetch_token() -> str:
                asked.set()
                return fresh()

            watching = asyncio.create_task(watch(node.url, fetch_token))
            await eventually(lambda: node.gateway.node.sessions.connected() == 1)
            assert asked.is_set()
            watching.cancel()
            await asyncio.wait([watching])
            async with connect(node.url, "", "k-7f3a") as session:
                assert (session.principal, session.properties["$principal.team"]) == ("reports", "fx")
            with pytest.raises(Unauthenticated):
                await connect(node.url, "", "k-0000")
    finally:
        await runner.cleanup()
