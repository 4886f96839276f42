"""Zones of processes with one fault: a carrier sleeps, a link is slow, deaf or dead, a Redis is emptied (P18).

``test_zones`` breaks everything at random; here each fault is held as long as it takes to see what comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from redis.asyncio import Redis

from gateway.client import Session, connect
from gateway.local.linked_clusters import zone_of
from gateway.local.proxy import Way
from tests.cluster.zone_kills import Account, pair, with_history
from tests.cluster.zone_stacks import ZoneStack, all_linked, zone_stacks
from tests.support.faults import eventually
from tests.support.times import PATIENCE, scaled

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.promise("P18"),
]

LONG: Final = 3 * PATIENCE
"""Seconds, on a quiet machine, in which what waits for a lease or a link has come."""

TRICKLE: Final = 4_000.0
"""Bytes a second of a slow link: it says its beats, and little else."""

FILLING: Final = 6 * 1024 * 1024
"""Bytes: more than a link, its sockets and the proxy hold."""

VALUE: Final = 20_000
"""Bytes of a large value, which nodes take by default."""


class Talker:
    """A client that publishes at one cluster, and one that reads there what all publish.

    Args:
        stack: the cluster.
        writer: one client.
        reader: the other one.

    Attributes:
        name: of the cluster.
        account: what the reader was sent.
    """

    def __init__(self, stack: ZoneStack, writer: Session, reader: Session) -> None:
        self.name = stack.name
        self.account = Account()
        self._writer = writer
        self.reading = [
            asyncio.create_task(self.account.read_log(reader)),
            asyncio.create_task(self.account.read_values(reader)),
        ]

    async def publish(self, *numbers: int, padding: str = "") -> None:
        """Publish to a topic with history and to one that has a value only."""
        for number in numbers:
            for topic in ("log/1", f"value/{self.name}"):
                await self._writer.publish(topic, {"at": self.name, "number": number, "padding": padding})

    async def probe(self) -> None:
        """Publish what nobody counts."""
        await self._writer.publish("log/0", {"at": self.name, "number": -1})

    def had(self, other: Talker) -> list[int]:
        """List what its reader was sent of what the writer of a cluster has published."""
        return [number for at, number in self.account.log.get("log/1", ()) if at == other.name]

    def value_of(self, other: Talker) -> int:
        """Tell the number of the last value that came from a cluster; -1 if none did."""
        value = self.account.values.get(f"value/{other.name}")
        return -1 if value is None else int(value["number"])


@asynccontextmanager
async def talkers(*stacks: ZoneStack, at: Sequence[str] = ()) -> AsyncIterator[list[Talker]]:
    """Have clients at clusters, whose interest is known everywhere.

    Args:
        stacks: the clusters.
        at: the node of each where its clients are; any, by default.
    """
    nodes = [[each.stack.node_url(node)] for each, node in zip(stacks, at, strict=True)] if at else []
    urls = nodes or [each.urls for each in stacks]
    sessions = [
        await connect(each, role, connect_timeout=None, request_timeout=scaled(LONG))
        for each in urls
        for role in ("writer", "reader")
    ]
    found = [
        Talker(stack, writer, reader)
        for stack, writer, reader in zip(stacks, sessions[::2], sessions[1::2], strict=True)
    ]

    async def all_hear_all() -> bool:
        # Of what was published before a cluster has heard what another one selects, only the newest value would come.
        for each in found:
            await each.probe()
        return all(
            each.name in {at for at, _ in other.account.log.get("log/0", ())} for each in found for other in found
        )

    try:
        await eventually(all_hear_all, "interest is known everywhere", within=LONG)
        yield found
        assert [each for talker in found for each in talker.reading if each.done()] == []
    finally:
        for talker in found:
            for task in talker.reading:
                task.cancel()
            await asyncio.gather(*talker.reading, return_exceptions=True)
        for session in sessions:
            await session.close()


async def carried(stack: ZoneStack, node: str) -> tuple[float, float]:
    """Tell how many links a node has, and how many of them are up."""
    metrics = await stack.stack.metrics(node)
    return metrics["gateway_zone_links_wanted"], metrics['gateway_zone_links{direction="out"}']


async def carrier_of(stack: ZoneStack) -> str:
    """Wait until one node sends over the only link of a cluster, and no other one believes to do so."""
    nodes = stack.stack.node_names
    found: list[str] = []

    async def one_sends() -> bool:
        links = {node: await carried(stack, node) for node in nodes}
        found[:] = [node for node in nodes if links[node] == (1, 1)]
        return len(found) == 1 and sum(wanted for wanted, _ in links.values()) == 1

    await eventually(one_sends, "one node carries the link", within=LONG)
    return found[0]


async def comes(source: Talker, target: Talker, last: int) -> None:
    """Wait until what one publishes has come to another one, up to a number."""

    def has_come() -> bool:
        return target.had(source)[-1:] == [last] and target.value_of(source) == last

    await eventually(has_come, f"number {last} of {source.name} comes to {target.name}", within=LONG)


async def test_a_carrier_that_is_suspended_and_wakes_neither_loses_nor_repeats(tmp_path: Path) -> None:
    """Another node has its link when it wakes; what it sends late has come already, or is refused."""
    async with pair(tmp_path) as (a, b):
        sleeper = await carrier_of(a)
        (other,) = set(a.stack.node_names) - {sleeper}
        async with talkers(a, b, at=(other, "n1")) as (at_a, at_b):
            await at_a.publish(*range(10))
            a.stack.pause_node(sleeper)
            await at_a.publish(*range(10, 20))

            async def other_sends() -> bool:
                return await carried(a, other) == (1, 1)

            await eventually(other_sends, "another node carries the link", within=LONG)
            await at_a.publish(*range(20, 30))
            a.stack.resume_node(sleeper)
            await at_a.publish(*range(30, 60))
            await carrier_of(a)
            await at_a.publish(60)
            await comes(at_a, at_b, 60)
            assert at_b.had(at_a) == [*range(61)]
            assert at_b.account.gaps == []


async def test_a_slow_link_holds_up_no_other_cluster_and_brings_everything(tmp_path: Path) -> None:
    async with zone_stacks(tmp_path, "A", "B", "C", **with_history(tmp_path)) as (a, b, c):
        await zone_of("europe", a, b, c)
        await all_linked(a, b, c, out=(2, 2, 2))
        async with talkers(a, b, c) as (at_a, at_b, at_c):
            for proxy in a.proxies.values():
                proxy.limit(TRICKLE, Way.UP)
            lost = await c.count("gateway_zone_links_lost_total")
            await at_c.publish(*range(100), padding="x" * VALUE)
            await comes(at_c, at_b, 99)
            # Four megabytes take a quarter of an hour by this link.
            assert len(at_a.had(at_c)) < 100

            async def is_bounded() -> bool:
                return 0 < await c.count("gateway_zone_events_unacknowledged") <= 10_000

            await eventually(is_bounded, "a bounded share is under way")
            for proxy in a.proxies.values():
                proxy.heal()
            await comes(at_c, at_a, 99)
            assert at_a.had(at_c) == at_b.had(at_c) == [*range(100)]
            # A link that is slow says its beats, and is not taken for a dead one.
            assert await c.count("gateway_zone_links_lost_total") == lost
            assert at_a.account.gaps == at_b.account.gaps == []


@pytest.mark.parametrize("ways", [(Way.UP,), (Way.DOWN,), (Way.UP, Way.DOWN)], ids=["up", "down", "both"])
async def test_a_link_on_which_nothing_arrives_is_dead_after_a_while_though_it_is_full(
    tmp_path: Path, ways: tuple[Way, ...]
) -> None:
    """One-way and two-way; nobody resets the connection, and the sender has more to say than it holds."""
    async with pair(tmp_path) as (a, b), talkers(a, b) as (at_a, at_b):
        for proxy in b.proxies.values():
            proxy.stall(*ways)
        numbers = FILLING // (2 * VALUE)
        await at_a.publish(*range(numbers), padding="x" * VALUE)

        async def is_down() -> bool:
            return await a.count('gateway_zone_links{direction="out"}') == 0

        await eventually(is_down, "the sender has noticed", within=LONG)
        for proxy in b.proxies.values():
            proxy.heal()
        await comes(at_a, at_b, numbers - 1)
        assert at_b.had(at_a) == [*range(numbers)]
        assert at_b.account.gaps == []
        # The other direction is a link of its own, and was not touched.
        await at_b.publish(0)
        await comes(at_b, at_a, 0)


async def test_a_cluster_whose_redis_is_emptied_is_in_its_zone_again_and_has_what_others_have(tmp_path: Path) -> None:
    """FLUSHALL: its nodes put zone, interest and cluster id back, and the other cluster sends current values again."""
    async with pair(tmp_path) as (a, b), talkers(a, b) as (at_a, at_b):
        for each in (at_a, at_b):
            await each.publish(*range(10))
        await comes(at_a, at_b, 9)
        await comes(at_b, at_a, 9)
        zone = await a.ask("GET", "/v1/zone")
        async with Redis.from_url(a.stack.grid_url) as redis:
            await redis.flushall()

        async def is_back() -> bool:
            await at_a.probe()
            await at_b.probe()
            return bool((await a.ask("GET", "/v1/zone"))["uid"] == zone["uid"])

        await eventually(is_back, "it is in its zone", within=LONG)
        # A new client has nothing of before: it reads what is in the grid.
        newcomer = Account()
        async with connect(a.urls, "newcomer", connect_timeout=None) as session:
            reading = asyncio.create_task(newcomer.read_values(session))
            await eventually(
                lambda: (newcomer.values.get("value/B") or {}).get("number") == 9, "B's value is back", within=LONG
            )
            reading.cancel()
        await all_linked(a, b, out=(1, 1))
        for each in (at_a, at_b):
            await each.publish(*range(100, 120))
        for source, target in ((at_a, at_b), (at_b, at_a)):
            await comes(source, target, 119)
            had = target.had(source)
            assert had == sorted(set(had)), f"{source.name} at {target.name}: twice, or out of order: {had}"
            assert had[:10] == [*range(10)]
        # B lost nothing, so of its events nothing is missing.
        assert at_a.had(at_b) == at_b.had(at_b) == [*range(10), *range(100, 120)]
