"""What a node takes for the topics of full partitions: ``python -m benchmarks.replica_memory``.

Some partitions are filled up to ``limit_partition_bytes``, with values of one size each time. Then a client selects
everything, and how much a fresh node grows by that is compared with what is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Final

import click

from benchmarks.processes import scratch_folder
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.client import connect
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.local.ports import PortPlan
from gateway.local.recipes import StackOptions
from gateway.local.stack import Stack
from gateway.ports import Ownership, PublishCommand, Published
from gateway.settings import Settings

SIZES: Final = (1, 20, 100, 1_000, 32_000)
"""Bytes of the values."""

NUMBER_BYTES: Final = 2
"""Of values that are numbers; those that are longer are texts, as a number of many digits is not valid."""

PARTITIONS: Final = 8
"""That are filled: as many as show what all 64 would take, eight times less."""

AT_ONCE: Final = 500
"""Publishes in a step."""

STEP_BYTES: Final = 2 * 1024**2
"""Of their values."""

_MEGABYTE: Final = 1024**2


def roots() -> list[str]:
    """Name a root in each of the partitions to be filled."""
    found: dict[int, str] = {}
    for number in itertools.count():
        root = f"{number}"
        found.setdefault(topic_partition(TopicPath(root), 1), root)
        if len(found) == PARTITIONS:
            return list(found.values())
    raise AssertionError("there are more names than partitions")


async def fill(url: str, root: str, size: int, most: int) -> int:
    """Publish to new topics of a root until no more is stored; returns how many topics there are."""
    filler = NodeRef(NodeId("filler"), Incarnation("1"))
    grid = RedisGrid(url, node=filler, metrics=MemoryMetrics(), log=MemoryEventLog())
    await grid.start()
    owner = Ownership(SessionId(f"filler-{root}"), filler, Epoch(1))
    value, step = (
        b"1" * size if size <= NUMBER_BYTES else b'"%s"' % (b"1" * (size - 2)),
        max(1, min(AT_ONCE, STEP_BYTES // size)),
    )
    last = stored = 0
    while stored == last:
        commands = [
            PublishCommand(
                ownership=owner,
                request=RequestNumber(last + each),
                settled=RequestNumber(last),
                topic=TopicPath(f"{root}/{last + each:x}"),
                value=value,
                most_bytes=most,
            )
            for each in range(1, step + 1)
        ]
        last += step
        stored += sum(isinstance(each, Published) for each in await grid.topics.publish(commands))
    await grid.close()
    return stored


def resident(pid: int) -> int:
    """Tell the resident set of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(size: int, folder: Path) -> tuple[int, float]:
    """Fill partitions with values of one size.

    Returns:
        Topics of one of them, and bytes by which the node grows for each of them.

    Raises:
        ProcessFailed: a part of the stack did not come up.
    """
    ports = PortPlan.free(1)
    options = StackOptions(ports=ports, folder=folder, balancer=False)
    async with Stack(options) as stack:
        topics = [await fill(stack.grid_url, root, size, Settings().limit_partition_bytes) for root in roots()]
        (node,) = stack.nodes.values()
        before = resident(node.pid)
        async with connect(stack.node_url(next(iter(stack.nodes))), principal="reader") as session:
            stream = await session.subscribe("**")
            for _ in range(sum(topics)):
                await anext(stream)
            return topics[0], (resident(node.pid) - before) / PARTITIONS


@click.command()
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Bytes of the values.")
def main(sizes: str) -> None:
    """Print for each size of values what a full partition takes in a node."""
    counted = Settings().limit_partition_bytes
    click.echo(f"{'value':>8} {'topics':>8} {'counted':>9} {'node':>9} {'ratio':>6}")
    for size in map(int, sizes.split(",")):
        with scratch_folder("replicas") as folder:
            topics, taken = asyncio.run(measure(size, folder))
        click.echo(
            f"{size:>6} B {topics:>8} {counted / _MEGABYTE:>5.1f} MiB {taken / _MEGABYTE:>5.1f} MiB"
            f" {taken / counted:>6.2f}"
        )


if __name__ == "__main__":
    main()
