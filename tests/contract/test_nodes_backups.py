"""The contract of ``NodeDirectory``: who has copies of whose sessions, and for how long that is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.adapters.redis.keys import NODES_TAG
from gateway.core.wire.codes import MirrorMode
from gateway.ports import GONE_BACKUPS, Backup, Grid
from tests.contract.harness import LONG, Harness, RedisHarness, node
from tests.support.redis_cluster import RedisCluster

N1, N2, N3 = node("n1"), node("n2"), node("n3")

AT_N2 = Backup(node=N2, mode=MirrorMode.ASYNC, whole=3, of=7)
AT_N3 = Backup(node=N3, mode=MirrorMode.STRICT, whole=0, of=0)


async def joined(harness: Harness, *names: str, lease: float = LONG) -> list[Grid]:
    grids = [await harness.grid(name) for name in names]
    for name, grid in zip(names, grids, strict=True):
        await grid.nodes.join(node(name), lease=lease)
    return grids


async def call(harness: RedisHarness, *arguments: str) -> Any:
    """Ask the server that holds what belongs to no partition."""
    servers = harness.servers
    return await (servers.master_of(NODES_TAG) if isinstance(servers, RedisCluster) else servers).call(*arguments)


async def test_what_a_node_tells_of_its_backup_is_known_to_all(harness: Harness) -> None:
    """Tell which node keeps copies of the sessions of *node*; replaces what it told before."""
    n1, n2 = await joined(harness, "n1", "n2")
    assert await n2.nodes.backups(N1) == {}
    assert await n1.nodes.tell_backup(N1, AT_N2, keep=LONG)
    assert await n2.nodes.backups(N1) == {N1: AT_N2}
    assert await harness.asked_again(n1, lambda: n1.nodes.tell_backup(N1, AT_N3, keep=LONG))
    assert await n2.nodes.backups(N1) == await n1.nodes.backups(N3, N1) == {N1: AT_N3}


async def test_all_backups_are_told_if_no_node_is_named(harness: Harness) -> None:
    """Tell who keeps copies of the sessions of *nodes*, or of any node if none is named."""
    n1, n2, n3 = await joined(harness, "n1", "n2", "n3")
    assert await n3.nodes.backups() == {}
    await n1.nodes.tell_backup(N1, AT_N2, keep=LONG)
    await n2.nodes.tell_backup(N2, AT_N3, keep=LONG)
    assert await n3.nodes.backups() == {N1: AT_N2, N2: AT_N3}
    assert await n3.nodes.backups(N2) == {N2: AT_N3}


async def test_a_node_that_has_no_backup_any_more_says_so(harness: Harness) -> None:
    """backup: None if nobody has."""
    (n1,) = await joined(harness, "n1")
    await n1.nodes.tell_backup(N1, AT_N2, keep=LONG)
    assert await harness.asked_again(n1, lambda: n1.nodes.tell_backup(N1, None, keep=LONG))
    assert await n1.nodes.backups() == {}


@pytest.mark.promise("P3")
async def test_whoever_has_no_lease_tells_nothing(harness: Harness) -> None:
    """False, and nothing is done, if the lease of *node* does not hold."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    assert not await n1.nodes.tell_backup(N1, AT_N2, keep=LONG)
    assert await n1.nodes.backups() == {}
    await n1.nodes.join(N1, lease=harness.roomy)
    await n2.nodes.join(N2, lease=LONG)
    assert await n1.nodes.tell_backup(N1, AT_N2, keep=LONG)
    await harness.advance(harness.roomy)
    assert not await n1.nodes.tell_backup(N1, AT_N3, keep=LONG)
    assert not await n1.nodes.tell_backup(N1, None, keep=LONG)
    assert await n2.nodes.backups(N1) == {N1: AT_N2}, "what it told while it lived is what clients come back to"


@pytest.mark.thorough
@pytest.mark.promise("P17")
async def test_the_backup_of_a_dead_node_is_known_until_nobody_can_ask_for_its_copies(harness: Harness) -> None:
    """What it told outlives its lease. Keep: seconds for which that is remembered when *node* has none any more."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=harness.roomy)
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.tell_backup(N1, AT_N2, keep=harness.roomy)
    await harness.advance(harness.roomy)
    assert await n2.nodes.backups(N1) == {N1: AT_N2}, "it expired, and nobody has taken over yet"
    await n2.nodes.take_over(N1, by=N2, within=LONG)
    await harness.asked_again(n2, lambda: n2.nodes.finish_takeover(N1, by=N2))
    assert await n2.nodes.backups(N1) == {N1: AT_N2}
    await harness.advance(harness.roomy)
    assert await n2.nodes.backups(N1) == await n2.nodes.backups() == {}


async def test_the_backup_of_a_node_that_left_is_known_as_long(harness: Harness) -> None:
    """Sessions whose window runs may have been parked there."""
    n1, n2 = await joined(harness, "n1", "n2")
    await n1.nodes.tell_backup(N1, AT_N2, keep=harness.roomy)
    await n2.nodes.tell_backup(N2, AT_N3, keep=harness.roomy)
    await harness.asked_again(n1, lambda: n1.nodes.leave(N1))
    assert await n2.nodes.backups(N1) == {N1: AT_N2}
    await harness.advance(harness.roomy)
    assert await n2.nodes.backups() == {N2: AT_N3}, "of those who live, it is known for ever"


async def test_a_node_that_comes_back_tells_anew(harness: Harness) -> None:
    (n1,) = await joined(harness, "n1")
    await n1.nodes.tell_backup(N1, AT_N2, keep=harness.short)
    await n1.nodes.leave(N1)
    await n1.nodes.join(N1, lease=LONG)
    assert await n1.nodes.tell_backup(N1, AT_N3, keep=harness.short)
    await harness.advance(harness.short)
    assert await n1.nodes.backups() == {N1: AT_N3}


async def test_nodes_that_die_again_and_again_do_not_fill_the_grid(harness: Harness) -> None:
    """Of nodes that are gone, ``GONE_BACKUPS`` are remembered; those are forgotten that were to be forgotten first."""
    (grid,) = await joined(harness, "n2")
    await grid.nodes.tell_backup(N2, AT_N3, keep=LONG)
    runs = [node("n1", f"run-{number}") for number in range(GONE_BACKUPS + 3)]
    for number, each in enumerate(runs):
        await grid.nodes.join(each, lease=LONG)
        await grid.nodes.tell_backup(each, AT_N2, keep=LONG + 60 * number)
        await grid.nodes.leave(each)
    assert (await grid.nodes.backups()).keys() == {N2, *runs[3:]}


async def test_what_is_no_backup_is_passed_over(harness: Harness) -> None:
    """Those whose backup an unknown release has told in its own way are missing."""
    if not isinstance(harness, RedisHarness):
        pytest.skip("nobody else writes into the memory of this process")
    (grid,) = await joined(harness, "n1")
    await grid.nodes.tell_backup(N1, AT_N2, keep=LONG)
    key = f"{harness.prefix}:{{nodes}}:backups"
    foreign = {
        "n4:first": "600000 0 []",
        "n5:first": '600000 0 {"backup": "n2:first", "mode": "by pigeon", "whole": 1, "of": 1}',
        "n6:first": '600000 0 {"backup": "n2:first", "mode": "sync", "whole": true, "of": 1}',
        "no-node": '600000 0 {"backup": "n2:first", "mode": "sync", "whole": 1, "of": 1}',
        "n7:first": "nonsense",
    }
    for name, stored in foreign.items():
        await call(harness, "HSET", key, name, stored)
    assert await grid.nodes.backups() == {N1: AT_N2}
    await call(harness, "DEL", key)
    await call(harness, "SET", key, "of another program")
    assert await grid.nodes.backups() == {}
    assert await grid.nodes.tell_backup(N1, AT_N3, keep=LONG)
    assert await grid.nodes.backups() == {N1: AT_N3}


async def test_nothing_is_left_for_ever_of_a_cluster_that_ended(harness: Harness) -> None:
    """Expires as a whole when no such node has a lease."""
    if not isinstance(harness, RedisHarness):
        pytest.skip("the memory goes with the process")
    (grid,) = await joined(harness, "n1")
    key = f"{harness.prefix}:{{nodes}}:backups"
    await grid.nodes.tell_backup(N1, AT_N2, keep=LONG)
    assert await call(harness, "PTTL", key) == -1
    await grid.nodes.leave(N1)
    assert 0 < await call(harness, "PTTL", key) <= LONG * 1000
    await grid.nodes.join(N1, lease=LONG)
    await grid.nodes.tell_backup(N1, AT_N2, keep=LONG)
    assert await call(harness, "PTTL", key) == -1
