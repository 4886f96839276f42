"""Sessions in Redis, beyond the contract: what is left behind, crashes between steps, and the node's gate."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.adapters.redis import scripts, session_ends, sessions
from gateway.core.topics.topics import SESSION_PARTITIONS, session_partition
from gateway.core.types import Attempt, Epoch, RequestNumber, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Claimed,
    ClaimRefused,
    Ended,
    Fenced,
    GridUnavailable,
    Identity,
    LeaseLost,
    Ownership,
    PublishCommand,
    Published,
    Restored,
    SelectionChanges,
    SessionChanges,
    SessionRecord,
)
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    TOPIC,
    Bench,
    Publisher,
    keep_trying,
    ownership_of,
    session_record,
)
from tests.support.clock import VirtualClock, eventually
from tests.support.times import scaled


async def expire_everywhere(grid: sessions.RedisSessions) -> list[Ended]:
    answers = await asyncio.gather(*(grid.expire(each, limit=1000) for each in range(SESSION_PARTITIONS)))
    return [ended for answer in answers for ended in answer]


@pytest.mark.promise("P7")
async def test_nothing_is_left_of_sessions_that_ended(bench: Bench) -> None:
    """P7: closed or expired, after claims, publishes and disconnects: the keys are those of no session."""
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    closed: list[SessionRecord] = []
    expired: list[SessionRecord] = []
    for number in range(60):
        record = session_record(window=0.05, publish_partitions=frozenset({PARTITION}))
        await n1.sessions.create(record)
        command = PublishCommand(ownership_of(record), RequestNumber(1), RequestNumber(0), TOPIC, b"1")
        assert isinstance((await n1.topics.publish([command]))[0], Published)
        if number % 3 == 0:
            claimed = await n2.sessions.claim(record.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
            assert isinstance(claimed, Claimed)
            record = claimed.record
        (closed if number % 2 else expired).append(record)
    assert len(await bench.session_keys()) > 60
    for record in closed:
        await n1.sessions.end(ownership_of(record), reason=ErrorCode.SESSION_CLOSED)
    for record in expired:
        await n1.sessions.disconnect(ownership_of(record))
    ended: list[Ended] = []

    async def all_expired() -> bool:
        both = await asyncio.gather(expire_everywhere(n1.sessions), expire_everywhere(n2.sessions))
        ended.extend(both[0] + both[1])
        return len(ended) >= len(expired)

    await eventually(all_expired)
    assert sorted(each.session for each in ended) == sorted(each.id for each in expired), "each in one answer"
    assert await bench.session_keys() == set()
    # The records of ended sessions go away by themselves.
    left = [key for key in await bench.keys() if key.rsplit(":", 1)[-1] in {"ended", "closed"}]
    assert left
    longest = {
        "ended": session_ends._SHORTEST_MEMORY_MS,
        "closed": session_ends._LATE_PUBLISH_MS + session_ends._CLOCK_SET_MS,
    }
    for key in left:
        assert 0 < await bench.server.call("PTTL", f"{bench.prefix}:{key}") <= longest[key.rsplit(":", 1)[-1]]


async def test_a_session_that_an_older_node_wrote_is_read_claimed_and_refreshed(bench: Bench) -> None:
    """During a rolling deploy: records of before roles and expiry do not have the fields."""
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    record = session_record()
    await n1.sessions.create(record)
    key = n1.sessions._keys.session(record.id)
    fields = ("roles", "principal_properties", "credential_expires", "credential")
    assert await bench.server.call("HDEL", key, *fields) == len(fields)

    assert await n2.sessions.find(record.id) == record
    claimed = await n2.sessions.claim(
        record.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1), now=1_795_249_200.0
    )
    assert isinstance(claimed, Claimed)
    assert claimed.record.roles == frozenset()
    assert claimed.record.credential_expires is None
    fresh = Identity(principal=record.principal, roles=frozenset({"trader"}), expires=1_795_249_260.0)
    await n2.sessions.change(ownership_of(claimed.record), SessionChanges(identity=fresh))
    assert await n1.sessions.find(record.id) == claimed.record.shows(fresh)


async def test_an_end_that_was_interrupted_is_finished_by_a_reaper(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ends, "ENDING_GRACE_MS", 50)
    grid = await bench.grid()
    record = session_record(publish_partitions=frozenset({PARTITION, (PARTITION + 1) % 64}))
    await grid.sessions.create(record)
    await grid.topics.publish([PublishCommand(ownership_of(record), RequestNumber(1), RequestNumber(0), TOPIC, b"1")])
    partition = session_partition(record.id)
    # The node dies after the first of the three steps.
    await grid._connection.batcher.call(
        scripts.SESSION_END(
            *(*grid.sessions._all_keys(record.id)[:3], grid.sessions._opened(record.id), *grid.sessions._timed()),
            *(record.id, str(N1), 1, ErrorCode.SESSION_CLOSED.value, 50),
        )
    )
    refused = await grid.sessions.claim(record.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert refused == ClaimRefused(ErrorCode.SESSION_CLOSED)
    assert await grid.sessions.find(record.id) is None
    assert await grid.sessions.restore([record], recreate=True) == [Restored.GONE]
    with pytest.raises(Exception, match="session_closed"):
        await grid.sessions.change(ownership_of(record), SessionChanges(selections=()))

    async def nothing_left() -> bool:
        # It was closed, not expired, so no answer names it.
        assert await grid.sessions.expire(partition, limit=10) == []
        return not await bench.session_keys()

    await eventually(nothing_left)
    refused = await grid.sessions.claim(record.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert refused == ClaimRefused(ErrorCode.SESSION_CLOSED)


@pytest.mark.promise("P3", "P7")
async def test_a_publish_that_arrives_after_the_end_is_fenced_and_leaves_nothing(bench: Bench) -> None:
    grid = await bench.grid()
    record = session_record(publish_partitions=frozenset({PARTITION}))
    await grid.sessions.create(record)
    command = PublishCommand(ownership_of(record), RequestNumber(1), RequestNumber(0), TOPIC, b"1")
    await grid.topics.publish([command])
    await grid.sessions.end(ownership_of(record), reason=ErrorCode.SESSION_CLOSED)
    results = await grid.topics.publish([command, command._replace(request=RequestNumber(2))])
    assert [type(each) for each in results] == [Fenced, Fenced]
    assert await bench.session_keys() == set()


async def test_what_is_remembered_of_ended_sessions_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_ends, "ENDED_MOST", 3)
    grid = await bench.grid()
    here = [record for record in (session_record() for _ in range(2000)) if session_partition(record.id) == 0][:10]
    for record in here:
        await grid.sessions.create(record)
        await grid.sessions.end(ownership_of(record), reason=ErrorCode.SESSION_CLOSED)
    assert await bench.server.call("ZCARD", f"{bench.prefix}:{{s0}}:ended") == 3


@pytest.mark.promise("P17")
async def test_orphaning_leaves_alone_what_was_written_under_a_later_lease(bench: Bench) -> None:
    """A node that comes back in the middle of its takeover keeps what it has verified since."""
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    await n1.nodes.join(N1, lease=60)
    await n2.nodes.join(N2, lease=60)
    records = [session_record() for _ in range(200)]
    await asyncio.gather(*(n1.sessions.create(each) for each in records))
    # Only now may the lease expire, however long that took.
    await n1.nodes.renew(N1, lease=0.01)

    async def expired() -> bool:
        return N1 in (await n2.nodes.renew(N2, lease=60)).expired

    await eventually(expired)
    assert await n2.nodes.take_over(N1, by=N2, within=60)
    with pytest.raises(LeaseLost):
        await n1.nodes.renew(N1, lease=60)
    await n1.nodes.join(N1, lease=60)
    verified, others = records[:100], records[100:]
    assert set(await n1.sessions.restore(verified, recreate=False)) == {Restored.WRITTEN}
    # The taker does not know yet.
    epochs = await n2.sessions.orphan(N1, [each.id for each in records])
    assert epochs == [None] * 100 + [each.epoch for each in others]
    owned = [each for partition in range(SESSION_PARTITIONS) for each in await n2.sessions.owned(N1, partition)]
    assert sorted(owned) == sorted(each.id for each in verified), "whoever takes over from it next finds them"
    for record in verified:
        assert await n1.sessions.find(record.id) == record
    # The rest is put right when the node verifies it.
    assert set(await n1.sessions.restore(others, recreate=False)) == {Restored.WRITTEN}
    for record in others:
        assert await n1.sessions.find(record.id) == record


async def test_orphaning_does_not_touch_names_that_begin_alike(bench: Bench) -> None:
    grid = await bench.grid()
    longer = replace(N1, incarnation=type(N1.incarnation)(f"{N1.incarnation}2"))
    mine = session_record("one")
    other = next(
        record
        for record in (session_record(owner=longer) for _ in range(5000))
        if session_partition(record.id) == session_partition(mine.id)
    )
    await grid.sessions.create(mine)
    await grid.sessions.create(other)
    owned = await grid.sessions.owned(N1, session_partition(mine.id))
    assert owned == [mine.id]
    assert await grid.sessions.orphan(N1, owned) == [mine.epoch]
    assert await grid.sessions.find(mine.id) == replace(mine, connected=False)
    assert await grid.sessions.find(other.id) == other


@pytest.mark.promise("P3")
async def test_a_node_whose_lease_may_have_expired_writes_nothing_until_it_has_verified_it(bench: Bench) -> None:
    """P3: what a suspended process finds when it wakes up, before anything else could tell it."""
    clock = VirtualClock()
    grid = await bench.grid(clock=clock)
    record = session_record()
    publisher = Publisher(grid)
    await grid.sessions.create(record)  # a node that never joined is not gated
    await grid.nodes.join(N1, lease=10)
    await grid.sessions.change(ownership_of(record), SessionChanges(selections=("+a",)))
    clock.advance(10.0)
    attempts = [
        grid.sessions.create(session_record()),
        grid.sessions.claim(record.id, by=N1, token_generation=TokenGeneration(1), attempt=Attempt(1)),
        grid.sessions.change(ownership_of(record), SessionChanges(selections=("+b",))),
        grid.sessions.disconnect(ownership_of(record)),
        grid.sessions.end(ownership_of(record), reason=ErrorCode.SESSION_CLOSED),
        grid.sessions.orphan(N2, [record.id]),
        grid.topics.publish([publisher.command(1)]),
    ]
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        assert isinstance(result, GridUnavailable)
        assert "lease" in str(result)
    assert await grid.sessions.find(record.id) == replace(record, selections=("+a",))
    assert (await grid.topics.position(PARTITION)).sequence == 0
    await grid.nodes.renew(N1, lease=10)
    await grid.sessions.change(ownership_of(record), SessionChanges(selections=("+b",)))
    await publisher.publish(1)
    # Another node's lease, managed over the same connection, opens and shuts nothing.
    clock.advance(10.0)
    await grid.nodes.join(N2, lease=10)
    with pytest.raises(GridUnavailable):
        await publisher.grid.topics.publish([publisher.command(2)])


@pytest.mark.promise("P3")
async def test_a_node_that_lost_its_lease_writes_again_only_after_joining(bench: Bench) -> None:
    grid = await bench.grid()
    await grid.nodes.join(N1, lease=0.05)

    async def lost() -> bool:
        try:
            await grid.nodes.renew(N1, lease=0.001)
        except LeaseLost:
            return True
        return False

    await eventually(lost)
    with pytest.raises(GridUnavailable):
        await grid.sessions.create(session_record())
    await grid.nodes.join(N1, lease=60)
    await grid.sessions.create(session_record())


async def test_steps_of_one_session_happen_in_the_order_in_which_they_were_started(bench: Bench) -> None:
    grid = await bench.grid()
    record = session_record()
    await grid.sessions.create(record)
    steps = [
        grid.sessions.change(ownership_of(record), SessionChanges(selections=tuple(f"+t{n}" for n in range(number))))
        for number in range(500)
    ]
    await asyncio.gather(*steps)
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert len(found.selections) == 499


@pytest.mark.promise("P3")
async def test_claims_race_and_each_has_its_own_epoch(bench: Bench) -> None:
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    record = session_record()
    await n1.sessions.create(record)
    results = await asyncio.gather(
        *(
            grid.sessions.claim(record.id, by=node, token_generation=TokenGeneration(99), attempt=Attempt(attempt))
            for attempt in range(1, 51)
            for grid, node in ((n1, N1), (n2, N2))
        )
    )
    epochs = [each.record.epoch for each in results if isinstance(each, Claimed)]
    owners = {(each.record.epoch, each.record.owner) for each in results if isinstance(each, Claimed)}
    assert len(owners) == len(set(epochs)), "one epoch, one owner"
    found = await n1.sessions.find(record.id)
    assert found is not None
    assert found.epoch == max(epochs)
    assert found.attempt == 50


@pytest.mark.promise("P11")
async def test_an_idle_session_costs_no_command(forgetful: Bench) -> None:
    """P11: after 300 sessions were created the grid executes as many commands as without them."""
    grid = await forgetful.grid()
    await asyncio.gather(*(grid.sessions.create(session_record()) for _ in range(300)))

    async def both_connected() -> bool:
        return len(await forgetful.clients()) == 2

    await eventually(both_connected)
    before = await forgetful.server.command_counts()
    await forgetful.server.call("PING")
    await forgetful.server.call("PING")
    after = await forgetful.server.command_counts()
    grown = {name for name in after if after[name] > before.get(name, 0)}
    assert grown <= {"ping", "info"}


async def test_ten_thousand_sessions_are_restored_into_an_emptied_grid(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    records: list[SessionRecord] = [session_record(epoch=Epoch(number % 7 + 1)) for number in range(10_000)]
    await forgetful.server.restart(emptied=True)
    await keep_trying(lambda: grid.generation == 2, message="adopted")
    results = await grid.sessions.restore(records, recreate=True)
    assert results == [Restored.WRITTEN] * len(records)
    again = await grid.sessions.restore(records[:10], recreate=True)
    assert again == [Restored.WRITTEN] * 10
    stale = [replace(each, epoch=Epoch(0), owner=N2) for each in records[:10]]
    assert await grid.sessions.restore(stale, recreate=True) == [Restored.FENCED] * 10
    assert await grid.sessions.find(records[-1].id) == records[-1]
    assert await grid.sessions.restore([session_record()], recreate=False) == [Restored.GONE]
    assert isinstance(ownership_of(records[0]), Ownership)


async def test_sessions_restored_into_an_emptied_grid_can_be_orphaned(
    forgetful: Bench,
) -> None:
    """The count of leases was lost with the grid, but must not fall behind what sessions carry."""
    n1, n2 = await forgetful.grid(N1), await forgetful.grid(N2)
    for _ in range(5):
        await n1.nodes.join(N1, lease=60)
    record = session_record()
    await n1.sessions.create(record)
    await forgetful.server.restart(emptied=True)
    await keep_trying(lambda: n1.generation == n2.generation == 2, message="adopted")
    assert await n1.sessions.restore([record], recreate=True) == [Restored.WRITTEN]
    await n1.nodes.join(N1, lease=0.02)

    async def taken() -> bool:
        return await n2.nodes.take_over(N1, by=N2, within=60) is not None

    await eventually(taken)
    assert await n2.sessions.orphan(N1, [record.id]) == [record.epoch]
    assert await n2.sessions.find(record.id) == replace(record, connected=False)


@pytest.mark.promise("P4")
@pytest.mark.parametrize("suspend", [False, True], ids=["killed", "suspended"])
async def test_what_was_acknowledged_is_there_after_the_grid_was_gone(harmed: Bench, suspend: bool) -> None:
    """P4: of changes under way when the grid dies a prefix is executed, and all that was acknowledged."""
    grid = await harmed.grid(timeout=scaled(0.5))
    records = [session_record() for _ in range(20)]
    await asyncio.gather(*(grid.sessions.create(each) for each in records))
    acknowledged = dict.fromkeys((each.id for each in records), 0)
    asked = dict(acknowledged)

    async def change(record: SessionRecord) -> None:
        for number in range(1, 100_000):
            asked[record.id] = number
            try:
                await grid.sessions.change(ownership_of(record), SessionChanges(properties={"number": str(number)}))
            except GridUnavailable:
                return
            acknowledged[record.id] = number

    tasks = [asyncio.create_task(change(each)) for each in records]
    await keep_trying(lambda: min(acknowledged.values()) >= 5, message="traffic runs")
    if suspend:
        harmed.server.suspend()
        await asyncio.gather(*tasks)
        harmed.server.resume()
    else:
        harmed.server.kill()
        await asyncio.gather(*tasks)
        await harmed.server.restart()
    await keep_trying(lambda: grid.state.value == "up", message="up")
    for record in records:
        found = await grid.sessions.find(record.id)
        assert found is not None
        assert acknowledged[record.id] <= int(found.properties["number"]) <= asked[record.id]


async def test_a_list_that_a_node_of_the_first_release_wrote_is_read_and_becomes_entries(bench: Bench) -> None:
    """Sessions outlive a deploy, and so do lists in the form of before."""
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    record = session_record(selections=("+x", "+a/**"))
    await n1.sessions.create(record)
    key = n1.sessions._keys.session(record.id)
    await bench.server.call("HSET", key, "selections", '["+a/**", "-a/b", "+c"]')
    assert await n1.sessions.find(record.id) == replace(record, selections=("+a/**", "-a/b", "+c")), (
        "where it is, it is the whole list"
    )
    claimed = await n2.sessions.claim(record.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert isinstance(claimed, Claimed)
    assert claimed.record.selections == ("+a/**", "-a/b", "+c")
    changes = SessionChanges(selection_changes=SelectionChanges(removed=("a/b",), added=("+d",)))
    for _ in range(2):
        await n2.sessions.change(ownership_of(claimed.record), changes)
        found = await n1.sessions.find(record.id)
        assert found is not None
        assert found.selections == ("+a/**", "+c", "+d")
    assert await bench.server.call("HEXISTS", key, "selections") == 0
    await bench.server.call("HSET", key, "selections", '["+q"]')
    await n2.sessions.change(ownership_of(claimed.record), SessionChanges(selections=("+r", "+q")))
    found = await n1.sessions.find(record.id)
    assert found is not None
    assert found.selections == ("+r", "+q")
