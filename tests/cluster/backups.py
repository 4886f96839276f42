"""A market on nodes that back each other: every update counts, and nodes are killed under it (ADR 0079, seed 002).

Who backs whom is read where clients' nodes read it: from the grid.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from gateway.client import Recovery
from gateway.local.admin import UNREACHABLE
from gateway.local.stack import Stack
from tests.cluster.admin_calls import ask
from tests.cluster.crowds import Member, crowd
from tests.cluster.grid_reader import GridReader
from tests.cluster.ledgers import Ledgers, Trade
from tests.support.faults import eventually
from tests.support.stack import cluster

STREAM_LENGTH: Final = 100_000
"""Entries that a stream keeps: more than are published, so that a slow machine is not a gap."""
RESEND_PACKETS: Final = 10_000
"""Packets that a client may have yet to acknowledge: more than it catches up with and gets while output waits for a
backup. With a full buffer updates are folded, and told so; here a slow machine shall not fill it."""
RESEND_BYTES: Final = 16 * 1024**2
PUBLISHERS: Final = 4
WHOLE_WITHIN: Final = 30.0
"""Seconds until every node has a whole copy at a living node again."""
BACK_WITHIN: Final = 30.0
"""Seconds until the sessions of a dead node are back."""


@dataclass(frozen=True, slots=True)
class Backing:
    """Which node backs a node.

    Attributes:
        node: the name of the backup.
        copied: sessions of which it has a whole copy.
        to_copy: sessions of which it is to have one.
    """

    node: str
    copied: int
    to_copy: int


class Market:
    """Subscribers and publishers on a cluster whose nodes back each other.

    Attributes:
        stack: the cluster.
        subscribers: each keeps a ledger.
        publishers: what they publish is executed exactly once.
        trade: what goes on.
        ledgers: of the subscribers.
    """

    def __init__(self, stack: Stack, subscribers: list[Member], publishers: list[Member], ledgers: Ledgers) -> None:
        self.stack = stack
        self.subscribers = subscribers
        self.publishers = publishers
        self.ledgers = ledgers
        self.trade = Trade(publishers)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, folder: Path, subscribers: int, *, folding: bool = False, **settings: Any
    ) -> AsyncIterator[Self]:
        """Open a market, which trades until the end of the block; then nobody may have missed or repeated anything.

        Args:
            folder: for data and logs.
            subscribers: how many; each gets 400 updates a second.
            folding: whether updates may have taken the place of others, if they say so.
            settings: of every node.
        """
        ledgers = Ledgers()
        given: dict[str, Any] = {
            "backup": "auto",
            "stream_length": STREAM_LENGTH,
            "replay_events": STREAM_LENGTH,
            "limit_resend_packets": RESEND_PACKETS,
            "limit_resend_bytes": RESEND_BYTES,
        } | settings
        async with (
            cluster(folder, **given) as stack,
            crowd(stack.url, subscribers, ledgers.enter) as members,
            crowd(stack.url, PUBLISHERS, role="publisher") as publishers,
        ):
            market = cls(stack, members, publishers, ledgers)
            async with market.trade.going_on():
                yield market
            await market.ledgers.judge(market.trade.versions, folding=folding)
            await market._judge_publishes()
        await ledgers.close()

    @property
    def members(self) -> Sequence[Member]:
        """All who have a session."""
        return (*self.subscribers, *self.publishers)

    @property
    def recoveries(self) -> list[Recovery]:
        """All there were."""
        return [recovery for member in self.members for recovery in member.recoveries]

    def at(self, node: str) -> list[Member]:
        """List those whom a node serves."""
        return [member for member in self.members if member.session.node == node]

    @property
    def serving(self) -> list[str]:
        """The nodes that serve somebody, sorted."""
        return sorted({member.session.node for member in self.members})

    async def backings(self) -> dict[str, Backing]:
        """Read who backs whom."""
        try:
            items = (await ask(self.stack, "GET", "/v1/nodes"))["items"]
        except UNREACHABLE:
            return {}
        return {
            each["node"]: Backing(each["backup"], each["copied"], each["to_copy"])
            for each in items
            # Of a node that has just died there is the run before, too.
            if each["backup"] is not None and each["state"] not in {"expired", "lost"}
        }

    async def whole(self, nodes: Sequence[str] | None = None) -> dict[str, Backing]:
        """Wait until the sessions of each node are copied to another living node, and return who backs whom.

        Args:
            nodes: that live; all by default.
        """
        alive = set(self.stack.node_names if nodes is None else nodes)
        found: dict[str, Backing] = {}

        async def are_whole() -> bool:
            found.clear()
            found.update(await self.backings())
            return all(
                (backing := found.get(node)) is not None
                and backing.node in alive - {node}
                and backing.copied == backing.to_copy >= len(self.at(node))
                for node in alive
            )

        await eventually(are_whole, f"{sorted(alive)} have whole copies", within=WHOLE_WITHIN)
        return found

    async def kill(self, *nodes: str) -> list[Recovery]:
        """Kill nodes with SIGKILL, all at once, wait until those whom they served are back, and return how they are."""
        victims = [member for node in nodes for member in self.at(node)]
        before = {member: len(member.recoveries) for member in victims}
        await asyncio.gather(*(self.stack.kill_node(node) for node in nodes))
        return await self.back(before)

    async def back(self, before: dict[Member, int]) -> list[Recovery]:
        """Wait until members have had more recoveries than before, and return the further ones."""
        await eventually(
            lambda: all(len(member.recoveries) > count for member, count in before.items()),
            "everybody who was served there is back",
            within=BACK_WITHIN,
        )
        return [recovery for member, count in before.items() for recovery in member.recoveries[count:]]

    async def restart(self, *nodes: str) -> None:
        """Start nodes again that were killed, and wait until HAProxy sees all of them."""
        await asyncio.gather(*(self.stack.start_node(node) for node in nodes))
        await self.stack.balanced()

    async def _judge_publishes(self) -> None:
        """Each publish is in the log of its topic exactly once (P5).

        Also where the log is shorter than that, a subscriber has had the version of each receipt, and no other.
        """
        if sum(each.asked for each in self.trade.topics) > STREAM_LENGTH:
            return
        async with GridReader(self.stack.grid_url) as grid:
            for topic in self.trade.topics:
                topic.judge(await grid.log(topic.topic))
