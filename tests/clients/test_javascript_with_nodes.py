"""The JavaScript client against real nodes: what it promises under cut connections, push-back and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits, QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.wire.packets import GoAway
from gateway.local.proxy import FaultProxy, Way
from tests.clients.driver import Driver, Refused
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import time_limit

VALUES = 150


@dataclass
class Setting:
    """Two nodes of a cluster, each behind a proxy that fails, and a client that knows both."""

    one: TestNode
    two: TestNode
    first: FaultProxy
    second: FaultProxy
    client: Driver

    async def connect(self, **options: Any) -> Any:
        urls = [f"ws://127.0.0.1:{each.port}" for each in (self.first, self.second)]
        return await self.client.do("connect", urls=urls, options={"principal": "alice"} | options)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    memory = MemoryGridServer()
    async with (
        running_node("n1", memory=memory) as one,
        running_node("n2", memory=memory) as two,
        FaultProxy("127.0.0.1", one.gateway.port) as first,
        FaultProxy("127.0.0.1", two.gateway.port) as second,
        Driver() as client,
    ):
        yield Setting(one, two, first, second, client)


async def test_a_client_that_knows_one_url_goes_on_at_a_node_that_it_was_told_of(setting: Setting) -> None:
    url = f"ws://127.0.0.1:{setting.two.gateway.port}"
    told = setting.two.gateway.node.presence
    told.announce(listen="here", admin=setting.two.admin, version="1", urls=(url, url.replace("ws", "wss")))
    given = f"ws://127.0.0.1:{setting.first.port}"
    await setting.client.do("connect", urls=[given], options={"principal": "alice"})
    await eventually(lambda: bool(setting.one.gateway.node._cluster_list._lists[False].nodes))
    setting.first.cut()
    await eventually(lambda: len(setting.client.events["recovery"]) == 1)
    setting.first.refuse()
    setting.first.cut()
    await eventually(lambda: len(setting.client.events["recovery"]) == 2)
    assert setting.client.events["recovery"][1]["node"] == "n2"
    await setting.client.do("close")


@pytest.mark.promise("P19")
async def test_a_client_that_follows_the_master_finds_it(setting: Setting) -> None:
    one, two = setting.one.gateway.node, setting.two.gateway.node
    await eventually(lambda: one.cluster.master == two.cluster.master is not None)
    if not one.cluster.is_master:
        one, two = two, one
    ports = {each.gateway.me.node: each.gateway.port for each in (setting.one, setting.two)}
    urls = [f"ws://127.0.0.1:{ports[node]}" for node in (two.me.node, one.me.node)]
    welcome = await setting.client.do("connect", urls=urls, options={"principal": "alice", "followMaster": True})
    assert welcome["node"] == one.me.node
    one.begin_drain()
    await eventually(lambda: len(setting.client.events["recovery"]) > 0)
    await eventually(lambda: two.cluster.is_master)
    assert setting.client.events["recovery"][-1]["node"] == two.me.node
    await setting.client.do("close")


def versions(updates: list[Any], topic: str) -> list[int]:
    return [each["version"] for each in updates if each["topic"] == topic]


async def test_nothing_is_lost_or_doubled_while_connections_are_cut(setting: Setting) -> None:
    client = setting.client
    await setting.connect()
    await client.do("subscribe", selector="t/**")
    async with connect(setting.one.url, principal="bob") as bob:
        for number in range(VALUES):
            mine = client.begin("publish", topic="t/mine", value=number)
            await bob.publish("t/bob", number)
            if not number % 50:
                setting.first.cut()
            receipt = await mine
            assert receipt["version"] in {0, number + 1}
        updates = client.events["update"]
        await eventually(lambda: all(len(versions(updates, topic)) == VALUES for topic in ("t/bob", "t/mine")))
    assert versions(updates, "t/bob") == versions(updates, "t/mine") == list(range(1, VALUES + 1))
    recoveries = client.events["recovery"]
    assert len(recoveries) >= VALUES // 50 - 1
    assert {each["outcome"] for each in recoveries} == {"reattached"}
    assert all(each["lost"] == 0 for each in recoveries)
    assert (await client.do("close"))["state"] == "closed"
    assert not [each for each in setting.one.gateway.node.sessions if each.principal == "alice"]


@pytest.mark.promise("P15")
async def test_messages_are_settled_once_while_connections_are_cut_and_nodes_change(
    setting: Setting,
) -> None:
    client, queue, count = setting.client, "jobs/render", 60
    await setting.one.gateway.node.destinations.set(
        Destination(selector=parse_selector(queue), limits=QueueLimits(), origin=Origin.ADMINISTRATOR)
    )
    await eventually(lambda: setting.two.gateway.node.destinations.table.has_queues)
    await setting.connect()
    await client.do("consume", queue=queue, options={"ack": "each", "credit": 8}, pause=5)
    async with connect(setting.two.url, principal="bob") as bob:
        for number in range(count):
            await bob.send(queue, number, headers={"n": str(number)})
            if not number % 20:
                setting.first.cut()
                setting.second.cut()
    assert (await client.do("send", queue=queue, value="mine"))["messageId"] > count
    messages, accepted = client.events["message"], client.events["accepted"]
    await eventually(lambda: len(accepted) == count + 1)
    assert sorted(map(str, accepted)) == sorted(map(str, [*range(count), "mine"])), "each once"
    fresh = [each["value"] for each in messages if not each["redelivered"]]
    assert len(fresh) == len(set(fresh))
    assert next(each["headers"] for each in messages if each["value"] == 5) == {"n": "5"}
    assert (await client.do("close"))["state"] == "closed"


async def test_a_publish_whose_answer_is_lost_with_its_node_is_executed_once(setting: Setting) -> None:
    client = setting.client
    await setting.connect()
    await client.do("subscribe", selector="t")
    setting.first.cut_after(0, Way.DOWN)  # the answer never arrives, and the node is never seen again
    publishing = [client.begin("publish", topic="t", value=number) for number in range(5)]
    await eventually(lambda: setting.first.cuts > 0)
    setting.first.refuse()
    receipts = await asyncio.gather(*publishing)
    assert [each["version"] for each in receipts] == [1, 2, 3, 4, 5]
    [recovery] = client.events["recovery"]
    assert (recovery["outcome"], recovery["node"]) == ("failed_over", "n2")
    await eventually(lambda: versions(client.events["update"], "t")[-1:] == [5])
    async with connect(setting.two.url) as reader, await reader.subscribe("t") as stream:
        update = await anext(stream)
        assert (update.version, update.value) == (5, 4)


async def test_what_was_said_survives_the_node(setting: Setting) -> None:
    client = setting.client
    session = (await setting.connect(properties={"team": "fx"}))["id"]
    await client.do("subscribe", selector="prices/**")
    await client.do("unsubscribe", selector="prices/secret/**")
    await client.do("setProperties", changes={"desk": "7", "team": None})
    await setting.one.gateway.close()
    await eventually(lambda: bool(client.events["recovery"]), within=10)
    status = await client.do("status")
    assert (status["id"], status["node"], status["state"]) == (session, "n2", "connected")
    assert status["properties"]["desk"] == "7"
    assert "team" not in status["properties"]
    held = next(each for each in setting.two.gateway.node.sessions if each.id == session)
    assert held.selections.to_wire() == ("+prices/**", "-prices/secret/**")
    async with connect(setting.two.url, principal="bob") as bob:
        await bob.publish("prices/secret/x", 1)
        await bob.publish("prices/A", 2)
    await eventually(lambda: bool(client.events["update"]))
    assert [each["topic"] for each in client.events["update"]] == ["prices/A"]


async def test_what_it_missed_is_replayed_by_the_next_node(setting: Setting) -> None:
    """It says up to which event it has had everything, and gets each one behind that, once and in order."""
    client = setting.client
    await setting.connect()
    await client.do("subscribe", selector="t/**")
    async with connect(setting.two.url, principal="bob") as bob:
        await bob.publish("t/a", 1)
        updates = client.events["update"]
        await eventually(lambda: versions(updates, "t/a") == [1])
        for proxy in (setting.first, setting.second):
            proxy.refuse()
        setting.first.cut()
        for value in range(2, 8):
            await bob.publish("t/a", value)
        await setting.second.start()
        await eventually(lambda: bool(client.events["recovery"]), within=10)
        await bob.publish("t/a", 8)
        await eventually(lambda: versions(updates, "t/a")[-1:] == [8])
    [recovery] = client.events["recovery"]
    assert (recovery["outcome"], recovery["node"]) == ("failed_over", "n2")
    assert (recovery["replayed"], recovery["lost"]) == (True, 0)
    assert [(each["version"], each["snapshot"]) for each in updates] == [(version, False) for version in range(1, 9)]


async def test_the_end_of_a_wide_stream_takes_nothing_from_a_narrow_one(setting: Setting) -> None:
    """While values come: what the narrow one misses, if the node cannot keep it selected meanwhile, is marked."""
    client = setting.client
    session = (await setting.connect())["id"]
    held = next(each for each in setting.one.gateway.node.sessions if each.id == session)
    await client.do("subscribe", selector="p/A", name="narrow")
    async with connect(setting.one.url, principal="bob") as bob:
        for turn in range(5):
            await client.do("subscribe", selector="p/**", name="wide")
            for number in range(10):
                await bob.publish("p/A", [turn, number])
                if number == 5:
                    await client.do("closeStream", name="wide")
        await eventually(lambda: held.selections.to_wire() == ("+p/A",))
        await bob.publish("p/B", "nobody wants it")
        await bob.publish("p/A", "last")
    updates = client.events["update"]
    await eventually(lambda: updates[-1]["value"] == "last")
    assert {each["topic"] for each in updates} == {"p/A"}
    narrow = list({each["version"]: each for each in updates}.values())
    for before, after in pairwise(narrow):
        assert after["version"] == before["version"] + 1 or after["snapshot"], (before, after)
    assert await client.do("openStreams") == ["narrow"]


async def test_more_requests_than_a_node_takes_at_once_are_held_back(setting: Setting) -> None:
    await setting.connect()
    receipts = await setting.client.do("publishMany", topic="t", values=list(range(1000)))
    assert [each["version"] for each in receipts] == list(range(1, 1001))


async def test_a_client_that_is_asked_to_go_goes_without_a_gap(setting: Setting) -> None:
    client = setting.client
    session = (await setting.connect())["id"]
    await client.do("subscribe", selector="t")
    held = next(each for each in setting.one.gateway.node.sessions if each.id == session)
    held.machine.send_link(GoAway("the test", delay=0.0))
    setting.one.gateway.node.sessions.flusher.mark(held)
    await eventually(lambda: bool(client.events["recovery"]))
    assert client.events["recovery"][0]["node"] == "n2"
    await client.do("publish", topic="t", value=1)
    await eventually(lambda: bool(client.events["update"]))


async def test_refusals_have_their_names(setting: Setting) -> None:
    await setting.connect()
    for command, given, name in (
        ("publish", {"topic": "a//b", "value": 1}, "InvalidTopic"),
        ("publish", {"topic": "$gateway/x", "value": 1}, "Forbidden"),
        ("publish", {"topic": "t", "value": "x" * 40_000}, "ValueTooLarge"),
        ("subscribe", {"selector": "a*"}, "InvalidSelector"),
        ("subscribe", {"selector": "$gateway/**"}, "Forbidden"),
        ("setProperties", {"changes": {"$node": "n9"}}, "InvalidProperties"),
    ):
        with pytest.raises(Refused) as refused:
            await setting.client.do(command, **given)
        assert refused.value.name == name, (command, given)


async def test_an_administrator_ends_it(setting: Setting) -> None:
    from gateway.core.wire.codes import SESSION_CLOSED, ErrorCode  # noqa: PLC0415 - only here

    session = (await setting.connect())["id"]
    sessions = setting.one.gateway.node.sessions
    held = next(each for each in sessions if each.id == session)
    await sessions.end(held, ErrorCode.SESSION_CLOSED, SESSION_CLOSED)
    assert await setting.client.do("closed") == {"reason": "SessionClosed", "code": None}


@pytest.mark.promise("P14")
async def test_every_event_of_a_topic_with_history_comes_once_and_in_order(setting: Setting) -> None:
    """P14: over cut connections, slow reading, and at the next node, from the position on."""
    client = setting.client
    for node in (setting.one, setting.two):
        node.gateway.node.destinations.table.put(
            Destination(selector=parse_selector("log/**"), limits=HistoryLimits(count=10_000), origin=Origin.FILE)
        )
    await setting.connect()
    async with connect(setting.one.url, principal="bob") as bob, time_limit(40):

        async def write() -> None:
            for start in range(0, 1000, 50):
                await asyncio.gather(*(bob.publish(f"log/{number % 3}", number) for number in range(start, start + 50)))
                if start == 500:
                    setting.first.cut()

        writing = asyncio.create_task(write())
        got: list[Any] = []
        position = "earliest"
        for size in (5, 10_000, 50, 10_000):
            part = await client.do("follow", selector="log/**", start=position, count=250, options={"queueSize": size})
            got += part["updates"]
            position = part["position"]
        await writing
        kept = await client.do("history", topic="log/0", options={"limit": 2000})
    assert {number: [each["value"] for each in got if each["topic"] == f"log/{number}"] for number in range(3)} == {
        number: list(range(number, 1000, 3)) for number in range(3)
    }
    assert not any(each["folded"] or each["gap"] or each["snapshot"] for each in got)
    assert [each["value"] for each in kept] == list(range(0, 1000, 3))
    with pytest.raises(Refused, match="no position"):
        await client.do("follow", selector="log/**", start="17", count=1)


@pytest.mark.promise("P14")
async def test_a_durable_subscription_goes_on_where_its_reader_was_done(setting: Setting) -> None:
    """P14: over cut connections, and by what the Python client has acknowledged of it."""
    client = setting.client
    for node in (setting.one, setting.two):
        node.gateway.node.destinations.table.put(
            Destination(selector=parse_selector("log/**"), limits=HistoryLimits(count=10_000), origin=Origin.FILE)
        )
    await setting.connect()
    ask: dict[str, Any] = {"name": "billing", "selector": "log/**"}
    async with connect(setting.one.url, principal="alice") as other, time_limit(40):
        for number in range(20):
            await other.publish(f"log/{number % 3}", number)
        assert await client.do("followDurable", **ask, count=5) == {"values": [*range(5)], "created": True}
        setting.first.cut()
        assert await client.do("followDurable", **ask, count=5) == {"values": [*range(5, 10)], "created": False}
        async with await other.subscribe_durable("billing", "log/**") as stream:
            assert [(await anext(stream)).value for _ in range(5)] == [*range(10, 15)]
            with pytest.raises(Refused, match="another session uses it"):
                await client.do("followDurable", **ask, count=1)
            await stream.acknowledge()
        assert (await client.do("followDurable", **ask, count=5))["values"] == [*range(15, 20)]
        shared = {"name": "shared", "selector": "log/**", "count": 20, "options": {"shared": True, "ack": "each"}}
        assert await client.do("consumeDurable", **shared) == {"values": [*range(20)], "topic": "log/1"}
        await client.do("unsubscribeDurable", name="billing")
        with pytest.raises(Refused, match="no durable subscription"):
            await client.do("unsubscribeDurable", name="billing")
