"""What zones promise (P18), by whole nodes in virtual time: who gets what, over which link, how often."""

from __future__ import annotations

import pytest

from gateway.catalogue import zone_link_metrics as catalogue
from tests.support.virtual_zones import VirtualZones, ZoneCluster, run_zones

pytestmark = pytest.mark.promise("P18")


def events_sent(cluster: ZoneCluster, over: ZoneCluster | str) -> int:
    view = cluster.link_to(over)
    return 0 if view is None else int(view.events)


# --- Interest ---------------------------------------------------------------------------------------------------------


def test_interest_of_one_cluster_brings_it_what_is_published_at_the_others() -> None:
    """003-14, 003-15: A subscribes, B and C forward to A; they do not forward to each other (003-16)."""

    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b, c)
        await a.select("news/**")
        await world.interest_known(a, b, c)
        await b.publish("news/1", "from b")
        await c.publish("news/2", "from c")
        await a.publish("news/3", "from a")
        await world.until(lambda: {"news/1", "news/2", "news/3"} <= a.values.keys())
        await world.quiet()
        assert a.got("news/1") == ["from b"]
        assert a.got("news/2") == ["from c"]
        assert set(b.values) == {"news/1"}
        assert set(c.values) == {"news/2"}
        assert [events_sent(one, other) for one, other in ((b, a), (c, a), (b, c), (c, b), (a, b), (a, c))] == [
            1,
            1,
            0,
            0,
            0,
            0,
        ]

    run_zones(scene)


def test_interest_ends_with_the_last_one_who_selects() -> None:
    """003-10: then nothing crosses any more; other topics never did."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**", "other/1")
        await world.interest_known(a, b)
        await b.publish("news/1", "one")
        await b.publish("strange/1", "never")
        await world.until(lambda: a.values.get("news/1") == "one")
        await a.select("other/1")
        await world.interest_known(a, b)
        await b.publish("news/1", "two")
        await b.publish("other/1", "still")
        await world.until(lambda: a.values.get("other/1") == "still")
        await world.quiet()
        assert a.got("news/1") == ["one"]
        assert "strange/1" not in a.values

    run_zones(scene)


def test_new_interest_brings_current_values_once_and_then_what_follows() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        for number in range(3):
            await b.publish("news/1", str(number))
            await b.publish(f"many/{number}", "x")
        await a.select("news/1", "many/*")
        await world.until(lambda: len(a.values) == 4)
        await b.publish("news/1", "3")
        await world.until(lambda: a.values["news/1"] == "3")
        await world.quiet()
        assert a.got("news/1") == ["2", "3"]
        assert all(a.got(f"many/{number}") == ["x"] for number in range(3))

    run_zones(scene)


def test_removals_cross() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        await b.publish("news/1", "one")
        await world.until(lambda: a.values.get("news/1") == "one")
        await b.remove("news/1")
        await world.until(lambda: a.values.get("news/1") == "")

    run_zones(scene)


def test_without_interest_not_a_byte_crosses_but_signs_of_life() -> None:
    """Z2: ten thousand bytes are published each second, and the link says as much as if nothing were."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        await world.quiet()
        way = ("b-n1", "a-n1")

        async def bytes_in(seconds: int, *, publishing: bool) -> int:
            before = world.network.bytes[way]
            for number in range(seconds):
                if publishing:
                    for topic in range(10):
                        await b.publish(f"other/{topic}", f"{number}" * 1000)
                await world.quiet(1.0)
            return world.network.bytes[way] - before

        silent = await bytes_in(60, publishing=False)
        assert await bytes_in(60, publishing=True) <= silent + 60
        assert silent < 60 * 100
        assert events_sent(b, a) == 0

    run_zones(scene)


def test_topics_of_the_system_never_cross() -> None:
    """003-04 is of queues, which have no stream at all; this is of the gateway's own topics."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("$gateway/**", "**")
        await world.interest_known(a, b)
        await b.publish("$gateway/nodes/n1", "secret")
        await b.publish("news/1", "open")
        await world.until(lambda: a.values.get("news/1") == "open")
        await world.quiet()
        assert not any(topic.startswith("$gateway/nodes") for topic in a.values)
        assert all(each.text == "**" for each in a.links.knowledge.interest)

    run_zones(scene)


# --- Joins, and both examples of the source ---------------------------------------------------------------------------


def test_example_1() -> None:
    """003-26: F publishes; D and E are interested; D has a join to B; B tells A, and nobody else (003-28 to 003-32)."""

    async def scene(world: VirtualZones) -> None:
        a, b, c, d, e, f = await world.clusters(*"ABCDEF")
        await world.zone("zone-a", a, b, c)
        await world.zone("zone-b", d, e, f)
        await d.join("to-b", b, "news/**")
        await a.select("news/**")
        await e.select("news/**")
        await world.interest_known(d, e, f)
        await world.interest_known(a, b, c)
        await world.until(lambda: d.is_linked("to-b"))
        await f.publish("news/1", "hello")
        await world.until(lambda: a.values.get("news/1") == "hello" and e.values.get("news/1") == "hello")
        await world.quiet()
        for each in (a, b, d, e, f):
            assert each.got("news/1") == ["hello"], each.name
        assert c.values == {}
        sent = {
            (one.name, other if isinstance(other, str) else other.name): events_sent(one, other)
            for one in (a, b, c, d, e, f)
            for other in (a, b, c, d, e, f, "to-b")
            if one is not other
        }
        assert {way: count for way, count in sent.items() if count} == {
            ("F", "D"): 1,
            ("F", "E"): 1,
            ("D", "to-b"): 1,
            ("B", "A"): 1,
        }

    run_zones(scene)


def test_example_2() -> None:
    """003-27: I publishes; G has joins to C and to D (003-31); each tells its interested members; E gets nothing."""

    async def scene(world: VirtualZones) -> None:
        a, b, c, d, e, f, g, h, i = await world.clusters(*"ABCDEFGHI")
        await world.zone("zone-a", a, b, c)
        await world.zone("zone-b", d, e, f)
        await world.zone("zone-c", g, h, i)
        await g.join("to-c", c, "news/**")
        await g.join("to-d", d, "news/**")
        for each in (a, b, f, h):
            await each.select("news/**")
        for zone in ((a, b, c), (d, e, f), (g, h, i)):
            await world.interest_known(*zone)
        await world.until(lambda: g.is_linked("to-c") and g.is_linked("to-d"))
        await i.publish("news/1", "hello")
        interested = (a, b, f, h)
        await world.until(lambda: all(each.values.get("news/1") == "hello" for each in interested))
        await world.quiet()
        for each in (a, b, c, d, f, g, h, i):
            assert each.got("news/1") == ["hello"], each.name
        assert e.values == {}
        everybody = (a, b, c, d, e, f, g, h, i)
        sent = {
            (one.name, other if isinstance(other, str) else other.name): events_sent(one, other)
            for one in everybody
            for other in (*everybody, "to-c", "to-d")
            if one is not other
        }
        assert {way: count for way, count in sent.items() if count} == {
            ("I", "H"): 1,
            ("I", "G"): 1,
            ("G", "to-c"): 1,
            ("G", "to-d"): 1,
            ("C", "A"): 1,
            ("C", "B"): 1,
            ("D", "F"): 1,
        }

    run_zones(scene)


def test_a_circle_of_joins_ends_and_each_cluster_gets_each_event_once() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        for each in (a, b, c):
            await each.keep_history("log/**")
        await a.join("to-b", b, "**")
        await b.join("to-c", c, "**")
        await c.join("to-a", a, "**")
        await world.until(lambda: a.is_linked("to-b") and b.is_linked("to-c") and c.is_linked("to-a"))
        for number in range(10):
            for each in (a, b, c):
                await each.publish("log/1", f"{each.name}{number}")
                await each.publish("value/1", f"{each.name}{number}")
        await world.until(lambda: all(len(each.got("log/1")) == 30 for each in (a, b, c)))
        await world.quiet(30.0)
        for each in (a, b, c):
            assert sorted(each.got("log/1")) == sorted({f"{one}{number}" for one in "ABC" for number in range(10)})
        assert len({each.values["value/1"] for each in (a, b, c)}) == 1
        stopped = sum(each.node.metrics.count(catalogue.ZONE_STOPPED, label="loop") for each in (a, b, c))
        assert stopped > 0

    run_zones(scene)


def test_what_comes_by_two_routes_is_taken_once() -> None:
    """D is joined to A and to B, which are in one zone: C gets each event from both, and takes it once."""

    async def scene(world: VirtualZones) -> None:
        a, b, c, d = await world.clusters("A", "B", "C", "D")
        await world.zone("z", a, b, c)
        for each in (a, b, c, d):
            await each.keep_history("log/**")
        await d.join("to-a", a, "**")
        await d.join("to-b", b, "**")
        await c.select("**")
        await world.interest_known(a, b, c)
        await world.until(lambda: d.is_linked("to-a") and d.is_linked("to-b"))
        for number in range(20):
            await d.publish("log/1", str(number))
            await d.publish("value/1", str(number))
        await world.until(lambda: len(c.got("log/1")) == 20 and c.values["value/1"] == "19")
        await world.quiet()
        assert c.got("log/1") == [str(number) for number in range(20)]
        assert c.got("value/1") == [str(number) for number in range(20)]
        assert c.node.metrics.count(catalogue.ZONE_NOT_APPLIED, label="duplicate") == 20

    run_zones(scene)


def test_a_join_carries_what_it_selects_and_no_further_than_it_may() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await a.join("to-b", b, "news/**")
        await b.join("to-c", c, "**", most_hops=1)
        await world.until(lambda: a.is_linked("to-b") and b.is_linked("to-c"))
        await a.publish("news/1", "one")
        await a.publish("other/1", "two")
        await b.publish("other/2", "three")
        await world.until(lambda: b.values.get("news/1") == "one" and c.values.get("other/2") == "three")
        await world.quiet()
        assert "other/1" not in b.values
        assert set(c.values) == {"other/2"}

    run_zones(scene)


# --- Values and histories ---------------------------------------------------------------------------------------------


def test_values_of_one_topic_converge_whoever_publishes_and_however_slow_links_are() -> None:
    """Z6."""

    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b, c)
        for each in (a, b, c):
            await each.select("value/**")
        await world.interest_known(a, b, c)
        world.network.delay(0.7, "a-n1", "b-n1")
        world.network.delay(0.2, "c-n1", "a-n1")
        world.network.delay(1.3, "b-n1", "c-n1")
        for number in range(100):
            await (a, b, c)[number % 3].publish(f"value/{number % 2}", str(number))
            await world.quiet(0.05)
        await world.quiet(10.0)
        for topic in ("value/0", "value/1"):
            assert len({each.values[topic] for each in (a, b, c)}) == 1

    run_zones(scene)


def test_histories_take_all_events_of_all_clusters_once_in_the_order_of_each() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b, c)
        for each in (a, b, c):
            await each.keep_history("log/**")
            await each.select("log/**")
        await world.interest_known(a, b, c)
        for number in range(60):
            each = (a, b, c)[number % 3]
            await each.publish("log/1", f"{each.name}{number}")
        await world.until(lambda: all(len(each.got("log/1")) == 60 for each in (a, b, c)))
        await world.quiet()
        for each in (a, b, c):
            got = each.got("log/1")
            assert len(got) == len(set(got)) == 60
            for name in "ABC":
                numbers = [int(value[1:]) for value in got if value[0] == name]
                assert numbers == sorted(numbers)

    run_zones(scene)


# --- Members ----------------------------------------------------------------------------------------------------------


def test_a_cluster_that_leaves_is_told_of_and_gets_nothing_more() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b, c)
        await a.select("**")
        await world.interest_known(a, b, c)
        await a.node.grid.zones.leave(a.id, made=world.now())
        await world.until(lambda: b.link_to(a) is None and c.link_to(a) is None)
        await b.publish("news/1", "secret")
        await world.quiet(20.0)
        assert a.values == {}
        assert b.is_linked(c)
        assert c.is_linked(b)

    run_zones(scene)


def test_a_new_member_is_known_to_all_by_one_of_them() -> None:
    """003-20: it knows the uid, the secret and a URL; the seeds are met, and they tell of the others."""

    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b)
        await c.enter("z", seeds=a.urls)
        await world.linked(a, b, c)
        await c.select("news/**")
        await world.interest_known(a, b, c)
        await b.publish("news/1", "hello")
        await world.until(lambda: c.values.get("news/1") == "hello")

    run_zones(scene)


def test_a_zone_is_met_by_its_name_before_it_is_entered() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b, c = await world.clusters("A", "B", "C")
        await world.zone("z", a, b)
        met = await c.links.introduce(["wss://nobody:1", *b.urls], reference="z", key=world.key)
        assert met == ("z", "z", b.id)

    run_zones(scene)


def test_a_cluster_that_rejoins_is_a_member_again() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.node.grid.zones.leave(a.id, made=world.now())
        await world.until(lambda: b.link_to(a) is None)
        await a.enter("z", seeds=b.urls)
        await world.linked(a, b)

    run_zones(scene)
