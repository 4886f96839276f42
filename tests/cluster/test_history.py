"""Readers of topics with history that are stopped again and again, and nodes that are killed under them (P14)."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Final

import pytest

from gateway.client import Session, Update, connect
from tests.cluster.crowds import Figures
from tests.support.stack import cluster
from tests.support.times import time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P14"), pytest.mark.thorough]

EVENTS: Final = 50_000
RESTARTS: Final = 60
"""Readers, about, each of which goes on where the one before stopped, at another node."""
KILLS: Final = 50
"""Readers that are killed at least."""
TOPICS: Final = 4
WANTED: Final = {f"log/{number}": list(range(number, EVENTS, TOPICS)) for number in range(TOPICS)}
"""Values by topic, in order."""
IN_FLIGHT: Final = 200
DEATHS: Final = 3
"""Nodes that are killed meanwhile."""

DESTINATIONS: Final = """
[[destination]]
selector = "log/**"
kind = "history"
count = 100_000
bytes = "64MiB"
"""


async def test_readers_that_go_on_at_other_nodes_get_the_log(tmp_path: Path, figures: Figures) -> None:
    """L1: the union of what they get is the log, each event once, in order."""
    chance = random.Random(1)
    file = tmp_path / "destinations.toml"
    file.write_text(DESTINATIONS)
    async with cluster(tmp_path, balancer=False, destinations=file, history_bytes=256 * 1024**2) as stack:
        urls = [stack.node_url(node) for node in stack.node_names]
        got: list[Update] = []
        position = "earliest"
        restarts = deaths = 0
        async with connect(urls, "writer") as writer:
            writing = asyncio.create_task(_write(writer))
            while len(got) < EVENTS:
                first = restarts % len(urls)
                async with connect(urls[first:] + urls[:first], "reader") as reader, time_limit(120):
                    stream = await reader.subscribe("log/**", start=position, queue_size=chance.choice((10, 10_000)))
                    for number in range(chance.randint(1, 2 * EVENTS // RESTARTS)):
                        got.append(await anext(stream))
                        if len(got) == EVENTS:
                            break
                        if number == 300 and len(got) > EVENTS * (deaths + 1) // (DEATHS + 1):
                            deaths += 1
                            victim = reader.node
                            await stack.kill_node(victim)
                            got.append(await anext(stream))
                            await stack.start_node(victim)
                    position = got[-1].event_id
                restarts += 1
            await writing
    assert {topic: [each.value for each in got if each.topic == topic] for topic in WANTED} == WANTED
    assert not any(each.gap or each.folded or each.snapshot for each in got)
    figures(f"{EVENTS} events once each and in order to {restarts} readers one after the other; {deaths} nodes killed")


async def test_readers_that_are_killed_go_on_where_they_were(tmp_path: Path, figures: Figures) -> None:
    """L1 with programs that end by SIGKILL: what the last line of one said is where the next one begins."""
    chance = random.Random(2)
    file = tmp_path / "destinations.toml"
    file.write_text(DESTINATIONS)
    got: list[tuple[str, int]] = []
    position, kills = "earliest", 0
    async with cluster(tmp_path, balancer=False, destinations=file, history_bytes=256 * 1024**2) as stack:
        urls = [stack.node_url(node) for node in stack.node_names]
        async with connect(urls, "writer") as writer:
            writing = asyncio.create_task(_write(writer))
            while len(got) < EVENTS:
                first = kills % len(urls)
                reader = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "tests.cluster.history_reader", position, *urls[first:], *urls[:first]),
                    stdout=asyncio.subprocess.PIPE,
                )
                assert reader.stdout is not None
                try:
                    async with time_limit(120):
                        for _ in range(min(chance.randint(1, 2 * EVENTS // RESTARTS), EVENTS - len(got))):
                            place, topic, value, kind = (await reader.stdout.readline()).decode().split()
                            assert kind == "event"
                            position = place
                            got.append((topic, int(value)))
                finally:
                    reader.kill()
                    await reader.wait()
                kills += 1
            await writing
    assert {topic: [value for each, value in got if each == topic] for topic in WANTED} == WANTED
    assert kills >= KILLS
    figures(f"{EVENTS} events once each and in order to {kills} programs that were killed one after the other")


async def _write(session: Session) -> None:
    for start in range(0, EVENTS, IN_FLIGHT):
        numbers = range(start, min(EVENTS, start + IN_FLIGHT))
        await asyncio.gather(*(session.publish(f"log/{number % TOPICS}", number) for number in numbers))
