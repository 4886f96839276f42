"""Calls that are given up before their answer: nothing of them stays at the node that nobody here takes care of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from math import nan
from typing import Any, Final

import pytest

from gateway.client import (
    DurableInUse,
    HandlerFailed,
    MessageConsumer,
    NotHeld,
    Request,
    RequestRefused,
    RequestTimedOut,
    Session,
    SessionState,
)
from tests.integration.client.conftest import OpenSession
from tests.support.clock import eventually
from tests.support.scripted_server import Packet, Peer, ScriptedServer, welcome
from tests.support.times import PATIENCE, time_limit

EVERYTHING: Final = {"supports": ["questions", "queues", "durables", "history", "transactions"]}
QUEUE: Final = "jobs/render"
BRIEF: Final = 0.01
"""Seconds that nobody answers within who is to answer later."""


def message(peer: Peer, delivery: int, **fields: Any) -> Packet:
    common = {"queue": QUEUE, "sent": 5, "deliveries": 0, "headers": {}}
    return peer.numbered("message", message=100 + delivery, delivery=delivery, value=delivery, **common, **fields)


async def answered(peer: Peer, kind: str, asked: asyncio.Task[Any], **fields: Any) -> Any:
    """Answer a request, and return what comes of the call."""
    await peer.reply(await peer.expect(kind), **fields)
    async with time_limit(PATIENCE):
        return await asked


async def consuming(session: Session, peer: Peer, **how: Any) -> MessageConsumer:
    found: MessageConsumer = await answered(peer, "consume", asyncio.create_task(session.consume(QUEUE, **how)))
    return found


async def lost(session: Session, peer: Peer) -> None:
    """Lose the connection, and wait until the client knows."""
    peer.cut()
    await eventually(lambda: session.state is SessionState.RECOVERING)


async def back(server: ScriptedServer, before: Peer, *, received: int | None = None) -> Peer:
    """Let the session reattach."""
    peer = await server.connection()
    peer.sent, peer.received = before.sent, before.received if received is None else received
    await peer.welcome(outcome="reattached", token="token-2", received=peer.received, **EVERYTHING)
    return peer


async def given_up(call: Awaitable[Any]) -> None:
    with pytest.raises(RequestTimedOut):
        await call


async def handler(_: Request) -> object:
    return None


# --- What may have been begun is undone -------------------------------------------------------------------------------


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_handler_whose_registration_is_given_up_is_taken_back(opened: OpenSession, *, cancelled: bool) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    handling = asyncio.create_task(session.handle("quotes/**", handler, timeout=None if cancelled else BRIEF))
    asked = await peer.expect("handle")
    if cancelled:
        handling.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else RequestTimedOut):
        await handling
    await peer.reply(asked)

    assert (await peer.expect("unhandle"))["selector"] == "quotes/**"


async def test_a_handler_that_is_refused_needs_not_be_taken_back(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    handling = asyncio.create_task(session.handle("quotes/**", handler))
    await peer.decline(await peer.expect("handle"), "forbidden")
    with pytest.raises(RequestRefused):
        await handling
    setting = asyncio.create_task(session.set_properties({"a": "b"}))

    assert (await peer.answer())["type"] == "properties"
    await setting


async def test_a_durable_subscription_whose_opening_is_given_up_is_released(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    await given_up(session.subscribe_durable("billing", "log/**", timeout=BRIEF))
    await peer.reply(await peer.expect("durable-open"), durable={"positions": {}, "created": True})

    assert (await peer.expect("durable-release"))["name"] == "billing"


async def test_a_durable_subscription_whose_stream_is_given_up_is_released(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    opening = asyncio.create_task(session.subscribe_durable("billing", "log/**"))
    await peer.reply(await peer.expect("durable-open"), durable={"positions": {}, "created": True})
    await peer.expect("subscribe")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert (await peer.expect("durable-release"))["name"] == "billing"


async def test_why_a_durable_subscription_has_no_stream_is_told_though_its_release_is_late(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    opening = asyncio.create_task(session.subscribe_durable("billing", "log/**", timeout=0.3))
    await peer.reply(await peer.expect("durable-open"), durable={"positions": {}, "created": True})
    await peer.decline(await peer.expect("subscribe"), "forbidden")
    await peer.expect("durable-release")
    with pytest.raises(RequestRefused, match="forbidden"):
        await opening


# --- What ends something is done in any case --------------------------------------------------------------------------


async def test_a_consumer_that_is_cancelled_while_the_session_recovers_is_cancelled_then(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer)
    await lost(session, peer)
    await given_up(consumer.cancel(timeout=BRIEF))
    again = asyncio.create_task(consumer.cancel())
    peer = await back(server, peer)

    assert (await answered(peer, "cancel", again)) is None
    await consumer.cancel()
    setting = asyncio.create_task(session.set_properties({"a": "b"}))
    assert (await peer.answer())["type"] == "properties", "it is asked for once"
    await setting


async def test_a_consumer_that_is_cancelled_again_takes_nothing_from_the_next_one(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer)
    await answered(peer, "cancel", asyncio.create_task(consumer.cancel()))
    await consuming(session, peer)
    await consumer.cancel()
    setting = asyncio.create_task(session.set_properties({"a": "b"}))

    assert (await peer.answer())["type"] == "properties"
    await setting


async def test_a_handler_that_is_cancelled_while_the_session_recovers_is_cancelled_then(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    handling = await answered(peer, "handle", asyncio.create_task(session.handle("quotes/**", handler)))
    await lost(session, peer)
    await given_up(handling.cancel(timeout=BRIEF))
    again = asyncio.create_task(handling.cancel())
    peer = await back(server, peer)

    assert (await answered(peer, "unhandle", again)) is None


async def durable(session: Session, peer: Peer) -> Any:
    """Open a durable subscription."""
    opening = asyncio.create_task(session.subscribe_durable("billing", "log/**"))
    await peer.reply(await peer.expect("durable-open"), durable={"positions": {"17": "17-1-0"}, "created": True})
    await peer.reply(await peer.expect("subscribe"))
    async with time_limit(PATIENCE):
        return await opening


async def test_a_durable_stream_that_is_closed_while_the_session_recovers_is_released_then(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    stream = await durable(session, peer)
    await lost(session, peer)
    await given_up(stream.close(timeout=BRIEF))
    again = asyncio.create_task(stream.close())
    peer = await back(server, peer)

    assert (await answered(peer, "durable-release", again)) is None
    await stream.close()


async def test_a_durable_stream_that_cannot_acknowledge_in_time_is_released_nevertheless(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    stream = await durable(session, peer)
    stream._acknowledger._reached = "17-1-1"
    await given_up(stream.close(timeout=BRIEF))

    assert (await peer.expect("durable-release"))["name"] == "billing"


async def test_a_durable_stream_that_was_unsubscribed_is_released_by_its_close(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    stream = await durable(session, peer)
    await answered(peer, "unsubscribe", asyncio.create_task(session.unsubscribe("log/**")))
    assert stream.closed

    await answered(peer, "durable-release", asyncio.create_task(stream.close()))


async def test_a_durable_stream_that_was_taken_has_nothing_to_release(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    stream = await durable(session, peer)
    stream._acknowledger._reached = "17-1-1"
    acknowledging = asyncio.create_task(stream._acknowledger.tell(None))
    await peer.decline(await peer.expect("durable-advance"), "durable_in_use")
    with pytest.raises(DurableInUse):
        await acknowledging
    await stream.close()
    setting = asyncio.create_task(session.set_properties({"a": "b"}))
    assert (await peer.answer())["type"] == "unsubscribe"
    assert (await peer.answer())["type"] == "properties"
    await setting


# --- Messages ---------------------------------------------------------------------------------------------------------


async def test_a_settlement_that_is_given_up_unsent_is_done_and_told_by_the_next_call(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer, ack="each", credit=1)
    await peer.send(message(peer, 1))
    held = await anext(consumer)
    await lost(session, peer)
    await given_up(held.accept(timeout=BRIEF))
    with pytest.raises(NotHeld):
        await held.release()
    peer = await back(server, peer)
    settled = await peer.expect("settle")
    assert (settled["as"], settled["messages"]) == ("accept", [[101, 1]])
    await peer.reply(settled)
    # The answer may be there before it is asked for again, or come then.
    async with time_limit(PATIENCE):
        await held.accept()
    with pytest.raises(NotHeld):
        await held.accept()


async def test_a_settlement_that_is_refused_for_now_is_asked_again_though_nobody_waits(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer, ack="each", credit=1)
    await peer.send(message(peer, 1))
    held = await anext(consumer)
    accepting = asyncio.create_task(held.accept())
    first = await peer.expect("settle")
    accepting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await accepting
    await peer.decline(first, "grid_unavailable", retry_after=0.0)

    assert (await peer.expect("settle"))["messages"] == first["messages"]


async def test_a_message_whose_settlement_is_refused_can_be_settled_otherwise(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer, ack="each", credit=1)
    await peer.send(message(peer, 1))
    held = await anext(consumer)
    accepting = asyncio.create_task(held.accept())
    await peer.decline(await peer.expect("settle"), "forbidden")
    with pytest.raises(RequestRefused):
        await accepting
    await answered(peer, "settle", asyncio.create_task(held.release()))
    accepting = asyncio.create_task(held.accept())
    with pytest.raises(NotHeld):
        await accepting


async def test_messages_of_a_commit_that_is_cancelled_can_be_settled_otherwise(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer, ack="each", credit=1)
    await peer.send(message(peer, 1))
    held = await anext(consumer)

    async def work() -> None:
        async with session.transaction() as transaction:
            await transaction.accept(held)

    working = asyncio.create_task(work())
    for kind in ("begin", "stage"):
        await peer.reply(await peer.expect(kind))
    await peer.expect("commit")
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    await answered(peer, "settle", asyncio.create_task(held.release()))


# --- Closing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.usefixtures("no_errors")
async def test_a_message_may_come_while_a_session_closes(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    consumer = await consuming(session, peer, credit=2)
    await peer.send(*(message(peer, each) for each in (1, 2, 3)))
    await eventually(lambda: len(consumer._messages) == 3)
    closing = asyncio.create_task(session.close())
    await peer.expect("bye")
    await peer.send(message(peer, 4))
    await eventually(lambda: len(consumer._messages) == 4)
    # A reader goes on: what was received is given to it, and then there is no more.
    values = [(await anext(consumer)).value for _ in range(3)]
    await peer.confirm_bye()
    async with time_limit(PATIENCE):
        await closing
        values += [each.value async for each in consumer]
    assert values == [1, 2, 3, 4]


@pytest.mark.usefixtures("no_errors")
async def test_messages_may_come_with_the_welcome_of_a_session_that_closes(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    await consuming(session, peer, credit=1)
    await lost(session, peer)
    closing = asyncio.create_task(session.close())
    again = await server.connection()
    again.sent, again.received = peer.sent, peer.received
    await again.packet()
    greeting = {"outcome": "reattached", "token": "token-2", "received": peer.received}
    await again.send(welcome(**greeting, **EVERYTHING), message(again, 1), message(again, 2))
    await again.expect("bye")
    await again.confirm_bye()
    async with time_limit(PATIENCE):
        await closing


# --- Requests of applications -----------------------------------------------------------------------------------------


def question(peer: Peer, name: str) -> Packet:
    who = {"principal": "bob", "session": "s2"}
    return peer.numbered("question", question=name, path="quotes/ACME", timeout=60.0, value=None, **who)


async def handling(session: Session, peer: Peer, answer: Any) -> None:
    await answered(peer, "handle", asyncio.create_task(session.handle("quotes/**", answer)))
    await peer.send(question(peer, "q1"))


async def failed(peer: Peer) -> str:
    answer = await peer.expect("answer")
    assert answer["question"] == "q1"
    await peer.reply(answer)
    return str(answer["failed"])


async def test_a_handler_that_awaits_what_was_cancelled_has_failed(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)

    async def answer(_: Request) -> object:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task
        return None

    await handling(session, peer, answer)
    assert await failed(peer) == "the handler failed"


async def test_a_handler_whose_own_wait_is_over_has_failed(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)

    async def answer(_: Request) -> object:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return None

    await handling(session, peer, answer)
    assert await failed(peer) == "the handler failed"


@pytest.mark.parametrize(
    ("said", "told"),
    [("no file caf\udce9", "no file caf?"), ("x" * 100_000, "x" * 1024), ("é" * 1000, "é" * 512)],
    ids=["surrogate", "long", "wide"],
)
async def test_why_there_is_no_answer_is_told_as_far_as_it_can_be(opened: OpenSession, said: str, told: str) -> None:
    session, peer = await opened(greeting=EVERYTHING)

    async def answer(_: Request) -> object:
        raise HandlerFailed(said)

    await handling(session, peer, answer)
    assert await failed(peer) == told


async def test_an_answer_that_the_node_does_not_take_is_that_there_is_none(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)

    async def answer(_: Request) -> object:
        return 1

    await handling(session, peer, answer)
    await peer.decline(await peer.expect("answer"), "value_too_large")
    assert await failed(peer) == "the answer is too large"


@pytest.mark.usefixtures("no_errors")
async def test_closing_while_a_handler_runs_reports_nothing(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    begun = asyncio.Event()

    async def answer(_: Request) -> object:
        begun.set()
        return await asyncio.Event().wait()

    await handling(session, peer, answer)
    async with time_limit(PATIENCE):
        await begun.wait()
        peer.answer_all()
        await session.close()


async def test_a_question_that_nobody_was_given_says_so(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    for uncertain in (False, True):
        asking = asyncio.create_task(session.request("quotes/ACME"))
        asked = await peer.expect("ask")
        error = {"code": "question_timeout", "message": "nobody took it in time"}
        mark = {"uncertain": True} if uncertain else {}
        await peer.reply(asked)
        await peer.send(peer.numbered("answered", ask=asked["request"], error=error, **mark))
        with pytest.raises(RequestTimedOut, match="nobody took it in time") as told:
            await asking
        assert told.value.sent is uncertain


# --- Arguments --------------------------------------------------------------------------------------------------------


async def test_a_limit_that_makes_no_sense_is_refused_and_nothing_is_to_be_undone(opened: OpenSession) -> None:
    session, peer = await opened(greeting=EVERYTHING)
    for call in (
        session.handle("quotes/**", handler, timeout=nan),
        session.consume(QUEUE, timeout=nan),
        session.subscribe_durable("billing", "log/**", timeout=nan),
    ):
        with pytest.raises(ValueError, match="timeout is a number of seconds"):
            await call
    setting = asyncio.create_task(session.set_properties({"a": "b"}))

    assert (await peer.answer())["type"] == "properties"
    await setting
