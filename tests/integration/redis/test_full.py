"""A Redis that is really full: sessions, claims and leases go on, new data waits, and nothing has to be restarted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from gateway.adapters.redis import RedisGrid, scripts
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import Attempt, EventId, RequestNumber, TokenGeneration, TopicPath, Version
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Claimed, GridRefused, GridState, Identity, Published, SessionChanges, TopicValue
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    TOPIC,
    Bench,
    Publisher,
    Reader,
    ownership_of,
    session_record,
)
from tests.support.clock import eventually
from tests.support.redis_server import RedisServer

MAXMEMORY = "12mb"
"""What the server may use: two or three times what an empty one does."""

REFUSED_WHEN_FULL = {
    *("transaction_begin", "transaction_stage", "transaction_commit", "transaction_prepare"),
    *("session_create", "session_change", "topic_publish", "topic_restore", "journal_append"),
    *("log_restore", "queue_send", "durable_open", "queue_declare", "queue_feed"),
    *("zone_publish", "exchange_handle", "exchange_ask", "presence_enter"),
    *("presence_keep", "presence_list"),
    *("session_owners", "queue_dead", "queue_due", "queue_look", "durable_due", "topic_due"),
}
"""Scripts without the flag: those that store more for a client; and those that only read, and need none."""


@pytest.fixture
async def small() -> AsyncIterator[Bench]:
    """A server with little memory, that throws nothing away."""
    async with RedisServer(arguments=("--maxmemory", MAXMEMORY, "--maxmemory-policy", "noeviction")) as server:
        bench = Bench(server)
        yield bench
        await bench.close()


SHORT_BY = 1_000_000
"""Bytes by which a filled Redis is above its limit, so that buffers that come and go leave no room."""


async def fill(bench: Bench, grid: RedisGrid) -> list[TopicPath]:
    """Publish until Redis refuses, and take away what still fits; names the topics."""
    publisher, topics = Publisher(grid, session="greedy"), list[TopicPath]()
    while True:
        topics.append(TopicPath(f"greedy/{len(topics)}"))
        publisher.topic = topics[-1]
        command = publisher.command(len(topics), settled=len(topics) - 1)._replace(value=b"x" * 30_000)
        (result,) = await grid.topics.publish([command])
        if isinstance(result, GridRefused):
            used = (await bench.server.call("INFO", "memory"))["used_memory"]
            await bench.server.call("CONFIG", "SET", "maxmemory", used - SHORT_BY)
            return topics[:-1]


@pytest.mark.promise("P10", "P20")
async def test_a_full_redis_refuses_new_data_and_keeps_sessions_going(small: Bench) -> None:
    """P20, P10: established sessions, claims and acknowledgements go on; new data is refused as retryable."""
    grid = await small.grid(stream_bytes=1024 * 1024)
    await grid.nodes.join(N1, lease=300)
    records = [session_record() for _ in range(4)]
    for record in records:
        await grid.sessions.create(record)
    resumed, lost, closed, expired = records
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    topics = await fill(small, grid)
    assert grid.state is GridState.UP

    # What stores more for a client.
    refused: list[Callable[[], Awaitable[object]]] = [
        lambda: grid.sessions.create(session_record()),
        lambda: grid.sessions.change(ownership_of(resumed), SessionChanges(selections=("+a/**",))),
        lambda: grid.topics.restore(
            [TopicValue(TOPIC, Version(9), EventId(f"{PARTITION}-{grid.generation}-9"), b"x" * 9000)]
        ),
    ]
    for attempt in refused:
        with pytest.raises(GridRefused, match="maxmemory"):
            await attempt()

    # What goes on.
    await grid.nodes.renew(N1, lease=300)
    claimed = await grid.sessions.claim(resumed.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert isinstance(claimed, Claimed)
    ownership = ownership_of(claimed.record)
    assert await grid.sessions.confirm([(ownership, TokenGeneration(2))]) == [True]
    identity = Identity(principal="alice", roles=frozenset({"reader"}), credential="c2")
    await grid.sessions.change(ownership, SessionChanges(identity=identity))
    await grid.sessions.disconnect(ownership)
    await grid.sessions.restore([lost], recreate=True)
    await grid.sessions.end(ownership_of(closed), reason=ErrorCode.SESSION_CLOSED)
    assert await grid.sessions.find(closed.id) is None
    # Also the takeover of a node, and its own return.
    assert await grid.sessions.owners(0) is not None
    await grid.nodes.join(N2, lease=300)
    expire = "#!lua flags=allow-oom\nreturn redis.call('ZADD', KEYS[1], 'XX', 1, ARGV[1])"
    await small.server.call("EVAL", expire, 1, f"{small.prefix}:{{nodes}}:leases", f"{N1.node}:{N1.incarnation}")
    assert await grid.nodes.take_over(N1, by=N2, within=30) is not None
    await grid.sessions.orphan(N1, [expired.id])
    await grid.nodes.finish_takeover(N1, by=N2)
    await grid.nodes.join(N1, lease=300)
    assert [value async for page in grid.topics.values(PARTITION) for value in page] == []
    # A node that starts adopts the full grid.
    late = await small.grid(N2)
    assert late.generation == grid.generation

    # Memory comes back without a restart: by removing topics, which a full Redis does.
    for topic in topics[: len(topics) // 2]:
        assert await grid.topics.remove(topic, keep=0.001) is not None
    published = Publisher(grid, session="modest")
    await published.publish(1)
    await grid.sessions.create(session_record())
    await eventually(lambda: reader.texts == [b"1"], message="the update arrives")
    assert not reader.lost
    await reader.close()


async def test_the_same_request_is_published_when_there_is_room(small: Bench) -> None:
    """GridRefused: nothing was done, so that the client may ask again."""
    grid = await small.grid()
    topics = await fill(small, grid)
    publisher = Publisher(grid)
    command = publisher.command(1)._replace(value=b"x" * 30_000, settled=RequestNumber(0))
    assert [type(each) for each in await grid.topics.publish([command])] == [GridRefused]
    await small.server.call("CONFIG", "SET", "maxmemory", "0")
    (result,) = await grid.topics.publish([command])
    assert isinstance(result, Published)
    assert not result.duplicate
    assert len(topics) > 10


LIMITS = HistoryLimits(count=100, age=3600.0, bytes=1024 * 1024)


@pytest.mark.promise("P14", "P20")
async def test_a_full_redis_refuses_events_of_histories_and_keeps_what_they_have(small: Bench) -> None:
    """P14, P20: nothing is deleted to make room for what is refused, however often it is asked for."""
    grid = await small.grid()
    topics = [TOPIC, TopicPath(f"{TOPIC}/b")]
    publishers = [Publisher(grid, session=each, topic=each) for each in topics]
    for each in publishers:
        (done,) = await grid.topics.publish([each.command(1)._replace(history=LIMITS)])
        assert isinstance(done, Published)
    fresh = Publisher(grid, session="fresh", topic=TopicPath(f"{TOPIC}/c"))
    commands = [each.command(2, settled=1)._replace(history=LIMITS) for each in [*publishers, fresh]]

    async def held() -> dict[str, object]:
        names = [f"{small.prefix}:{{t{PARTITION}}}:{each}" for each in ("logs", "log-marks")]
        found: dict[str, object] = {each: await small.server.call("HGETALL", each) for each in names}
        for topic in topics:
            name = f"{small.prefix}:{{t{PARTITION}}}:log:{topic}"
            found[name] = await small.server.call("XRANGE", name, "-", "+")
        return found

    before = await held()
    # To this node the topics are new: it tells of all of them.
    other = await small.grid(N2)
    await small.server.call("CONFIG", "SET", "maxmemory", "1mb")
    for writer in (grid, grid, other, other):
        for command in commands:
            (result,) = await writer.topics.publish([command])
            assert isinstance(result, GridRefused), command.topic
            assert await held() == before
    event = EventId(f"{PARTITION}-{grid.generation}-90")
    for topic in topics:
        with pytest.raises(GridRefused):
            await grid.history.restore(topic, [TopicValue(topic, Version(90), event, b"2")], LIMITS)
        assert await held() == before


def test_only_what_stores_more_for_a_client_is_refused_by_a_full_redis() -> None:
    """Whoever adds a script decides whether it goes on when Redis is full."""
    flagged = {each.name for each in scripts.SCRIPTS if each.text.split("\n", 1)[0].startswith("#!lua flags=allow-oom")}
    unflagged = {each.name for each in scripts.SCRIPTS} - flagged
    assert unflagged == REFUSED_WHEN_FULL - {"session_change", "presence_list"}, "of which there are both forms"
    assert scripts.SESSION_CHANGE.text.startswith("#!lua\n")
    assert scripts.SESSION_KEEP.text.startswith("#!lua flags=allow-oom\n")
    assert scripts.PRESENCE_LIST.text.startswith("#!lua\n")
    assert scripts.PRESENCE_LIST_FULL.text.startswith("#!lua flags=allow-oom\n")
