"""The grid loses writes at the same time as a node dies: what the copy knows better is not lost (P1, seed 002)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.core.types import Epoch, SessionId
from gateway.ports import SessionRecord
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import caught_up
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import held_by, last_id, publisher, resumed, subscribed

pytestmark = pytest.mark.promise("P1")


@pytest.fixture
async def mirrored(linked: LinkedNodes) -> AsyncIterator[list[TestNode]]:
    """n1, n2 and n3, of which n2 keeps copies of n1's sessions."""
    async with linked.run("n1", "n2", "n3", backup="n2") as nodes:
        yield nodes


async def roll_back(linked: LinkedNodes, snapshot: Any, died: TestNode, *others: TestNode) -> None:
    """Have a node die and the grid go back at once: the node never hears what is there when the grid is back."""
    died.gateway.node._context.grid.cut()  # type: ignore[attr-defined]
    linked.grid.go_away()
    await died.gateway.close()
    linked.grid.come_back(snapshot=snapshot)
    await adopted(*others)


async def adopted(*nodes: TestNode) -> None:
    """Wait until nodes have adopted the grid that has gone back."""
    await eventually(lambda: all(node.gateway.node._context.grid.generation == 2 for node in nodes))


async def record_of(node: TestNode, session: str) -> SessionRecord:
    record = await node.gateway.node._context.grid.sessions.find(SessionId(session))
    assert record is not None
    return record


async def ask(raw: RawClient, number: int, kind: str, **fields: Any) -> None:
    await raw.send({"id": number, "request": number, "type": kind, **fields})
    assert "error" not in await raw.expect("reply")


@pytest.mark.parametrize("goes_to", ["n2", "n3"])
async def test_what_the_grid_lost_of_a_record_is_taken_from_the_copy_and_written_again(
    linked: LinkedNodes, mirrored: list[TestNode], goes_to: str
) -> None:
    n1, n2, n3 = mirrored
    next_node = {"n2": n2, "n3": n3}[goes_to]
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        await ask(raw, 2, "subscribe", selector="c/**")
        await ask(raw, 3, "properties", set={"colour": "red", "size": "1"})
        replica = linked.grid.snapshot()
        await ask(raw, 4, "subscribe", selector="b/**")
        await ask(raw, 5, "unsubscribe", selector="c/**")
        await ask(raw, 6, "properties", set={"colour": "blue", "size": None})
        await ask(raw, 7, "publish", topic="d/x", value=1)
        partitions = held_by(n1, welcome).publish_partitions
        assert partitions
        received = last_id(raw)
        await caught_up(n1)
        await roll_back(linked, replica, n1, n2, n3)
    async with RawClient(next_node.url) as again:
        back = await resumed(again, welcome["token"], received=received, oldest=8)
        assert (back["outcome"], back["lost"]) == ("mirrored", 0)
        assert back["selections"] == ["+a/**", "+b/**"]
        assert (back["properties"]["colour"], "size" in back["properties"]) == ("blue", False)
        record = await record_of(n2, welcome["session"])
        assert record.selections == ("+a/**", "+b/**"), "it was written again before the client was told of it"
        assert (record.properties["colour"], "size" in record.properties) == ("blue", False)
        assert record.publish_partitions >= partitions
        assert (record.owner, record.connected) == (next_node.gateway.me, True)
        async with RawClient(n3.url) as bob:
            await (await publisher(bob)).publish("b/x", "comes")
            await again.expect("update", where=lambda update: update["value"] == "comes")


async def test_a_claim_that_the_grid_has_lost_does_not_keep_the_copy_from_its_client(
    linked: LinkedNodes, mirrored: list[TestNode]
) -> None:
    """The claim of the next node has the epoch of the one that was lost; the attempt of its client tells them apart."""
    n1, n2, n3 = mirrored
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        replica = linked.grid.snapshot()
    async with RawClient(n1.url) as raw:
        welcome = await raw.resume(
            welcome["token"], attempt=1, received=last_id(raw), oldest=2, supports=["mirrored", "handed_over"]
        )
        assert welcome["outcome"] == "reattached"
        await ask(raw, 2, "subscribe", selector="b/**")
        assert held_by(n1, welcome).epoch == Epoch(2)
        received = last_id(raw)
        await caught_up(n1)
        await roll_back(linked, replica, n1, n2, n3)
    async with RawClient(n2.url) as again:
        back = await resumed(again, welcome["token"], attempt=2, received=received, oldest=3)
        assert (back["outcome"], back["selections"]) == ("mirrored", ["+a/**", "+b/**"])
        assert (await record_of(n2, welcome["session"])).epoch == Epoch(2)


async def test_what_was_done_after_the_grid_had_lost_writes_is_in_the_record_and_stays(
    linked: LinkedNodes, mirrored: list[TestNode]
) -> None:
    """The node had written its session again before it died: what its copy has is not newer than the record."""
    n1, n2, n3 = mirrored
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        replica = linked.grid.snapshot()
        await ask(raw, 2, "subscribe", selector="b/**")
        linked.grid.go_away()
        linked.grid.come_back(snapshot=replica)
        await adopted(n1, n2, n3)
        session = held_by(n1, welcome)
        await eventually(lambda: session.stored_under.grid_generation == 2)
        await ask(raw, 3, "subscribe", selector="c/**")
        received = last_id(raw)
        await caught_up(n1)
        holder = n2.gateway.node.holder
        assert holder is not None
        copy = holder._nodes[n1.gateway.me].copies.copy_of(session.id)
        assert copy is not None
        assert copy.session.stored_generation == 2
        await n1.gateway.close()
    async with RawClient(n2.url) as again:
        back = await resumed(again, welcome["token"], received=received, oldest=4)
        assert (back["outcome"], back["selections"]) == ("mirrored", ["+a/**", "+b/**", "+c/**"])


@pytest.mark.promise("P12")
async def test_what_a_living_node_hands_over_is_newer_than_a_record_that_went_back(
    linked: LinkedNodes, mirrored: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node has yet to write it again when the client goes elsewhere."""
    n1, n2, n3 = mirrored
    monkeypatch.setattr(n1.gateway.node._grid_recovery, "rejoin", _never)
    monkeypatch.setattr(n1.gateway.node._grid_recovery, "catch_up", _never)
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        replica = linked.grid.snapshot()
        await ask(raw, 2, "subscribe", selector="b/**")
        received = last_id(raw)
        linked.grid.go_away()
        linked.grid.come_back(snapshot=replica)
        await adopted(n1, n2, n3)
        async with RawClient(n3.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=3)
            assert (back["outcome"], back["selections"]) == ("handed_over", ["+a/**", "+b/**"])
            assert (await record_of(n2, welcome["session"])).selections == ("+a/**", "+b/**")


async def _never() -> None:
    """Do nothing."""
