"""Masters that are replaced, moved or half lost, seen by ``RedisGrid``: what is adopted, and what is never believed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from redis.crc import key_slot

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid, grid_connection, slots
from gateway.adapters.redis.grid_connection import LONGEST_BACKOFF, LOOK_INTERVAL
from gateway.adapters.redis.keys import Keys
from gateway.catalogue import log_events
from gateway.catalogue import metrics as catalogue
from gateway.core.topics.topics import session_partition, topic_partition
from gateway.core.types import NodeRef, TopicPath
from gateway.ports import GridRefused, GridState, GridUnavailable
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    TOPIC,
    Bench,
    Publisher,
    Reader,
    changes_of,
    keep_trying,
    session_record,
    until_away,
    until_up,
)
from tests.support.clock import eventually
from tests.support.redis_cluster import ClusterClient, RedisCluster
from tests.support.redis_sentinel import MASTER, RedisSentinels, SentinelServer
from tests.support.redis_server import HOST, RedisServer, unique_prefix
from tests.support.times import scaled

TOPICS = 24
"""Publishers, each with a topic of its own: they are spread over all masters."""


@pytest.fixture
def servers() -> Iterator[RedisCluster]:
    with RedisCluster(replicas=1) as cluster:
        yield cluster


def grid_on(url: str, prefix: str, node: NodeRef = N1, **options: Any) -> RedisGrid:
    arguments: dict[str, Any] = {"metrics": MemoryMetrics(), "log": MemoryEventLog(), "timeout": scaled(1.0)} | options
    return RedisGrid(url, prefix=prefix, node=node, **arguments)


@pytest.mark.promise("P5", "P6")
async def test_many_publishers_and_a_killed_master(servers: RedisCluster) -> None:
    """P5, P6: nothing twice, nothing out of order, and nothing missing but the end before the kill."""
    prefix, log, metrics = unique_prefix(), MemoryEventLog(), MemoryMetrics()
    grid = grid_on(servers.url, prefix, log=log, metrics=metrics)
    other = grid_on(servers.url, prefix, N2)
    await asyncio.gather(grid.start(), other.start())
    assert metrics.gauge(catalogue.GRID_MASTERS) == 3
    publishers = [
        Publisher(grid, session=f"publisher-{number}", topic=TopicPath(f"topic-{number}")) for number in range(TOPICS)
    ]
    partitions = {topic_partition(each.topic, 1) for each in publishers}
    reader = Reader(other)
    for partition in partitions:
        other.tail.follow(partition, await other.topics.position(partition))
    stop = asyncio.Event()

    async def publish(publisher: Publisher) -> None:
        while not stop.is_set():
            await publisher.publish(3)

    tasks = [asyncio.create_task(publish(each)) for each in publishers]
    await keep_trying(lambda: all(each.settled > 30 for each in publishers), message="traffic runs")
    victim = servers.master_of("t0")
    victim.kill()
    await until_away(grid)
    settled = {each.topic: each.settled for each in publishers}
    await keep_trying(lambda: grid.generation == other.generation == 2, message="both have adopted the promoted one")
    await asyncio.gather(until_up(grid), until_up(other))
    await keep_trying(
        lambda: all(each.settled > settled[each.topic] + 10 for each in publishers), message="traffic goes on"
    )
    stop.set()
    await asyncio.gather(*tasks)
    client = ClusterClient([(HOST, each.port) for each in servers.running()])
    for publisher in publishers:
        entries = await client.xrange(Keys(prefix).stream[topic_partition(publisher.topic, 1)])
        name = publisher.topic.encode()
        texts = [fields[name] for _, fields in entries if name in fields]
        numbers = [int(text.partition(b" ")[2]) for text in texts]
        versions = [int(text.partition(b" ")[0]) for text in texts]
        assert numbers == sorted(set(numbers)), "executed twice or out of order"
        assert all(after > before for before, after in pairwise(versions))
        missing = set(range(1, publisher.settled + 1)) - set(numbers)
        assert all(number <= settled[publisher.topic] for number in missing)
    await client.aclose()
    seen = [each.version for each in reader.values if each.topic == publishers[0].topic]
    assert seen == sorted(set(seen))
    await keep_trying(lambda: set(reader.lost) == partitions, message="every follower is told, of every partition")
    told = {event.name: fields for event, fields in log.events}
    assert str(victim.port) in str(told["grid_unreachable"]["error"]), "which Redis it was"
    assert str(victim.port) in str(told["grid_masters_changed"]["before"])
    assert told["grid_back"]["lost_writes"]
    await reader.close()
    await asyncio.gather(grid.close(), other.close())


async def test_slots_that_move_lose_nothing(servers: RedisCluster) -> None:
    prefix = unique_prefix()
    grid = grid_on(servers.url, prefix)
    await grid.start()
    await grid.nodes.join(N1, lease=60)
    record = session_record()
    await grid.sessions.create(record)
    publisher, reader = Publisher(grid), Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await publisher.publish(20)
    connections = await asyncio.to_thread(connected_to, servers)
    async with changes_of(grid) as changes:
        tags = {"nodes", f"t{PARTITION}", *(f"s{number}" for number in range(0, 64, 4))}
        move = asyncio.create_task(asyncio.to_thread(servers.move, tags))
        while not move.done():
            await publisher.publish(2)
        await move
        await publisher.publish(20)
        await until_up(grid)
        assert changes == [], "the grid is not away for that: every command is sent to where its slot is by then"
    assert publisher.sent_again == 0
    assert await asyncio.to_thread(connected_to, servers) == connections
    await keep_trying(lambda: len(reader.values) == publisher.settled, message="every update is read")
    assert reader.texts == [b"%d" % number for number in range(1, publisher.settled + 1)]
    assert reader.lost == []
    assert publisher.duplicates <= 2 * publisher.sent_again
    assert grid.generation == 1
    assert await grid.sessions.find(record.id) == record
    await grid.nodes.renew(N1, lease=60)
    await reader.close()
    await grid.close()


@pytest.mark.promise("P5", "P6")
async def test_order_and_single_execution_while_slots_move_back_and_forth(servers: RedisCluster) -> None:
    """P5, P6: many publishers in one partition, whose slot goes from master to master under them."""
    prefix = unique_prefix()
    grid = grid_on(servers.url, prefix, timeout=scaled(5.0))
    await grid.start()
    await grid.nodes.join(N1, lease=60)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    topics = [TopicPath(f"{TOPIC.partition('/')[0]}/{number}") for number in range(8)]
    publishers = [Publisher(grid, session=f"p{topic}", topic=topic) for topic in topics]
    async with changes_of(grid) as changes:
        for _ in range(4):
            move = asyncio.create_task(asyncio.to_thread(servers.move, {f"t{PARTITION}"}))
            while not move.done():
                await asyncio.gather(*(each.publish(3) for each in publishers))
            await move
        await asyncio.gather(*(each.publish(1) for each in publishers))
        assert changes == []
    total = sum(each.settled for each in publishers)
    await keep_trying(lambda: len(reader.values) == total, message="every update is read")
    assert reader.lost == []
    for each in publishers:
        seen = [value for value in reader.values if value.topic == each.topic]
        assert [value.value for value in seen] == [b"%d" % number for number in range(1, each.settled + 1)]
        assert [value.version for value in seen] == list(range(1, each.settled + 1))
        assert each.duplicates == 0
    await reader.close()
    await grid.close()


async def test_a_slot_that_stays_half_moved_is_named(servers: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "HALF_MOVED", 0.5)
    log = MemoryEventLog()
    grid = grid_on(servers.url, unique_prefix(), log=log, timeout=scaled(0.5))
    await grid.start()
    await grid.nodes.join(N1, lease=60)
    tag = f"s{session_partition(session_record('half').id)}"
    slot = key_slot(tag.encode())
    source = servers.master_of(tag)
    target = next(each for each in servers.masters() if each is not source)
    await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
    await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
    record = session_record("half")
    with pytest.raises(GridUnavailable, match="being moved"):
        await grid.sessions.create(record)
    # What was redirected is certainly not done, so that whoever asked for it can be told to ask again.
    with pytest.raises(GridRefused):
        await grid.sessions.create(record)
    await keep_trying(lambda: bool(grid.complaints), message="it is named")
    assert f"{slot} ({{{tag}}})" in grid.complaints[0]
    assert (log_events.GRID_SLOT_HALF_MOVED, {"slot": slot, "tag": tag}) in log.events
    assert grid.state is GridState.UP, "the other slots are as they were"
    for each in (source, target):
        await each.call("CLUSTER", "SETSLOT", slot, "STABLE")
    await grid.sessions.create(record)
    await keep_trying(lambda: not grid.complaints, message="it is named no more")
    assert [event for event, _ in log.events].count(log_events.GRID_SLOT_HALF_MOVED) == 1
    await grid.close()


def connected_to(servers: RedisCluster) -> int:
    """Count the connections of all nodes of the gateway."""
    return sum(line.count("name=gateway-") for each in servers.masters() for line in clients(each))


def clients(server: RedisServer) -> list[str]:
    """List what is connected to a server, of any kind, as it tells itself."""
    with server._client() as client:
        client.response_callbacks.clear()
        reply: Any = client.execute_command("CLIENT", "LIST")
        return str(reply.decode()).splitlines()


async def test_without_sentinels_the_adopted_master_is_reached_again() -> None:
    """Nobody tells that it was replaced, and it is the same process: no reason to stay away."""
    with RedisSentinels() as servers:
        log = MemoryEventLog()
        grid = grid_on(servers.url, unique_prefix(), log=log)
        await grid.start()
        record = session_record()
        await grid.sessions.create(record)
        for each in servers.sentinels:
            each.kill()
        master = servers.redis[0]
        async with changes_of(grid) as changes:
            await master.call("CLIENT", "KILL", "TYPE", "normal")
            await keep_trying(lambda: len(changes) == 2, message="away and back")
            assert not changes[1].lost_writes
        assert await grid.sessions.find(record.id) == record
        # Another process at the same address is not believed: only Sentinels know which is the master then.
        await master.restart()
        await until_away(grid)
        before = len(log.events)
        await asyncio.sleep(2 * LONGEST_BACKOFF)
        assert grid.state is GridState.UNREACHABLE
        assert len(log.events) == before, "away is told once"
        for each in servers.sentinels:
            await each.start()
        await until_up(grid)
        assert grid.generation == 2
        await grid.close()


async def test_a_stale_sentinel_is_not_followed_back() -> None:
    with RedisSentinels() as servers:
        log = MemoryEventLog()
        grid = grid_on(servers.url, unique_prefix(), log=log)
        await grid.start()
        behind, *others = servers.sentinels
        first = servers.redis[0]
        behind.kill()
        first.suspend()
        await keep_trying(lambda: grid.generation == 2 and grid.state is GridState.UP, message="a replica is promoted")
        record = session_record()
        await grid.sessions.create(record)
        # The only Sentinel that answers now has slept through the failover, and names the master of before.
        for each in others:
            each.suspend()
        await behind.start()
        await eventually(lambda: _masters_port(behind) == first.port, message="it has missed the failover")
        told = len(log.events)
        for _ in range(3):
            await asyncio.sleep(LOOK_INTERVAL)
        assert list(log.events)[told:] == []
        assert grid.state is GridState.UP
        assert await grid.sessions.find(record.id) == record
        # Not even to a node that has to connect anew.
        await servers.redis[1].call("CLIENT", "KILL", "TYPE", "normal")
        await keep_trying(lambda: len(log.events) == told + 2, message="away and back")
        assert grid.generation == 2
        assert await grid.sessions.find(record.id) == record
        for each in others:
            each.resume()
        await grid.close()


def _masters_port(sentinel: SentinelServer) -> int:
    return int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])


async def test_a_master_without_its_replicas_costs_few_connections_and_one_log_event() -> None:
    """It refuses every write, the adoption among them, until a replica is in touch."""
    with RedisSentinels() as servers:
        master, replica = servers.redis
        await master.call("CONFIG", "SET", "min-replicas-to-write", 1, "min-replicas-max-lag", 1)
        replica.suspend()
        await eventually(lambda: _good_replicas(master) == 0, message="it has missed its replica")
        log = MemoryEventLog()
        grid = grid_on(servers.url, unique_prefix(), log=log)
        accepted = _connections_received(master)
        with pytest.raises(GridUnavailable, match="NOREPLICAS"):
            await grid.start()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(4 * LONGEST_BACKOFF)
        took = asyncio.get_running_loop().time() - began
        others = 3 * 10 * took  # what the Sentinels and this test connect for, at most
        attempts = 8 + 4 * took / LONGEST_BACKOFF  # the backoff doubles, and half of its bound is the mean
        assert _connections_received(master) - accepted < attempts + others
        assert sum("name=gateway-" in each for each in clients(master)) <= 1
        assert {event for event, _ in log.events} <= {log_events.GRID_UNREACHABLE, log_events.GRID_STILL_UNREACHABLE}
        assert len(log.of(log_events.GRID_UNREACHABLE)) == 1
        replica.resume()
        await until_up(grid)
        assert grid.generation == 1
        await keep_trying(
            lambda: sum("name=gateway-" in each for each in clients(master)) == 2, message="its two connections"
        )
        assert (len(log.of(log_events.GRID_UNREACHABLE)), len(log.of(log_events.GRID_BACK))) == (1, 1)
        await grid.close()


async def test_a_grid_that_is_lost_as_soon_as_it_is_adopted_is_not_adopted_at_full_speed(bench: Bench) -> None:
    grid = await bench.grid()
    await asyncio.sleep(0.1)
    attachments = grid._connection.attachment
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < 3 * LONGEST_BACKOFF:
        grid._connection.suspect("a test says so")
        await asyncio.sleep(0.001)
    away = [event for event, _ in bench.log.events].count(log_events.GRID_UNREACHABLE)
    assert away <= grid._connection.attachment - attachments + 1
    assert away < 20, "the delay doubles each time"
    await until_up(grid)


def _good_replicas(server: RedisServer) -> int:
    return int(server._call("INFO", "replication").get("min_slaves_good_slaves", 1))


def _connections_received(server: RedisServer) -> int:
    return int(server._call("INFO", "stats")["total_connections_received"])


async def test_a_master_that_sentinels_have_given_up_is_left_though_it_answers() -> None:
    """It is cut off from the Sentinels and not from this node, and takes writes that nobody else will ever see."""
    with RedisSentinels(sentinels=1) as servers:
        log = MemoryEventLog()
        grid = grid_on(servers.url, unique_prefix(), log=log)
        await grid.start()
        await grid.sessions.create(session_record())
        stale, replica = servers.redis
        await replica.call("REPLICAOF", "NO", "ONE")
        sentinel = servers.sentinels[0]
        await sentinel.call("SENTINEL", "REMOVE", MASTER)
        await sentinel.call("SENTINEL", "MONITOR", MASTER, HOST, replica.port, 1)
        await keep_trying(lambda: grid.generation == 2, message="the one that Sentinels name is adopted")
        await until_up(grid)
        record = session_record()
        await grid.sessions.create(record)
        assert not await stale.keys(f"*{record.id}")
        assert [event for event, _ in log.events if event is not log_events.GRID_STILL_UNREACHABLE] == [
            log_events.GRID_UNREACHABLE,
            log_events.GRID_MASTERS_CHANGED,
            log_events.GRID_BACK,
        ]
        await grid.close()


async def test_passwords_of_redis_and_of_sentinels_are_two_and_neither_is_told() -> None:
    with RedisSentinels(replicas=0, sentinels=1) as servers:
        sentinel, master = servers.sentinels[0], servers.redis[0]
        await sentinel.call("SENTINEL", "SET", MASTER, "auth-pass", "of-redis")
        await master.call("CONFIG", "SET", "requirepass", "of-redis")
        await sentinel.call("ACL", "SETUSER", "default", "resetpass", ">of-sentinel")
        secrets = servers.url.replace("//", "//:of-redis@") + "?sentinel_password=of-sentinel"
        grid = grid_on(secrets, unique_prefix())
        await keep_trying_to_start(grid)
        await grid.close()
        for wrong, sentence in (
            (secrets.replace("=of-sentinel", "=hunter2"), "no Sentinel knows"),
            (secrets.replace(":of-redis", ":hunter2"), str(master.port)),
            (secrets.replace(MASTER, "nobody"), "No such master"),
        ):
            log = MemoryEventLog()
            grid = grid_on(wrong, unique_prefix(), log=log)
            with pytest.raises(GridUnavailable, match=sentence) as caught:
                await grid.start()
            assert not any(
                secret in f"{caught.value} {log.events}" for secret in ("hunter2", "of-redis", "of-sentinel")
            )
            await grid.close()


async def keep_trying_to_start(grid: RedisGrid) -> None:
    """Start; the Sentinel may not have found out yet that it needs a password for the master."""
    try:
        await grid.start()
    except GridUnavailable:
        await until_up(grid)


async def test_a_url_of_the_wrong_kind_says_which_is_right(servers: RedisCluster) -> None:
    grid = grid_on(f"redis://{HOST}:{servers.nodes[0].port}/0", unique_prefix())
    with pytest.raises(GridUnavailable, match=r"redis\+cluster://"):
        await grid.start()
    await grid.close()
    with RedisServer() as single:
        grid = grid_on(f"redis+cluster://{HOST}:{single.port}", unique_prefix())
        with pytest.raises(GridUnavailable, match="cluster support disabled"):
            await grid.start()
        await grid.close()


@pytest.mark.parametrize("lost", [f"{{t{PARTITION}}}:stream", "{s17}:opened"])
async def test_a_partition_that_lost_its_data_is_noticed_though_its_process_is_known(bench: Bench, lost: str) -> None:
    """As after a slot was given to another master without its data."""
    grid = await bench.grid()
    async with changes_of(grid) as changes:
        await bench.server.call("DEL", f"{bench.prefix}:{lost}")
        await bench.kill_clients()
        await keep_trying(lambda: grid.generation == 2, message="the next generation")
        await until_up(grid)
        await keep_trying(lambda: [each.lost_writes for each in changes] == [False, True], message="the loss is told")
    assert (await bench.grid(N2)).generation == 2


async def test_a_process_that_was_a_replica_meanwhile_may_have_lost_writes(forgetful: Bench) -> None:
    """It was demoted and promoted again between two looks: the same run, and yet not the same data."""
    async with RedisServer(arguments=("--repl-diskless-sync-delay", "0")) as master:
        grid = await forgetful.grid()
        await forgetful.server.call("REPLICAOF", HOST, master.port)

        async def in_touch() -> bool:
            return bool((await forgetful.server.call("INFO", "replication"))["master_link_status"] == "up")

        await eventually(in_touch, message="it has become a replica")
        await forgetful.server.call("REPLICAOF", "NO", "ONE")
        await forgetful.kill_clients()
        await keep_trying(lambda: grid.generation == 2, message="the next generation")
        await until_up(grid)


async def _sync(replica: RedisServer, master: RedisServer) -> None:
    """Give one the data of another, and promote it."""
    await replica.call("REPLICAOF", HOST, master.port)

    async def in_touch() -> bool:
        return bool((await replica.call("INFO", "replication"))["master_link_status"] == "up")

    await eventually(in_touch, message="it has become a replica")
    await replica.call("REPLICAOF", "NO", "ONE")


async def _forget_promotion(server: RedisServer) -> None:
    """Have a master forget of which replication it was a replica, as it does after an hour without one."""
    await server.call("CONFIG", "SET", "repl-backlog-ttl", 1)

    async def has_forgotten() -> bool:
        return not str((await server.call("INFO", "replication"))["master_replid2"]).strip("0")

    await eventually(has_forgotten, message="it has forgotten", deadline=30.0)


@pytest.mark.promise("P10")
async def test_a_promoted_master_that_forgets_its_promotion_has_lost_nothing(forgetful: Bench) -> None:
    """A master without a replica forgets it after an hour; a further promotion is noticed all the same."""
    server = forgetful.server
    async with RedisServer(arguments=("--repl-diskless-sync-delay", "0")) as other:
        grid = await forgetful.grid()
        for generation in (2, 3):
            # What it has comes back by the other one: only its name tells that it may lack writes.
            await _sync(other, server)
            await _sync(server, other)
            await forgetful.kill_clients()
            await keep_trying(lambda generation=generation: grid.generation == generation, message="declared")  # type: ignore[misc]
            await until_up(grid)
            await _forget_promotion(server)
            attachment = grid._connection.attachment
            await forgetful.kill_clients()
            await keep_trying(lambda seen=attachment: grid._connection.attachment > seen, message="it is back")  # type: ignore[misc]
            late = await forgetful.grid(N2)
            assert (late.generation, grid.generation) == (generation, generation)
            await late.close()


async def test_without_sentinels_a_master_that_forgot_its_promotion_is_reached_again() -> None:
    """It is the adopted process, though by another name."""
    with RedisSentinels() as servers:
        first, second = servers.redis
        grid = grid_on(servers.url, unique_prefix())
        await grid.start()
        first.kill()
        await keep_trying(lambda: grid.generation == 2, message="the replica is promoted")
        await until_up(grid)
        for each in servers.sentinels:
            each.kill()
        await _forget_promotion(second)
        attachment = grid._connection.attachment
        await second.call("CLIENT", "KILL", "TYPE", "normal")
        await keep_trying(lambda: grid._connection.attachment > attachment, message="it is back")
        assert grid.generation == 2
        await grid.close()


@pytest.mark.promise("P7")
async def test_who_asks_hears_at_once_that_a_master_of_the_cluster_was_replaced(
    servers: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All masters are asked, whichever of them was replaced, and what is there by then is adopted."""
    monkeypatch.setattr(grid_connection, "LOOK_INTERVAL", 3600.0)
    grid = grid_on(servers.url, unique_prefix(), timeout=scaled(3.0))
    await grid.start()
    await grid.verify()
    assert (grid.state, grid.generation) == (GridState.UP, 1)
    replica = servers.nodes[3]
    await replica.call("CLUSTER", "FAILOVER", "TAKEOVER")
    await keep_trying(
        lambda: replica in servers.masters() and len(servers.masters()) == 3, message="it is a master, of three"
    )
    with pytest.raises(GridUnavailable):
        await grid.verify()
    await keep_trying(lambda: grid.generation == 2, message="the new masters are adopted")
    await until_up(grid)
    await grid.verify()
    await grid.close()
