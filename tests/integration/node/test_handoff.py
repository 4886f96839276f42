"""A session that comes to another node while the one that has served it lives goes on as if nothing had been (P12)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.delivery.replay import replays
from gateway.app.session.cuts import Cuts
from gateway.app.session.request_lane import RequestLane
from gateway.app.session.session import Session
from gateway.catalogue.log_events import CONNECTION_FAILED
from gateway.core.session.handoff import GONE, OFFER, TAKE, TAKEN, UNCLAIMED, Given, Take, encode_offer
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, SessionId, TopicPath
from gateway.core.wire.codes import FENCED, TRY_LATER
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import (
    SUPPORTS,
    held,
    held_by,
    last_id,
    live_after,
    published,
    publisher,
    resumed,
    subscribed,
    values,
)
from tests.support.times import scaled

A = topic_partition(TopicPath("a"), 1)

pytestmark = pytest.mark.promise("P12")


async def test_a_client_that_comes_to_another_node_goes_on_where_it_was(two: tuple[TestNode, TestNode]) -> None:
    """H1, H2: the numbers go on, every update comes once and in order, from the buffer, the stream, and live."""
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n1.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        await ask.publish("a/x", 1)
        await raw.expect("update")
        received = last_id(raw)
        await ask.publish("a/x", 2)
        await raw.cut()
        await ask.publish("a/y", 3)
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            await again.send({"type": "ack", "received": received})
            assert (back["outcome"], back["numbering"], back["lost"]) == ("handed_over", "kept", 0)
            assert (back["received"], back["node"]) == (1, "n2")
            assert "replayed" not in back
            await ask.publish("a/x", 4)
            assert await values(again, 3) == live_after(received, ("a/x", 2), ("a/y", 3), ("a/x", 4))
            await published(again, 2, "c", 5)
        assert held(n1, welcome) is None
        await eventually(lambda: not len(n1.gateway.node.sessions.former))


async def test_a_client_whose_connection_stands_still_leaves_it_by_the_handoff(two: tuple[TestNode, TestNode]) -> None:
    """The former owner stops serving it, with the code for that."""
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n2.url) as again:
        welcome = await subscribed(raw, "a/**")
        back = await resumed(again, welcome["token"], received=last_id(raw), oldest=2)
        assert back["outcome"] == "handed_over"
        assert await raw.closed() == FENCED.code


async def test_who_does_not_name_the_outcome_fails_over_as_before(two: tuple[TestNode, TestNode]) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n2.url) as again:
        welcome = await raw.hello()
        back = await again.resume(welcome["token"], attempt=1)
        assert (back["outcome"], back["reason"]) == ("failed_over", "other_node")
        assert not len(n1.gateway.node.sessions.former)


async def test_back_and_forth_without_traffic(two: tuple[TestNode, TestNode]) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        received = last_id(raw)
    token = welcome["token"]
    for attempt, node in enumerate((n2, n1, n2, n1), 1):
        async with RawClient(node.url) as again:
            back = await resumed(again, token, attempt=attempt, received=received, oldest=2)
            assert back["outcome"] == "handed_over"
            token = back["token"]
            await again.send({"type": "ack", "received": received})
            other = n1 if node is n2 else n2
            await eventually(lambda other=other: not len(other.gateway.node.sessions.former))  # type: ignore[misc]
    async with RawClient(n1.url) as last, RawClient(n2.url) as bob:
        await resumed(last, token, attempt=9, received=received, oldest=2)
        await (await publisher(bob)).publish("a/x", 1)
        assert await values(last, 1) == [(received + 1, "a/x", 1, False)]


@pytest.mark.parametrize("fault", ["cut", "deaf", "slow"])
async def test_without_an_answer_in_time_the_session_fails_over_as_before(
    linked: LinkedNodes, two: tuple[TestNode, TestNode], fault: str
) -> None:
    """And what comes too late is ignored; the former owner serves it no more either way."""
    n1, n2 = two
    one, other = n1.gateway.me, n2.gateway.me
    async with RawClient(n1.url) as raw, RawClient(n2.url) as again:
        welcome = await subscribed(raw, "a/**")
        match fault:
            case "cut":
                linked.network.cut(one, other)
            case "deaf":
                linked.network.stall(one, other)
            case _:
                linked.network.delay(scaled(1.0), one, other)
        back = await resumed(again, welcome["token"], received=last_id(raw), oldest=2)
        assert (back["outcome"], back["reason"], back["lost"]) == ("failed_over", "other_node", None)
        await eventually(lambda: held(n1, welcome) is None)
        assert held(n2, welcome) is not None


@pytest.mark.promise("P20")
async def test_a_storm_does_not_ask_for_all_its_sessions_at_once(
    linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """claims_at_once holds until a session is there: were all asked for together, most would be given too late."""
    async with linked.run("n1", "n2", claims_at_once=2) as (n1, n2), AsyncExitStack() as stack:
        links = n2.gateway.node.links
        assert links is not None
        ask, asking, most = links.links.ask, 0, 0

        async def counted(*arguments: Any, **named: Any) -> bytes:
            nonlocal asking, most
            asking += 1
            most = max(most, asking)
            answer = await ask(*arguments, **named)
            asking -= 1
            return answer

        monkeypatch.setattr(links.links, "ask", counted)
        tokens = []
        for _ in range(6):
            async with RawClient(n1.url) as raw:
                tokens.append((await raw.hello(**SUPPORTS))["token"])
        clients = [await stack.enter_async_context(RawClient(n2.url)) for _ in tokens]
        back = await asyncio.gather(*(resumed(each, token) for each, token in zip(clients, tokens, strict=True)))
        assert [each["outcome"] for each in back] == ["handed_over"] * len(tokens)
        assert 1 <= most <= 2


async def test_a_gap_at_the_former_owner_is_declared_by_the_next(two: tuple[TestNode, TestNode]) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n2.url) as again:
        welcome = await subscribed(raw, "a/**")
        session = held(n1, welcome)
        assert session is not None
        await raw.cut()
        await eventually(lambda: not session.connected)
        async with RawClient(n1.url) as bob:
            await (await publisher(bob)).publish("a/x", 1, 2, 3)
        await eventually(lambda: session.machine.unacknowledged >= 3)
        session.machine.give_up()
        back = await resumed(again, welcome["token"], received=last_id(raw), oldest=2)
        assert (back["outcome"], back["reason"], back["numbering"]) == ("failed_over", "gap", "restarted")
        assert back["lost"] == 3
        assert await values(again, 1) == [(1, "a/x", 3, True)]


@pytest.mark.promise("P6")
async def test_no_value_is_older_than_what_was_handed_over(
    two: tuple[TestNode, TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former owner serves on until it is asked; what it has for the client then is newer than its resume."""
    n1, n2 = two
    monkeypatch.setattr(replays, "PATIENCE", 0.01)
    here = n2.gateway.node.sessions.delivery
    async with (
        RawClient(n1.url) as bob,
        RawClient(n1.url) as raw,
        RawClient(n2.url) as other,
        RawClient(n2.url) as back,
    ):
        ask = await publisher(bob)
        await ask.publish("a/x", 1)
        await subscribed(other, "a/**")
        welcome = await subscribed(raw, "a/**")
        received = last_id(raw)
        # The former owner cannot tell how far it had come, so that current values follow what it had for the client.
        monkeypatch.setattr(n1.gateway.node.sessions.delivery, "cuts", lambda _: Cuts({}, {}))
        asked = SessionTaker._asked

        async def after_a_publish(taker: SessionTaker, *what: Any) -> Given:
            # The new owner is as new as the grid was when the client came, and then falls behind.
            await here.barrier.wait([A], here._clock.monotonic())
            here.replicas._tail.pause(A)
            await ask.publish("a/x", 2)
            session = held_by(n1, welcome)
            await eventually(lambda: bool(session.machine.waiting or session.machine.last_numbered > received))
            return await asked(taker, *what)

        monkeypatch.setattr(SessionTaker, "_asked", after_a_publish)
        await raw.cut()
        again = await resumed(back, welcome["token"], received=received)
        assert again["outcome"] == "handed_over"
        assert [(value, snapshot) for _, _, value, snapshot in await values(back, 1)] == [(2, False)]
        here.replicas._tail.resume(A)
        assert [(value, snapshot) for _, _, value, snapshot in await values(back, 1)] == [(2, True)]
        await ask.publish("a/x", 3)
        assert [(value, snapshot) for _, _, value, snapshot in await values(back, 1)] == [(3, False)]


async def test_requests_go_along_and_each_has_one_reply(
    two: tuple[TestNode, TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: what had begun may have been executed, and is done again as such; what waited is done for the first time."""
    n1, n2 = two
    topics = n1.gateway.node._context.grid.topics
    execute, asked, answer = topics.publish, asyncio.Event(), asyncio.Event()

    async def slow(commands: Any) -> Any:
        done = await execute(commands)
        asked.set()
        await answer.wait()
        return done

    async with RawClient(n1.url) as raw, RawClient(n2.url) as again, RawClient(n2.url) as watcher:
        await subscribed(watcher, "p")
        welcome = await raw.hello(**SUPPORTS)
        monkeypatch.setattr(topics, "publish", slow)
        await raw.send(
            {"id": 1, "type": "publish", "request": 1, "topic": "p", "value": 1},
            {"id": 2, "type": "subscribe", "request": 2, "selector": "p"},
            {"id": 3, "type": "publish", "request": 3, "topic": "p", "value": 2},
        )
        await asked.wait()
        session = held(n1, welcome)
        assert session is not None
        await eventually(lambda: len(session.pending) == 3)
        back = await resumed(again, welcome["token"], received=0, oldest=1)
        assert (back["outcome"], back["received"]) == ("handed_over", 3)
        replies = [await again.expect("reply") for _ in range(3)]
        assert [(each["request"], "error" in each) for each in replies] == [(1, False), (2, False), (3, False)]
        assert [value for _, _, value, _ in await values(watcher, 2)] == [1, 2]
        answer.set()
        assert not [each for each in again.seen if each["type"] == "reply" and each["request"] > 3]


async def test_what_a_subscribe_still_owes_is_sent_by_the_next_node(
    two: tuple[TestNode, TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n1.url) as bob, RawClient(n2.url) as again:
        await (await publisher(bob)).publish("a/x", 1)
        feeds = n1.gateway.node.sessions.flusher.feeds
        monkeypatch.setattr(feeds, "_serve", lambda _: None)
        welcome = await raw.hello(**SUPPORTS)
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("reply")
        received = last_id(raw)
        back = await resumed(again, welcome["token"], received=received, oldest=2)
        assert back["outcome"] == "handed_over"
        assert await values(again, 1) == [(received + 1, "a/x", 1, True)]
        notice = await again.expect("notice")
        assert (notice["code"], notice["request"]) == ("snapshots_complete", 1)


@pytest.mark.parametrize(
    "others", [(), ("b/y",)], ids=["a partition of its own", "a partition that it follows already"]
)
async def test_a_subscribe_that_is_written_and_no_more_brings_its_values_at_the_next_node(
    two: tuple[TestNode, TestNode], monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    """Found: its node was suspended between the write and the answer, and the next one took the values for known."""
    n1, n2 = two
    store = n1.gateway.node._context.grid.sessions
    change, written, answer = store.change, asyncio.Event(), asyncio.Event()

    async def slow(*what: Any) -> None:
        await change(*what)
        written.set()
        await answer.wait()

    async with RawClient(n1.url) as raw, RawClient(n1.url) as bob, RawClient(n2.url) as again:
        ask = await publisher(bob)
        await ask.publish("b/x", 1)
        welcome = await subscribed(raw, "a/**", *others)
        received, number = last_id(raw), len(others) + 2
        monkeypatch.setattr(store, "change", slow)
        await raw.send({"id": number, "type": "subscribe", "request": number, "selector": "b/**"})
        await written.wait()
        # The next node does not come to execute it before something is published.
        begin = RequestLane._begin

        def begin_others(lane: RequestLane[Session], of: Session) -> None:
            if of.id != welcome["session"]:
                begin(lane, of)

        monkeypatch.setattr(RequestLane, "_begin", begin_others)
        back = await resumed(again, welcome["token"], received=received, oldest=number)
        assert back["outcome"] == "handed_over"
        await ask.publish("b/x", 2)
        assert [each[1:] for each in await values(again, 2)] == [("b/x", 1, True), ("b/x", 2, False)]
        answer.set()


async def test_a_third_node_has_the_session_when_the_second_dies_before_a_word_of_the_client(
    three: tuple[TestNode, TestNode, TestNode],
) -> None:
    """The first node keeps it until the client was heard, and gives it to the later claim only (H3)."""
    n1, n2, n3 = three
    async with RawClient(n1.url) as raw, RawClient(n1.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        received = last_id(raw)
        await raw.cut()
        await ask.publish("a/x", 1)
        async with RawClient(n2.url) as second:
            assert (await resumed(second, welcome["token"], received=received, oldest=2))["outcome"] == "handed_over"
            await n2.gateway.close()
        async with RawClient(n3.url) as third:
            back = await resumed(third, welcome["token"], attempt=2, received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("handed_over", 0)
            await ask.publish("a/x", 2)
            assert await values(third, 2) == [(received + 1, "a/x", 1, False), (received + 2, "a/x", 2, False)]


@pytest.mark.parametrize("is_away", [False, True], ids=["its client came there", "it was parked there"])
async def test_a_node_that_has_yet_to_bring_a_session_up_to_date_gives_it_as_it_came(
    three: tuple[TestNode, TestNode, TestNode], monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """H2: the node before is gone by then, so nobody else could tell how far the session had come."""
    n1, n2, n3 = three
    replays = n2.gateway.node.sessions.delivery.replays
    collecting, collect = asyncio.Event(), replays.collect

    async def held_up(*what: Any) -> Any:
        collecting.set()
        await asyncio.Event().wait()
        return await collect(*what)

    monkeypatch.setattr(replays, "collect", held_up)
    async with RawClient(n1.url) as raw, RawClient(n3.url) as bob, RawClient(n2.url) as second:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        received, attempt = last_id(raw), 1
        if is_away:
            session = held_by(n1, welcome)
            await raw.cut()
            await eventually(lambda: session.on_clock)
            assert n1.gateway.node.links is not None
            offer = encode_offer([Take(session.id, session.epoch)])
            asking = n1.gateway.node.links.links.ask(n2.gateway.me, OFFER, offer, within=scaled(60.0))
            coming: asyncio.Task[Any] = asyncio.create_task(asking)
        else:
            coming = asyncio.create_task(resumed(second, welcome["token"], received=received, oldest=2))
            attempt = 2
        await collecting.wait()
        await n1.gateway.close()
        await ask.publish("a/x", 1)
        async with RawClient(n3.url) as third:
            back = await resumed(third, welcome["token"], attempt=attempt, received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("handed_over", 0)
            await ask.publish("a/x", 2)
            assert await values(third, 2) == live_after(received, ("a/x", 1), ("a/x", 2))
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


@pytest.mark.promise("P2")
async def test_what_a_client_has_outgrown_is_not_gone_on_with(
    linked: LinkedNodes, three: tuple[TestNode, TestNode, TestNode]
) -> None:
    """n1 answers too late, n2 serves the client anew and dies: what n1 still keeps is of an earlier numbering."""
    n1, n2, n3 = three
    async with RawClient(n1.url) as raw, RawClient(n3.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        linked.network.delay(scaled(1.0), n1.gateway.me, n2.gateway.me)
        async with RawClient(n2.url) as second:
            anew = await resumed(second, welcome["token"], received=last_id(raw), oldest=2)
            assert anew["outcome"] == "failed_over"
            await ask.publish("a/x", 1, 2)
            received = (await values(second, 2))[0][0]
            assert received <= last_id(raw), "its packet ids tell nothing"
            assert SessionId(welcome["session"]) in n1.gateway.node.sessions.former
            await n2.gateway.close()
        async with RawClient(n3.url) as third:
            back = await resumed(third, anew["token"], attempt=2, received=received, oldest=1)
            assert (back["outcome"], back["reason"], back["lost"]) == ("failed_over", "other_node", None)


@pytest.mark.promise("P3")
async def test_the_later_claim_has_the_session_though_it_asks_later(
    linked: LinkedNodes, three: tuple[TestNode, TestNode, TestNode]
) -> None:
    """H3: the node that claimed first hears of it, closes its connection, and what comes for it is ignored."""
    n1, n2, n3 = three
    async with RawClient(n1.url) as raw, RawClient(n2.url) as second, RawClient(n3.url) as third:
        welcome = await subscribed(raw, "a/**")
        received = last_id(raw)
        linked.network.stall(n2.gateway.me, n1.gateway.me)
        asking = asyncio.create_task(resumed(second, welcome["token"], attempt=1, received=received, oldest=2))
        await eventually(lambda: held(n2, welcome) is not None)
        back = await resumed(third, welcome["token"], attempt=2, received=received, oldest=2)
        await third.send({"type": "ack", "received": received})
        assert (back["outcome"], back["lost"]) == ("handed_over", 0)
        refused = await asking
        assert (refused["type"], refused["code"]) == ("error", "try_later")
        assert await second.closed() == TRY_LATER.code
        assert held(n2, welcome) is None
        assert held(n3, welcome) is not None
        assert not n2.log.of(CONNECTION_FAILED)


async def test_a_claim_that_is_not_in_the_grid_takes_nothing(two: tuple[TestNode, TestNode]) -> None:
    """Whatever is said over a link: the node serves on (P3)."""
    n1, n2 = two
    links = n2.gateway.node.links
    assert links is not None
    async with RawClient(n1.url) as raw, RawClient(n1.url) as bob:
        welcome = await subscribed(raw, "a/**")
        session = held(n1, welcome)
        assert session is not None
        for epoch in (2, 9):
            question = Take(session.id, Epoch(epoch)).encode()
            answer = await links.links.ask(n1.gateway.me, TAKE, question, within=scaled(5))
            assert Given.decode(answer) == UNCLAIMED
        await (await publisher(bob)).publish("a/x", 1)
        assert [value for _, _, value, _ in await values(raw, 1)] == [1]


@pytest.mark.promise("P3")
async def test_what_is_kept_of_a_session_is_for_its_owner_alone(three: tuple[TestNode, TestNode, TestNode]) -> None:
    """A node that says it has claimed it, or serves it, gets nothing and spoils nothing by that."""
    n1, n2, n3 = three
    links, former = n3.gateway.node.links, n1.gateway.node.sessions.former
    assert links is not None
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        received = last_id(raw)
        await raw.cut()
        async with RawClient(n2.url) as second:
            assert (await resumed(second, welcome["token"], received=received, oldest=2))["outcome"] == "handed_over"
            for epoch in (2, 9):
                said = Take(SessionId(welcome["session"]), Epoch(epoch)).encode()
                links.links.send(n1.gateway.me, TAKEN, said)
                answer = await links.links.ask(n1.gateway.me, TAKE, said, within=scaled(5))
                assert Given.decode(answer) == (GONE if epoch == 2 else UNCLAIMED)
            assert len(former) == 1
            await n2.gateway.close()
        async with RawClient(n3.url) as third:
            back = await resumed(third, welcome["token"], attempt=2, received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("handed_over", 0)
