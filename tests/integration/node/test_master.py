"""The master of a cluster: one node at most, sticky, given up by a drain, and followed by another when it dies."""

from __future__ import annotations

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue.topology_metrics import MASTER, MASTER_CHANGES, MASTER_KNOWN
from gateway.core.types import NodeRef
from tests.support.masters import EXPIRING, cluster_with_master, master_of
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import scaled
from tests.support.virtual_cluster import VirtualCluster, VirtualNode, run_virtually

pytestmark = pytest.mark.promise("P19")

LEASE = 6.0
"""Seconds, as by default."""


def term_of(node: TestNode) -> int:
    master = node.gateway.node.cluster.master
    assert master is not None
    return master.term


async def test_the_first_node_is_the_master_and_all_know_it() -> None:
    async with cluster_with_master("n1", "n2", "n3") as nodes:
        views = await nodes[2].gateway.node.administration.nodes.list()
        assert [view.node for view in views if view.master] == ["n1"]
        for node in nodes:
            metrics = node.gateway.metrics.render().decode()
            assert f"{MASTER.name} {1.0 if node is nodes[0] else 0.0}" in metrics
            assert f"{MASTER_KNOWN.name} 1.0" in metrics


async def test_a_drain_gives_the_role_to_another_at_once_and_coming_back_does_not_take_it() -> None:
    async with cluster_with_master("n1", "n2") as [n1, n2]:
        term = term_of(n1)
        n1.gateway.node.begin_drain()
        await eventually(lambda: master_of(n1) == master_of(n2) == "n2")
        assert term_of(n2) > term
        await n1.gateway.node.undrain()
        await n1.gateway.node._membership._renew()
        assert master_of(n1) == "n2", "it is sticky"
        assert f"{MASTER_CHANGES.name} " in n2.gateway.metrics.render().decode()


async def test_a_master_that_dies_is_followed_by_another_when_its_lease_is_over() -> None:
    memory = MemoryGridServer()
    async with running_node("n2", memory=memory, **(EXPIRING | {"lease_renew": scaled(0.3)})) as n2:
        n2.gateway.node.begin_drain()
        async with running_node("n1", memory=memory, **EXPIRING) as n1:
            await eventually(lambda: master_of(n1) == "n1")
            await n2.gateway.node.undrain()
            await eventually(lambda: master_of(n2) == "n1")
            # It ends hard: it keeps its lease.
        await eventually(lambda: master_of(n2) == "n2")


@pytest.mark.parametrize("seed", range(5))
def test_all_know_the_next_master_in_the_moment_in_which_the_lease_of_one_that_died_ends(seed: int) -> None:
    """Where nodes hear each other over links: then none of them waits until it renews its own lease."""

    def known(node: VirtualNode) -> NodeRef | None:
        master = node.node.cluster.master
        return None if master is None else master.node

    async def scene(virtual: VirtualCluster) -> None:
        nodes = await virtual.start("n1", "n2", "n3")
        await virtual.until(lambda: all(known(each) is not None for each in nodes))
        (dying,) = [each for each in nodes if each.me == known(each)]
        virtual.kill(dying)
        left = [each for each in nodes if each is not dying]
        took = await virtual.until(lambda: known(left[0]) == known(left[1]) not in {None, dying.me})
        assert took <= LEASE + 0.1

    run_virtually(scene, seed=seed, lease=LEASE, lease_renew=LEASE / 3)


async def test_where_all_nodes_drain_nobody_is_the_master() -> None:
    async with cluster_with_master("n1") as [n1]:
        n1.gateway.node.begin_drain()
        await eventually(lambda: master_of(n1) is None)
        assert f"{MASTER_KNOWN.name} 0.0" in n1.gateway.metrics.render().decode()
        await n1.gateway.node.undrain()
        await eventually(lambda: master_of(n1) == "n1")
