"""Redis dies, forgets, goes back in time, hangs or crawls: nobody is disconnected, and what was lost is said (P10).

Every publisher counts on topics of its own. *Traffic* goes on all the time. *Quiet* topics have subscribers and were
published to just before the fault, never again: nodes still know those values and must put them back. *Dark* topics
have no subscriber: what of them the grid loses is lost, and that must be declared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.client import connect
from gateway.core.wire.codes import GRID_UNAVAILABLE, TRY_LATER, ErrorCode, FailoverReason, Outcome
from gateway.core.wire.packets import NoticeCode
from gateway.local import admin
from gateway.local.grid_server import GridRestart
from gateway.local.proxy import Way
from gateway.local.stack import Stack
from tests.cluster.continuous_traffic import (
    MAKERS,
    Before,
    Market,
    assert_log_has_nothing_twice,
    assert_no_violations,
    assert_nobody_noticed,
    assert_receipts_rise,
    assert_writable,
    audible,
    restored,
    stored,
    trading,
)
from tests.cluster.crowds import Counting, Figures, Member, converged, gaps
from tests.cluster.grid_reader import GridReader, StoredSession
from tests.support.faults import eventually, faulty
from tests.support.raw_client import RawClient
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P10")]

LOST_WRITES: Final = NoticeCode.GRID_LOST_WRITES.value
VALUES_REREAD: Final = NoticeCode.VALUES_REREAD.value

SNAPSHOT_AGE: Final = 5.0
"""Seconds by which a grid that comes back older is behind, at least."""
LEAVERS: Final = 6
"""Sessions that are closed after that snapshot: the old grid holds them, and nobody else."""
WINDOW: Final = scaled(4.0)
"""Seconds that those may stay in the old grid; longer than any live session here is without a connection."""

SETTINGS: Final[dict[str, Any]] = {
    "grid_timeout": scaled(1.0),
    "lease": scaled(3.0),
    "lease_renew": scaled(0.6),
    "reap_interval": 0.3,
    "backoff_initial": 0.1,
    "backoff_maximum": 0.5,
}
"""Quicker than in production, so that outages can be longer than the grid's time limit and tests short."""


# --- Killed, emptied, rolled back -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(each, id=each.name.lower(), marks=() if each is GridRestart.EMPTY else pytest.mark.thorough)
        for each in GridRestart
    ],
)
async def test_a_redis_that_is_killed_disconnects_nobody(tmp_path: Path, figures: Figures, state: GridRestart) -> None:
    async with cluster(tmp_path, window_default=WINDOW, **SETTINGS) as stack, AsyncExitStack() as exits:
        async with trading(stack) as (market, members):
            everybody = [*members, *market.makers]
            leavers = await _age(stack, market, members) if state is GridRestart.OLDER else []
            await market.whisper()
            await eventually(lambda: _quiet_is_heard(members, market), "everybody has the quiet values")
            async with GridReader(stack.grid_url) as grid:
                before = await Before.of(stack, everybody, grid)
            receipts = {topic.topic: len(topic.receipts) for topic in market.topics}

            told = await _lose_redis(stack, market, state)
            grid = await exits.enter_async_context(GridReader(stack.grid_url))
            # Dark values first: nobody but the grid knows them, so here is what the loss took away.
            values = await grid.values()
            dark = sum(values.get(topic.topic, (0, 0))[0] < topic.asked for topic in market.dark)
            assert dark == (0 if state is GridRestart.AS_IT_WAS else MAKERS)
            await eventually(lambda: restored(grid, before), "every session is in the grid again")
            await eventually(lambda: _quiet_is_back(grid, market), "what subscribers know is in the grid again")
            await eventually(
                lambda: all(LOST_WRITES in member.notices for member in everybody), "everybody was told of the loss"
            )
            await market.rounds()
            await assert_nobody_noticed(stack, before)
            await assert_writable(everybody, grid)
            before.identity = {member: member.identity for member in everybody}
            assert all(member.notices.count(LOST_WRITES) == 1 for member in everybody)

            fallen = await _a_node_dies(stack, market, before)
            await market.whisper()
            await market.close()
            await converged(members, grid, lambda _: audible(market))
            assert_no_violations(members)
            assert {session: (await stored(grid, session)).selections for session in before.selections} == (
                before.selections
            )
            missing = await _judge_publishes(grid, market, receipts, whole=state is GridRestart.AS_IT_WAS)
            await eventually(lambda: _gone(grid, leavers), "sessions closed before the fault do not stay in the grid")
            delivered = sum(member.tally.delivered for member in members)
            figures(
                f"{len(everybody)} sessions, nobody disconnected; {told}; {market.published} publishes, {missing} "
                f"acknowledged ones no longer in the log (declared), 0 doubled; {delivered} updates delivered; slowest "
                f"publish {max(topic.slowest for topic in market.topics):.2f} s; {fallen}"
            )
        assert await grid.of_sessions() == []


async def _lose_redis(stack: Stack, market: Market, state: GridRestart) -> str:
    """Kill Redis, let every node notice, and have it back; returns figures."""
    loop = asyncio.get_running_loop()
    killed = loop.time()
    await stack.grid.process.kill()
    await eventually(lambda: grid_is(stack, up=False), "every node knows that the grid is unreachable")
    await stack.restart_redis(state)
    away = loop.time() - killed
    await market.rounds(1)
    return f"Redis away for {away:.2f} s, publishes go on {loop.time() - killed - away:.2f} s later"


async def grid_is(stack: Stack, *, up: bool) -> bool:
    """Tell whether all nodes find that the grid is up, or all that it is away."""
    return all([(await stack.metrics(node))["gateway_grid_up"] == up for node in stack.node_names])


async def _a_node_dies(stack: Stack, market: Market, before: Before) -> str:
    """Kill a node: all its sessions go on with what the restored grid holds. Returns figures."""
    victim = market.makers[0].session.node
    moved = [member for member, (home, _) in before.connected.items() if home == victim]
    await stack.kill_node(victim)
    await eventually(lambda: all(member.recoveries for member in moved), "the dead node's sessions are back")
    await market.rounds()
    for member, identity in before.identity.items():
        assert member.identity == identity
        expected = [(Outcome.FAILED_OVER, FailoverReason.OTHER_NODE)] if member in moved else []
        assert [(each.outcome, each.reason) for each in member.recoveries] == expected
        # A client that finds something missing repairs it and says so; here nothing was missing.
        assert set(member.notices) <= {LOST_WRITES, VALUES_REREAD}
    return f"then {len(moved)} failed over from {victim}, {gaps(member.recoveries[0] for member in moved)}"


async def _judge_publishes(grid: GridReader, market: Market, receipts: Mapping[str, int], *, whole: bool) -> int:
    """Check what became of every publish; returns how many acknowledged ones are lost."""
    values = await grid.values()
    missing = 0
    for topic in market.topics:
        assert_receipts_rise(topic)
        value, version = values[topic.topic]
        assert value == topic.asked
        assert version >= topic.receipts[topic.asked].version, "higher if a node has given it back"
        if whole:
            topic.judge(await grid.log(topic.topic))
        else:
            missing += await assert_log_has_nothing_twice(grid, topic, receipts[topic.topic])
    return missing


async def _age(stack: Stack, market: Market, members: list[Member]) -> list[str]:
    """Keep a snapshot of the grid, and change about everything after it.

    Returns:
        Sessions that are closed now, and open in the snapshot.
    """
    leavers = [await connect(stack.url, principal=f"leaver-{number}") for number in range(LEAVERS)]
    async with time_limit(30):
        await asyncio.gather(*(leaver.publish(f"dark/leaver-{leaver.id}", 0) for leaver in leavers))
    await stack.save_grid()
    taken = time.monotonic()
    await asyncio.gather(*(leaver.close() for leaver in leavers))
    await asyncio.gather(*(member.session.set_properties({"since": "the snapshot"}) for member in members))
    await asyncio.gather(*(member.session.unsubscribe("private/**") for member in members[::2]))
    await eventually(lambda: time.monotonic() - taken > SNAPSHOT_AGE, "the snapshot is old")
    await market.whisper()
    return [leaver.id for leaver in leavers]


async def _gone(grid: GridReader, sessions: list[str]) -> bool:
    keys = set(await grid.of_sessions())
    return not any(session in key for session in sessions for key in keys)


async def _quiet_is_back(grid: GridReader, market: Market) -> bool:
    values = await grid.values()
    return all(values.get(topic.topic, (0, 0))[0] == topic.asked for topic in market.quiet)


def _quiet_is_heard(members: Iterable[Member], market: Market) -> bool:
    wanted = {topic.topic: (topic.asked, topic.receipts[topic.asked].version) for topic in market.quiet}
    return all(
        (watch := member.watches.get(name)) is not None and (watch.value, watch.version) == last
        for member in members
        for name, last in wanted.items()
    )


# --- Slow, and hanging ------------------------------------------------------------------------------------------------

LATENCY: Final = 0.3
"""Seconds by which every answer of Redis is late: five hundred times what is usual, and within the time limit."""
HANG: Final = scaled(4.0)
"""Seconds for which Redis hangs: longer than the grid's time limit, and longer than the leases."""


@pytest.mark.thorough
async def test_a_redis_that_crawls_or_hangs_disconnects_nobody(tmp_path: Path, figures: Figures) -> None:
    # With the journal, which is on its way to the grid with everything else and must not hold it up.
    settings = {**SETTINGS, "window_default": WINDOW, "journal": "true"}
    async with (
        cluster(tmp_path, grid_proxy=True, **settings) as stack,
        GridReader(stack.grid_url) as grid,
        trading(stack) as (market, members),
    ):
        assert stack.grid_proxy is not None
        everybody = [*members, *market.makers]
        before = await Before.of(stack, everybody, grid)
        usual = max(topic.slowest for topic in market.traffic)

        stack.grid_proxy.delay(LATENCY, Way.DOWN)
        await market.rounds(3)
        crawling = max(topic.slowest for topic in market.traffic)
        stack.grid_proxy.delay(0)
        await market.rounds(1)
        assert crawling >= LATENCY
        assert await grid_is(stack, up=True)
        await assert_nobody_noticed(stack, before)

        loop = asyncio.get_running_loop()
        async with RawClient(stack.node_url("n1")) as raw:
            await raw.hello("asker", window=1)
            paused = loop.time()
            stack.grid.process.pause()
            try:
                await eventually(lambda: grid_is(stack, up=False), "every node knows that the grid is unreachable")
                noticed = loop.time() - paused
                await _promises_are_refused(stack, raw)
                await eventually(lambda: loop.time() - paused > HANG, "it hangs for longer than a lease")
            finally:
                stack.grid.process.resume()
            await market.rounds()
            hanging = max(topic.slowest for topic in market.traffic)
            await eventually(lambda: grid_is(stack, up=True), "every node has the grid again")
            # Whoever has heard the refusal, which was packet 1, can publish as soon as nothing is refused any more.
            again = {"id": 2, "received": 1, "request": 2, "type": "publish", "topic": "asked/again", "value": 1}
            await raw.send(again)
            assert "error" not in await raw.expect("reply")
            await raw.send({"type": "bye"})
            await raw.expect("bye")
        await eventually(lambda: restored(grid, before), "every session is in the grid as it was")
        before.troubles["n1"]['gateway_closes_total{code="1000"}'] += 1
        before.troubles["n1"]['gateway_closes_total{code="4100"}'] += 1
        await assert_nobody_noticed(stack, before)
        await assert_writable(everybody, grid)
        await market.whisper()
        await market.close()
        await converged(members, grid, lambda _: audible(market))

        assert_no_violations(members)
        for topic in market.topics:
            topic.judge(await grid.log(topic.topic))
        # It was the same process all the time, so that nothing can be lost, and nothing is said to be.
        assert [notice for member in everybody for notice in member.notices if notice != VALUES_REREAD] == []
        figures(
            f"{len(everybody)} sessions, nobody disconnected, nothing lost, doubled or declared lost; slowest publish "
            f"{usual:.2f} s before, {crawling:.2f} s with {LATENCY:g} s latency, {hanging:.2f} s with Redis stopped "
            f"for {HANG:g} s; every node noticed that after {noticed:.2f} s; {market.published} publishes"
        )


async def _promises_are_refused(stack: Stack, raw: RawClient) -> None:
    """A node whose grid is unreachable lives, takes no new sessions, and refuses new promises as retryable."""
    assert await admin.answers_ok(stack.admin_url("n1", "/healthz"))
    assert not await admin.answers_ok(stack.admin_url("n1", "/readyz"))
    await raw.send({"id": 1, "request": 1, "type": "publish", "topic": "asked/once", "value": 1})
    reply = await raw.expect("reply")
    assert reply["error"]["code"] == ErrorCode.GRID_UNAVAILABLE
    assert reply["error"]["retry_after"] > 0
    async with RawClient(stack.node_url("n1")) as newcomer:
        await newcomer.send({"type": "hello", "principal": "newcomer"})
        refused = await newcomer.expect("error")
        assert refused["code"] == ErrorCode.GRID_UNAVAILABLE
        assert refused["retry_after"] > 0
        assert await newcomer.closed() == GRID_UNAVAILABLE.code


# --- Coming to another node before the old one has restored -----------------------------------------------------------

WANDERERS: Final = 20


async def test_a_client_that_is_faster_than_its_old_node_is_asked_to_wait(tmp_path: Path, figures: Figures) -> None:
    settings = {**SETTINGS, "lease": scaled(6.0), "lease_renew": scaled(1.0)}
    async with (
        cluster(tmp_path, nodes=2, balancer=False, **settings) as stack,
        faulty(stack.node_url("n1")) as (way, proxy),
        AsyncExitStack() as exits,
    ):
        wanderers = []
        for number in range(WANDERERS):
            session = await connect([way, stack.node_url("n2")], principal=f"wanderer-{number}", window=60)
            wanderers.append(await exits.enter_async_context(closing(Member(f"wanderer-{number}", session))))
            await wanderers[-1].subscribe("traffic/**")
            await session.set_properties({"seat": str(number)})
        topics = [Counting(member.session, f"traffic/{number}") for number, member in enumerate(wanderers)]
        await asyncio.gather(*(topic.publish() for topic in topics))
        await eventually(lambda: all(len(each.watches) == WANDERERS for each in wanderers), "everybody hears everybody")
        assert {member.session.node for member in wanderers} == {"n1"}
        before = {member: member.identity for member in wanderers}
        # Also somebody who is away while all this happens.
        async with RawClient(stack.node_url("n1")) as raw:
            absent = await raw.hello("absent", properties={"seat": "none"}, window=60)

        await stack.grid.process.kill()
        stack.pause_node("n1")
        proxy.refuse()
        assert proxy.cut() == WANDERERS
        await stack.restart_redis(GridRestart.EMPTY)
        await eventually(lambda: _told_to_wait(stack), "n2 has asked everybody to come again")
        assert [recovery for member in wanderers for recovery in member.recoveries] == []
        async with RawClient(stack.node_url("n2")) as early:
            refused = await early.resume(absent["token"], attempt=1)
            assert refused["code"] == ErrorCode.TRY_LATER
            assert refused["retry_after"] > 0
            assert await early.closed() == TRY_LATER.code
        stack.resume_node("n1")
        await eventually(lambda: all(member.recoveries for member in wanderers), "everybody is served by n2")

        async with GridReader(stack.grid_url) as grid:
            for number, member in enumerate(wanderers):
                (recovery,) = member.recoveries
                # Its old node has just woken: it may give the session away, or be too late for that.
                assert recovery.outcome in {Outcome.HANDED_OVER, Outcome.FAILED_OVER}
                assert recovery.node == "n2"
                assert member.identity == before[member]
                assert set(member.notices) <= {LOST_WRITES, VALUES_REREAD}
                assert await stored(grid, member.session.id) == StoredSession(
                    principal=f"wanderer-{number}",
                    properties={"seat": str(number)},
                    selections=("+traffic/**",),
                    node="n2",
                    epoch=2,
                    connected=True,
                )
            await eventually(lambda: _is_stored(grid, absent["session"]), "who is away is in the grid again")
            assert not (await stored(grid, absent["session"])).connected
            async with RawClient(stack.node_url("n2")) as late:
                again = await late.resume(absent["token"], attempt=2)
                assert (again["outcome"], again["properties"]["seat"]) == (Outcome.FAILED_OVER, "none")
                await late.send({"type": "bye"})
                await late.expect("bye")
            await asyncio.gather(*(topic.publish() for topic in topics))
            await converged(wanderers, grid, lambda _: {topic.topic for topic in topics})
        assert_no_violations(wanderers)
        attempts = [member.recoveries[0].attempts for member in wanderers]
        figures(
            f"{WANDERERS} clients came to n2 while n1 was stopped and the grid empty: none refused, all failed over "
            f"once n1 had restored them; {min(attempts)} to {max(attempts)} attempts, "
            f"{gaps(member.recoveries[0] for member in wanderers)}"
        )


@asynccontextmanager
async def closing(member: Member) -> AsyncIterator[Member]:
    """Close a member at the end."""
    try:
        yield member
    finally:
        await member.close()


async def _told_to_wait(stack: Stack) -> bool:
    return (await stack.metrics("n2")).get('gateway_resumes_total{outcome="try_later"}', 0) >= WANDERERS


async def _is_stored(grid: GridReader, session: str) -> bool:
    return await grid.session(session) is not None
