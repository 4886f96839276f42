"""Whole nodes that hear of each other: by the node table, with and without certificates, as long as they live."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.link_authority import make_certificates
from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import link_metrics, metrics
from gateway.catalogue import log_events as events
from gateway.catalogue.metric import Metric
from gateway.core.types import NodeRef
from gateway.core.wire.errors import InvalidExport
from gateway.ports import GridUnavailable
from gateway.ports.peers import Declined, Down, PeerPlace, Record, Silent, Up
from gateway.settings import HostPort
from tests.support.clock import eventually as sooner_or_later
from tests.support.nodes import FREQUENT_RENEWALS, SHORT_LEASE, TestNode, eventually, running_node
from tests.support.times import scaled

LOOPBACK: dict[str, Any] = {
    "link": HostPort("127.0.0.1", 0),
    "dev": True,
    "heartbeat": scaled(0.1),
    **FREQUENT_RENEWALS,
}


@pytest.fixture
def grid() -> MemoryGridServer:
    return MemoryGridServer()


@asynccontextmanager
async def nodes(grid: MemoryGridServer, *names: str, **settings: Any) -> AsyncIterator[list[TestNode]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running_node(name, memory=grid, **(LOOPBACK | settings))) for name in names
        ]


def linked(one: TestNode, other: TestNode) -> bool:
    return all(
        each.gateway.node.links is not None and each.gateway.node.links.state(peer.gateway.me).up
        for each, peer in ((one, other), (other, one))
    )


def gauge(node: TestNode, metric: Metric, label: str) -> float:
    for line in node.gateway.metrics.render().decode().splitlines():
        if line.startswith(f'{metric.name}{{{metric.label}="{label}"}} '):
            return float(line.rpartition(" ")[2])
    return float("nan")


async def test_nodes_find_each_other_by_the_node_table(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1", "n2", "n3") as (n1, n2, n3):
        await eventually(lambda: linked(n1, n2) and linked(n1, n3) and linked(n2, n3))
        assert gauge(n1, link_metrics.LINKS, "up") == 2
        assert gauge(n1, link_metrics.LINKS, "down") == 0
        # It has no value while the link is down, which it may be for a moment on a busy machine.
        await eventually(lambda: gauge(n1, link_metrics.LINK_SILENCE_SECONDS, "n2") < 1)
        views = {view.node: view for view in await n1.gateway.node.administration.nodes.list()}
        assert (views["n2"].linked, views["n1"].linked) == (True, None)
        assert views["n2"].link == n2.gateway.node.presence.report().link  # type: ignore[union-attr]
        assert views["n2"].heard is not None
        assert any("links have no certificates" in str(each["shortcut"]) for each in n1.log.of(events.DEVELOPMENT_MODE))


async def test_a_node_without_links_is_left_alone(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1") as (n1,), running_node("n2", memory=grid, **FREQUENT_RENEWALS) as n2:
        await eventually(lambda: len(n1.gateway.node.cluster.alive) == 2)

        async def has_told() -> bool:
            return (await n1.gateway.node.administration.nodes.as_reported("n2")).version is not None

        await sooner_or_later(has_told)
        views = {view.node: view for view in await n1.gateway.node.administration.nodes.list()}
        assert (views["n2"].link, views["n2"].linked) == (None, None)
        assert n2.gateway.node.links is None
        assert gauge(n1, link_metrics.LINKS, "down") == 0


async def test_use_cases_ask_and_send(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1", "n2") as (n1, n2):
        one, two = n1.gateway.node.links, n2.gateway.node.links
        assert one is not None
        assert two is not None
        took: list[Record] = []
        changes: list[Up | Down] = []

        async def answer(body: bytes, peer: NodeRef) -> bytes:
            assert peer == n1.gateway.me
            if not body:
                raise InvalidExport("nothing to reverse")
            return body[::-1]

        two.on_question("reverse", answer)
        two.on_record("log", took.append)
        two.on_change(changes.append)
        await eventually(lambda: linked(n1, n2))
        to = n2.gateway.me
        assert await one.links.ask(to, "reverse", b"abc", within=scaled(20)) == b"cba"
        with pytest.raises(Silent):
            await one.links.ask(to, "reverse", b"", within=scaled(20))
        with pytest.raises(Declined):
            await one.links.ask(to, "unknown", b"", within=scaled(20))
        one.links.send(to, "unknown", b"")
        one.links.send(to, "log", b"entry")
        await eventually(lambda: [(each.sequence, each.body) for each in took] == [(2, b"entry")])
        assert isinstance(changes[-1], Up)
        assert changes[-1].peer == n1.gateway.me


async def test_a_node_that_stops_is_hung_up_and_its_next_run_is_linked(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1") as (n1,):
        async with nodes(grid, "n2") as (n2,):
            await eventually(lambda: linked(n1, n2))
            await n2.gateway.drain()
        ended = n1.log.of(events.LINK_ENDED)
        await eventually(lambda: "n2 stops" in str(n1.log.of(events.LINK_ENDED)[-1]["why"]))
        await eventually(lambda: gauge(n1, link_metrics.LINKS, "down") == 0)
        async with nodes(grid, "n2") as (again,):
            await eventually(lambda: linked(n1, again))
        assert len(ended) >= 1
        # A planned stop is no trouble.
        assert not n1.log.of(events.LINK_DOWN)
        assert not n1.log.of(events.LINK_FAILED)


async def test_links_stay_while_the_grid_is_away_and_emptied(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1", "n2") as (n1, n2):
        await eventually(lambda: linked(n1, n2))
        grid.go_away()
        grid.come_back(emptied=True)
        await eventually(lambda: not n1.gateway.node.readiness.reasons() and not n2.gateway.node.readiness.reasons())
        async with nodes(grid, "n3") as (n3,):
            await eventually(lambda: linked(n1, n3) and linked(n2, n3) and linked(n1, n2))
        assert not any("cluster" in str(each["why"]) for each in n1.log.of(events.LINK_ENDED))


@asynccontextmanager
async def late_with_its_lease(node: TestNode) -> AsyncIterator[None]:
    """Let a node neither renew its lease nor join again."""
    async with node.gateway.node._grid_recovery.lease._one_at_a_time:
        yield


def tables_read(node: TestNode) -> list[set[str]]:
    """Keep the names of the nodes that the links of *node* are told of from now on, by each look at the table."""
    links, tables = node.gateway.node.links, list[set[str]]()
    assert links is not None
    meet = links.links.meet

    def keep(cluster: str, peers: Mapping[NodeRef, PeerPlace]) -> None:
        tables.append({peer.node for peer in peers})
        meet(cluster, peers)

    links.links.meet = keep  # type: ignore[method-assign]
    return tables


@pytest.mark.parametrize("late", ["n1", "n2"])
@pytest.mark.parametrize("loss", ["flushed", "restarted"])
async def test_a_node_that_joins_an_emptied_grid_late_keeps_its_links(
    grid: MemoryGridServer, late: str, loss: str
) -> None:
    async with nodes(grid, "n1", "n2") as both:
        n1, n2 = both
        await eventually(lambda: linked(n1, n2))
        first, second = (n2, n1) if late == "n1" else (n1, n2)
        tables = tables_read(first)
        async with late_with_its_lease(second):
            if loss == "flushed":
                grid.flush()
            else:
                grid.come_back(emptied=True)
            await eventually(lambda: len(tables) > 1)
            assert linked(n1, n2)
        await eventually(lambda: all(len(each.gateway.node.cluster.alive) == 2 for each in both))
        assert linked(n1, n2)
        for each in both:
            assert not each.log.of(events.LINK_ENDED)
            assert not each.log.of(events.LINK_DOWN)
            assert not each.log.of(events.LINK_REFUSED)


async def test_a_grid_rolled_back_to_a_former_run_keeps_the_link_to_the_present_one(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1", **SHORT_LEASE) as (n1,):
        async with nodes(grid, "n2", **SHORT_LEASE) as (former,):
            await eventually(lambda: linked(n1, former))
            before = grid.snapshot()
        async with nodes(grid, "n2", **SHORT_LEASE) as (n2,):
            await eventually(lambda: linked(n1, n2))
            ended, tables = len(n1.log.of(events.LINK_ENDED)), tables_read(n1)
            async with late_with_its_lease(n2):
                grid.come_back(snapshot=before)
                await eventually(lambda: len(tables) > 1)
                assert linked(n1, n2)
            await eventually(lambda: n2.gateway.me in n1.gateway.node.cluster.alive)
            await eventually(lambda: former.gateway.me not in n1.gateway.node.cluster.alive)
            assert linked(n1, n2)
            assert len(n1.log.of(events.LINK_ENDED)) == ended
            assert not n2.log.of(events.LINK_ENDED)


async def test_a_node_that_holds_a_lease_and_is_not_in_the_table_keeps_its_link(grid: MemoryGridServer) -> None:
    """The table is read a moment after the leases: it may have been emptied since, and nobody has noticed yet."""
    async with nodes(grid, "n1", "n2") as (n1, n2):
        await eventually(lambda: linked(n1, n2))
        directory, tables = n1.gateway.node._context.grid.nodes, tables_read(n1)
        entries = directory.entries

        async def without_n2() -> Any:
            directory.entries = entries  # type: ignore[method-assign]
            return [entry for entry in await entries() if entry.node != n2.gateway.me]

        async with nodes(grid, "n3") as (n3,):
            # The look that n3 is the reason of finds a table without n2.
            directory.entries = without_n2  # type: ignore[method-assign]
            await eventually(lambda: linked(n1, n3) and len(tables) > 1)
            assert linked(n1, n2)
        assert all("n2" in table for table in tables)
        assert not any("n1" in str(each["peer"]) for each in n2.log.of(events.LINK_ENDED))


async def test_a_node_that_does_not_come_back_to_an_emptied_grid_is_hung_up(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1", "n2", **SHORT_LEASE) as (n1, n2):
        await eventually(lambda: linked(n1, n2))
        async with late_with_its_lease(n2):
            grid.flush()
            await eventually(lambda: bool(n1.log.of(events.LINK_ENDED)), within=60)
            assert "n2" in str(n1.log.of(events.LINK_ENDED)[0]["why"])


async def test_the_table_is_read_again_if_the_grid_went_away_while_it_was_read(grid: MemoryGridServer) -> None:
    async with nodes(grid, "n1", "n2") as (n1, n2):
        await eventually(lambda: linked(n1, n2))
        directory, tables, failed = n1.gateway.node._context.grid.nodes, tables_read(n1), 0
        entries = directory.entries

        async def fail_once() -> Any:
            nonlocal failed
            failed += 1
            directory.entries = entries  # type: ignore[method-assign]
            raise GridUnavailable("it went away")

        directory.entries = fail_once  # type: ignore[method-assign]
        grid.come_back(emptied=True)
        await eventually(lambda: failed == 1)
        await eventually(lambda: {"n2"} in tables)


@pytest.mark.promise("P17")
async def test_cut_links_are_no_reason_to_take_over(grid: MemoryGridServer) -> None:
    """E1: as long as leases are renewed, nobody is taken over, whatever links do."""
    lease = scaled(2.0)
    async with nodes(grid, "n1", "n2", lease=lease) as (n1, n2):
        await eventually(lambda: linked(n1, n2))
        for node in (n1, n2):
            links = node.gateway._links
            assert links is not None
            await links.close()
        renewals = 5 * lease / LOOPBACK["lease_renew"]
        seen: list[tuple[NodeRef, ...]] = []
        membership = n1.gateway.node._membership
        membership.tell_of_table(lambda table: seen.append(table.alive))
        await eventually(lambda: len(seen) >= renewals, within=60)
        assert all(len(alive) == 2 for alive in seen)
        assert not n1.log.of(events.LEASE_EXPIRED)
        assert not n2.log.of(events.LEASE_LOST)


def tls_settings(folder: Path, node: str) -> dict[str, Any]:
    return {
        "dev": False,
        "link_tls_certificate": folder / f"{node}.pem",
        "link_tls_key": folder / f"{node}.key",
        "link_tls_ca": folder / "link-ca.pem",
    }


async def test_nodes_with_certificates_are_linked_and_read_new_ones(grid: MemoryGridServer, tmp_path: Path) -> None:
    make_certificates(tmp_path, ["n1", "n2", "n3"], now=time.time())
    async with (
        nodes(grid, "n1", **tls_settings(tmp_path, "n1")) as (n1,),
        nodes(grid, "n2", **tls_settings(tmp_path, "n2")) as (n2,),
    ):
        await eventually(lambda: linked(n1, n2))
        expiry = gauge(n1, metrics.CERTIFICATE_EXPIRY, "links")
        assert expiry > time.time() + 300 * 86400
        for file in (tmp_path / "n1.pem", tmp_path / "n1.key"):
            file.unlink()
        n1.gateway.reload()
        assert [each["port"] for each in n1.log.of(events.CERTIFICATE_KEPT)] == ["links"]
        make_certificates(tmp_path, ["n1"], now=time.time(), days=30)
        n1.gateway.reload()
        assert gauge(n1, metrics.CERTIFICATE_EXPIRY, "links") < time.time() + 31 * 86400
        assert linked(n1, n2), "links keep what they began with"
        # A node without a certificate of this authority stays outside.
        strangers = tmp_path / "other"
        make_certificates(strangers, ["n3"], now=time.time())
        async with nodes(grid, "n3", **tls_settings(strangers, "n3")) as (n3,):
            await eventually(lambda: bool(n3.log.of(events.LINK_FAILED)) and bool(n1.log.of(events.LINK_FAILED)))
            assert "CERTIFICATE_VERIFY_FAILED" in str(n1.log.of(events.LINK_FAILED)[0]["error"])
            assert not linked(n1, n3)
            assert gauge(n3, link_metrics.LINKS, "down") == 2
        async with nodes(grid, "n3", **tls_settings(tmp_path, "n3")) as (n3,):
            await eventually(lambda: linked(n1, n3) and linked(n2, n3))
