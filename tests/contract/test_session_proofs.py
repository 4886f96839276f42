"""The contract of ``SessionStore.confirm``: proofs of tokens, for many sessions together (P8)."""

from __future__ import annotations

import pytest

from gateway.core.types import Epoch, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Ownership
from tests.contract.examples import claim, claimed, new_id, ownership, refused, session
from tests.contract.harness import Harness, node

pytestmark = pytest.mark.promise("P8")

N1, N2 = node("n1"), node("n2")


async def test_older_tokens_are_refused_from_then_on(harness: Harness) -> None:
    """Refuse tokens that are older than those which clients have proved to hold, for many sessions together."""
    grid = await harness.grid()
    records = [session() for _ in range(20)]
    for record in records:
        await grid.sessions.create(record)
        claimed(await claim(grid, record, N2, token_generation=1, attempt=1))
    proofs = [(ownership(record, owner=N2, epoch=2), TokenGeneration(2)) for record in records]

    assert await grid.sessions.confirm(proofs) == [True] * len(records)

    for record in records:
        found = await grid.sessions.find(record.id)
        assert found is not None
        assert found.confirmed == TokenGeneration(2)
    assert refused(await claim(grid, records[0], N1, token_generation=1, attempt=2)) == ErrorCode.TOKEN_SUPERSEDED


async def test_a_proof_never_revives_an_older_token(harness: Harness) -> None:
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    claimed(await claim(grid, record, N2, token_generation=1, attempt=1))

    for proved in (2, 1):
        assert await grid.sessions.confirm([(ownership(record, owner=N2, epoch=2), TokenGeneration(proved))]) == [True]

    found = await grid.sessions.find(record.id)
    assert found is not None
    assert found.confirmed == TokenGeneration(2)


async def test_a_session_that_is_not_the_writers_is_told_apart_and_keeps_no_other_from_its_proof(
    harness: Harness,
) -> None:
    """For each whether it was written."""
    grid = await harness.grid()
    mine, taken = session(), session()
    for record in (mine, taken):
        await grid.sessions.create(record)
    old = ownership(taken)
    claimed(await claim(grid, taken, N2, token_generation=1, attempt=1))
    unknown = Ownership(new_id(), N1, Epoch(1))

    written = await grid.sessions.confirm(
        [(old, TokenGeneration(7)), (ownership(mine), TokenGeneration(1)), (unknown, TokenGeneration(1))]
    )

    assert written == [False, True, False]
    found = await grid.sessions.find(taken.id)
    assert found is not None
    assert found.confirmed < TokenGeneration(7)


async def test_nothing_to_confirm_is_nothing_to_do(harness: Harness) -> None:
    grid = await harness.grid()

    assert await grid.sessions.confirm([]) == []
