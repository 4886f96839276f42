"""Servers of later releases, and requests that end connections: nothing of it ends a session (protocol 4.3.1, 4.8)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from gateway.client import (
    RequestFailed,
    RequestRefused,
    SessionFailed,
    SessionRefused,
    SessionState,
    ValueTooLarge,
)
from gateway.core.wire.codec import MAX_NUMBER
from gateway.core.wire.codes import ErrorCode
from tests.integration.client.conftest import OpenSession, first
from tests.support.nodes import eventually
from tests.support.scripted_server import LIMITS, Packet, ScriptedServer

NEW_FIELDS: Final[Packet] = {"weather": {"wind": [1, 2, None]}, "gateway2": "yes", "Type": 7}
"""What a later release may add to any packet."""

UNKNOWN_NUMBERING: Final[tuple[dict[str, Any], ...]] = (
    {"outcome": "beamed_up"},
    {"outcome": "beamed_up", "numbering": "shuffled"},
    {"outcome": "reattached", "numbering": "shuffled"},
    {"outcome": "failed_over", "numbering": "shuffled"},
)


# --- Outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["handed_over", "mirrored", "beamed_up", "failed_over"])
async def test_with_its_numbering_kept_a_session_goes_on_whatever_the_outcome_is_called(
    server: ScriptedServer, opened: OpenSession, outcome: str
) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    sent = await peer.expect("publish")
    again: Packet = {}
    for attempt in (1, 2):  # twice in a row: a node hands over, and so does the next
        peer.cut()
        peer = await server.connection()
        resume = await peer.welcome(outcome=outcome, numbering="kept", node=f"n{attempt}", token=f"t{attempt}")
        assert (resume["received"], resume["oldest"], resume["attempt"]) == (0, 1, attempt)
        assert resume["supports"] == ["handed_over", "mirrored", "questions", "queues", "replay", "topology"]
        again = await peer.expect("publish")
        assert again == sent, "the same packet, under the same number"
    await peer.reply(again)
    await publishing

    recoveries = session.recoveries()
    for _ in range(2):
        recovery = await anext(recoveries)
        assert (recovery.outcome, recovery.numbering) == (outcome, "kept")
        assert type(recovery.outcome + "") is str


@pytest.mark.parametrize("outcome", ["beamed_up", "reattached", "created"])
async def test_with_its_numbering_restarted_what_is_unanswered_is_asked_again(
    server: ScriptedServer, opened: OpenSession, outcome: str
) -> None:
    session, peer = await opened()
    stream = await answered(session.subscribe("a/**"), peer)
    publishing = asyncio.create_task(session.publish("a", 1))
    sent = await peer.expect("publish")
    peer.cut()
    peer = await server.connection()
    await peer.welcome(outcome=outcome, numbering="restarted", selections=["+a/**"])
    again = await peer.expect("publish")

    assert (again["id"], again["request"], again["resubmitted"]) == (1, sent["request"], True)
    await peer.reply(again)
    await publishing
    await peer.update("a/1", 3, "now", snapshot=True)
    assert (await anext(stream)).value == "now"
    assert (await anext(session.recoveries())).outcome == outcome


async def answered(asking: Any, peer: Any) -> Any:
    """Answer the one request that a call makes, and return what the call returns."""
    task = asyncio.ensure_future(asking)
    await peer.answer()
    return await task


@pytest.mark.parametrize("fields", UNKNOWN_NUMBERING)
async def test_if_nobody_can_tell_whose_numbers_count_the_client_gives_its_own_up(
    server: ScriptedServer, opened: OpenSession, fields: dict[str, Any]
) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    await peer.expect("publish")
    peer.cut()
    for attempt in range(1, 4):
        peer = await server.connection()
        resume = await peer.welcome(**fields, token=f"t{attempt}", received=1)
        if attempt > 1:
            assert (resume["received"], resume["oldest"]) == (0, MAX_NUMBER)
            assert resume["token"] == f"t{attempt - 1}"
        assert await peer.closed() == 4000
    peer = await server.connection()
    resume = await peer.welcome(outcome="failed_over", reason="gap")
    assert (resume["received"], resume["oldest"]) == (0, MAX_NUMBER)
    again = await peer.expect("publish")
    assert (again["id"], again["resubmitted"]) == (1, True)
    await peer.reply(again)
    await publishing

    assert session.state is SessionState.CONNECTED
    assert (await anext(session.recoveries())).outcome == "failed_over"
    peer.cut()
    peer = await server.connection()
    resume = await peer.welcome(outcome="reattached", received=1)
    assert resume["oldest"] == 2, "it counts again"


async def test_a_numbering_that_was_given_up_is_not_gone_on_with(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    peer.cut()
    peer = await server.connection()
    await peer.welcome(outcome="beamed_up")
    assert await peer.closed() == 4000
    peer = await server.connection()
    await peer.welcome(outcome="reattached")
    assert await peer.closed() == 4200
    peer = await server.connection()
    await peer.welcome(outcome="failed_over", reason="gap")

    assert (await anext(session.recoveries())).outcome == "failed_over"


@pytest.mark.parametrize("greeting", [{"outcome": "born"}, {"outcome": "born", "numbering": "restarted"}])
async def test_a_new_session_may_be_called_as_it_likes(opened: OpenSession, greeting: dict[str, Any]) -> None:
    session, peer = await opened(greeting=greeting)
    peer.answer_all()

    assert (await session.publish("a", 1)).version == 1


# --- Packets, codes and fields --------------------------------------------------------------------------------------


async def test_fields_of_later_releases_are_ignored_everywhere(server: ScriptedServer, opened: OpenSession) -> None:
    limits = LIMITS | {"nesting": 3, "weather": None}
    session, peer = await opened(greeting={**NEW_FIELDS, "limits": limits, "numbering": "restarted"})
    subscribing = asyncio.ensure_future(session.subscribe("a/**"))
    request = await peer.expect("subscribe")
    await peer.send(
        peer.make_reply(request, **NEW_FIELDS),
        peer.make_update("a/1", 1, "one") | NEW_FIELDS,
        {"type": "ping", **NEW_FIELDS},
        peer.numbered("notice", code="moon_landing", message="It has landed.", **NEW_FIELDS),
    )
    stream = await subscribing
    assert (await anext(stream)).value == "one"
    assert (await first(session.notices())).code == "moon_landing"
    await peer.expect("pong")
    await peer.send({"type": "go-away", "reason": "spring", "delay": 0.0, **NEW_FIELDS})
    assert await peer.closed() == 4000
    peer = await server.connection()
    await peer.welcome(outcome="reattached", received=1, numbering="kept", **NEW_FIELDS)

    assert (await anext(session.recoveries())).outcome == "reattached"


async def test_an_error_code_of_a_later_release_ends_one_request_and_nothing_else(opened: OpenSession) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    request = await peer.expect("publish")
    await peer.send(
        {"type": "error", "code": "out_of_cheese", "message": "no close follows this one"},
        peer.make_reply(request, error={"code": "out_of_cheese", "message": "please wait", "retry_after": 0.1}),
    )
    with pytest.raises(RequestFailed) as failed:
        await publishing
    assert failed.value.code is ErrorCode.INTERNAL
    peer.answer_all()
    assert (await session.publish("a", 2)).version == 2


@pytest.mark.parametrize("code", [4042, 4099, 4142, 4999, 3042])
async def test_a_close_code_of_a_later_release_means_what_its_range_says(
    server: ScriptedServer, opened: OpenSession, code: int
) -> None:
    session, peer = await opened()
    await peer.send({"type": "error", "code": "out_of_cheese", "message": "come again"})
    await peer.close(code, "as of 2031")
    peer = await server.connection()
    await peer.refuse("out_of_cheese", "not yet", 4177, retry_after=0.01)
    peer = await server.connection()
    await peer.welcome(outcome="reattached")

    assert (await anext(session.recoveries())).attempts == 2


async def test_a_close_code_that_says_not_to_come_back_is_obeyed(opened: OpenSession) -> None:
    session, peer = await opened()
    await peer.close(4277, "as of 2031")
    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionRefused)


@pytest.mark.parametrize(
    "strange",
    [
        {"type": "teleport"},
        {"id": 2, "type": "histogram", "topic": "a"},
        {"id": 2, "type": "publish", "request": 1, "topic": "a", "value": 1},
    ],
    ids=lambda packet: packet["type"],
)
async def test_a_packet_that_no_server_of_this_release_sends_is_named_and_the_session_goes_on(
    server: ScriptedServer, opened: OpenSession, strange: Packet
) -> None:
    session, peer = await opened()
    subscribing = asyncio.ensure_future(session.subscribe("a"))
    request = await peer.expect("subscribe")
    await peer.reply(request)
    await subscribing
    await peer.send(strange)
    error = await peer.expect("error")
    assert error["code"] == "unknown_packet_type"
    assert strange["type"] in error["message"]
    assert await peer.closed() == 4200
    peer = await server.connection()
    resume = await peer.welcome(outcome="reattached", received=1, numbering="kept")

    assert resume["received"] == 1
    assert (await anext(session.recoveries())).outcome == "reattached"


# --- Requests that end connections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("close", [4200, 1009, 4005, None])
async def test_a_request_that_is_named_is_dropped_and_the_session_goes_on(
    server: ScriptedServer, opened: OpenSession, close: int | None
) -> None:
    session, peer = await opened()
    calls = [asyncio.create_task(session.publish("a", number)) for number in range(3)]
    sent = [await peer.expect("publish") for _ in calls]
    await peer.send({"type": "error", "code": "message_too_big", "message": "too much", "request": 2})
    if close is None:
        await peer.send({"type": "ping"})
        await peer.expect("pong")
        peer.cut()
    else:
        await peer.close(close, "too much")
    peer = await server.connection()
    resume = await peer.welcome(outcome="failed_over", reason="gap")
    assert resume["oldest"] == 4, "what is missing cannot be resent"
    with pytest.raises(RequestRefused, match="too much") as refused:
        await calls[1]
    assert refused.value.code is ErrorCode.MESSAGE_TOO_BIG
    for number in (0, 2):
        again = await peer.expect("publish")
        assert (again["request"], again["resubmitted"]) == (sent[number]["request"], True)
        await peer.reply(again)
        await calls[number]

    assert (await anext(session.recoveries())).reason == "gap"
    assert session.state is SessionState.CONNECTED


async def test_a_request_that_is_not_there_is_no_reason_for_anything(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    await peer.send({"type": "error", "code": "internal", "message": "whatever", "request": 99})
    await peer.close(4005)
    peer = await server.connection()
    resume = await peer.welcome(outcome="reattached")

    assert resume["oldest"] == 1
    assert (await anext(session.recoveries())).outcome == "reattached"


@pytest.mark.parametrize("close", [4200, 1009])
async def test_the_oldest_unanswered_request_is_dropped_after_the_second_close_in_a_row(
    server: ScriptedServer, opened: OpenSession, close: int
) -> None:
    session, peer = await opened()
    calls = [asyncio.create_task(session.publish("a", number)) for number in range(3)]
    for culprit in range(3):  # all of them are bad, and one after the other is found out
        for outcome in ("failed_over", "reattached"):
            await peer.expect("publish")
            await peer.close(close, "that was wrong")
            peer = await server.connection()
            last = outcome == "reattached"
            await peer.welcome(outcome="failed_over" if last else "reattached")
        with pytest.raises(RequestRefused, match="that was wrong") as refused:
            await calls[culprit]
        assert refused.value.code in {ErrorCode.PROTOCOL_ERROR, ErrorCode.MESSAGE_TOO_BIG}
    peer.answer_all()
    assert (await session.publish("a", 7)).version == 4, "its own number, which was never used"


async def test_closes_for_different_requests_are_not_in_a_row(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    for number in range(1, 4):
        call = asyncio.create_task(session.publish("a", number))
        await peer.expect("publish")
        await peer.close(4200, "that was wrong")
        peer = await server.connection()
        await peer.welcome(outcome="reattached", received=number - 1)
        peer.sent = number - 1
        await peer.reply(await peer.expect("publish"))
        assert (await call).version == number
    # Nothing is unanswered any more, so that there is nothing to find out.
    await peer.close(4200, "that was wrong")
    peer = await server.connection()
    await peer.welcome(outcome="reattached", received=3)
    await peer.close(4200, "that was wrong, too")
    await session.wait_closed()

    assert isinstance(session.closed_reason, SessionFailed)


async def test_what_a_smaller_node_does_not_accept_is_not_asked_again(
    server: ScriptedServer, opened: OpenSession
) -> None:
    """4.8.3: by the newest limits, before it is resubmitted or sent for the first time."""
    session, peer = await opened()
    large = asyncio.create_task(session.publish("a", "x" * 5000))
    small = asyncio.create_task(session.publish("a", 1))
    for _ in range(2):
        await peer.expect("publish")
    peer.cut()
    await eventually(lambda: session.state is SessionState.RECOVERING)
    waiting = asyncio.create_task(session.set_properties({"note": "x" * 1024, "more": "x" * 1024}))
    peer = await server.connection()
    await peer.welcome(outcome="failed_over", limits=LIMITS | {"message_bytes": 2048})
    request = await peer.expect("publish")
    assert request["value"] == 1
    await peer.reply(request)
    await small
    with pytest.raises(ValueTooLarge):
        await large
    with pytest.raises(RequestRefused, match="bytes") as refused:
        await waiting
    assert refused.value.code is ErrorCode.BAD_PROPERTIES
    peer.answer_all()
    await session.publish("a", 2)
