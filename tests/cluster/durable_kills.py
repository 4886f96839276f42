"""A durable subscription while its readers are killed with their nodes, with an account of each event.

``python -m tests.cluster.durable_kills --events 20000 --kills 50`` runs it at full length.

```text
publisher ──▶ topics with history ──▶ readers, one after the other: killed with their nodes, or left
                                          │ acknowledge
                                      account: what is acknowledged by one is what the next one goes on behind
```
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Final

import click

from gateway.client import DurableInUse, connect
from gateway.local.stack import Stack
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

NAME: Final = "billing"
SELECTOR: Final = "orders/**"
DECLARED: Final = '[[destination]]\nselector = "orders/**"\nkind = "history"\ncount = 1_000_000\nbytes = "1GiB"\n'
TOPICS: Final = 5

BATCH: Final = 20
"""Events that a reader has at most before it acknowledges them."""

BATCHES: Final = 30
"""Batches that a reader has at most before it is killed with its node, or leaves."""

UNDER_WAY: Final = 50
"""Events that are published at a time."""

PAUSE: Final = 0.2
"""Seconds, on a quiet machine, after which it is tried again to take the subscription from a node that was killed."""

FAULT_SECONDS: Final = 1.5
"""Seconds that a reader has, about: publishing lasts as long as readers are killed."""

PATIENCE: Final = 240.0
"""Seconds, on a quiet machine, for all of it at the length of the test."""


async def publish_all(url: str, count: int, seconds: float) -> None:
    """Publish events with the numbers from 0, spread over so many seconds or more."""
    session = await connect(url, "publisher", connect_timeout=None)
    room = asyncio.Semaphore(UNDER_WAY)

    async def publish(number: int) -> None:
        await asyncio.sleep(number / count * seconds)
        async with room:
            await session.publish(f"orders/{number % TOPICS}", number)

    await asyncio.gather(*(publish(number) for number in range(count)))
    await session.close()


class Account:
    """What readers have acknowledged.

    Attributes:
        had: event numbers, in the order in which they were acknowledged.
        wrong: what is not as promised.
        again: events that came again as they were not acknowledged.
    """

    def __init__(self) -> None:
        self.had: list[int] = []
        self.wrong: list[str] = []
        self.again = 0


async def read(stack: Stack, account: Account, random: Random, *, count: int, kill: bool) -> None:
    """Read for a while by a session at one node, which is killed then with what was not acknowledged; or leave."""
    session = await connect(stack.url, "reader", connect_timeout=None)
    try:
        stream = await session.subscribe_durable(NAME, SELECTOR, ack="client")
        for _ in range(random.randint(1, BATCHES)):
            batch = [
                (await anext(stream)).value for _ in range(min(random.randint(1, BATCH), count - len(account.had)))
            ]
            if kill and random.random() < 1 / BATCHES:
                account.again += len(batch)
                break
            await stream.acknowledge()
            account.had += batch
            if len(account.had) == count:
                return
    except DurableInUse:
        # The node of the reader before was killed with it, and nobody has found that out yet.
        await asyncio.sleep(scaled(PAUSE))
    finally:
        if kill:
            node = session.node
            await stack.kill_node(node)
            await stack.start_node(node)
        # Its window goes on: nobody says good-bye.
        await session.close(timeout=0)


async def run(folder: Path, *, events: int, kills: int, seed: int) -> tuple[Account, float]:
    """Publish events, and read them by one reader after the other; returns the account, and the seconds."""
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    account, random, began = Account(), Random(seed), time.monotonic()
    async with cluster(folder, destinations=file, lease=scaled(2.0), lease_renew=scaled(0.5)) as stack:
        publishing = asyncio.create_task(publish_all(stack.url, events, kills * FAULT_SECONDS))
        left = kills
        async with time_limit(PATIENCE * max(1.0, kills / 10)):
            while len(account.had) < events:
                kill = left > 0 and random.random() < 0.5
                left -= kill
                await read(stack, account, random, count=events, kill=kill)
        await publishing
    missing = set(range(events)) - set(account.had)
    if missing:
        account.wrong.append(f"{len(missing)} missing: {sorted(missing)[:10]}")
    if len(account.had) != len(set(account.had)):
        account.wrong.append("some were acknowledged twice")
    return account, time.monotonic() - began


@click.command()
@click.option("--events", default=20_000, show_default=True, help="How many are published.")
@click.option("--kills", default=50, show_default=True, help="How often a reader is killed with its node.")
@click.option("--seed", default=1, show_default=True, help="Of the faults and their times.")
def main(events: int, kills: int, seed: int) -> None:
    """Read a durable subscription by readers that are killed with their nodes, and account for each event."""
    with tempfile.TemporaryDirectory() as folder:
        account, seconds = asyncio.run(run(Path(folder), events=events, kills=kills, seed=seed))
    had = len(account.had)
    click.echo(f"{events} events, {kills} kills in {seconds:.0f} s: {had} acknowledged, {account.again} came again")
    for each in account.wrong:
        click.echo(each, err=True)
    raise SystemExit(bool(account.wrong))


if __name__ == "__main__":
    main()
