"""Credentials that end, seen from the client: it fetches fresh ones, shows them in time, and goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import log_events as events
from gateway.client import ConnectFailed, RequestRefused, SessionRefused, Unauthenticated, connect
from gateway.core.client import credentials as pace
from gateway.core.wire.codes import Outcome
from gateway.settings import JwtUsers
from tests.integration.client.conftest import OpenSession
from tests.support.clock import eventually
from tests.support.issuers import AUDIENCE, ISSUER, SECRET, token
from tests.support.nodes import running_node
from tests.support.scripted_server import ScriptedServer
from tests.support.times import scaled

LIFE = scaled(3.0)
"""Seconds that tokens live: the notice comes at half of it, and the other half is for slow machines."""

EXPIRING = {"code": "credentials_expiring", "message": "soon"}


class Wallet:
    """An application's function that makes fresh secrets, ``fresh-1`` first; *failures* of its calls fail."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self.failures = failures

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise LookupError("the vault says: hunter2 is out of date")
        return f"fresh-{self.calls}"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "REFRESH_INITIAL", 0.01)
    monkeypatch.setattr(pace, "REFRESH_MAXIMUM", 0.02)


async def test_a_session_is_opened_with_a_fresh_secret(opened: OpenSession) -> None:
    _, peer = await opened(credentials=Wallet())

    assert (peer.first["principal"], peer.first["secret"]) == ("alice", "fresh-1")


async def test_each_attempt_asks_anew(server: ScriptedServer) -> None:
    async def run() -> Any:
        return await connect(server.url, "alice", credentials=Wallet())

    attempt = asyncio.create_task(run())
    first = await (await server.connection()).refuse("authentication_unavailable", "later", 4104, retry_after=0.01)
    peer = await server.connection()
    await peer.welcome()
    session = await attempt

    assert (first["secret"], peer.first["secret"]) == ("fresh-1", "fresh-2")
    await server.stop()
    await session.close(timeout=0)


async def test_the_notice_is_answered_over_the_same_connection(opened: OpenSession, server: ScriptedServer) -> None:
    wallet = Wallet()
    session, peer = await opened(credentials=wallet)
    await peer.send(peer.numbered("notice", **EXPIRING), peer.numbered("notice", **EXPIRING))

    shown = await peer.expect("authenticate")
    assert (shown["secret"], shown["principal"]) == ("fresh-2", "alice")
    await peer.reply(shown)

    assert (await anext(aiter(session.notices()))).code == "credentials_expiring"
    # The next notice, a token's life later, begins anew; two at once were one matter.
    await peer.send(peer.numbered("notice", **EXPIRING))
    assert (await peer.expect("authenticate"))["secret"] == "fresh-3"
    assert server.upgrades == 1


@pytest.mark.parametrize("code", ["authentication_unavailable", "unauthenticated", "internal"])
async def test_a_refresh_that_is_refused_is_tried_again_and_holds_nothing_back(opened: OpenSession, code: str) -> None:
    session, peer = await opened(credentials=Wallet())
    await peer.send(peer.numbered("notice", **EXPIRING))
    shown = await peer.expect("authenticate")
    publishing = asyncio.create_task(session.publish("a", 1))
    published = await peer.expect("publish")

    await peer.decline(shown, code, retry_after=5.0 if code == "authentication_unavailable" else None)
    await peer.reply(published)

    await publishing
    again = await peer.expect("authenticate")
    assert again["secret"] == "fresh-3"
    assert again["request"] > shown["request"]


async def test_an_application_that_fails_is_asked_again_and_its_words_stay_its_own(
    opened: OpenSession, caplog: pytest.LogCaptureFixture
) -> None:
    wallet = Wallet()
    _, peer = await opened(credentials=wallet)
    wallet.calls, wallet.failures = 0, 2
    await peer.send(peer.numbered("notice", **EXPIRING))

    assert (await peer.expect("authenticate"))["secret"] == "fresh-3"
    assert "LookupError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_without_fresh_credentials_the_notice_is_the_applications_matter(opened: OpenSession) -> None:
    session, peer = await opened(secret="for good")
    await peer.send(peer.numbered("notice", **EXPIRING))
    assert (await anext(aiter(session.notices()))).code == "credentials_expiring"

    showing = asyncio.create_task(session.authenticate("by hand"))
    shown = await peer.expect("authenticate")
    assert shown["secret"] == "by hand"
    await peer.decline(shown, "unauthenticated")

    with pytest.raises(RequestRefused) as caught:
        await showing
    assert caught.value.code == "unauthenticated"


async def test_after_the_end_the_resume_carries_fresh_ones(opened: OpenSession, server: ScriptedServer) -> None:
    session, peer = await opened(credentials=Wallet())
    await peer.close(4006, "credentials_expired")

    peer = await server.connection()
    await peer.welcome(outcome="reattached", token="token-2")
    assert (peer.first["type"], peer.first["secret"], peer.first["principal"]) == ("resume", "fresh-2", "alice")
    assert (await anext(aiter(session.recoveries()))).outcome is Outcome.REATTACHED

    # They are good again: the next resume needs none.
    peer.cut()
    peer = await server.connection()
    await peer.welcome(outcome="reattached", token="token-3")
    assert "secret" not in peer.first


async def test_credentials_that_ended_while_it_was_away_are_noticed_by_the_refusal(
    opened: OpenSession, server: ScriptedServer
) -> None:
    _, peer = await opened(credentials=Wallet())
    peer.cut()
    first = await (await server.connection()).refuse("credentials_expired", "they have ended", 4202)
    assert "secret" not in first

    peer = await server.connection()
    await peer.welcome(outcome="failed_over", reason="other_node", token="token-2")

    assert peer.first["secret"] == "fresh-2"
    assert peer.first["attempt"] == 2


@pytest.mark.parametrize("arguments", [{"secret": "for good"}, {"credentials": Wallet()}])
async def test_who_has_no_good_ones_ends(
    opened: OpenSession, server: ScriptedServer, arguments: dict[str, Any]
) -> None:
    session, peer = await opened(**arguments)
    await peer.close(4006, "credentials_expired")
    code = "credentials_expired" if "secret" in arguments else "unauthenticated"
    await (await server.connection()).refuse(code, "no", 4202 if "secret" in arguments else 4201)

    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionRefused)
    assert session.closed_reason.code == code


async def test_an_application_that_has_none_opens_no_session(server: ScriptedServer) -> None:
    with pytest.raises(ConnectFailed, match="LookupError") as caught:
        await connect(server.url, credentials=Wallet(failures=10**6), connect_timeout=scaled(0.2))
    assert caught.value.retryable
    assert "hunter2" not in str(caught.value)
    assert server.upgrades == 0


def test_a_secret_and_a_function_that_makes_it_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="either"):
        connect("ws://127.0.0.1:1", secret="x", credentials=Wallet())


# --- With nodes -----------------------------------------------------------------------------------------------------


async def test_a_session_outlives_any_number_of_tokens_without_losing_its_connection(tmp_path: Any) -> None:
    (tmp_path / "secret").write_text(SECRET, "utf-8")
    (tmp_path / "jwt.toml").write_text(
        f'issuer = "{ISSUER}"\naudience = ["{AUDIENCE}"]\nalgorithms = ["HS256"]\nsecret_file = "secret"\nleeway = 0\n',
        "utf-8",
    )
    made = 0

    async def fetch() -> str:
        nonlocal made
        made += 1
        now = time.time()
        return token("HS256", iat=now, exp=now + LIFE, jti=f"token-{made}")

    memory = MemoryGridServer(now=time.monotonic)
    settings: dict[str, Any] = {"auth": JwtUsers(tmp_path / "jwt.toml"), "memory": memory}
    async with running_node("n1", **settings) as node, connect(node.url, "", credentials=fetch) as session:
        await eventually(lambda: made == 3)
        held = node.gateway.node.sessions
        await eventually(lambda: {each.credential for each in held} == {"token-3"})

        assert session.state.value == "connected"
        assert not node.log.of(events.CREDENTIALS_EXPIRED)
        assert (await session.publish("a", 1)).version == 1
    async with running_node("n1", **settings) as node:
        with pytest.raises(Unauthenticated):
            await connect(node.url, "", "not a token")
