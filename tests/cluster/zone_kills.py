"""Three clusters in a ring of a zone and joins, under faults, with an account of each event.

``python -m tests.cluster.zone_kills --events 10000 --faults 40`` runs it at full length.

```text
        zone ┌── A ◀─────▶ B ──┐
             └─ ▲ │ ─── │ ▲ ───┘     each arrow is a link of its own; an event of C comes to A by two ways
                │ ▼ join ▼ │
                └─── C ────┘
```

Carriers of links are killed, links are cut, and a Redis is restarted, while clients publish at all clusters. In the end
each reader has each event of topics with history once and in order, and the values of the others agree everywhere.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import click

from gateway.client import Session, Update, connect
from gateway.local.admin import UNREACHABLE
from gateway.local.grid_server import GridRestart
from gateway.local.linked_clusters import join, zone_of
from tests.cluster.ledgers import difference
from tests.cluster.zone_stacks import ZoneStack, all_linked, zone_stacks
from tests.support.faults import eventually
from tests.support.times import PATIENCE, scaled

DECLARED: Final = '[[destination]]\nselector = "log/**"\nkind = "history"\ncount = 100_000\nbytes = "64MiB"\n'
SELECTORS: Final = ("log/**", "value/**")
TOPICS: Final = 6
"""Topics of each kind; all clusters publish to all of them."""

UNDER_WAY: Final = 20
"""Publishes of a cluster at a time to different topics: those to one topic wait for each other, to have an order."""

FAULT_SECONDS: Final = 2.5
"""Seconds, on a quiet machine, from the beginning of one fault to that of the next one, at least."""

CUT_SECONDS: Final = 1.0
"""Seconds, on a quiet machine, for which a link that was cut stays so, at most."""

DONE: Final = 4 * PATIENCE
"""Seconds, on a quiet machine, until everything has come after the last fault."""

QUIET: Final = 2.0
"""Seconds, on a quiet machine, in which nothing crosses once everything has come by all ways."""

EXPECTED_ERROR: Final = "grid_unreachable"
"""Log event of level error, which nodes tell whose Redis is restarted, and no others."""


class Account:
    """What readers of one cluster were sent.

    Attributes:
        log: values of topics with history, by topic, in order.
        values: the last one of each other topic.
        gaps: updates that told of a gap.
    """

    def __init__(self) -> None:
        self.log: dict[str, list[tuple[str, int]]] = {}
        self.values: dict[str, Any] = {}
        self.gaps: list[Update] = []

    def has(self) -> int:
        """Count the events of topics with history, repeated ones too."""
        return sum(map(len, self.log.values()))

    async def read_log(self, session: Session) -> None:
        """Read topics with history, for ever."""
        async for update in await session.subscribe("log/**", start="earliest"):
            self.log.setdefault(update.topic, []).append((update.value["at"], update.value["number"]))
            if update.gap:
                self.gaps.append(update)

    async def read_values(self, session: Session) -> None:
        """Read the other topics, for ever."""
        async for update in await session.subscribe("value/**"):
            self.values[update.topic] = update.value


class Publisher:
    """Publishes at one cluster.

    Args:
        at: its name.
        session: there.

    Attributes:
        published: numbers by topic, in the order in which they are in the grid.
    """

    def __init__(self, at: str, session: Session) -> None:
        self.published: dict[str, list[int]] = {}
        self._at = at
        self._session = session

    async def run(self, count: int, seconds: float, random: Random) -> None:
        """Publish so many events, spread over so many seconds or more."""
        room = asyncio.Semaphore(UNDER_WAY)
        locks: dict[str, asyncio.Lock] = {}

        async def publish(number: int, topic: str) -> None:
            async with locks.setdefault(topic, asyncio.Lock()), room:
                await self._session.publish(topic, {"at": self._at, "number": number})
            self.published.setdefault(topic, []).append(number)

        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                due = began + number / count * seconds
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                kind = random.choice(("log", "value"))
                tasks.create_task(publish(number, f"{kind}/{random.randrange(TOPICS)}"))


class Faults:
    """Breaks clusters.

    Args:
        stacks: which ones.
        random: chooses.

    Attributes:
        told: how often each was done.
        restarted: clusters whose Redis was restarted.
    """

    def __init__(self, stacks: Sequence[ZoneStack], random: Random) -> None:
        self.told: Counter[str] = Counter()
        self.restarted: set[str] = set()
        self._stacks = stacks
        self._random = random

    async def run(self, count: int) -> None:
        """Do so many faults one after the other: one Redis is restarted, and every third one is a cut."""
        kinds = [self._cut if number % 3 == 1 else self._kill for number in range(count)]
        kinds[count // 2] = self._restart
        loop = asyncio.get_running_loop()
        for kind in kinds:
            began = loop.time()
            await kind(self._random.choice(self._stacks))
            await asyncio.sleep(began + scaled(FAULT_SECONDS) - loop.time())

    async def _kill(self, stack: ZoneStack) -> None:
        """Kill a node that sends to other clusters, and start it again."""
        try:
            carriers = await stack.carriers()
        except UNREACHABLE:
            carriers = []
        self.told["carriers killed" if carriers else "nodes killed"] += 1
        node = self._random.choice(carriers or stack.stack.node_names)
        await stack.stack.kill_node(node)
        await asyncio.sleep(self._random.random() * scaled(FAULT_SECONDS))
        await stack.stack.start_node(node)

    async def _cut(self, stack: ZoneStack) -> None:
        """Cut all links that others have to one cluster, and refuse new ones for a while."""
        self.told["links cut"] += 1
        for proxy in stack.proxies.values():
            proxy.refuse()
            proxy.cut()
        await asyncio.sleep(self._random.random() * scaled(CUT_SECONDS))
        for proxy in stack.proxies.values():
            await proxy.start()

    async def _restart(self, stack: ZoneStack) -> None:
        """Kill a Redis, and start it with what it has written."""
        self.told["Redis restarted"] += 1
        self.restarted.add(stack.name)
        await stack.stack.restart_redis(GridRestart.AS_IT_WAS)


class Trial:
    """A run, and what is wrong with it.

    Attributes:
        wrong: what is not as promised.
        seconds: of publishing, until all was published; and until all had come.
        faults: how many of which kind.
        crossed: events that the links of nodes that live in the end have brought, and what of them was repeated.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.seconds = (0.0, 0.0)
        self.faults: Mapping[str, int] = {}
        self.crossed = (0, 0)

    def judge(self, stacks: Sequence[ZoneStack], accounts: Sequence[Account], publishers: Sequence[Publisher]) -> None:
        """Compare what came with what was published."""
        names = [each.name for each in stacks]
        for reader, account in zip(names, accounts, strict=True):
            for topic in sorted({topic for each in publishers for topic in each.published if topic.startswith("log/")}):
                had = account.log.get(topic, [])
                for at, publisher in zip(names, publishers, strict=True):
                    came = [number for origin, number in had if origin == at]
                    if told := difference(publisher.published.get(topic, []), came):
                        self.wrong.append(f"{topic} of {at} at {reader}: {told}")
            self.wrong += [f"{reader} was told of a gap: {each}" for each in account.gaps]
        wanted = {topic for each in publishers for topic in each.published if topic.startswith("value/")}
        for topic in sorted(wanted):
            last = [account.values.get(topic) for account in accounts]
            if any(each != last[0] for each in last) or last[0] is None:
                self.wrong.append(f"{topic} differs: {last}")

    def judge_logs(self, stacks: Sequence[ZoneStack], restarted: Collection[str]) -> None:
        """Look for errors in the logs of nodes.

        Args:
            stacks: whose nodes.
            restarted: clusters whose Redis was restarted.
        """
        for each in stacks:
            for event in each.log_events():
                expected = each.name in restarted and event.get("event") == EXPECTED_ERROR
                if event.get("level") == "error" and not expected:
                    self.wrong.append(f"logged at {each.name}: {event}")


async def crossed(stacks: Sequence[ZoneStack]) -> tuple[int, int]:
    """Count events that came over links, and those that were not taken, at all nodes since they started."""
    came = refused = 0.0
    for each in stacks:
        for node in each.stack.node_names:
            metrics = await each.stack.metrics(node)
            came += metrics.get('gateway_zone_events_total{direction="in"}', 0)
            refused += sum(
                value for name, value in metrics.items() if name.startswith("gateway_zone_events_not_applied_total")
            )
    return int(came), int(refused)


async def settled(stacks: Sequence[ZoneStack]) -> tuple[int, int]:
    """Wait until nothing crosses any more, as it would for ever if events went round; returns what ``crossed`` does.

    What has come by one way may come late by another one, and is counted then.
    """
    loop = asyncio.get_running_loop()
    last, since = await crossed(stacks), loop.time()

    async def is_quiet() -> bool:
        nonlocal last, since
        now = await crossed(stacks)
        if now != last:
            last, since = now, loop.time()
        return loop.time() - since >= scaled(QUIET)

    await eventually(is_quiet, "nothing crosses once everything has come")
    return last


@asynccontextmanager
async def ring(folder: Path) -> AsyncIterator[list[ZoneStack]]:
    """Run A and B in a zone, and C that is joined with both of them in both directions."""
    async with zone_stacks(folder, "A", "B", "C", **with_history(folder)) as stacks:
        a, b, c = stacks
        await zone_of("europe", a, b)
        for source, target in ((a, c), (b, c), (c, a), (c, b)):
            await join(source, target, *SELECTORS)
        await all_linked(*stacks, out=(2, 2, 2))
        yield stacks


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[list[ZoneStack]]:
    """Run A and B in a zone."""
    async with zone_stacks(folder, "A", "B", **with_history(folder)) as stacks:
        await zone_of("europe", *stacks)
        await all_linked(*stacks, out=(1, 1))
        yield stacks


def with_history(folder: Path) -> dict[str, object]:
    """Settings of nodes whose topics below ``log`` keep history."""
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    return {"destinations": file, "history_bytes": 256 * 1024**2}


Strike = Callable[[Sequence[ZoneStack]], Coroutine[Any, Any, Collection[str]]]
"""Breaks clusters; returns the names of those whose Redis was away meanwhile."""


async def observe(folder: Path, *, events: int, seconds: float, random: Random, strike: Strike) -> Trial:
    """Publish events at three clusters while they are broken, and account for each of them.

    Args:
        folder: for data and logs.
        events: how many are published, at all clusters together.
        seconds: in which they are, at least.
        random: chooses what is published where.
        strike: breaks the clusters meanwhile.
    """
    trial = Trial()
    async with ring(folder) as stacks:
        accounts = [Account() for _ in stacks]
        sessions = [
            await connect(each.urls[::way], role, connect_timeout=None, request_timeout=scaled(DONE))
            for role, way in (("writer", 1), ("reader", -1))
            for each in stacks
        ]
        writers, readers = sessions[: len(stacks)], sessions[len(stacks) :]
        publishers = [Publisher(each.name, session) for each, session in zip(stacks, writers, strict=True)]
        reading = [
            asyncio.create_task(read(session))
            for account, session in zip(accounts, readers, strict=True)
            for read in (account.read_log, account.read_values)
        ]
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for each in publishers:
                tasks.create_task(each.run(events // len(stacks), seconds, Random(random.random())))
            breaking = tasks.create_task(strike(stacks))
        published = time.monotonic() - began
        wanted = sum(
            len(numbers) for each in publishers for topic, numbers in each.published.items() if topic[:4] == "log/"
        )

        def agrees() -> bool:
            values = [account.values for account in accounts]
            return all(account.has() >= wanted for account in accounts) and all(each == values[0] for each in values)

        try:
            await eventually(agrees, "everything comes everywhere", within=DONE)
        except AssertionError as error:
            trial.wrong.append(str(error))
        trial.seconds = published, time.monotonic() - began
        try:
            trial.crossed = await settled(stacks)
        except AssertionError as error:
            trial.wrong.append(str(error))
        trial.wrong += [f"a reader failed: {each!r}" for each in reading if each.done()]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        trial.judge(stacks, accounts, publishers)
        trial.judge_logs(stacks, breaking.result())
        for session in sessions:
            await session.close()
    return trial


async def run(folder: Path, *, events: int, faults: int, seed: int) -> Trial:
    """Kill carriers, cut links and restart a Redis while events are published, and account for each of them.

    Args:
        folder: for data and logs.
        events: how many are published, at all clusters together.
        faults: how many.
        seed: of the faults and of what is published where.
    """
    random, told = Random(seed), Counter[str]()

    async def strike(stacks: Sequence[ZoneStack]) -> Collection[str]:
        breaking = Faults(stacks, random)
        await breaking.run(faults)
        told.update(breaking.told)
        return breaking.restarted

    seconds = faults * scaled(FAULT_SECONDS)
    trial = await observe(folder, events=events, seconds=seconds, random=random, strike=strike)
    trial.faults = told
    return trial


@click.command()
@click.option("--events", default=10_000, show_default=True, help="How many are published, at all clusters together.")
@click.option("--faults", default=40, show_default=True, help="How many: nodes killed, links cut, one Redis restarted.")
@click.option("--seed", default=1, show_default=True, help="Of the faults, and of what is published where.")
def main(events: int, faults: int, seed: int) -> None:
    """Break three clusters that are linked in a ring, and account for each event."""
    with tempfile.TemporaryDirectory() as folder:
        trial = asyncio.run(run(Path(folder), events=events, faults=faults, seed=seed))
    click.echo(
        f"{events} events, {dict(trial.faults)}, {trial.seconds[1]:.0f} s; {trial.crossed[0]} crossed, "
        f"{trial.crossed[1]} of them not taken"
    )
    for each in trial.wrong:
        click.echo(each, err=True)
    raise SystemExit(bool(trial.wrong))


if __name__ == "__main__":
    main()
