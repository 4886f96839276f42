"""Of two values the one counts that was published later, however late they leave (P18, Z6): nodes in virtual time."""

from __future__ import annotations

import pytest

from tests.support.virtual_zones import VirtualZones, ZoneCluster, run_zones

pytestmark = pytest.mark.promise("P18")

MINUTE = 60.0


@pytest.mark.parametrize("last", ["A", "B"])
def test_after_minutes_without_a_link_the_value_published_last_is_left(last: str) -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        for each in (a, b):
            await each.select("value/**")
        await world.interest_known(a, b)
        newer, older = (a, b) if last == "A" else (b, a)
        world.network.cut("a-n1", "b-n1")
        await world.quiet(MINUTE)
        await older.publish("value/1", "older")
        await world.quiet(3 * MINUTE)
        await newer.publish("value/1", "newer")
        await world.quiet(2 * MINUTE)
        world.network.mend("a-n1", "b-n1")
        await world.until(lambda: a.is_linked(b) and b.is_linked(a))
        await world.quiet(30.0)
        assert [each.values["value/1"] for each in (a, b)] == ["newer", "newer"]

    run_zones(scene)


@pytest.mark.parametrize("asks_first", ["A", "B"])
def test_an_old_value_of_another_cluster_does_not_replace_a_newer_one_when_somebody_subscribes(asks_first: str) -> None:
    """Neither has ever left its cluster, so neither has a stamp."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await b.publish("value/1", "old")
        await world.quiet(5 * MINUTE)
        await a.publish("value/1", "new")
        await world.quiet(MINUTE)
        first, then = (a, b) if asks_first == "A" else (b, a)
        for each in (first, then):
            await each.select("value/**")
            await world.interest_known(a, b)
            await world.quiet(10.0)
        assert [each.values["value/1"] for each in (a, b)] == ["new", "new"]

    run_zones(scene)


def test_what_was_removed_does_not_come_back_from_a_cluster_that_has_an_older_value() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await publish_and_wait(world, b, "old")
        await publish_and_wait(world, a, "newer")
        await a.remove("value/1")
        await world.quiet(MINUTE)
        await a.select("value/**")
        await world.interest_known(a, b)
        await world.quiet(10.0)
        assert not a.values.get("value/1")

    run_zones(scene)


async def publish_and_wait(world: VirtualZones, cluster: ZoneCluster, value: str) -> None:
    await cluster.publish("value/1", value)
    await world.quiet(MINUTE)
