"""Drains and moves hand sessions over, those of absent clients too, and mute nobody for that (P12)."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest

from gateway.app.session.session import Session
from gateway.catalogue.log_events import SESSIONS_PASSED_ON
from gateway.core.policy.revocations import RevocationKind
from gateway.core.session.handoff import OFFER, Take, decode_offer, encode_accepted
from gateway.core.types import SessionId
from gateway.core.wire.codes import GOING_AWAY
from gateway.ports.administration import Conflict
from tests.support.clock import eventually as sooner_or_later
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import held, held_by, last_id, publisher, resumed, subscribed, values
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P12")


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
    n2.gateway.node.lifecycle.draining = True
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
    asked: list[Take] = []

    async def refuse(body: bytes, _: object) -> bytes:
        asked.extend(decode_offer(body))
        return encode_accepted(0)

    monkeypatch.setitem(links._answers, OFFER, refuse)
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
