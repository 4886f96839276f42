"""The contract of sessions whose credentials give roles and properties, and may end (``SessionStore``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from gateway.core.types import Attempt, Epoch, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Identity, Restored, SessionChanges
from tests.contract.examples import claim, claimed, ownership, refused, session
from tests.contract.harness import Harness, node

N1, N2 = node("n1"), node("n2")

EXPIRES: Final = 1_795_249_200.25
"""With a fraction that binary numbers hold exactly."""

FIRST: Final = Identity(
    principal="alice",
    roles=frozenset({"trader", "Prüfer"}),
    properties={"team": "fx", "desk": 'R&D "London"'},
    expires=EXPIRES,
    credential="jti-1",
)
SECOND: Final = Identity(
    principal="alice", roles=frozenset({"auditor"}), properties={"team": "rates"}, expires=EXPIRES + 60
)


@pytest.mark.parametrize("identity", [FIRST, SECOND, Identity(principal="alice")])
async def test_what_credentials_gave_is_found_and_claimed_as_it_was(harness: Harness, identity: Identity) -> None:
    grid = await harness.grid()
    record = session().shows(identity)
    await grid.sessions.create(record)

    assert await grid.sessions.find(record.id) == record
    taken = claimed(await claim(grid, record, N2, token_generation=1, attempt=1, now=EXPIRES - 1)).record

    assert taken == replace(
        record,
        owner=N2,
        epoch=Epoch(2),
        token_generation=TokenGeneration(2),
        attempt=Attempt(1),
    )
    assert await grid.sessions.find(record.id) == taken


@pytest.mark.parametrize("now", [EXPIRES, EXPIRES + 1])
async def test_credentials_that_have_ended_claim_nothing_and_change_nothing(harness: Harness, now: float) -> None:
    """Refused as CREDENTIALS_EXPIRED if those of the session ended at *now* or before."""
    grid = await harness.grid()
    record = session().shows(FIRST)
    await grid.sessions.create(record)

    assert (
        refused(await claim(grid, record, N2, token_generation=1, attempt=1, now=now)) == ErrorCode.CREDENTIALS_EXPIRED
    )

    assert await grid.sessions.find(record.id) == record


async def test_fresh_credentials_take_the_place_of_ended_ones_in_the_same_step(harness: Harness) -> None:
    grid = await harness.grid()
    record = session(properties={"colour": "blue"}).shows(FIRST)
    await grid.sessions.create(record)

    result = await claim(grid, record, N2, token_generation=1, attempt=1, now=EXPIRES + 1, identity=SECOND)

    taken = claimed(result).record
    assert taken == replace(
        record.shows(SECOND), owner=N2, epoch=Epoch(2), token_generation=TokenGeneration(2), attempt=Attempt(1)
    )
    assert taken.credential is None
    assert await grid.sessions.find(record.id) == taken


@pytest.mark.parametrize("identity", [None, SECOND])
async def test_a_claim_asked_again_answers_as_it_did(harness: Harness, identity: Identity | None) -> None:
    """Its answer was lost: the same claim asked again answers as it did, and what was shown is not written twice."""
    grid = await harness.grid()
    record = session().shows(FIRST)
    await grid.sessions.create(record)
    now = EXPIRES - 1 if identity is None else EXPIRES + 1
    first = await claim(grid, record, N2, token_generation=1, attempt=1, now=now, identity=identity)

    assert claimed(first).record.epoch == 2
    assert await claim(grid, record, N2, token_generation=1, attempt=1, now=now, identity=identity) == first


async def test_credentials_are_looked_at_whether_the_attempt_is_new_or_was_claimed_before(harness: Harness) -> None:
    """Whoever shows the attempt that is stored already need not be the one who was served by it."""
    grid = await harness.grid()
    record = session().shows(FIRST)
    await grid.sessions.create(record)
    taken = claimed(await claim(grid, record, N2, token_generation=1, attempt=1, now=EXPIRES - 1)).record
    await grid.sessions.disconnect(ownership(taken))
    stored = await grid.sessions.find(record.id)

    ended = await claim(grid, record, N2, token_generation=1, attempt=1, now=EXPIRES)
    assert refused(ended) == ErrorCode.CREDENTIALS_EXPIRED
    mallory = replace(SECOND, principal="mallory")
    another = await claim(grid, record, N2, token_generation=1, attempt=1, now=EXPIRES - 1, identity=mallory)
    assert refused(another) == ErrorCode.UNAUTHENTICATED

    assert await grid.sessions.find(record.id) == stored
    assert claimed(await claim(grid, record, N2, token_generation=1, attempt=1, now=EXPIRES - 1)).record == taken


async def test_credentials_of_another_principal_claim_nothing(harness: Harness) -> None:
    """Refused as UNAUTHENTICATED if the principal is another one."""
    grid = await harness.grid()
    record = session().shows(FIRST)
    await grid.sessions.create(record)
    mallory = replace(SECOND, principal="mallory")

    for now in (EXPIRES - 1, EXPIRES + 1):
        result = await claim(grid, record, N2, token_generation=1, attempt=1, now=now, identity=mallory)
        assert refused(result) == ErrorCode.UNAUTHENTICATED
    assert await grid.sessions.find(record.id) == record


async def test_other_refusals_come_first(harness: Harness) -> None:
    """Whoever shows an old token learns nothing of the credentials."""
    grid = await harness.grid()
    record = session(attempt=3).shows(FIRST)
    await grid.sessions.create(record)

    for generation, attempt, reason in ((0, 4, ErrorCode.TOKEN_SUPERSEDED), (1, 3, ErrorCode.STALE_ATTEMPT)):
        result = await claim(grid, record, N2, token_generation=generation, attempt=attempt, now=EXPIRES + 1)
        assert refused(result) == reason


async def test_a_change_replaces_all_that_credentials_gave_and_nothing_else(harness: Harness) -> None:
    grid = await harness.grid()
    record = session(properties={"colour": "blue"}, selections=("+a/**",)).shows(FIRST)
    await grid.sessions.create(record)

    await grid.sessions.change(ownership(record), SessionChanges(identity=SECOND))

    assert await grid.sessions.find(record.id) == record.shows(SECOND)


async def test_other_changes_leave_it(harness: Harness) -> None:
    grid = await harness.grid()
    record = session().shows(FIRST)
    await grid.sessions.create(record)

    await grid.sessions.change(ownership(record), SessionChanges(properties={"colour": "red"}))
    await grid.sessions.disconnect(ownership(record))

    assert await grid.sessions.find(record.id) == replace(record, properties={"colour": "red"}, connected=False)


async def test_restore_brings_it_back(harness: Harness) -> None:
    grid = await harness.grid()
    lost, older = session().shows(FIRST), session().shows(SECOND)
    await grid.sessions.create(older)
    newer = older.shows(FIRST)

    assert await grid.sessions.restore([lost, newer], recreate=True) == [Restored.WRITTEN, Restored.WRITTEN]

    assert await grid.sessions.find(lost.id) == lost
    assert await grid.sessions.find(older.id) == newer
