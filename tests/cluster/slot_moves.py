"""How long publishes take while the slots of their topics move: ``python -m tests.cluster.slot_moves``.

Three masters, three nodes and HAProxy on this machine. Each load runs for a while undisturbed; then one slot after the
other is moved to another master, live and with its keys, as redis-cli does it. Every publish goes to a topic of these
slots. The figures of docs/how-to/run-on-sentinel-or-cluster.md are from it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Final

import click

from gateway.client import RequestFailed, RequestRefused, Session, connect
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from tests.cluster.crowds import CONNECTING, percentile
from tests.cluster.grid_reader import TOPIC_DEPTH
from tests.support.redis_cluster import RedisCluster
from tests.support.stack import cluster

SLOTS: Final = 12
"""Moved one after the other, which is about what moves between two looks at who serves what if a master is added."""

CALM_SECONDS: Final = 5.0
"""Measured before the first slot moves."""

PAUSE: Final = 0.25
"""Seconds between two slots, so that the publishes that waited for one are served before the next one moves."""

VALUE: Final = "x" * 200


@dataclass(frozen=True, slots=True)
class Load:
    """Who publishes meanwhile.

    Attributes:
        name: for the table.
        sessions: how many.
        every: seconds from an answer to the next publish of a session; 0 is as fast as it can.
    """

    name: str
    sessions: int
    every: float


LOADS: Final = (
    Load("idle: 1 session, every 10 ms", 1, 0.01),
    Load("20 sessions, every 10 ms", 20, 0.01),
    Load("200 sessions, as fast as they can", 200, 0.0),
)


@dataclass
class Outcome:
    """What became of publishes.

    Attributes:
        seconds: that each took.
        refused: without being executed, or without an answer.
    """

    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def percentile(self, share: float) -> float:
        """Return the latency, in milliseconds, that a share of all publishes did not exceed."""
        return 1000 * percentile(self.seconds, share)


@dataclass(frozen=True, slots=True)
class Row:
    """One load, undisturbed and while slots moved."""

    load: Load
    calm: Outcome
    moving: Outcome


class Publishers:
    """Sessions that publish all the time.

    Attributes:
        outcome: what becomes of the publishes from now on; whoever measures puts another one here.
    """

    def __init__(self, sessions: Sequence[Session], topics: Sequence[str], every: float) -> None:
        self.outcome = Outcome()
        self._every = every
        self._tasks = [
            asyncio.create_task(self._publish(session, topic))
            for session, topic in zip(sessions, cycle(topics), strict=False)
        ]

    async def _publish(self, session: Session, topic: str) -> None:
        while True:
            outcome, began = self.outcome, time.perf_counter()
            try:
                await session.publish(topic, VALUE)
            except (RequestFailed, RequestRefused):
                outcome.refused += 1
            else:
                outcome.seconds.append(time.perf_counter() - began)
            await asyncio.sleep(self._every)

    async def stop(self) -> None:
        """End them; raises what went wrong with one of them."""
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        if errors := [end for end in ends if isinstance(end, Exception)]:
            raise ExceptionGroup("publishers failed", errors)


def topics_of_slots(wanted: int) -> dict[str, str]:
    """Find topics in different partitions, each of which has a slot of its own; by the partition's hash tag."""
    found: dict[str, str] = {}
    for number in count():
        topic = f"slot{number}/value"
        found.setdefault(f"t{topic_partition(TopicPath(topic), TOPIC_DEPTH)}", topic)
        if len(found) == wanted:
            break
    return found


async def measure(
    folder: Path, loads: Sequence[Load], *, slots: int = SLOTS, calm: float = CALM_SECONDS, pause: float = PAUSE
) -> list[Row]:
    """Measure each load on one cluster.

    Args:
        folder: for data and logs.
        loads: one after the other.
        slots: how many are moved under each of them.
        calm: seconds before the first of them.
        pause: seconds between two.
    """
    topics = topics_of_slots(slots)
    rows: list[Row] = []
    with RedisCluster() as servers:
        async with cluster(folder, grid_url=servers.url) as stack:
            for load in loads:
                async with AsyncExitStack() as opened:
                    sessions = await _open(opened, stack.url, load.sessions)
                    publishers = Publishers(sessions, list(topics.values()), load.every)
                    try:
                        undisturbed = publishers.outcome
                        await asyncio.sleep(calm)
                        publishers.outcome = Outcome()
                        for tag in topics:
                            await asyncio.to_thread(servers.move, [tag])
                            await asyncio.sleep(pause)
                    finally:
                        await publishers.stop()
                    rows.append(Row(load, undisturbed, publishers.outcome))
    return rows


async def _open(opened: AsyncExitStack, url: str, wanted: int) -> list[Session]:
    turn = asyncio.Semaphore(CONNECTING)

    async def enter(number: int) -> Session:
        async with turn:
            return await opened.enter_async_context(connect(url, principal=f"publisher-{number}"))

    return list(await asyncio.gather(*map(enter, range(wanted))))


def table(rows: Sequence[Row]) -> list[str]:
    """Lay the figures out, as Markdown."""
    lines = [
        "| publishes | p50 | p99 | slowest | p50 while slots move | p99 | slowest | refused |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{each.percentile(share):,.1f} ms" for each in (row.calm, row.moving) for share in (0.5, 0.99, 1.0)]
        lines.append(f"| {row.load.name} | {' | '.join(cells)} | {row.calm.refused + row.moving.refused} |")
    return lines


@click.command()
@click.option("--slots", default=SLOTS, show_default=True, help="How many are moved under each load.")
@click.option("--calm", default=CALM_SECONDS, show_default=True, help="Seconds before the first of them.")
def main(slots: int, calm: float) -> None:
    """Measure publishes while the slots of their topics move."""
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(Path(folder), LOADS, slots=slots, calm=calm))
    click.echo("\n".join(table(rows)))


if __name__ == "__main__":
    main()
