"""Zones while things break (P18): carriers die and wake, links are cut, slow or deaf, streams end, grids are lost."""

from __future__ import annotations

import random

import pytest

from gateway.app.zone_links.carriers import preferred
from gateway.catalogue import log_events
from gateway.catalogue import zone_link_log_events as log
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.types import NodeRef
from gateway.ports import LinkName
from tests.support.virtual_cluster import VirtualNode
from tests.support.virtual_zones import SECRET, VirtualZones, ZoneCluster, run_zones

pytestmark = pytest.mark.promise("P18")

LEASE = {"lease": 3.0, "lease_renew": 0.5}
"""Settings: a carrier that dies is replaced within some seconds."""


def carrier_of(cluster: ZoneCluster, other: ZoneCluster) -> VirtualNode | None:
    """Find the node that sends to another cluster."""
    for each in cluster.cluster.nodes.values():
        links = each.node.linked_clusters
        if not each.dead and links is not None and f"{other.id}/0" in links.carriers.carried:
            return each
    return None


async def one_carrier(world: VirtualZones, cluster: ZoneCluster, other: ZoneCluster) -> VirtualNode:
    await world.until(lambda: carrier_of(cluster, other) is not None and cluster.is_linked(other))
    found = carrier_of(cluster, other)
    assert found is not None
    return found


def lose_everything(cluster: ZoneCluster) -> None:
    """Have the grid of a cluster come back with nothing."""
    cluster.cluster.server.go_away()
    cluster.cluster.server.come_back(restarted=True, emptied=True)


def test_another_node_goes_on_where_a_carrier_died() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A")
        (b,) = await world.clusters("B", nodes=("n1", "n2"))
        await world.zone("z", a, b)
        await a.keep_history("log/**")
        await b.keep_history("log/**")
        await a.select("log/**")
        await world.interest_known(a, b)
        first = await one_carrier(world, b, a)
        for number in range(50):
            await b.publish("log/1", str(number))
            if number == 20:
                b.cluster.kill(first)
        second = await one_carrier(world, b, a)
        assert second is not first
        await world.until(lambda: len(a.got("log/1")) == 50)
        await world.quiet()
        assert a.got("log/1") == [str(number) for number in range(50)]

    run_zones(scene, **LEASE)


def test_a_carrier_that_slept_and_wakes_changes_nothing() -> None:
    """Its lease has gone to another node meanwhile; what it sends late is refused, or had come already."""

    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A")
        (b,) = await world.clusters("B", nodes=("n1", "n2"))
        await world.zone("z", a, b)
        await a.keep_history("log/**")
        await b.keep_history("log/**")
        await a.select("log/**")
        await world.interest_known(a, b)
        sleeper = await one_carrier(world, b, a)
        assert sleeper.zone_links is not None
        await b.publish("log/1", "0")
        await world.until(lambda: a.got("log/1") == ["0"])
        # It hears nothing and is not heard, and its grid is deaf, too.
        world.network.silence(sleeper.zone_links.name)
        sleeper.grid.cut()
        for number in range(1, 30):
            await b.publish("log/1", str(number))
            await world.quiet(0.5)
        await world.until(lambda: len(a.got("log/1")) == 30)
        world.network.wake(sleeper.zone_links.name)
        sleeper.grid.mend()
        for number in range(30, 60):
            await b.publish("log/1", str(number))
            await world.quiet(0.2)
        await world.until(lambda: len(a.got("log/1")) == 60)
        await world.quiet()
        assert a.got("log/1") == [str(number) for number in range(60)]
        holders = [
            each
            for each in b.cluster.nodes.values()
            if each.node.linked_clusters is not None and f"{a.id}/0" in each.node.linked_clusters.carriers.carried
        ]
        assert len(holders) == 1

    run_zones(scene, **LEASE)


def test_what_is_told_of_members_while_the_grid_is_away_is_learnt_when_it_is_back() -> None:
    """Found by ``make chaos``: it ended the link, in a task that nobody looked at, and was never told again."""

    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b)
        # B hears of C from A alone.
        b.cluster.server.go_away()
        await c.enter("z", seeds=a.urls, secret=SECRET)
        await world.until(lambda: a.is_linked(c))
        await world.quiet(2.0)
        b.cluster.server.come_back()
        await world.until(lambda: b.is_linked(c) and c.is_linked(b))
        assert b.node.log.of(log_events.BACKGROUND_TASK_FAILED) == []

    run_zones(scene, **LEASE)


def test_links_of_many_clusters_are_shared_out_among_nodes() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A", nodes=("n1", "n2", "n3"))
        others = await world.clusters(*"BCDEFGHIJ")
        await world.zone("z", a, *others)
        await world.quiet(10.0)
        carried = _carried(a)
        assert sum(map(len, carried.values())) == len(others)
        assert all(len(links) < len(others) for links in carried.values())

    run_zones(scene, **LEASE)


def test_links_are_shared_out_again_with_a_node_that_comes() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A", nodes=("n1",))
        others = await world.clusters(*"BCDEFGHIJ")
        await world.zone("z", a, *others)
        assert [len(links) for links in _carried(a).values()] == [len(others)]
        await a.cluster.start("n2", "n3")
        nodes = sorted(each.me for each in a.cluster.nodes.values())

        def are_where_they_should_be() -> bool:
            carried = _carried(a)
            return sum(map(len, carried.values())) == len(others) and all(
                preferred(link, nodes) == node for node, links in carried.items() for link in links
            )

        # By chance a node may be the one that should have none of them.
        await world.until(are_where_they_should_be)
        await world.quiet(60.0)
        assert are_where_they_should_be()

    run_zones(scene, **LEASE)


def test_links_that_others_dial_are_spread_over_the_nodes_and_come_back_together() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A", nodes=("n1", "n2", "n3", "n4"))
        others = await world.clusters(*"BCDEFGHIJKLMNOP")
        await world.zone("z", a, *others)
        await world.quiet(15.0)

        def dialled() -> list[int]:
            links = [each.node.linked_clusters for each in a.cluster.nodes.values()]
            return [sum(view.direction == "in" for view in each.views()) for each in links if each is not None]

        assert sum(dialled()) == len(others)
        assert max(dialled()) <= len(others) // 2
        world.network.go_down()
        await world.until(lambda: not any(each.is_linked(a) for each in others))
        await world.quiet(3.0)
        world.network.come_back()
        await world.linked(a, *others)

    run_zones(scene, **LEASE)


def _carried(cluster: ZoneCluster) -> dict[NodeRef, set[LinkName]]:
    """Tell which links each node of a cluster carries."""
    return {
        each.me: set(each.node.linked_clusters.carriers.carried)
        for each in cluster.cluster.nodes.values()
        if each.node.linked_clusters is not None
    }


def test_a_cut_link_comes_back_and_nothing_is_missing() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.keep_history("log/**")
        await b.keep_history("log/**")
        await a.select("log/**", "value/**")
        await world.interest_known(a, b)
        chance = random.Random(7)
        for number in range(200):
            await b.publish("log/1", str(number))
            await b.publish("value/1", str(number))
            await world.quiet(0.1)
            match chance.randrange(12):
                case 0:
                    world.network.break_all("a-n1", "b-n1")
                case 1:
                    world.network.drop_after(chance.randrange(3), "b-n1", "a-n1")
                case 2:
                    world.network.cut("a-n1", "b-n1")
                    await world.quiet(chance.random() * 8)
                    world.network.mend("a-n1", "b-n1")
        await world.until(lambda: len(a.got("log/1")) == 200 and a.values["value/1"] == "199")
        await world.quiet()
        assert a.got("log/1") == [str(number) for number in range(200)]
        assert a.node.metrics.count(catalogue.ZONE_NOT_APPLIED, label="duplicate") < 200

    run_zones(scene)


@pytest.mark.parametrize("deaf", ["sender", "receiver"])
def test_a_link_that_is_deaf_in_one_way_is_broken_and_made_anew(deaf: str) -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        ways = {"sender": ("b-n1", "a-n1"), "receiver": ("a-n1", "b-n1")}
        world.network.stall(*ways[deaf])
        await b.publish("news/1", "late")
        await world.until(lambda: not b.is_linked(a))
        world.network.mend("a-n1", "b-n1")
        await world.until(lambda: a.values.get("news/1") == "late")
        await world.quiet()
        assert a.got("news/1") == ["late"]

    run_zones(scene)


def test_a_link_that_dies_while_it_is_full_is_noticed_by_both_ends() -> None:
    """Nothing can be said any more, not even a beat, and nothing arrives: neither end is told by the other."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        for way in (("b-n1", "a-n1"), ("a-n1", "b-n1")):
            world.network.stall(*way)
        for number in range(160):
            await b.publish(f"news/{number}", "x" * 25_000)
        await world.until(lambda: not b.is_linked(a))
        await world.until(lambda: not _receives(a))
        world.network.mend("a-n1", "b-n1")
        await world.until(lambda: len(a.values) == 160)

    run_zones(scene)


def _receives(cluster: ZoneCluster) -> bool:
    """Tell whether a cluster has a link that another one has dialled."""
    links = cluster.node.node.linked_clusters
    return links is not None and any(each.direction == "in" for each in links.views())


def test_a_slow_link_holds_nobody_else_up_and_is_bounded() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b, c)
        for each in (a, b):
            await each.select("news/**")
        await world.interest_known(a, b, c)
        world.network.delay(3.0, "c-n1", "a-n1")
        for number in range(2_000):
            await c.publish(f"news/{number % 50}", "x" * 500 + str(number))
        # B has all of it long before A has anything.
        await world.until(lambda: len(b.values) == 50 and b.values["news/49"].endswith("1999"), longest=2.5)
        await world.until(lambda: len(a.values) == 50 and a.values["news/49"].endswith("1999"))

    run_zones(scene)


def test_a_remote_that_was_away_longer_than_the_stream_reaches_has_current_values_and_is_told_of_the_gap() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A")
        (b,) = await world.clusters("B", stream_length=100)
        await world.zone("z", a, b)
        await a.keep_history("log/**")
        await b.keep_history("log/**")
        await a.select("log/**", "value/**")
        await world.interest_known(a, b)
        await b.publish("log/1", "0")
        await b.publish("value/1", "0")
        await world.until(lambda: len(a.values) == 2)
        world.network.cut("a-n1", "b-n1")
        await world.until(lambda: not b.is_linked(a))
        for number in range(1, 1_000):
            await b.publish("log/1", str(number))
            await b.publish("value/1", str(number))
        world.network.mend("a-n1", "b-n1")
        await world.until(lambda: a.values["value/1"] == "999")
        await b.publish("log/1", "1000")
        await world.until(lambda: a.got("log/1")[-1] == "1000")
        assert a.node.log.of(log.ZONE_GAP)
        assert a.node.metrics.count(catalogue.ZONE_GAPS) >= 1
        got = [int(each) for each in a.got("log/1")]
        assert got == sorted(set(got))

    run_zones(scene)


def test_a_receiver_whose_grid_lost_writes_asks_for_current_values() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("value/**")
        await world.interest_known(a, b)
        for number in range(5):
            await b.publish(f"value/{number}", "before")
        await world.until(lambda: len(a.values) == 5)
        await world.quiet()
        lose_everything(a)
        a.values.clear()
        await world.zone("z", a, b)
        await a.tell_interest()
        await world.until(lambda: len([each for each in a.values.values() if each == "before"]) == 5)
        await b.publish("value/1", "after")
        await world.until(lambda: a.values.get("value/1") == "after")

    run_zones(scene)


def test_a_sender_whose_grid_lost_writes_goes_on() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("value/**")
        await world.interest_known(a, b)
        await b.publish("value/1", "before")
        await world.until(lambda: a.values.get("value/1") == "before")
        await world.quiet()
        lose_everything(b)
        await world.zone("z", a, b)
        await b.publish("value/1", "after")
        await world.until(lambda: a.values.get("value/1") == "after")

    run_zones(scene)


def test_interest_equals_what_is_selected_a_second_after_the_last_change_under_cuts() -> None:
    """Z5."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        chance = random.Random(3)
        for _ in range(60):
            await a.select(*{f"t/{chance.randrange(20)}/**" for _ in range(chance.randrange(10))})
            if chance.random() < 0.3:
                world.network.break_all("a-n1", "b-n1")
            await world.quiet(chance.random())
        await world.until(lambda: b.is_linked(a))
        await world.quiet(1.0)
        links = b.node.node.linked_clusters
        assert links is not None
        heard = links._carried[next(name for name in links._carried if name.startswith(a.id))].progress.heard
        assert set(heard.selectors) == set(a.links.knowledge.interest)

    run_zones(scene)


def test_stopping_a_node_moves_its_links_at_once() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A")
        (b,) = await world.clusters("B", nodes=("n1", "n2"))
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        carrier = await one_carrier(world, b, a)
        links = carrier.node.linked_clusters
        assert links is not None
        await links.close()
        carrier.dead = True
        took = await world.until(lambda: b.is_linked(a))
        assert took < LEASE["lease"]
        await b.publish("news/1", "hello")
        await world.until(lambda: a.values.get("news/1") == "hello")

    run_zones(scene, **LEASE)


@pytest.mark.parametrize("messages", range(6))
def test_current_values_come_though_the_link_breaks_in_the_middle_of_them(messages: int) -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        for number in range(1_500):
            await b.publish(f"value/{number}", "x")
        world.network.drop_after(messages, "b-n1", "a-n1")
        await a.select("value/**")
        await world.until(lambda: len(a.values) == 1_500)

    run_zones(scene)
