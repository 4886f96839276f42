"""Sessions by the admin API: found, looked at, closed, moved and told, at whichever node one asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGrid
from gateway.catalogue.log_events import ADMIN_ACTED, SESSION_ENDED
from gateway.client import connect
from gateway.core.types import NodeId, NodeRef, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.local.ports import free_port
from gateway.ports import GridState, GridUnavailable, Ownership
from gateway.ports.administration import QueuedNotice
from gateway.settings import HostPort
from tests.integration.admin.support import Pair, running_pair
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.times import scaled, time_limit


@pytest.fixture(autouse=True)
async def clients() -> AsyncIterator[list[RawClient]]:
    """Clients that are cut off at the end of a test."""
    OPEN.clear()
    yield OPEN
    for client in OPEN:
        await client.cut()


OPEN: list[RawClient] = []


async def opened(node: TestNode, principal: str = "alice", **properties: str) -> tuple[RawClient, str]:
    """Open a session with a client that says no more than it must; it is cut off at the end of the test."""
    client = RawClient(node.url)
    OPEN.append(client)
    await client.connect()
    welcome = await client.hello(principal, properties=properties)
    await client.send({"type": "ack", "received": 0})
    return client, str(welcome["session"])


@pytest.mark.parametrize("limit", ["1", "2", "1000"])
async def test_pages_of_any_node_hold_the_sessions_of_all_nodes_once(pair: Pair, limit: str) -> None:
    clients = [await opened(node, team=team) for node in (pair.n1, pair.n2) for team in ("fx", "rates", "fx")]

    for node in (pair.n1, pair.n2):
        pages = await pair.asker.pages(node, "/v1/sessions", limit=limit)
        assert sorted(item["session"] for page in pages for item in page) == sorted(each for _, each in clients)
        assert all(len(page) <= int(limit) for page in pages)

    wanted = "team is 'fx' and $node is 'n2'"
    found = await pair.asker.pages(pair.n1, "/v1/sessions", limit=limit, filter=wanted)
    expected = sorted([clients[3][1], clients[5][1]])
    assert sorted(item["session"] for page in found for item in page) == expected


@pytest.mark.promise("P20")
async def test_pages_end_after_so_much_work_and_go_on(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.administration.listing.EXAMINED", 2)
    [await opened(pair.n1, f"user{number}") for number in range(12)]

    pages = await pair.asker.pages(pair.n2, "/v1/sessions", filter="$principal is 'user7'")

    assert [item["principal"] for page in pages for item in page] == ["user7"]
    assert len(pages) > 1


async def test_users_cannot_pretend_to_have_properties_of_the_server(pair: Pair) -> None:
    _client, session = await opened(pair.n1, "mallory")

    found = await pair.asker.pages(pair.n1, "/v1/sessions", filter="$principal is 'alice' or $node is 'n9'")

    assert found == [[]]
    ((item,),) = await pair.asker.pages(pair.n1, "/v1/sessions", filter="$connected is 'true' and has $client")
    assert item["session"] == session


async def test_without_replication_a_node_lists_its_own(tmp_path: Path) -> None:
    async with running_pair(tmp_path, replication=False) as pair:
        _mine, session = await opened(pair.n1)
        _other, _ = await opened(pair.n2)

        pages = await pair.asker.pages(pair.n1, "/v1/sessions", limit="1")

        assert [item["session"] for page in pages for item in page] == [session]
        assert (await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")).status == 404
        refused = await pair.asker.ask(pair.n1, "POST", f"/v1/sessions/{session}/move")
        assert (refused.status, refused.kind) == (409, "conflict")


async def test_the_detail_comes_from_the_node_that_holds_the_session(pair: Pair) -> None:
    client, session = await opened(pair.n1, team="\u202eevil\n")
    await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": "prices/**"})
    await client.expect("reply")

    answer = await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")

    assert answer.status == 200
    assert answer.body["node"] == "n1"
    assert answer.body["selections"] == ["+prices/**"]
    assert answer.body["properties"]["team"] == "\u202eevil\n"
    live = answer.body["live"]
    assert (live["link"], live["received"], live["numbered"], live["resend_packets"]) == ("attached", 1, 1, 1)
    assert live["resend_bytes"] > 0
    assert live["address"] == "127.0.0.1"


async def test_what_a_node_counts_and_keeps_of_a_session_begins_anew_at_the_next_one(pair: Pair) -> None:
    """Its start time, its statistics and its queue: none of it is in the grid."""
    async with RawClient(pair.n1.url) as raw:
        welcome = await raw.hello()
        path = f"/v1/sessions/{welcome['session']}"
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("reply")
        for number in (2, 3, 4):
            await raw.send({"id": number, "type": "publish", "request": number, "topic": "a/x", "value": number})
            await raw.expect("update")
            await raw.expect("reply")
        before = (await pair.asker.ask(pair.n2, "GET", path)).body
    async with RawClient(pair.n2.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1, oldest=5)
        update = await back.expect("update")
        after = (await pair.asker.ask(pair.n1, "GET", path)).body

    names = ("received", "numbered", "resend_packets")
    assert (before["node"], after["node"], again["outcome"]) == ("n1", "n2", "failed_over")
    assert [before["live"][name] for name in names] == [4, 7, 7], "a subscribe, three publishes, and what they led to"
    assert (update["id"], update["value"], update["snapshot"]) == (1, 4, True)
    assert [after["live"][name] for name in names] == [0, 1, 1], "the current value, and nothing of what was kept"
    assert again["properties"]["$connected"] > welcome["properties"]["$connected"]


async def test_a_disconnected_session_is_shown_with_what_waits_for_it(pair: Pair) -> None:
    client, session = await opened(pair.n1)
    await client.cut()
    await eventually(lambda: not any(each.connected for each in pair.n1.gateway.node.sessions))

    answer = await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")

    assert (answer.body["connected"], answer.body["live"]["link"]) == (False, "detached")
    assert answer.body["live"]["address"] is None


async def test_a_session_whose_node_does_not_answer_is_shown_as_the_grid_holds_it(pair: Pair) -> None:
    _client, session = await opened(pair.n1)
    await pair.n1.gateway._admin.close()

    answer = await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")

    assert answer.status == 200
    assert answer.body["live"] is None
    assert answer.body["note"].startswith("n1 has to be asked, but it cannot be reached")
    assert answer.body["connected"] is True


@pytest.mark.parametrize("at", ["n1", "n2"])
async def test_a_closed_session_is_told_and_nothing_of_it_is_left(pair: Pair, at: str) -> None:
    client, session = await opened(pair.n1)
    bystander, _ = await opened(pair.n1)

    answer = await pair.asker.ask(getattr(pair, at), "DELETE", f"/v1/sessions/{session}", role="operator")

    assert (answer.status, answer.body) == (204, None)
    assert await client.closed() == 4205
    assert [packet for packet in client.seen if packet["type"] == "bye"]
    assert (await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")).status == 404
    assert (await pair.asker.ask(pair.n2, "DELETE", f"/v1/sessions/{session}")).kind == "session-unknown"
    await bystander.send({"type": "ping"})
    await bystander.expect("pong")


async def test_a_closed_session_cannot_be_resumed(pair: Pair) -> None:
    client = RawClient(pair.n1.url)
    OPEN.append(client)
    await client.connect()
    welcome = await client.hello()
    await pair.asker.ask(pair.n2, "DELETE", f"/v1/sessions/{welcome['session']}")
    await client.closed()

    async with RawClient(pair.n2.url) as again:
        refused = await again.resume(welcome["token"], attempt=1)

    assert refused["code"] == "session_closed"


async def test_a_node_that_was_not_told_of_the_end_of_a_session_does_not_show_it(pair: Pair) -> None:
    """The node that claimed and closed it died before it could tell the one that held it before."""
    client, session = await opened(pair.n1)
    await client.cut()
    await eventually(lambda: not any(each.connected for each in pair.n1.gateway.node.sessions))
    (held,) = pair.n1.gateway.node.sessions
    await pair.n2.gateway.node._context.grid.sessions.end(held.ownership, reason=ErrorCode.SESSION_CLOSED)

    answers = [await pair.asker.ask(pair.n1, method, f"/v1/sessions/{session}") for method in ("GET", "DELETE")]

    assert [answer.status for answer in answers] == [404, 404]


async def test_a_session_is_closed_though_its_node_cannot_be_asked(pair: Pair) -> None:
    client, session = await opened(pair.n1)
    await pair.n1.gateway._admin.close()

    answer = await pair.asker.ask(pair.n2, "DELETE", f"/v1/sessions/{session}")

    assert answer.status == 204
    # Its node hears of it by the grid, and lets go of it; the client is refused wherever it comes back.
    assert await client.closed() == 4004
    assert pair.n2.log.of(SESSION_ENDED) == [{"session": session, "reason": "closed"}], "counted and logged, too"
    assert (await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")).status == 404


async def cut_off(node: TestNode) -> MemoryGrid:
    """Take the grid away from one node alone."""
    grid = node.gateway.node._context.grid
    assert isinstance(grid, MemoryGrid)
    grid.cut()
    return grid


@pytest.mark.parametrize("at", ["n1", "n2"])
async def test_a_close_that_the_grid_has_not_confirmed_says_what_is_still_to_come(pair: Pair, at: str) -> None:
    client, session = await opened(pair.n1)
    asked = getattr(pair, at)
    grid = await cut_off(pair.n1)

    answer = await pair.asker.ask(asked, "DELETE", f"/v1/sessions/{session}", role="operator")

    assert await client.closed() == 4205, "operators need the client gone, now"
    assert answer.status == 202
    assert (answer.body["session"], answer.body["node"]) == (session, "n1")
    assert "n1 ends it there as soon as the grid answers" in answer.body["detail"]
    assert "if n1 stops first, the session survives" in answer.body["detail"]
    own = "accepted" if at == "n1" else "accepted by n1"
    assert [each["outcome"] for each in asked.log.of(ADMIN_ACTED)] == [own]
    assert (await pair.asker.ask(pair.n1, "DELETE", f"/v1/sessions/{session}")).status == 202, "asked again"
    assert pair.n1.log.of(SESSION_ENDED) == []

    grid.mend()
    await eventually(lambda: bool(pair.n1.log.of(SESSION_ENDED)))
    for node in (pair.n1, pair.n2):
        assert (await pair.asker.ask(node, "DELETE", f"/v1/sessions/{session}")).kind == "session-unknown"
    assert pair.n1.log.of(SESSION_ENDED) == [{"session": session, "reason": "closed"}]


async def test_a_pending_end_is_shown_as_such(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the moment between the grid's return and the end that the node tells it of."""
    _client, session = await opened(pair.n1)
    grid = await cut_off(pair.n1)
    assert (await pair.asker.ask(pair.n1, "DELETE", f"/v1/sessions/{session}")).status == 202
    told = asyncio.Event()
    end = grid.sessions.end

    async def end_later(ownership: Ownership, **how: Any) -> None:
        await told.wait()
        await end(ownership, **how)

    monkeypatch.setattr(grid.sessions, "end", end_later)
    grid.mend()
    await eventually(lambda: grid.state is GridState.UP)

    shown = await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")
    assert (shown.status, shown.body["live"]) == (200, None)
    assert "is being ended in the grid" in shown.body["note"]
    assert (await pair.asker.ask(pair.n2, "DELETE", f"/v1/sessions/{session}")).status == 202
    told.set()
    await eventually(lambda: bool(pair.n1.log.of(SESSION_ENDED)))
    assert (await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")).status == 404


async def test_an_end_that_the_grid_has_confirmed_is_done_though_its_node_could_not_be_told_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, session = await opened(pair.n1)
    await pair.n1.gateway._admin.close()
    nodes = pair.n2.gateway.node._context.grid.nodes
    tell_claimed, failures = nodes.tell_claimed, 1

    async def fail_once(to: NodeRef, *ownerships: Ownership) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise GridUnavailable("it went away just now")
        await tell_claimed(to, *ownerships)

    monkeypatch.setattr(nodes, "tell_claimed", fail_once)

    assert (await pair.asker.ask(pair.n2, "DELETE", f"/v1/sessions/{session}")).status == 204
    assert await client.closed() == 4004


async def test_what_the_grid_may_have_done_without_an_answer_is_told(pair: Pair) -> None:
    pair.memory.go_away()

    changed = await pair.asker.ask(pair.n1, "DELETE", "/v1/topics/a")
    looked = await pair.asker.ask(pair.n1, "GET", "/v1/topics/a")

    assert (changed.status, looked.status) == (503, 503)
    assert "the change may have been made all the same" in changed.body["detail"]
    assert "change" not in looked.body["detail"]


async def test_what_a_node_may_have_done_without_an_answer_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    client, session = await opened(pair.n1)
    monkeypatch.setattr("gateway.adapters.admin.forwarder.PATIENCE", scaled(0.5))
    notify = pair.n1.gateway.node.administration.sessions.notify

    async def notify_late(named: SessionId, message: str) -> QueuedNotice:
        queued = await notify(named, message)
        await asyncio.Event().wait()
        return queued

    monkeypatch.setattr(pair.n1.gateway.node.administration.sessions, "notify", notify_late)

    answer = await pair.asker.ask(pair.n2, "POST", f"/v1/sessions/{session}/notice", json={"message": "hi"})

    assert (answer.status, answer.kind) == (502, "owner-unreachable")
    assert "it may have done what was asked for all the same" in answer.body["detail"]
    assert (await client.expect("notice"))["message"] == "hi", "it has"


async def test_a_session_on_its_way_is_not_said_to_go_elsewhere(pair: Pair) -> None:
    _client, session = await opened(pair.n1)
    path = f"/v1/sessions/{session}/move"
    held = pair.n1.gateway.node.sessions.get(SessionId(session))
    assert held is not None
    moves = pair.n1.gateway.node._moves

    first = await pair.asker.ask(pair.n1, "POST", path, json={"node": "n2"})
    again = await pair.asker.ask(pair.n1, "POST", path, json={})
    moves._targets[held] = NodeId("n3")
    other = await pair.asker.ask(pair.n1, "POST", path, json={"node": "n2"})
    del moves._targets[held]
    drained = await pair.asker.ask(pair.n1, "POST", path, json={"node": "n2"})

    assert (first.status, first.body["node"]) == (202, "n2")
    assert (again.status, again.body["node"]) == (202, "n2")
    assert (other.status, other.kind) == (409, "conflict")
    assert "to n3 already" in other.body["detail"]
    assert (drained.status, drained.kind) == (409, "conflict")


@pytest.mark.parametrize("target", [{}, {"node": "n2"}])
async def test_a_moved_session_goes_to_the_other_node_without_a_gap(pair: Pair, target: dict[str, Any]) -> None:
    urls = [pair.n1.url, pair.n2.url]
    async with await connect(urls, principal="alice") as session, await connect(urls[1:], principal="bob") as feed:
        stream = await session.subscribe("prices/ACME")
        seen: list[int] = []

        async def read() -> None:
            async for update in stream:
                assert isinstance(update.value, int)
                seen.append(update.value)

        async def publish() -> None:
            for number in range(1, 61):
                await feed.publish("prices/ACME", number)

        reading = asyncio.create_task(read())
        publishing = asyncio.create_task(publish())
        await eventually(lambda: len(seen) > 5)
        answer = await pair.asker.ask(pair.n2, "POST", f"/v1/sessions/{session.id}/move", json=target)
        await publishing

        assert (answer.status, answer.body) == (202, {"session": session.id, "node": "n2"})
        await eventually(lambda: session.node == "n2" and bool(seen) and seen[-1] == 60)
        reading.cancel()
        assert seen == sorted(set(seen))
        shown = await pair.asker.ask(pair.n1, "GET", f"/v1/sessions/{session.id}")
        assert (shown.body["node"], shown.body["live"]["moving"]) == ("n2", False)


async def test_a_session_goes_nowhere_if_there_is_nowhere_to_go(pair: Pair) -> None:
    _client, session = await opened(pair.n1)

    for body, status, kind in (
        ({"node": "n1"}, 409, "conflict"),
        ({"node": "n9"}, 404, "node-unknown"),
    ):
        answer = await pair.asker.ask(pair.n1, "POST", f"/v1/sessions/{session}/move", json=body)
        assert (answer.status, answer.kind) == (status, kind)
    await pair.asker.ask(pair.n1, "POST", "/v1/nodes/n2/drain")
    await eventually(lambda: pair.n2.gateway.node.lifecycle.draining)

    async def nowhere() -> bool:
        answer = await pair.asker.ask(pair.n1, "POST", f"/v1/sessions/{session}/move")
        return answer.status == 409

    async with time_limit(5):
        while not await nowhere():
            pass


async def test_a_disconnected_session_is_not_moved(pair: Pair) -> None:
    client, session = await opened(pair.n1)
    await client.cut()
    await eventually(lambda: not any(each.connected for each in pair.n1.gateway.node.sessions))

    answer = await pair.asker.ask(pair.n1, "POST", f"/v1/sessions/{session}/move")

    assert (answer.status, answer.kind) == (409, "conflict")


async def test_a_client_that_does_not_leave_is_closed_and_may_come_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.cluster.session_mover.LEAVE", 0.05)
    client, session = await opened(pair.n1)

    await pair.asker.ask(pair.n1, "POST", f"/v1/sessions/{session}/move", json={"node": "n2"})

    assert (await client.expect("go-away"))["node"] == "n2"
    assert await client.closed() == 4000


@pytest.mark.parametrize("at", ["n1", "n2"])
async def test_a_notice_reaches_the_client_that_is_named_alone(pair: Pair, at: str) -> None:
    client, session = await opened(pair.n1)
    bystander, _ = await opened(pair.n1)

    answer = await pair.asker.ask(
        getattr(pair, at), "POST", f"/v1/sessions/{session}/notice", json={"message": "restart at 5 ☕"}
    )

    assert (answer.status, answer.body) == (202, {"session": session, "node": "n1", "connected": True})
    notice = await client.expect("notice")
    assert (notice["code"], notice["message"]) == ("administrator", "restart at 5 ☕")
    await bystander.send({"type": "ping"})
    await bystander.expect("pong")
    assert not [packet for packet in bystander.seen if packet["type"] == "notice"]
    await bystander.cut()


async def test_a_node_that_does_not_answer_is_told(pair: Pair) -> None:
    _client, session = await opened(pair.n1)
    await pair.n1.gateway._admin.close()

    answer = await pair.asker.ask(pair.n2, "POST", f"/v1/sessions/{session}/notice", json={"message": "hi"})

    assert (answer.status, answer.kind) == (502, "owner-unreachable")
    assert "may have done" not in answer.body["detail"], "it was never reached"


async def test_nobody_passes_a_request_on_twice(pair: Pair) -> None:
    _client, session = await opened(pair.n1)

    answer = await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}", headers={"Gateway-Forwarded-By": "n9"})

    assert (answer.status, answer.kind) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "1"


async def test_an_address_that_means_nothing_is_no_error_of_this_node(tmp_path: Path) -> None:
    async with running_pair(tmp_path, admin_advertise=HostPort("127.0.0.1", free_port())) as pair:
        _client, session = await opened(pair.n1)

        assert (await pair.asker.ask(pair.n2, "GET", f"/v1/sessions/{session}")).body["live"] is None
