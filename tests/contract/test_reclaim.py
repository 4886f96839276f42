"""The contract of ``SessionStore.reclaim``: a node claims a session that it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.topics.topics import session_partition
from gateway.core.types import Attempt, Epoch, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Fenced, Reclaimed, SessionChanges
from tests.contract.examples import claim, claimed, expire_all, ownership, reclaim, refused, session
from tests.contract.harness import Harness, node

N1, N2 = node("n1"), node("n2")


@pytest.mark.promise("P1", "P3")
@pytest.mark.parametrize("is_connected", [True, False], ids=["connected", "away"])
async def test_the_owner_claims_its_own_session_and_is_told_what_has_changed(
    harness: Harness, is_connected: bool
) -> None:
    """If it was the session's by that right until now; only what the claim changes is told."""
    grid = await harness.grid()
    record = session(properties={"team": "fx"}, selections=("+a", "-a/b"), window=harness.roomy)
    await grid.sessions.create(record)
    if not is_connected:
        await grid.sessions.disconnect(ownership(record))
    result = await reclaim(grid, record, token_generation=1, attempt=1)
    assert result == Reclaimed(Epoch(2), TokenGeneration(2), before=N1)
    now = replace(record, epoch=Epoch(2), token_generation=TokenGeneration(2), attempt=Attempt(1), connected=True)
    assert await grid.sessions.find(record.id) == now
    assert await grid.sessions.owned(N1, session_partition(record.id)) == [record.id]
    await harness.advance(harness.roomy)
    assert await expire_all(grid) == []
    with pytest.raises(Fenced):  # what was under way by the older right
        await grid.sessions.change(ownership(record), SessionChanges(properties={}))
    # Asked again, it answers as a claim does: the right is another one by now.
    assert claimed(await reclaim(grid, record, token_generation=1, attempt=1)).record == now


@pytest.mark.promise("P1", "P3")
async def test_an_owner_whose_session_was_elsewhere_meanwhile_is_told_all_of_it(harness: Harness) -> None:
    """Else what ``claim`` would."""
    grid = await harness.grid()
    record = session(selections=("+a",))
    await grid.sessions.create(record)
    there = claimed(await claim(grid, record, N2, token_generation=1, attempt=1)).record
    await grid.sessions.change(ownership(there), SessionChanges(selections=("+b",)))
    back = claimed(await reclaim(grid, record, token_generation=2, attempt=2))
    assert (back.previous, back.before, back.record.owner) == (N2, N1, N1)
    assert (back.record.selections, back.record.epoch) == (("+b",), Epoch(3))
    # And by the same epoch of another owner likewise.
    away = claimed(await claim(grid, back.record, N2, token_generation=3, attempt=3)).record
    assert away.epoch == Epoch(4)
    other = replace(record, epoch=away.epoch)
    assert claimed(await reclaim(grid, other, token_generation=4, attempt=4)).record.selections == ("+b",)


async def test_a_claim_of_the_owner_is_refused_as_any_other(harness: Harness) -> None:
    """Refused as TOKEN_SUPERSEDED […]; as STALE_ATTEMPT […]; as CREDENTIALS_EXPIRED […]."""
    grid = await harness.grid()
    record = replace(session(), confirmed=TokenGeneration(2), token_generation=TokenGeneration(3), attempt=Attempt(5))
    await grid.sessions.create(record)
    assert refused(await reclaim(grid, record, token_generation=1, attempt=6)) is ErrorCode.TOKEN_SUPERSEDED
    assert refused(await reclaim(grid, record, token_generation=3, attempt=4)) is ErrorCode.STALE_ATTEMPT
    ended = replace(session(), credential_expires=100.0)
    await grid.sessions.create(ended)
    refusal = await reclaim(grid, ended, token_generation=1, attempt=1, now=100.0)
    assert refused(refusal) is ErrorCode.CREDENTIALS_EXPIRED
    assert refused(await reclaim(grid, session(), token_generation=1, attempt=1)) is ErrorCode.SESSION_UNKNOWN
    assert await grid.sessions.find(record.id) == record
