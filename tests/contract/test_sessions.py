"""The contract of ``SessionStore``: create, claim, change, disconnect, end, find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.types import Attempt, Epoch, NodeRef, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Fenced, GridUnavailable, SessionChanges, SessionEnd, SessionGone
from tests.contract.examples import claim, claimed, expire_all, new_id, ownership, refused, session
from tests.contract.harness import LONG, Harness, node
from tests.support.clock import eventually

N1, N2, N3 = node("n1"), node("n2"), node("n3")


# --- create and find --------------------------------------------------------------------------------------------------


@pytest.mark.promise("P1")
async def test_what_was_created_is_found_as_it_was_by_every_node(harness: Harness) -> None:
    """Write a new session. / Read a session, for tests and administrators; None if there is none."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = replace(
        session(
            properties={"team": "fx", "naïve key": 'quoted "value" \n 日本', "": "empty name"},
            selections=("+prices/**", "-prices/old", "+a b/*"),
            partitions=frozenset({0, 7, 63}),
            window=12.5,
        ),
        principal="alice: «a b»",
        token_generation=TokenGeneration(7),
        confirmed=TokenGeneration(6),
        attempt=Attempt(5),
        epoch=Epoch(3),
    )
    await n1.sessions.create(record)
    assert await n1.sessions.find(record.id) == record
    assert await n2.sessions.find(record.id) == record
    assert await n2.sessions.find(new_id()) is None


async def test_the_grid_keeps_a_copy(harness: Harness) -> None:
    """A record is a value: changing what was passed, or what was returned, changes nothing in the grid."""
    grid = await harness.grid()
    properties = {"team": "fx"}
    record = session(properties=properties)
    await grid.sessions.create(record)
    properties["team"] = "changed"
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert found.properties == {"team": "fx"}


async def test_create_again_has_no_further_effect(harness: Harness) -> None:
    """Creating the same id again by the same owner and epoch has no further effect."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    await grid.sessions.change(ownership(record), SessionChanges(selections=("+a",)))
    await grid.sessions.create(record)
    assert await grid.sessions.find(record.id) == replace(record, selections=("+a",))


async def test_create_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Each step is idempotent: asking again with the same arguments gives the same result as asking once."""
    grid = await harness.grid()
    record = session()
    await harness.asked_again(grid, lambda: grid.sessions.create(record))
    assert await grid.sessions.find(record.id) == record


@pytest.mark.parametrize("change", [{"owner": N2}, {"owner": node("n1", "second")}, {"epoch": Epoch(2)}])
async def test_create_over_a_session_of_somebody_else_is_fenced(harness: Harness, change: dict[str, object]) -> None:
    """Fenced: a session with this id exists and has another owner or epoch."""
    grid = await harness.grid()
    record = session(properties={"a": "1"})
    await grid.sessions.create(record)
    with pytest.raises(Fenced):
        await grid.sessions.create(replace(record, properties={}, **change))  # type: ignore[arg-type]
    assert await grid.sessions.find(record.id) == record


async def test_a_session_created_without_connection_has_its_window_running(harness: Harness) -> None:
    """connected: False while its window runs."""
    grid = await harness.grid()
    record = session(connected=False, window=harness.short)
    await grid.sessions.create(record)
    assert await grid.sessions.find(record.id) == record
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]


# --- claim ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P1")
async def test_a_claim_takes_a_connected_session_from_a_living_node_at_once(harness: Harness) -> None:
    """Make *by* the owner, at once and whoever owned it (no waiting for failure detection)."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    record = session(properties={"team": "fx"}, selections=("+a",), partitions=frozenset({3}))
    await n1.sessions.create(record)
    result = claimed(await claim(n2, record, N2, token_generation=1, attempt=1))
    assert result.previous == N1
    # Claimed.record: claimant as owner, epoch and generation raised by one, ``confirmed`` set to the presented
    # generation, connected.
    assert result.record == replace(
        record, owner=N2, epoch=Epoch(2), token_generation=TokenGeneration(2), attempt=Attempt(1)
    )
    assert await n1.sessions.find(record.id) == result.record


@pytest.mark.promise("P7")
async def test_a_claim_takes_a_session_off_the_clock(harness: Harness) -> None:
    """Claimed.record: […] connected. / P7: only the end of the window ends a session."""
    grid = await harness.grid()
    record = session(window=harness.roomy)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    result = claimed(await claim(grid, record, N1, token_generation=1, attempt=1))
    assert result.record.connected
    await harness.advance(harness.roomy)
    assert await expire_all(grid) == []
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert found.connected


async def test_the_owner_claims_its_own_session_like_any_other(harness: Harness) -> None:
    """epoch: fencing token; grows by one per claim, also of the same node."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    result = claimed(await claim(grid, record, N1, token_generation=1, attempt=1))
    assert (result.record.epoch, result.record.owner, result.previous) == (2, N1, N1)
    with pytest.raises(Fenced):
        await grid.sessions.disconnect(ownership(record))


@pytest.mark.promise("P8")
async def test_generations_follow_the_presented_tokens(harness: Harness) -> None:
    """``confirmed`` set to the presented generation: a token stays valid until a newer one was shown (P8)."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    # The client never got token 2 and 3 and comes back with token 1 each time.
    for attempt in (1, 2, 3):
        result = claimed(await claim(grid, record, N1, token_generation=1, attempt=attempt))
        assert (result.record.token_generation, result.record.confirmed) == (attempt + 1, 1)
    # It got token 3, which proves that it holds it: 1 and 2 are worth nothing from now on.
    result = claimed(await claim(grid, record, N1, token_generation=3, attempt=4))
    assert (result.record.token_generation, result.record.confirmed) == (5, 3)
    for generation in (1, 2):
        assert (
            refused(await claim(grid, record, N1, token_generation=generation, attempt=5)) == ErrorCode.TOKEN_SUPERSEDED
        )


@pytest.mark.promise("P8")
async def test_a_superseded_token_is_refused_and_nothing_changes(harness: Harness) -> None:
    """Refused as TOKEN_SUPERSEDED if *generation* is below ``confirmed``. / Refused and nothing was changed."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = replace(session(), token_generation=TokenGeneration(3), confirmed=TokenGeneration(3))
    await n1.sessions.create(record)
    assert refused(await claim(n2, record, N2, token_generation=2, attempt=1)) == ErrorCode.TOKEN_SUPERSEDED
    assert await n1.sessions.find(record.id) == record


@pytest.mark.promise("P3")
@pytest.mark.parametrize("attempt", [1, 4, 5])
async def test_a_delayed_claim_cannot_steal_a_session_back(harness: Harness, attempt: int) -> None:
    """Refused as STALE_ATTEMPT if *attempt* is not above the stored one (P3)."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    await n1.sessions.create(record)
    result = claimed(await claim(n2, record, N2, token_generation=1, attempt=5))
    assert refused(await claim(n1, record, N1, token_generation=1, attempt=attempt)) == ErrorCode.STALE_ATTEMPT
    assert await n1.sessions.find(record.id) == result.record
    await n2.sessions.change(ownership(result.record), SessionChanges(selections=("+still/mine",)))


@pytest.mark.promise("P3")
async def test_another_incarnation_of_the_owner_is_another_owner(harness: Harness) -> None:
    """…unless it equals it and the owner is *by* already. (NodeRef: one run of one node)."""
    grid = await harness.grid("n2")
    record = session()
    await grid.sessions.create(record)
    claimed(await claim(grid, record, N2, token_generation=1, attempt=1))
    again = await claim(grid, record, node("n2", "second"), token_generation=1, attempt=1)
    assert refused(again) == ErrorCode.STALE_ATTEMPT


async def test_a_claim_asked_again_answers_as_it_did(harness: Harness) -> None:
    """…(the same claim asked again, which answers as it did then)."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(properties={"team": "fx"})
    await n1.sessions.create(record)
    first = await claim(n2, record, N2, token_generation=1, attempt=1)
    assert await claim(n2, record, N2, token_generation=1, attempt=1) == first
    assert await claim(n2, record, N2, token_generation=1, attempt=1) == first
    assert claimed(first).previous == N1


async def test_a_claim_tells_the_owner_before_the_former_one(harness: Harness) -> None:
    """before: who owned it before that one; the same if there was nobody else."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    first = claimed(await claim(grid, record, N2, token_generation=1, attempt=1))
    assert (first.previous, first.before) == (N1, N1)
    second = claimed(await claim(grid, record, N3, token_generation=1, attempt=2))
    assert (second.previous, second.before) == (N2, N1)
    assert await claim(grid, record, N3, token_generation=1, attempt=2) == second
    third = claimed(await claim(grid, record, N1, token_generation=1, attempt=3))
    assert (third.previous, third.before) == (N3, N2)


async def test_a_claim_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Each step is idempotent: asking again with the same arguments gives the same result as asking once."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    await n1.sessions.create(record)
    result = claimed(await harness.asked_again(n2, lambda: claim(n2, record, N2, token_generation=1, attempt=1)))
    assert (result.record.epoch, result.record.token_generation, result.previous) == (2, 2, N1)
    assert await n1.sessions.find(record.id) == result.record


async def test_a_claim_asked_again_takes_the_session_off_the_clock_again(harness: Harness) -> None:
    """A claimant that was told of success owns a connected session, also if a survivor orphaned it in between."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    await n1.sessions.create(record)
    first = claimed(await claim(n2, record, N2, token_generation=1, attempt=1))
    await n1.sessions.disconnect(ownership(first.record))
    assert await claim(n2, record, N2, token_generation=1, attempt=1) == first
    found = await n1.sessions.find(record.id)
    assert found is not None
    assert found.connected


async def test_a_claim_within_the_window_succeeds(harness: Harness) -> None:
    """window: seconds it survives without a connection."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(window=LONG)
    await n1.sessions.create(record)
    await n1.sessions.disconnect(ownership(record))
    await harness.advance(harness.short)
    assert await expire_all(n2) == []
    claimed(await claim(n2, record, N2, token_generation=1, attempt=1))


async def test_a_claim_after_the_window_is_refused_though_nobody_reaped(harness: Harness) -> None:
    """…as SESSION_EXPIRED if the window ended, though the reaper was not there yet."""
    grid = await harness.grid()
    record = session(window=harness.short)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(harness.short)
    assert refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_EXPIRED
    assert [each.session for each in await expire_all(grid)] == [record.id]


async def test_a_claim_of_a_session_nobody_knows_is_refused(harness: Harness) -> None:
    """ClaimRefused: SESSION_UNKNOWN."""
    grid = await harness.grid()
    assert refused(await claim(grid, session(), N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_UNKNOWN


async def test_a_token_from_before_a_rollback_is_accepted(harness: Harness) -> None:
    """A generation above the stored one is proof that the grid was rolled back; counting goes on from it."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    result = claimed(await claim(grid, record, N1, token_generation=9, attempt=4))
    assert (result.record.token_generation, result.record.confirmed) == (10, 9)


# --- change -----------------------------------------------------------------------------------------------------------


async def test_change_changes_what_is_named_and_leaves_the_rest(harness: Harness) -> None:
    """What to change; None leaves a part as it is."""
    grid = await harness.grid()
    record = replace(
        session(properties={"a": "1"}, selections=("+a",), partitions=frozenset({1})),
        token_generation=TokenGeneration(5),
    )
    await grid.sessions.create(record)

    async def after(changes: SessionChanges) -> object:
        await grid.sessions.change(ownership(record), changes)
        return await grid.sessions.find(record.id)

    expected = replace(record, properties={"b": "2"})
    assert await after(SessionChanges(properties={"b": "2"})) == expected
    expected = replace(expected, selections=("-x/**", "+a"))
    assert await after(SessionChanges(selections=("-x/**", "+a"))) == expected
    expected = replace(expected, publish_partitions=frozenset({0, 63}))
    assert await after(SessionChanges(publish_partitions=frozenset({0, 63}))) == expected
    expected = replace(expected, confirmed=TokenGeneration(3))
    assert await after(SessionChanges(confirmed=TokenGeneration(3))) == expected
    assert await after(SessionChanges()) == expected
    expected = replace(expected, properties={}, selections=(), publish_partitions=frozenset())
    changes = SessionChanges(properties={}, selections=(), publish_partitions=frozenset())
    assert await after(changes) == expected


@pytest.mark.promise("P8")
async def test_confirmed_never_falls(harness: Harness) -> None:
    """confirmed: the new oldest accepted token generation; never lowers the stored one."""
    grid = await harness.grid()
    record = replace(session(), token_generation=TokenGeneration(12), confirmed=TokenGeneration(9))
    await grid.sessions.create(record)
    for confirmed, expected in ((10, 10), (9, 10), (2, 10)):
        await grid.sessions.change(ownership(record), SessionChanges(confirmed=TokenGeneration(confirmed)))
        found = await grid.sessions.find(record.id)
        assert found is not None
        assert found.confirmed == expected


async def test_a_disconnected_session_can_be_changed_and_stays_on_the_clock(harness: Harness) -> None:
    """Change parts of a session. (What its client asked for before the cut may still be under way)."""
    grid = await harness.grid()
    record = session(window=harness.short)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await grid.sessions.change(ownership(record), SessionChanges(properties={"a": "1"}))
    assert await grid.sessions.find(record.id) == replace(record, connected=False, properties={"a": "1"})
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]


async def test_change_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Each step is idempotent."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    changes = SessionChanges(selections=("+a", "+b"))
    await harness.asked_again(grid, lambda: grid.sessions.change(ownership(record), changes))
    assert await grid.sessions.find(record.id) == replace(record, selections=("+a", "+b"))


# --- who may write ----------------------------------------------------------------------------------------------------

WRITES = ("change", "disconnect", "end")


async def write(harness: Harness, name: str, owner: str, by: object) -> None:
    """Perform one of the writes that need a right."""
    grid = await harness.grid(owner)
    if name == "change":
        await grid.sessions.change(by, SessionChanges(properties={"stolen": "yes"}))  # type: ignore[arg-type]
    elif name == "disconnect":
        await grid.sessions.disconnect(by)  # type: ignore[arg-type]
    else:
        await grid.sessions.end(by, reason=ErrorCode.SESSION_CLOSED)  # type: ignore[arg-type]


@pytest.mark.promise("P3")
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    ("owner", "epoch"),
    [(N1, 1), (N1, 2), (N3, 2), (node("n2", "second"), 2), (N2, 1), (N2, 3)],
    ids=["former owner", "former owner, epoch guessed", "stranger", "other run", "older epoch", "epoch to come"],
)
async def test_only_the_owner_of_the_current_epoch_writes(
    harness: Harness, name: str, owner: object, epoch: int
) -> None:
    """Fenced: the stored owner or epoch differs from *ownership*; all other errors: nothing was changed (P3)."""
    n1 = await harness.grid("n1")
    record = session()
    await n1.sessions.create(record)
    now = claimed(await claim(await harness.grid("n2"), record, N2, token_generation=1, attempt=1)).record
    with pytest.raises(Fenced):
        await write(harness, name, "n3", ownership(record, owner=owner, epoch=epoch))  # type: ignore[arg-type]
    assert await n1.sessions.find(record.id) == now


@pytest.mark.parametrize("name", ["change", "disconnect"])
@pytest.mark.parametrize("reason", [ErrorCode.SESSION_CLOSED, ErrorCode.SESSION_EXPIRED, ErrorCode.SESSION_UNKNOWN])
async def test_a_session_that_is_gone_says_why(harness: Harness, name: str, reason: ErrorCode) -> None:
    """SessionGone: SESSION_UNKNOWN, SESSION_CLOSED or SESSION_EXPIRED, as far as the grid still knows."""
    grid = await harness.grid()
    record = session()
    if reason is not ErrorCode.SESSION_UNKNOWN:
        await grid.sessions.create(record)
        await grid.sessions.end(ownership(record), reason=reason)
    with pytest.raises(SessionGone) as gone:
        await write(harness, name, "n1", ownership(record))
    assert gone.value.reason == reason


# --- disconnect -------------------------------------------------------------------------------------------------------


async def test_disconnect_starts_the_window(harness: Harness) -> None:
    """Start the window: not connected, deadline = now by the grid's clock + window."""
    grid = await harness.grid()
    record = session(window=harness.short)
    await grid.sessions.create(record)
    await harness.advance(harness.short)
    assert await expire_all(grid) == [], "a connected session has no deadline"
    await grid.sessions.disconnect(ownership(record))
    assert await grid.sessions.find(record.id) == replace(record, connected=False)
    await harness.advance(harness.short)
    assert [(each.session, each.owner) for each in await expire_all(grid)] == [(record.id, N1)]


async def test_disconnect_asked_again_does_not_lengthen_the_window(harness: Harness) -> None:
    """Asking again with the same arguments gives the same result as asking once."""
    grid = await harness.grid()
    record = session(window=harness.short)
    await grid.sessions.create(record)
    await harness.asked_again(grid, lambda: grid.sessions.disconnect(ownership(record)))
    await harness.advance(0.6 * harness.short)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(0.5 * harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]


# --- pass_on ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P12")
async def test_a_session_without_a_client_is_passed_on_and_its_window_runs_on(harness: Harness) -> None:
    """Make another node the owner […], while its window runs on. The epoch rises by one; […]."""
    grid = await harness.grid()
    record = session(window=harness.short, selections=("+a",), attempt=3)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(0.6 * harness.short)
    await grid.sessions.pass_on(ownership(record), to=N2)
    passed = replace(record, owner=N2, epoch=Epoch(2), connected=False)
    assert await grid.sessions.find(record.id) == passed
    with pytest.raises(Fenced):
        await grid.sessions.change(ownership(record), SessionChanges(properties={"a": "1"}))
    await grid.sessions.change(ownership(passed), SessionChanges(properties={"a": "1"}))
    await harness.advance(0.5 * harness.short)
    assert [(each.session, each.owner) for each in await expire_all(grid)] == [(record.id, N2)]


async def test_pass_on_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Asking the same again has no further effect."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.asked_again(grid, lambda: grid.sessions.pass_on(ownership(record), to=N2))
    await grid.sessions.pass_on(ownership(record), to=N2)
    assert await grid.sessions.find(record.id) == replace(record, owner=N2, epoch=Epoch(2), connected=False)


@pytest.mark.promise("P12")
async def test_who_claims_a_session_that_was_passed_on_is_told_of_both_owners(harness: Harness) -> None:
    """Tokens and attempts stay as they are."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await grid.sessions.pass_on(ownership(record), to=N2)
    result = claimed(await claim(grid, record, N3, token_generation=1, attempt=1))
    assert (result.record.epoch, result.record.token_generation) == (3, 2)
    assert (result.previous, result.before) == (N2, N1)
    with pytest.raises(Fenced):
        await grid.sessions.pass_on(ownership(record), to=N2)


@pytest.mark.promise("P3")
@pytest.mark.parametrize(("owner", "epoch"), [(N1, 2), (N3, 1), (node("n1", "second"), 1)])
async def test_only_its_owner_can_pass_a_session_on(harness: Harness, owner: NodeRef, epoch: int) -> None:
    """Fenced: the stored owner or epoch differs from *ownership*."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    with pytest.raises(Fenced):
        await grid.sessions.pass_on(ownership(record, owner=owner, epoch=epoch), to=N2)
    assert await grid.sessions.find(record.id) == replace(record, connected=False)


async def test_a_session_with_a_client_is_not_passed_on(harness: Harness) -> None:
    """Fenced: […] or it has a client."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    with pytest.raises(Fenced):
        await grid.sessions.pass_on(ownership(record), to=N2)
    assert await grid.sessions.find(record.id) == record


async def test_a_session_that_has_ended_is_not_passed_on(harness: Harness) -> None:
    """SessionGone: there is no such session."""
    grid = await harness.grid()
    record = session(window=harness.short)
    with pytest.raises(SessionGone):
        await grid.sessions.pass_on(ownership(record), to=N2)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(harness.short)
    with pytest.raises(SessionGone) as gone:
        await grid.sessions.pass_on(ownership(record), to=N2)
    assert gone.value.reason is ErrorCode.SESSION_EXPIRED


# --- end --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [ErrorCode.SESSION_CLOSED, ErrorCode.SESSION_EXPIRED])
async def test_after_the_end_claims_are_refused_with_its_reason(harness: Harness, reason: ErrorCode) -> None:
    """reason: SESSION_CLOSED or SESSION_EXPIRED; later claims are refused with it for one window."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    await n1.sessions.create(record)
    await n1.sessions.end(ownership(record), reason=reason)
    assert await n1.sessions.find(record.id) is None
    for _ in range(2):
        assert refused(await claim(n2, record, N2, token_generation=1, attempt=1)) == reason


@pytest.mark.promise("P7")
async def test_the_reason_is_forgotten_after_a_window(harness: Harness) -> None:
    """…later claims are refused with it for one window. (P7: when it ends, nothing of it is left)."""
    grid = await harness.grid()
    record = session(window=harness.short)
    await grid.sessions.create(record)
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    await harness.advance(harness.short)

    async def forgotten() -> bool:
        return refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_UNKNOWN

    await eventually(forgotten)


@pytest.mark.parametrize("connected", [True, False])
async def test_end_asked_again_is_no_error(harness: Harness, *, connected: bool) -> None:
    """A session that is gone already is no error."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    if not connected:
        await grid.sessions.disconnect(ownership(record))
    await harness.asked_again(grid, lambda: grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED))
    assert await grid.sessions.find(record.id) is None
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    await grid.sessions.end(ownership(session()), reason=ErrorCode.SESSION_CLOSED)
    assert refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_CLOSED


async def test_many_sessions_end_together_each_by_its_own_right(harness: Harness) -> None:
    """For each whether it has ended; False where ``end`` would raise Fenced."""
    grid = await harness.grid()
    records = [session(partitions=frozenset({1, each % 3})) for each in range(12)]
    moved, gone, *_ = records
    for record in records[:-1]:  # the last one was never there
        await grid.sessions.create(record)
    now = claimed(await claim(await harness.grid("n2"), moved, N2, token_generation=1, attempt=1)).record
    await grid.sessions.end(ownership(gone), reason=ErrorCode.SESSION_EXPIRED)
    ends = [
        SessionEnd(ownership(record), ErrorCode.REVOKED if each % 2 else ErrorCode.SESSION_CLOSED)
        for each, record in enumerate(records)
    ]

    for _ in range(2):
        assert await grid.sessions.end_all(ends) == [record is not moved for record in records]

    assert await grid.sessions.find(moved.id) == now
    for record, (_, reason, _) in list(zip(records, ends, strict=True))[2:-1]:
        assert await grid.sessions.find(record.id) is None
        assert refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == reason
    assert refused(await claim(grid, gone, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_EXPIRED
    assert await grid.sessions.end_all([]) == []


async def test_a_session_is_gone_for_everyone_once_its_end_began(harness: Harness) -> None:
    """End a session and delete everything that belongs to it: no step between leaves it half alive."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(partitions=frozenset({1, 2, 3}))
    await n1.sessions.create(record)
    await harness.lose_next_answer(n1)
    with pytest.raises(GridUnavailable):
        await n1.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    assert refused(await claim(n2, record, N2, token_generation=1, attempt=1)) == ErrorCode.SESSION_CLOSED
    assert await n2.sessions.find(record.id) is None
    with pytest.raises(SessionGone):
        await n2.sessions.change(ownership(record), SessionChanges(selections=()))
