"""The JavaScript client when its node is killed: the same promises as in Python (P1, P2, P5, P6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from gateway.client import connect
from tests.clients.driver import Driver
from tests.cluster.crowds import Figures
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1", "P2", "P5", "P6")]

ROUNDS: Final = 200
"""Publishes of each side; the node is killed after a third of them."""


async def test_its_session_outlives_a_killed_node(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path, nodes=2) as stack, Driver() as client, connect(stack.url, principal="bob") as bob:
        status = await client.do("connect", urls=[stack.url], options={"principal": "alice"})
        await client.do("subscribe", selector="t/**")
        await client.do("setProperties", changes={"team": "fx"})
        receipts = []
        for number in range(ROUNDS):
            publishing = client.begin("publish", topic="t/js", value=number)
            if number == ROUNDS // 3:
                await stack.kill_node(status["node"])
            receipts.append(await asyncio.wait_for(publishing, scaled(30)))
            await bob.publish("t/python", number)
        updates = client.events["update"]

        def last(topic: str) -> object:
            return next((each["value"] for each in reversed(updates) if each["topic"] == topic), None)

        await eventually(lambda: last("t/js") == last("t/python") == ROUNDS - 1, "the newest values have come")
        for topic in ("t/js", "t/python"):
            seen = [each["version"] for each in updates if each["topic"] == topic]
            assert seen == sorted(seen), "versions never go back"
            assert seen[-1] == ROUNDS, "each publish was executed once"
        assert [each["version"] for each in receipts if each["version"]] == sorted(
            {each["version"] for each in receipts if each["version"]}
        )
        [recovery] = client.events["recovery"]
        after = await client.do("status")
        assert recovery["outcome"] == "failed_over"
        assert (after["id"], after["properties"]["team"]) == (status["id"], "fx")
        assert after["node"] != status["node"]
        gap, attempts = recovery["gapSeconds"], recovery["attempts"]
        figures(f"back after {gap:.3f} s and {attempts} attempts; {len(updates)} updates")
        await client.do("close")
