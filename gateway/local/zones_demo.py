"""``make zones``: clusters that are linked send each other what their clients want, once, though links and nodes die.

```text
 zone europe:   north ─────▶ south
                  │            │        a join is a link that somebody made by hand
             join └──▶ east ◀──┘ join
```

Each step publishes at *north* and compares what came to a reader at *south* and one at *east*. The demonstration fails
if any promise is broken.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from rich.table import Table

from gateway.client import Session, connect
from gateway.local.checker import Violation
from gateway.local.linked_clusters import (
    LinkedCluster,
    all_linked,
    join,
    make_certificates,
    until,
    zone_of,
    zone_ports,
    zone_settings,
)
from gateway.local.narration import Narrator
from gateway.local.ports import BLOCK, PortPlan
from gateway.local.processes import ProcessFailed
from gateway.local.recipes import StackOptions
from gateway.local.stack import Stack

NAMES: Final = ("north", "south", "east")
NODES: Final = 2
"""Of each cluster: one carries its links, and the other one can."""
EVENTS: Final = 50
"""Published in a step, to be counted."""
PACE: Final = 0.02
"""Seconds between two of them."""
CALM_SECONDS: Final = 1.5
"""Before what is not to come is said not to have come, and so that people can read."""
COME_SECONDS: Final = 30.0
"""How long everything may take to come, the lease of a node that died included."""
PROBE_SECONDS: Final = 0.1
"""Between two events that only tell whether another cluster gets them yet."""
LEASE_SECONDS: Final = 3.0
"""Lease of nodes here, shorter than by default, so that people need not wait until a dead one is missed."""

ZONE: Final = "europe"
SELECTOR: Final = "prices/**"
_DECLARED: Final = f'[[destination]]\nselector = "{SELECTOR}"\nkind = "history"\ncount = 10_000\n'
"""Only of a topic with history does a reader get each event; of a value it is owed the newest one."""
_OUT: Final = 'gateway_zone_events_total{direction="out"}'
_IN: Final = 'gateway_zone_events_total{direction="in"}'
_BYTES: Final = 'gateway_zone_link_bytes_total{direction="out"}'
_REPEATED: Final = 'gateway_zone_events_not_applied_total{reason="duplicate"}'
_COUNTED: Final = (_OUT, _BYTES, _IN, _REPEATED)
"""In the order of the table's columns."""
_SHOWN: Final = 5
"""Numbers of events that are named when something is wrong with them."""


class Reader:
    """Reads at one cluster.

    Args:
        cluster: its name.

    Attributes:
        cluster: as given.
        came: numbers of events, by topic, in the order in which they came.
        probes: how many events came that only told whether anything comes, by topic.
        gaps: how often it was told that events are missing.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.came: dict[str, list[int]] = {}
        self.probes: Counter[str] = Counter()
        self.gaps = 0

    async def read(self, session: Session) -> None:
        """Read for ever."""
        async for update in await session.subscribe(SELECTOR, start="now"):
            self.gaps += update.gap
            number = update.value["number"]
            if number is None:
                self.probes[update.topic] += 1
            else:
                self.came.setdefault(update.topic, []).append(number)

    def judge(self, topic: str, published: int) -> list[Violation]:
        """Compare what came of a topic with numbers from 0 on."""
        came = self.came.get(topic, [])
        if came == list(range(published)):
            return []
        missing = sorted(set(range(published)) - set(came))
        repeated = sorted(number for number, times in Counter(came).items() if times > 1)
        told = f"missing {missing[:_SHOWN]}, repeated {repeated[:_SHOWN]}" if missing or repeated else "out of order"
        return [Violation("P18", f"{self.cluster} got {len(came)} of {published} events of {topic}: {told}")]


class ZonesDemo:
    """One run of the demonstration.

    Args:
        clusters: three, described and not started.
        narrator: tells what happens.
    """

    def __init__(self, clusters: Sequence[LinkedCluster], narrator: Narrator | None = None) -> None:
        self._north, self._south, self._east = self._clusters = tuple(clusters)
        self._narrator = narrator or Narrator()
        self._violations: list[Violation] = []
        self._compared = 0
        self._exits = AsyncExitStack()
        self._reading: list[asyncio.Task[None]] = []
        self._died: Counter[tuple[str, str]] = Counter()

    async def run(self) -> bool:
        """Start the clusters, do all steps, stop the clusters.

        Returns:
            Whether every promise was kept.

        Raises:
            ProcessFailed: a part did not do what it was told.
            ConnectFailed: a session could not be opened.
        """
        began = time.monotonic()
        for each in self._clusters:
            each.stack.clear()
        async with self._exits:
            with self._narrator.busy("starting three clusters …"):
                for each in self._clusters:
                    await self._exits.enter_async_context(each.stack)
                await zone_of(ZONE, self._north, self._south)
                await all_linked(*self._clusters, out=(1, 1, 0))
            self._narrator.say(
                f"Started three clusters with {NODES} nodes and a Redis each; {self._north.name} and "
                f"{self._south.name} are the zone {ZONE}. Logs in {self._north.stack.logs.parent.parent}"
            )
            self._writer = await self._session(self._north, "writer")
            await self._steps()
            table = await self._table()
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)
        summary = f"{self._compared} comparisons, {time.monotonic() - began:.0f} s"
        self._narrator.end([table], self._violations, summary)
        return not self._violations

    async def _steps(self) -> None:
        south, east = Reader(self._south.name), Reader(self._east.name)
        await self._step(
            f"Nobody at {south.cluster} has subscribed: {EVENTS} events are published at {self._north.name}",
            self._nothing_crosses,
        )
        await self._step(
            f"Interest travels: a client subscribes to {SELECTOR} at {south.cluster}",
            lambda: self._interest(south),
        )
        await self._step(
            f"A join goes on: {south.cluster} sends {SELECTOR} to {east.cluster}, which is in no zone",
            lambda: self._join(south, east),
        )
        await self._step(
            f"Two ways: {self._north.name} sends to {east.cluster} as well",
            lambda: self._second_way(south, east),
        )
        await self._step(
            "A node dies that sends to the others: kill -9, while events are published",
            lambda: self._carrier_dies(south, east),
        )

    # --- The steps ------------------------------------------------------------------------------------------------

    async def _nothing_crosses(self) -> str:
        before = await self._north.count(_OUT)
        await self._publish("prices/quiet", EVENTS)
        await asyncio.sleep(CALM_SECONDS)
        crossed = await self._north.count(_OUT) - before
        self._compare(
            [Violation("P18", f"{crossed} events left {self._north.name}, and nobody is interested")] if crossed else []
        )
        return f"{crossed} events left {self._north.name}: what nobody wants stays where it is"

    async def _interest(self, south: Reader) -> str:
        await self._open(self._south, south)
        seconds = await self._crosses("prices/interest", south)
        await self._publish("prices/interest", EVENTS)
        await self._all_came("prices/interest", EVENTS, south)
        return (
            f"{seconds:.2f} s later {self._north.name} knew, without the name of anybody; "
            f"{EVENTS} of {EVENTS} events came to {south.cluster}"
        )

    async def _join(self, south: Reader, east: Reader) -> str:
        before = await self._east.count(_IN), await self._north.count(_OUT)
        await join(self._south, self._east, SELECTOR)
        await all_linked(*self._clusters, out=(1, 2, 0))
        await self._open(self._east, east)
        await self._crosses("prices/join", east, south)
        await self._publish("prices/join", EVENTS)
        await self._all_came("prices/join", EVENTS, east, south)
        came = await self._east.count(_IN) - before[0]
        left = await self._north.count(_OUT) - before[1]
        published = EVENTS + south.probes["prices/join"]
        self._compare(
            []
            if left == published
            else [Violation("P18", f"{left} events left {self._north.name} for {published} that were published")]
        )
        return (
            f"{self._north.name} ─▶ {south.cluster} (zone) ─▶ {east.cluster} (join): {came} events came by it, and "
            f"{self._north.name} sent each of them once, to {south.cluster}"
        )

    async def _second_way(self, south: Reader, east: Reader) -> str:
        await join(self._north, self._east, SELECTOR)
        await all_linked(*self._clusters, out=(2, 2, 0))
        before = await self._east.count(_REPEATED)
        await self._crosses("prices/ways", south, east)
        await self._publish("prices/ways", EVENTS)
        await self._all_came("prices/ways", EVENTS, south, east)

        async def came_twice() -> bool:
            return await self._east.count(_REPEATED) - before >= EVENTS

        await self._until(came_twice, f"each event comes to {east.cluster} by both ways")
        refused = await self._east.count(_REPEATED) - before
        return f"each event came to {east.cluster} by both ways: {refused} were known, and the client got each one once"

    async def _carrier_dies(self, south: Reader, east: Reader) -> str:
        topic, count = "prices/carrier", 6 * EVENTS
        (node, *_) = await self._north.carriers()
        await self._crosses(topic, south, east)
        publishing = asyncio.create_task(self._publish(topic, count))
        await asyncio.sleep(count * PACE / 3)
        await self._remember(self._north, node)
        killed = time.monotonic()
        await self._north.stack.kill_node(node)

        async def taken_over() -> bool:
            carriers = await self._north.carriers()
            return bool(carriers) and node not in carriers

        await self._until(taken_over, f"the other node of {self._north.name} carries its links")
        seconds = time.monotonic() - killed
        await publishing
        await self._all_came(topic, count, south, east)
        await self._north.stack.start_node(node)
        return (
            f"{node} of {self._north.name} was killed; the other node sent on where it had stopped, {seconds:.1f} s "
            f"later; {count} of {count} events came to {south.cluster} and {east.cluster}, each once and in order"
        )

    # --- For the steps --------------------------------------------------------------------------------------------

    async def _step(self, title: str, work: Callable[[], Awaitable[str]]) -> None:
        """Do one step, unless a promise is broken already: what follows would only echo it."""
        if self._violations:
            return
        with self._narrator.step(title):
            await asyncio.sleep(CALM_SECONDS)
            text = await work()
        self._narrator.seen(text if not self._violations else "not as it should be:", self._violations)

    async def _open(self, cluster: LinkedCluster, reader: Reader) -> None:
        self._reading.append(asyncio.create_task(reader.read(await self._session(cluster, "reader"))))

    async def _session(self, cluster: LinkedCluster, principal: str) -> Session:
        return await self._exits.enter_async_context(connect(cluster.urls, principal, connect_timeout=COME_SECONDS))

    async def _publish(self, topic: str, count: int) -> None:
        for number in range(count):
            await self._writer.publish(topic, {"number": number})
            await asyncio.sleep(PACE)

    async def _crosses(self, topic: str, *readers: Reader) -> float:
        """Publish until an event comes to all readers: what is published before others tell their interest stays."""

        async def came() -> bool:
            await self._writer.publish(topic, {"number": None})
            await asyncio.sleep(PROBE_SECONDS)
            return all(each.probes[topic] for each in readers)

        return await self._until(came, f"events of {topic} come to {' and '.join(each.cluster for each in readers)}")

    async def _all_came(self, topic: str, count: int, *readers: Reader) -> None:
        async def came() -> bool:
            return all(len(each.came.get(topic, [])) >= count for each in readers)

        await self._until(came, f"all {count} events of {topic} come")
        for each in readers:
            self._compare(each.judge(topic, count))
            self._compare([Violation("P14", f"{each.cluster} was told of {each.gaps} gaps")] if each.gaps else [])

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> float:
        try:
            return await until(condition, what, COME_SECONDS)
        except ProcessFailed as late:
            self._compare([Violation("P18", str(late))])
            return COME_SECONDS

    def _compare(self, violations: list[Violation]) -> None:
        self._compared += 1
        self._violations += violations

    # --- The table ------------------------------------------------------------------------------------------------

    async def _remember(self, cluster: LinkedCluster, node: str) -> None:
        """Keep what a node has counted, which dies with it."""
        metrics = await cluster.stack.metrics(node)
        for metric in _COUNTED:
            self._died[cluster.name, metric] += int(metrics.get(metric, 0))

    async def _table(self) -> Table:
        table = Table(title="What crossed", title_justify="left")
        table.add_column("cluster")
        for column in ("events sent", "bytes sent", "events that came", "… of these known already"):
            table.add_column(column, justify="right")
        for each in self._clusters:
            counts = [
                await each.count(metric) + self._died[each.name, metric] for metric in (_OUT, _BYTES, _IN, _REPEATED)
            ]
            table.add_row(each.name, *(f"{count:,}" for count in counts))
        return table


def port_plans(base: int) -> list[PortPlan]:
    """Lay out the ports of the clusters in blocks from a base on.

    Raises:
        ValueError: ports outside 1 to 65535.
    """
    return [PortPlan.from_base(base + number * BLOCK, NODES) for number in range(len(NAMES))]


def describe(folder: Path, plans: Sequence[PortPlan]) -> list[LinkedCluster]:
    """Describe the three clusters of the demonstration; nothing starts by that, but certificates are made.

    Args:
        folder: of the run; certificates of an earlier run in it are replaced.
        plans: the ports of each cluster.

    Raises:
        ProgramMissing: redis-server is not installed.
        ProcessFailed: the certificates could not be made.
        OSError: a file in the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    destinations = folder.resolve() / "destinations.toml"
    destinations.write_text(_DECLARED, "utf-8")
    # New ones each time: those of an earlier run may have expired.
    certificates = folder.resolve() / "certificates"
    make_certificates(certificates, NAMES)
    clusters = []
    for name, ports in zip(NAMES, plans, strict=True):
        settings = {
            **zone_settings(name, certificates),
            "destinations": destinations,
            "lease": LEASE_SECONDS,
            "lease_renew": LEASE_SECONDS / 4,
        }
        options = StackOptions(
            ports=ports,
            folder=folder / name,
            balancer=False,
            node_settings=settings,
            node_environment=zone_ports(ports),
        )
        clusters.append(LinkedCluster(name, Stack(options)))
    return clusters
