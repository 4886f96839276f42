"""What nodes tell of themselves below ``$gateway``, and that they do so only while somebody watches (P11)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.node import Node
from gateway.client import Session, Update, connect
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import LeaseTable
from tests.integration.admin.support import Pair, running_pair
from tests.support.nodes import SHORT_LEASE, eventually, running_node
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P11")

QUICK: dict[str, Any] = SHORT_LEASE | {"lease": scaled(4.0)}
"""Settings of nodes that are told of soon; one test lets a lease end, the others lose none on a busy machine."""


class Watch:
    """A client that keeps the newest value of each topic, and counts what comes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.values: dict[str, Any] = {}
        self.updates: dict[str, int] = {}

    async def follow(self, stream: AsyncIterator[Update]) -> None:
        async for update in stream:
            self.values[update.topic] = update.value
            self.updates[update.topic] = self.updates.get(update.topic, 0) + 1


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path, **QUICK) as pair:
        yield pair


@asynccontextmanager
async def watching(pair: Pair, selector: str = "$gateway/**") -> AsyncIterator[Watch]:
    """Watch at the first node, as a console does."""
    async with connect(pair.n1.admin, principal="console", secret=pair.admins.tokens["viewer"]) as session:
        watch = Watch(session)
        following = asyncio.create_task(watch.follow(await session.subscribe(selector)))
        try:
            yield watch
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def watched(node: Node) -> bool:
    watchers = node.sessions.delivery.watchers
    return watchers.here or watchers.elsewhere


def published(memory: MemoryGridServer) -> int:
    """How much has ever been published."""
    data = memory._data
    return sum(data.topics.position(number, data.generation).sequence for number in range(TOPIC_PARTITIONS))


async def test_every_node_tells_of_itself_at_whichever_node_one_watches(pair: Pair) -> None:
    async with connect(pair.n2.url, principal="alice") as alice, watching(pair) as watch:
        states = watch.values
        await eventually(lambda: {"$gateway/nodes/n1", "$gateway/nodes/n2"} <= set(states))
        await eventually(lambda: len(states["$gateway/nodes/n2"]["alive"]) == 2)
        told = states["$gateway/nodes/n2"]
        assert told["incarnation"] == pair.n2.gateway.me.incarnation
        assert told["sessions"] == {"connected": 1, "disconnected": 0}
        assert told["consoles"] == 0
        assert states["$gateway/nodes/n1"]["sessions"] == {"connected": 0, "disconnected": 0}, "a console is apart"
        assert states["$gateway/nodes/n1"]["consoles"] == 1
        assert states["$gateway/nodes/n1"]["updates"] >= 0
        assert told["connections"] == 1
        assert told["opened"] == 1
        assert told["grid"] == {"state": "up", "generation": GridGeneration(1)}
        assert told["state"] == "serving"
        assert not told["draining"]
        assert states["$gateway/slow/n2"] == {"node": "n2", "count": 0, "sessions": []}
        # It goes on.
        before = dict(watch.updates)
        await eventually(lambda: watch.updates["$gateway/nodes/n2"] > before["$gateway/nodes/n2"])
        await alice.close()
        await eventually(lambda: states["$gateway/nodes/n2"]["ended"] == {"closed": 1})
        happened = states["$gateway/activity/n2"]["happenings"]
        assert [(each["what"], each["session"], each["detail"]) for each in happened] == [("ended", alice.id, "closed")]


async def test_resumes_are_told_by_rung_and_session(pair: Pair) -> None:
    async with connect([pair.n2.url, pair.n1.url], principal="alice") as alice, watching(pair) as watch:
        await eventually(lambda: "$gateway/nodes/n2" in watch.values)
        await pair.n2.gateway.close()
        await eventually(lambda: "$gateway/activity/n1" in watch.values)
        [happened] = watch.values["$gateway/activity/n1"]["happenings"]
        assert (happened["what"], happened["session"], happened["detail"]) == ("resumed", alice.id, "failed_over")
        assert happened["replayed"] is None, "who selects nothing misses nothing"
        await eventually(lambda: watch.values["$gateway/recoveries/n1"]["columns"] != [])
        told = watch.values["$gateway/recoveries/n1"]
        [[_, *counts]] = told["columns"]
        rungs = dict(zip(told["rungs"], counts, strict=True))
        assert rungs == {"reattached": 0, "handed_over": 0, "mirrored": 0, "failed_over": 1, "refused": 0}
        assert watch.values["$gateway/nodes/n1"]["resumes"]["failed_over"] == 1
        # Its lease expires, and whoever takes over marks it.
        await eventually(lambda: watch.values["$gateway/nodes/n2"]["state"] == "expired")


async def test_a_node_that_leaves_says_so(pair: Pair) -> None:
    async with watching(pair) as watch:
        await eventually(lambda: "$gateway/nodes/n2" in watch.values)
        await pair.n2.gateway.drain()
        await pair.n2.gateway.close()
        await eventually(lambda: watch.values["$gateway/nodes/n2"]["state"] == "left")


async def test_nothing_is_published_while_nobody_watches(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pair.memory
    renewals: Counter[str] = Counter()
    renew = memory._data.leases.renew

    def counted(node: NodeRef, *how: Any, **said: Any) -> LeaseTable:
        renewals[node.node] += 1
        return renew(node, *how, **said)

    monkeypatch.setattr(memory._data.leases, "renew", counted)
    nodes = [each.gateway.node for each in (pair.n1, pair.n2)]
    async with watching(pair) as watch:
        await eventually(lambda: {"$gateway/nodes/n1", "$gateway/nodes/n2"} <= set(watch.values))
        assert all(watched(node) for node in nodes)
    # What the other node was told is forgotten after some renewals.
    await eventually(lambda: not any(watched(node) for node in nodes))
    before = published(memory)
    assert before > 0
    async with connect(pair.n1.url, principal="alice"):
        # Meanwhile two or more reports would have come.
        until = {name: count + 12 for name, count in renewals.items()}
        await eventually(lambda: all(renewals[name] >= count for name, count in until.items()))
    assert published(memory) == before


async def test_who_selects_everything_is_not_told(pair: Pair) -> None:
    async with connect(pair.n1.url) as alice, watching(pair, "**") as watch, watching(pair) as operator:
        await eventually(lambda: "$gateway/nodes/n1" in operator.values)
        await alice.publish("prices/ACME", 1)
        await eventually(lambda: "prices/ACME" in watch.values)
        assert set(watch.values) == {"prices/ACME"}


async def test_what_happened_before_is_told_to_whoever_begins_to_watch(pair: Pair) -> None:
    async with connect(pair.n2.url, principal="alice") as alice:
        assert not watched(pair.n2.gateway.node)
    async with watching(pair) as watch:
        await eventually(lambda: "$gateway/recent/n2" in watch.values)
        recent = watch.values["$gateway/recent/n2"]["happenings"]
        assert [(each["what"], each["session"]) for each in recent] == [("opened", alice.id), ("ended", alice.id)]
        assert "$gateway/activity/n2" not in watch.values, "it is no news"


@pytest.mark.parametrize("watches", [True, False], ids=["watched", "unwatched"])
async def test_a_run_goes_on_with_what_the_one_before_has_counted(pair: Pair, watches: bool) -> None:
    """Also if nobody watched when that one stopped, as long as it stopped as planned; no ids are left then (P7)."""
    settings: dict[str, Any] = {**QUICK, "memory": pair.memory, "admin_tokens_file": pair.admins.file}
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running_node("n3", **settings))
        alice = await stack.enter_async_context(connect([pair.n2.url, first.url, pair.n1.url], principal="alice"))
        assert alice.node == "n2"
        if watches:
            before = await stack.enter_async_context(watching(pair))
            await eventually(lambda: "$gateway/nodes/n3" in before.values)
        await pair.n2.gateway.close()
        await eventually(lambda: alice.node == "n3")
        await first.gateway.drain()
        await first.gateway.close()
        await eventually(lambda: alice.node == "n1")
    async with running_node("n3", **settings) as second, watching(pair) as watch:
        told = ("$gateway/recoveries/n3", "$gateway/recent/n3")
        # What is retained comes first, and then what the new run tells.
        states: list[dict[str, Any]] = []

        def new_run_tells() -> bool:
            states[:] = [watch.values.get("$gateway/nodes/n3", {})]
            return states[0].get("incarnation") == second.gateway.me.incarnation and watch.updates.get(told[0], 0) > 1

        await eventually(new_run_tells)
        await eventually(lambda: told[1] in watch.values)
        [state] = states
        [[_, *counts]] = watch.values[told[0]]["columns"]
        assert dict(zip(watch.values[told[0]]["rungs"], counts, strict=True))["failed_over"] == 1
        happened = [(each["what"], each["session"]) for each in watch.values[told[1]]["happenings"]]
        assert (("resumed", alice.id) in happened) == watches
        assert state["resumes"]["failed_over"] == 0, "since its start"
