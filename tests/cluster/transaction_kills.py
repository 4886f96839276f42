"""Consume and publish in transactions while nodes and Redis are killed: the output has each input exactly once (P16).

``python -m tests.cluster.transaction_kills --messages 5000 --kills 50 --restarts 2`` runs it at full length.

```text
sender ──▶ input ──▶ workers: accept, send and publish in one transaction ──▶ output and a topic with history
                        ▲                                                          │
     kill -9 of nodes, restarts of Redis with its data, abandoned sessions      each input exactly once?
```

With ``--sentinel`` the master of Redis is killed instead, and its replica takes over, which may lack what was confirmed
last. What follows from that is declared (P2), and nothing else may be missing or twice:

```text
the grid lost         then
an input              it is in neither output, and its sender was told
a commit              the input is given again: it is in the output once, as both went together, but perhaps twice in
                      the topic, as nodes put back events which they remember
a part of an open     it is rolled back as a whole, and the worker begins again (ADR 0133)
transaction
```
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

import click

from gateway.client import Message, MessageConsumer, NoSuchTransaction, NotHeld, Session, SessionEnded, connect
from gateway.local.stack import Stack
from tests.chaos.account.forgotten import Forgotten, undone
from tests.cluster.grid_reader import GridReader
from tests.cluster.master_kills import MasterKills
from tests.cluster.queue_kills import FAULT_SECONDS, PATIENCE, UNDER_WAY, WINDOW, disturb
from tests.cluster.queue_kills import QUEUE as INPUT
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinels
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

OUTPUT: Final = "results/work"
TOPIC: Final = "log/results"
DECLARED: Final = (
    "".join(f'[[destination]]\npath = "{queue}"\nkind = "queue"\ndeliveries = 1000\n' for queue in (INPUT, OUTPUT))
    + f'[[destination]]\nselector = "{TOPIC}"\nkind = "history"\ncount = 1_000_000\nbytes = "1GiB"\n'
)
"""Three partitions of the grid; and however often a message comes back, it does not become a dead letter here."""

WORKERS: Final = 4
CREDIT: Final = 40
OPEN: Final = 8
"""Transactions that a worker has open at a time."""

BATCH: Final = 3
"""Messages of one transaction, at most."""

TOGETHER: Final = 0.05
"""Seconds that a transaction waits for one more message."""

WORK: Final = 0.3
"""Seconds for which a transaction is open before its commit, at most."""


PROMOTION_SECONDS: Final = 6.0
"""Seconds, on a quiet machine, until a master is replaced and the one that took over has a replica again, about."""

PROMOTION_WINDOW: Final = 30.0
"""Seconds, on a quiet machine, that sessions survive without a connection where no node may have a grid for a while."""

BEFORE: Final = 2.0
"""Seconds by which somebody may be told of a loss before the confirmation of what was lost."""


@dataclass(slots=True)
class Call:
    """Something was asked of the grid.

    Attributes:
        asked: when.
        answered: when it was confirmed; never without an answer.
    """

    asked: float = field(default_factory=time.monotonic)
    answered: float = inf

    def confirmed(self) -> None:
        """The answer has come."""
        self.answered = time.monotonic()

    def is_undone(self, lost: Sequence[Forgotten]) -> bool:
        """Tell whether the grid may have lost it."""
        return undone(lost, self.asked, self.answered)


class Calls:
    """What was asked for, by input.

    Attributes:
        sends: of each input.
        commits: of transactions that pass it on.
        told: when the sender was told that the grid has lost writes.
    """

    def __init__(self) -> None:
        self.sends: dict[int, Call] = {}
        self.commits: defaultdict[int, list[Call]] = defaultdict(list)
        self.told: list[float] = []

    def is_declared(self, value: int) -> bool:
        """Tell whether the sender of an input was told that it may be lost."""
        return any(each >= self.sends[value].answered - BEFORE for each in self.told)


@dataclass
class Account:
    """What came of the inputs.

    Attributes:
        calls: what was asked for.
        sent: how often each is in the output.
        published: how often each is in the history of the topic.
        left: messages of the input that are not settled, by their values, and where they are.
        reserved: messages of the output that are held, by a transaction that is not over.
        refused: transactions that were refused or rolled back.
        lost: workers that were abandoned.
        failed: what workers raised that they should not; what such a worker had is left to nobody.
        forgotten: when the grid may have lost writes.
    """

    calls: Calls
    sent: Counter[int]
    published: Counter[int]
    left: Mapping[int, str] = field(default_factory=dict)
    reserved: int = 0
    refused: int = 0
    lost: int = 0
    failed: Sequence[str] = ()
    forgotten: Sequence[Forgotten] = ()

    @property
    def lost_inputs(self) -> set[int]:
        """Inputs of which nothing is left as the grid has lost them."""
        return {
            value
            for value, call in self.calls.sends.items()
            if value not in self.sent and value not in self.left and call.is_undone(self.forgotten)
        }

    @property
    def repeated(self) -> set[int]:
        """Inputs that are in the topic again, as the grid has lost their commit and not their event."""
        return {
            value
            for value, times in self.published.items()
            if times > 1 and any(call.is_undone(self.forgotten) for call in self.calls.commits[value])
        }

    def complaints(self, count: int) -> list[str]:
        """Name whatever is not as promised."""
        found: list[str] = []
        lost, repeated = self.lost_inputs, self.repeated
        for name, results in (("the queue", self.sent), ("the topic", self.published)):
            missing = sorted(set(range(count)) - results.keys() - lost)
            again = repeated if results is self.published else set()
            twice = sorted(each for each, times in results.items() if times > 1 and each not in again)
            strange = sorted(results.keys() - set(range(count)))
            named = {"missing": missing, "there twice": twice, "of no input": strange}
            found += [f"{len(which)} {what} in {name}: {which[:10]}" for what, which in named.items() if which]
        undeclared = sorted(each for each in lost if not self.calls.is_declared(each))
        if undeclared:
            found.append(f"{len(undeclared)} inputs were lost, and their sender was not told: {undeclared[:10]}")
        if self.left:
            found.append(f"{len(self.left)} messages are left in the input: {dict(list(self.left.items())[:10])}")
        if self.reserved:
            found.append(f"{self.reserved} messages of the output are held by transactions")
        return [*found, *(f"a worker failed: {each}" for each in self.failed)]


class Worker:
    """A consumer that passes on all it is given, some messages in one transaction, and can be lost."""

    def __init__(self, url: str, random: Random, calls: Calls, window: float) -> None:
        self._url = url
        self._random = random
        self._calls = calls
        self._window = window
        self._session: Session | None = None
        self._reading: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self.refused = 0
        self.lost = 0
        self.failed: list[str] = []

    async def start(self) -> None:
        """Open a session and consume."""
        self._session = await connect(self._url, "worker", window=scaled(self._window), connect_timeout=None)
        consumer = await self._session.consume(INPUT, credit=CREDIT, ack="each")
        self._reading = asyncio.create_task(self._read(self._session, consumer))
        self._reading.add_done_callback(self._look_at_end)

    async def lose(self) -> None:
        """Abandon the session in the middle of its work; nobody says good-bye."""
        self.lost += 1
        tasks = [each for each in (self._reading, *self._working) if each is not None]
        # What is asked after this is not asked any more: the session goes first, and then those who wait for it.
        if self._session is not None:
            await self._session.close(timeout=0)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, session: Session, consumer: MessageConsumer) -> None:
        room = asyncio.Semaphore(OPEN)
        async for first in consumer:
            await room.acquire()
            messages = [first]
            with suppress(TimeoutError, StopAsyncIteration):  # the latter of one that is being lost
                async with time_limit(TOGETHER):
                    while len(messages) < self._random.randint(1, BATCH):
                        messages.append(await anext(consumer))
            task = asyncio.create_task(self._pass_on(session, messages))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
            task.add_done_callback(self._look_at_end)
            task.add_done_callback(lambda _: room.release())

    async def _pass_on(self, session: Session, messages: list[Message]) -> None:
        while True:
            try:
                async with session.transaction() as t:
                    for each in messages:
                        await t.accept(each)
                        await t.send(OUTPUT, each.value)
                        await t.publish(TOPIC, each.value)
                    await asyncio.sleep(self._random.uniform(0, WORK))
                    call = Call()
                    for each in messages:
                        self._calls.commits[each.value].append(call)
                call.confirmed()
            except NotHeld:
                self.refused += 1
                if len(messages) > 1:  # the others are held still
                    for each in messages:
                        await self._pass_on(session, [each])
                return
            except NoSuchTransaction:
                self.refused += 1
                continue
            except SessionEnded:
                return
            return

    def _look_at_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SessionEnded):
            self.failed.append(repr(error))


async def send_all(url: str, count: int, seconds: float, calls: Calls) -> None:
    """Send inputs with the numbers from 0, some of them at a time, spread over so many seconds or more."""
    session = await connect(url, "sender", connect_timeout=None)
    room = asyncio.Semaphore(UNDER_WAY)

    async def listen() -> None:
        async for notice in session.notices():
            if notice.code == "grid_lost_writes":
                calls.told.append(time.monotonic())

    async def send(number: int) -> None:
        await asyncio.sleep(number / count * seconds)
        async with room:
            call = calls.sends[number] = Call()
            await session.send(INPUT, number)
            call.confirmed()

    listening = asyncio.create_task(listen())
    await asyncio.gather(*(send(number) for number in range(count)))
    await session.close()
    await listening


async def judged(
    stack_url: str, grid_url: str, count: int, workers: list[Worker], *, calls: Calls, lost: Sequence[Forgotten]
) -> Account:
    """Wait until all is passed on, and look at what came out: queues as they are stored, the topic as it is read."""
    async with GridReader(grid_url) as grid:
        with suppress(TimeoutError):
            async with time_limit(PATIENCE):
                while True:
                    left, output = await grid.queue(INPUT), await grid.queue(OUTPUT)
                    known = set(map(int, output.messages.values()))
                    gone = sum(call.is_undone(lost) for value, call in calls.sends.items() if value not in known)
                    if not left.messages and len(known) + gone >= count and not output.held:
                        break
                    await asyncio.sleep(0.2)
        left, output = await grid.queue(INPUT), await grid.queue(OUTPUT)
    async with await connect(stack_url, "judge", connect_timeout=None) as session:
        updates = await session.history(TOPIC, limit=10 * count)
    return Account(
        calls,
        Counter(int(each) for each in output.messages.values()),
        Counter(each.value for each in updates),
        left={int(value): left.place_of(message) for message, value in left.messages.items()},
        reserved=len(output.held),
        refused=sum(each.refused for each in workers),
        lost=sum(each.lost for each in workers),
        failed=[error for each in workers for error in each.failed],
        forgotten=lost,
    )


@asynccontextmanager
async def running(folder: Path, grid: str, random: Random) -> AsyncIterator[tuple[Stack, MasterKills | None]]:
    """Run nodes on a Redis of their own, behind Sentinels, or on a Redis Cluster.

    Args:
        folder: for data and logs.
        grid: ``single``, ``sentinel`` or ``cluster``.
        random: decides how much a master loses that is killed.

    Yields:
        The nodes, and who kills their masters.
    """
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    settings: dict[str, Any] = {"destinations": file, "lease": scaled(2.0), "lease_renew": scaled(0.5)}
    async with AsyncExitStack() as exits:
        masters: MasterKills | None = None
        if grid == "sentinel":
            masters = MasterKills(exits.enter_context(RedisSentinels()), random)
            settings["grid_url"] = masters.url
            await exits.enter_async_context(masters.watched())
        elif grid == "cluster":
            settings["grid_url"] = exits.enter_context(RedisCluster()).url
        yield await exits.enter_async_context(cluster(folder, **settings)), masters


async def run(
    folder: Path, *, messages: int, kills: int, restarts: int, seed: int, grid: str = "single"
) -> tuple[Account, float]:
    """Pass messages on through a cluster that is broken meanwhile.

    Args:
        folder: for data and logs.
        messages: how many are sent.
        kills: of nodes.
        restarts: of Redis, or promotions of its replica behind Sentinels.
        seed: of the faults and their times.
        grid: ``single``, ``sentinel`` or ``cluster``.

    Returns:
        The account, and the seconds.
    """
    random, began, calls = Random(seed), time.monotonic(), Calls()
    async with running(folder, grid, random) as (stack, masters):
        window = WINDOW if masters is None else PROMOTION_WINDOW
        workers = [Worker(stack.url, Random(seed + number), calls, window) for number in range(WORKERS)]
        for each in workers:
            await each.start()
        seconds = kills * FAULT_SECONDS + restarts * (FAULT_SECONDS if masters is None else scaled(PROMOTION_SECONDS))
        sending = asyncio.create_task(send_all(stack.url, messages, seconds, calls))
        restart = None if masters is None else masters.kill
        await disturb(stack, workers, random, kills=kills, restarts=restarts, restart=restart)
        await sending
        lost = [] if masters is None else masters.lost
        account = await judged(stack.url, stack.grid_url, messages, workers, calls=calls, lost=lost)
        for each in workers:
            await each.lose()
    return account, time.monotonic() - began


@click.command()
@click.option("--messages", default=5_000, show_default=True, help="How many are sent.")
@click.option("--kills", default=50, show_default=True, help="How often a node is killed.")
@click.option("--restarts", default=2, show_default=True, help="How often Redis is restarted with its data.")
@click.option("--sentinel", "promotions", type=int, help="Behind Sentinels: how often the master is killed instead.")
@click.option("--cluster", "on_cluster", is_flag=True, help="On a Redis Cluster, which is not restarted.")
@click.option("--seed", default=1, show_default=True, help="Of the faults and their times.")
def main(messages: int, kills: int, restarts: int, promotions: int | None, seed: int, *, on_cluster: bool) -> None:
    """Consume and publish in transactions while nodes and Redis are killed, and account for each input."""
    if on_cluster and promotions is not None:
        raise click.UsageError("it is one grid or the other")
    grid = "cluster" if on_cluster else "single" if promotions is None else "sentinel"
    restarts = 0 if on_cluster else restarts if promotions is None else promotions
    with tempfile.TemporaryDirectory() as folder:
        account, seconds = asyncio.run(
            run(Path(folder), messages=messages, kills=kills, restarts=restarts, seed=seed, grid=grid)
        )
    what = "restarts" if promotions is None else "promotions"
    click.echo(
        f"{messages} messages, {kills} kills, {restarts} {what}, {account.lost} workers lost in {seconds:.0f} s: "
        f"{account.sent.total()} sent on, {account.published.total()} published, {account.refused} transactions "
        f"refused, {len(account.lost_inputs)} inputs lost with a master, {len(account.repeated)} put back"
    )
    wrong = account.complaints(messages)
    for each in wrong:
        click.echo(each, err=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
