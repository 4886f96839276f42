"""Foreign data in the streams of questions and of deliveries: nobody goes deaf, nothing is skipped unsaid (P20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.catalogue.metrics import GRID_FOREIGN_DATA
from gateway.ports import Attached, DeliveriesLost, ExchangesLost, Given, Grid, Handled
from tests.contract import askers as exchanges
from tests.contract import queue_users as queues
from tests.integration.redis.support import N2, Bench
from tests.support.clock import eventually

pytestmark = pytest.mark.promise("P20")

FOREIGN: Final[dict[str, Sequence[Sequence[str]]]] = {
    "id-of-redis": [("XADD", "*", "a", "b")],
    "two-ids-of-redis": [("XADD", "*", "a", "b"), ("XADD", "*", "c", "d")],
    "nothing-else-left": [("XADD", "MAXLEN", "1", "*", "a", "b")],
    "later-generation": [("XADD", "7-3", "a", "b")],
    "last-of-the-generation": [("XADD", "1-18446744073709551615", "a", "b")],
    "last-of-all": [("XADD", "18446744073709551615-18446744073709551615", "a", "b")],
    "deleted": [("DEL",)],
    "no-stream": [("SET", "x")],
}
"""What another program does, by name: commands, without the key."""


class Followed(Protocol):
    """Who is told by a stream of a partition, and what makes it be told."""

    key: str

    async def ask(self) -> None:
        """Ask what there is, and follow no more."""

    def follow(self) -> None:
        """Follow from there."""

    async def cause(self) -> None:
        """Do something that is told, on another node."""

    def is_told(self) -> bool:
        """Whether all that was done is known: by the answer, or by what followed it."""

    def has_lost(self) -> bool:
        """Whether it was told since it asked last that the stream does not go on."""

    async def close(self) -> None:
        """Stop."""


class Questions:
    """Of questions."""

    def __init__(self, here: Grid, there: Grid) -> None:
        self.key = f"{{t{exchanges.PARTITION}}}:exchanges"
        self.worker, self.asker = exchanges.User(here), exchanges.User(there)
        self.listener: exchanges.Listener | None = None
        self.handled: Handled
        self.asked, self.known = set[int](), set[int]()

    async def ask(self) -> None:
        await self.close()
        self.handled = await self.worker.handle(exchanges.QUOTES, concurrency=1000)
        self.known |= {each.number for each in self.handled.held}

    def follow(self) -> None:
        self.listener = exchanges.Listener(self.worker.grid, self.handled)

    async def cause(self) -> None:
        self.asked.add(await self.asker.ask())

    def is_told(self) -> bool:
        assert self.listener is not None
        heard = {each.held.number for each in self.listener.items if isinstance(each, Given)}
        return self.asked <= self.known | heard

    def has_lost(self) -> bool:
        return self.listener is not None and ExchangesLost(exchanges.PARTITION) in self.listener.items

    async def close(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            await listener.close()
            self.worker.grid.exchanges.unfollow(exchanges.PARTITION)


class Deliveries:
    """Of a queue."""

    def __init__(self, here: Grid, there: Grid) -> None:
        self.key = f"{{t{queues.PARTITION}}}:deliveries"
        self.consumer, self.sender = queues.User(here), queues.User(there)
        self.listener: queues.Listener | None = None
        self.attached: Attached
        self.sent, self.known = set[int](), set[int]()

    async def ask(self) -> None:
        await self.close()
        self.attached = await self.consumer.attach(credit=1000)
        self.known |= {each.message for each in self.attached.held}

    def follow(self) -> None:
        self.listener = queues.Listener(self.consumer.grid, self.attached)

    async def cause(self) -> None:
        self.sent.update(await self.sender.send("1"))

    def is_told(self) -> bool:
        assert self.listener is not None
        return self.sent <= self.known | set(self.listener.given(self.consumer))

    def has_lost(self) -> bool:
        return self.listener is not None and DeliveriesLost(queues.PARTITION) in self.listener.items

    async def close(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            await listener.close()
            self.consumer.grid.queues.unfollow(queues.PARTITION)


@pytest.mark.parametrize("is_read_first", [True, False])
@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("kind", [Questions, Deliveries])
async def test_who_follows_hears_all_that_comes_behind_what_is_foreign(
    bench: Bench, kind: type[Questions | Deliveries], foreign: str, is_read_first: bool
) -> None:
    """Whether its node has read the foreign part before the next thing is told, or that came first."""
    metrics = MemoryMetrics()
    followed: Followed = kind(await bench.grid(metrics=metrics), await bench.grid(N2))
    await followed.ask()
    followed.follow()
    for _ in range(3):
        await followed.cause()
    await eventually(followed.is_told, message="it is told")

    async def knows_all() -> bool:
        if followed.has_lost():
            await followed.ask()
            followed.follow()
        return followed.is_told()

    if not is_read_first:
        await followed.ask()
    for name, *more in FOREIGN[foreign]:
        await bench.server.call(name, f"{bench.prefix}:{followed.key}", *more)
        if is_read_first and name == "XADD":
            await eventually(followed.has_lost, message="what is foreign is met")
            await followed.ask()
            followed.follow()
            assert metrics.count(GRID_FOREIGN_DATA) >= (more[-3] == "*")
    for _ in range(6):
        await followed.cause()
    if not is_read_first:
        followed.follow()
    await eventually(knows_all, message="all is known")
    await followed.cause()
    await eventually(knows_all, message="it goes on")
    await followed.close()
