"""One session on one connection: what each call sends and what its answer does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from gateway.client import (
    Connecting,
    Forbidden,
    InvalidProperties,
    InvalidSelector,
    InvalidTopic,
    InvalidValue,
    Receipt,
    RequestFailed,
    RequestRefused,
    RequestTimedOut,
    Session,
    SessionClosed,
    SessionState,
    TooManySelections,
    Update,
    ValueTooLarge,
    connect,
)
from gateway.core.wire.codes import ErrorCode
from tests.integration.client.conftest import OpenSession, first
from tests.support.nodes import eventually
from tests.support.scripted_server import LIMITS, ScriptedServer
from tests.support.times import scaled


async def test_the_hello_says_who_and_the_welcome_becomes_the_session(server: ScriptedServer) -> None:
    async with ScriptedServer() as other:
        connecting = connect([server.url, other.url], "alice", "secret", {"team": "fx"}, window=12.5)
        opening = asyncio.create_task(opened_by(connecting))
        peer = await server.connection()
        hello = await peer.welcome(window=10.0)
        session = await opening
        peer.answer_all()

        assert hello.pop("client").startswith("python/")
        assert hello == {
            "type": "hello",
            "principal": "alice",
            "secret": "secret",
            "properties": {"team": "fx"},
            "window": 12.5,
            "supports": ["handed_over", "mirrored", "questions", "queues", "replay", "topology"],
        }
        assert peer.query == {}
        assert (session.id, session.principal, session.node) == ("s1", "alice", "n1")
        assert session.properties == {"$session": "s1", "$node": "n1", "team": "fx"}
        assert session.state is SessionState.CONNECTED
        assert session.window == 10.0
        assert session.replicated
        assert "secret" not in repr(session)
        assert session.closed_reason is None
        await session.close()

        assert str(session.state) == "closed"
        assert isinstance(session.closed_reason, SessionClosed)


async def opened_by(connecting: Connecting) -> Session:
    return await connecting


async def test_both_ways_of_async_with_close_the_session(server: ScriptedServer) -> None:
    async def serve(times: int) -> None:
        for _ in range(times):
            peer = await server.connection()
            await peer.welcome()
            peer.answer_all()

    serving = asyncio.create_task(serve(2))
    async with connect(server.url) as first:
        assert first.state is SessionState.CONNECTED
    async with await connect(server.url) as second:
        assert second.state is SessionState.CONNECTED
    await serving

    assert (first.state, second.state) == (SessionState.CLOSED, SessionState.CLOSED)


@pytest.mark.promise("P4")
async def test_subscribe_returns_when_the_grid_has_accepted_and_misses_no_early_update(opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("prices/**"))
    request = await peer.expect("subscribe")

    assert request == {"type": "subscribe", "id": 1, "request": 1, "selector": "prices/**"}
    await peer.update("prices/ACME", 7, {"bid": 1}, snapshot=True)
    await asyncio.sleep(0)
    assert not subscribing.done()

    await peer.send(
        peer.make_reply(request), peer.make_update("prices/ACME", 8, {"bid": 2}), peer.make_update("x", 1, 0)
    )
    stream = await subscribing

    assert await anext(stream) == Update("prices/ACME", {"bid": 1}, 7, "0-1-7", snapshot=True)
    assert await anext(stream) == Update("prices/ACME", {"bid": 2}, 8, "0-1-8", snapshot=False)
    assert stream.waiting == 0


async def test_a_refused_subscribe_raises_and_leaves_no_stream(opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("prices/**"))
    await peer.decline(await peer.expect("subscribe"), "too_many_selections")

    with pytest.raises(TooManySelections, match="declined"):
        await subscribing
    assert len(session._supervisor.streams) == 0


async def test_unsubscribe_ends_streams_of_exactly_that_selector(opened: OpenSession) -> None:
    session, peer = await opened()
    peer.answer_all()
    wide = await session.subscribe("prices/**")
    narrow = await session.subscribe("prices/old/*/**")
    await session.unsubscribe("prices/old/**/*")  # the same topics, written in another way

    assert [update async for update in narrow] == []
    assert not wide.closed


async def test_publish_returns_the_receipt(opened: OpenSession) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("prices/ACME", {"bid": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}))
    request = await peer.expect("publish")

    assert request["value"] == {"bid": 1, "at": "2026-01-01T00:00:00+00:00"}
    await peer.reply(request, version=41, event="3-1-99")
    assert await publishing == Receipt(event_id="3-1-99", version=41)


@pytest.mark.promise("P4")
async def test_properties_change_when_the_grid_has_them(opened: OpenSession) -> None:
    session, peer = await opened()
    before = session.properties
    changing = asyncio.create_task(session.set_properties({"team": None, "desk": "7"}))
    request = await peer.expect("properties")

    assert request["set"] == {"team": None, "desk": "7"}
    assert session.properties == before
    await peer.reply(request)
    await changing
    assert session.properties == {"$session": "s1", "$node": "n1", "desk": "7"}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("forbidden", Forbidden),
        ("internal", RequestFailed),
        ("bad_topic", InvalidTopic),
        ("value_too_large", ValueTooLarge),
        ("bad_request", RequestRefused),
    ],
)
async def test_a_refusal_raises_the_error_of_its_code(opened: OpenSession, code: str, error: type[Exception]) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    await peer.decline(await peer.expect("publish"), code)

    with pytest.raises(error) as caught:
        await publishing
    assert isinstance(caught.value, RequestRefused)
    assert caught.value.code == code


def nested(levels: int) -> object:
    """Make a value of so many arrays within each other."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_what_cannot_be_right_is_refused_without_asking(opened: OpenSession) -> None:
    session, peer = await opened()

    with pytest.raises(InvalidTopic):
        await session.publish("a//b", 1)
    with pytest.raises(InvalidSelector):
        await session.subscribe("a/x*")
    with pytest.raises(InvalidSelector):
        await session.unsubscribe("")
    with pytest.raises(InvalidValue, match="JSON"):
        await session.publish("a", object())
    with pytest.raises(InvalidValue, match="surrogates"):
        await session.publish("a", {"face": "\ud83d"})
    with pytest.raises(InvalidValue, match="128 arrays and objects"):
        await session.publish("a", nested(129))
    with pytest.raises(InvalidTopic, match="surrogate"):
        await session.publish("a/\ud83d", 1)
    with pytest.raises(InvalidSelector, match="surrogate"):
        await session.subscribe("a/\ud83d/**")
    with pytest.raises(ValueTooLarge):
        await session.publish("a", "x" * LIMITS["value_bytes"])
    with pytest.raises(InvalidProperties, match=r"\$node"):
        await session.set_properties({"$node": "mine"})
    with pytest.raises(InvalidProperties):
        await session.set_properties({"count": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidProperties, match="1024"):
        await session.set_properties({"note": "x" * 1025})
    with pytest.raises(InvalidProperties, match="1 to 64"):
        await session.set_properties({"": "nameless"})
    with pytest.raises(InvalidProperties, match="surrogate"):
        await session.set_properties({"face": "\ud83d"})
    with pytest.raises(InvalidProperties, match="bytes"):
        await session.set_properties({f"note{number}": "€" * 1024 for number in range(64)})
    with pytest.raises(RequestRefused, match="bytes") as refused:
        await session.authenticate("x" * LIMITS["message_bytes"])
    assert refused.value.code is ErrorCode.MESSAGE_TOO_BIG
    with pytest.raises(RequestRefused, match="surrogates"):
        await session.authenticate("\ud83d")
    peer.answer_all()
    assert (await session.publish("a", 1)).version == 1, "the first request that was ever sent"


async def test_a_value_whose_packet_would_be_too_large_is_refused_here(opened: OpenSession) -> None:
    session, _ = await opened(greeting={"limits": LIMITS | {"value_bytes": 1_000, "message_bytes": 1_000}})

    with pytest.raises(ValueTooLarge):
        await session.publish("a" * 100, "x" * 800)


async def test_no_more_requests_are_under_way_than_the_node_allows(opened: OpenSession) -> None:
    session, peer = await opened(greeting={"limits": LIMITS | {"requests": 3}})
    publishing = asyncio.gather(*(session.publish("a", value) for value in range(8)))
    first = [await peer.expect("publish") for _ in range(3)]
    with pytest.raises(TimeoutError):
        await peer.expect("publish", within=0.05)
    for request in first:
        await peer.reply(request)
    rest = [await peer.answer() for _ in range(5)]
    receipts = await publishing

    assert [request["value"] for request in (*first, *rest)] == list(range(8))
    assert [receipt.version for receipt in receipts] == list(range(1, 9))


async def test_requests_of_one_turn_of_the_loop_are_one_message(opened: OpenSession) -> None:
    session, peer = await opened()
    await peer.expect("ack")
    publishing = asyncio.gather(*(session.publish("a", value) for value in range(5)))
    await peer.packet()

    assert len(peer._waiting) == 4
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing


async def test_a_cancelled_call_leaves_the_session_healthy(opened: OpenSession) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    request = await peer.expect("publish")
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    await peer.reply(request)
    peer.answer_all()

    assert (await session.publish("a", 2)).version == 2


async def test_a_call_that_takes_too_long_says_whether_it_was_sent(opened: OpenSession) -> None:
    session, peer = await opened(greeting={"limits": LIMITS | {"requests": 1}}, request_timeout=scaled(0.05))
    sent = asyncio.create_task(session.publish("a", 1, timeout=scaled(0.1)))
    request = await peer.expect("publish")
    with pytest.raises(RequestTimedOut) as not_sent:
        await session.publish("a", 2)
    with pytest.raises(TimeoutError) as was_sent:
        await sent

    assert not not_sent.value.sent
    assert isinstance(was_sent.value, RequestTimedOut)
    assert was_sent.value.sent
    await peer.reply(request)
    peer.answer_all()
    assert (await session.publish("a", 3, timeout=scaled(5))).version == 2, "what was not sent in time is never sent"


@pytest.mark.parametrize("code", ["grid_unavailable", "draining", "rate_limited"])
async def test_a_request_refused_for_now_is_asked_again_under_a_new_number(opened: OpenSession, code: str) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    await peer.decline(await peer.expect("publish"), code, retry_after=0.01)
    again = await peer.expect("publish")

    assert (again["request"], again["id"], again["value"]) == (2, 2, 1)
    assert "resubmitted" not in again
    await peer.reply(again)
    assert (await publishing).version == 2


async def test_calls_refused_for_now_keep_their_order(opened: OpenSession) -> None:
    session, peer = await opened()
    publishing = asyncio.gather(*(session.publish("a", value) for value in range(4)))
    requests = [await peer.expect("publish") for _ in range(4)]
    await peer.reply(requests[0])
    for request in requests[1:]:
        await peer.decline(request, "grid_unavailable", retry_after=0.01)
    probe = await peer.expect("publish")
    with pytest.raises(TimeoutError):
        await peer.expect("publish", within=0.05)
    await peer.reply(probe)
    rest = [await peer.answer() for _ in range(2)]
    await publishing

    assert [probe["value"], *(request["value"] for request in rest)] == [1, 2, 3]


async def test_updates_are_acknowledged_alone_after_a_while_and_with_requests_at_once(opened: OpenSession) -> None:
    session, peer = await opened()
    assert (await peer.packet()) == {"type": "ack", "received": 0}, "the proof that the token has arrived"
    await peer.update("a", 1, 1)
    assert (await peer.packet()) == {"type": "ack", "received": 1}
    await peer.update("a", 2, 2)
    publishing = asyncio.create_task(session.publish("b", 1))
    request = await peer.expect("publish")
    await peer.reply(request)
    await publishing

    assert request.get("received", 1) in {1, 2}


async def test_the_node_that_has_a_copy_is_told(opened: OpenSession) -> None:
    session, _ = await opened(greeting={"backup": "n2", "mirror": "sync"})
    assert (session.node, session.backup, session.mirror) == ("n1", "n2", "sync")


async def test_pings_are_answered(opened: OpenSession) -> None:
    _, peer = await opened()
    await peer.update("a", 1, 1)
    await peer.send({"type": "ping"})

    assert (await peer.expect("pong"))["received"] == 1


async def test_notices_reach_the_application(opened: OpenSession) -> None:
    session, peer = await opened()
    await peer.send(peer.numbered("notice", code="grid_lost_writes", message="the grid lost writes"))
    notices = session.notices()
    notice = await anext(notices)

    assert (notice.code, notice.message) == ("grid_lost_writes", "the grid lost writes")
    assert (await anext(session.notices())) == notice, "also for who asks later"


async def test_unknown_fields_and_replies_nobody_waits_for_are_ignored(opened: OpenSession) -> None:
    session, peer = await opened()
    await peer.send(peer.numbered("reply", request=77, colour="red"))
    peer.answer_all()

    assert (await session.publish("a", 1)).version == 1


async def test_close_says_bye_and_ends_everything(opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a"))
    await peer.answer()
    stream = await subscribing
    await peer.update("a", 1, 1)
    await eventually(lambda: stream.waiting == 1)
    publishing = asyncio.create_task(session.publish("a", 1))
    await peer.expect("publish")
    closing = asyncio.create_task(session.close())
    assert (await peer.expect("bye"))["reason"]
    await peer.confirm_bye()
    await closing
    await session.close()
    await session.wait_closed()

    assert [update.value async for update in stream] == [1], "what had come is still delivered"
    assert [recovery async for recovery in session.recoveries()] == []
    assert [notice async for notice in session.notices()] == []
    with pytest.raises(SessionClosed):
        await publishing
    with pytest.raises(SessionClosed):
        await session.publish("a", 1)
    assert session.state is SessionState.CLOSED


async def test_closing_takes_a_bounded_time_even_if_nobody_answers(opened: OpenSession) -> None:
    session, peer = await opened()
    await session.close(timeout=0.05)

    assert session.state is SessionState.CLOSED
    assert (await peer.expect("bye"))["type"] == "bye"


async def test_calls_during_the_close_are_refused(opened: OpenSession) -> None:
    session, peer = await opened()
    closing = asyncio.create_task(session.close())
    await peer.expect("bye")

    with pytest.raises(SessionClosed):
        await session.publish("a", 1)
    await peer.confirm_bye()
    await closing


async def test_a_session_ended_by_an_administrator_raises_for_every_waiter(opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a"))
    await peer.answer()
    stream = await subscribing
    publishing = asyncio.create_task(session.publish("a", 1))
    reading = asyncio.create_task(anext(stream))
    listening = asyncio.create_task(first(session.recoveries()))
    await peer.expect("publish")
    await peer.send({"type": "bye", "reason": "maintenance"})
    await peer.close(4205, "session_closed")

    for waiter in (publishing, reading, listening):
        with pytest.raises(SessionClosed, match="maintenance"):
            await waiter
    await session.wait_closed()
    assert str(session.closed_reason) == "the node ended the session: maintenance"


async def test_how_many_updates_one_took_the_place_of_comes_from_the_wire_to_the_application(
    opened: OpenSession,
) -> None:
    """Protocol 6.4; what the server folded and what the stream folded are told by the same mark."""
    session, peer = await opened()
    subscribing = asyncio.ensure_future(session.subscribe("a/**", queue_size=2))
    await peer.answer()
    stream = await subscribing
    await peer.send(peer.make_update("a/1", 1, "one"), peer.make_update("a/1", 5, "five") | {"folded": 3})
    assert [(await anext(stream)).folded for _ in range(2)] == [0, 3]
    assert stream.conflated == 3

    marked = [peer.make_update("a/1", 5 + 3 * number, number) | {"folded": 2} for number in range(1, 4)]
    await peer.send(*marked, {"type": "ping"})
    await peer.expect("pong")
    update = await anext(stream)
    assert (update.version, update.folded) == (14, 8), "three marks of two each, and two that made room here"
    assert stream.conflated == 3 + 8
