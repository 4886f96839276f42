"""Values that end and last wills of the JavaScript client, at real nodes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from tests.clients.driver import Driver
from tests.support.nodes import running_node
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P5", "P6")

PATIENCE = 20.0


async def test_what_it_publishes_ends_and_what_it_leaves_is_published() -> None:
    memory = MemoryGridServer()
    async with (
        running_node("n1", memory=memory, reap_interval=0.2) as node,
        connect(node.url, "bob") as reader,
        Driver() as client,
    ):
        stream = await reader.subscribe("js/**")

        async def following() -> tuple[str, Any, bool]:
            async with time_limit(PATIENCE):
                update = await anext(stream)
            return update.topic, update.value, update.removed

        options = {"principal": "alice"}
        await client.do(
            "connect", urls=[node.url.replace("http", "ws", 1).removesuffix("/v1/connect")], options=options
        )
        await client.do("publish", topic="js/offer", value={"price": 1}, options={"ttl": 0.05})
        assert await following() == ("js/offer", {"price": 1}, False)
        assert await following() == ("js/offer", None, True)
        wills = [
            {"topic": "js/status", "value": "lost"},
            {"topic": "js/status", "value": "left", "when": ["closed"]},
        ]
        await client.do("setWills", wills=wills)
        await client.do("close")
        assert await following() == ("js/status", "left", False)
