"""The contract of what administrators ask the grid for: nodes with their reports, and pages of sessions and topics."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.session.stored_size import ENTRY_BYTES, RECEIPTS_BYTES, SESSION_BYTES, record_bytes
from gateway.core.topics.selections import Selections
from gateway.core.types import Incarnation, NodeId, NodeRef, SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import LOST_NODES, Grid, LeftSizes, NodeEntry, NodeReport, SessionPage, SessionRecord
from tests.contract.examples import (
    expire_all,
    ids_in_one_partition,
    ownership,
    partition_of,
    publish,
    published,
    session,
    topic_of,
)
from tests.contract.harness import LONG, Harness, node

N1, N2 = node("n1"), node("n2")
REPORT = NodeReport(
    listen="127.0.0.1:8101",
    admin="http://127.0.0.1:9101",
    version="1.2.3",
    started=1_700_000_000.5,
    draining=True,
    reasons=("the node drains", "\u2028é'\""),
    connected=3,
    disconnected=4,
    lag=0.25,
    link="127.0.0.1:8301",
    link_protocols=(1, 2),
    session_bytes=5,
    largest={"alice": 4},
)


# --- nodes ------------------------------------------------------------------------------------------------------------


async def test_a_report_is_read_by_every_node_as_it_was_told(harness: Harness) -> None:
    """Tell the others of *node*; replaces what it told before."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.report(N1, replace(REPORT, connected=1))
    await n1.nodes.report(N1, REPORT)

    assert list(await n2.nodes.entries()) == [NodeEntry(N1, True, REPORT), NodeEntry(N2, True, None)]


async def expire_n1(harness: Harness) -> tuple[Grid, Grid]:
    """Let n1 join, report and expire while n2 lives; returns the grids of both."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=harness.roomy)
    await n1.nodes.report(N1, REPORT)
    await n2.nodes.join(N2, lease=LONG)
    await harness.advance(harness.roomy)
    return n1, n2


async def test_a_node_that_expired_is_listed_until_it_was_taken_over(harness: Harness) -> None:
    """List the nodes that hold a lease, and those that expired and were not taken over yet; sorted."""
    _, n2 = await expire_n1(harness)
    assert list(await n2.nodes.entries()) == [NodeEntry(N1, False, REPORT), NodeEntry(N2, True, None)]

    await n2.nodes.take_over(N1, by=N2, within=LONG)
    await n2.nodes.finish_takeover(N1, by=N2)

    assert list(await n2.nodes.entries()) == [NodeEntry(N2, True, None)]


async def lose(harness: Harness, grid: Grid, lost: NodeRef, *, by: NodeRef) -> None:
    """Let a node's lease end, and take over from it."""
    await harness.advance(harness.roomy)
    assert await grid.nodes.take_over(lost, by=by, within=LONG) is not None
    await grid.nodes.finish_takeover(lost, by=by)


async def test_a_node_that_was_taken_over_is_remembered_as_lost(harness: Harness) -> None:
    """List the nodes that died and were taken over; one that has a lease again is not lost."""
    n1, n2 = await expire_n1(harness)
    assert list(await n2.nodes.lost()) == [], "nobody has taken over yet"

    await n2.nodes.take_over(N1, by=N2, within=LONG)
    await n2.nodes.finish_takeover(N1, by=N2)

    (lost,) = await n2.nodes.lost()
    assert (lost.node, lost.report) == (N1, REPORT)
    assert 0 <= lost.ago < LONG
    await n1.nodes.join(N1, lease=LONG)
    assert list(await n2.nodes.lost()) == []
    await n1.nodes.leave(N1)
    assert list(await n2.nodes.lost()) == [], "it was not dead, and has left as it should"


async def test_a_lost_node_that_told_nothing_is_listed_all_the_same(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=harness.roomy)
    await n2.nodes.join(N2, lease=LONG)
    await lose(harness, n2, N1, by=N2)

    assert [(each.node, each.report) for each in await n2.nodes.lost()] == [(N1, None)]


async def test_a_node_that_left_is_not_lost(harness: Harness) -> None:
    n1 = await harness.grid("n1")
    await n1.nodes.join(N1, lease=LONG)
    await n1.nodes.report(N1, REPORT)
    await n1.nodes.leave(N1)

    assert list(await n1.nodes.lost()) == []


@pytest.mark.thorough
async def test_no_more_nodes_are_remembered_than_fit(harness: Harness) -> None:
    """``LOST_NODES`` of them at most, those that died last."""
    grid = await harness.grid("n2")
    await grid.nodes.join(N2, lease=LONG)
    runs = [NodeRef(NodeId("n1"), Incarnation(f"run-{number:03}")) for number in range(LOST_NODES + 3)]
    for number, run in enumerate(runs):
        # Each a little later than the one before it, as leases end in this order.
        await grid.nodes.join(run, lease=harness.roomy + number / 1000)
    await harness.advance(2 * harness.roomy)
    for run in runs:
        assert await grid.nodes.take_over(run, by=N2, within=LONG) is not None
        await grid.nodes.finish_takeover(run, by=N2)

    assert [each.node for each in await grid.nodes.lost()] == runs[3:]


async def test_nothing_is_kept_of_a_node_without_a_lease(harness: Harness) -> None:
    """Goes away with its lease. / Nothing is kept of a node without a lease."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.report(N1, REPORT)
    assert list(await n2.nodes.entries()) == [NodeEntry(N2, True, None)]

    await n1.nodes.join(N1, lease=LONG)
    await n1.nodes.report(N1, REPORT)
    await n1.nodes.leave(N1)
    await n2.nodes.leave(N2)
    await n1.nodes.report(N1, REPORT)

    assert list(await n2.nodes.entries()) == []
    assert await harness.inventory() == set()


# --- sessions ---------------------------------------------------------------------------------------------------------


async def all_pages(grid: Grid, partition: int, *, limit: int) -> list[SessionPage]:
    """Read a partition to its end."""
    pages = [await grid.sessions.page(partition, after=None, limit=limit)]
    while (last := pages[-1].last) is not None:
        pages.append(await grid.sessions.page(partition, after=last, limit=limit))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_hold_every_session_once_in_order(harness: Harness, limit: int) -> None:
    """Read sessions of one session partition, in the order of their ids."""
    grid = await harness.grid()
    records = [session(session_id=each, connected=number != 1) for number, each in enumerate(ids_in_one_partition(5))]
    for record in records:
        await grid.sessions.create(record)

    pages = await all_pages(grid, partition_of(records[0]), limit=limit)

    expected = sorted(records, key=lambda record: record.id)
    assert [record for page in pages for record in page.sessions] == expected
    assert all(len(page.sessions) <= limit for page in pages)


async def test_a_session_stays_in_its_place_whatever_becomes_of_its_connection(harness: Harness) -> None:
    """A session that exists from the first page to the last is read exactly once."""
    grid = await harness.grid()
    first, second, third = sorted(
        (session(session_id=each) for each in ids_in_one_partition(3)), key=lambda record: record.id
    )
    for record in (third, first, second):
        await grid.sessions.create(record)
    partition = partition_of(first)

    before = await grid.sessions.page(partition, after=None, limit=2)
    await grid.sessions.disconnect(ownership(third))
    await grid.sessions.end(ownership(second), reason=ErrorCode.SESSION_CLOSED)
    after = await grid.sessions.page(partition, after=before.last, limit=2)

    assert [record.id for record in before.sessions] == [first.id, second.id]
    assert [record.id for record in after.sessions] == [third.id]
    assert not after.sessions[0].connected


async def test_a_session_that_ended_is_in_no_page_and_leaves_nothing(harness: Harness) -> None:
    """Its place in the list goes away with it, however it ends."""
    grid = await harness.grid()
    closed, expired = (session(session_id=each, window=harness.short) for each in ids_in_one_partition(2))
    for record in (closed, expired):
        await grid.sessions.create(record)
    await grid.sessions.end(ownership(closed), reason=ErrorCode.SESSION_CLOSED)
    await grid.sessions.disconnect(ownership(expired))
    await harness.advance(harness.short)
    await expire_all(grid)

    assert (await grid.sessions.page(partition_of(closed), after=None, limit=10)) == SessionPage([], None)


async def test_a_session_that_was_restored_is_listed_again(harness: Harness) -> None:
    """Written again into a grid that lost it, it can be found again."""
    grid = await harness.grid()
    record = session()
    assert (await grid.sessions.restore([record], recreate=True)) == ["written"]

    page = await grid.sessions.page(partition_of(record), after=None, limit=10)

    assert list(page.sessions) == [record]


async def test_any_text_can_be_the_place_after_which_a_page_begins(harness: Harness) -> None:
    """after: passed back by callers, who may have changed it."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)

    for after in ("", "(", "[", "+", "-", "\x00", "é"):
        page = await grid.sessions.page(partition_of(record), after=SessionId(after), limit=10)
        assert page.last is None


# --- topics -----------------------------------------------------------------------------------------------------------


async def test_scanning_finds_every_topic_of_a_partition(harness: Harness) -> None:
    """A topic that exists from the first page to the last is in one of them at least."""
    grid = await harness.grid()
    owner = ownership(session())
    topics = {f"prices/{number}": b'"%b"' % (b"x" * 100) for number in range(1, 301)}
    commands = [publish(owner, number, topic, value) for number, (topic, value) in enumerate(topics.items(), 1)]
    await published(grid, *commands)

    found: dict[str, bytes] = {}
    step: str | None = None
    pages = 0
    while pages == 0 or step is not None:
        page = await grid.topics.scan(topic_of("prices/1"), step=step, count=20)
        found |= {value.topic: value.value for value in page.values}
        step = page.step
        pages += 1

    assert found == topics
    assert pages > 5


async def test_a_step_that_is_from_no_page_is_refused_or_harmless(harness: Harness) -> None:
    """ValueError: *step* is not from a page."""
    grid = await harness.grid()
    for step in ("", "x", "-1", "1" * 30, "²", "0 COUNT 1"):
        try:
            page = await grid.topics.scan(0, step=step, count=20)
        except ValueError:
            continue
        assert list(page.values) == []
    await grid.topics.position(0)


async def test_single_topics_are_read(harness: Harness) -> None:
    """None for those that have none."""
    grid = await harness.grid()
    (receipt,) = await published(grid, publish(ownership(session()), 1, "prices/ACME", b"1"))

    value, nothing = await grid.topics.read([TopicPath("prices/ACME"), TopicPath("elsewhere/ACME")])

    assert nothing is None
    assert value is not None
    assert (value.topic, value.version, value.event, value.value) == (
        "prices/ACME",
        receipt.version,
        receipt.event,
        b"1",
    )
    assert await grid.topics.read([]) == []


# --- what sessions take -----------------------------------------------------------------------------------------------


async def test_what_is_left_is_added_up_but_for_sessions_that_somebody_counts(harness: Harness) -> None:
    """Tell what the disconnected sessions of one session partition take, but for those of some nodes."""
    grid = await harness.grid()
    ids = ids_in_one_partition(6)
    gone = node("n1", "before")
    parts: list[dict[str, Any]] = [
        {},
        {"properties": {"a": '\u00e9"\\\u2028' * 50}, "partitions": frozenset({3, 63})},
        {"selections": ("+prices/**", "-prices/\u00e9", "+*")},
    ]
    left = [session(session_id=each, owner=gone, **more) for each, more in zip(ids, parts, strict=False)]
    another = replace(session(session_id=ids[3], owner=gone), principal="bob", roles=frozenset({"a", "b"}))
    another = replace(another, principal_properties={"team": "x"})
    connected = session(session_id=ids[4], owner=gone)
    counted = session(session_id=ids[5], owner=N2)
    for record in (*left, another, connected, counted):
        await grid.sessions.create(record)
    for record in (*left, another, counted):
        await grid.sessions.disconnect(ownership(record))

    whole = await grid.sessions.left(partition_of(connected), besides={N2}, start=0, limit=100)

    sizes = {"alice": sum(map(size_of, left)), "bob": size_of(another)}
    assert whole == LeftSizes(sizes, None)
    assert size_of(left[1]) > SESSION_BYTES + 2 * RECEIPTS_BYTES + 300
    assert size_of(left[2]) > SESSION_BYTES + 3 * ENTRY_BYTES
    paged: Counter[str] = Counter()
    start: int | None = 0
    while start is not None:
        page = await grid.sessions.left(partition_of(connected), besides={N2}, start=start, limit=2)
        paged.update(page.sizes)
        start = page.next
    assert paged == sizes
    await grid.sessions.end(ownership(another), reason=ErrorCode.SESSION_CLOSED)
    assert (await grid.sessions.left(partition_of(connected), besides={N2, gone}, start=0, limit=9)) == LeftSizes(
        {}, None
    )


def size_of(record: SessionRecord) -> int:
    """Reckon what a record takes, as a node does that holds the session."""
    return record_bytes(
        properties=record.properties,
        principal_properties=record.principal_properties,
        roles=record.roles,
        entries=len(record.selections),
        entries_bytes=Selections.from_wire(record.selections).text_bytes,
        publish_partitions=len(record.publish_partitions),
    )
