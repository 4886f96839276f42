"""A session opened by a provider's token: what the token gave survives the node, its end too (P1, protocol 5.9).

Real nodes, Redis and HAProxy; the keys of the provider come from a server that serves them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.adapters.redis.keys import Keys
from gateway.client import connect
from gateway.core.types import SessionId
from gateway.core.wire.codes import CREDENTIALS_EXPIRED, REFUSED, ErrorCode, Outcome
from tests.cluster.crowds import Figures
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.support.issuers import AUDIENCE, ISSUER, Provider, jwk, token
from tests.support.raw_client import RawClient
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1")]

KEYS: Final = Keys(PREFIX)
LIFE: Final = 300.0
SHORT: Final = scaled(1.5)
"""Seconds that tokens live: longer than the test, and soon over."""


def fresh(*, life: float = LIFE, **changes: Any) -> str:
    now = time.time()
    return token("ES256", **({"iat": now - 1, "exp": now + life} | changes))


async def test_roles_and_their_end_survive_the_node(tmp_path: Path, figures: Figures) -> None:
    async with Provider(jwk("ES256")) as provider:
        (tmp_path / "jwt.toml").write_text(
            f'issuer = "{ISSUER}"\naudience = ["{AUDIENCE}"]\nalgorithms = ["ES256"]\n'
            f'jwks_url = "{provider.url}/keys"\n'
            'leeway = 0\nroles_claim = "realm_access.roles"\nproperties = { team = "team" }\n',
            "utf-8",
        )
        # Who may select what is told by the role of the token: that it works is the proof that the role is there.
        (tmp_path / "policy.toml").write_text('[roles.trader]\nselect = ["prices/**"]\n', "utf-8")
        settings: dict[str, Any] = {
            "auth": f"jwt:{tmp_path}/jwt.toml",
            "policy": f"{tmp_path}/policy.toml",
            "backoff_initial": 0.05,
        }
        async with cluster(tmp_path, nodes=2, **settings) as stack, GridReader(stack.grid_url) as grid:
            expires = time.time() + LIFE
            async with connect(stack.url, "", fresh()) as session:
                stream = await session.subscribe("prices/**")
                killed = session.node
                await stack.kill_node(killed)
                recovery = await anext(aiter(session.recoveries()))

                assert recovery.outcome is Outcome.FAILED_OVER
                assert session.node != killed
                assert session.properties["$principal.team"] == "fx"
                assert not stream.closed
                await session.subscribe("prices/ACME")
                key = KEYS.session(SessionId(session.id))
                credential, ends = await grid.call("HMGET", key, "credential", "credential_expires")
                assert credential == "token-1"
                assert float(ends) == pytest.approx(expires, abs=60)
            await stack.start_node(killed)
            await stack.ready(killed)

            short = await opened(stack.node_url("n1"), fresh(life=SHORT))
            assert await short.raw.closed() == CREDENTIALS_EXPIRED.code
            await stack.kill_node("n1")
            ended = time.monotonic()
            # The end came with the session: no other node serves it by its token alone.
            refused = await resumed(stack.node_url("n2"), short.welcome, 1)
            assert refused.welcome["code"] == ErrorCode.CREDENTIALS_EXPIRED
            assert await refused.raw.closed() == REFUSED.code
            back = await resumed(stack.node_url("n2"), short.welcome, 2, secret=fresh(jti="token-2"))
            assert back.welcome["outcome"] == Outcome.FAILED_OVER
            figures(f"back with fresh credentials {time.monotonic() - ended:.2f} s after the node was killed")
            for each in (short, refused, back):
                await each.raw.cut()


class Talk:
    """A connection and the first packet of the server."""

    def __init__(self, raw: RawClient, welcome: dict[str, Any]) -> None:
        self.raw, self.welcome = raw, welcome


async def opened(url: str, secret: str) -> Talk:
    raw = RawClient(url)
    await raw.connect()
    await raw.send({"type": "hello", "secret": secret, "window": 30.0})
    talk = Talk(raw, await raw.expect("welcome"))
    await raw.send({"type": "ack", "received": 0})
    return talk


async def resumed(url: str, welcome: dict[str, Any], attempt: int, **fields: Any) -> Talk:
    raw = RawClient(url)
    await raw.connect()
    await raw.send(
        {"type": "resume", "token": welcome["token"], "attempt": attempt, "received": 0, "oldest": 1, **fields}
    )
    return Talk(raw, await raw.receive())
