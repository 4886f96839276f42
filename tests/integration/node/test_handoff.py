"""A session that comes to another node while the one that has served it lives goes on as if nothing had been (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import permutations
from typing import Any

import pytest

from gateway.app.session.session import Session
from gateway.catalogue.log_events import CONNECTION_FAILED, SESSIONS_PASSED_ON
from gateway.core.policy.revocations import RevocationKind
from gateway.core.session.handoff import GONE, OFFER, TAKE, TAKEN, UNCLAIMED, Given, Take
from gateway.core.types import Epoch, SessionId
from gateway.core.wire.codes import FENCED, GOING_AWAY, TRY_LATER
from gateway.ports.administration import Conflict
from tests.support.clock import eventually as sooner_or_later
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import Packet, RawClient
from tests.support.times import scaled

SUPPORTS: dict[str, Any] = {"supports": ["handed_over", "mirrored", "replay"]}

pytestmark = pytest.mark.promise("P12")


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> LinkedNodes:
    return LinkedNodes(monkeypatch)


@pytest.fixture
async def two(linked: LinkedNodes) -> AsyncIterator[tuple[TestNode, TestNode]]:
    async with linked.run("n1", "n2") as (n1, n2):
        yield n1, n2


@pytest.fixture
async def three(linked: LinkedNodes) -> AsyncIterator[tuple[TestNode, TestNode, TestNode]]:
    async with linked.run("n1", "n2", "n3") as (n1, n2, n3):
        yield n1, n2, n3


def held(node: TestNode, welcome: Packet) -> Session | None:
    return node.gateway.node.sessions.get(SessionId(welcome["session"]))


def held_by(node: TestNode, welcome: Packet) -> Session:
    session = held(node, welcome)
    assert session is not None
    return session


class Publisher:
    """Somebody who publishes, at one node."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.number = 0

    async def publish(self, topic: str, *values: object) -> None:
        for value in values:
            self.number += 1
            number = self.number
            await self.raw.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": value})
            await self.raw.expect("reply")


async def publisher(raw: RawClient) -> Publisher:
    await raw.hello("bob")
    return Publisher(raw)


async def subscribed(raw: RawClient, *selectors: str, **hello: Any) -> Packet:
    """Open a session that selects something; returns the welcome."""
    welcome = await raw.hello(**(SUPPORTS | hello))
    for number, selector in enumerate(selectors, 1):
        await raw.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
        await raw.expect("reply")
        await raw.expect("notice")
    return welcome


def last_id(raw: RawClient) -> int:
    return max((packet["id"] for packet in raw.seen if "id" in packet), default=0)


async def resumed(raw: RawClient, token: str, *, attempt: int = 1, **more: Any) -> Packet:
    return await raw.resume(token, attempt=attempt, **(SUPPORTS | more))


async def values(raw: RawClient, count: int) -> list[tuple[int, str, Any, bool]]:
    """Return the next updates: id, topic, value, and whether it is a snapshot."""
    found = [await raw.expect("update") for _ in range(count)]
    return [(each["id"], each["topic"], each["value"], each.get("snapshot", False)) for each in found]


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
            assert await values(again, 3) == [
                (received + 1, "a/x", 2, False),
                (received + 2, "a/y", 3, False),
                (received + 3, "a/x", 4, False),
            ]
            await again.send({"id": 2, "type": "publish", "request": 2, "topic": "c", "value": 5})
            assert (await again.expect("reply"))["request"] == 2
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


async def test_a_drain_mutes_nobody_and_waits_for_those_who_are_on_their_way(two: tuple[TestNode, TestNode]) -> None:
    """H5: the node goes on delivering until the session is taken, connected or not."""
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n2.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        await ask.publish("a/x", 1)
        await raw.expect("update")
        drain = asyncio.create_task(n1.gateway.drain())
        go_away = await raw.expect("go-away")
        assert "update" in [packet["type"] for packet in raw.seen], "it is told to go with updates unacknowledged"
        await ask.publish("a/x", 2)
        assert [value for _, _, value, _ in await values(raw, 1)] == [2]
        received = last_id(raw)
        await raw.ws.close()
        session = held(n1, welcome)
        assert session is not None
        await eventually(lambda: not session.connected)
        await ask.publish("a/x", 3)
        await eventually(lambda: session.machine.unacknowledged >= 3)
        assert not drain.done()
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["lost"], back["resent"]) == ("handed_over", 0, 1)
            assert not drain.done(), "nobody knows yet that the client is there"
            await again.send({"type": "ack", "received": received})
            await drain
            await ask.publish("a/x", 4)
            assert [value for _, _, value, _ in await values(again, 2)] == [3, 4]
        assert go_away["delay"] == 0


async def test_a_move_by_an_administrator_is_a_handoff(two: tuple[TestNode, TestNode]) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n2.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        received = last_id(raw)

        async def knows() -> bool:
            try:
                return (await n1.gateway.node.administration.sessions.move(welcome["session"], "n2")) == "n2"
            except Conflict:
                return False

        await sooner_or_later(knows)
        assert (await raw.expect("go-away"))["node"] == "n2"
        await ask.publish("a/x", 1)
        assert [value for _, _, value, _ in await values(raw, 1)] == [1]
        await raw.ws.close()
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["resent"]) == ("handed_over", 1)


async def test_a_client_that_knows_no_handoff_is_moved_as_before(two: tuple[TestNode, TestNode]) -> None:
    """It is told to go when it has acknowledged everything, and is sent nothing from then on."""
    n1, n2 = two
    async with RawClient(n1.url) as raw, RawClient(n2.url) as bob:
        ask = await publisher(bob)
        welcome = await raw.hello()
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("reply")
        drain = asyncio.create_task(n1.gateway.drain())
        session = held(n1, welcome)
        assert session is not None
        await eventually(lambda: session.muted)
        await ask.publish("a/x", 1)
        await raw.send({"type": "ack", "received": last_id(raw)})
        await raw.expect("go-away")
        assert "update" not in [packet["type"] for packet in raw.seen]
        await raw.ws.close()
        await drain
        async with RawClient(n2.url) as again:
            back = await again.resume(welcome["token"], attempt=1, received=last_id(raw), oldest=2)
            assert (back["outcome"], back["reason"]) == ("failed_over", "other_node")
            assert [value for _, _, value, _ in await values(again, 1)] == [1]


async def test_what_absent_clients_are_owed_outlives_a_planned_stop(linked: LinkedNodes) -> None:
    """The session goes to a node that stays, which keeps on numbering for it, and is reattached there."""
    async with linked.run("n1", "n2") as (n1, n2), RawClient(n1.url) as raw, RawClient(n2.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**", window=600.0)
        received = last_id(raw)
        await raw.cut()
        session = held(n1, welcome)
        assert session is not None
        await eventually(lambda: not session.connected)
        await ask.publish("a/x", 1)
        await eventually(lambda: session.machine.last_numbered == received + 1)

        await n1.gateway.drain()

        kept = held(n2, welcome)
        assert kept is not None
        assert held(n1, welcome) is None
        assert not len(n1.gateway.node.sessions.former)
        assert n1.log.of(SESSIONS_PASSED_ON) == [{"sessions": 1, "left": 0}]
        await n1.gateway.close()
        await ask.publish("a/y", 2)
        await eventually(lambda: kept.machine.last_numbered == received + 2)
        async with RawClient(n2.url) as back:
            again = await resumed(back, welcome["token"], received=received, oldest=2)
            assert (again["outcome"], again["resent"], again["lost"]) == ("reattached", 2, 0)
            await ask.publish("a/x", 3)
            assert await values(back, 3) == [
                (received + 1, "a/x", 1, False),
                (received + 2, "a/y", 2, False),
                (received + 3, "a/x", 3, False),
            ]


async def test_an_absent_session_goes_from_stop_to_stop(three: tuple[TestNode, TestNode, TestNode]) -> None:
    """As in a rolling restart: whoever stops passes on what others have passed on to it."""
    n1, *others = three
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**", window=600.0)
        received = last_id(raw)
    await eventually(lambda: held_by(n1, welcome).on_clock)
    await n1.gateway.drain()
    ((second, last),) = [pair for pair in permutations(others) if held(pair[0], welcome) is not None]
    assert held(last, welcome) is None
    async with RawClient(last.url) as bob, RawClient(last.url) as back:
        ask = await publisher(bob)
        await ask.publish("a/x", 1)
        await second.gateway.drain()
        await ask.publish("a/x", 2)
        await eventually(lambda: held_by(last, welcome).machine.last_numbered == received + 2)
        again = await resumed(back, welcome["token"], received=received, oldest=2)
        assert (again["outcome"], again["resent"]) == ("reattached", 2)
        assert [value for _, _, value, _ in await values(back, 2)] == [1, 2]


async def test_a_node_that_drains_accepts_no_sessions_of_others(two: tuple[TestNode, TestNode]) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**", window=600.0)
    await eventually(lambda: held_by(n1, welcome).on_clock)
    n2.gateway.node.draining = True
    await n1.gateway.drain()
    assert held(n2, welcome) is None
    record = await n2.gateway.node._context.grid.sessions.find(SessionId(welcome["session"]))
    assert record is not None
    assert record.owner == n1.gateway.me


async def test_what_one_node_does_not_accept_goes_to_another(
    three: tuple[TestNode, TestNode, TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, n2, n3 = three
    monkeypatch.setattr("gateway.app.cluster.handoff.offers.OFFERED_AT_ONCE", 1)
    links = n2.gateway.node.links
    assert links is not None
    asked: list[object] = []

    async def refuse(offered: object, _: object) -> bool:
        asked.append(offered)
        return False

    monkeypatch.setattr(links._questions[OFFER].__self__, "accept", refuse)  # type: ignore[attr-defined]
    welcomes = []
    for _ in range(4):
        async with RawClient(n1.url) as raw:
            welcomes.append(await subscribed(raw, "a/**", window=600.0))
    await eventually(lambda: all(held_by(n1, each).on_clock for each in welcomes))
    await n1.gateway.drain()
    assert len(asked) == 1
    assert all(held(n3, each) is not None for each in welcomes)
    assert n1.log.of(SESSIONS_PASSED_ON) == [{"sessions": 4, "left": 0}]


@pytest.mark.promise("P8")
async def test_a_session_that_is_revoked_while_it_is_passed_on_is_kept_nowhere(
    two: tuple[TestNode, TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, n2 = two
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**", window=600.0)
    await eventually(lambda: held_by(n1, welcome).on_clock)
    replays = n2.gateway.node.sessions.delivery.replays
    collect = replays.collect

    async def revoked_meanwhile(session: Session, places: Any) -> Any:
        replay = await collect(session, places)
        await n2.gateway.node.revocations.revoke(RevocationKind.SESSION, session.id)
        return replay

    monkeypatch.setattr(replays, "collect", revoked_meanwhile)
    await n1.gateway.drain()
    assert held(n1, welcome) is None
    assert held(n2, welcome) is None
    assert not len(n2.gateway.node.sessions)


async def test_who_does_not_leave_in_time_is_closed_and_handed_over_all_the_same(linked: LinkedNodes) -> None:
    async with (
        linked.run("n1", "n2", drain_timeout=scaled(0.3)) as (n1, n2),
        RawClient(n1.url) as raw,
        RawClient(n2.url) as bob,
        RawClient(n2.url) as again,
    ):
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        drain = asyncio.create_task(n1.gateway.drain())
        assert await raw.closed() == GOING_AWAY.code
        await ask.publish("a/x", 1)
        back = await resumed(again, welcome["token"], received=last_id(raw), oldest=2)
        await again.send({"type": "ack", "received": last_id(raw)})
        assert (back["outcome"], back["lost"]) == ("handed_over", 0)
        assert [value for _, _, value, _ in await values(again, 1)] == [1]
        await drain
