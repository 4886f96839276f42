"""P10 with whole nodes and a real Redis that is killed, suspended, emptied and rolled back under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.ports import GridState
from tests.support.nodes import SHORT_LEASE, TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.redis, pytest.mark.promise("P10")]


class Cluster:
    """Two nodes over one Redis."""

    def __init__(self, redis: RedisServer, n1: TestNode, n2: TestNode, prefix: str) -> None:
        self.redis, self.n1, self.n2, self.prefix = redis, n1, n2, prefix

    async def see_grid(self, state: GridState) -> None:
        for node in (self.n1, self.n2):
            await eventually(lambda node=node: node.gateway.node._context.grid.state is state)  # type: ignore[misc]


@asynccontextmanager
async def running_cluster(**settings: Any) -> AsyncIterator[Cluster]:
    async with RedisServer(aof=True) as redis:
        prefix = unique_prefix()
        settings |= {"grid": redis.url, "grid_prefix": prefix, "grid_timeout": scaled(0.5)}
        async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
            yield Cluster(redis, n1, n2, prefix)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster(**SHORT_LEASE, reap_interval=0.3) as running:
        yield running


class Talker:
    """A raw client that counts its packets."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.sent = 0
        self.welcome: dict[str, Any] = {}

    @classmethod
    async def open(cls, node: TestNode, principal: str = "alice", **fields: Any) -> Talker:
        talker = cls(RawClient(node.url))
        await talker.raw.connect()
        talker.welcome = await talker.raw.hello(principal, properties={"team": "fx"}, **fields)
        return talker

    async def ask(self, kind: str, *, within: float = 5.0, **fields: Any) -> dict[str, Any]:
        self.sent += 1
        number = self.sent
        await self.raw.send({"id": number, "request": number, "type": kind, **fields})
        return await self.raw.expect("reply", within=within, where=lambda reply: reply["request"] == number)

    async def publish_when_possible(self, topic: str, value: Any) -> dict[str, Any]:
        while True:
            reply = await self.ask("publish", topic=topic, value=value)
            if "error" not in reply:
                return reply
            assert reply["error"]["code"] == "grid_unavailable"
            assert reply["error"]["retry_after"] > 0
            # Until the node knows that this was heard, it refuses everything else too.
            await self.raw.send({"type": "ack", "received": reply["id"]})


async def test_a_grid_that_comes_back_empty_is_filled_again(cluster: Cluster) -> None:
    watcher, publisher = await Talker.open(cluster.n1), await Talker.open(cluster.n2, "bob")
    await watcher.ask("subscribe", selector="a/**")
    await publisher.ask("publish", topic="a/x", value="before")
    before = await watcher.raw.expect("update")

    cluster.redis.kill()
    await cluster.see_grid(GridState.UNREACHABLE)
    refused = await publisher.ask("publish", topic="a/x", value="refused")
    await cluster.redis.restart(emptied=True)
    await publisher.publish_when_possible("a/x", "after")
    after = await watcher.raw.expect("update", where=lambda update: update["value"] == "after")

    assert refused["error"]["code"] == "grid_unavailable"
    assert after["version"] > before["version"]
    assert any(packet["type"] == "notice" and packet["code"] == "grid_lost_writes" for packet in watcher.raw.seen)
    # Both sessions are in the grid again, each with all that failover needs.
    for node, talker in ((cluster.n2, watcher), (cluster.n1, publisher)):
        session = talker.welcome["session"]

        async def restored(session: str = session) -> bool:
            return any(session in key for key in await cluster.redis.keys(cluster.prefix))

        for _ in range(200):
            if await restored():
                break
        await talker.raw.cut()
        async with RawClient(node.url) as back:
            again = await back.resume(talker.welcome["token"], attempt=1, received=0, oldest=talker.sent + 1)
        assert again["outcome"] == "failed_over", again
        assert again["properties"]["team"] == "fx"


async def test_values_that_only_a_node_still_has_are_put_back(cluster: Cluster) -> None:
    watcher, publisher = await Talker.open(cluster.n1), await Talker.open(cluster.n2, "bob")
    await watcher.ask("subscribe", selector="a/**")
    first = await publisher.ask("publish", topic="a/quiet", value="kept")
    await watcher.raw.expect("update")

    cluster.redis.kill()
    await cluster.see_grid(GridState.UNREACHABLE)
    await cluster.redis.restart(emptied=True)
    await cluster.see_grid(GridState.UP)
    await eventually(lambda: cluster.n1.gateway.node.sessions.delivery.replicas.restored > 0)
    newcomer = await Talker.open(cluster.n2, "carol")
    await newcomer.ask("subscribe", selector="a/**")
    update = await newcomer.raw.expect("update")

    assert (update["topic"], update["value"], update["event"]) == ("a/quiet", "kept", first["event"])
    assert update["version"] > first["version"], "nobody knows who has seen what the grid has lost"
    for talker in (watcher, publisher, newcomer):
        await talker.raw.cut()


async def test_a_suspended_grid_disconnects_nobody(cluster: Cluster) -> None:
    watcher, publisher = await Talker.open(cluster.n1), await Talker.open(cluster.n2, "bob")
    await watcher.ask("subscribe", selector="a/**")

    cluster.redis.suspend()
    pending = {"id": 1, "request": 1, "type": "publish", "topic": "a/x", "value": 1}
    await publisher.raw.send(pending)
    publisher.sent = 1
    await eventually(lambda: cluster.n2.gateway.node._context.grid.state is GridState.UNREACHABLE)
    refused = await publisher.ask("publish", topic="a/x", value=2)
    cluster.redis.resume()
    reply = await publisher.raw.expect("reply", where=lambda reply: reply["request"] == 1)
    await publisher.publish_when_possible("a/x", 3)
    updates = [await watcher.raw.expect("update") for _ in range(2)]

    # What was under way when the grid stopped is neither lost nor doubled; what came later was refused at once.
    assert "error" not in reply
    assert refused["error"]["code"] == "grid_unavailable"
    assert [(update["value"], update["version"]) for update in updates] == [(1, 1), (3, 2)]
    for talker in (watcher, publisher):
        await talker.raw.cut()


async def test_a_grid_rolled_back_never_takes_versions_or_sessions_back(cluster: Cluster) -> None:
    watcher, publisher = await Talker.open(cluster.n1), await Talker.open(cluster.n2, "bob")
    await watcher.ask("subscribe", selector="a/**")
    await publisher.ask("publish", topic="a/x", value="old")
    snapshot = await cluster.redis.snapshot()
    await publisher.ask("publish", topic="a/x", value="new")
    await publisher.ask("properties", set={"team": "rates"})
    late = await Talker.open(cluster.n1, "late")
    await late.ask("subscribe", selector="a/*")

    cluster.redis.kill()
    await cluster.see_grid(GridState.UNREACHABLE)
    await cluster.redis.restart(snapshot=snapshot)
    await cluster.see_grid(GridState.UP)
    await publisher.publish_when_possible("a/x", "newest")
    await watcher.raw.expect("update", where=lambda update: update["value"] == "newest")
    await eventually(
        lambda: (
            not any(
                node.gateway.node._store.must_restore(session)
                for node in (cluster.n1, cluster.n2)
                for session in node.gateway.node.sessions
            )
        ),
    )

    versions = [packet["version"] for packet in watcher.raw.seen if packet["type"] == "update"]
    assert versions == sorted(versions)
    for node, talker, team in ((cluster.n1, publisher, "rates"), (cluster.n2, late, "fx")):
        await talker.raw.cut()
        async with RawClient(node.url) as back:
            again = await back.resume(talker.welcome["token"], attempt=1, received=0, oldest=talker.sent + 1)
        assert again["outcome"] == "failed_over", again
        assert again["properties"]["team"] == team
    await watcher.raw.cut()


@pytest.mark.promise("P7")
async def test_sessions_that_an_older_grid_takes_for_connected_end_by_their_window(cluster: Cluster) -> None:
    """P7: they ended after the state to which the grid went back, and no living node serves them."""
    talkers = [await Talker.open(node, window=1) for node in (cluster.n1, cluster.n2)]
    for talker in talkers:
        await talker.ask("publish", topic="a/x", value="a receipt")
    stayer = await Talker.open(cluster.n1, "stayer", window=1)
    snapshot = await cluster.redis.snapshot()
    for talker in talkers:
        await talker.raw.send({"type": "bye"})
        await talker.raw.expect("bye")
        await talker.raw.cut()

    cluster.redis.kill()
    await cluster.see_grid(GridState.UNREACHABLE)
    await cluster.redis.restart(snapshot=snapshot)
    await cluster.see_grid(GridState.UP)

    async def held(talker: Talker) -> bool:
        return any(talker.welcome["session"] in key for key in await cluster.redis.keys(cluster.prefix))

    async with time_limit():
        while await held(talkers[0]) or await held(talkers[1]):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.02)
    # Who is still there is not on the clock.
    assert await held(stayer)
    assert "error" not in await stayer.ask("subscribe", selector="a/**")
    await stayer.raw.cut()


async def test_a_socket_lost_while_the_grid_is_unreachable_is_reattached_without_it(cluster: Cluster) -> None:
    watcher = await Talker.open(cluster.n1)
    await watcher.ask("subscribe", selector="a/**")
    cluster.redis.kill()
    await cluster.see_grid(GridState.UNREACHABLE)

    await watcher.raw.cut()
    async with RawClient(cluster.n1.url) as back:
        again = await back.resume(watcher.welcome["token"], attempt=1, received=1, oldest=2)
        await back.send({"type": "ack", "received": 1})
        assert again["outcome"] == "reattached"
        await cluster.redis.restart()
        await cluster.see_grid(GridState.UP)
        # The attempt and the token of that reattach are in the grid afterwards.
        session = cluster.n1.gateway.node.sessions.get(again["session"])
        assert session is not None
        await eventually(lambda: not cluster.n1.gateway.node._store.must_restore(session))
        stored = await cluster.n1.gateway.node._context.grid.sessions.find(session.id)

    assert stored is not None
    assert (stored.attempt, stored.token_generation) == (1, session.token_generation)


@pytest.mark.promise("P2")
async def test_an_outdated_copy_is_not_reattached_after_a_rollback() -> None:
    """P2: the old grid takes n2 for the owner, as n2 does; but the client's token says that n1 came later."""
    # A node knows whom to tell of a claim from its first renewal on: here nobody is told. It is best effort anyway.
    async with running_cluster(lease=300, lease_renew=100) as cluster:
        talker = await Talker.open(cluster.n2)
        snapshot = await cluster.redis.snapshot()
        await _move(talker, cluster.n1, attempt=1)
        assert cluster.n2.gateway.node.sessions.get(talker.welcome["session"]) is not None

        cluster.redis.kill()
        await cluster.see_grid(GridState.UNREACHABLE)
        # n2 cannot know whose turn it is, and must not guess.
        await talker.raw.cut()
        async with RawClient(cluster.n2.url) as early:
            assert (await early.resume(talker.welcome["token"], attempt=2))["code"] == "grid_unavailable"
        await cluster.redis.restart(snapshot=snapshot)
        await cluster.see_grid(GridState.UP)
        await _move(talker, cluster.n2, attempt=3)
        assert "error" not in await talker.ask("subscribe", selector="a/**")
        await talker.raw.cut()


async def _move(talker: Talker, node: TestNode, *, attempt: int) -> None:
    await talker.raw.cut()
    talker.raw = RawClient(node.url)
    await talker.raw.connect()
    talker.welcome = await talker.raw.resume(talker.welcome["token"], attempt=attempt)
    assert talker.welcome["outcome"] == "failed_over", talker.welcome
    talker.sent = 0
    await talker.raw.send({"type": "ack", "received": 0})


async def test_a_bye_to_a_grid_that_went_back_is_a_bye(cluster: Cluster) -> None:
    """The grid has never heard of the sessions, which live at their nodes: their ends are confirmed, and stay."""
    snapshot = await cluster.redis.snapshot()
    talkers = [await Talker.open((cluster.n1, cluster.n2)[number % 2]) for number in range(20)]
    for talker in talkers:
        await talker.ask("publish", topic="a/x", value="a receipt")
    cluster.redis.kill()
    await cluster.see_grid(GridState.UNREACHABLE)
    await cluster.redis.restart(snapshot=snapshot)
    for number, talker in enumerate(talkers):
        # Before the grid is there, while sessions are written again, and after that.
        if number == 5:
            await cluster.see_grid(GridState.UP)
        await talker.raw.send({"type": "bye"})
    assert [await talker.raw.closed() for talker in talkers] == [1000] * len(talkers)

    async def held() -> bool:
        keys = await cluster.redis.keys(cluster.prefix)
        return any(talker.welcome["session"] in key for key in keys for talker in talkers)

    async with time_limit():
        while await held():  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.02)
    for talker in talkers:
        await talker.raw.cut()
