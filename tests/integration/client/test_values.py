"""Reading values page by page while connections are cut and nodes change: each topic once, whatever happens (P1)."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import RequestRefused, Session, connect
from gateway.core.wire import packets
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.nodes import running_node
from tests.support.seeds import seeds
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P1")

PATIENCE = 30.0
TOPICS = sorted(f"tree/{number % 7}/{number:03}" for number in range(200))
QUICK = {"backoff_initial": 0.01, "backoff_maximum": 0.05}


async def read_all(session: Session, chance: random.Random) -> list[tuple[str, object]]:
    """Read page by page, of any size."""
    found: list[tuple[str, object]] = []
    after: str | None = None
    while True:
        page = await session.values("tree/**", after, chance.randint(1, 40))
        found += [(each.topic, each.value) for each in page.values]
        if page.next is None:
            return found
        after = page.next


@pytest.mark.parametrize("seed", seeds(3))
async def test_pages_go_on_over_every_recovery(seed: int) -> None:
    chance = random.Random(seed)
    memory = MemoryGridServer()
    async with (
        running_node("n1", memory=memory, **QUICK) as one,
        running_node("n2", memory=memory, **QUICK) as two,
        CuttingProxy(one.gateway.port) as proxy,
        connect(proxy.url, "alice") as session,
    ):
        await asyncio.gather(*(session.publish(topic, number) for number, topic in enumerate(TOPICS)))
        for _ in range(5):
            reading = asyncio.create_task(read_all(session, chance))
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            proxy.target = chance.choice((one, two)).gateway.port
            proxy.cut()
            async with time_limit(PATIENCE):
                assert await reading == [(topic, number) for number, topic in enumerate(TOPICS)]
        for node in (one, two):
            assert not any(each.selections.entries for each in node.gateway.node.sessions)


async def test_a_node_of_an_older_release_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    older = packets.SERVER_SUPPORTS - {"values"}
    monkeypatch.setattr("gateway.app.connections.session_factory.SERVER_SUPPORTS", older)
    async with running_node() as node, connect(node.url, "alice") as session:
        with pytest.raises(RequestRefused, match="older release"):
            await session.values("tree/**")
        assert (await session.publish("tree/1", 1)).version == 1, "the connection and the session go on"
