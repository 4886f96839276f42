"""The contract of last wills: executed when nobody can go on with a session, by whoever ends it, each once (P5, P7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from gateway.adapters.memory import session_table
from gateway.adapters.redis import session_ends
from gateway.core.types import RequestNumber, SessionId, TopicPath
from gateway.core.wire.codec.will_packets import write_wills
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import WILLS_PROPERTY, EndKind, Will
from gateway.ports import (
    Ended,
    Fenced,
    Grid,
    GridUnavailable,
    LastWills,
    Ownership,
    PublishCommand,
    Published,
    ReceiptsLeft,
    SessionEnd,
    SessionGone,
    SessionRecord,
)
from tests.contract.examples import (
    claim,
    expire_all,
    ids_in_one_partition,
    ownership,
    partition_of,
    refused,
    session,
    topic_of,
)
from tests.contract.harness import Harness, node

pytestmark = [pytest.mark.promise("P5"), pytest.mark.promise("P7")]

TOPIC = TopicPath("status/alice")
PARTITION = topic_of(TOPIC)
TEXT = write_wills((Will(TOPIC, b'"gone"'),)).decode()
CLOSED, REVOKED, EXPIRED = ErrorCode.SESSION_CLOSED, ErrorCode.REVOKED, ErrorCode.SESSION_EXPIRED


@pytest.fixture
def grace(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long others leave a session alone that is marked as ended: for no time that a test has to wait for."""
    monkeypatch.setattr(session_ends, "ENDING_GRACE_MS", round(harness.short * 1000))
    monkeypatch.setattr(session_table, "ENDING_GRACE", harness.short)
    return harness.short


class Executor:
    """Publishes each will that it is given, and notes which."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.given: list[LastWills] = []
        self.results: list[object] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.reached = asyncio.Event()
        self.failing = False
        self.refused: set[SessionId] = set()

    async def execute(self, left: Sequence[LastWills]) -> Mapping[SessionId, Sequence[ReceiptsLeft]]:
        self.given += left
        self.reached.set()
        await self.go_on.wait()
        commands = [
            PublishCommand(
                Ownership(SessionId(f"$will-{each.session}"), each.owner, each.epoch),
                RequestNumber(1),
                RequestNumber(0),
                TOPIC,
                b'"gone"',
            )
            for each in left
            if each.session not in self.refused
        ]
        self.results += await self.grid.topics.publish(commands)
        if self.failing:
            raise GridUnavailable("the node dies here")
        executed = [each.session for each in left if each.session not in self.refused]
        return {each: [ReceiptsLeft(SessionId(f"$will-{each}"), PARTITION)] for each in executed}

    @property
    def published(self) -> int:
        return sum(isinstance(each, Published) and not each.duplicate for each in self.results)


async def opened(
    grid: Grid,
    *,
    window: float = 600.0,
    connected: bool = True,
    wills: str = TEXT,
    session_id: SessionId | None = None,
) -> SessionRecord:
    """Open a session that leaves a will."""
    properties = {WILLS_PROPERTY: wills} if wills else {}
    record = session(window=window, connected=connected, properties=properties, session_id=session_id)
    await grid.sessions.create(record)
    return record


async def left_of(harness: Harness, *records: SessionRecord) -> set[str]:
    """Tell what the grid keeps of sessions, but for the memory that they have ended."""
    names = {each for each in await harness.inventory() if "tombstone" not in each}
    return {name for name in names for each in records if each.id in name}


async def expire(grid: Grid, executor: Executor, record: SessionRecord) -> list[Ended]:
    return await grid.sessions.expire(partition_of(record), limit=100, execute=executor.execute)


@pytest.mark.parametrize(
    ("reason", "removed", "kind"),
    [
        (CLOSED, False, EndKind.CLOSED),
        (CLOSED, True, EndKind.REMOVED),
        (REVOKED, False, EndKind.REMOVED),
        (EXPIRED, False, EndKind.EXPIRED),
    ],
)
async def test_whoever_ends_a_session_executes_its_wills(
    harness: Harness, reason: ErrorCode, removed: bool, kind: EndKind
) -> None:
    grid = await harness.grid()
    executor = Executor(grid)
    record = await opened(grid)

    await grid.sessions.end(ownership(record), reason=reason, removed=removed, execute=executor.execute)

    (left,) = executor.given
    assert left == LastWills(record.id, record.owner, record.epoch, "alice", frozenset(), {}, kind, TEXT)
    assert executor.published == 1
    assert await grid.sessions.find(record.id) is None
    assert refused(await claim(grid, record, node("n2"), token_generation=1, attempt=1)) == reason
    await grid.sessions.end(ownership(record), reason=reason, execute=executor.execute)
    assert executor.published == 1


async def test_a_session_whose_window_is_over_leaves_its_wills_to_the_reaper(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    executor = Executor(n2)
    record = await opened(n1, window=harness.short, connected=False)
    assert await expire(n2, executor, record) == []
    await harness.advance(harness.short)

    assert await expire(n2, executor, record) == [Ended(record.id, record.owner, record.epoch, record.principal)]

    assert [(each.session, each.kind) for each in executor.given] == [(record.id, EndKind.EXPIRED)]
    assert executor.published == 1
    assert await expire(n1, Executor(n1), record) == []


async def test_nobody_goes_on_with_a_session_whose_wills_are_being_executed(harness: Harness) -> None:
    """When it is marked as ended, and nobody can go on with it any more, and before anything of it is deleted."""
    grid = await harness.grid()
    executor = Executor(grid)
    record = await opened(grid)
    executor.go_on.clear()
    ending = asyncio.create_task(grid.sessions.end(ownership(record), reason=CLOSED, execute=executor.execute))
    await executor.reached.wait()

    result = await claim(grid, record, node("n2"), token_generation=1, attempt=1)
    written = await grid.sessions.restore([record], recreate=True)
    with pytest.raises(SessionGone):
        await grid.sessions.pass_on(ownership(record), to=node("n2"))
    with pytest.raises(SessionGone):
        await grid.sessions.disconnect(ownership(record))
    orphaned = await grid.sessions.orphan(record.owner, [record.id])
    executor.go_on.set()
    await ending

    assert refused(result) == CLOSED
    assert written == ["gone"]
    assert orphaned == [None]
    assert await grid.sessions.find(record.id) is None


async def test_a_session_without_a_client_is_not_passed_on_at_its_end(harness: Harness) -> None:
    """Found: the in-memory grid gave it a next owner, and its end did not find it any more."""
    grid = await harness.grid()
    executor = Executor(grid)
    record = await opened(grid, connected=False)
    executor.go_on.clear()
    ending = asyncio.create_task(grid.sessions.end(ownership(record), reason=CLOSED, execute=executor.execute))
    await executor.reached.wait()
    with pytest.raises(SessionGone):
        await grid.sessions.pass_on(ownership(record), to=node("n2"))
    executor.go_on.set()
    await ending
    assert await grid.sessions.find(record.id) is None


async def test_if_the_ender_dies_before_it_executes_them_a_reaper_does(harness: Harness, grace: float) -> None:
    """The session stays marked, and ``expire`` finishes it some seconds later, for the kind of its end."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = await opened(n1)

    async def die(_: Sequence[LastWills]) -> Mapping[SessionId, Sequence[ReceiptsLeft]]:
        raise GridUnavailable("the node dies here")

    with pytest.raises(GridUnavailable):
        await n1.sessions.end(ownership(record), reason=CLOSED, removed=True, execute=die)
    executor = Executor(n2)
    await harness.advance(grace)

    assert await expire(n2, executor, record) == [], "it was no window that ended"

    assert [each.kind for each in executor.given] == [EndKind.REMOVED]
    assert executor.published == 1
    assert refused(await claim(n2, record, node("n2"), token_generation=1, attempt=1)) == CLOSED


async def test_if_the_ender_dies_after_it_has_published_they_are_not_published_again(
    harness: Harness, grace: float
) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = await opened(n1)
    first, second = Executor(n1), Executor(n2)
    first.failing = True
    with pytest.raises(GridUnavailable):
        await n1.sessions.end(ownership(record), reason=CLOSED, execute=first.execute)
    await harness.advance(grace)
    await expire(n2, second, record)

    assert (first.published, second.published) == (1, 0)
    assert [each.session for each in second.given] == [record.id]
    assert await n2.sessions.find(record.id) is None


async def test_an_ender_that_was_slow_does_not_publish_them_again(harness: Harness, grace: float) -> None:
    """Also when another one has come to the end meanwhile, and nothing is left of the session."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = await opened(n1)
    first, second = Executor(n1), Executor(n2)
    first.go_on.clear()
    ending = asyncio.create_task(n1.sessions.end(ownership(record), reason=CLOSED, execute=first.execute))
    await first.reached.wait()
    await harness.advance(grace)
    await expire(n2, second, record)
    first.go_on.set()
    await ending

    assert (first.published, second.published) == (0, 1)
    assert isinstance(first.results[0], Fenced)
    assert not await left_of(harness, record), "nobody writes of a session that is gone"


async def test_many_end_together(harness: Harness) -> None:
    grid = await harness.grid()
    executor = Executor(grid)
    records = [await opened(grid, wills=TEXT if number % 2 else "") for number in range(6)]

    ends = [SessionEnd(ownership(each), CLOSED) for each in records]
    assert await grid.sessions.end_all(ends, execute=executor.execute) == [True] * 6

    assert {each.session for each in executor.given} == {each.id for each in records[1::2]}
    assert executor.published == 3
    assert await expire_all(grid) == []


async def test_who_does_not_own_a_session_executes_nothing(harness: Harness) -> None:
    grid = await harness.grid()
    executor = Executor(grid)
    record = await opened(grid)
    other = ownership(record, owner=node("n2"))

    assert await grid.sessions.end_all([SessionEnd(other, CLOSED)], execute=executor.execute) == [False]

    assert executor.given == []
    assert await grid.sessions.find(record.id) is not None


async def expired(harness: Harness, grid: Grid, count: int) -> list[SessionRecord]:
    """Make sessions of one partition whose windows are over; the first one has left a will."""
    records = [
        await opened(
            grid, window=harness.short, connected=False, wills=TEXT if number == 0 else "", session_id=session_id
        )
        for number, session_id in enumerate(ids_in_one_partition(count))
    ]
    await harness.advance(harness.short)
    return records


@pytest.mark.promise("P20")
async def test_a_will_that_is_refused_makes_its_own_session_wait_alone(harness: Harness, grace: float) -> None:
    """As by a Redis that is full: who is reaped together with it ends, and it does when there is room."""
    grid = await harness.grid()
    first, *others = await expired(harness, grid, 4)
    executor = Executor(grid)
    executor.refused.add(first.id)

    ended = await expire(grid, executor, first)

    assert {each.session for each in ended} == {each.id for each in others}
    assert [each.session for each in executor.given] == [first.id]
    assert refused(await claim(grid, first, node("n2"), token_generation=1, attempt=1)) == EXPIRED
    executor.refused.clear()
    await harness.advance(grace)
    assert [each.session for each in await expire(grid, executor, first)] == [first.id]
    assert executor.published == 1
    assert not await left_of(harness, first)


@pytest.mark.promise("P20")
async def test_many_that_wait_keep_nobody_behind_them(harness: Harness, grace: float) -> None:
    """Though one step ends few, and those that wait were due first."""
    grid = await harness.grid()
    ids = ids_in_one_partition(6)
    executor = Executor(grid)
    for session_id in ids[:4]:
        await opened(grid, window=harness.short, connected=False, session_id=session_id)
        executor.refused.add(session_id)
    await harness.advance(harness.short / 10)
    for session_id in ids[4:]:
        await opened(grid, window=harness.short, connected=False, wills="", session_id=session_id)
    await harness.advance(harness.short)

    ended = await grid.sessions.expire(0, limit=2, execute=executor.execute)

    assert {each.session for each in ended} == set(ids[4:])


@pytest.mark.promise("P20")
async def test_an_executor_that_fails_keeps_only_those_that_have_left_wills(harness: Harness, grace: float) -> None:
    grid = await harness.grid()
    first, *others = await expired(harness, grid, 3)
    executor = Executor(grid)
    executor.failing = True

    with pytest.raises(GridUnavailable):
        await expire(grid, executor, first)

    for each in others:
        assert await grid.sessions.find(each.id) is None
    executor.failing = False
    await harness.advance(grace)
    assert [each.session for each in await expire(grid, executor, first)] == [first.id]
    assert executor.published == 1, "it was published before it failed, and not again"


@pytest.mark.promise("P20")
async def test_who_ends_with_a_session_that_waits_ends(harness: Harness, grace: float) -> None:
    """Of many that are ended together; who ends that session alone is told."""
    grid = await harness.grid()
    executor = Executor(grid)
    records = [await opened(grid), await opened(grid), await opened(grid, wills="")]
    waiting = records[0]
    executor.refused.add(waiting.id)

    ends = [SessionEnd(ownership(each), CLOSED) for each in records]
    assert await grid.sessions.end_all(ends, execute=executor.execute) == [True] * 3
    with pytest.raises(GridUnavailable):
        await grid.sessions.end(ownership(waiting), reason=CLOSED, execute=executor.execute)

    for each in records:
        assert await grid.sessions.find(each.id) is None
        assert refused(await claim(grid, each, node("n2"), token_generation=1, attempt=1)) == CLOSED
    assert not await left_of(harness, *records[1:])
    executor.refused.clear()
    await harness.advance(grace)
    assert await expire(grid, executor, waiting) == [], "it was no window that ended"
    assert executor.published == 2
    assert not await left_of(harness, waiting)
