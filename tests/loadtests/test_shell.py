"""The load generator speaks the protocol: against a server that does what it is told, in a process with gevent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.core.client.endings import CannotConnect
from loadtests.shell.transport import open_websocket
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.times import time_limit

DRIVER: Final = Path(__file__).with_name("shell_driver.py")
ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 30.0
"""Seconds to wait for anything that must come; starting Python with gevent takes one on a busy machine."""


class Driven:
    """The driver's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def event(self, kind: str) -> dict[str, Any]:
        """Return the next event, which must be of this kind."""
        assert self._process.stdout is not None
        async with time_limit(PATIENCE):
            line = await self._process.stdout.readline()
        assert line, "the driver ended"
        event: dict[str, Any] = json.loads(line)
        assert event["event"] == kind, event
        return event


@asynccontextmanager
async def driven(url: str) -> AsyncIterator[Driven]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DRIVER),
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    try:
        yield Driven(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def session(**welcome: Any) -> AsyncIterator[tuple[ScriptedServer, Driven, Peer]]:
    """A session that is open."""
    async with ScriptedServer() as server, driven(server.url) as driver:
        peer = await server.connection(within=PATIENCE)
        await peer.welcome(**welcome)
        await driver.event("opened")
        yield server, driver, peer


async def test_a_session_asks_and_listens_and_says_good_bye() -> None:
    async with session() as (server, driver, peer):
        assert peer.first == {
            "type": "hello",
            "principal": "alice",
            "secret": "s3cret",
            "properties": {},
            "client": "locust",
            "supports": ["handed_over", "mirrored", "questions", "queues", "replay", "topology"],
        }
        assert peer.query == {}
        assert "Origin" not in peer.headers
        assert "Sec-WebSocket-Extensions" not in peer.headers
        # Whatever comes first proves that the client holds the token.
        assert (await peer.packet())["type"] == "ack"
        await driver.tell("subscribe load/**")
        request = await peer.packet()
        assert (request["type"], request["id"], request["request"]) == ("subscribe", 1, 1)
        await peer.reply(request)
        await peer.update("load/1", 1, {"n": 1})
        assert (await driver.event("replied"))["request"] == 1
        assert await driver.event("updated") == {"event": "updated", "topic": "load/1", "version": 1, "value": {"n": 1}}
        assert (await peer.expect("ack"))["received"] == 2
        await driver.tell("close")
        assert (await peer.expect("bye"))["type"] == "bye"
        await peer.confirm_bye()
        assert (await driver.event("closed"))["confirmed"] is True
        assert server.upgrades == 1


async def test_a_cut_connection_is_resumed_and_nothing_is_lost_or_doubled() -> None:
    async with session(node="n2") as (server, driver, peer):
        await driver.tell("publish load/1 7")
        first = await peer.expect("publish")
        await peer.update("load/1", 1, 1)
        await driver.event("updated")
        await driver.tell("cut")
        assert (await driver.event("cut"))["connected"] is True
        again = await server.connection()
        await again.welcome(outcome="reattached", token="token-2", received=0, node="n2", resent=1)
        assert again.first.pop("away") >= 0
        assert again.first == {
            "type": "resume",
            "token": "token-1",
            "attempt": 1,
            "received": 1,
            "oldest": 1,
            "supports": ["handed_over", "mirrored", "questions", "queues", "replay", "topology"],
        }
        assert again.query == {"node": "n2"}
        assert (await driver.event("recovered"))["outcome"] == "reattached"
        resent = await again.expect("publish")
        assert (resent["id"], resent["request"], resent["value"]) == (first["id"], first["request"], 7)
        await driver.tell("publish load/1 8")
        later = await again.expect("publish")
        assert (later["id"], later["request"], later["value"]) == (2, 2, 8)
        # Sent again by the server, ignored by the client.
        await again.send({"type": "update", "id": 1, "topic": "load/1", "version": 1, "event": "0-1-1", "value": 1})
        again.sent = 1
        await again.reply(resent)
        assert (await driver.event("replied"))["request"] == 1


async def test_after_a_failover_what_is_unanswered_is_asked_again_under_its_number() -> None:
    async with session() as (server, driver, peer):
        await driver.tell("publish load/1 7")
        await peer.expect("publish")
        peer.cut()
        again = await server.connection()
        await again.welcome(outcome="failed_over", reason="other_node", node="n3", token="token-2", lost=None)
        recovered = await driver.event("recovered")
        assert (recovered["outcome"], recovered["resent"]) == ("failed_over", 1)
        asked = await again.expect("publish")
        assert (asked["id"], asked["request"], asked["resubmitted"]) == (1, 1, True)


async def test_selections_that_the_grid_forgot_are_a_broken_promise_and_asked_again() -> None:
    async with session() as (server, driver, peer):
        await driver.tell("subscribe load/**")
        await peer.answer()
        await driver.event("replied")
        peer.cut()
        again = await server.connection()
        await again.welcome(outcome="failed_over", reason="other_node", token="token-2", selections=[])
        assert "lacked selections" in (await driver.event("violated"))["message"]
        await driver.event("recovered")
        assert (await again.expect("subscribe"))["selector"] == "load/**"


async def test_a_node_that_asks_to_go_away_is_left_without_the_hint() -> None:
    async with session(node="n2") as (server, driver, peer):
        await driver.tell("publish load/1 7")
        request = await peer.expect("publish")
        await peer.send({"type": "go-away", "reason": "the node drains", "delay": 0.0})
        await peer.reply(request)
        await driver.event("replied")
        assert (await peer.expect("ack"))["received"] == 1
        assert await peer.closed() == 4000
        again = await server.connection()
        await again.welcome(outcome="failed_over", reason="other_node", token="token-2", node="n1")
        assert again.query == {}
        assert (await driver.event("recovered"))["cause"] == "node n2 asked to go away: the node drains"


async def test_a_refused_session_does_not_come_back() -> None:
    async with session() as (server, driver, peer):
        peer.cut()
        again = await server.connection()
        await again.refuse("session_unknown", "never heard of it", 4202)
        await driver.event("attempt_failed")
        ended = await driver.event("ended")
        assert (ended["kind"], ended["message"]) == (
            "SessionRefused",
            "the node refused: never heard of it (session_unknown)",
        )
        assert server.upgrades == 2


async def test_who_is_told_to_come_later_does() -> None:
    async with session() as (server, driver, peer):
        peer.cut()
        second = await server.connection()
        await second.refuse("grid_unavailable", "away", 4100, retry_after=0.01)
        assert "away" in (await driver.event("attempt_failed"))["message"]
        third = await server.connection()
        await third.welcome(outcome="reattached", token="token-2")
        assert third.first["attempt"] == 2
        await driver.event("recovered")


async def test_a_skipped_packet_is_a_violation_that_resuming_mends() -> None:
    async with session() as (server, driver, peer):
        peer.sent = 1
        await peer.update("load/1", 2, 2)
        assert await peer.closed() == 4003
        again = await server.connection()
        await again.welcome(outcome="reattached", token="token-2", resent=2)
        assert again.first["received"] == 0
        assert "one in between is missing" in (await driver.event("violated"))["message"]
        await driver.event("recovered")
        await again.update("load/1", 1, 1)
        assert (await driver.event("updated"))["version"] == 1


async def test_a_ping_is_answered_and_its_token_used_from_then_on() -> None:
    async with session() as (server, driver, peer):
        await peer.send({"type": "ping", "token": "token-1b"})
        assert (await peer.expect("pong"))["received"] == 0
        peer.cut()
        again = await server.connection()
        await again.welcome(outcome="reattached", token="token-2")
        assert again.first["token"] == "token-1b"
        await driver.event("recovered")


async def test_a_silent_node_is_given_up() -> None:
    async with session(ping_timeout=0.2) as (server, driver, peer):
        assert await peer.closed() == 4002
        again = await server.connection()
        await again.welcome(outcome="reattached", token="token-2")
        assert (await driver.event("recovered"))["cause"] == "the node was silent for 0.2 s"


async def test_a_node_that_talks_nonsense_is_reported() -> None:
    async with session() as (_, driver, peer):
        await peer.send_text("{")
        assert (await peer.expect("error"))["code"] == "protocol_error"
        assert await peer.closed() == 4200
        assert "not JSON" in (await driver.event("violated"))["message"]


async def test_a_server_that_speaks_something_else_is_no_gateway() -> None:
    async with ScriptedServer() as server:
        server.statuses.append(403)
        async with driven(server.url) as driver:
            assert "HTTP status 403" in (await driver.event("attempt_failed"))["message"]
            assert "HTTP status 403" in (await driver.event("failed"))["message"]
            assert server.upgrades == 1


# --- Servers of later releases (protocol 4.3.1), and requests that end connections (4.8) ---------------------------


async def test_an_outcome_that_nobody_knows_means_what_its_numbering_says() -> None:
    async with session() as (server, driver, first):
        peer = first
        await driver.tell("publish load/1 7")
        sent = await peer.expect("publish")
        for attempt in (1, 2):
            peer.cut()
            peer = await server.connection()
            await peer.welcome(outcome="handed_over", numbering="kept", token=f"t{attempt}")
            assert await peer.expect("publish") == sent
            assert (await driver.event("recovered"))["outcome"] == "handed_over"
        peer.cut()
        peer = await server.connection()
        await peer.welcome(outcome="beamed_up", numbering="restarted")
        assert (await peer.expect("publish"))["resubmitted"] is True
        assert (await driver.event("recovered"))["outcome"] == "beamed_up"


async def test_without_a_numbering_an_unknown_outcome_leads_to_a_failover() -> None:
    async with session() as (server, driver, first):
        peer = first
        peer.cut()
        peer = await server.connection()
        await peer.welcome(outcome="beamed_up", token="t1")
        assert await peer.closed() == 4000
        assert "beamed_up" in (await driver.event("attempt_failed"))["message"]
        peer = await server.connection()
        await peer.welcome(outcome="failed_over", reason="gap")
        assert (peer.first["received"], peer.first["oldest"], peer.first["token"]) == (0, 2**53 - 1, "t1")
        assert (await driver.event("recovered"))["outcome"] == "failed_over"


async def test_a_request_that_a_node_closes_for_is_reported_and_not_sent_again() -> None:
    async with session() as (server, driver, first):
        peer = first
        await driver.tell("publish load/1 7")
        await driver.tell("publish load/2 8")
        for _ in range(2):
            await peer.expect("publish")
        await peer.send({"type": "error", "code": "message_too_big", "message": "too much", "request": 1})
        await peer.close(1009)
        peer = await server.connection()
        await peer.welcome(outcome="failed_over", reason="gap")
        assert peer.first["oldest"] == 3
        assert (await peer.expect("publish"))["topic"] == "load/2"
        assert "too much" in (await driver.event("violated"))["message"]
        assert "request 1 ended a connection" in (await driver.event("violated"))["message"]
        assert (await driver.event("refused"))["kind"] == "RequestRefused"
        await driver.event("recovered")


@pytest.mark.parametrize(("given", "wanted"), [("http", "ws"), ("https", "wss"), ("ws", "ws"), ("wss", "wss")])
def test_urls_are_taken_as_other_clients_take_them(monkeypatch: pytest.MonkeyPatch, given: str, wanted: str) -> None:
    asked: list[str] = []

    def refuse(_self: object, url: str, **_options: object) -> None:
        asked.append(url)
        raise OSError("not here")

    monkeypatch.setattr("loadtests.shell.transport._Socket.connect", refuse)
    with pytest.raises(CannotConnect, match=f"{given}://gateway.example/v1/connect cannot be reached"):
        open_websocket(f"{given}://gateway.example/v1/connect", seconds=1)
    assert asked == [f"{wanted}://gateway.example/v1/connect"]
