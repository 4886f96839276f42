"""The JavaScript client reads values without subscribing, at real nodes, while connections are cut and nodes change."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client import connect
from tests.clients.driver import Refused
from tests.clients.test_javascript_with_nodes import Setting, setting  # noqa: F401 - a fixture
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P1")

PATIENCE = 30.0
TOPICS = sorted(f"tree/{number % 7}/{number:03}" for number in range(100))


async def test_javascript_reads_all_pages_over_cuts_and_at_other_nodes(setting: Setting) -> None:  # noqa: F811
    client = setting.client
    await setting.connect()
    async with connect(setting.two.url, principal="bob") as bob:
        await asyncio.gather(*(bob.publish(topic, {"of": topic}) for topic in TOPICS))
        after: str | None = None
        found = []
        for number in range(len(TOPICS)):
            reading = client.begin("values", selector="tree/**", options={"after": after, "limit": 9})
            if not number % 3:
                await asyncio.sleep(0)
                setting.first.cut()
                setting.second.cut()
            async with time_limit(PATIENCE):
                page = await reading
            found += page["values"]
            after = page["next"]
            if after is None:
                break
        held = await bob.values("tree/**")
    assert [each["topic"] for each in found] == TOPICS
    assert [(each["topic"], each["value"], each["version"], each["eventId"]) for each in found] == [
        (each.topic, each.value, each.version, each.event_id) for each in held.values
    ]
    assert not client.events["update"]
    with pytest.raises(Refused, match="InvalidSelector"):
        await client.do("values", selector="a//b")
    assert (await client.do("close"))["state"] == "closed"
