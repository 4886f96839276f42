"""What a node tells of its backup: in the grid, for whoever claims its sessions; by the system's topics, for people."""

from __future__ import annotations

import pytest

from gateway.app.cluster.mirror import source
from gateway.catalogue.log_events import BACKUP_WHOLE
from gateway.core.types import NodeRef
from gateway.ports import Backup
from tests.support.clock import eventually as sooner_or_later
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import mirror_of
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import subscribed
from tests.support.times import scaled


async def told(by: TestNode, of: TestNode) -> Backup | None:
    """Read what the grid knows of the backup of a node."""
    found = await by.gateway.node._context.grid.nodes.backups(of.gateway.me)
    return found.get(of.gateway.me)


async def knows(by: TestNode, of: TestNode, backup: NodeRef, sessions: int) -> None:
    async def is_told() -> bool:
        found = await told(by, of)
        return found is not None and (found.node, found.whole, found.of) == (backup, sessions, sessions)

    await sooner_or_later(is_told, message="the grid knows who has the copies")


@pytest.mark.promise("P10")
async def test_a_grid_that_lost_everything_is_told_again(linked: LinkedNodes) -> None:
    """Otherwise clients of a node that dies later would fail over, though there are copies."""
    async with linked.run("n1", "n2", backup="n2") as (n1, n2), RawClient(n1.url) as raw:
        await subscribed(raw)
        await knows(n2, n1, n2.gateway.me, 1)
        linked.grid.go_away()
        linked.grid.come_back(emptied=True)
        await knows(n2, n1, n2.gateway.me, 1)


async def test_it_is_told_again_before_the_grid_forgets_it(
    linked: LinkedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was taken for dead is there: then the grid forgets its backup after its longest window."""
    monkeypatch.setattr(source, "TOLD_AGAIN", scaled(0.5) / 3600)
    async with linked.run("n1", "n2", backup="n2") as (n1, n2), RawClient(n1.url) as raw:
        await subscribed(raw)
        await knows(n2, n1, n2.gateway.me, 1)
        me, nodes = n1.gateway.me, n1.gateway.node._context.grid.nodes
        assert await nodes.tell_backup(me, None, keep=1.0), "as if it had been forgotten"
        await knows(n2, n1, n2.gateway.me, 1)


async def test_a_node_without_sessions_has_a_whole_backup_too(linked: LinkedNodes) -> None:
    """Whoever waits for the log event before it goes on, as when nodes are stopped one by one, waited for ever."""
    async with linked.run("n1", "n2", backup="n2") as (n1, _):
        await eventually(lambda: mirror_of(n1).is_whole)
        assert n1.log.of(BACKUP_WHOLE)


async def test_who_watches_the_system_is_told_too(linked: LinkedNodes) -> None:
    async with linked.run("n1", "n2", backup="n2") as (n1, n2), RawClient(n1.url) as raw:
        await subscribed(raw)
        await knows(n2, n1, n2.gateway.me, 1)
        assert n1.gateway.node._reports._state()["backup"] == {"node": "n2", "copied": 1, "to_copy": 1}
        assert n2.gateway.node._reports._state()["backup"] == {"node": None, "copied": 0, "to_copy": 0}
    async with linked.run("n3", "n4") as (n3, _):
        assert "backup" not in n3.gateway.node._reports._state()
