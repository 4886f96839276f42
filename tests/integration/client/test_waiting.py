"""Waiting ends when it was said to: time limits of any kind, cancelled calls, callbacks that misbehave, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf, nan
from typing import Any, Final

import pytest

from gateway.client import (
    ConnectFailed,
    InvalidProperties,
    InvalidSelector,
    InvalidTopic,
    RequestRefused,
    RequestTimedOut,
    connect,
    transport,
)
from tests.integration.client.conftest import OpenSession
from tests.support.clock import eventually
from tests.support.scripted_server import LIMITS, ScriptedServer
from tests.support.times import PATIENCE, scaled, time_limit

LONG: Final = scaled(60.0)
"""Seconds that something would take if it were not cut short: far more than a slow machine needs for the rest."""


async def never() -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def stubborn() -> str:
    """An application's function that is not to be cancelled; a test ends it by its event."""
    for _ in range(3):
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            stubborn_ends.append(asyncio.get_running_loop().time())
            if len(stubborn_ends) > 2:
                raise
    raise AssertionError


stubborn_ends: list[float] = []


async def bare() -> str:
    raise asyncio.CancelledError


async def nothing() -> str:
    return None  # type: ignore[return-value]


async def opening(server: ScriptedServer, **arguments: Any) -> Any:
    return await connect(server.url, "alice", **arguments)


# --- Callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credentials", "why"),
    [
        (never, "no fresh credentials within"),
        (stubborn, "no fresh credentials within"),
        (bare, "failed with CancelledError"),
        (nothing, "are a string, and not NoneType"),
    ],
)
async def test_connect_is_bounded_whatever_the_credentials_do(
    server: ScriptedServer, credentials: Callable[[], Awaitable[str]], why: str
) -> None:
    stubborn_ends.clear()
    async with time_limit():
        with pytest.raises(ConnectFailed, match=why):
            await opening(server, credentials=credentials, connect_timeout=0.3)
    assert server.upgrades == 0
    for task in asyncio.all_tasks():
        while not task.done() and task.get_name() == "gateway-client-credentials":
            task.cancel()
            await asyncio.sleep(0)


async def test_credentials_that_are_cancelled_do_not_end_the_session(
    server: ScriptedServer, opened: OpenSession
) -> None:
    """A cancellation that came out of the application's function was taken for one of the session."""
    calls: list[int] = []

    async def source() -> str:
        calls.append(1)
        if len(calls) == 2:
            raise asyncio.CancelledError
        return f"fresh-{len(calls)}"

    session, peer = await opened(credentials=source)
    await peer.close(4006, "credentials_expired")
    again = await server.connection()
    await again.welcome(outcome="reattached", token="token-2")

    assert (await asyncio.wait_for(anext(aiter(session.recoveries())), scaled(PATIENCE))).outcome == "reattached"
    assert again.first["secret"] == "fresh-3"


# --- Cancelling -------------------------------------------------------------------------------------------------------


async def test_a_connect_that_is_cancelled_at_any_point_leaves_nothing(server: ScriptedServer) -> None:
    in_credentials = asyncio.create_task(opening(server, credentials=never))
    await asyncio.sleep(0)
    before_the_welcome = asyncio.create_task(opening(server))
    peer = await server.connection()
    for task in (in_credentials, before_the_welcome):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, scaled(PATIENCE))

    await peer.closed()
    await eventually(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("gateway-client")])


async def test_a_cancelled_subscribe_leaves_neither_stream_nor_selection(opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a/**"))
    asked = await peer.expect("subscribe")
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing

    undone = await peer.expect("unsubscribe")
    assert (asked["selector"], undone["selector"]) == ("a/**", "a/**")
    assert len(session._supervisor.streams) == 0


async def test_a_subscribe_that_takes_too_long_is_undone_and_others_keep_theirs(opened: OpenSession) -> None:
    session, peer = await opened(greeting={"supports": ["keep"]})
    holding = asyncio.create_task(session.subscribe("a/b"))
    await peer.reply(await peer.expect("subscribe"))
    held = await holding
    with pytest.raises(RequestTimedOut):
        await session.subscribe("a/**", timeout=0.01)

    undone = await peer.expect("unsubscribe")
    assert (undone["selector"], undone["keep"]) == ("a/**", ["a/b"])
    assert not held.closed


async def test_a_cancelled_unsubscribe_is_done_all_the_same(opened: OpenSession) -> None:
    session, peer = await opened(greeting={"limits": LIMITS | {"requests": 1}})
    subscribing = asyncio.create_task(session.subscribe("a"))
    await peer.reply(await peer.expect("subscribe"))
    stream = await subscribing
    publishing = asyncio.create_task(session.publish("x", 1))
    published = await peer.expect("publish")
    unsubscribing = asyncio.create_task(session.unsubscribe("a"))
    await asyncio.sleep(0)
    unsubscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unsubscribing

    assert stream.closed
    await peer.reply(published)
    await publishing
    assert (await peer.expect("unsubscribe"))["selector"] == "a"


async def test_a_stream_that_is_thrown_away_while_the_session_recovers_is_deselected_then(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    peer.answer_all()
    stream = await session.subscribe("a")
    await peer.release()
    other = await server.connection()
    del stream
    await asyncio.sleep(0)
    await other.welcome(outcome="reattached", token="token-2", received=1)

    assert (await other.expect("unsubscribe"))["selector"] == "a"


# --- Time limits ------------------------------------------------------------------------------------------------------


async def test_limits_without_an_end_mean_what_they_say(opened: OpenSession) -> None:
    session, peer = await opened(window=inf, connect_timeout=inf, request_timeout=inf)
    assert peer.first["window"] == 31 * 24 * 3600
    peer.answer_all()

    assert (await session.publish("a", 1, timeout=inf)).version == 1
    stream = await session.subscribe("a", timeout=inf)
    await session.unsubscribe("a", timeout=inf)
    assert stream.closed


@pytest.mark.parametrize("limit", [None, inf])
async def test_a_close_without_a_limit_waits_for_the_node(opened: OpenSession, limit: float | None) -> None:
    session, peer = await opened()
    closing = asyncio.create_task(session.close(timeout=limit))
    await peer.expect("bye")
    assert not closing.done()
    await peer.confirm_bye()
    await asyncio.wait_for(closing, scaled(PATIENCE))


@pytest.mark.parametrize("limit", [nan, "5"])
async def test_what_is_no_time_is_refused_before_anything_is_sent(opened: OpenSession, limit: Any) -> None:
    session, peer = await opened()
    with pytest.raises(ValueError, match="timeout is a number of seconds"):
        await session.publish("a", 1, timeout=limit)
    with pytest.raises(ValueError, match="timeout is a number of seconds"):
        await session.close(timeout=limit)

    peer.answer_all()
    assert (await session.publish("a", 2)).version == 1, "it is the first that was sent"


async def test_close_keeps_its_word_with_a_node_that_does_not_answer(
    opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the close of the WebSocket on top of its time limit."""
    monkeypatch.setattr(transport, "CLOSE_TIMEOUT", LONG)
    session, peer = await opened()
    async with time_limit():
        await session.close(timeout=0.05)
    assert session.state == "closed"
    assert (await peer.expect("bye"))["type"] == "bye"


async def test_close_keeps_its_word_while_credentials_are_fetched(server: ScriptedServer, opened: OpenSession) -> None:
    calls: list[int] = []

    async def source() -> str:
        calls.append(1)
        return await stubborn() if len(calls) > 1 else "first"

    stubborn_ends.clear()
    session, peer = await opened(credentials=source)
    await peer.close(4006, "credentials_expired")
    await eventually(lambda: len(calls) == 2)
    async with time_limit():
        await session.close(timeout=0.05)
    for task in asyncio.all_tasks():
        while not task.done() and task.get_name() == "gateway-client-credentials":
            task.cancel()
            await asyncio.sleep(0)


# --- Arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "error", "sentence"),
    [
        (lambda session: session.publish(None, 1), InvalidTopic, "the topic is a string, and not NoneType"),
        (lambda session: session.publish(b"a", 1), InvalidTopic, "the topic is a string, and not bytes"),
        (lambda session: session.publish("a", {1}), RequestRefused, "value"),
        (lambda session: session.publish("a", b"1"), RequestRefused, "value"),
        (lambda session: session.publish("a", object()), RequestRefused, "value"),
        (lambda session: session.subscribe(None), InvalidSelector, "the selector is a string, and not NoneType"),
        (lambda session: session.unsubscribe(7), InvalidSelector, "the selector is a string, and not int"),
        (lambda session: session.set_properties("abc"), InvalidProperties, "the properties are a mapping"),
        (lambda session: session.set_properties(None), InvalidProperties, "the properties are a mapping"),
        (lambda session: session.set_properties([("a", "b")]), InvalidProperties, "the properties are a mapping"),
        (lambda session: session.set_properties({"a": 1}), InvalidProperties, "'a'"),
        (lambda session: session.authenticate(None), RequestRefused, "the secret is a string, and not NoneType"),
        (lambda session: session.subscribe("a", queue_bytes=0), ValueError, "at least 1"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused_with_a_sentence_and_nothing_is_numbered(
    opened: OpenSession, ask: Callable[[Any], Awaitable[object]], error: type[Exception], sentence: str
) -> None:
    session, peer = await opened()
    with pytest.raises(error, match=sentence):
        await ask(session)
    publishing = asyncio.create_task(session.publish("a", 1))
    published = await peer.expect("publish")
    assert (published["id"], published["request"]) == (1, 1)
    await peer.reply(published)
    await publishing


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"principal": None}, "the principal is a string, and not NoneType"),
        ({"secret": b"s"}, "the secret is a string, and not bytes"),
        ({"properties": "abc"}, "the properties are a mapping"),
        ({"headers": "abc"}, "the headers are a mapping"),
        ({"window": "5"}, "window is a number of seconds"),
    ],
)
def test_arguments_of_connect_are_refused_with_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, InvalidProperties), match=sentence):
        connect("ws://h", **arguments)
