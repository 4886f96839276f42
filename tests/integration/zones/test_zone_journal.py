"""What the journal tells of links with other clusters, and of the role of the master."""

from __future__ import annotations

import pytest

from gateway.core.journal import JOURNAL_PARTITIONS, Record, event_type, read_records
from gateway.settings import Settings
from tests.support.virtual_cluster import VirtualCluster, run_virtually
from tests.support.virtual_zones import VirtualZones, ZoneCluster, run_zones

pytestmark = pytest.mark.promise("P18")


def records(cluster: VirtualCluster, name: str) -> list[Record]:
    """Read the events of one kind from the journal of a cluster."""
    kind = event_type(name)
    assert kind is not None
    found: list[Record] = []
    for partition in range(JOURNAL_PARTITIONS):
        stream = cluster.server.journal(partition)
        for entry in () if stream is None else stream.entries:
            found += [each for each in read_records(entry.events) if isinstance(each, dict) and each["type"] == name]
    return sorted(found, key=lambda each: each["at"])


def summed(cluster: ZoneCluster, direction: str) -> dict[str, int]:
    """Add up what was counted of the links of one direction."""
    told = [each for each in records(cluster.cluster, "zone_link_measured") if each["direction"] == direction]
    return {name: sum(each[name] for each in told) for name in ("events", "bytes", "taken", "repeated", "refused")}


def test_what_crosses_a_link_is_counted_at_both_ends() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        for number in range(30):
            await b.publish("news/1", f"{number:08}")
        await b.publish("other/1", "nobody wants it")
        await world.quiet(130.0)
        size = 30 * len(b'"00000000"')
        assert summed(b, "out") == {"events": 30, "bytes": size, "taken": 0, "repeated": 0, "refused": 0}
        assert summed(a, "in") == {"events": 30, "bytes": size, "taken": 30, "repeated": 0, "refused": 0}
        (told,) = records(a.cluster, "zone_link_measured")
        assert told["link"] == f"from:{b.id}/0"
        assert b.id.startswith(told["remote"])
        assert told["since"] < told["until"]
        # Links on which nothing happens are not told of.
        assert len(records(b.cluster, "zone_link_measured")) == 1

    run_zones(scene)


def test_what_may_not_be_taken_is_counted() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        most = Settings(node="n1").limit_value_bytes
        await b.publish("news/1", "x" * most)
        await b.publish("news/2", "small")
        await world.quiet(130.0)
        counted = summed(a, "in")
        assert (counted["events"], counted["taken"], counted["refused"]) == (2, 1, 1)

    run_zones(scene)


def test_a_link_that_comes_and_goes_is_told_of_by_both_ends() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await world.quiet()
        world.network.cut("a-n1", "b-n1")
        await world.until(lambda: not b.is_linked(a) and not a.is_linked(b))
        world.network.mend("a-n1", "b-n1")
        await world.linked(a, b)
        await world.quiet()
        for each in (a, b):
            for direction in ("out", "in"):
                came = [one for one in records(each.cluster, "zone_link_connected") if one["direction"] == direction]
                went = [one for one in records(each.cluster, "zone_link_lost") if one["direction"] == direction]
                # The first one is given up as soon as the cluster has told where it is.
                assert len(came) == len(went) + 1 >= 2
                assert {"lost"} <= {one["reason"] for one in went} <= {"lost", "given_up"}
                assert all(one["since"] < one["at"] for one in went)

    run_zones(scene)


def test_a_gap_is_told_of_by_both_ends() -> None:
    async def scene(world: VirtualZones) -> None:
        (a,) = await world.clusters("A")
        (b,) = await world.clusters("B", stream_length=100)
        await world.zone("z", a, b)
        await a.select("value/**")
        await world.interest_known(a, b)
        await b.publish("value/1", "0")
        await world.until(lambda: len(a.values) == 1)
        world.network.cut("a-n1", "b-n1")
        await world.until(lambda: not b.is_linked(a))
        for number in range(1, 1_000):
            await b.publish("value/1", str(number))
        world.network.mend("a-n1", "b-n1")
        await world.until(lambda: a.values["value/1"] == "999")
        await world.quiet()
        (here,), (there,) = records(a.cluster, "zone_gap_found"), records(b.cluster, "zone_gap_found")
        assert (here["direction"], there["direction"]) == ("in", "out")

    run_zones(scene)


@pytest.mark.promise("P19")
def test_who_becomes_the_master_tells_so_once() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        (n1,) = await cluster.start("n1")
        (n2,) = await cluster.start("n2")
        # What a node that dies has not told yet is lost.
        await cluster.until(lambda: len(records(cluster, "master_elected")) == 1)
        cluster.kill(n1)
        await cluster.until(lambda: n2.node.cluster.is_master)
        await cluster.until(lambda: len(records(cluster, "master_elected")) == 2)
        first, second = records(cluster, "master_elected")
        assert (first["node"], first.get("peer")) == ("n1", None)
        assert (second["node"], second["peer"], second["peer_incarnation"]) == ("n2", "n1", n1.me.incarnation)
        assert second["term"] == first["term"] + 1

    run_virtually(scene)


@pytest.mark.promise("P19")
def test_a_cluster_without_a_master_is_told_of() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        await cluster.until(lambda: len(records(cluster, "master_elected")) == 1)
        master, other = (n1, n2) if n1.node.cluster.is_master else (n2, n1)
        # Who is not ready takes no role.
        other.node.readiness.reasons = lambda: ["a test says so"]  # type: ignore[method-assign]
        cluster.kill(master)
        await cluster.until(lambda: other.node.cluster.master is None)
        await cluster.until(lambda: bool(records(cluster, "master_missed")))
        (told,) = records(cluster, "master_missed")
        (elected,) = records(cluster, "master_elected")
        assert (told["node"], told["peer"], told["term"]) == (other.me.node, master.me.node, elected["term"])

    run_virtually(scene)
