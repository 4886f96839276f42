"""Messages through one queue while nodes and Redis are killed and consumers are lost, with an account of each.

``python -m tests.cluster.queue_kills --messages 20000 --kills 50 --restarts 2`` runs it at full length.

```text
senders ──▶ queue ──▶ consumers ──accept──▶ account: settled once? marked if it came again? none missing?
                         ▲
        kill -9 of nodes, restarts of Redis with its data, sessions that are abandoned
```
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import click
from redis.asyncio import Redis

from gateway.client import Message, MessageConsumer, NotHeld, Session, connect
from gateway.local.grid_server import GridRestart
from gateway.local.stack import Stack
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

QUEUE: Final = "jobs/work"
DECLARED: Final = f'[[destination]]\npath = "{QUEUE}"\nkind = "queue"\ndeliveries = 1000\n'
"""However often a message is in the hands of somebody who is lost, it does not become a dead letter here."""

CONSUMERS: Final = 4
CREDIT: Final = 50
UNDER_WAY: Final = 50
"""Messages that are sent at a time."""

WORK: Final = 0.5
"""Seconds that the work for a message takes, at most: so faults find messages in the hands of consumers."""

FAULT_SECONDS: Final = 2.0
"""Seconds that a fault takes, with the pause before it, about: sending lasts as long as there are faults."""

WINDOW: Final = 5.0
"""Seconds, on a quiet machine, after which an abandoned session gives back what it held."""

PAUSES: Final = (0.2, 1.0)
"""Seconds between two faults, from and to."""

PATIENCE: Final = 120.0
"""Seconds, on a quiet machine, for all to be settled after the last fault."""


class Losable(Protocol):
    """A consumer that can be lost."""

    async def start(self) -> None:
        """Open a session and consume."""

    async def lose(self) -> None:
        """Abandon the session in the middle of its work."""


@dataclass
class Account:
    """What became of each message, by its value.

    Attributes:
        settled: how often its acceptance was confirmed.
        unsure: acceptances whose answer nobody waited for.
        unmarked: how often it came without being marked.
        marked: how often it came marked.
    """

    settled: Counter[int] = field(default_factory=Counter)
    unsure: set[int] = field(default_factory=set)
    unmarked: Counter[int] = field(default_factory=Counter)
    marked: Counter[int] = field(default_factory=Counter)

    def complaints(self, count: int) -> list[str]:
        """Name whatever is not as promised."""
        numbers = range(count)
        missing = [each for each in numbers if not self.settled[each] and each not in self.unsure]
        twice = [each for each in numbers if self.settled[each] > 1]
        unmarked = [each for each in numbers if self.unmarked[each] > 1]
        strange = sorted(self.settled.keys() - set(numbers))
        named = {"missing": missing, "settled twice": twice, "came again unmarked": unmarked, "never sent": strange}
        return [f"{len(which)} {what}: {which[:10]}" for what, which in named.items() if which]


class Worker:
    """A consumer that accepts all it is given, and can be lost."""

    def __init__(self, url: str, account: Account, random: Random) -> None:
        self._url = url
        self._random = random
        self._account = account
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._accepting: set[asyncio.Task[None]] = set()
        self._values: dict[asyncio.Task[None], int] = {}

    async def start(self) -> None:
        """Open a session and consume."""
        self._session = await connect(self._url, "worker", window=scaled(WINDOW), connect_timeout=None)
        consumer = await self._session.consume(QUEUE, credit=CREDIT, ack="each")
        self._task = asyncio.create_task(self._work(consumer))

    async def lose(self) -> None:
        """Abandon the session in the middle of its work; nobody says good-bye."""
        if self._task is not None:
            self._task.cancel()
        self._account.unsure.update(self._values.values())
        for each in self._accepting:
            each.cancel()
        if self._session is not None:
            await self._session.close(timeout=0)

    async def close(self) -> None:
        """End it."""
        await self.lose()

    async def _work(self, consumer: MessageConsumer) -> None:
        async for message in consumer:
            (self._account.marked if message.redelivered else self._account.unmarked)[message.value] += 1
            task = asyncio.create_task(self._accept(message))
            self._accepting.add(task)
            self._values[task] = message.value
            task.add_done_callback(self._done)

    async def _accept(self, message: Message) -> None:
        await asyncio.sleep(self._random.uniform(0, WORK))
        try:
            await message.accept()
        except NotHeld:
            return  # settled by an earlier copy of it, or taken back; then it comes again
        self._account.settled[message.value] += 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._accepting.discard(task)
        self._values.pop(task, None)


async def send_all(url: str, count: int, seconds: float) -> None:
    """Send messages with the numbers from 0, some of them at a time, spread over so many seconds or more."""
    session = await connect(url, "sender", connect_timeout=None)
    room = asyncio.Semaphore(UNDER_WAY)

    async def send(number: int) -> None:
        await asyncio.sleep(number / count * seconds)
        async with room:
            await session.send(QUEUE, number)

    await asyncio.gather(*(send(number) for number in range(count)))
    await session.close()


async def disturb(
    stack: Stack,
    workers: Sequence[Losable],
    random: Random,
    *,
    kills: int,
    restarts: int,
    restart: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Break things, one after the other, with short pauses between them.

    Args:
        stack: what is broken.
        workers: one of them is lost for every tenth kill.
        random: decides the order and the pauses.
        kills: of nodes.
        restarts: of Redis.
        restart: what is done to Redis; by default it is restarted with its data.
    """
    faults = ["kill"] * kills + ["restart"] * restarts + ["lose"] * (kills // 10)
    random.shuffle(faults)
    for fault in faults:
        await asyncio.sleep(random.uniform(*PAUSES))
        if fault == "kill":
            node = random.choice(stack.node_names)
            await stack.kill_node(node)
            await stack.start_node(node)
        elif fault == "restart":
            await (stack.restart_redis(GridRestart.AS_IT_WAS) if restart is None else restart())
        else:
            worker = random.choice(workers)
            await worker.lose()
            await worker.start()


async def left(stack: Stack) -> int:
    """Count the messages that the grid still holds."""
    count = 0
    client: Any = Redis.from_url(stack.grid_url)
    async with client:
        async for key in client.scan_iter(match=f"*:queue-messages:{QUEUE}", count=1000):
            count += await client.hlen(key)
    return count


async def run(folder: Path, *, messages: int, kills: int, restarts: int, seed: int) -> tuple[Account, list[str], float]:
    """Send messages through a cluster that is broken meanwhile; returns the account, what is wrong, and the seconds."""
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    account, random, began = Account(), Random(seed), time.monotonic()
    async with cluster(folder, destinations=file, lease=scaled(2.0), lease_renew=scaled(0.5)) as stack:
        workers = [Worker(stack.url, account, random) for _ in range(CONSUMERS)]
        for each in workers:
            await each.start()
        sending = asyncio.create_task(send_all(stack.url, messages, (kills + restarts) * FAULT_SECONDS))
        await disturb(stack, workers, random, kills=kills, restarts=restarts)
        await sending
        async with time_limit(PATIENCE):
            while await left(stack):  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.2)
        # What was accepted last is confirmed in a moment.
        async with time_limit(PATIENCE):
            while any(each._accepting for each in workers):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for each in workers:
            await each.close()
    return account, account.complaints(messages), time.monotonic() - began


@click.command()
@click.option("--messages", default=20_000, show_default=True, help="How many are sent.")
@click.option("--kills", default=50, show_default=True, help="How often a node is killed.")
@click.option("--restarts", default=2, show_default=True, help="How often Redis is restarted with its data.")
@click.option("--seed", default=1, show_default=True, help="Of the faults and their times.")
def main(messages: int, kills: int, restarts: int, seed: int) -> None:
    """Send messages through one queue to four consumers while nodes and Redis are killed, and account for each."""
    with tempfile.TemporaryDirectory() as folder:
        account, wrong, seconds = asyncio.run(
            run(Path(folder), messages=messages, kills=kills, restarts=restarts, seed=seed)
        )
    click.echo(
        f"{messages} messages, {kills} kills, {restarts} restarts in {seconds:.0f} s: {len(account.settled)} settled, "
        f"{sum(account.marked.values())} deliveries marked, {len(account.unsure)} acceptances of lost consumers unsure"
    )
    for each in wrong:
        click.echo(each, err=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
