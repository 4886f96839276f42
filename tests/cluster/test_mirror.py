"""Nodes that back each other are killed, suspended, or lose their backup: nobody misses or repeats an update (P1, P2).

The rows are those of the table in docs/how-to/keep-a-backup.md: what dies or breaks, and what becomes of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.client import Recovery
from gateway.core.wire.codes import MirrorMode, Numbering, Outcome
from tests.chaos.node_links import node_links
from tests.cluster.backups import Market
from tests.cluster.crowds import Figures, complaints_after_kills, gaps
from tests.support.faults import eventually
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1", "P2")]

NODES: Final = ("n1", "n2", "n3")

SUBSCRIBERS: Final = 18
"""Each gets 400 updates a second."""
LEASE: Final = scaled(2.0)
"""Seconds; a suspended node loses its lease within the test."""


def outcomes(recoveries: list[Recovery]) -> Counter[tuple[str, Numbering, int | None]]:
    return Counter((each.outcome, each.numbering, each.lost) for each in recoveries)


def judge(market: Market, found: list[Recovery]) -> None:
    """Check that sessions went on with their copies, or by a failover that replays what they missed.

    Where nobody waits for the backup, its copy may lack the last tick.
    """
    mirrored = [each for each in found if each.outcome == Outcome.MIRRORED]
    assert outcomes(mirrored) == {(Outcome.MIRRORED, Numbering.KEPT, 0): len(mirrored)}
    rest = [each for each in found if each.outcome != Outcome.MIRRORED]
    assert {each.outcome for each in rest} <= {Outcome.FAILED_OVER}, outcomes(rest)
    # Who publishes follows nothing, and has nothing to be replayed.
    own = [recovery for member in market.subscribers for recovery in member.recoveries]
    assert all(each.replayed for each in own if each.outcome == Outcome.FAILED_OVER), outcomes(own)


@pytest.mark.parametrize("mode", [MirrorMode.SYNC, pytest.param(MirrorMode.STRICT, marks=pytest.mark.thorough)])
async def test_who_was_served_by_a_node_that_died_goes_on_with_the_copy(
    tmp_path: Path, figures: Figures, mode: MirrorMode
) -> None:
    """M2: kill -9 of each node in turn. Packet ids go on, and nothing is lost."""
    async with Market.open(tmp_path, SUBSCRIBERS, mirror=mode.value) as market:
        found: list[Recovery] = []
        for node in market.stack.node_names:
            await market.whole()
            await market.trade.rounds()
            found += await market.kill(node)
            await market.trade.rounds()
            await market.restart(node)
        assert outcomes(found) == {(Outcome.MIRRORED, Numbering.KEPT, 0): len(found)}
        assert len(found) >= SUBSCRIBERS
        assert len(market.recoveries) == len(found), "nobody else noticed"
        assert [notice for member in market.members for notice in member.notices] == []
        figures(f"{len(market.stack.node_names)} nodes killed, {len(found)} mirrored ({mode}); recovery {gaps(found)}")


@pytest.mark.thorough
async def test_without_waiting_for_the_backup_what_is_not_mirrored_is_declared(
    tmp_path: Path, figures: Figures
) -> None:
    """M3: either as with sync, or declared as a failover; as it is replayed, no update is missed."""
    async with Market.open(tmp_path, SUBSCRIBERS) as market:
        found: list[Recovery] = []
        for node in market.stack.node_names:
            await market.whole()
            await market.trade.rounds()
            found += await market.kill(node)
            await market.trade.rounds()
            await market.restart(node)
        judge(market, found)
        mirrored = sum(each.outcome == Outcome.MIRRORED for each in found)
        assert mirrored, "copies are used"
        figures(f"{len(found)} sessions of killed nodes: {mirrored} mirrored, others replayed; {gaps(found)}")


async def test_a_node_that_is_suspended_wakes_up_and_harms_nobody(tmp_path: Path) -> None:
    """What it then sends to its sockets nobody hears; its sessions have moved."""
    settings: dict[str, Any] = {"lease": LEASE, "lease_renew": LEASE / 4}
    async with Market.open(tmp_path, SUBSCRIBERS, **settings) as market:
        await market.whole()
        await market.trade.rounds()
        node = market.serving[0]
        before = {member: len(member.recoveries) for member in market.at(node)}
        market.stack.pause_node(node)
        found = await market.back(before)
        await market.trade.rounds()
        market.stack.resume_node(node)
        await market.stack.ready(node)
        await market.stack.balanced()
        await market.whole()
        await market.trade.rounds()
        judge(market, found)
        after = sum(len(member.recoveries) for member in before)
        assert after == sum(before.values()) + len(before), "its wake moves nobody once more"


@pytest.mark.thorough
async def test_a_backup_that_dies_is_followed_by_another(tmp_path: Path) -> None:
    """The node picks another one, and fills it; then all is as before."""
    async with Market.open(tmp_path, SUBSCRIBERS) as market:
        backings = await market.whole()
        await market.trade.rounds()
        live = market.serving[0]
        backup = backings[live].node
        kept = {member: len(member.recoveries) for member in market.at(live)}
        await market.kill(backup)
        others = [node for node in market.stack.node_names if node != backup]
        after = await market.whole(others)
        assert after[live].node not in {backup, live}
        await market.trade.rounds()
        assert {member: len(member.recoveries) for member in kept} == kept, "those it backed did not notice"
        judge(market, await market.kill(live))
        await market.trade.rounds()
        await market.restart(backup, live)


@pytest.mark.thorough
async def test_a_link_that_is_cut_costs_nobody_anything_and_another_backup_is_filled_under_way(tmp_path: Path) -> None:
    """As if the backup had died, for its node alone: it is parted from that one, and takes the third."""
    async with node_links(NODES) as links:
        settings: dict[str, Any] = {"link": links.address, "mirror": "sync", "node_environment": links.environment()}
        async with Market.open(tmp_path, SUBSCRIBERS, **settings) as market:
            backings = await market.whole()
            await market.trade.rounds()
            live = market.serving[0]
            backup = backings[live].node
            between = [proxy for proxy, _ in links.between(f"{live}-{backup}")]
            for proxy in between:
                proxy.refuse()
                proxy.cut()

            async def has_another() -> bool:
                backing = (await market.backings()).get(live)
                return backing is not None and backing.node not in {live, backup} and backing.copied == backing.to_copy

            await eventually(has_another, f"{live} is copied to the node that it can reach")
            await market.trade.rounds()
            assert market.recoveries == [], "nobody has lost a connection"
            found = await market.kill(live)
            assert outcomes(found) == {(Outcome.MIRRORED, Numbering.KEPT, 0): len(found)}
            await market.trade.rounds()
            for proxy in between:
                await proxy.start()
            await market.restart(live)


@pytest.mark.thorough
async def test_a_backup_that_is_suspended_holds_output_up_for_no_longer_than_the_patience(tmp_path: Path) -> None:
    """``sync``: output waits up to ``mirror_patience``, then goes on async with notice ``unmirrored``.

    What waits for the backup counts as what the transport does not take, so that it may be folded, and says so.
    """
    async with Market.open(tmp_path, SUBSCRIBERS, folding=True, mirror="sync") as market:
        backings = await market.whole()
        await market.trade.rounds()
        live = market.serving[0]
        backup = backings[live].node
        served = market.at(live)
        market.stack.pause_node(backup)
        try:
            await eventually(
                lambda: any("unmirrored" in member.notices for member in served), "who waited for the backup is told"
            )
            await market.stack.balanced([node for node in market.stack.node_names if node != backup])
            await market.trade.rounds()
        finally:
            market.stack.resume_node(backup)
        await market.stack.ready(backup)
        await market.stack.balanced()


@pytest.mark.thorough
@pytest.mark.promise("P13")
async def test_if_both_die_what_was_missed_is_replayed(tmp_path: Path) -> None:
    async with Market.open(tmp_path, SUBSCRIBERS) as market:
        backings = await market.whole()
        await market.trade.rounds()
        live = market.serving[0]
        backup = backings[live].node
        own = {member: len(member.recoveries) for member in market.at(live) if member in market.subscribers}
        await market.kill(live, backup)
        found = [recovery for member, count in own.items() for recovery in member.recoveries[count:]]
        assert {(each.outcome, each.replayed, each.lost) for each in found} == {(Outcome.FAILED_OVER, True, 0)}
        await market.trade.rounds()
        await market.restart(live, backup)
        await market.whole()


@pytest.mark.thorough
async def test_with_no_backup_nothing_of_it_is_done(tmp_path: Path) -> None:
    """M5: off is the default."""
    async with Market.open(tmp_path, 3, backup="off") as market:
        await market.trade.rounds()
        assert await market.backings() == {}
        assert {(member.session.backup, member.session.mirror) for member in market.members} == {(None, None)}
        await asyncio.gather(*(_says_nothing_of_it(market, node) for node in market.stack.node_names))
        assert complaints_after_kills(market.stack) == {}


async def _says_nothing_of_it(market: Market, node: str) -> None:
    metrics = await market.stack.metrics(node)
    assert [name for name, value in metrics.items() if "mirror" in name and value] == []
