"""The contract of the look that precedes a claim where something slow is done between the two (``SessionStore``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from gateway.core.types import Attempt, NodeRef, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import ClaimRefused, Grid, Identity, SessionRecord
from tests.contract.examples import claim, ownership, session
from tests.contract.harness import Harness, node

N1, N2 = node("n1"), node("n2")

Situation: TypeAlias = Callable[[Harness, Grid], Awaitable[SessionRecord]]


async def connected(_harness: Harness, grid: Grid) -> SessionRecord:
    record = replace(session(attempt=3), token_generation=TokenGeneration(5), confirmed=TokenGeneration(4))
    await grid.sessions.create(record)
    return record


async def disconnected(harness: Harness, grid: Grid) -> SessionRecord:
    record = await connected(harness, grid)
    await grid.sessions.disconnect(ownership(record))
    return record


async def with_ended_credentials(_harness: Harness, grid: Grid) -> SessionRecord:
    record = replace(
        session(attempt=3),
        token_generation=TokenGeneration(5),
        confirmed=TokenGeneration(4),
    ).shows(Identity(principal="alice", expires=1.0))
    await grid.sessions.create(record)
    return record


async def unknown(_harness: Harness, _grid: Grid) -> SessionRecord:
    return session()


async def closed(harness: Harness, grid: Grid) -> SessionRecord:
    record = await connected(harness, grid)
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    return record


async def revoked(harness: Harness, grid: Grid) -> SessionRecord:
    record = await connected(harness, grid)
    await grid.sessions.end(ownership(record), reason=ErrorCode.REVOKED)
    return record


async def expired(harness: Harness, grid: Grid) -> SessionRecord:
    """The window is over, and the reaper was not there yet."""
    record = replace(
        session(attempt=3, window=harness.short), token_generation=TokenGeneration(5), confirmed=TokenGeneration(4)
    )
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(harness.short)
    return record


@pytest.mark.parametrize(
    ("situation", "shown", "reason"),
    [
        (connected, (N2, 5, 4), None),
        (connected, (N2, 4, 4), None),
        (connected, (N2, 9, 4), None),
        (connected, (N1, 5, 3), None),
        (disconnected, (N2, 5, 4), None),
        (with_ended_credentials, (N2, 5, 4), None),
        (connected, (N2, 3, 4), ErrorCode.TOKEN_SUPERSEDED),
        (disconnected, (N2, 3, 4), ErrorCode.TOKEN_SUPERSEDED),
        (connected, (N2, 5, 3), ErrorCode.STALE_ATTEMPT),
        (connected, (N1, 5, 2), ErrorCode.STALE_ATTEMPT),
        (unknown, (N2, 5, 4), ErrorCode.SESSION_UNKNOWN),
        (closed, (N2, 5, 4), ErrorCode.SESSION_CLOSED),
        (revoked, (N2, 5, 4), ErrorCode.REVOKED),
        (expired, (N2, 5, 4), ErrorCode.SESSION_EXPIRED),
    ],
)
async def test_it_tells_what_a_claim_would_and_changes_nothing(
    harness: Harness, situation: Situation, shown: tuple[NodeRef, int, int], reason: ErrorCode | None
) -> None:
    """Tell why ``claim`` would refuse now, whatever credentials were shown with it; None if it would not."""
    by, generation, attempt = shown
    grid = await harness.grid()
    record = await situation(harness, grid)
    before = await grid.sessions.find(record.id)
    for _ in range(2):
        found = await grid.sessions.why_not_claimable(
            record.id, by=by, token_generation=TokenGeneration(generation), attempt=Attempt(attempt)
        )
        assert found == reason
    assert await grid.sessions.find(record.id) == before

    fresh = Identity(principal="alice")
    result = await claim(grid, record, by, token_generation=generation, attempt=attempt, identity=fresh)
    assert (result.reason if isinstance(result, ClaimRefused) else None) == reason
