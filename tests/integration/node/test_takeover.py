"""Survivors take over from a node that has failed: once, in full, and also if those who do it die (P17, seed 004)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from typing import Any

import pytest

from gateway.app.cluster.takeover.stages import SessionStage
from gateway.catalogue import log_events as events
from gateway.catalogue import takeover_log_events as takeover_events
from gateway.catalogue.log_event import LogEvent
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.types import NodeRef
from tests.support.seeds import seeds
from tests.support.virtual_cluster import VirtualCluster, VirtualNode, run_virtually

pytestmark = pytest.mark.promise("P17")

SESSIONS = 200
"""So many that every partition has some of them."""


async def is_cleaned_up(by: VirtualNode) -> bool:
    return await by.grid.nodes.takeovers() == [] and len(await by.grid.nodes.lost()) > 0


def told(cluster: VirtualCluster, event: LogEvent) -> list[dict[str, object]]:
    return [each for node in cluster.nodes.values() for each in node.log.of(event)]


def test_one_of_ten_takes_over_each_stage_once() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, *others = await cluster.start(*(f"n{number}" for number in range(1, 11)))
        held = await cluster.sessions(n1, SESSIONS)
        cluster.kill(n1)
        await cluster.until(lambda: is_cleaned_up(others[0]))
        assert await cluster.connected(others[0], held) == 0
        assert {(step[0], step[1]) for step in cluster.steps if step[2] == "sessions"} == {(cluster.steps[0][0], n1.me)}
        assert Counter(step[2:] for step in cluster.steps).most_common(1)[0][1] == 1
        assert {step[2] for step in cluster.steps} == {"sessions", "reports"}
        assert [each["sessions"] for each in told(cluster, events.TAKEOVER_FINISHED)] == [SESSIONS]
        assert len(told(cluster, events.LEASE_EXPIRED)) == len(told(cluster, takeover_events.CLEANUP_FINISHED)) == 1
        assert [each.node for each in await others[0].grid.nodes.lost()] == [n1.me]

    run_virtually(scene)


STAGES = [*(("sessions", step) for step in (0, 1, 40, SESSION_PARTITIONS - 1)), ("reports", 0)]


@pytest.mark.parametrize(("stage", "step"), STAGES)
def test_the_next_one_goes_on_where_a_winner_died(stage: str, step: int) -> None:
    """E2: with kills between, every stage is once in effect; a step is repeated only if it was under way."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, *others = await cluster.start("n1", "n2", "n3", "n4")
        held = await cluster.sessions(n1, SESSIONS)
        killed: list[VirtualNode] = []

        async def kill_first(node: VirtualNode, failed: NodeRef, at: str, number: int) -> None:
            if failed == n1.me and (at, number) == (stage, step) and not killed:
                killed.append(node)
                cluster.kill(node)
            if node.dead:
                await asyncio.Event().wait()

        cluster.before_step = kill_first
        cluster.kill(n1)
        await cluster.until(lambda: bool(killed))
        survivor = next(each for each in others if not each.dead)
        await cluster.until(lambda: is_cleaned_up(survivor))
        assert await cluster.connected(survivor, held) == 0
        done = Counter(each[2:] for each in cluster.steps if each[1] == n1.me)
        assert set(done.values()) == {1}
        assert len(done) == SESSION_PARTITIONS + 1
        finished = [each for each in told(cluster, events.TAKEOVER_FINISHED) if each["expired"] == str(n1.me)]
        assert [each["sessions"] for each in finished] == [SESSIONS]
        assert {each.node for each in await survivor.grid.nodes.lost()} == {n1.me, killed[0].me}

    run_virtually(scene, transient_wait=5.0)


def test_winners_may_die_one_after_the_other() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, *others = await cluster.start(*(f"n{number}" for number in range(1, 6)))
        held = await cluster.sessions(n1, SESSIONS)
        deaths = iter((5, 20, 50))
        next_death = [next(deaths)]

        async def kill(node: VirtualNode, failed: NodeRef, at: str, number: int) -> None:
            if failed == n1.me and at == "sessions" and number == next_death[0]:
                next_death[0] = next(deaths, -1)
                cluster.kill(node)
            if node.dead:
                await asyncio.Event().wait()

        cluster.before_step = kill
        cluster.kill(n1)

        async def is_over() -> bool:
            (last,) = [each for each in others if not each.dead][:1]
            return len(await last.grid.nodes.lost()) == 4

        await cluster.until(is_over)
        (last,) = [each for each in others if not each.dead]
        assert await cluster.connected(last, held) == 0
        assert {step for _, of, stage, step in cluster.steps if of == n1.me and stage == "sessions"} == set(
            range(SessionStage.steps)
        )
        assert len(told(cluster, takeover_events.TAKEOVER_CONTINUED)) == 3

    run_virtually(scene)


def test_a_node_that_is_back_in_time_keeps_what_is_transient() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        cluster.kill(n1)
        await cluster.until(lambda: len(told(cluster, events.TAKEOVER_FINISHED)) == 1)
        n1.grid.mend()  # it had only been suspended

        async def is_back() -> bool:
            return any(each.node == n1.me and each.alive for each in await n2.grid.nodes.entries())

        await cluster.until(is_back)
        assert await n2.grid.nodes.takeovers() == []
        await asyncio.sleep(30)
        assert told(cluster, takeover_events.CLEANUP_FINISHED) == []

    run_virtually(scene, transient_wait=20.0)


def test_what_another_generation_did_is_done_anew() -> None:
    """The grid goes back to an older state in which those that were done may be connected still."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        held = await cluster.sessions(n1, SESSIONS)
        before = cluster.server.snapshot()
        rolled_back = False

        async def roll_back(node: VirtualNode, failed: NodeRef, at: str, number: int) -> None:
            nonlocal rolled_back
            if number == 40 and not rolled_back:
                rolled_back = True
                cluster.server.come_back(snapshot=before)

        cluster.before_step = roll_back
        cluster.kill(n1)
        await cluster.until(lambda: is_cleaned_up(n2))
        assert rolled_back
        assert await cluster.connected(n2, held) == 0
        assert Counter(each[2:] for each in cluster.steps)["sessions", 0] == 2

    run_virtually(scene)


# --- suspicion --------------------------------------------------------------------------------------------------------

LEASE = 6.0
RENEW = 2.0
HEARTBEAT = 0.5
CONFIRM = 0.5
INTERVALS: dict[str, Any] = {
    "lease": LEASE,
    "lease_renew": RENEW,
    "heartbeat": HEARTBEAT,
    "suspect_after": 3,
    "confirm": CONFIRM,
}
"""The defaults, by name."""


def suspects(node: VirtualNode) -> tuple[NodeRef, ...]:
    return tuple(node.node.suspects())


def test_a_node_that_is_silent_is_suspected_and_fails_when_its_lease_ends() -> None:
    """E5: a failure is detected within the lease and ``confirm``; without suspicion it took a renewal more."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, *others = await cluster.start(*(f"n{number}" for number in range(1, 11)))
        await asyncio.sleep(7.3)
        cluster.kill(n1)
        suspected = await cluster.until(lambda: all(suspects(each) == (n1.me,) for each in others))
        assert 3 * HEARTBEAT <= suspected <= 4 * HEARTBEAT
        taken = suspected + await cluster.until(lambda: bool(told(cluster, events.LEASE_EXPIRED)))
        assert LEASE - RENEW * 1.2 <= taken <= LEASE + CONFIRM
        await cluster.until(lambda: not any(suspects(each) for each in others), longest=3 * RENEW)
        assert sum(len(each.log.of(takeover_events.NODE_SUSPECTED)) for each in others) == len(others)
        assert not told(cluster, takeover_events.SUSPICION_CLEARED)

    run_virtually(scene, **INTERVALS)


def test_cut_links_take_nothing_from_anybody() -> None:
    """E1: no takeover while the lease holds, whatever links do; E4: a suspicion ends with the first sign of life."""

    async def scene(cluster: VirtualCluster) -> None:
        nodes = await cluster.start("n1", "n2", "n3")
        pairs = [(one, other) for one in nodes for other in nodes if one is not other]
        for one, other in pairs:
            cluster.network.cut(one.me, other.me)
        await cluster.until(lambda: all(len(suspects(each)) == 2 for each in nodes))
        await asyncio.sleep(10 * LEASE)
        assert all(len(suspects(each)) == 2 for each in nodes)
        for one, other in pairs:
            cluster.network.mend(one.me, other.me)
        cleared = await cluster.until(lambda: not any(suspects(each) for each in nodes))
        assert cleared <= HEARTBEAT
        for event in (events.LEASE_EXPIRED, events.TAKEOVER_FINISHED, events.LEASE_LOST):
            assert told(cluster, event) == []
        assert cluster.steps == []

    run_virtually(scene, **INTERVALS)


def test_a_node_that_is_heard_again_is_cleared() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        cluster.network.stall(n1.me, n2.me)
        await cluster.until(lambda: suspects(n2) == (n1.me,))
        assert suspects(n1) == (), "n2 is heard"

        async def is_told() -> bool:
            views = {view.node: view for view in await n1.node.administration.nodes.list()}
            return views["n1"].suspected_by == ("n2",)

        await cluster.until(is_told)
        cluster.network.mend(n1.me, n2.me)
        assert await cluster.until(lambda: suspects(n2) == ()) <= HEARTBEAT
        await cluster.until(lambda: len(told(cluster, takeover_events.SUSPICION_CLEARED)) == 1)

        async def is_forgotten() -> bool:
            return not any(view.suspected_by for view in await n1.node.administration.nodes.list())

        await cluster.until(is_forgotten)

    run_virtually(scene, **INTERVALS)


def test_a_node_that_stops_as_planned_is_not_suspected() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        await n2.node.drain()
        await n2.node.close()
        n2.dead = True
        await asyncio.sleep(3 * LEASE)
        assert not told(cluster, takeover_events.NODE_SUSPECTED)
        assert not told(cluster, events.LEASE_EXPIRED)
        assert n1.node.cluster.alive == (n1.me,)

    run_virtually(scene, **INTERVALS)


def calls(node: VirtualNode) -> Counter[str]:
    """Count what a node asks the grid for, from now on."""
    counted: Counter[str] = Counter()
    run = node.grid._connection.run

    async def run_and_count(step: Any) -> Any:
        counted[step.__qualname__] += 1
        return await run(step)

    node.grid._connection.run = run_and_count  # type: ignore[method-assign]
    return counted


def test_heartbeats_cost_the_grid_nothing() -> None:
    """E3: with links and suspicion a quiet minute costs the grid what it costs without."""

    def minute(*, patience: int) -> Counter[str]:
        total: Counter[str] = Counter()

        async def scene(cluster: VirtualCluster) -> None:
            nodes = await cluster.start("n1", "n2", "n3")
            await asyncio.sleep(30)
            counters = [calls(each) for each in nodes]
            await asyncio.sleep(60)
            for each in counters:
                total.update(each)
            assert not told(cluster, takeover_events.NODE_SUSPECTED)

        run_virtually(scene, **INTERVALS | {"suspect_after": patience})
        return total

    assert not any("look" in step or "takeovers" in step for step in minute(patience=2))
    assert minute(patience=2) == minute(patience=100)


@pytest.mark.parametrize("seed", seeds(4))
def test_whatever_links_do_only_the_dead_are_taken_over_and_all_of_them(seed: int) -> None:
    """E1 and E2 by chance: links are cut, stalled and mended, nodes die, and so do some of those who take over."""

    async def scene(cluster: VirtualCluster) -> None:
        chance = random.Random(seed)
        nodes = await cluster.start(*(f"n{number}" for number in range(1, 8)))
        victims, last = nodes[:2], nodes[-1]
        held = [each for node in victims for each in await cluster.sessions(node, SESSIONS)]
        kept = await cluster.sessions(last, SESSIONS)

        async def kill_some(node: VirtualNode, failed: NodeRef, at: str, number: int) -> None:
            if node is not last and chance.random() < 0.01 and sum(each.dead for each in nodes) < 5:
                cluster.kill(node)
            if node.dead:
                await asyncio.Event().wait()

        cluster.before_step = kill_some
        for at in range(60):
            one, other = chance.sample([each for each in nodes if not each.dead], 2)
            fault = chance.choice((cluster.network.cut, cluster.network.stall, cluster.network.mend))
            fault(one.me, other.me)
            if at in {20, 30}:
                cluster.kill(victims[at // 10 - 2])
            await asyncio.sleep(chance.random() * 2)
        for one, other in itertools.permutations([each for each in nodes if not each.dead], 2):
            cluster.network.mend(one.me, other.me)

        async def is_over() -> bool:
            table = await last.grid.nodes.entries()
            return {each.node for each in table} == {
                each.me for each in nodes if not each.dead
            } and await is_cleaned_up(last)

        await cluster.until(is_over)
        living = [each for each in nodes if not each.dead]
        dead = {str(each.me) for each in nodes if each.dead}
        assert {each["expired"] for node in living for each in node.log.of(events.LEASE_EXPIRED)} <= dead
        assert not [each for node in living for each in node.log.of(events.LEASE_LOST)]
        assert await cluster.connected(last, held) == 0
        assert await cluster.connected(last, kept) == len(kept)
        assert {str(each.node) for each in await last.grid.nodes.lost()} == dead

    run_virtually(scene, **INTERVALS, transient_wait=5.0)
