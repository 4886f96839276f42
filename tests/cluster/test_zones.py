"""Zones and joins of real clusters: node processes, a Redis for each cluster, and faults in all of them (P18)."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from gateway.client import connect
from gateway.local import zones_demo
from gateway.local.grid_server import GridRestart
from gateway.local.narration import Narrator
from gateway.local.ports import PortPlan
from tests.cluster.crowds import Figures
from tests.cluster.zone_kills import Account, Trial, pair, run
from tests.support.faults import eventually
from tests.support.times import PATIENCE, scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P18")]


def _figures(trial: Trial, events: int) -> str:
    faults = ", ".join(f"{count} {what}" for what, count in sorted(trial.faults.items()))
    published, came = trial.seconds
    return f"{events} events in {published:.0f} s, all there after {came:.0f} s; {faults}; {trial.crossed[1]} repeated"


async def test_each_event_comes_once_to_all_clusters_of_a_ring_while_it_breaks(
    tmp_path: Path, figures: Figures
) -> None:
    """Acceptance of zones and joins: Z1 to Z4."""
    trial = await run(tmp_path, events=1_500, faults=5, seed=5)
    assert trial.wrong == []
    figures(_figures(trial, 1_500))


@pytest.mark.thorough
async def test_histories_elsewhere_lack_nothing_if_a_redis_is_restarted_while_its_links_are_cut(tmp_path: Path) -> None:
    """The links go on in the stream where they were, though the grid has another generation."""
    async with pair(tmp_path) as (a, b):
        account = Account()
        async with (
            connect(b.urls, "reader", connect_timeout=None) as reader,
            connect(a.urls, "writer", connect_timeout=None, request_timeout=scaled(3 * PATIENCE)) as writer,
        ):

            async def publish(*numbers: int) -> None:
                for number in numbers:
                    await writer.publish("log/1", {"at": "A", "number": number})

            reading = asyncio.create_task(account.read_log(reader))

            async def crosses() -> bool:
                # Of what was published before A has heard what B selects, only the newest value would come.
                await writer.publish("log/0", {"at": "A", "number": -1})
                return bool(account.has())

            await eventually(crosses, "interest is known", within=3 * PATIENCE)
            await publish(0)
            for proxy in b.proxies.values():
                proxy.refuse()
                proxy.cut()
            await publish(*range(1, 20))
            await a.stack.restart_redis(GridRestart.AS_IT_WAS)
            await publish(*range(20, 30))
            for proxy in b.proxies.values():
                await proxy.start()
            await publish(*range(30, 40))
            await eventually(lambda: ("A", 39) in account.log.get("log/1", ()), "the last comes", within=3 * PATIENCE)
            reading.cancel()
        assert account.log["log/1"] == [("A", number) for number in range(40)]
        assert account.gaps == []
        assert not [each for each in a.log_events() if each["event"] == "zone_gap"]


@pytest.mark.thorough
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_event_comes_once_to_all_clusters_of_a_ring_at_length(
    tmp_path: Path, figures: Figures, seed: int
) -> None:
    trial = await run(tmp_path, events=10_000, faults=30, seed=seed)
    assert trial.wrong == []
    figures(_figures(trial, 10_000))


@pytest.mark.thorough
async def test_the_demonstration_of_zones_keeps_every_promise(tmp_path: Path) -> None:
    """What ``make zones`` runs."""
    text = io.StringIO()
    clusters = zones_demo.describe(tmp_path, [PortPlan.free(zones_demo.NODES) for _ in zones_demo.NAMES])
    demo = zones_demo.ZonesDemo(clusters, Narrator(Console(file=text, width=120, highlight=False)))
    assert await demo.run(), text.getvalue()
    told = text.getvalue()
    assert re.findall(r"(?m)^(\d)\. ", told) == list("12345")
    assert "Every promise was kept" in told
    assert re.search(r"n\d of north was killed; .* 300 of 300 events came to south and east", told)
