"""What the in-memory grid remembers of those that are gone, it remembers for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gateway.core.types import SessionId, TopicPath
from gateway.core.wire.codec.will_packets import write_wills
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import WILLS_PROPERTY, Will
from gateway.ports import DurableName, DurableTerms, Fenced, Grid, JournalBatch, LastWills, Published, ReceiptsLeft
from tests.contract.examples import ownership, publish, session, topic_of
from tests.contract.harness import MemoryHarness

DAYS = 24 * 3600.0
TOPIC = "status/alice"


@pytest.fixture
def harness() -> MemoryHarness:
    return MemoryHarness()


def publisher_of(name: SessionId) -> SessionId:
    return SessionId(f"will-{name}")


async def executed(left: Sequence[LastWills]) -> Mapping[SessionId, Sequence[ReceiptsLeft]]:
    return {each.session: [ReceiptsLeft(publisher_of(each.session), topic_of(TOPIC))] for each in left}


async def end_with_will(grid: Grid) -> SessionId:
    wills = write_wills((Will(topic=TopicPath(TOPIC), value=b"1"),)).decode()
    record = session(properties={WILLS_PROPERTY: wills})
    await grid.sessions.create(record)
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED, execute=executed)
    return publisher_of(record.id)


async def test_a_publisher_of_wills_is_kept_out_for_a_while(harness: MemoryHarness) -> None:
    grid = await harness.grid()
    late = session(session_id=await end_with_will(grid))
    (result,) = await grid.topics.publish([publish(ownership(late), 1, TOPIC)])
    assert isinstance(result, Fenced)
    await harness.advance(DAYS)
    await end_with_will(grid)
    assert len(harness.server.data._closed) == 1
    (result,) = await grid.topics.publish([publish(ownership(late), 1, TOPIC)])
    assert isinstance(result, Published)


async def test_nothing_stays_of_a_durable_subscription_that_was_removed(harness: MemoryHarness) -> None:
    grid = await harness.grid()
    mine, name = ownership(session()), DurableName("alice", "billing")
    for _ in range(2):
        await grid.durables.open(mine, name, DurableTerms("x/**", 60.0), start="", instead_of=None)
        await grid.durables.release(mine, name)
    assert not harness.server.data.durables._epochs
    await grid.durables.open(mine, name, DurableTerms("x/**", 60.0), start="", instead_of=None)
    await grid.durables.remove(name)
    assert not harness.server.data.durables._epochs


async def test_node_incarnations_that_are_gone_are_forgotten_by_the_journal(harness: MemoryHarness) -> None:
    for day in range(4):
        grid = await harness.grid(run=f"run-{day}")
        await grid.journal.append([JournalBatch(0, 1, 1, b"{}")])
        await harness.advance(DAYS)
    stream = harness.server.journal(0)
    assert stream is not None
    assert list(stream.producers) == ["run-2", "run-3"]
