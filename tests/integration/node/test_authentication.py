"""Clients that authenticate by tokens, by a callback and by several ways, against whole nodes."""

from __future__ import annotations

import json
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
from tests.support.issuers import AUDIENCE, ISSUER, HttpStandIn, Provider, jwk, signed, token
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled


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
    return jwt_settings(tmp_path, provider, algorithm="ES256")


def jwt_settings(tmp_path: Path, provider: Provider, *, algorithm: str) -> Path:
    file = tmp_path / "jwt.toml"
    file.write_text(
        f"""
        issuer = "{ISSUER}"
        audience = ["{AUDIENCE}"]
        algorithms = ["{algorithm}"]
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


async def test_a_file_of_keys_that_cannot_be_read_again_is_told_as_a_file(tmp_path: Path) -> None:
    keys, settings = tmp_path / "keys.json", tmp_path / "keys.toml"
    keys.write_text(json.dumps({"keys": [jwk("ES256")]}), "utf-8")
    settings.write_text(
        f'issuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nalgorithms = ["ES256"]\njwks_file = "{keys}"\n', "utf-8"
    )
    async with running_node(auth=JwtUsers(settings)) as node:
        keys.write_text("nonsense", "utf-8")
        node.gateway.reload()
        await eventually(lambda: len(node.log.of(events.ISSUER_FILE_KEPT)) == 1)
        assert node.log.of(events.ISSUER_KEYS_KEPT) == [], "that is for a provider that is asked again by itself"
        async with connect(node.url, "", fresh()) as session:
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


# --- Strange tokens ---------------------------------------------------------------------------------------------------

FAR = 253_402_300_799
"""Seconds since 1970 at the last second of the year 9999."""

ODD_CLAIMS: dict[str, str] = {
    "numbers beyond floats": '"exp": 1e400',
    "numbers below zero": '"exp": -1e400',
    "an end in the last second of all": f'"exp": {FAR}',
    "an end in milliseconds": '"exp": 1795249200000',
    "whole numbers without end": '"exp": ' + "9" * 400,
    "more digits than are read": '"exp": ' + "9" * 5000,
    "an end that is a text": '"exp": "tomorrow"',
    "an end that is true": '"exp": true',
    "an end that is a list": '"exp": [1]',
    "a beginning that is an object": '"nbf": {}',
    "half a character": '"sub": "a\\ud800"',
    "half a character in a property": '"team": "a\\udfff"',
    "half a character deep in a property": '"team": {"a": ["\\ud800"]}',
    "half a character in a name": '"team": {"\\ud800": 1}',
    "NUL": '"sub": "a\\u0000b"',
    "no text": '"sub": 7',
    "a principal that is an object": '"sub": {"name": "alice"}',
    "a principal of a system role": '"realm_access": {"roles": ["$console"]}',
    "roles that are numbers": '"realm_access": {"roles": [1]}',
    "roles that are no list": '"realm_access": {"roles": {"a": "b"}}',
    "a path through a text": '"realm_access": "roles"',
    "roles without end": '"realm_access": {"roles": ["' + '","'.join(f"r{n}" for n in range(1000)) + '"]}',
    "a property that is infinite": '"team": 1e400',
    "a property of many digits": '"team": ' + "9" * 300,
    "a property that is long": '"team": "' + "é" * 1024 + '"',
    "a property that is too long": '"team": "' + "x" * 5000 + '"',
    "a property that nests": '"team": ' + "[" * 30 + "]" * 30,
    "nesting without end": '"team": ' + "[" * 3000 + "]" * 3000,
    "an id that is a number": '"jti": 7',
    "an id that is empty": '"jti": ""',
    "an id with half a character": '"jti": "\\ud800"',
    "an audience that is an object": '"aud": {"gateway": 1}',
    "an audience of anything": '"aud": ["gateway", 7, null]',
    "no object": "",
}


@pytest.mark.parametrize("odd", ODD_CLAIMS.values(), ids=ODD_CLAIMS)
@pytest.mark.parametrize("principal", ["", "alice"], ids=["named by the token", "named by both"])
async def test_a_token_with_odd_claims_is_refused_or_harmless_and_never_a_bug(
    tmp_path: Path, odd: str, principal: str
) -> None:
    now = int(time.time())
    usual = {
        "iss": json.dumps(ISSUER),
        "aud": json.dumps(AUDIENCE),
        "sub": '"alice"',
        "exp": str(now + 300),
        "realm_access": '{"roles": ["trader"]}',
    }
    usual.pop(odd.partition(":")[0].strip('"'), None)
    payload = ", ".join([*(f'"{name}": {value}' for name, value in usual.items()), *([odd] if odd else [])])
    text = f"{{{payload}}}" if odd else "[]"
    secret = signed(b'{"alg": "RS256", "kid": "RS256-1"}', text.encode())
    async with (
        Provider(jwk("RS256")) as provider,
        running_node(auth=JwtUsers(jwt_settings(tmp_path, provider, algorithm="RS256"))) as node,
    ):
        async with RawClient(node.url) as client:
            await client.send({"type": "hello", "principal": principal, "secret": secret})
            answer = await client.receive()
        if answer["type"] == "error":
            assert answer["code"] == "unauthenticated", answer
            assert len(node.log.of(events.AUTHENTICATION_REFUSED)) == 1
        else:
            assert answer["type"] == "welcome", answer
            assert answer["principal"] == "alice"
        assert [event for event, _ in node.log.events if event.bug] == []
