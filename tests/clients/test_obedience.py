"""Both clients do what a node asks of them: they answer pings, leave when told to, and come back as they are advised.

The node is played packet by packet; whichever client it is, it must not be able to tell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from gateway.client import Session, connect
from gateway.core.client.endings import Ending
from gateway.core.client.reconnect_plan import NextAttempt, ReconnectPlan
from gateway.core.wire.codes import CLOSE_CODES, ERRORS
from gateway.core.wire.packets import Backoff
from gateway.core.wire.topology_packets import Cluster, ListedNode
from tests.clients.driver import Driver
from tests.support.scripted_server import Gone, Packet, Peer, ScriptedServer

SOON = {"initial": 0.01, "maximum": 0.05, "stable_after": 10.0}
MUCH_LATER = {"initial": 100_000.0, "maximum": 100_000.0, "stable_after": 10.0}
"""Whoever goes by this advice is not back while a test has patience, unless one draw in twenty thousand is that low."""

LONG = {"window": 200_000.0, "backoff": MUCH_LATER}

RESUMED = {"outcome": "reattached", "token": "token-2"}
FAILED_OVER = {"outcome": "failed_over", "reason": "other_node", "lost": None, "conflated": None, "token": "token-2"}

GOING_AWAY, SILENT, OVERLOADED = 4000, 4002, 4100

Opener: TypeAlias = Callable[[ScriptedServer, dict[str, Any]], Awaitable[Peer]]


async def _python(server: ScriptedServer, kept: list[Session]) -> None:
    kept.append(await connect(server.url, "alice"))


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as running:
        yield running


@pytest.fixture(params=["python", "javascript"])
async def peer_of(request: pytest.FixtureRequest, server: ScriptedServer) -> AsyncIterator[Opener]:
    """Open a session with one of the clients; returns the node's end of its connection."""
    sessions: list[Session] = []
    async with Driver() as driver:

        async def open_session(server: ScriptedServer, greeting: dict[str, Any]) -> Peer:
            opening: asyncio.Future[Any]
            if request.param == "python":
                opening = asyncio.ensure_future(_python(server, sessions))
            else:
                opening = driver.begin("connect", urls=[server.url], options={"principal": "alice"})
            peer = await server.connection()
            await peer.welcome(**greeting)
            await opening
            return peer

        yield open_session
        await server.stop()
        for session in sessions:
            await session.close(timeout=0)


async def resumed(server: ScriptedServer, greeting: Packet) -> Peer:
    """Have the client come back, and say so."""
    peer = await server.connection()
    first = await peer.welcome(**greeting)
    assert first["type"] == "resume"
    return peer


async def all_acknowledged(peer: Peer) -> tuple[int, int | None]:
    """Wait for the end of a connection; returns the last acknowledgement, and the close code."""
    acknowledged = 0
    try:
        while True:
            acknowledged = (await peer.expect("ack"))["received"]
    except Gone as gone:
        return acknowledged, gone.code


# --- Pings ------------------------------------------------------------------------------------------------------------


async def test_pings_are_answered(server: ScriptedServer, peer_of: Opener) -> None:
    peer = await peer_of(server, {})
    for _ in range(3):
        await peer.send({"type": "ping"})
        await peer.expect("pong")


async def test_a_token_that_comes_with_a_ping_is_the_one_to_resume_with(
    server: ScriptedServer, peer_of: Opener
) -> None:
    peer = await peer_of(server, {})
    await peer.send({"type": "ping", "token": "token-renewed"})
    await peer.expect("pong")
    peer.cut()
    assert (await resumed(server, RESUMED)).first["token"] == "token-renewed"


async def test_a_node_that_is_silent_is_given_up(server: ScriptedServer, peer_of: Opener) -> None:
    peer = await peer_of(server, {"ping_interval": 0.05, "ping_timeout": 0.2})
    assert await peer.closed() == SILENT
    await resumed(server, RESUMED)


async def test_advice_of_a_ping_takes_the_place_of_the_welcome_s(server: ScriptedServer, peer_of: Opener) -> None:
    peer = await peer_of(server, LONG)
    await peer.send({"type": "ping", "backoff": SOON})
    await peer.expect("pong")
    peer.cut()
    await resumed(server, RESUMED)


# --- Go away ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [None, "n2"])
async def test_a_client_that_is_asked_to_leaves_at_once_and_looks_elsewhere(
    server: ScriptedServer, peer_of: Opener, node: str | None
) -> None:
    """By 8.3.3 it comes back without a delay, whatever the advice; the hint is the node that was named, or none."""
    peer = await peer_of(server, LONG)
    await peer.send(peer.numbered("notice", code="late", message=""))
    await peer.send({"type": "go-away", "reason": "the node drains", "delay": 0.0, **({"node": node} if node else {})})
    assert await all_acknowledged(peer) == (1, GOING_AWAY), "so that the node need not keep anything"
    other = await resumed(server, FAILED_OVER | {"node": "n2"})
    assert other.query == ({} if node is None else {"node": node})
    assert other.first["attempt"] == 1


async def test_advice_of_a_go_away_counts_if_the_move_does_not_succeed_at_once(
    server: ScriptedServer, peer_of: Opener
) -> None:
    peer = await peer_of(server, LONG)
    await peer.send({"type": "go-away", "reason": "the node drains", "delay": 0.0, "backoff": SOON})
    assert await peer.closed() == GOING_AWAY
    for _ in range(2):
        refusing = await server.connection()
        await refusing.refuse("overloaded", "come later", OVERLOADED)
    assert (await resumed(server, FAILED_OVER)).first["attempt"] == 3


async def test_a_time_to_wait_is_waited_for_and_not_the_longest_bound(server: ScriptedServer, peer_of: Opener) -> None:
    peer = await peer_of(server, LONG)
    await peer.send({"type": "ping", "backoff": SOON | {"maximum": 100_000.0}})
    await peer.expect("pong")
    peer.cut()
    refusing = await server.connection()
    await refusing.refuse("overloaded", "come later", OVERLOADED, retry_after=0.01)
    await resumed(server, RESUMED)


# --- All decisions ----------------------------------------------------------------------------------------------------

SEED = 20_261_122
HISTORIES = 300
HOSTS = ("127.0.0.1:8101", "two.example", "[::1]:8102/v1/connect", "user:secret@three.example")
STEPS = 25
CODES = [None, 1000, 1001, 1002, 1006, 1011, *(each.code for each in CLOSE_CODES), 4050, 4150, 4250]


def some_advice(chance: random.Random) -> dict[str, float]:
    return {
        "initial": chance.choice([0.0, 0.25, 3.0]),
        "maximum": chance.choice([0.0, 1.0, 10.0]),
        "stable_after": chance.choice([0.0, 10.0]),
    }


def some_ending(chance: random.Random, *, lost: bool) -> dict[str, Any]:
    ending: dict[str, Any] = {"message": "it ended", "code": chance.choice(CODES)}
    if lost:
        if chance.random() < 0.3:
            ending |= {"planned": True, "node": chance.choice([None, "n7"]), "code": GOING_AWAY}
    else:
        ending["error"] = chance.choice([None, *(code.value for code in ERRORS)])
        ending["retryAfter"] = chance.choice([None, 0.0, 2.0])
        ending["hung"] = chance.random() < 0.2
        ending["permanent"] = chance.random() < 0.1
        if chance.random() < 0.2:
            told = {"node": "n2", "urls": [f"ws://{chance.choice(HOSTS)}"] if chance.random() < 0.7 else []}
            ending = {"message": "it ended", "code": 4007, "error": "not_master", **told}
    ending["violation"] = chance.random() < 0.1
    return ending


def some_list(chance: random.Random) -> dict[str, Any] | None:
    """Draw what a cluster may list: also what is not fit for a client."""
    schemes = ("ws", "wss", "http", "ftp")
    nodes = [
        {
            "node": node,
            "urls": [f"{chance.choice(schemes)}://{chance.choice(HOSTS)}" for _ in range(chance.randrange(3))],
        }
        for node in ("n1", "n2", "n3")
    ]
    return None if chance.random() < 0.3 else {"revision": "r", "nodes": nodes[chance.randrange(3) :]}


def some_history(chance: random.Random) -> list[list[Any]]:
    """Draw what may happen to one session, in an order in which it may."""
    now, steps, connected = 0.0, list[list[Any]](), False
    for _ in range(STEPS):
        now += chance.choice([0.0, 0.1, 5.0, 20.0])
        if connected and chance.random() < 0.3:
            steps.append(["advised", some_advice(chance)])
        elif connected and chance.random() < 0.4:
            steps.append(["listed", some_list(chance)])
        elif connected:
            steps.append(["lost", some_ending(chance, lost=True), now])
            connected = False
        else:
            steps.append(["next", now, chance.random()])
            connected = chance.random() < 0.5
            if connected:
                welcome = {"node": chance.choice(["n1", "n2"]), "window": 60.0, "backoff": some_advice(chance)}
                welcome["backup"] = chance.choice([None, "n3"])
                welcome["cluster"] = some_list(chance)
                steps.append(["connected", welcome, now])
            else:
                steps.append(["failed", some_ending(chance, lost=False), now])
    return steps


def ending_of(given: dict[str, Any]) -> Ending:
    known = {name: value for name, value in given.items() if name != "retryAfter"}
    error = next((code for code in ERRORS if code.value == given.get("error")), None)
    return Ending(**(known | {"error": error, "retry_after": given.get("retryAfter")}))


def list_here(given: dict[str, Any] | None) -> Cluster | None:
    if given is None:
        return None
    return Cluster(given["revision"], tuple(ListedNode(each["node"], tuple(each["urls"])) for each in given["nodes"]))


def decided_here(urls: list[str], options: dict[str, Any], steps: list[list[Any]]) -> list[Any]:
    """Take the steps with the Python client's plan; stops where the session is over."""
    plan = ReconnectPlan(urls, connect_timeout=options["connectTimeout"], window=options["window"], now=options["now"])
    decided: list[Any] = []
    for method, *given in steps:
        result: Any = None
        match method:
            case "connected":
                welcome, now = given
                backoff = Backoff(**welcome["backoff"])
                node, backup = welcome["node"], welcome["backup"]
                listed = list_here(welcome["cluster"])
                window = welcome["window"]
                plan.connected(node=node, backup=backup, cluster=listed, window=window, backoff=backoff, now=now)
            case "listed":
                plan.listed(list_here(given[0]))
            case "advised":
                plan.advised(Backoff(**given[0]))
            case "next":
                attempt = plan.next(*given)
                if not isinstance(attempt, NextAttempt):
                    return [*decided, {"over": type(attempt).__name__}]
                result = {"delay": pytest.approx(attempt.delay), "url": attempt.url}
            case "lost" | "failed":
                getattr(plan, method)(ending_of(given[0]), given[1])
        decided.append(result)
    return decided


async def test_every_decision_about_coming_back_is_the_same() -> None:
    chance = random.Random(SEED)
    urls = ["ws://127.0.0.1:8100/v1/connect", "ws://127.0.0.1:8101/v1/connect?zone=a"]
    ends = set()
    async with Driver() as client:
        for _ in range(HISTORIES):
            options = {"connectTimeout": 30.0, "window": chance.choice([None, 45.0]), "now": 0.0}
            steps = some_history(chance)
            here = decided_here(urls, options, steps)
            assert await client.do("plan", urls=urls, options=options, steps=steps[: len(here)]) == here, steps
            ends.add(here[-1]["over"] if here[-1] and "over" in here[-1] else "")
    assert len(ends) > 4, "histories end in all ways"
