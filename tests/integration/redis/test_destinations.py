"""Destinations on a Redis that runs full, is tampered with, or was written to by a later release."""

from __future__ import annotations

import pytest

from gateway.catalogue import log_events
from gateway.core.destinations.destination import Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.ports import DestinationRemoved
from tests.contract.test_destinations import Listener, destination
from tests.integration.redis.support import N2, Bench
from tests.support.clock import eventually


def key(bench: Bench, name: str) -> str:
    return f"{bench.prefix}:{{nodes}}:{name}"


async def test_a_full_redis_takes_destinations_all_the_same(forgetful: Bench) -> None:
    """Shorter limits are what helps when Redis is full."""
    n1, n2 = await forgetful.grid(), await forgetful.grid(N2)
    async with Listener(n2) as listener:
        await n1.destinations.put(destination())
        await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(Exception, match="used memory"):
            await forgetful.server.call("SET", "anything", "else")
        await n1.destinations.put(destination(limits=HistoryLimits(count=1)))
        await listener.holds(destination(limits=HistoryLimits(count=1)))
        await n1.destinations.apply(Origin.FILE, [destination(origin=Origin.FILE)])
        await n1.destinations.remove(destination().name)
        await listener.holds(destination(origin=Origin.FILE))


async def test_what_a_later_release_wrote_is_left_out_and_told(bench: Bench) -> None:
    """Nodes of two releases share a grid while they are being replaced."""
    grid = await bench.grid()
    later = '1000.0 {"v":2,"kind":"history","compacted":true}'
    async with Listener(grid) as listener:
        await grid.destinations.put(destination())
        await grid.destinations.put(destination("kept"))
        await listener.holds(destination(), destination("kept"))
        await bench.server.call("HSET", key(bench, "destinations"), destination().name, later)
        await bench.server.call("HSET", key(bench, "grid"), "destination_revision", "3")
        await bench.server.call("XADD", key(bench, "destination-news"), "3-0", destination().name, later)
        await listener.holds(destination("kept"))
        assert listener.changes[-1] == DestinationRemoved(destination().name)
    async with Listener(grid) as again:
        await again.holds(destination("kept"))
    assert any(event is log_events.GRID_FOREIGN_DATA for event, _ in bench.log.events)


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        pytest.param("*", ("temperature", "21.5"), id="id-of-redis"),
        pytest.param("2-0", ("temperature", "21.5"), id="no-destination"),
        pytest.param("2-0", ("file a", "1 {}", "b", "c"), id="more-fields"),
        pytest.param("2-0", (b"\xff", ""), id="name-not-utf8"),
        pytest.param("2-0", ("administrator log/**", ""), id="forged-removal"),
        pytest.param("2-0", ("file a/**", b'1 {"v":1,"kind":"value"}'), id="forged"),
        pytest.param("2-0", ("file a/**", b'1 {"v":1}' + b" " * 10_000_000), id="huge"),
    ],
)
async def test_a_foreign_change_hides_none_that_follows(
    bench: Bench, entry: str, fields: tuple[str | bytes, ...]
) -> None:
    n1, n2 = await bench.grid(), await bench.grid(N2)
    async with Listener(n1) as here:
        await n1.destinations.put(destination())
        await here.holds(destination())
        await bench.server.call("XADD", key(bench, "destination-news"), entry, *fields)
        await n2.destinations.put(destination("after"))
        wanted = [destination(), destination("after")]
        await eventually(lambda: here.held == {each.name: each for each in wanted}, message="the true ones are held")
        await n2.destinations.remove(destination().name)
        await here.holds(destination("after"))


async def test_a_stream_that_somebody_deleted_makes_nobody_deaf(bench: Bench) -> None:
    """Revisions are counted beside the generation, and go on."""
    n1, n2 = await bench.grid(), await bench.grid(N2)
    async with Listener(n2) as listener:
        await n1.destinations.put(destination("one"))
        await listener.holds(destination("one"))
        await bench.server.call("DEL", key(bench, "destination-news"))
        await n1.destinations.put(destination("two"))
        await listener.holds(destination("one"), destination("two"))
