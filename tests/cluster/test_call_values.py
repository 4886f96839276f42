"""The values of many topics are read behind HAProxy, page by page, while the node that answered is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from gateway.client import connect
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.cluster.patient_calls import repeat
from tests.support.http_calls import ALICE
from tests.support.stack import cluster
from tests.support.times import PATIENCE, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

TOPICS: Final = [f"values/{number:03}" for number in range(120)]
KILLS: Final = {2: "n1", 6: "n2"}
"""Before which page which node is killed."""


async def read(http: aiohttp.ClientSession, stack: Stack, query: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Read a page; returns it, and how often it was asked for."""
    url = f"{stack.url.replace('ws', 'http', 1).removesuffix('/v1/connect')}/v1/values"
    return await repeat(http, "GET", url, params=query, headers=ALICE)


@pytest.mark.promise("P6")
async def test_pages_go_on_while_nodes_are_killed(tmp_path: Path, figures: Figures) -> None:
    async with (
        cluster(tmp_path / "run") as stack,
        aiohttp.ClientSession() as http,
        time_limit(PATIENCE),
        await connect(stack.url, principal="writer") as session,
    ):
        for topic in TOPICS:
            await session.publish(topic, 0)
        query: dict[str, Any] = {"selector": "values/*", "limit": 10}
        found: list[dict[str, Any]] = []
        tries = number = 0
        while number == 0 or "cursor" in query:
            if (killed := KILLS.get(number)) is not None:
                await stack.kill_node(killed)
            # What the next page shows was published before it was asked for.
            if 10 * number < len(TOPICS):
                await session.publish(TOPICS[10 * number], number)
            told, asked = await read(http, stack, query)
            tries += asked
            query = {key: each for key, each in {**query, "cursor": told.get("cursor")}.items() if each is not None}
            found += told["values"]
            number += 1
    assert [each["topic"] for each in found] == TOPICS, "once each, and in order"
    assert [each["value"] for each in found[::10]] == list(range(12)), "nothing is older than the call"
    figures(f"{number} pages asked for {tries} times over {len(KILLS)} kills")
