"""What a publish costs Redis, of this version and of another: ``python -m benchmarks.publish_cost --against <commit>``.

Each version has a Redis of its own and a process that publishes there through its own adapter. They are given the same
work in short turns, and every turn is compared with its neighbour (``benchmarks.paired``). What is read is the CPU time
of redis-server alone, which the kernel counts in nanoseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.checkout import SOURCE, unpack
from benchmarks.measure import process_cpu
from benchmarks.paired import Ratio, values_in_turns
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, redis_server, scratch_folder
from benchmarks.systems.base import SystemFailed, SystemUnavailable

# In the process that publishes, these are of the version that is measured.
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.ports import Ownership, PublishCommand, Published

THIS: Final = "this version"

AT_ONCE: Final[Mapping[str, int]] = {"one at a time": 1, "ten at once": 10, "a hundred at once": 100}
"""Publishes of one session that are under way together: as many are one step of the grid."""

GROWING, STEADY, KEPT = "sizes vary", "one size", "with history"
TOPICS: Final = 200
VALUE_BYTES: Final = 100
VARIED_BYTES: Final = 7
"""Values of varied size have fewer than so many bytes more."""

LIMITS: Final = HistoryLimits()
"""Of a topic with history: the defaults."""

PARTITION_BYTES: Final = 8 * 1024**2
PARTITION_TOPICS: Final = 10_000
"""The defaults of what a partition may hold."""

PUBLISHES: Final = 2_000
"""In a turn: some 30 ms of CPU of Redis."""

_MICROSECONDS: Final = 1e6


async def publish(port: int) -> None:
    """Publish at the Redis on *port* as asked on standard input: so many at once, in which way; answers each line."""
    node = NodeRef(NodeId("n1"), Incarnation("bench"))
    url = f"redis://{HOST}:{port}/0"
    grid = RedisGrid(node=node, url=url, prefix="bench", metrics=MemoryMetrics(), log=MemoryEventLog())
    await grid.start()
    bounds: dict[str, Any] = {"most_topics": PARTITION_TOPICS, "most_bytes": PARTITION_BYTES}
    bounds = {name: bound for name, bound in bounds.items() if name in PublishCommand._fields}
    ownership = Ownership(SessionId("publisher"), node, Epoch(1))
    request = 0

    def command(kind: str, settled: RequestNumber) -> PublishCommand:
        nonlocal request
        request += 1
        size = VALUE_BYTES + (request % VARIED_BYTES if kind == GROWING else 0)
        topic = TopicPath(f"bench/{request % TOPICS}")
        if kind == KEPT:
            topic, bounds["history"] = TopicPath(f"kept/{request % TOPICS}"), LIMITS
        else:
            bounds.pop("history", None)
        return PublishCommand(ownership, RequestNumber(request), settled, topic, b"1" * size, **bounds)

    while line := await asyncio.to_thread(sys.stdin.readline):
        at_once, _, kind = line.strip().partition(" ")
        for _ in range(PUBLISHES // int(at_once)):
            # What came before has been answered; this is what publishes have in common that are one step.
            settled = RequestNumber(request)
            results = await grid.topics.publish([command(kind, settled) for _ in range(int(at_once))])
            if not all(isinstance(each, Published) for each in results):
                raise SystemFailed(f"{results[0]} instead of a publish")
        print("done", flush=True)
    await grid.close()


class Contestant:
    """A version with a Redis.

    Args:
        redis: the Redis.
        publisher: a process that publishes there.
    """

    def __init__(self, redis: PinnedProcess, publisher: subprocess.Popen[str]) -> None:
        self._redis = redis
        self._publisher = publisher

    def cost(self, at_once: int, kind: str) -> float:
        """Publish; returns microseconds of CPU of Redis for each.

        Raises:
            SystemFailed: the publisher ended.
        """
        told, answered = self._publisher.stdin, self._publisher.stdout
        if told is None or answered is None:
            raise SystemFailed("the publisher has no pipes")
        before = process_cpu(self._redis.pid)
        told.write(f"{at_once} {kind}\n")
        told.flush()
        if answered.readline() != "done\n":
            raise SystemFailed("a publisher ended; what it said is above")
        return (process_cpu(self._redis.pid) - before) / PUBLISHES * _MICROSECONDS


@contextlib.contextmanager
def contestant(source: Path, placement: Placement) -> Iterator[Contestant]:
    """Run a version for the length of the block."""
    with redis_server(placement.server) as (redis, port):
        arguments = [sys.executable, "-P", str(Path(__file__).resolve()), "--publish", str(port)]
        # The packages of the version come first; of this one they get what measures.
        path = os.pathsep.join([str(source), str(SOURCE)])
        with subprocess.Popen(
            arguments, env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as publisher:
            try:
                yield Contestant(redis, publisher)
            finally:
                publisher.terminate()


HEAD: Final = (
    "| publishes | least, µs | least of this version, µs | more, median of turns (95 % interval) |",
    "| --- | --: | --: | --- |",
)


def compare(contestants: Mapping[str, Contestant], against: str, turns: int) -> Iterator[str]:
    """Measure every kind of publishes; yields rows of a table, in Markdown."""
    for kind in (STEADY, GROWING):
        for name, at_once in AT_ONCE.items():
            values = values_in_turns({label: _cost(each, at_once, kind) for label, each in contestants.items()}, turns)
            before, after = values[against], values[THIS]
            least: Sequence[float] = (min(before), min(after))
            yield (
                f"| {name}, {kind} | {least[0]:.2f} | {least[1]:.2f} ({(least[1] / least[0] - 1) * 100:+.1f} %) "
                f"| {Ratio.of(before, after)} |"
            )


def with_and_without_history(contestant: Contestant, at_once: int, turns: int) -> tuple[list[float], list[float]]:
    """Measure publishes to topics without history, and to such with it, in turns.

    Returns:
        Microseconds of CPU of Redis for each publish, of each turn: without, and with.
    """
    values = values_in_turns({kind: _cost(contestant, at_once, kind) for kind in (STEADY, KEPT)}, turns)
    return values[STEADY], values[KEPT]


def _cost(each: Contestant, at_once: int, kind: str) -> Callable[[], float]:
    return lambda: each.cost(at_once, kind)


@click.command()
@click.option("--against", default="HEAD", show_default=True, help="Commit that this version is compared with.")
@click.option("--turns", default=40, show_default=True, help="Turns of each.")
@click.option("--publish", "port", type=int, hidden=True, help="Be the publisher at the Redis on this port.")
def main(against: str, turns: int, port: int | None) -> None:
    """Measure what a publish costs Redis, and print a table."""
    if port is not None:
        asyncio.run(publish(port))
        return
    placement = Placement.of_this_machine()
    print(*HEAD, sep="\n", flush=True)
    try:
        with scratch_folder("publish-cost") as folder, contextlib.ExitStack() as stack:
            unpack(against, folder, "gateway")  # not what measures, which is of this version
            contestants = {
                name: stack.enter_context(contestant(source, placement))
                for name, source in ((against, folder), (THIS, SOURCE))
            }
            for row in compare(contestants, against, turns):
                print(row, flush=True)
    except (SystemFailed, SystemUnavailable) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
