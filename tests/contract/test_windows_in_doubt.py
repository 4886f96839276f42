"""The contract of what nodes have saved: whose windows may not be over, and begin anew with a takeover (P7)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.core.types import SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import ALL_SAVED, Grid, GridUnavailable, SavedUntil, SessionRecord
from tests.contract.examples import claim, claimed, ids_in_one_partition, ownership, session
from tests.contract.harness import LONG, Harness, node

pytestmark = pytest.mark.promise("P7")

N1, N2, N3 = node("n1"), node("n2"), node("n3")


async def two_nodes(harness: Harness, *, lease: float = LONG) -> tuple[Grid, Grid]:
    """Have ``n1``, which has saved all, for so many seconds, and ``n2``, which survives it."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.join(N1, lease=lease, saved_ago=0.0)
    return n1, n2


async def saved(grid: Grid) -> SavedUntil:
    """Ask as ``n2`` what nodes have saved."""
    return (await grid.nodes.renew(N2, lease=LONG)).saved


async def left(grid: Grid, *ids: SessionId, window: float) -> None:
    """Write sessions of ``n1`` whose windows run."""
    for each in ids:
        await grid.sessions.create(session(session_id=each, window=window, connected=False))


async def ended(grid: Grid, known: SavedUntil, *, patience: float = LONG, limit: int = 100) -> list[SessionId]:
    """End what is due in the partition of ``ids_in_one_partition``."""
    return [each.session for each in await grid.sessions.expire(0, limit=limit, saved=known, patience=patience)]


# --- what is told -----------------------------------------------------------------------------------------------------


async def test_everybody_who_renews_hears_what_nodes_have_saved(harness: Harness) -> None:
    """saved_ago: seconds since the moment up to which all that happened to the node's sessions is in the grid."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n2.nodes.join(N2, lease=LONG)
    assert (await saved(n2)).nodes == {}, "a node that never tells is believed to have saved everything"
    await n1.nodes.join(N1, lease=LONG, saved_ago=harness.roomy)
    first = (await saved(n2)).nodes[N1]
    await n1.nodes.renew(N1, lease=LONG)
    assert (await saved(n2)).nodes == {N1: first}
    await n1.nodes.renew(N1, lease=LONG, saved_ago=2 * harness.roomy)
    assert (await saved(n2)).nodes == {N1: first}, "it never goes back"
    await n1.nodes.renew(N1, lease=LONG, saved_ago=0.0)
    second = (await saved(n2)).nodes[N1]
    assert second - first >= harness.roomy - 0.1
    await n1.nodes.join(N1, lease=LONG)
    assert (await saved(n2)).nodes == {N1: second}


async def test_nothing_is_known_of_who_has_left_or_was_taken_over(harness: Harness) -> None:
    n1, n2 = await two_nodes(harness)
    await n1.nodes.join(N3, lease=harness.short, saved_ago=0.0)
    await n1.nodes.leave(N1)
    assert (await saved(n2)).nodes.keys() == {N3}
    await harness.advance(harness.short)
    assert (await saved(n2)).nodes.keys() == {N3}
    assert await n2.nodes.take_over(N3, by=N2, within=LONG)
    await n2.nodes.finish_takeover(N3, by=N2)
    assert (await saved(n2)).nodes == {}


async def test_a_word_that_arrives_late_is_of_when_it_was_said(harness: Harness) -> None:
    """It counts from now, however late the grid gets to it."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG, saved_ago=0.0)
    await n2.nodes.join(N2, lease=LONG)
    first = (await saved(n2)).nodes[N1]
    await harness.stall()
    waiting = asyncio.ensure_future(n1.nodes.renew(N1, lease=LONG, saved_ago=0.0))
    await asyncio.sleep(0)
    await harness.advance(harness.short)
    await harness.flow()
    await asyncio.gather(waiting, return_exceptions=True)
    await harness.up(n2)
    await harness.up(n1)
    assert (await saved(n2)).nodes[N1] - first < harness.short


# --- expire -----------------------------------------------------------------------------------------------------------


async def test_a_window_is_not_over_before_its_owner_has_confirmed_it(harness: Harness) -> None:
    """saved: sessions are spared whose window may have begun anew since then."""
    n1, n2 = await two_nodes(harness)
    (one,) = ids_in_one_partition(1)
    await left(n1, one, window=harness.short)
    before = await saved(n2)
    await harness.advance(harness.short)
    assert await ended(n2, before) == []
    assert await ended(n2, await saved(n2)) == []
    await n1.nodes.renew(N1, lease=LONG, saved_ago=0.0)
    assert await ended(n2, before) == [], "an old word spares more"
    assert await ended(n2, await saved(n2)) == [one]


async def test_nobody_is_waited_for_for_ever(harness: Harness) -> None:
    """patience: seconds for which they are, from the end of the window or of the last outage."""
    n1, n2 = await two_nodes(harness)
    (one,) = ids_in_one_partition(1)
    await left(n1, one, window=harness.short)
    known = (await saved(n2))._replace(outage_over=float("-inf"))
    await harness.advance(2 * harness.short)
    assert await ended(n2, known) == []
    after_an_outage = known._replace(outage_over=known.nodes[N1] + 2 * harness.short)
    assert await ended(n2, after_an_outage, patience=harness.short / 2) == []
    assert await ended(n2, known, patience=harness.short / 2) == [one]


async def test_sessions_of_nodes_without_a_lease_end_as_ever(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n2.nodes.join(N2, lease=LONG, saved_ago=0.0)
    (one,) = ids_in_one_partition(1)
    await left(n1, one, window=harness.short)
    await harness.advance(harness.short)
    assert await ended(n2, await saved(n2)) == [one]


async def test_who_is_spared_keeps_nobody_from_ending(harness: Harness) -> None:
    n1, n2 = await two_nodes(harness)
    *spared, other = ids_in_one_partition(6)
    await left(n1, *spared, window=harness.short)
    await harness.advance(harness.short)
    await n1.sessions.create(session(session_id=other, owner=N3, window=harness.short, connected=False))
    await harness.advance(harness.short)
    assert await ended(n2, await saved(n2), limit=2) == [other]
    for each in spared:
        assert await n2.sessions.find(each) is not None


# --- takeover ---------------------------------------------------------------------------------------------------------


async def cut_off(harness: Harness, grid: Grid) -> None:
    """Have a node lose the grid, and reach it again."""
    await harness.advance(harness.short)
    await harness.cut(grid)
    with pytest.raises(GridUnavailable):
        await grid.nodes.takeovers()
    await harness.mend(grid)
    await harness.up(grid)


async def lost(harness: Harness, survivor: Grid) -> bool:
    """Have the lease of ``n1`` end, and tell whether it may not have saved everything."""
    await harness.advance(harness.roomy)
    lease = await survivor.nodes.take_over(N1, by=N2, within=LONG)
    assert lease is not None
    return lease.unsaved


async def test_a_node_that_dies_while_the_grid_is_there_has_saved_everything(harness: Harness) -> None:
    _, n2 = await two_nodes(harness, lease=harness.roomy)
    assert await lost(harness, n2) is False


async def test_a_node_that_has_not_told_since_an_outage_may_not_have(harness: Harness) -> None:
    """unsaved: the grid was unreachable after the node had last told that all is saved."""
    _, n2 = await two_nodes(harness, lease=harness.roomy)
    await cut_off(harness, n2)
    assert await lost(harness, n2) is True


async def test_a_node_that_has_told_since_an_outage_has(harness: Harness) -> None:
    n1, n2 = await two_nodes(harness, lease=harness.roomy)
    await cut_off(harness, n2)
    # What a node tells is rather too early, by the time of an answer of the grid.
    await harness.advance(harness.short)
    await n1.nodes.renew(N1, lease=harness.roomy, saved_ago=0.0)
    assert await lost(harness, n2) is False


async def test_an_outage_is_over_also_if_nobody_who_lives_has_lost_the_grid(harness: Harness) -> None:
    """It stood still just so long that another node gave it up, which had asked before."""
    _, n2 = await two_nodes(harness, lease=harness.roomy)
    await harness.stall()
    waiting = asyncio.ensure_future(n2.nodes.takeovers())
    await asyncio.sleep(0)
    await harness.advance(harness.roomy / 2)
    await harness.flow()
    await waiting
    await n2.nodes.renew(N2, lease=LONG)
    assert await lost(harness, n2) is True


async def test_nobody_knows_what_a_node_has_saved_whose_lease_the_grid_has_lost(harness: Harness) -> None:
    n2 = await harness.grid("n2")
    await n2.nodes.join(N2, lease=LONG)
    await n2.nodes.grant([N1], lease=harness.roomy)
    await cut_off(harness, n2)
    assert await lost(harness, n2) is True


# --- prolong ----------------------------------------------------------------------------------------------------------


async def prolong(grid: Grid, *, limit: int = 100) -> int:
    """Begin windows of sessions of ``n1`` anew; returns how many."""
    longer, after = await grid.sessions.prolong(N1, 0, after=None, limit=limit)
    while after is not None:
        more, after = await grid.sessions.prolong(N1, 0, after=after, limit=limit)
        longer += more
    return longer


async def taken_over(harness: Harness, *grids: Grid) -> None:
    """Have the lease of ``n1`` end, and ``n2`` take over."""
    n1, n2 = grids
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.join(N1, lease=harness.short)
    await harness.advance(harness.short)
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)


async def test_windows_of_a_lost_node_begin_anew(harness: Harness) -> None:
    """Begin the windows of disconnected sessions of an expired node anew; no window becomes shorter."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    ids = ids_in_one_partition(5)
    await left(n1, *ids[:3], window=harness.roomy)
    away, connected = session(session_id=ids[3], owner=N3, connected=False), session(session_id=ids[4], connected=True)
    for record in (replace(away, window=harness.roomy), replace(connected, window=harness.roomy)):
        await n1.sessions.create(record)
    await harness.advance(harness.roomy / 2)
    await taken_over(harness, n1, n2)
    assert await prolong(n2, limit=2) == 3
    await harness.advance(harness.roomy / 2)
    assert await ended(n2, ALL_SAVED) == [away.id]
    found = await n2.sessions.find(connected.id)
    assert found is not None
    assert found.connected
    await harness.advance(harness.roomy / 2 + harness.short)
    assert sorted(await ended(n2, ALL_SAVED)) == sorted(ids[:3])


async def test_a_window_that_is_over_begins_anew_if_nobody_has_ended_it(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    (one,) = ids_in_one_partition(1)
    record: SessionRecord = session(session_id=one, window=harness.short, connected=False)
    await n1.sessions.create(record)
    await taken_over(harness, n1, n2)
    assert await prolong(n2) == 1
    claimed(await claim(n2, record, N2, token_generation=1, attempt=1))


async def test_what_is_not_the_lost_node_s_any_more_is_left_alone(harness: Harness) -> None:
    """Only sessions that the expired node still owns are touched, and none if it has come back."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    claimed_since, closed, kept = (
        session(session_id=each, window=LONG, connected=False) for each in ids_in_one_partition(3)
    )
    for record in (claimed_since, closed, kept):
        await n1.sessions.create(record)
    await taken_over(harness, n1, n2)
    taken = claimed(await claim(n2, claimed_since, N2, token_generation=1, attempt=1)).record
    await n2.sessions.disconnect(ownership(taken))
    await n2.sessions.end(ownership(closed), reason=ErrorCode.SESSION_CLOSED)
    assert await prolong(n2) == 1
    await n1.nodes.join(N1, lease=LONG)
    await n1.sessions.restore([kept], recreate=False)
    assert await prolong(n2) == 0


async def test_prolong_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Asked again, it may make them longer by what has passed since."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    (one,) = ids_in_one_partition(1)
    await left(n1, one, window=harness.roomy)
    await harness.advance(harness.roomy / 2)
    await taken_over(harness, n1, n2)
    await harness.asked_again(n2, lambda: n2.sessions.prolong(N1, 0, after=None, limit=10))
    await harness.advance(harness.roomy / 2)
    assert await ended(n2, ALL_SAVED) == []
