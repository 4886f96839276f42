"""A crowd, a market that goes on whatever happens to the grid, and what both must not notice of it.

*Traffic* goes on all the time. *Quiet* topics have subscribers and are published to when told. *Dark* topics have none.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gateway.adapters.redis.keys import Keys
from gateway.core.client.promises import users
from gateway.core.types import SessionId
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Identity, Member, crowd
from tests.cluster.grid_reader import PREFIX, GridReader, StoredSession
from tests.support.faults import eventually

SESSIONS: Final = 200
MAKERS: Final = 4
KEYS: Final = Keys(PREFIX)

PACE: Final = 0.15
"""Seconds between two publishes of each maker to its traffic topic: some 5,000 updates a second for the crowd."""
ROUNDS: Final = 8
"""Publishes of each maker before and after the fault, at least."""


# --- A market that never closes ---------------------------------------------------------------------------------------


class Market:
    """Makers that publish: traffic without end, quiet and dark topics when told.

    Args:
        makers: who publish; each has one topic of each kind.
    """

    def __init__(self, makers: Sequence[Member]) -> None:
        self.makers = makers
        self.traffic = [Counting(maker.session, f"traffic/{number}") for number, maker in enumerate(makers)]
        self.quiet = [Counting(maker.session, f"quiet/{number}") for number, maker in enumerate(makers)]
        self.dark = [Counting(maker.session, f"dark/{number}") for number, maker in enumerate(makers)]
        self._stopping = asyncio.Event()
        self._trading = [asyncio.create_task(self._trade(topic)) for topic in self.traffic]

    @property
    def topics(self) -> list[Counting]:
        return [*self.traffic, *self.quiet, *self.dark]

    @property
    def published(self) -> int:
        return sum(len(topic.receipts) for topic in self.topics)

    async def whisper(self) -> None:
        """Publish to every quiet and dark topic once."""
        await asyncio.gather(*(topic.publish() for topic in (*self.quiet, *self.dark)))

    async def rounds(self, count: int = ROUNDS) -> None:
        """Wait until every maker has got receipts for further publishes."""
        goals = [(topic, len(topic.receipts) + count) for topic in self.traffic]
        await eventually(lambda: all(len(topic.receipts) >= goal for topic, goal in goals), "traffic goes on")

    async def close(self) -> None:
        """Publish no more, and wait for the receipts."""
        self._stopping.set()
        await asyncio.gather(*self._trading)

    async def _trade(self, topic: Counting) -> None:
        while not self._stopping.is_set():
            await asyncio.gather(topic.publish(), asyncio.sleep(PACE))


async def enter(member: Member, number: int) -> None:
    """Half of them select by wildcard, half by several selectors; each has something that only it has."""
    if number % 2:
        await member.subscribe("traffic/**")
    else:
        await asyncio.gather(*(member.subscribe(f"traffic/{maker}") for maker in range(MAKERS)))
    await member.subscribe("quiet/*")
    await member.session.unsubscribe(f"private/{number}/**")


def audible(market: Market) -> set[str]:
    return {topic.topic for topic in (*market.traffic, *market.quiet)}


# --- What the clients and the grid have to say ------------------------------------------------------------------------


@dataclass
class Before:
    """What must be the same after the fault.

    Attributes:
        identity: of each member.
        connected: where and since when each is connected.
        epochs: of each member's session in the grid.
        selections: by session, as the grid has them.
        pids: of the nodes.
        troubles: counters of the nodes that must not grow.
    """

    identity: dict[Member, Identity] = field(default_factory=dict)
    connected: dict[Member, tuple[str, str]] = field(default_factory=dict)
    epochs: dict[Member, int] = field(default_factory=dict)
    selections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    async def of(cls, stack: Stack, members: Iterable[Member], grid: GridReader) -> Before:
        before = cls(pids={name: node.pid for name, node in stack.nodes.items()})
        for member in members:
            before.identity[member] = member.identity
            before.connected[member] = connection(member)
            found = await stored(grid, member.session.id)
            before.epochs[member] = found.epoch
            before.selections[member.session.id] = found.selections
        for node in stack.node_names:
            before.troubles[node] = _troubles(await stack.metrics(node))
        return before


def _troubles(metrics: Mapping[str, float]) -> dict[str, float]:
    """What must not grow by a fault of the grid."""
    counted = (
        *("gateway_closes_total{", "gateway_resumes_total{", "gateway_fenced_writes_total"),
        *("gateway_takeovers_total", "gateway_lease_lost_total"),
    )
    return {name: value for name, value in metrics.items() if name.startswith(counted)}


def connection(member: Member) -> tuple[str, str]:
    """Where and since when a member is connected, as its node said."""
    return member.session.node, member.session.properties["$connected"]


async def assert_nobody_noticed(stack: Stack, before: Before) -> None:
    """No client lost its connection or its session; no node closed, refused, claimed or fenced anything."""
    for member, was in before.connected.items():
        assert member.recoveries == [], f"{member.name}: {member.recoveries}"
        assert member.session.state == "connected"
        assert connection(member) == was
        assert member.identity == before.identity[member]
    served = 0.0
    for node in stack.node_names:
        metrics = await stack.metrics(node)
        assert stack.nodes[node].pid == before.pids[node]
        assert _troubles(metrics) == before.troubles[node]
        served += metrics['gateway_sessions{state="connected"}']
    assert served == len(before.connected)


async def stored(grid: GridReader, session: str) -> StoredSession:
    """Read a session that must be there."""
    found = await grid.session(session)
    assert found is not None, f"session {session} is not in the grid"
    return found


async def restored(grid: GridReader, before: Before) -> bool:
    """Tell whether every session is in the grid as its client knows it, with the epoch and the owner it had."""
    incarnations = await leases(grid)
    for member, epoch in before.epochs.items():
        session = member.session
        found = await grid.session(session.id)
        owner = await grid.call("HGET", KEYS.session(SessionId(session.id)), "owner")
        wanted = StoredSession(
            principal=session.principal,
            properties=users(session.properties),
            selections=before.selections[session.id],
            node=session.node,
            epoch=epoch,
            connected=True,
        )
        if found != wanted or owner not in incarnations:
            return False
    return True


async def leases(grid: GridReader) -> list[str]:
    """Incarnations that hold a lease."""
    names: list[str] = await grid.call("ZRANGE", KEYS.leases, 0, -1)
    return names


async def assert_writable(members: Sequence[Member], grid: GridReader) -> None:
    """Every node has for every session the epoch that the grid has: a write under any other would be fenced."""
    mark = str(time.monotonic_ns())
    await asyncio.gather(*(member.session.set_properties({"written": mark}) for member in members))
    for member in members:
        assert (await stored(grid, member.session.id)).properties["written"] == mark


def assert_no_violations(members: Iterable[Member]) -> None:
    """Nobody saw a version go back, one value published twice, or a gap that was not declared (P2, P5, P6)."""
    assert [violation for member in members for violation in member.violations] == []


def assert_receipts_rise(topic: Counting) -> None:
    receipts = [topic.receipts[value] for value in range(1, topic.asked + 1)]
    assert all(after.version > before.version for before, after in pairwise(receipts)), topic.topic
    assert len({receipt.event_id for receipt in receipts}) == len(receipts), topic.topic


async def assert_log_has_nothing_twice(grid: GridReader, topic: Counting, before: int) -> int:
    """The log may have lost what came before the fault, and nothing else.

    Args:
        grid: to read.
        topic: which.
        before: the last value of which the receipt was there before the fault.

    Returns:
        How many acknowledged publishes are not in it.
    """
    log = await grid.log(topic.topic)
    values = [entry.value for entry in log]
    assert values == sorted(set(values)), f"{topic.topic}: {values}"
    # What a node has given back to a grid that had lost it has a higher version than its publisher was told.
    assert all(entry.version >= topic.receipts[entry.value].version for entry in log)
    assert all(before.version < after.version for before, after in pairwise(log))
    missing = [value for value in range(1, topic.asked + 1) if value not in set(values)]
    assert all(value <= before for value in missing), f"{topic.topic}: {missing} lost, {before} acknowledged before"
    return len(missing)


@asynccontextmanager
async def trading(stack: Stack) -> AsyncIterator[tuple[Market, list[Member]]]:
    """A crowd and a market that have seen each other."""
    async with crowd(stack.url, MAKERS, role="maker") as makers, crowd(stack.url, SESSIONS, enter) as members:
        market = Market(makers)
        try:
            await market.whisper()
            await market.rounds(2)
            spread = Counter(member.session.node for member in members)
            assert min(spread[node] for node in stack.node_names) > SESSIONS // 6, spread
            yield market, members
        finally:
            await market.close()
