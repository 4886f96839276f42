"""Nodes by the admin API: seen from each other, drained and taken back into service."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from gateway import __version__
from gateway.client import connect
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports import NodeReport
from tests.integration.admin.support import Pair, running_pair
from tests.support.clock import eventually as in_time
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import time_limit


async def state_of(pair: Pair, asked: TestNode, name: str) -> str:
    """Tell what one node knows of another by the grid."""
    answer = await pair.asker.ask(asked, "GET", "/v1/nodes")
    (found,) = [each for each in answer.body["items"] if each["node"] == name]
    return str(found["state"])


async def state_of_any(pair: Pair, name: str) -> str | None:
    """Tell what the first node knows of a node, which need not be there."""
    answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes")
    return next((each["state"] for each in answer.body["items"] if each["node"] == name), None)


async def test_every_node_lists_all_with_what_they_tell(pair: Pair) -> None:
    async with RawClient(pair.n2.url) as client:
        await client.hello()

        for asked in (pair.n1, pair.n2):
            answer = await pair.asker.ask(asked, "GET", "/v1/nodes", role="viewer")
            one, two = answer.body["items"]
            assert (one["node"], one["state"], one["version"]) == ("n1", "ready", __version__)
            assert one["admin"] == pair.n1.admin
            assert two["listen"] == f"127.0.0.1:{pair.n2.gateway.port}"
            assert [one["here"], two["here"]] == [asked is pair.n1, asked is pair.n2]


async def test_the_detail_of_another_node_is_as_fresh_as_its_own(pair: Pair) -> None:
    async with RawClient(pair.n2.url) as client:
        await client.hello()

        answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes/n2")

        assert (answer.status, answer.body["connected"]) == (200, 1)


async def test_a_node_that_does_not_answer_is_shown_as_it_told_last(pair: Pair) -> None:
    await pair.n2.gateway._admin.close()

    answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes/n2")

    assert (answer.status, answer.body["state"], answer.body["here"]) == (200, "ready", False)


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/drain"), ("POST", "/undrain")])
async def test_a_node_that_nobody_knows(pair: Pair, method: str, path: str) -> None:
    answer = await pair.asker.ask(pair.n1, method, f"/v1/nodes/n9{path}")

    assert (answer.status, answer.kind) == (404, "node-unknown")


async def test_an_expired_node_is_shown_until_others_have_taken_over(pair: Pair) -> None:
    report = NodeReport(listen="x", admin="http://127.0.0.1:1", version="1", started=1.0)
    grid = pair.n2.gateway.node._context.grid
    other = pair.n2.gateway.me
    await grid.nodes.join(other, lease=0.001)
    await grid.nodes.report(other, report)

    async with time_limit(5):
        while await state_of(pair, pair.n1, "n2") != "expired":
            pass
    refused = await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n2/drain")
    assert (refused.status, refused.kind) == (502, "owner-unreachable")


async def test_a_node_that_died_stays_as_lost_until_one_of_its_name_is_back(pair: Pair) -> None:
    grid = pair.n1.gateway.node._context.grid
    gone = NodeRef(NodeId("n7"), Incarnation("first"))
    await grid.nodes.join(gone, lease=0.001)
    await grid.nodes.report(gone, NodeReport(listen="x", admin="http://127.0.0.1:1", version="1", started=1.0))

    async with time_limit(10):
        while await state_of_any(pair, "n7") != "lost":
            pass

    found = await pair.asker.ask(pair.n2, "GET", "/v1/nodes/n7")
    assert (found.status, found.body["state"], found.body["version"]) == (200, "lost", "1")
    assert found.body["lost"] >= 0
    assert found.body["connected"] is None
    refused = await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n7/drain")
    assert (refused.status, refused.kind) == (404, "node-unknown")
    async with running_node("n7", memory=pair.memory, admin_tokens_file=pair.admins.file):
        assert await state_of_any(pair, "n7") != "lost"


async def test_a_node_that_dies_again_and_again_is_one_lost_node(pair: Pair) -> None:
    grid = pair.n1.gateway.node._context.grid
    for run in ("first", "second", "third"):
        await grid.nodes.join(NodeRef(NodeId("n7"), Incarnation(run)), lease=0.001)

    async def all_are_lost() -> bool:
        return len(await grid.nodes.lost()) == 3

    await in_time(all_are_lost, message="each was taken over from")

    items = (await pair.asker.ask(pair.n1, "GET", "/v1/nodes")).body["items"]
    assert [each["node"] for each in items] == ["n1", "n2", "n7"]


async def test_a_drained_node_has_no_clients_and_takes_none_until_it_is_undrained(pair: Pair) -> None:
    urls = [pair.n1.url, pair.n2.url]
    sessions = [await connect(urls, principal=f"user{number}") for number in range(5)]
    assert all(each.node == "n1" for each in sessions)

    answer = await pair.asker.ask(pair.n2, "POST", "/v1/nodes/n1/drain", role="operator")

    assert (answer.status, answer.body["state"]) == (202, "draining")
    await eventually(lambda: all(each.node == "n2" for each in sessions))
    assert (await pair.asker.ask(pair.n1, "GET", "/readyz", role=None)).status == 503
    async with time_limit(5):
        while await state_of(pair, pair.n2, "n1") != "draining":
            pass
    stranger = RawClient(pair.n1.url)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await stranger.connect()
    await stranger.cut()

    again = await pair.asker.ask(pair.n2, "POST", "/v1/nodes/n1/undrain", role="operator")

    assert (again.status, again.body["state"]) == (200, "ready")
    assert (await pair.asker.ask(pair.n1, "GET", "/readyz", role=None)).status == 200
    async with RawClient(pair.n1.url) as client:
        assert (await client.hello())["node"] == "n1"
        await client.send({"type": "bye"})
        await client.closed()
    for session in sessions:
        await session.close()


async def test_draining_twice_and_undraining_what_does_not_drain_are_harmless(pair: Pair) -> None:
    for path, status in (("undrain", 200), ("drain", 202), ("drain", 202), ("undrain", 200), ("undrain", 200)):
        assert (await pair.asker.ask(pair.n1, "POST", f"/v1/nodes/n1/{path}")).status == status

    assert not pair.n1.gateway.node.lifecycle.draining


async def test_an_undrain_in_the_middle_moves_nobody_else(tmp_path: Path) -> None:
    async with running_pair(tmp_path, drain_batch=1, drain_interval=60.0, drain_jitter=0.0) as pair:
        urls = [pair.n1.url, pair.n2.url]
        sessions = [await connect(urls, principal=f"user{number}") for number in range(3)]

        await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n1/drain")
        await eventually(lambda: any(each.node == "n2" for each in sessions))
        await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n1/undrain")

        assert sorted(each.node for each in sessions) == ["n1", "n1", "n2"]
        for session in sessions:
            await session.publish("a", 1)
            await session.close()


async def test_a_node_that_is_being_stopped_is_not_taken_back(pair: Pair) -> None:
    await pair.n1.gateway.drain()

    answer = await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n1/undrain")

    assert (answer.status, answer.kind) == (409, "conflict")


async def test_a_node_that_was_drained_and_undrained_drains_again_when_it_is_stopped(pair: Pair) -> None:
    await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n1/drain")
    await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n1/undrain")
    session = await connect([pair.n1.url, pair.n2.url], principal="alice")
    assert session.node == "n1"

    await pair.n1.gateway.drain()

    await eventually(lambda: session.node == "n2")
    await session.close()
