"""Sessions, rights and publishes for the contract suite."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping

from gateway.core.topics.topics import SESSION_PARTITIONS, session_partition, topic_partition
from gateway.core.types import (
    Attempt,
    Epoch,
    NodeRef,
    RequestNumber,
    SessionId,
    TokenGeneration,
    TopicPath,
)
from gateway.ports import (
    Claimed,
    ClaimRefused,
    ClaimResult,
    Ended,
    Fenced,
    Grid,
    Identity,
    Ownership,
    PublishCommand,
    Published,
    Reclaimed,
    SessionRecord,
    TopicValue,
)
from tests.contract.harness import LONG, node

DEPTH = 1
"""Leading path segments that decide a topic's partition: the default of every implementation."""

LIMIT = 1000
"""More sessions than any test has."""


def new_id() -> SessionId:
    """Make an id that no other test uses."""
    return SessionId(uuid.uuid4().hex)


def session(
    *,
    owner: NodeRef | None = None,
    session_id: SessionId | None = None,
    epoch: int = 1,
    window: float = LONG,
    connected: bool = True,
    properties: Mapping[str, str] | None = None,
    selections: tuple[str, ...] = (),
    partitions: frozenset[int] = frozenset(),
    attempt: int = 0,
) -> SessionRecord:
    """Make a session of ``n1`` unless *owner* says otherwise."""
    return SessionRecord(
        id=new_id() if session_id is None else session_id,
        principal="alice",
        properties={} if properties is None else properties,
        selections=selections,
        window=window,
        epoch=Epoch(epoch),
        owner=node("n1") if owner is None else owner,
        attempt=Attempt(attempt),
        connected=connected,
        publish_partitions=partitions,
    )


def ownership(record: SessionRecord, *, owner: NodeRef | None = None, epoch: int | None = None) -> Ownership:
    """Make the right by which the owner of *record* writes, or a changed one."""
    return Ownership(
        record.id, record.owner if owner is None else owner, record.epoch if epoch is None else Epoch(epoch)
    )


async def claim(
    grid: Grid,
    record: SessionRecord,
    by: NodeRef,
    *,
    token_generation: int,
    attempt: int,
    now: float = 0.0,
    identity: Identity | None = None,
) -> ClaimResult:
    """Claim a session."""
    return await grid.sessions.claim(
        record.id,
        by=by,
        token_generation=TokenGeneration(token_generation),
        attempt=Attempt(attempt),
        now=now,
        identity=identity,
    )


async def reclaim(
    grid: Grid, record: SessionRecord, *, token_generation: int, attempt: int, now: float = 0.0
) -> Reclaimed | ClaimResult:
    """Claim a session for the node that holds it by *record*."""
    return await grid.sessions.reclaim(
        ownership(record), token_generation=TokenGeneration(token_generation), attempt=Attempt(attempt), now=now
    )


def claimed(result: Reclaimed | ClaimResult) -> Claimed:
    """Expect that a claim succeeded."""
    assert isinstance(result, Claimed), result
    return result


def refused(result: Reclaimed | ClaimResult) -> str:
    """Expect that a claim was refused and return the reason."""
    assert isinstance(result, ClaimRefused), result
    return result.reason


async def expire_all(grid: Grid, *, limit: int = LIMIT) -> list[Ended]:
    """End what is due in all session partitions."""
    return [
        each for partition in range(SESSION_PARTITIONS) for each in await grid.sessions.expire(partition, limit=limit)
    ]


async def orphan_all(grid: Grid, expired: NodeRef) -> list[tuple[SessionId, Epoch]]:
    """Put the sessions of an expired node on the clock, as survivors do."""
    orphaned: list[tuple[SessionId, Epoch]] = []
    for partition in range(SESSION_PARTITIONS):
        sessions = await grid.sessions.owned(expired, partition)
        epochs = await grid.sessions.orphan(expired, sessions)
        orphaned += [(session, epoch) for session, epoch in zip(sessions, epochs, strict=True) if epoch is not None]
    return orphaned


def partition_of(record: SessionRecord) -> int:
    """Tell a session's partition."""
    return session_partition(record.id)


def ids_in_one_partition(count: int) -> list[SessionId]:
    """Make ids that share a session partition."""
    ids = (new_id() for _ in itertools.count())
    return list(itertools.islice((each for each in ids if session_partition(each) == 0), count))


def topic_of(path: str) -> int:
    """Tell a topic's partition."""
    return topic_partition(TopicPath(path), DEPTH)


def publish(
    owner: Ownership, request: int, topic: str = "prices/ACME", value: bytes = b"1", *, settled: int = 0
) -> PublishCommand:
    """Make a publish."""
    return PublishCommand(owner, RequestNumber(request), RequestNumber(settled), TopicPath(topic), value)


async def published(grid: Grid, *commands: PublishCommand) -> list[Published]:
    """Publish and expect that nothing is fenced."""
    results = await grid.topics.publish(commands)
    assert not any(isinstance(each, Fenced) for each in results), results
    return [each for each in results if isinstance(each, Published)]


async def values_of(grid: Grid, partition: int) -> dict[str, TopicValue]:
    """Read all values of a partition."""
    return {value.topic: value async for page in grid.topics.values(partition) for value in page}
