"""Survivors take over from a node that has failed: once, in full, and also if those who do it die (P17, seed 004)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gateway.app.cluster.takeover.stages import SessionStage
from gateway.catalogue import log_events as events
from gateway.catalogue.log_event import LogEvent
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.types import NodeRef
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
        assert len(told(cluster, events.LEASE_EXPIRED)) == len(told(cluster, events.CLEANUP_FINISHED)) == 1
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
        assert len(told(cluster, events.TAKEOVER_CONTINUED)) == 3

    run_virtually(scene)


def test_a_node_that_is_back_in_time_keeps_what_is_transient() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        cluster.kill(n1)
        await cluster.until(lambda: len(told(cluster, events.TAKEOVER_FINISHED)) == 1)
        n1.grid.mend()  # it had only been suspended
        await cluster.until(lambda: n1.me in n2.node._membership.alive)
        assert await n2.grid.nodes.takeovers() == []
        await asyncio.sleep(30)
        assert told(cluster, events.CLEANUP_FINISHED) == []

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
