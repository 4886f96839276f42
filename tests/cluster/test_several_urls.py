"""Clients that know the URL of each node, and no load balancer: the nodes die one after the other (P1, P13)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from gateway.client import Session, Update, UpdateStream, connect
from gateway.core.wire.codes import Outcome
from tests.cluster.crowds import Figures, gaps
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P1", "P13")]

PUBLISHES: Final = 20
"""By each session, before and after each fault."""


async def test_a_session_that_knows_all_urls_goes_from_node_to_node(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path, balancer=False) as stack:
        nodes = stack.node_names
        publisher = await connect([stack.node_url(nodes[-1])], "publisher")
        session = await connect([stack.node_url(node) for node in nodes], "alice", properties={"team": "fx"})
        seen: list[Update] = []
        keeping = asyncio.create_task(keep(await session.subscribe("prices/*"), seen))
        before = (session.id, session.principal)
        assert session.node == nodes[0], "the first URL is the first to be used"

        recoveries = session.recoveries()
        published = 0
        met = []
        for victim, next_one in pairwise(nodes):
            published = await publish(publisher, published)
            await eventually(lambda published=published: len(seen) == published, "every update has come")  # type: ignore[misc]
            await stack.kill_node(victim)
            published = await publish(publisher, published)
            met.append(await anext(recoveries))
            assert (session.node, met[-1].outcome, met[-1].replayed) == (next_one, Outcome.FAILED_OVER, True)
        published = await publish(publisher, published)
        await eventually(lambda: len(seen) == published, "every update has come")

        assert [update.value for update in seen] == list(range(1, published + 1))
        assert (session.id, session.principal, session.properties["team"]) == (*before, "fx")
        figures(f"{len(met)} nodes killed, no balancer; recovery {gaps(met)}")
        await session.close()
        await publisher.close()
        await keeping


@pytest.mark.thorough
async def test_an_event_has_the_same_id_at_every_node(tmp_path: Path) -> None:
    """Whichever node it was published at, and whichever node it is delivered by."""
    async with cluster(tmp_path, balancer=False) as stack, AsyncExitStack() as open_ones:
        sessions: list[Session] = []
        seen: list[list[Update]] = []
        keeping = []
        for node in stack.node_names:
            session = await open_ones.enter_async_context(connect([stack.node_url(node)], node))
            assert session.node == node
            sessions.append(session)
            seen.append([])
            keeping.append(asyncio.create_task(keep(await session.subscribe("prices/*"), seen[-1])))

        receipts = await asyncio.gather(
            *(session.publish("prices/ACME", value) for value in range(PUBLISHES) for session in sessions)
        )
        await eventually(lambda: all(len(each) == len(receipts) for each in seen), "every node delivers every event")

        made = {receipt.event_id: receipt.version for receipt in receipts}
        assert len(made) == len(receipts), "no two events have the same id"
        for updates in seen:
            assert {update.event_id: update.version for update in updates} == made
            assert [update.event_id for update in updates] == [update.event_id for update in seen[0]]
        await open_ones.aclose()
        await asyncio.gather(*keeping)


async def keep(stream: UpdateStream, updates: list[Update]) -> None:
    async for update in stream:
        updates.append(update)  # noqa: PERF401 - others look at it meanwhile


async def publish(session: Session, last: int) -> int:
    """Publish the next numbers; returns the last one."""
    for number in range(last + 1, last + PUBLISHES + 1):
        await session.publish("prices/ACME", number)
    return last + PUBLISHES
