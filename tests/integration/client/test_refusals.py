"""Where it ends: sessions that cannot be opened, cannot be resumed, or are closed (rung 5 of the ladder, P7)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.client import (
    ConnectFailed,
    Session,
    SessionClosed,
    SessionEnded,
    SessionExpired,
    SessionFailed,
    SessionRefused,
    SessionState,
    Unauthenticated,
    connect,
    connector,
)
from gateway.client.options import Options
from gateway.client.session import Connecting
from gateway.core.wire.codes import GOING_AWAY
from tests.integration.client.conftest import OpenSession, first
from tests.support.nodes import eventually
from tests.support.scripted_server import ScriptedServer
from tests.support.times import PATIENCE, scaled, time_limit

# --- Opening ----------------------------------------------------------------------------------------------------------


def opening(url: str | list[str], **arguments: Any) -> asyncio.Task[Session]:
    async def run() -> Session:
        return await connect(url, "alice", **arguments)

    return asyncio.create_task(run())


async def abandon(session: Session, server: ScriptedServer) -> None:
    """Be done with a session whose server is not going to say goodbye."""
    await server.stop()
    await session.close(timeout=0)


async def test_wrong_credentials_are_told_at_once(server: ScriptedServer) -> None:
    attempt = opening(server.url)
    await (await server.connection()).refuse("unauthenticated", "the principal and secret were not accepted", 4201)

    with pytest.raises(Unauthenticated, match="not accepted"):
        await attempt
    assert server.upgrades == 1


@pytest.mark.parametrize(("code", "close"), [("bad_properties", 4200), ("protocol_error", 4200), ("forbidden", 4202)])
async def test_a_refusal_that_stays_is_told_at_once(server: ScriptedServer, code: str, close: int) -> None:
    attempt = opening(server.url)
    await (await server.connection()).refuse(code, "this will never do", close)

    with pytest.raises(ConnectFailed, match="this will never do") as caught:
        await attempt
    assert caught.value.code == code
    assert not caught.value.retryable


async def test_a_node_that_cannot_yet_is_asked_again(server: ScriptedServer) -> None:
    attempt = opening(server.url)
    await (await server.connection()).refuse("grid_unavailable", "the grid is unreachable", 4100, retry_after=0.01)
    peer = await server.connection()
    await peer.welcome()
    session = await attempt

    assert session.id == "s1"
    await abandon(session, server)


async def test_a_proxy_without_nodes_is_asked_again(server: ScriptedServer) -> None:
    server.statuses.append(503)
    attempt = opening(server.url)
    peer = await server.connection()
    await peer.welcome()
    await abandon(await attempt, server)


@pytest.mark.parametrize(("status", "words"), [(404, "status 404"), (403, "status 403"), (302, "use the final URL")])
async def test_a_url_that_is_wrong_is_told_at_once(server: ScriptedServer, status: int, words: str) -> None:
    server.statuses.append(status)

    with pytest.raises(ConnectFailed, match=words) as caught:
        await opening(server.url)
    assert not caught.value.retryable


NO_HOSTS = ["ws://a..localhost", f"ws://{'a' * 64}.localhost", "ws://127.0.0.1:99999", "ws://.localhost"]
"""URLs of hosts that cannot be looked up at all."""


@pytest.mark.parametrize("url", NO_HOSTS)
async def test_a_host_that_cannot_be_one_is_told_at_once(url: str) -> None:
    async with time_limit(PATIENCE):
        with pytest.raises(ConnectFailed, match="is not a usable URL") as caught:
            await opening(url, connect_timeout=None)
    assert not caught.value.retryable


@pytest.mark.parametrize("url", NO_HOSTS)
async def test_nor_is_it_a_reason_to_leave_out_the_others(server: ScriptedServer, url: str) -> None:
    attempt = opening([url, server.url])
    peer = await server.connection()
    await peer.welcome()
    await abandon(await attempt, server)


@pytest.mark.parametrize("url", NO_HOSTS)
async def test_a_node_that_is_advertised_wrongly_does_not_keep_a_session_from_its_own(
    server: ScriptedServer, url: str
) -> None:
    attempt = opening(server.url)
    peer = await server.connection()
    await peer.welcome(cluster={"revision": "1", "nodes": [{"node": "n9", "urls": [url]}]})
    session = await attempt
    await peer.close(GOING_AWAY.code)
    await (await server.connection()).welcome(outcome="failed_over")
    async with time_limit(PATIENCE):
        await anext(session.recoveries())
    await abandon(session, server)


async def test_whatever_else_opening_raises_is_a_failed_attempt(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise LookupError("a resolver's bug")

    monkeypatch.setattr(connector, "open_websocket", fail)
    async with time_limit(PATIENCE):
        with pytest.raises(ConnectFailed, match="a resolver's bug"):
            await opening(server.url, connect_timeout=scaled(0.1))


async def test_a_wrong_url_is_no_reason_to_leave_out_the_others(server: ScriptedServer) -> None:
    async with ScriptedServer() as wrong:
        wrong.statuses.append(404)
        attempt = opening([wrong.url, server.url])
        peer = await server.connection()
        await peer.welcome()
        await abandon(await attempt, server)


async def test_a_server_of_another_protocol_is_recognised(server: ScriptedServer) -> None:
    server.subprotocols = ()

    with pytest.raises(ConnectFailed, match=r"gateway\.v1\.json"):
        await opening(server.url)


async def test_nobody_there_fails_in_the_end_and_says_why(server: ScriptedServer) -> None:
    await server.stop()

    with pytest.raises(ConnectFailed, match=r"no session within 0\.1 s; last: .* cannot be reached") as caught:
        await opening(server.url, connect_timeout=0.1)
    assert caught.value.retryable


async def test_a_node_that_does_not_answer_fails_in_the_end(server: ScriptedServer) -> None:
    server.hanging = True

    with pytest.raises(ConnectFailed, match="did not answer"):
        await opening(server.url, connect_timeout=scaled(0.1))


async def test_a_welcome_that_never_comes_fails_in_the_end(server: ScriptedServer) -> None:
    with pytest.raises(ConnectFailed, match="no welcome"):
        await opening(server.url, connect_timeout=scaled(0.1))


async def test_a_first_packet_that_is_no_welcome_is_not_believed(server: ScriptedServer) -> None:
    attempt = opening(server.url, connect_timeout=scaled(0.3))
    peer = await server.connection()
    await peer.send({"type": "ping"})

    assert await peer.closed() == 4200
    with pytest.raises(ConnectFailed):
        await attempt


async def test_opening_can_be_cancelled(server: ScriptedServer) -> None:
    attempt = opening(server.url)
    peer = await server.connection()
    await peer.packet()
    attempt.cancel()

    with pytest.raises(asyncio.CancelledError):
        await attempt
    await peer.closed()


async def test_hanging_upgrades_cost_one_attempt_each_and_the_hint(server: ScriptedServer) -> None:
    options = Options(urls=(f"{server.url}/v1/connect",), principal="alice", attempt_timeout=scaled(0.05))
    waiting = asyncio.ensure_future(_open(options))
    peer = await server.connection()
    await peer.welcome()
    session = await waiting
    server.hanging = True
    peer.cut()
    await eventually(lambda: server.upgrades == 2)
    server.hanging = False
    other = await server.connection()
    await other.welcome(outcome="failed_over", node="n2")

    assert other.query == {}, "a node that hangs is not waited for"
    assert (await anext(session.recoveries())).attempts == 2
    await abandon(session, server)


async def _open(options: Options) -> Session:
    return await Connecting(options)


# --- Resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    ("code", "close", "error"),
    [
        ("token_invalid", 4202, SessionRefused),
        ("token_expired", 4202, SessionRefused),
        ("token_key_retired", 4202, SessionRefused),
        ("token_superseded", 4202, SessionRefused),
        ("session_unknown", 4202, SessionRefused),
        ("not_replicated", 4202, SessionRefused),
        ("session_expired", 4202, SessionExpired),
        ("session_closed", 4202, SessionClosed),
    ],
)
async def test_a_refused_resume_ends_the_session_for_every_waiter_with_its_reason(
    server: ScriptedServer, opened: OpenSession, code: str, close: int, error: type[SessionEnded]
) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a"))
    await peer.answer()
    stream = await subscribing
    calls: tuple[Coroutine[Any, Any, object], ...] = (
        session.publish("b", 1),
        session.subscribe("c"),
        first(stream),
        first(session.recoveries()),
        first(session.notices()),
    )
    waiters = [asyncio.create_task(call) for call in calls]
    await peer.expect("publish")
    peer.cut()
    await (await server.connection()).refuse(code, "told by the node", close)

    for waiter in waiters:
        with pytest.raises(error, match="told by the node") as caught:
            await waiter
        assert type(caught.value) is error
        assert caught.value.code == code
    await session.wait_closed()
    assert session.state is SessionState.CLOSED
    assert type(session.closed_reason) is error
    with pytest.raises(error):
        await session.publish("a", 1)
    with pytest.raises(error):
        await anext(stream)


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    ("close", "error"), [(4203, SessionRefused), (4204, SessionExpired), (4205, SessionClosed), (1008, SessionRefused)]
)
async def test_a_close_code_that_forbids_it_ends_the_session(
    server: ScriptedServer, opened: OpenSession, close: int, error: type[SessionEnded]
) -> None:
    session, peer = await opened()
    await peer.close(close, "no more")
    await session.wait_closed()

    assert type(session.closed_reason) is error
    assert server.upgrades == 1


async def test_a_refusal_counts_even_if_its_close_frame_is_lost(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    peer.cut()
    other = await server.connection()
    await other.packet()
    await other.send({"type": "error", "code": "session_unknown", "message": "no such session"})
    other.cut()
    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionRefused)


@pytest.mark.promise("P7")
@pytest.mark.parametrize(("mine", "granted"), [(None, 0.2), (0.2, 30.0), (30.0, 0.2)])
async def test_the_shorter_window_ends_the_session(
    server: ScriptedServer, opened: OpenSession, mine: float | None, granted: float
) -> None:
    session, _ = await opened(greeting={"window": granted}, window=mine)
    publishing = asyncio.create_task(session.publish("a", 1))
    lost = asyncio.get_running_loop().time()
    await server.stop()

    with pytest.raises(SessionExpired, match=r"window of 0\.2 s; last: "):
        await publishing
    assert 0.1 <= asyncio.get_running_loop().time() - lost < scaled(3)
    await session.wait_closed()


async def test_the_next_url_is_tried_and_told_who_had_the_session(server: ScriptedServer) -> None:
    async with ScriptedServer() as second:
        attempt = opening([server.url, second.url])
        await (await server.connection()).welcome()
        session = await attempt
        await server.stop()
        other = await second.connection()
        await other.welcome(outcome="failed_over", node="n2")

        assert other.query == {"node": "n1"}
        assert (await anext(session.recoveries())).node == "n2"
        await abandon(session, second)


async def test_a_node_that_keeps_breaking_the_protocol_ends_the_session(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    for number in range(2):
        if number:
            peer = await server.connection()
            await peer.welcome(outcome="reattached")
        await peer.send_text('{"type":"surprise"}')
        assert (await peer.expect("error"))["code"] == "unknown_packet_type"
        assert await peer.closed() == 4200
    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionFailed)
    assert "surprise" in str(session.closed_reason)


@pytest.mark.parametrize("close", [4200, 1009, 1002])
async def test_a_node_that_says_twice_that_this_client_has_a_bug_ends_the_session(
    server: ScriptedServer, opened: OpenSession, close: int
) -> None:
    session, peer = await opened()
    await peer.close(close, "that was wrong")
    peer = await server.connection()
    await peer.welcome(outcome="reattached")
    await peer.close(close, "that was wrong again")
    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionFailed)
    assert "wrong again" in str(session.closed_reason)


async def test_a_bug_of_this_client_ends_the_session_and_is_not_swallowed(
    server: ScriptedServer, opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, peer = await opened()

    def broken(_: object) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(session._supervisor.streams, "dispatch", broken)
    await peer.update("a", 1, 1)
    assert await peer.closed() == 4000
    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionFailed)
    assert "ZeroDivisionError" in str(session.closed_reason)


# --- Closing while recovering -----------------------------------------------------------------------------------------


@pytest.mark.promise("P7")
async def test_closing_while_recovering_ends_the_session_as_soon_as_it_is_back(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    peer.cut()
    other = await server.connection()
    closing = asyncio.create_task(session.close())
    await other.welcome(outcome="reattached")
    await other.expect("bye")
    await other.confirm_bye()
    await closing

    assert isinstance(session.closed_reason, SessionClosed)


async def test_closing_while_nobody_can_be_reached_takes_a_bounded_time(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, _ = await opened()
    await server.stop()
    await eventually(lambda: session.state is SessionState.RECOVERING)
    await session.close(timeout=0.05)

    assert session.state is SessionState.CLOSED


@pytest.mark.promise("P7")
async def test_a_lost_confirmation_of_the_end_is_asked_for(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    closing = asyncio.create_task(session.close())
    await peer.expect("bye")
    peer.cut()
    await (await server.connection()).refuse("session_closed", "the session was closed", 4202)
    await closing

    assert [recovery async for recovery in session.recoveries()] == []
    assert isinstance(session.closed_reason, SessionClosed)


def test_a_program_that_ends_without_closing_leaves_no_mess() -> None:
    """A session is open when the main coroutine returns; asyncio cancels what is left, and nobody complains."""
    program = """
import asyncio
from gateway.client import connect
from tests.support.scripted_server import ScriptedServer

async def main():
    server = ScriptedServer()
    await server.start()
    opening = asyncio.ensure_future(open(server.url))
    peer = await server.connection()
    await peer.welcome()
    session = await opening
    reading = asyncio.create_task(anext(session.recoveries()))
    await asyncio.sleep(0)

async def open(url):
    return await connect(url, "alice")

asyncio.run(main())
"""
    finished = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=scaled(60), check=False
    )

    assert finished.returncode == 0, finished.stderr
    assert "Task" not in finished.stderr, finished.stderr
    assert "gateway.client" not in finished.stderr, finished.stderr
