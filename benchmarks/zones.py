"""What links between clusters cost, and how interest compacts: ``python -m benchmarks.zones``.

```text
published into Redis of A ──▶ node of A: tail, decide, send ──TLS──▶ node of B: judge, apply ──▶ Redis of B
                              (CPU of the sender)                    (CPU of the receiver)
```

Each cluster is one node with a Redis, without a client, so that all that a node takes is the link's. They are joined
from A to B, and events are published into A's Redis as other nodes would. What is told is the CPU time of each process
for an event, which other programs on the machine change little, and how many a core of it would do in a second.

Interest is measured alone, in one process: what many selectors become, and what it costs to tell and to hear of them.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import click

from benchmarks.measure import process_cpu, resident_bytes
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.core.zones.compaction import MOST_SELECTORS, compact
from gateway.core.zones.interest import HeardInterest, InterestTeller
from gateway.core.zones.messages import encode
from gateway.core.zones.protocol import InterestAll
from gateway.local.linked_clusters import LinkedCluster, all_linked, join, make_certificates, zone_ports, zone_settings
from gateway.local.ports import PortPlan
from gateway.local.recipes import StackOptions
from gateway.local.stack import Stack
from gateway.ports import Ownership, PublishCommand, Published

EVENTS: Final = 100_000
SELECTORS: Final = 100_000
SOURCE, TARGET = "source", "target"
VALUES: Final = (100, 1_000)
"""Bytes of a value."""

TOPICS: Final = 1_000
"""That are published to, in some tens of partitions."""

AT_ONCE: Final = 200
"""Events that are published in one step."""

AHEAD: Final = 5_000
"""Events that may have been published and have not come, so that the link never falls out of the stream."""

LOOK: Final = 0.02
"""Seconds between two looks at what has come."""

WARM: Final = 2_000
"""Events that cross before anything is measured."""

PATIENCE: Final = 600.0
"""Seconds until it is given up."""

DEPTH: Final = 1
"""Leading segments of a topic that decide its partition, as by default."""

MATCHES: Final = 20_000
"""Topics that are asked for, to tell what one question costs."""

ELSE: Final = "elsewhere/4711/status"
"""What one client more selects."""

_MICROSECONDS: Final = 1e6
_MIB: Final = 1024.0 * 1024.0
_MS: Final = 1e3

ARRIVED: Final = 'gateway_zone_events_total{direction="in"}'
NOT_TAKEN: Final = ("gateway_zone_events_not_applied_total", "gateway_zone_events_stopped_total")
"""Metrics: events that have come, and those of them that are not in the grid."""

T = TypeVar("T")


# --- A link -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """What it took to bring events across.

    Attributes:
        size: bytes of a value.
        events: how many crossed.
        seconds: for all of them, on this machine.
        cpu: seconds of CPU, by process: sender, receiver, and the Redis of the receiver.
        memory: bytes of both nodes at the end.
    """

    size: int
    events: int
    seconds: float
    cpu: Mapping[str, float]
    memory: tuple[int, int]

    def __str__(self) -> str:
        sender, receiver, redis = (self.cpu[name] for name in ("sender", "receiver", "redis"))
        each = _MICROSECONDS / self.events
        return (
            f"| {self.size:,} | {self.events / self.seconds:,.0f} | {self.events / sender:,.0f} "
            f"| {self.events / receiver:,.0f} | {sender * each:.1f} | {receiver * each:.1f} | {redis * each:.1f} "
            f"| {self.memory[0] / _MIB:.0f} | {self.memory[1] / _MIB:.0f} |"
        )


CROSSING_HEAD: Final = (
    "| bytes of a value | events/s, all on this machine | events/s of a core, sender | events/s of a core, receiver "
    "| sender, µs | receiver, µs | its Redis, µs | sender, MiB | receiver, MiB |\n"
    "| --: | --: | --: | --: | --: | --: | --: | --: | --: |"
)


class Link:
    """Two clusters of one node that are joined, and what is published into the first one.

    Args:
        source: where events are published.
        target: where they go.
    """

    def __init__(self, source: LinkedCluster, target: LinkedCluster) -> None:
        self._source = source
        self._target = target
        self._request = 0

    async def measure(self, size: int, events: int) -> Crossing:
        """Have events cross, and tell what that took."""
        node = NodeRef(NodeId("publisher"), Incarnation("bench"))
        grid = RedisGrid(
            node=node,
            url=self._source.stack.grid_url,
            prefix="gateway",
            metrics=MemoryMetrics(),
            log=MemoryEventLog(),
        )
        await grid.start()
        try:
            await self._send(grid, node, size, min(WARM, events))
            before, began = self._cpu(), time.monotonic()
            await self._send(grid, node, size, events)
            seconds = time.monotonic() - began
            cpu = {name: after - before[name] for name, after in self._cpu().items()}
            (sender,), (receiver,) = (list(each.stack.nodes.values()) for each in (self._source, self._target))
            memory = resident_bytes([sender.pid]), resident_bytes([receiver.pid])
            return Crossing(size, events, seconds, cpu, memory)
        finally:
            await grid.close()

    async def _send(self, grid: RedisGrid, node: NodeRef, size: int, events: int) -> None:
        """Publish so many events, and wait until all have come."""
        ownership = Ownership(SessionId("publisher"), node, Epoch(1))
        before = await self._arrived()
        value, published, arrived = b'"%s"' % (b"x" * (size - 2)), 0, 0
        async with asyncio.timeout(PATIENCE):
            while arrived < events:
                while published < events and published - arrived < AHEAD:
                    commands: list[PublishCommand] = []
                    for _ in range(min(AT_ONCE, events - published)):
                        self._request += 1
                        topic = TopicPath(f"bench{self._request % TOPICS}/value")
                        settled = RequestNumber(self._request - 1 - len(commands))
                        commands.append(PublishCommand(ownership, RequestNumber(self._request), settled, topic, value))
                    results = await grid.topics.publish(commands)
                    if not all(isinstance(each, Published) for each in results):
                        raise click.ClickException(f"{results[0]} instead of a publish")
                    published += len(commands)
                await asyncio.sleep(LOOK)
                arrived = await self._arrived() - before

    async def _arrived(self) -> int:
        """Count what has come over the link, and is in the grid there or needs not be."""
        not_taken = [await self._target.count(name) for name in NOT_TAKEN]
        return await self._target.count(ARRIVED) - sum(not_taken)

    def _cpu(self) -> dict[str, float]:
        (sender,), (receiver,) = (list(each.stack.nodes.values()) for each in (self._source, self._target))
        redis = self._target.stack.grid.process
        return {
            name: process_cpu(process.pid)
            for name, process in (("sender", sender), ("receiver", receiver), ("redis", redis))
        }


async def measure_link(folder: Path, events: int) -> list[Crossing]:
    """Run two clusters, and measure the link between them for each size of values."""
    certificates = folder / "certificates"
    make_certificates(certificates, (SOURCE, TARGET))
    stacks = []
    for name in (SOURCE, TARGET):
        ports = PortPlan.free(1)
        options = StackOptions(
            ports=ports,
            folder=folder / name,
            balancer=False,
            node_settings=zone_settings(name, certificates),
            node_environment=zone_ports(ports),
        )
        stacks.append(LinkedCluster(name, Stack(options)))
    source, target = stacks
    async with source.stack, target.stack:
        await join(source, target, "**")
        await all_linked(source, target, out=(1, 0))
        link = Link(source, target)
        return [await link.measure(size, events) for size in VALUES]


# --- Interest ---------------------------------------------------------------------------------------------------------


SHAPES: Final[Mapping[str, Callable[[int], str]]] = {
    "800 topics that many select, `board/17`": lambda number: f"board/{number % 800}",
    "topics of 500 groups, `group/17/item/4711`": lambda number: f"group/{number % 500}/item/{number}",
    "an inbox each, `users/4711/inbox`": lambda number: f"users/{number}/inbox",
    "a first segment each, `device4711/state`": lambda number: f"device{number}/state",
    "a wildcard each, `prices/4711/*`": lambda number: f"prices/{number}/*",
}
"""What clients select, by what it is: from the number of a client."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What selectors became.

    Attributes:
        what: they are.
        selectors: how many.
        whole: bytes that telling all of them would be.
        told: how many are told.
        bytes: of the message at connect.
        shown: one of them.
        seconds: of CPU to find them.
        memory: bytes that it takes meanwhile.
        change: bytes of what is told if one client more selects something else; 0 if that is covered.
        digest: bytes of the message by which both sides compare.
        heard: seconds of CPU to take it in, at the other end.
        kept: bytes that are kept of it there.
        question: seconds of CPU to tell whether one topic is wanted.
    """

    what: str
    selectors: int
    whole: int
    told: int
    bytes: int
    shown: str
    seconds: float
    memory: int
    change: int
    digest: int
    heard: float
    kept: int
    question: float

    def __str__(self) -> str:
        return (
            f"| {self.what} | {self.told:,}, such as `{self.shown}` | {self.whole:,} | {self.bytes:,} "
            f"| {self.change:,} | {self.digest:,} | {self.seconds * _MS:,.0f} | {self.memory / _MIB:.1f} "
            f"| {self.heard * _MS:.1f} | {self.kept / 1024:,.0f} | {self.question * _MICROSECONDS:.2f} |"
        )


INTEREST_HEAD: Final = (
    "| selectors | told | all of them, bytes | at connect, bytes | one more, bytes | digest, bytes "
    "| to compact, ms | meanwhile, MiB | to hear, ms | kept there, KiB | wanted or not, µs |\n"
    "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
)


def measure_interest(selectors: int) -> Iterator[Compacted]:
    """Compact many selectors of each kind, and tell them to another cluster."""
    for what, name in SHAPES.items():
        yield _compacted(what, name, selectors)


def _compacted(what: str, name: Callable[[int], str], selectors: int) -> Compacted:
    own = [parse_selector(name(number)) for number in range(selectors)]
    told, seconds = _timed(lambda: compact(own, most=MOST_SELECTORS))
    teller = InterestTeller()
    teller.change(told)
    message = len(encode(_whole(teller, told)))
    change = teller.change(compact([*own, parse_selector(ELSE)], most=MOST_SELECTORS))
    texts = [each.text for each in told]
    hearer, heard = _timed(lambda: _heard(texts))
    topics = [TopicPath(name(number * 7 % selectors).replace("*", "bid")) for number in range(MATCHES)]
    wanted, questions = _timed(lambda: sum(map(hearer.wants, topics)))
    if wanted != MATCHES:
        raise click.ClickException(f"{MATCHES - wanted} of {MATCHES} topics are selected, and not wanted")
    return Compacted(
        what=what,
        selectors=selectors,
        whole=len(encode(InterestAll(1, tuple(sorted(each.text for each in own))))),
        told=len(told),
        bytes=message,
        shown=min(texts, key=lambda each: (len(each), each)),
        seconds=seconds,
        memory=_peak(lambda: compact(own, most=MOST_SELECTORS)),
        change=0 if change is None else len(encode(change)),
        digest=len(encode(teller.digest())),
        heard=heard,
        kept=_kept(lambda: _heard(texts)),
        question=questions / MATCHES,
    )


def _whole(teller: InterestTeller, told: frozenset[Selector]) -> InterestAll:
    return InterestAll(teller.revision, tuple(sorted(each.text for each in told)))


def _heard(texts: list[str]) -> HeardInterest:
    hearer = HeardInterest(depth=DEPTH, most=3 * MOST_SELECTORS)
    hearer.whole(1, map(parse_selector, texts))
    return hearer


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Do something; returns what comes of it, and the seconds of CPU that it took."""
    gc.collect()
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def _peak(work: Callable[[], object]) -> int:
    """Tell how many bytes more there are at most while something is done."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _kept(work: Callable[[], object]) -> int:
    """Tell how many bytes something takes that is made."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = work()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        del kept
        return after - before
    finally:
        tracemalloc.stop()


@click.command()
@click.option("--events", default=EVENTS, show_default=True, help="Of each size, that cross the link; 0 leaves it out.")
@click.option("--selectors", default=SELECTORS, show_default=True, help="Of each kind, that are compacted; likewise.")
def main(events: int, selectors: int) -> None:
    """Measure what a link between clusters takes for an event, and how the interest of many clients compacts."""
    if events:
        with tempfile.TemporaryDirectory() as folder:
            crossings = asyncio.run(measure_link(Path(folder), events))
        click.echo("\n".join((CROSSING_HEAD, *map(str, crossings))))
    if events and selectors:
        click.echo()
    if selectors:
        click.echo("\n".join((INTEREST_HEAD, *map(str, measure_interest(selectors)))))


if __name__ == "__main__":
    main()
