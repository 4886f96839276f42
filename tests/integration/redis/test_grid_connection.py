"""The connection to the grid: adoption, loss, return; and that nothing passes that should not."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.redis import RedisGrid, adoption, outage
from gateway.adapters.redis.batcher import ScriptFailed
from gateway.adapters.redis.keys import Keys
from gateway.catalogue import log_events
from gateway.catalogue import metrics as catalogue
from gateway.core.types import Attempt, GridGeneration, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Claimed, GridChange, GridState, GridUnavailable, SessionChanges
from tests.integration.redis.support import (
    N1,
    N2,
    PARTITION,
    Bench,
    Publisher,
    Reader,
    changes_of,
    keep_trying,
    ownership_of,
    session_record,
    stream_of,
    until_away,
    until_up,
)
from tests.support.redis_server import RedisServer
from tests.support.times import scaled


async def test_first_start_adopts_generation_one_and_is_no_change(bench: Bench) -> None:
    grid = await bench.grid()
    assert grid.state is GridState.UP
    assert grid.generation == 1
    async with changes_of(grid) as changes:
        await grid.sessions.create(session_record())
        assert changes == []


async def test_nodes_on_the_same_process_share_the_generation(bench: Bench) -> None:
    assert [(await bench.grid()).generation for _ in range(3)] == [1, 1, 1]


async def test_start_while_the_grid_is_down_raises_and_comes_up_later(forgetful: Bench) -> None:
    forgetful.server.kill()
    grid = forgetful.unstarted()
    started = time.monotonic()
    with pytest.raises(GridUnavailable):
        await grid.start()
    assert time.monotonic() - started < scaled(5.0)
    assert grid.state is GridState.UNREACHABLE
    with pytest.raises(GridUnavailable):
        await grid.sessions.create(session_record())
    async with changes_of(grid) as changes:
        await forgetful.server.restart()
        await until_up(grid)
        await keep_trying(lambda: bool(changes), message="the change is told")
        assert changes == [GridChange(GridState.UP, GridGeneration(1), lost_writes=False)]


@pytest.mark.promise("P10")
async def test_kill_and_restart_with_data_is_a_new_generation_and_loses_nothing(harmed: Bench) -> None:
    grid = await harmed.grid()
    record = session_record()
    await grid.sessions.create(record)
    async with changes_of(grid) as changes:
        harmed.server.kill()
        await until_away(grid)
        with pytest.raises(GridUnavailable):
            await grid.sessions.find(record.id)
        await harmed.server.restart()
        await until_up(grid)
        assert await grid.sessions.find(record.id) == record
        assert grid.generation == 2
        assert changes == [
            GridChange(GridState.UNREACHABLE, GridGeneration(1)),
            GridChange(GridState.UP, GridGeneration(2), lost_writes=True),
        ]
    events = [event for event, _ in harmed.log.events if event in {log_events.GRID_UNREACHABLE, log_events.GRID_BACK}]
    assert events == [log_events.GRID_UNREACHABLE, log_events.GRID_BACK]


async def test_why_a_grid_is_still_unreachable_is_told_after_a_while(
    harmed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended the connection says nothing of what keeps the next one from being made."""
    monkeypatch.setattr(outage, "STILL_AWAY_AFTER", 0.0)
    grid = await harmed.grid()
    harmed.server.kill()
    await until_away(grid)
    await keep_trying(lambda: bool(harmed.log.of(log_events.GRID_STILL_UNREACHABLE)), message="it is told")
    await harmed.server.restart()
    await until_up(grid)
    (told,) = harmed.log.of(log_events.GRID_STILL_UNREACHABLE)
    assert "connecting to" in str(told["error"])


async def test_restart_empty_keeps_the_generation_rising(forgetful: Bench) -> None:
    n1, n2 = await forgetful.grid(N1), await forgetful.grid(N2)
    for expected in (2, 3, 4):
        await forgetful.server.restart(emptied=True)
        await keep_trying(
            lambda expected=expected: {n1.generation, n2.generation} == {expected},  # type: ignore[misc]
            message=f"both adopt generation {expected}",
        )
        await asyncio.gather(until_up(n1), until_up(n2))


async def test_a_node_that_knows_a_higher_generation_raises_it_for_all(forgetful: Bench) -> None:
    """A fresh node adopts an emptied grid first; an older one then must not share its numbers with the past."""
    old = await forgetful.grid(N1)
    await forgetful.server.restart(emptied=True)
    await keep_trying(lambda: old.generation == 2 and old.state is GridState.UP, message="generation 2")
    await forgetful.server.call("SET", "unrelated", "1")
    await forgetful.server.restart(emptied=True)
    fresh = await forgetful.grid(N2)
    await until_up(old)
    assert old.generation >= 3
    # The fresh node notices by its next lease or publish, and publishes nothing under the lower generation.
    publisher = Publisher(fresh)
    (published,) = await publisher.publish(1)
    assert published.event.split("-")[1] == str(old.generation)
    assert fresh.generation == old.generation


@pytest.mark.promise("P10")
async def test_a_suspended_redis_is_unreachable_after_the_time_limit_and_back_without_losses(forgetful: Bench) -> None:
    grid = await forgetful.grid(timeout=scaled(0.5))
    record = session_record()
    await grid.sessions.create(record)
    async with changes_of(grid) as changes:
        forgetful.server.suspend()
        started = time.monotonic()
        with pytest.raises(GridUnavailable):
            await grid.sessions.change(ownership_of(record), SessionChanges(selections=("+late",)))
        assert scaled(0.4) < time.monotonic() - started < scaled(3.0)
        assert grid.state is GridState.UNREACHABLE
        forgetful.server.resume()
        await until_up(grid)
        await keep_trying(lambda: len(changes) == 2, message="both changes are told")
        assert changes[-1] == GridChange(GridState.UP, GridGeneration(1), lost_writes=False)


@pytest.mark.promise("P3")
async def test_commands_of_a_given_up_connection_never_run_after_newer_ones(forgetful: Bench) -> None:
    """What a stopped Redis still has in its socket is cut off before the new connection writes."""
    grid = await forgetful.grid(timeout=scaled(0.3))
    record = session_record()
    await grid.sessions.create(record)
    ownership = ownership_of(record)
    for turn in range(3):
        forgetful.server.suspend()
        # More than Redis reads at once from one socket, so that old and new commands would interleave.
        stale = [
            asyncio.create_task(
                grid.sessions.change(ownership, SessionChanges(properties={"stale": f"{turn} " + "x" * 9000}))
            )
            for _ in range(50)
        ]
        results = await asyncio.gather(*stale, return_exceptions=True)
        assert all(isinstance(each, GridUnavailable) for each in results)
        forgetful.server.resume()
        await until_up(grid)
        await grid.sessions.change(ownership, SessionChanges(properties={"fresh": str(turn)}))
        for _ in range(20):
            found = await grid.sessions.find(record.id)
            assert found is not None
            assert found.properties == {"fresh": str(turn)}


@pytest.mark.promise("P10")
async def test_a_cut_command_connection_comes_back_without_losses(bench: Bench) -> None:
    grid = await bench.grid()
    async with changes_of(grid) as changes:
        assert await bench.kill_clients() >= 1
        await keep_trying(lambda: len(changes) == 2, message="away and back")
        assert [each.state for each in changes] == [GridState.UNREACHABLE, GridState.UP]
        assert not changes[1].lost_writes


async def test_flushed_scripts_are_loaded_again(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    await forgetful.server.call("SCRIPT", "FLUSH")
    with pytest.raises(GridUnavailable):
        await grid.sessions.create(session_record())
    await until_up(grid)
    await grid.sessions.create(session_record())
    assert grid.generation == 1


@pytest.mark.promise("P10")
async def test_an_emptied_grid_is_noticed_by_publishing(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    publisher = Publisher(grid)
    await publisher.publish(3)
    async with changes_of(grid) as changes:
        await forgetful.server.call("FLUSHALL")
        (published,) = await publisher.publish(1)
        assert published.version == (1 << 32) + 1
        assert grid.generation == 2
        assert [each.lost_writes for each in changes] == [False, True]


@pytest.mark.promise("P10")
async def test_an_emptied_grid_is_noticed_by_renewing(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    await grid.nodes.join(N1, lease=30)
    await forgetful.server.call("FLUSHALL")
    # Whether the lease has expired, an empty grid does not know.
    with pytest.raises(GridUnavailable, match="emptied"):
        await grid.nodes.renew(N1, lease=30)
    await keep_trying(lambda: grid.generation == 2 and grid.state is GridState.UP, message="adopted again")


async def test_a_replica_is_not_taken_for_the_grid(forgetful: Bench) -> None:
    async with RedisServer() as master:
        grid = await forgetful.grid()
        await forgetful.server.call("REPLICAOF", "127.0.0.1", master.port)
        with pytest.raises(GridUnavailable):
            await grid.sessions.create(session_record())
        assert grid.state is GridState.UNREACHABLE
        await forgetful.server.call("REPLICAOF", "NO", "ONE")
        await until_up(grid)


async def test_out_of_memory_refuses_the_write_alone(forgetful: Bench) -> None:
    grid = await forgetful.grid()
    record = session_record()
    await grid.sessions.create(record)
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(GridUnavailable, match="memory"):
        await grid.sessions.create(session_record())
    assert grid.state is GridState.UP
    assert await grid.sessions.find(record.id) == record
    assert [event for event, _ in forgetful.log.events] == [log_events.GRID_WRITE_REFUSED]
    # Failover and leases go on, and ending frees memory.
    await grid.nodes.join(N1, lease=30)
    await grid.nodes.renew(N1, lease=30)
    result = await grid.sessions.claim(record.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert isinstance(result, Claimed)
    await grid.sessions.disconnect(ownership_of(result.record))
    await grid.sessions.end(ownership_of(result.record), reason=ErrorCode.SESSION_CLOSED)
    assert await grid.sessions.find(record.id) is None
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "0")
    await grid.sessions.create(session_record())


async def test_foreign_data_below_the_prefix_is_a_bug_not_an_outage(bench: Bench) -> None:
    grid = await bench.grid()
    record = session_record("foreign")
    await bench.server.call("SET", Keys(bench.prefix).session(record.id), "not a hash")
    with pytest.raises(ScriptFailed):
        await grid.sessions.create(record)
    assert grid.state is GridState.UP


async def test_a_cancelled_caller_does_not_cancel_the_command(bench: Bench) -> None:
    grid = await bench.grid()
    record = session_record()
    task = asyncio.create_task(grid.sessions.create(record))
    await asyncio.sleep(0)  # it has been submitted, and not sent yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await grid.sessions.find(record.id) == record
    assert grid.state is GridState.UP


async def test_close_finishes_what_was_started(bench: Bench) -> None:
    grid = await bench.grid()
    tasks = [asyncio.create_task(grid.sessions.create(session_record())) for _ in range(300)]
    await asyncio.sleep(0)
    await grid.close()
    await asyncio.gather(*tasks)
    with pytest.raises(GridUnavailable):
        await grid.sessions.create(session_record())
    await grid.close()


async def test_wrong_password_is_unavailable_and_not_told(forgetful: Bench) -> None:
    await forgetful.server.call("CONFIG", "SET", "requirepass", "right")
    grid = forgetful.unstarted()
    with pytest.raises(GridUnavailable):
        await grid.start()
    assert "right" not in str(forgetful.log.events)


@pytest.mark.promise("P5", "P6")
@pytest.mark.parametrize("fate", ["with data", "emptied", "older"])
async def test_publishing_and_reading_go_on_through_a_restart(harmed: Bench, fate: str) -> None:
    """P5, P6: values of a publisher that sends again what was not acknowledged, over a grid that dies under it."""
    grid = await harmed.grid()
    publisher = Publisher(grid)
    await publisher.publish(500)
    snapshot = await harmed.server.snapshot()
    await publisher.publish(500)
    before = publisher.settled
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))

    async def go_on() -> None:
        for _ in range(100):
            await publisher.publish(20)

    task = asyncio.create_task(go_on())
    await keep_trying(lambda: len(reader.values) >= 200, message="traffic runs")
    seen = len(reader.values)
    harmed.server.kill()
    await harmed.server.restart(emptied=fate == "emptied", snapshot=snapshot if fate == "older" else None)
    await task
    assert publisher.sent_again >= 1
    assert seen > 0
    # Followers are told, even if nothing was lost: nobody can know.
    await keep_trying(lambda: reader.lost == [PARTITION], message="the position is lost")
    versions = [each.version for each in reader.values]
    assert versions == sorted(set(versions))
    numbers = [int(value) for _, value in await stream_of(harmed)]
    # A receipt lost with the grid lets the unacknowledged tail of the requests run again, in order; nothing else may.
    if fate == "with data":
        assert numbers == list(range(1, 3001))
    else:
        kept = {"emptied": 0, "older": 500}[fate]
        assert numbers[:kept] == list(range(1, kept + 1))
        later = numbers[kept:]
        assert later == sorted(set(later)), "executed twice or out of order"
        assert later[-1] == 3000
        assert len(later) > 0
    assert before == 1000
    await reader.close()


async def test_a_redis_that_is_too_old_is_refused_with_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "OLDEST_REDIS", (99, 0))
    with pytest.raises(GridUnavailable, match="too old"):
        await bench.unstarted().start()


async def test_the_record_of_the_generation_can_be_lost_alone(forgetful: Bench) -> None:
    """As on a cluster of which one shard comes back without its data."""
    grid = await forgetful.grid()
    for expected in (2, 3):
        await forgetful.server.call("DEL", f"{forgetful.prefix}:{{nodes}}:grid")
        await forgetful.kill_clients()
        await keep_trying(lambda expected=expected: grid.generation == expected, message="the next one")  # type: ignore[misc]
    await forgetful.server.call("DEL", f"{forgetful.prefix}:{{nodes}}:grid")
    assert (await forgetful.grid(N2)).generation == 4, "above what the streams know"


async def test_close_does_not_wait_for_a_grid_that_does_not_answer(forgetful: Bench) -> None:
    grid = await forgetful.grid(timeout=scaled(0.3))
    forgetful.server.suspend()
    call = asyncio.create_task(grid.sessions.create(session_record()))
    await asyncio.sleep(0)
    started = time.monotonic()
    await grid.close()
    assert time.monotonic() - started < scaled(2.0)
    with pytest.raises(GridUnavailable):
        await call
    forgetful.server.resume()


async def test_a_start_that_gets_no_answer_says_so(forgetful: Bench) -> None:
    """Bug: the reason was empty, as that of the error is."""
    forgetful.server.suspend()
    try:
        with pytest.raises(GridUnavailable, match="cannot be reached: no answer in time"):
            await forgetful.unstarted(timeout=scaled(0.2)).start()
    finally:
        forgetful.server.resume()


async def test_what_is_logged_is_declared_and_tells_no_password(forgetful: Bench) -> None:
    await forgetful.server.call("CONFIG", "SET", "requirepass", "s3cret")
    grid = RedisGrid(
        forgetful.server.url.replace("redis://", "redis://:s3cret@"),
        prefix=forgetful.prefix,
        node=N1,
        metrics=MemoryMetrics(),
        log=forgetful.log,
    )
    await grid.start()
    await grid.sessions.create(session_record())
    forgetful.server.kill()
    await until_away(grid)
    await forgetful.server.restart()
    await forgetful.server.call("CONFIG", "SET", "requirepass", "s3cret")
    await until_up(grid)
    await grid.close()
    assert len(forgetful.log.events) == 2
    assert not forgetful.log.undeclared
    assert "s3cret" not in str(forgetful.log.events)


async def test_numbers_of_the_grid(bench: Bench) -> None:
    metrics = MemoryMetrics()
    grid = RedisGrid(bench.server.url, prefix=bench.prefix, node=N1, metrics=metrics, log=bench.log)
    assert metrics.gauge(catalogue.GRID_UP) == 0
    assert metrics.gauge(catalogue.GRID_GENERATION) == 0
    await grid.start()
    await asyncio.gather(*(grid.sessions.create(session_record()) for _ in range(10)))
    assert metrics.gauge(catalogue.GRID_UP) == 1
    assert metrics.gauge(catalogue.GRID_GENERATION) == 1
    # Some question of the node's own may be among them.
    assert max(metrics.observations(catalogue.GRID_BATCH_COMMANDS)) >= 10
    assert all(0 < each < 5 for each in metrics.observations(catalogue.GRID_STEP_SECONDS))
    await grid.close()
    assert metrics.gauge(catalogue.GRID_UP) == 0
