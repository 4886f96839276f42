"""A grid that loses all data under open connections: what it misses is lost, and not ended (P7, P10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from gateway.core.types import FIRST_GENERATION, Attempt, GridGeneration, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Grid,
    GridChange,
    GridState,
    GridUnavailable,
    Restored,
    SessionChanges,
    SessionEnd,
    SessionRecord,
)
from tests.contract.examples import claim, ownership, session
from tests.contract.harness import LONG, Harness, node
from tests.support.clock import eventually

pytestmark = pytest.mark.promise("P7", "P10")

N1: Final = node("n1")
N2: Final = node("n2")

SECOND: Final = GridGeneration(FIRST_GENERATION + 1)

STEPS: Final[dict[str, Callable[[Grid, SessionRecord], Awaitable[Any]]]] = {
    "create": lambda grid, _: grid.sessions.create(session()),
    "claim": lambda grid, record: claim(grid, record, N1, token_generation=1, attempt=1),
    "look": lambda grid, record: grid.sessions.why_not_claimable(
        record.id, by=N1, token_generation=TokenGeneration(1), attempt=Attempt(1)
    ),
    "change": lambda grid, record: grid.sessions.change(ownership(record), SessionChanges(properties={})),
    "confirm": lambda grid, record: grid.sessions.confirm([(ownership(record), TokenGeneration(1))]),
    "disconnect": lambda grid, record: grid.sessions.disconnect(ownership(record)),
    "end": lambda grid, record: grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED),
    "end all": lambda grid, record: grid.sessions.end_all([SessionEnd(ownership(record), ErrorCode.SESSION_CLOSED)]),
    "restore": lambda grid, record: grid.sessions.restore([record], recreate=False),
    "restore anew": lambda grid, record: grid.sessions.restore([record], recreate=True),
    "verify": lambda grid, _: grid.verify(),
    "join": lambda grid, _: grid.nodes.join(N1, lease=LONG),
    "renew": lambda grid, _: grid.nodes.renew(N1, lease=LONG),
}
"""Whatever would take what is not there for ended or expired, or write into a grid that nobody has adopted."""


@pytest.mark.parametrize("step", STEPS)
async def test_an_emptied_grid_is_adopted_before_it_answers(fragile: Harness, step: str) -> None:
    """GridUnavailable: […] the grid has changed and is not yet adopted. / P7: nothing else ends a session."""
    grid = await fragile.grid()
    await grid.nodes.join(N1, lease=LONG)
    record = session()
    await grid.sessions.create(record)
    changes = grid.changes()
    await fragile.flush()
    with pytest.raises(GridUnavailable):
        await STEPS[step](grid, record)
    assert await anext(changes) == GridChange(GridState.UNREACHABLE, FIRST_GENERATION)
    assert await anext(changes) == GridChange(GridState.UP, SECOND, lost_writes=True)
    await grid.nodes.join(N1, lease=LONG)
    assert await grid.sessions.restore([record], recreate=True) == [Restored.WRITTEN]
    assert await grid.sessions.find(record.id) == record
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    assert await grid.sessions.restore([record], recreate=True) == [Restored.GONE], "what has ended stays so"


async def test_two_grids_of_one_number_are_told_apart(fragile: Harness) -> None:
    """No two states of the grid share a number: each node saw another one of two losses."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    mine, theirs = session(), session(owner=N2)
    await fragile.flush()
    with pytest.raises(GridUnavailable):
        await n1.sessions.create(mine)
    await fragile.up(n1)
    await eventually(lambda: n1.generation == SECOND, message="n1 has seen the first loss")
    await n1.sessions.create(mine)
    await fragile.flush()
    with pytest.raises(GridUnavailable):
        await n2.sessions.create(theirs)
    await fragile.up(n2)
    # Both may know their grid by the same number. A session of the one is not taken for ended in that of the other.
    if n1.generation == SECOND:  # on Redis nobody tells it
        with pytest.raises(GridUnavailable):
            await n1.sessions.change(ownership(mine), SessionChanges(properties={}))
    await fragile.up(n1)
    assert n1.generation > SECOND
    assert await n1.sessions.restore([mine], recreate=True) == [Restored.WRITTEN]
