"""What a client gets that says where it was: all that it missed, or why not, by partition (P13, protocol 10.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.delivery.replay import gathering
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import StreamPosition, TopicValue
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.raw_sessions import publisher
from tests.support.times import scaled

SUPPORTS = {"supports": ["replay"]}
A = topic_partition(TopicPath("a"), 1)
B = topic_partition(TopicPath("b"), 1)

pytestmark = pytest.mark.promise("P13")


async def subscribed(raw: RawClient, *selectors: str, **hello: Any) -> tuple[str, list[Packet]]:
    """Open a session that selects something; returns its token and the notices that all values have come."""
    token: str = (await raw.hello(**(SUPPORTS | hello)))["token"]
    notices = []
    for number, selector in enumerate(selectors, 1):
        await raw.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
        await raw.expect("reply")
        notices.append(await raw.expect("notice"))
    return token, notices


async def resumed(raw: RawClient, token: str, positions: dict[int, str], **more: Any) -> Packet:
    named = {str(number): event for number, event in positions.items()}
    more = SUPPORTS | {"positions": named} | more
    return await raw.resume(token, attempt=1, received=0, oldest=2**53 - 1, **more)


async def metrics(node: TestNode) -> dict[str, float]:
    async with aiohttp.ClientSession() as http, http.get(f"{node.admin}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines if each[:1] != "#")}


async def failovers(node: TestNode) -> tuple[float, ...]:
    """Return how many clients failed over to a node: replayed, not replayed, and those that select nothing."""
    told = await metrics(node)
    return tuple(told[f'gateway_failovers_total{{replayed="{each}"}}'] for each in ("true", "false", "nothing"))


async def updates(raw: RawClient, count: int) -> list[tuple[str, Any, bool]]:
    """Return the next updates: topic, value, and whether it is a snapshot."""
    found = [await raw.expect("update") for _ in range(count)]
    return [(each["topic"], each["value"], each.get("snapshot", False)) for each in found]


async def test_a_subscribe_is_followed_by_the_notice_that_all_values_have_come(n1: TestNode) -> None:
    """10.6.2."""
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        event = await (await publisher(bob)).publish("a/x", 1, 2)
        _, (first, second) = await subscribed(raw, "a/**", "b/x")
        assert [each["type"] for each in raw.seen[1:5]] == ["reply", "update", "notice", "reply"]
        assert (first["code"], first["request"], first["partitions"]) == ("snapshots_complete", 1, [A])
        assert first["positions"] == {str(A): event}
        assert (second["request"], second["partitions"]) == (2, [B])


async def test_who_did_not_ask_gets_not_a_byte_of_it(n1: TestNode, n2: TestNode) -> None:
    """R3: what clients of the first release get is what they got."""
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        await ask.publish("a/x", 1)
        token = (await raw.hello())["token"]
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("update")
        event = await ask.publish("a/x", 2, 3)
        await updates(raw, 2)
        await raw.cut()
        await ask.publish("a/x", 4, 5)
        async with RawClient(n2.url) as again:
            welcome = await resumed(again, token, {A: event}, supports=[])
            assert (welcome["outcome"], welcome["lost"], "replayed" in welcome) == ("failed_over", None, False)
            assert await updates(again, 1) == [("a/x", 5, True)]
            await ask.publish("a/x", 6)
            assert await updates(again, 1) == [("a/x", 6, False)]
            assert not [each for each in raw.seen + again.seen if each["type"] == "notice"]
            assert await failovers(n2) == (0, 1, 0), "it may have missed something all the same"


async def test_who_selects_nothing_has_missed_nothing(n1: TestNode, n2: TestNode) -> None:
    async with RawClient(n1.url) as raw:
        token, _ = await subscribed(raw)
        await raw.cut()
        async with RawClient(n2.url) as again:
            assert (await resumed(again, token, {}))["outcome"] == "failed_over"
            assert await failovers(n2) == (0, 0, 1)


async def test_every_update_that_was_missed_is_sent_in_order_and_the_live_ones_follow(
    n1: TestNode, n2: TestNode
) -> None:
    """R1."""
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        token, _ = await subscribed(raw, "a/**", "b/x")
        event = await ask.publish("a/x", 1)
        await updates(raw, 1)
        await raw.cut()
        await ask.publish("a/y", 2, 3)
        await ask.publish("a/x", 4)
        await ask.publish("b/y", 0)
        await ask.publish("b/x", 5, 6)
        async with RawClient(n2.url) as again:
            welcome = await resumed(again, token, {A: event, B: f"{B}-0-0"})
            assert (welcome["outcome"], welcome["numbering"]) == ("failed_over", "restarted")
            assert (welcome["replayed"], welcome["lost"]) == (True, 0)
            missed = await updates(again, 5)
            await ask.publish("a/x", 7)
            assert await updates(again, 1) == [("a/x", 7, False)]
        assert [each for each in missed if each[0][0] == "a"] == [
            ("a/y", 2, False), ("a/y", 3, False), ("a/x", 4, False),
        ]  # fmt: skip
        assert [each for each in missed if each[0][0] == "b"] == [("b/x", 5, False), ("b/x", 6, False)]
        assert not [each for each in again.seen if each.get("snapshot") or each["type"] == "notice"]


async def test_a_gap_at_the_same_node_loses_nothing_either(n1: TestNode) -> None:
    """10.6: reason gap."""
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        token, _ = await subscribed(raw, "a/**")
        event = await ask.publish("a/x", 1)
        await updates(raw, 1)
        await raw.cut()
        await ask.publish("a/x", 2, 3)
        async with RawClient(n1.url) as again:
            welcome = await resumed(again, token, {A: event})
            assert (welcome["reason"], welcome["replayed"], welcome["lost"]) == ("gap", True, 0)
            assert await updates(again, 2) == [("a/x", 2, False), ("a/x", 3, False)]
            told = await metrics(n1)
            assert told["gateway_replayed_updates_total"] == 2
            assert not told.get('gateway_losses_declared_total{kind="gap"}'), "nothing was lost"
            assert await failovers(n1) == (1, 0, 0)


async def test_what_the_grid_does_not_keep_is_told_by_partition_and_sent_as_snapshots() -> None:
    """R2: of the others every update comes, and a later notice says from where on the position holds."""
    memory = MemoryGridServer(stream_length=100)
    async with running_node("n1", memory=memory) as n1, RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        token, _ = await subscribed(raw, "a/**", "b/**")
        places = {A: await ask.publish("a/x", 1), B: await ask.publish("b/x", 1)}
        await updates(raw, 2)
        await raw.cut()
        await ask.publish("a/x", *range(2, 150))
        await ask.publish("b/x", 2, 3)
        # A node that was not there then knows only what the grid keeps.
        async with running_node("n2", memory=memory) as n2, RawClient(n2.url) as again:
            welcome = await resumed(again, token, places)
            assert (welcome["replayed"], welcome["lost"]) == ({str(A): "gap"}, None)
            assert await failovers(n2) == (0, 1, 0)
            assert await updates(again, 3) == [("b/x", 2, False), ("b/x", 3, False), ("a/x", 149, True)]
            notice = await again.expect("notice")
            last = f"{A}-1-149"
            assert (notice["partitions"], notice["positions"]) == ([A], {str(A): last})
            assert "request" not in notice


async def test_a_position_from_before_the_grid_lost_writes_is_not_believed() -> None:
    """R2."""
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        token, _ = await subscribed(raw, "a/**", "b/x")
        event = await ask.publish("a/x", 1)
        await updates(raw, 1)
        memory.go_away()
        memory.come_back(restarted=True)
        token = (await raw.expect("ping", where=lambda packet: "token" in packet))["token"]
        await raw.expect("notice", where=lambda packet: packet["code"] == "grid_lost_writes")
        await eventually(lambda: not n1.gateway.node.readiness.reasons())
        await ask.publish("a/x", 2)
        await raw.cut()
        async with RawClient(n1.url) as again:
            welcome = await resumed(again, token, {A: event})
            assert welcome["replayed"] == {str(A): "generation", str(B): "unnamed"}
            assert await updates(again, 1) == [("a/x", 2, True)]


async def test_more_than_a_node_looks_at_is_not_replayed() -> None:
    async with running_node("n1", replay_events=3) as n1, RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        token, _ = await subscribed(raw, "a/**")
        event = await ask.publish("a/x", 1)
        await updates(raw, 1)
        await raw.cut()
        await ask.publish("a/x", 2, 3, 4, 5)
        async with RawClient(n1.url) as again:
            welcome = await resumed(again, token, {A: event})
            assert welcome["replayed"] == {str(A): "too_many"}
            assert await updates(again, 1) == [("a/x", 5, True)]


async def test_who_selects_what_seldom_changes_has_missed_nothing_however_much_else_has() -> None:
    memory = MemoryGridServer(stream_length=100)
    async with running_node("n1", memory=memory) as n1, RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        event = await ask.publish("a/quiet", 1)
        token, _ = await subscribed(raw, "a/quiet")
        await raw.cut()
        await ask.publish("a/busy", *range(150))
        async with running_node("n2", memory=memory) as n2, RawClient(n2.url) as again:
            welcome = await resumed(again, token, {A: event})
            assert (welcome["replayed"], welcome["lost"]) == (True, 0)
            await ask.publish("a/quiet", 2)
            assert await updates(again, 1) == [("a/quiet", 2, False)]


async def test_a_node_that_is_behind_the_client_waits_until_it_is_not(n1: TestNode, n2: TestNode) -> None:
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw, RawClient(n2.url) as other:
        ask = await publisher(bob)
        await subscribed(other, "a/**")
        token, _ = await subscribed(raw, "a/**")
        tail = n2.gateway.node.sessions.delivery.replicas._tail
        tail.pause(A)
        event = await ask.publish("a/x", 1, 2)
        await updates(raw, 2)
        await raw.cut()
        await ask.publish("a/x", 3)
        async with RawClient(n2.url) as again:
            resuming = asyncio.create_task(resumed(again, token, {A: event}))
            partition = n2.gateway.node.sessions.delivery.replicas.get(A)
            assert partition is not None
            await eventually(lambda: bool(partition.awaited))
            tail.resume(A)
            assert (await resuming)["replayed"] is True
            assert await updates(again, 1) == [("a/x", 3, False)]


async def test_a_position_that_nobody_has_come_to_is_not_waited_for_without_end(n1: TestNode) -> None:
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        token, _ = await subscribed(raw, "a/**")
        await ask.publish("a/x", 1)
        await updates(raw, 1)
        await raw.cut()
        async with RawClient(n1.url) as again:
            welcome = await resumed(again, token, {A: f"{A}-1-999"})
            assert welcome["replayed"] == {str(A): "behind"}
            assert await updates(again, 1) == [("a/x", 1, True)]


async def test_what_was_shown_as_a_value_does_not_come_again_as_an_update(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: the values that are read are newer than the place from which the stream is followed, and that is noted."""
    replicas = n2.gateway.node.sessions.delivery.replicas
    topics, tail = replicas._store, replicas._tail
    position_of, values_of = topics.position, topics.values
    async with RawClient(n1.url) as bob, RawClient(n2.url) as raw, RawClient(n1.url) as again:
        ask = await publisher(bob)
        await ask.publish("a/x", 1)

        async def values(number: int) -> AsyncIterator[Sequence[TopicValue]]:
            tail.pause(number)  # the stream is slower than the values
            await ask.publish("a/x", 2)
            async for page in values_of(number):
                yield page
            reading.set()

        async def position(number: int) -> StreamPosition:
            found = await position_of(number)
            if reading.is_set():
                asyncio.get_running_loop().call_soon(tail.resume, number)
            return found

        reading = asyncio.Event()
        monkeypatch.setattr(topics, "values", values)
        monkeypatch.setattr(topics, "position", position)
        token, (complete,) = await subscribed(raw, "a/**")
        assert [(each["value"], each["snapshot"]) for each in raw.seen if each["type"] == "update"] == [(2, True)]
        await raw.cut()
        tail.resume(A)
        welcome = await resumed(again, token, complete["positions"])
        event = await ask.publish("a/x", 3)
        assert welcome["replayed"] is True
        assert await updates(again, 1) == [("a/x", 3, False)]
        assert event == f"{A}-1-3"


async def test_snapshots_that_had_not_all_come_come_again(n1: TestNode, n2: TestNode) -> None:
    """10.6.3: of what was complete every update comes, of what was not the values."""
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        await ask.publish("a/y", 1)
        token, _ = await subscribed(raw, "a/x", "a/y")
        event = await ask.publish("a/x", 1)
        await updates(raw, 1)
        await raw.cut()
        await ask.publish("a/x", 2, 3)
        async with RawClient(n2.url) as again:
            welcome = await resumed(again, token, {A: event}, unfinished={"2": "a/y"})
            assert welcome["replayed"] is True
            assert await updates(again, 3) == [("a/x", 2, False), ("a/x", 3, False), ("a/y", 1, True)]
            notice = await again.expect("notice")
            assert (notice["request"], notice["partitions"]) == (2, [A])


async def test_of_what_was_not_complete_no_update_comes_before_the_value(n1: TestNode, n2: TestNode) -> None:
    """10.6.3, P2: found by chaos, as a first update of a topic that said nothing of those before it."""
    async with RawClient(n1.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        event = await ask.publish("a/y", 1)
        token, _ = await subscribed(raw, "a/x", "a/y")
        await raw.cut()
        await ask.publish("a/x", 1)
        await ask.publish("a/y", 2, 3)
        async with RawClient(n2.url) as again:
            welcome = await resumed(again, token, {A: event}, unfinished={"2": "a/y"})
            assert welcome["replayed"] is True
            assert await updates(again, 2) == [("a/x", 1, False), ("a/y", 3, True)]
            await ask.publish("a/y", 4)
            assert await updates(again, 1) == [("a/y", 4, False)]


@pytest.mark.parametrize(
    "positions",
    [[], "x", {"x": "y"}, {"3": 7}, {"3": "4-1-1"}, {"64": "64-1-1"}, {"-1": "-1-1-1"}, {"3": "3-1-99999999999999999"}],
)
async def test_what_is_no_position_is_as_if_nothing_was_said(n1: TestNode, positions: object) -> None:
    """2.3, 10.6.1."""
    async with RawClient(n1.url) as raw:
        token, _ = await subscribed(raw, "a/**")
        await raw.cut()
        async with RawClient(n1.url) as again:
            welcome = await again.resume(
                token, attempt=1, received=0, oldest=2**53 - 1, positions=positions, unfinished=7, **SUPPORTS
            )
            assert (welcome["outcome"], "replayed" in welcome) == ("failed_over", False)


@pytest.mark.thorough
async def test_a_storm_reads_each_stretch_once_and_matches_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm of comebacks costs what its events cost: counted."""
    comebacks, missed = 300, 120
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory, claims_at_once=0) as n1, RawClient(n1.url) as bob:
        ask = await publisher(bob)
        first = await ask.publish("a/x", 0)
        tokens = []
        for number in range(comebacks):
            async with RawClient(n1.url) as raw:
                tokens.append((await subscribed(raw, "a/**" if number % 2 else f"a/{number % 10}"))[0])
        generation, start = map(int, first.split("-")[1:])
        for value in range(missed):
            await ask.publish(f"a/{value % 10}", value)
        async with running_node("n2", memory=memory, claims_at_once=0) as n2:
            async with RawClient(n2.url) as other:
                # So that the node follows the stream, from behind what they missed.
                await subscribed(other, "a/**")
                delivery = n2.gateway.node.sessions.delivery
                assert delivery.replicas.get(A) is not None
                connections = [RawClient(n2.url) for _ in tokens]
                try:
                    await asyncio.gather(*(each.connect() for each in connections))
                    monkeypatch.setattr(gathering, "GATHER", scaled(2.0))  # all of them come in that time
                    resuming = [
                        asyncio.create_task(resumed(raw, token, {A: f"{A}-{generation}-{start + number % 3}"}))
                        for number, (raw, token) in enumerate(zip(connections, tokens, strict=True))
                    ]
                    welcomes = await asyncio.gather(*resuming)
                    assert all(each["replayed"] is True for each in welcomes)
                    for number, raw in enumerate(connections):
                        wanted = [
                            value
                            for value in range(missed)
                            if value >= number % 3 and (number % 2 or value % 10 == number % 10)
                        ]
                        assert [value for _, value, _ in await updates(raw, len(wanted))] == wanted
                finally:
                    for raw in connections:
                        await raw.cut()
            assert delivery.replays.stretches.reads == 1
            assert delivery.replays.gathering.finds == 1
            assert delivery.replays.gathering.matched == missed
