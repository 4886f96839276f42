"""A node that has no link to the backup yet waits for it a little: it may have just started."""

from __future__ import annotations

import asyncio

import pytest

from gateway.app.cluster.handoff import taker
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import caught_up
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import last_id, publisher, resumed, subscribed
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P1")


async def test_clients_wait_until_there_is_a_link_to_the_backup(
    linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taker, "FIRST_LINK_SECONDS", scaled(20.0))
    monkeypatch.setattr(taker, "LINK_SECONDS", scaled(20.0))
    async with linked.run("n1", "n2", "n3", backup="n2") as (n1, n2, n3), RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
            await ask.publish("a/x", 1)
            await raw.expect("update")
            await caught_up(n1)
            await n1.gateway.close()
        linked.network.cut(n2.gateway.me, n3.gateway.me)
        links = n3.gateway.node.links
        assert links is not None
        await eventually(lambda: not links.state(n2.gateway.me).up)
        async with RawClient(n3.url) as again:
            coming = asyncio.create_task(resumed(again, welcome["token"], received=received, oldest=2))
            await eventually(lambda: n2.gateway.me in _taker(n3)._given_up)
            assert not coming.done()
            linked.network.mend(n2.gateway.me, n3.gateway.me)
            back = await coming
            assert (back["outcome"], back["lost"]) == ("mirrored", 0)


async def test_a_link_that_breaks_while_the_backup_is_asked_is_waited_for(
    linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that have just started may have several links to each other in turn."""
    monkeypatch.setattr(taker, "FIRST_LINK_SECONDS", scaled(20.0))
    monkeypatch.setattr(taker, "LINK_SECONDS", scaled(20.0))
    monkeypatch.setattr(taker, "COPY_SECONDS", scaled(20.0))
    async with linked.run("n1", "n2", "n3", backup="n2") as (n1, n2, n3), RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
            await ask.publish("a/x", 1)
            await raw.expect("update")
            await caught_up(n1)
            await n1.gateway.close()
        two, three = n2.gateway.me, n3.gateway.me
        linked.network.stall(two, three)
        async with RawClient(n3.url) as again:
            coming = asyncio.create_task(resumed(again, welcome["token"], received=received, oldest=2))
            await eventually(lambda: _is_given(n2))
            assert not coming.done()
            linked.network.cut(two, three)
            linked.network.mend(two, three)
            back = await coming
            assert (back["outcome"], back["lost"]) == ("mirrored", 0)


@pytest.mark.promise("P12")
async def test_a_backup_that_is_busy_is_waited_for(linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than for a handoff: all clients of a node that has died ask at once, and nobody else has what is owed."""
    monkeypatch.setattr(taker, "TAKE_SECONDS", 0.05)
    monkeypatch.setattr(taker, "COPY_SECONDS", scaled(20.0))
    async with linked.run("n1", "n2", "n3", backup="n2") as (n1, n2, n3), RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
            await ask.publish("a/x", 1)
            await raw.expect("update")
            await caught_up(n1)
            await n1.gateway.close()
        linked.network.delay(0.3, n2.gateway.me, n3.gateway.me)
        async with RawClient(n3.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("mirrored", 0)


@pytest.mark.promise("P12")
async def test_a_backup_that_hangs_is_not_waited_for_as_long(
    linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taker, "COPY_SECONDS", scaled(600.0))
    async with linked.run("n1", "n2", "n3", backup="n2") as (n1, n2, n3):
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
            await caught_up(n1)
            await n1.gateway.close()
        linked.network.stall(n2.gateway.me, n3.gateway.me)
        links = n3.gateway.node.links
        assert links is not None
        silence = taker.SILENCE_SECONDS
        await eventually(lambda: links.state(n2.gateway.me).silence >= silence)
        async with RawClient(n3.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert back["outcome"] == "failed_over"


async def test_they_wait_together_and_no_longer_than_that(linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm must not wait one client after the other, should the backup be dead as well."""
    monkeypatch.setattr(taker, "LINK_SECONDS", 0.2)
    monkeypatch.setattr(taker, "JUST_STARTED", 0.0)
    monkeypatch.setattr(taker, "LINK_AGAIN", scaled(600.0))
    async with linked.run("n1", "n2", "n3", backup="n2") as (n1, n2, n3):
        async with RawClient(n1.url) as one, RawClient(n1.url) as other:
            welcomes = [await subscribed(each) for each in (one, other)]
            received = [last_id(each) for each in (one, other)]
            await caught_up(n1, 2)
            linked.network.cut(n2.gateway.me, n3.gateway.me)
            await n1.gateway.close()
        for welcome, last in zip(welcomes, received, strict=True):
            async with RawClient(n3.url) as again:
                back = await resumed(again, welcome["token"], received=last, oldest=2)
                assert back["outcome"] == "failed_over"
        assert len(_taker(n3)._given_up) == 1
        until = _taker(n3)._given_up[n2.gateway.me]
        assert until < asyncio.get_running_loop().time(), "the second one found that nobody waits any more"


def _is_given(node: TestNode) -> bool:
    holder = node.gateway.node.holder
    return holder is not None and any(held.claims for held in holder._nodes.values())


def _taker(node: TestNode) -> taker.SessionTaker:
    return node.gateway.node.taker
