"""Consume and publish in transactions while nodes and Redis are killed: the output has each input exactly once (P16).

``python -m tests.cluster.transaction_kills --messages 5000 --kills 50 --restarts 2`` runs it at full length.

```text
sender ──▶ input ──▶ workers: accept, send and publish in one transaction ──▶ output and a topic with history
                        ▲                                                          │
     kill -9 of nodes, restarts of Redis with its data, abandoned sessions      each input exactly once?
```
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import click

from gateway.client import Message, MessageConsumer, NoSuchTransaction, NotHeld, Session, SessionEnded, connect
from gateway.local.stack import Stack
from tests.cluster.grid_reader import GridReader
from tests.cluster.queue_kills import FAULT_SECONDS, PATIENCE, WINDOW, disturb, send_all
from tests.cluster.queue_kills import QUEUE as INPUT
from tests.support.redis_cluster import RedisCluster
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


@dataclass
class Account:
    """What came of the inputs.

    Attributes:
        sent: how often each is in the output.
        published: how often each is in the history of the topic.
        left: messages of the input that are not settled, by their values, and where they are.
        reserved: messages of the output that are held, by a transaction that is not over.
        refused: transactions that were refused or rolled back.
        lost: workers that were abandoned.
        failed: what workers raised that they should not; what such a worker had is left to nobody.
    """

    sent: Counter[int]
    published: Counter[int]
    left: Mapping[int, str] = field(default_factory=dict)
    reserved: int = 0
    refused: int = 0
    lost: int = 0
    failed: Sequence[str] = ()

    def complaints(self, count: int) -> list[str]:
        """Name whatever is not as promised."""
        found: list[str] = []
        for name, results in (("the queue", self.sent), ("the topic", self.published)):
            missing = sorted(set(range(count)) - results.keys())
            twice = sorted(each for each, times in results.items() if times > 1)
            strange = sorted(results.keys() - set(range(count)))
            named = {"missing": missing, "there twice": twice, "of no input": strange}
            found += [f"{len(which)} {what} in {name}: {which[:10]}" for what, which in named.items() if which]
        if self.left:
            found.append(f"{len(self.left)} messages are left in the input: {dict(list(self.left.items())[:10])}")
        if self.reserved:
            found.append(f"{self.reserved} messages of the output are held by transactions")
        return [*found, *(f"a worker failed: {each}" for each in self.failed)]


class Worker:
    """A consumer that passes on all it is given, some messages in one transaction, and can be lost."""

    def __init__(self, url: str, random: Random) -> None:
        self._url = url
        self._random = random
        self._session: Session | None = None
        self._reading: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self.refused = 0
        self.lost = 0
        self.failed: list[str] = []

    async def start(self) -> None:
        """Open a session and consume."""
        self._session = await connect(self._url, "worker", window=scaled(WINDOW), connect_timeout=None)
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
        while True:
            await room.acquire()
            messages = [await anext(consumer)]
            with suppress(TimeoutError):
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


async def judged(stack_url: str, grid_url: str, count: int, workers: list[Worker]) -> Account:
    """Wait until all is passed on, and look at what came out: queues as they are stored, the topic as it is read."""
    async with GridReader(grid_url) as grid:
        with suppress(TimeoutError):
            async with time_limit(PATIENCE):
                while True:
                    left, output = await grid.queue(INPUT), await grid.queue(OUTPUT)
                    if not left.messages and len(output.messages) >= count and not output.held:
                        break
                    await asyncio.sleep(0.2)
        left, output = await grid.queue(INPUT), await grid.queue(OUTPUT)
    async with await connect(stack_url, "judge", connect_timeout=None) as session:
        updates = await session.history(TOPIC, limit=10 * count)
    return Account(
        Counter(int(each) for each in output.messages.values()),
        Counter(each.value for each in updates),
        left={int(value): left.place_of(message) for message, value in left.messages.items()},
        reserved=len(output.held),
        refused=sum(each.refused for each in workers),
        lost=sum(each.lost for each in workers),
        failed=[error for each in workers for error in each.failed],
    )


@asynccontextmanager
async def running(folder: Path, *, on_cluster: bool) -> AsyncIterator[Stack]:
    """Run nodes on a Redis of their own, or on a Redis Cluster."""
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    settings: dict[str, Any] = {"destinations": file, "lease": scaled(2.0), "lease_renew": scaled(0.5)}
    if not on_cluster:
        async with cluster(folder, **settings) as stack:
            yield stack
        return
    with RedisCluster() as redis:
        async with cluster(folder, grid_url=redis.url, **settings) as stack:
            yield stack


async def run(
    folder: Path, *, messages: int, kills: int, restarts: int, seed: int, on_cluster: bool = False
) -> tuple[Account, float]:
    """Pass messages on through a cluster that is broken meanwhile; returns the account, and the seconds."""
    random, began = Random(seed), time.monotonic()
    async with running(folder, on_cluster=on_cluster) as stack:
        workers = [Worker(stack.url, Random(seed + number)) for number in range(WORKERS)]
        for each in workers:
            await each.start()
        sending = asyncio.create_task(send_all(stack.url, messages, (kills + restarts) * FAULT_SECONDS))
        await disturb(stack, workers, random, kills=kills, restarts=restarts)
        await sending
        account = await judged(stack.url, stack.grid_url, messages, workers)
        for each in workers:
            await each.lose()
    return account, time.monotonic() - began


@click.command()
@click.option("--messages", default=5_000, show_default=True, help="How many are sent.")
@click.option("--kills", default=50, show_default=True, help="How often a node is killed.")
@click.option("--restarts", default=2, show_default=True, help="How often Redis is restarted with its data.")
@click.option("--cluster", "on_cluster", is_flag=True, help="On a Redis Cluster, which is not restarted.")
@click.option("--seed", default=1, show_default=True, help="Of the faults and their times.")
def main(messages: int, kills: int, restarts: int, seed: int, *, on_cluster: bool) -> None:
    """Consume and publish in transactions while nodes and Redis are killed, and account for each input."""
    restarts = 0 if on_cluster else restarts
    with tempfile.TemporaryDirectory() as folder:
        account, seconds = asyncio.run(
            run(Path(folder), messages=messages, kills=kills, restarts=restarts, seed=seed, on_cluster=on_cluster)
        )
    click.echo(
        f"{messages} messages, {kills} kills, {restarts} restarts, {account.lost} workers lost in {seconds:.0f} s: "
        f"{account.sent.total()} sent on, {account.published.total()} published, {account.refused} transactions refused"
    )
    wrong = account.complaints(messages)
    for each in wrong:
        click.echo(each, err=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
