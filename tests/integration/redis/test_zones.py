"""Zones, and what crosses between clusters, on a Redis that runs full, is tampered with, or is of a later release."""

from __future__ import annotations

import pytest

from gateway.catalogue import log_events
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports import GridRefused, LinkName, Taken, ZoneTable
from tests.contract.test_origins import LATER, LIMITS, LOG, PARTITION, apply, event, value_of
from tests.contract.test_zones import Interests, Tables, join, member, selectors, zone
from tests.integration.redis.support import N2, Bench
from tests.support.times import scaled

NODE = NodeRef(NodeId("n1"), Incarnation("first"))


def key(bench: Bench, name: str) -> str:
    return f"{bench.prefix}:{{nodes}}:{name}"


def origins(bench: Bench) -> str:
    return f"{bench.prefix}:{{t{PARTITION}}}:origins"


async def test_a_full_redis_takes_changes_of_zones_and_no_events(forgetful: Bench) -> None:
    """All of it works also when the grid's memory is full. / GridRefused is certain: nothing was done for it."""
    grid = await forgetful.grid()
    await grid.nodes.join(NODE, lease=600.0)
    await apply(grid, event("1", at=1))
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(Exception, match="used memory"):
        await forgetful.server.call("SET", "anything", "else")
    await grid.zones.enter(zone(), member(), made=1.0)
    assert await grid.zones.put(join()) == 1
    await grid.zones.put_interest(NODE, selectors("a/**"), keep=1.0)
    assert await grid.zones.carry(NODE, [LinkName("there")], lease=scaled(5.0))
    (refused,) = await apply(grid, event("2", at=2))
    assert isinstance(refused, GridRefused)
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "0")
    assert isinstance((await apply(grid, event("2", at=2)))[0], Taken), "it can be sent again"


async def test_what_a_later_release_wrote_is_left_out_and_told(bench: Bench) -> None:
    grid = await bench.grid()
    await grid.zones.put(zone(), join())
    await bench.server.call("HSET", key(bench, "zones"), join().row, '1000.0 {"v":2}', "later kind", '1 {"v":1}')
    async with Tables(grid) as tables:
        await tables.shows(ZoneTable.of([zone()]))
        await grid.zones.put(zone("z2"))
        await tables.shows(ZoneTable.of([zone(), zone("z2")]))
    assert any(each is log_events.GRID_FOREIGN_DATA for each, _ in bench.log.events)


@pytest.mark.parametrize(
    ("entry", "fields"),
    [("*", ("a", "b")), ("2-0", ("join to-south", "")), ("2-0", ("x",) * 4), ("2-0", (b"\xff", "1"))],
)
@pytest.mark.parametrize("news", ["zone-news", "interest-news"])
async def test_a_foreign_change_hides_none_that_follows(
    bench: Bench, news: str, entry: str, fields: tuple[str | bytes, ...]
) -> None:
    n1, n2 = await bench.grid(), await bench.grid(N2)
    await n1.nodes.join(NODE, lease=600.0)
    async with Tables(n1) as tables, Interests(n1) as interests:
        await n1.zones.put(zone())
        await n1.zones.put_interest(NODE, selectors("a"), keep=1.0)
        await tables.shows(ZoneTable.of([zone()]))
        await interests.shows({NODE: selectors("a")})
        await bench.server.call("XADD", key(bench, news), entry, *fields)
        await n2.zones.put(join())
        await n2.zones.change_interest(NODE, added=selectors("b"), dropped=(), keep=1.0)
        await tables.shows(ZoneTable.of([zone(), join()]))
        await interests.shows({NODE: selectors("a", "b")})


async def test_foreign_interest_is_left_out_and_ends(bench: Bench) -> None:
    grid = await bench.grid()
    await grid.nodes.join(NODE, lease=600.0)
    await grid.zones.put_interest(NODE, selectors("a"), keep=600.0)
    strange = ("nobody", "1", "x y z", "1", f"{NODE} a//b", "1", b"\xff a", "1")
    await bench.server.call("HSET", key(bench, "interest"), *strange)
    await bench.server.call("HSET", key(bench, "interest-tellers"), "n9.x", "rubbish")
    async with Interests(grid) as interests:
        await interests.shows({NODE: selectors("a")})
    assert await grid.zones.sweep_interest() == 0
    left = await bench.server.call("HKEYS", key(bench, "interest"))
    assert set(left) == {f"{NODE} a".encode(), f"{NODE} a//b".encode()}, "nobody else is there to end it"


@pytest.mark.parametrize("text", ["", "rubbish", "|", "1-2 x c c 1 client -|c 1-;", "1-9 5 c c 1 client|x"])
async def test_foreign_origins_of_a_topic_are_as_good_as_none(bench: Bench, text: str) -> None:
    grid = await bench.grid()
    await apply(grid, event("1", at=1), event("1", LOG, history=LIMITS))
    for topic in (event().topic, LOG):
        await bench.server.call("HSET", origins(bench), topic, text, "", text)
    # Nobody knows how old the value is that is there, so it is taken to be of now.
    assert isinstance((await apply(grid, event("2", at=LATER)))[0], Taken)
    assert await value_of(grid) == b"2"


async def test_another_kind_of_key_is_replaced(bench: Bench) -> None:
    grid = await bench.grid()
    (first,) = await apply(grid, event("1", at=1))
    assert isinstance(first, Taken)
    for name in (origins(bench), key(bench, "carriers")):
        await bench.server.call("DEL", name)
        await bench.server.call("SET", name, "rubbish")
    assert isinstance((await apply(grid, event("2", at=LATER)))[0], Taken)
    assert await grid.zones.carry(NODE, [LinkName("there")], lease=scaled(5.0))
