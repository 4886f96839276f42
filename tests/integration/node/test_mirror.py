"""Clients of a node that dies go on from the copies of its backup, and lose nothing (rung 3, seed 002)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.app.cluster.mirror.gate import GatedConnection
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import NodeRef, SessionId
from gateway.core.wire.codes import MirrorMode
from gateway.ports import Backup
from gateway.ports.peers import NoLink, TooLarge
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import RefusingLink, caught_up, mirror_of
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import Closed, RawClient
from tests.support.raw_sessions import (
    SUPPORTS,
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

pytestmark = pytest.mark.promise("P12")


@pytest.fixture
async def mirrored(linked: LinkedNodes) -> AsyncIterator[list[TestNode]]:
    """n1, n2 and n3, of which n2 keeps copies of n1's sessions."""
    async with linked.run("n1", "n2", "n3", backup="n2") as nodes:
        yield nodes


async def test_a_client_whose_node_died_goes_on_at_the_backup(mirrored: list[TestNode]) -> None:
    """M2: the numbers go on; what was numbered and not received, what came since, and what comes live."""
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            await ask.publish("a/x", 1)
            await raw.expect("update")
            received = last_id(raw)
            await ask.publish("a/x", 2)
            await raw.expect("update")
            await caught_up(n1)
            await n1.gateway.close()
        await ask.publish("a/y", 3)
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["numbering"], back["lost"]) == ("mirrored", "kept", 0)
            assert (back["received"], back["node"]) == (1, "n2")
            await ask.publish("a/x", 4)
            assert await values(again, 3) == live_after(received, ("a/x", 2), ("a/y", 3), ("a/x", 4))
            await published(again, 2, "c", 5)
            assert n2.gateway.node.holder is not None
            assert SessionId(welcome["session"]) not in n2.gateway.node.holder


async def test_the_backup_knows_how_far_its_node_is_in_each_partition(mirrored: list[TestNode]) -> None:
    """Frames tell of places that have moved: those of all partitions together are where the node is."""
    n1, n2, n3 = mirrored
    replicas = n1.gateway.node.sessions.delivery.replicas
    holder = n2.gateway.node.holder
    assert holder is not None

    def agree() -> bool:
        cuts = {number: event for number, event in holder._nodes[n1.gateway.me].copies.cuts.items() if event}
        places = {each.number: each.handed_out for each in replicas}
        return cuts == {number: place.event(number) for number, place in places.items() if place is not None}

    async with RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            await subscribed(raw, "**")
            for number in range(8):
                await ask.publish(f"root{number}/x", number)
                await raw.expect("update")
            await eventually(agree)
            replicas.read_again(next(iter(replicas)).number)
            await ask.publish("root0/x", "again")
            await raw.expect("update")
            await eventually(agree)
            assert len(replicas) == TOPIC_PARTITIONS


async def test_any_node_asks_the_backup(mirrored: list[TestNode]) -> None:
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
            await ask.publish("a/x", 1)
            await raw.expect("update")
            await caught_up(n1)
            await n1.gateway.close()
        async with RawClient(n3.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("mirrored", 0)
            assert await values(again, 1) == live_after(received, ("a/x", 1))
            await again.send({"type": "ack", "received": received + 1})
            holder = n2.gateway.node.holder
            assert holder is not None
            copies = holder._nodes[n1.gateway.me].copies
            await eventually(lambda: SessionId(welcome["session"]) not in copies)


@pytest.mark.promise("P2")
async def test_what_the_copy_lacks_is_declared(mirrored: list[TestNode], monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: the client has had what the backup has not; the session fails over as without a copy."""
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            await caught_up(n1)
            monkeypatch.setattr(mirror_of(n1), "_write", lambda: None)
            await ask.publish("a/x", 1)
            await raw.expect("update")
            received = last_id(raw)
            await n1.gateway.close()
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["reason"], back["lost"]) == ("failed_over", "other_node", None)
            assert (await values(again, 1))[0][1:] == ("a/x", 1, True)


@pytest.mark.promise("P5")
async def test_requests_under_way_are_gone_on_with_and_executed_once(
    mirrored: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as watcher:
        await subscribed(watcher, "c")
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            session = held_by(n1, welcome)
            execute = n1.gateway.node._context.grid.topics.publish

            async def executed_and_never_answered(*what: Any) -> Any:
                await execute(*what)
                await eventually(lambda: False)

            monkeypatch.setattr(n1.gateway.node._context.grid.topics, "publish", executed_and_never_answered)
            await raw.send({"id": 2, "type": "publish", "request": 2, "topic": "c", "value": 5})
            assert [value for _, _, value, _ in await values(watcher, 1)] == [5]
            assert session.pending.started == 1
            await caught_up(n1)
            await n1.gateway.close()
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=last_id(raw), oldest=3)
            assert (back["outcome"], back["received"]) == ("mirrored", 2)
            reply = await again.expect("reply")
            assert (reply["request"], reply.get("error")) == (2, None)
            await again.send({"id": 3, "type": "publish", "request": 3, "topic": "c", "value": 6})
            assert [value for _, _, value, _ in await values(watcher, 1)] == [6]


@pytest.mark.promise("P5")
async def test_a_publish_that_no_copy_knows_of_is_executed_once_also_if_the_session_moves_on(
    mirrored: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends it again as it was; the node to which the backup has handed it over has to know why."""
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as watcher:
        await subscribed(watcher, "c")
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            await caught_up(n1)
            received = last_id(raw)
            monkeypatch.setattr(mirror_of(n1), "_write", lambda: None)
            await raw.send({"id": 2, "type": "publish", "request": 2, "topic": "c", "value": 5})
            assert [value for _, _, value, _ in await values(watcher, 1)] == [5]
            await n1.gateway.close()
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["received"]) == ("mirrored", 1)
        async with RawClient(n3.url) as third:
            onward = await resumed(third, back["token"], attempt=2, received=received, oldest=2)
            assert (onward["outcome"], onward["received"]) == ("handed_over", 1)
            await published(third, 2, "c", 5)
            await published(third, 3, "c", 6)
        assert [value for _, _, value, _ in await values(watcher, 1)] == [6]


@pytest.mark.promise("P4", "P15")
async def test_a_message_that_no_copy_knows_of_is_sent_once(
    mirrored: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos: it was refused, as if the client had used the number of its request before."""
    n1, n2, _ = mirrored
    jobs = Destination(selector=parse_selector("jobs/x"), limits=QueueLimits(), origin=Origin.FILE)
    for node in mirrored:
        node.gateway.node.destinations.table.put(jobs)
    send = {"id": 2, "type": "send", "request": 2, "queue": "jobs/x", "value": 5}
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        await caught_up(n1)
        received = last_id(raw)
        monkeypatch.setattr(mirror_of(n1), "_write", lambda: None)
        await raw.send(send)
        sent = (await raw.expect("reply"))["sent"]
        await n1.gateway.close()
    async with RawClient(n2.url) as again:
        back = await resumed(again, welcome["token"], received=received, oldest=2)
        assert (back["outcome"], back["received"]) == ("mirrored", 1)
        await again.send(send)
        reply = await again.expect("reply")
        assert (reply.get("error"), reply["sent"]) == (None, sent)
        await again.send(send | {"id": 3, "request": 3})
        assert (await again.expect("reply"))["sent"] > sent


async def test_an_absent_client_has_what_it_is_owed_from_the_copy(mirrored: list[TestNode]) -> None:
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
            await caught_up(n1)
        session = held_by(n1, welcome)
        await eventually(lambda: not session.connected)
        await ask.publish("a/x", 1, 2, 3)
        await eventually(lambda: session.machine.unacknowledged >= 3)
        await caught_up(n1)
        await n1.gateway.close()
        await ask.publish("a/x", 4)
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["resent"]) == ("mirrored", 3)
            assert [value for _, _, value, _ in await values(again, 4)] == [1, 2, 3, 4]


async def test_who_does_not_know_the_outcome_is_not_copied_and_fails_over(mirrored: list[TestNode]) -> None:
    n1, n2, _ = mirrored
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**", supports=["handed_over", "replay"])
        assert "backup" not in welcome
        assert mirror_of(n1).counts() == (0, 0)
        await n1.gateway.close()
    async with RawClient(n2.url) as again:
        back = await again.resume(welcome["token"], attempt=1, supports=["handed_over", "replay"])
        assert back["outcome"] == "failed_over"


async def test_the_welcome_and_the_grid_name_the_backup(mirrored: list[TestNode]) -> None:
    n1, n2, n3 = mirrored
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw)
        assert (welcome["backup"], welcome["mirror"]) == ("n2", "async")
        nodes = n3.gateway.node._context.grid.nodes
        told: list[Backup] = []

        async def look() -> None:
            told[:] = [*(await nodes.backups(n1.gateway.me)).values()]

        while not told or told[0].whole < 1:
            await look()
            await eventually(lambda: True)
        assert (told[0].node, told[0].whole, told[0].of) == (n2.gateway.me, 1, 1)


@pytest.mark.promise("P3")
async def test_a_session_that_leaves_its_node_leaves_its_backup(mirrored: list[TestNode]) -> None:
    n1, n2, n3 = mirrored
    async with RawClient(n1.url) as raw, RawClient(n3.url) as again:
        welcome = await subscribed(raw, "a/**")
        await caught_up(n1)
        assert n2.gateway.node.holder is not None
        assert SessionId(welcome["session"]) in n2.gateway.node.holder
        back = await resumed(again, welcome["token"], received=last_id(raw), oldest=2)
        assert (back["outcome"], back["backup"]) == ("handed_over", "n2")
        await caught_up(n1, 0)
        await caught_up(n3)
        holder = n2.gateway.node.holder
        assert len(holder) == 1
        await again.send({"id": 2, "type": "bye"}, {"type": "bye"})
        await eventually(lambda: not len(holder))


async def test_without_a_backup_nothing_listens(two: tuple[TestNode, TestNode]) -> None:
    """M5: what the hot paths ask is the same as ever, and the answer is that there is nobody."""
    n1, _ = two
    async with RawClient(n1.url) as raw:
        welcome = await subscribed(raw, "a/**")
        session = held_by(n1, welcome)
        node = n1.gateway.node
        assert node.mirror is None
        assert node.sessions.observer is None
        assert node.sessions.flusher.recorder is None
        assert (type(session.machine.buffer).__name__, type(session.machine.outbox).__name__) == (
            "ResendBuffer",
            "Outbox",
        )
        assert type(session.pending).__name__ == "PendingRequests"
        assert "backup" not in welcome


async def test_a_backup_that_goes_is_replaced_by_another(linked: LinkedNodes) -> None:
    async with linked.run("n1", "n2", "n3", backup="auto") as nodes:
        n1 = nodes[0]
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            await caught_up(n1)
            mirror = mirror_of(n1)
            assert mirror.backup is not None
            first = next(node for node in nodes if node.gateway.me == mirror.backup)
            other = next(node for node in nodes[1:] if node is not first)
            await first.gateway.close()
            await eventually(lambda: mirror.backup == other.gateway.me)
            await caught_up(n1)
            received = last_id(raw)
            await n1.gateway.close()
            async with RawClient(other.url) as again:
                back = await resumed(again, welcome["token"], received=received, oldest=2)
                assert (back["outcome"], back["lost"]) == ("mirrored", 0)


async def test_a_node_that_was_the_backup_does_not_go_on_with_what_it_has_kept_since(linked: LinkedNodes) -> None:
    """It is parted from the node, which has found another backup; that one has the newer copies."""
    async with linked.run("n1", "n2", "n3", backup="auto") as nodes:
        n1 = nodes[0]
        mirror = mirror_of(n1)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            await caught_up(n1)
            first = next(node for node in nodes if node.gateway.me == mirror.backup)
            other = next(node for node in nodes[1:] if node is not first)
            linked.network.cut(n1.gateway.me, first.gateway.me)
            await eventually(lambda: mirror.backup == other.gateway.me)
            async with RawClient(other.url) as bob:
                await (await publisher(bob)).publish("a/x", 1)
                await raw.expect("update")
            await caught_up(n1)
            await _told_of(other, n1)
            received = last_id(raw)
            await n1.gateway.close()
        assert first.gateway.node.holder is not None
        assert SessionId(welcome["session"]) in first.gateway.node.holder
        async with RawClient(first.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("mirrored", 0)


async def _told_of(backup: TestNode, node: TestNode) -> None:
    """Wait until the grid knows which node has the copies."""
    told: dict[NodeRef, Backup] = {}
    while not told or told[node.gateway.me].node != backup.gateway.me:
        told = dict(await backup.gateway.node._context.grid.nodes.backups(node.gateway.me))


async def test_a_link_that_was_cut_has_the_backup_filled_anew(
    linked: LinkedNodes, mirrored: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, n2, n3 = mirrored
    async with RawClient(n1.url) as raw, RawClient(n3.url) as bob:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        await caught_up(n1)
        mirror = mirror_of(n1)
        linked.network.cut(n1.gateway.me, n2.gateway.me)
        await eventually(lambda: mirror.backup is None)
        await ask.publish("a/x", 1)
        await raw.expect("update")
        linked.network.mend(n1.gateway.me, n2.gateway.me)
        await eventually(lambda: mirror.backup == n2.gateway.me)
        await caught_up(n1)
        received = last_id(raw)
        await n1.gateway.close()
        async with RawClient(n2.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["lost"]) == ("mirrored", 0)


@pytest.mark.parametrize("error", [NoLink("it has broken"), TooLarge("it is too large")], ids=["down", "too large"])
async def test_a_frame_that_no_link_takes_does_not_hold_the_node_up(mirrored: list[TestNode], error: NoLink) -> None:
    """Found by chaos: a node that woke up chose a backup to which the link had broken, for ever in one turn."""
    n1, n2, n3 = mirrored
    async with RawClient(n3.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        await subscribed(raw, "a/**")
        await caught_up(n1)
        with RefusingLink(n1, n2, error) as link:
            for number in range(3):
                await ask.publish("a/x", number)
                await raw.expect("update")
            assert 1 <= link.refused <= 2
        await caught_up(n1)


# --- Output that waits for the backup ---------------------------------------------------------------------------------


@pytest.fixture
async def strict(linked: LinkedNodes) -> AsyncIterator[list[TestNode]]:
    async with linked.run("n1", "n2", "n3", backup="n2", mirror=MirrorMode.STRICT) as nodes:
        await eventually(lambda: all(mirror_of(node).backup for node in (nodes[0], nodes[2])))
        yield nodes


async def seen_to_the_end(raw: RawClient) -> list[int]:
    """Read all that a client was sent before its connection ended; returns the packet ids."""
    with suppress(Closed):
        while True:
            await raw.receive()
    return [packet["id"] for packet in raw.seen if "id" in packet]


async def test_nothing_is_seen_that_the_backup_does_not_have(linked: LinkedNodes, strict: list[TestNode]) -> None:
    """M2: an update, a reply and an acknowledgement wait until the backup has what they follow from."""
    n1, n2, n3 = strict
    async with RawClient(n2.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        welcome = await subscribed(raw, "a/**")
        assert (welcome["backup"], welcome["mirror"]) == ("n2", "strict")
        await ask.publish("a/x", 1)
        received = (await values(raw, 1))[0][0]
        await caught_up(n1)
        linked.network.stall(n1.gateway.me, n2.gateway.me)
        await raw.send({"id": 2, "type": "publish", "request": 2, "topic": "c", "value": 5})
        session = held_by(n1, welcome)
        await eventually(lambda: session.machine.last_numbered > received)
        await ask.publish("a/x", 2)
        await eventually(lambda: session.machine.last_numbered >= received + 2)
        await n1.gateway.close()
        assert max(await seen_to_the_end(raw)) == received
        async with RawClient(n3.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert (back["outcome"], back["lost"], back["received"]) == ("mirrored", 0, 1)
            await again.send({"id": 2, "type": "publish", "request": 2, "topic": "c", "value": 5})
            reply = await again.expect("reply")
            assert (reply["request"], reply.get("error")) == (2, None)
            assert [each["value"] for each in again.seen if each["type"] == "update"] == [2]


@pytest.mark.promise("P2")
async def test_a_silent_backup_is_not_waited_for_and_that_is_told(linked: LinkedNodes) -> None:
    """Sync: after the patience packets leave without the backup; when it has caught up, they wait for it again."""
    patience = scaled(0.3)
    async with linked.run("n1", "n2", backup="n2", mirror=MirrorMode.SYNC, mirror_patience=patience) as (n1, n2):
        mirror = mirror_of(n1)
        await eventually(lambda: mirror.backup is not None)
        async with RawClient(n2.url) as bob, RawClient(n1.url) as raw:
            ask = await publisher(bob)
            welcome = await subscribed(raw, "a/**")
            assert welcome["mirror"] == "sync"
            connection = held_by(n1, welcome).connection
            assert isinstance(connection, GatedConnection)
            await caught_up(n1)
            linked.network.stall(n2.gateway.me, n1.gateway.me)
            await ask.publish("a/x", 1)
            await eventually(lambda: len(connection.held) > 0)
            assert [value for _, _, value, _ in await values(raw, 1)] == [1]
            assert (await raw.expect("notice"))["code"] == "unmirrored"
            assert not connection.waits
            await ask.publish("a/x", 2)
            assert [value for _, _, value, _ in await values(raw, 1)] == [2]
            linked.network.mend(n1.gateway.me, n2.gateway.me)
            await caught_up(n1)
            await ask.publish("a/x", 3)
            assert [value for _, _, value, _ in await values(raw, 1)] == [3]
            assert connection.waits


@pytest.mark.promise("P2")
async def test_packets_wait_again_though_there_is_always_a_frame_on_its_way(linked: LinkedNodes) -> None:
    """The welcome said ``sync``: when the backup answers in time again, that holds again, also under steady traffic."""
    patience = scaled(1.0)
    async with linked.run("n1", "n2", backup="n2", mirror=MirrorMode.SYNC, mirror_patience=patience) as (n1, n2):
        await eventually(lambda: mirror_of(n1).backup is not None)
        async with RawClient(n2.url) as bob, RawClient(n1.url) as raw:
            ask = await publisher(bob)
            connection = held_by(n1, await subscribed(raw, "a/**")).connection
            assert isinstance(connection, GatedConnection)
            await caught_up(n1)
            linked.network.stall(n2.gateway.me, n1.gateway.me)
            await ask.publish("a/x", 1)
            await raw.expect("update")
            assert (await raw.expect("notice"))["code"] == "unmirrored"
            linked.network.mend(n1.gateway.me, n2.gateway.me)
            # Answers take longer than the time from one update to the next.
            linked.network.delay(patience / 4, n2.gateway.me, n1.gateway.me)
            number = 1
            while not connection.waits:
                number += 1
                await ask.publish("a/x", number)
            seen = [value for _, _, value, _ in await values(raw, number - 1)]
            assert seen == list(range(2, number + 1))


@pytest.mark.promise("P2")
async def test_who_has_no_copy_for_want_of_room_is_not_served_as_if_there_were_one(linked: LinkedNodes) -> None:
    patience = scaled(0.3)
    async with linked.run("n1", "n2", backup="n2", mirror=MirrorMode.SYNC, mirror_patience=patience) as (n1, n2):
        await eventually(lambda: mirror_of(n1).is_whole)
        holder = n2.gateway.node.holder
        assert holder is not None
        holder._most_bytes = 1
        async with RawClient(n1.url) as raw:
            assert (await raw.hello(**SUPPORTS))["mirror"] == "sync"
            assert (await raw.expect("notice"))["code"] == "unmirrored"
            assert mirror_of(n1).counts() == (0, 1)


async def test_a_role_asks_for_more_than_its_node(linked: LinkedNodes, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'default = ["reader"]\n[principals]\nalice = ["exact"]\n'
        '[roles.reader]\nselect = ["**"]\n[roles.exact]\nmirror = "sync"\n'
    )
    async with linked.run("n1", "n2", backup="n2", policy=policy) as (n1, _):
        mirror = mirror_of(n1)
        await eventually(lambda: mirror.backup is not None)
        async with RawClient(n1.url) as alice, RawClient(n1.url) as carol:
            assert (await alice.hello("alice", **SUPPORTS))["mirror"] == "sync"
            assert (await carol.hello("carol", **SUPPORTS))["mirror"] == "async"


async def test_a_session_that_is_closed_has_its_last_replies(strict: list[TestNode]) -> None:
    n1, _, _ = strict
    async with RawClient(n1.url) as raw:
        await subscribed(raw, "a/**")
        await raw.send(
            {"id": 2, "type": "publish", "request": 2, "topic": "c", "value": 5}, {"type": "bye", "reason": "enough"}
        )
        assert (await raw.expect("reply"))["request"] == 2
        assert (await raw.expect("bye"))["type"] == "bye"
