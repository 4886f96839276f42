"""Foreign and broken data in all that nodes read besides topics: skipped, counted, and it silences nobody (P20)."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from redis import RedisCluster as RedisClusterClient

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.catalogue import log_events
from gateway.catalogue.metrics import GRID_FOREIGN_DATA
from gateway.core.hooks.cursor import Cursor, Gap, Page, follow
from gateway.core.hooks.hook import HookName
from gateway.core.journal import write_records
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.core.topics.topics import session_partition
from gateway.core.types import Attempt, Epoch, SessionId, TokenGeneration
from gateway.ports import ClaimRefused, GridState, JournalBatch, NodeReport, Ownership, SessionRecord, TailBatch
from tests.contract import askers, queue_users
from tests.contract.test_revocations import Listener
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    Bench,
    Publisher,
    Reader,
    keep_trying,
    ownership_of,
    session_record,
    until_up,
)
from tests.support.clock import eventually
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import unique_prefix
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P20")

HUGE: Final = b"x" * (8 * 1024 * 1024)
"""Twice what a node reads at once from all streams."""

CRM, AUDIT = HookName("crm"), HookName("audit")

REPORT: Final = NodeReport(listen="10.0.0.1:8101", admin="http://10.0.0.1:9101", version="1", started=1.0)


def revocation(value: str) -> Revocation:
    return Revocation(kind=RevocationKind.PRINCIPAL, value=value, made=1000.0)


def skipped(metrics: MemoryMetrics) -> float:
    return metrics.count(GRID_FOREIGN_DATA)


async def measured(bench: Bench) -> tuple[RedisGrid, MemoryMetrics]:
    metrics = MemoryMetrics()
    return await bench.grid(metrics=metrics), metrics


def key(bench: Bench, name: str, tag: str = "nodes") -> str:
    return f"{bench.prefix}:{{{tag}}}:{name}"


# --- Revocations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        pytest.param("*", ("temperature", "21.5"), id="id-of-redis"),
        pytest.param("*", ("principal:eve", "1 - "), id="id-of-redis-and-well-formed"),
        pytest.param("2-0", ("temperature", "21.5"), id="no-revocation"),
        pytest.param("2-0", ("principal:eve", "1 - ", "b", "c"), id="more-fields"),
        pytest.param("2-0", ("principal:eve", "yesterday - "), id="time-no-number"),
        pytest.param("2-0", ("principal:eve", "nan - "), id="time-not-a-number"),
        pytest.param("2-0", ("principal:eve", "1"), id="field-missing"),
        pytest.param("2-0", ("realm:eve", "1 - "), id="kind-of-none"),
        pytest.param("2-0", (b"\xff", "1 - "), id="name-not-utf8"),
        pytest.param("2-0", (b"\xff", ""), id="unblocked-not-utf8"),
        pytest.param("2-0", ("principal:eve", b"1 - \xff"), id="reason-not-utf8"),
        pytest.param("2-7", ("principal:eve", "1 - "), id="second-number"),
        pytest.param("2-0", ("principal:eve", b"1 - " + HUGE), id="huge"),
    ],
)
async def test_a_foreign_change_of_revocations_hides_none_that_follows(
    bench: Bench, entry: str, fields: tuple[str | bytes, ...]
) -> None:
    n1, metrics = await measured(bench)
    n2 = await bench.grid(N2)
    async with Listener(n1) as here, Listener(n2) as there:
        await n1.revocations.add(revocation("first"))
        await here.holds(revocation("first"))
        await bench.server.call("XADD", key(bench, "revisions"), entry, *fields)
        await eventually(lambda: skipped(metrics) >= 1, message="it is counted")
        for number in range(3):
            await n2.revocations.add(revocation(f"after-{number}"))
        wanted = [revocation("first"), *(revocation(f"after-{number}") for number in range(3))]
        await here.holds(*wanted)
        await there.holds(*wanted)
        await n1.revocations.unblock(revocation("first").name)
        await here.holds(*wanted[1:])
        await there.holds(*wanted[1:])
    told = [facts for event, facts in bench.log.events if event is log_events.GRID_FOREIGN_DATA]
    assert told
    assert all(len(str(facts["error"])) <= 200 for facts in told)


async def test_forged_changes_do_not_hide_the_true_ones(bench: Bench) -> None:
    """Whoever took them for changes meets a hole behind them, and reads all that is held."""
    grid, _ = await measured(bench)
    async with Listener(grid) as listener:
        await grid.revocations.add(revocation("first"))
        await listener.holds(revocation("first"))
        for number in range(2, 5):
            await bench.server.call(
                "XADD", key(bench, "revisions"), f"{number}-0", f"principal:forged-{number}", "1 - "
            )
        await grid.revocations.add(revocation("true"))
        await listener.holds(revocation("first"), revocation("true"))


@pytest.mark.parametrize("followed", [True, False])
async def test_revocations_go_on_where_their_stream_was_replaced(bench: Bench, followed: bool) -> None:
    grid, metrics = await measured(bench)
    async with Listener(grid) as listener:
        await grid.revocations.add(revocation("first"))
        await listener.holds(revocation("first"))
        if not followed:
            await listener.__aexit__(None, None, None)
        await bench.server.call("SET", key(bench, "revisions"), "x")
        if followed:
            await eventually(lambda: skipped(metrics) >= 1, message="it is counted")
        await grid.revocations.add(revocation("after"))
    async with Listener(grid) as listener:
        await listener.holds(revocation("first"), revocation("after"))
    assert skipped(metrics) >= 1


async def test_a_broken_revocation_that_is_held_is_skipped_and_can_be_made_anew(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    for name in ("good", "bad"):
        await grid.revocations.add(revocation(name))
    await bench.server.call("HSET", key(bench, "revocations"), "principal:bad", "x", b"\xff", "1 - ")
    await bench.server.call("ZADD", key(bench, "revoked"), 0, b"\xff")
    async with Listener(grid) as listener:
        await listener.holds(revocation("good"))
        assert skipped(metrics) >= 2
        assert await grid.revocations.restore([revocation("bad")]) == 1
        await listener.holds(revocation("good"), revocation("bad"))


async def test_a_broken_count_of_revisions_is_put_right(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    async with Listener(grid) as listener:
        await grid.revocations.add(revocation("first"))
        await listener.holds(revocation("first"))
        await bench.server.call("HSET", key(bench, "grid"), "revision", "many")
        await grid.revocations.add(revocation("after"))
        await listener.holds(revocation("first"), revocation("after"))
    assert skipped(metrics) >= 1


# --- Streams of another type ------------------------------------------------------------------------------------------


async def test_a_replaced_stream_of_topics_is_opened_anew_and_declared_as_a_loss(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await Publisher(grid).publish(1)
    await eventually(lambda: reader.texts == [b"1"], message="the reader reads")
    await bench.server.call("SET", key(bench, "stream", f"t{PARTITION}"), "x")
    await eventually(lambda: reader.lost == [PARTITION], message="the loss is declared")
    await keep_trying(lambda: grid.state is GridState.UP, message="the grid is adopted anew")
    assert grid.generation == 2
    assert skipped(metrics) >= 1
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await Publisher(grid, session="another").publish(1)
    await eventually(lambda: len(reader.texts) == 2, message="the topic goes on")
    await reader.close()


@pytest.mark.parametrize("message", [("only", b"\xff"), ("claimed", "s1"), ("claimed", HUGE), ("a", "b", "c", "d")])
async def test_a_foreign_message_to_a_node_hides_none_that_follows(
    bench: Bench, message: tuple[str | bytes, ...]
) -> None:
    grid, metrics = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    messages = grid.nodes.claimed_elsewhere(N1)
    first = asyncio.ensure_future(anext(messages))
    await bench.server.call("XADD", key(bench, f"inbox:{N1}"), "*", *message)
    ownership = Ownership(SessionId("s1"), N2, Epoch(2))
    await grid.nodes.tell_claimed(N1, ownership)
    assert await first == ownership
    assert skipped(metrics) == 1


async def test_a_replaced_inbox_silences_no_topic_and_is_begun_anew(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await grid.nodes.join(N1, lease=60)
    messages = grid.nodes.claimed_elsewhere(N1)
    first = asyncio.ensure_future(anext(messages))
    await bench.server.call("SET", key(bench, f"inbox:{N1}"), "x")
    await Publisher(grid).publish(3)
    await eventually(lambda: len(reader.texts) == 3, message="topics go on")
    await eventually(lambda: skipped(metrics) >= 1, message="it is counted")
    ownership = Ownership(SessionId("s1"), N2, Epoch(2))
    await grid.nodes.tell_claimed(N1, ownership)
    assert await first == ownership
    await reader.close()


async def test_a_redis_cluster_silences_nobody_either() -> None:
    """There each stream is read by a command of its own, when Redis says that it has changed."""
    metrics, prefix = MemoryMetrics(), unique_prefix()
    with RedisCluster() as servers:
        grid = RedisGrid(
            servers.url, prefix=prefix, node=N1, metrics=metrics, log=MemoryEventLog(), timeout=scaled(3.0)
        )
        await grid.start()
        reader = Reader(grid)
        grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
        await grid.nodes.join(N1, lease=60)
        messages = grid.nodes.claimed_elsewhere(N1)
        first = asyncio.ensure_future(anext(messages))
        with RedisClusterClient.from_url(servers.url.replace("redis+cluster", "redis").split(",")[0]) as other:
            other.set(f"{prefix}:{{nodes}}:inbox:{N1}", "x")
            await eventually(lambda: skipped(metrics) >= 1, message="it is counted")
            await Publisher(grid).publish(2)
            await eventually(lambda: len(reader.texts) == 2, message="topics go on")
            ownership = Ownership(SessionId("s1"), N2, Epoch(2))
            await grid.nodes.tell_claimed(N1, ownership)
            assert await first == ownership
            other.set(f"{prefix}:{{t{PARTITION}}}:stream", "x")
            await eventually(lambda: reader.lost == [PARTITION], message="the loss is declared")
            await keep_trying(lambda: grid.state is GridState.UP, message="the grid is adopted anew")
        await reader.close()
        await grid.close()


# --- Nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"\xff", "x", HUGE])
async def test_a_foreign_name_among_the_leases_ends_nobodys_lease(bench: Bench, name: str | bytes) -> None:
    grid, metrics = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    for score in (0, 2**50):
        await bench.server.call("ZADD", key(bench, "leases"), score, name)
        table = await grid.nodes.renew(N1, lease=60)
        assert (table.alive, table.expired) == ((N1,), ())
        assert [each.node for each in await grid.nodes.entries()] == [N1]
    assert skipped(metrics) == 4


async def test_a_lease_that_no_node_can_have_taken_is_removed_by_who_takes_over(bench: Bench) -> None:
    grid, _ = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    for members in ((), ("HSET", key(bench, "members"), str(N2), "x")):
        await bench.server.call("ZADD", key(bench, "leases"), 0, str(N2))
        if members:
            await bench.server.call(*members)
        assert (await grid.nodes.renew(N1, lease=60)).expired == (N2,)
        assert await grid.nodes.take_over(N2, by=N1, within=60) is None
        assert (await grid.nodes.renew(N1, lease=60)).expired == ()


@pytest.mark.parametrize(
    "report",
    [
        *(b"\xff", b"{", b"[]", b"7", b'{"listen": 7}', b'{"listen": "l", "connected": "many"}'),
        *(b'{"draining": 1}', b'{"connected": true}', b'{"reasons": [1]}', b'{"reasons": 1}', HUGE),
    ],
    ids=lambda each: repr(each[:20]),
)
async def test_a_broken_report_hides_no_node(bench: Bench, report: bytes) -> None:
    grid, metrics = await measured(bench)
    for node in (N1, N2):
        await grid.nodes.join(node, lease=60)
        await grid.nodes.report(node, REPORT)
    await bench.server.call("HSET", key(bench, "reports"), str(N2), report)
    assert [(each.node, each.report) for each in await grid.nodes.entries()] == [(N1, REPORT), (N2, None)]
    assert skipped(metrics) == 1


@pytest.mark.parametrize("broken", ["type", "name", "content", "report"])
async def test_what_is_broken_of_lost_nodes_hides_no_other_one_and_keeps_no_takeover(bench: Bench, broken: str) -> None:
    grid, _ = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    match broken:
        case "type":
            await bench.server.call("SET", key(bench, "lost"), "x")
        case "name":
            await bench.server.call("HSET", key(bench, "lost"), b"\xff", f"{2**42} {{}}")
        case "content":
            await bench.server.call("HSET", key(bench, "lost"), "n9:x", "broken")
        case _:
            await bench.server.call("HSET", key(bench, "lost"), "n9:x", f"{2**42} [")
    before = await grid.nodes.lost()
    await grid.nodes.join(N2, lease=0.01)
    await eventually(lambda: _is_expired(grid), message="the lease ends")
    assert await grid.nodes.take_over(N2, by=N1, within=60) is not None
    await grid.nodes.finish_takeover(N2, by=N1)

    assert [each.node for each in await grid.nodes.lost()] == sorted([*(each.node for each in before), N2])


async def _is_expired(grid: RedisGrid) -> bool:
    return N2 in (await grid.nodes.renew(N1, lease=60)).expired


async def test_what_is_broken_of_nodes_and_grid_keeps_nobody_from_adopting_and_joining(bench: Bench) -> None:
    grid, _ = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    for name, field in (("members", str(N2)), ("members", str(N1)), ("clocks", str(N2)), ("takeovers", "x")):
        await bench.server.call("HSET", key(bench, name), field, "broken")
    for field in ("seal", "term", "shift", "opened", "watched"):
        await bench.server.call("HSET", key(bench, "grid"), field, "broken")
    await bench.server.call("SET", key(bench, "renewed"), "broken")
    other = await bench.grid(N2)
    await other.nodes.join(N2, lease=60)
    await keep_trying(lambda: other.state is GridState.UP, message="the other has adopted it")
    assert N2 in (await other.nodes.renew(N2, lease=60)).alive


# --- Sessions ---------------------------------------------------------------------------------------------------------


async def test_a_broken_session_hides_no_other_and_is_refused(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    good = session_record()
    partition = session_partition(good.id)
    same = (session_record() for _ in range(10_000))
    broken = [next(each for each in same if session_partition(each.id) == partition) for _ in range(4)]
    for each in (good, *broken):
        await grid.sessions.create(each)
    fields: list[tuple[str, str | bytes]] = [("properties", "{"), ("epoch", "x"), ("partitions", b"\xff")]
    for record, (field, value) in zip(broken, fields, strict=False):
        await bench.server.call("HSET", key(bench, f"session:{record.id}", f"s{partition}"), field, value)
    replaced_key = key(bench, f"session:{broken[3].id}", f"s{partition}")
    await bench.server.call("SET", replaced_key, "x")
    for name in (b"\xff", b"", b" x", b"no-owner"):
        await bench.server.call("ZADD", key(bench, "ids", f"s{partition}"), 0, name)
        await bench.server.call("ZADD", key(bench, "owned", f"s{partition}"), 0, name)
    listed: list[SessionRecord] = []
    after: SessionId | None = None
    while True:
        page = await grid.sessions.page(partition, after=after, limit=2)
        listed += page.sessions
        after = page.last
        if after is None:
            break
    assert [each.id for each in listed] == [good.id]
    assert await grid.sessions.find(broken[0].id) is None
    assert await grid.sessions.owners(partition) == [N1]
    before = skipped(metrics)
    assert before >= 8
    refused = await grid.sessions.claim(broken[0].id, by=N1, token_generation=TokenGeneration(1), attempt=Attempt(9))
    assert isinstance(refused, ClaimRefused)
    assert skipped(metrics) > before


async def test_what_is_broken_on_the_clock_keeps_no_session_from_its_end(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    await grid.nodes.join(N1, lease=60)
    good = session_record()
    partition = session_partition(good.id)
    deadlines = key(bench, "deadlines", f"s{partition}")
    await grid.sessions.create(good)
    await grid.sessions.disconnect(ownership_of(good))
    of_partition = (name for name in map(str, range(100_000)) if session_partition(SessionId(name)) == partition)
    hashed, text, nothing = (next(of_partition) for _ in range(3))
    of_another = next(name for name in map(str, range(100_000)) if session_partition(SessionId(name)) != partition)
    foreign = (b"\xff", of_another, hashed, text, nothing)
    await bench.server.call("ZADD", deadlines, 1, good.id, *(part for name in foreign for part in (0, name)))
    await bench.server.call("HSET", key(bench, f"session:{hashed}", f"s{partition}"), "owner", "x", "window", "y")
    await bench.server.call("SET", key(bench, f"session:{text}", f"s{partition}"), "x")
    ended: list[SessionId] = []
    for _ in range(4):
        ended += [each.session for each in await grid.sessions.expire(partition, limit=2)]
    assert ended == [good.id]
    assert await bench.server.call("ZCARD", deadlines) == 0
    assert skipped(metrics) == 4


# --- The journal ------------------------------------------------------------------------------------------------------


def batch(number: int) -> JournalBatch:
    return JournalBatch(partition=0, number=number, count=1, events=b"{}")


@pytest.mark.parametrize("entry", ["*", "9999999999999-0"])
async def test_what_another_program_appends_to_the_journal_keeps_no_event_out(bench: Bench, entry: str) -> None:
    grid, metrics = await measured(bench)
    (first,) = await grid.journal.append([batch(1)])
    for _ in range(3 if entry == "*" else 1):
        await bench.server.call("XADD", key(bench, "journal", "j0"), entry, "temperature", "21.5")
    (second,) = await grid.journal.append([batch(2)])
    assert first == second
    assert grid.state is GridState.UP
    assert await bench.server.call("XLEN", key(bench, "journal", "j0")) == 2
    assert skipped(metrics) == (3 if entry == "*" else 1)


async def test_a_foreign_entry_does_not_keep_the_journal_from_being_cut(bench: Bench) -> None:
    metrics = MemoryMetrics()
    grid = await bench.grid(metrics=metrics, journal_length=2)
    await bench.server.call("XADD", key(bench, "journal", "j0"), "0-1", "temperature", "21.5")
    await bench.server.call("XADD", key(bench, "journal", "j0"), "0-2", "events", "{}", "count", "many")
    for number in range(1, 6):
        (result,) = await grid.journal.append([batch(number)])
        assert not isinstance(result, Exception)
    assert await bench.server.call("XLEN", key(bench, "journal", "j0")) == 2


async def test_a_replaced_journal_is_begun_anew(bench: Bench) -> None:
    grid, metrics = await measured(bench)
    await grid.journal.append([batch(1)])
    await bench.server.call("SET", key(bench, "journal", "j0"), "x")
    (result,) = await grid.journal.append([batch(2)])
    assert not isinstance(result, Exception)
    assert await bench.server.call("XLEN", key(bench, "journal", "j0")) == 1
    assert skipped(metrics) == 1


# --- Links between clusters -------------------------------------------------------------------------------------------


async def test_what_is_sent_to_other_clusters_goes_on_past_a_foreign_entry(bench: Bench) -> None:
    grid, _ = await measured(bench)
    publisher = Publisher(grid)
    position = await grid.topics.position(PARTITION)
    await publisher.publish(1)
    await bench.server.call("XADD", key(bench, "stream", f"t{PARTITION}"), "*", "temperature", "21.5")
    first = await grid.origins.read_after(PARTITION, position, 10)
    assert isinstance(first, TailBatch)
    assert len(first.values) == 1
    assert await grid.origins.read_after(PARTITION, first.position, 10) is None
    assert first.position.grid_generation == 1


# --- Questions and queues ---------------------------------------------------------------------------------------------


async def test_nobody_waits_for_questions_behind_a_foreign_entry(bench: Bench) -> None:
    grid, _ = await measured(bench)
    user = askers.User(grid)
    await grid.sessions.create(user.record)
    before = await user.handle(askers.QUOTES)
    stream = key(bench, "exchanges", f"t{askers.PARTITION}")
    await bench.server.call("XADD", stream, "*", "temperature", "21.5")
    after = await user.handle(askers.QUOTES)
    assert after.position.grid_generation == before.position.grid_generation == 1


async def test_no_consumer_waits_behind_a_foreign_entry(bench: Bench) -> None:
    grid, _ = await measured(bench)
    consumer = queue_users.User(grid)
    await grid.sessions.create(consumer.record)
    before = await consumer.attach()
    stream = key(bench, "deliveries", f"t{queue_users.PARTITION}")
    await bench.server.call("XADD", stream, "*", "temperature", "21.5")
    after = await consumer.attach()
    assert after.position.grid_generation == before.position.grid_generation == 1


# --- Hooks ------------------------------------------------------------------------------------------------------------


async def page_of(grid: RedisGrid, name: HookName = CRM) -> Page:
    return (await grid.hooks.read(name, 1, known=False, entries=100))[0]


def found(page: Page) -> list[object]:
    return [
        each if isinstance(each, Gap) else int(each["id"].removeprefix("run-"))
        for each, _ in follow(page)
        if each is not None
    ]


async def append_events(grid: RedisGrid, number: int, *numbers: int) -> None:
    head = {"version": 3, "type": "session_opened", "at": 1, "node": "n1", "incarnation": "run", "release": "0"}
    events = write_records([head | {"id": f"run-{each}"} for each in numbers])
    (result,) = await grid.journal.append([JournalBatch(0, number, len(numbers), events)])
    assert not isinstance(result, Exception)


async def test_what_another_program_appends_keeps_no_event_from_a_hook(bench: Bench) -> None:
    grid, _ = await measured(bench)
    await page_of(grid)
    await append_events(grid, 1, 1)
    await bench.server.call("XADD", key(bench, "journal", "j0"), "*", "temperature", "21.5")
    page = await page_of(grid)
    assert found(page) == [1]
    await grid.hooks.advance(CRM, 1, {0: [behind for _, behind in follow(page)][-1]})
    assert found(await page_of(grid, AUDIT)) == []
    await append_events(grid, 2, 2)
    assert found(await page_of(grid)) == found(await page_of(grid, AUDIT)) == [2]


@pytest.mark.parametrize("passed", [0, 1, 3])
async def test_a_cursor_behind_a_foreign_entry_is_put_right(bench: Bench, passed: int) -> None:
    """An earlier release moved it there."""
    grid, _ = await measured(bench)
    await page_of(grid)
    await append_events(grid, 1, 1)
    await append_events(grid, 2, 2, 3)
    foreign = Cursor((await page_of(grid)).incarnation, (1_796_026_852_870, 0), passed=passed)
    await grid.hooks.advance(CRM, 1, {0: foreign})
    await append_events(grid, 3, 4)
    page = await page_of(grid)
    assert (found(page), page.behind) == ([1, 2, 3, 4][passed:], 4 - passed)


async def test_a_key_of_another_type_is_counted_wherever_it_is(bench: Bench) -> None:
    """Nobody can read it; but operators learn of it, and all others go on."""
    grid, metrics = await measured(bench)
    await until_up(grid)
    await bench.server.call("SET", key(bench, "values", f"t{PARTITION}"), "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await Publisher(grid).publish(1)
    assert skipped(metrics) >= 1
    assert grid.state is GridState.UP
