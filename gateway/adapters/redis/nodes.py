"""Leases and takeovers: implements ``gateway.ports.NodeDirectory``."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson

from gateway.adapters.redis import scripts
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.lease import Leases
from gateway.adapters.redis.link import Link
from gateway.adapters.redis.tail import RedisTail
from gateway.core.types import NodeRef
from gateway.ports import LapsedLease, LeaseLost, LeaseTable, NodeEntry, NodeReport, Ownership

_REPORTED: Final = frozenset(each.name for each in dataclasses.fields(NodeReport))

INBOX_MESSAGES: Final = 1_000
"""Messages that an inbox keeps, about; a node that reads so late that more were written learns the rest by fencing."""


class RedisNodes:
    """Who is there, by the grid's clock.

    Args:
        node: the node this process is.
        link: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        leases: the lease of *node*, as the gate sees it.
        tail: reads the inbox.
    """

    def __init__(self, *, node: NodeRef, link: Link, keys: Keys, leases: Leases, tail: RedisTail) -> None:
        self._node = node
        self._link = link
        self._batcher = link.batcher
        self._keys = keys
        self._leases = leases
        self._tail = tail

    async def join(self, node: NodeRef, *, lease: float) -> None:
        """See ``NodeDirectory.join``."""
        keys = self._keys
        asked = self._leases.now()
        term = await self._batcher.call(
            scripts.NODE_JOIN(
                *(keys.grid, keys.leases, keys.members, keys.takeovers, keys.renewed),
                *(str(node), _milliseconds(lease), self._link.seal),
            )
        )
        if term == b"stale":
            raise self._link.stale()
        if node == self._node:
            self._leases.hold(until=asked + lease, term=term)

    async def renew(self, node: NodeRef, *, lease: float, watch: float = 0.0) -> LeaseTable:
        """See ``NodeDirectory.renew``."""
        keys = self._keys
        asked = self._leases.now()
        reply = await self._batcher.call(
            scripts.NODE_RENEW(
                *(keys.grid, keys.leases, keys.members, keys.renewed),
                *(str(node), _milliseconds(lease), _milliseconds(watch) if watch else 0),
            )
        )
        if reply[0].decode() != self._link.seal:
            # Whether the lease has lapsed, this grid does not know: it was emptied, or others have adopted it anew.
            raise self._link.stale()
        if len(reply) == 1:
            if node == self._node:
                self._leases.lose()
            raise LeaseLost(f"the lease of {node} has lapsed")
        _, alive, lapsed, term, watched = reply
        if node == self._node:
            self._leases.hold(until=asked + lease, term=term)
        return LeaseTable(_nodes(alive), _nodes(lapsed), watched=bool(watched))

    async def leave(self, node: NodeRef) -> None:
        """See ``NodeDirectory.leave``."""
        keys = self._keys
        if node == self._node:
            self._leases.lose()
        await self._batcher.call(
            scripts.NODE_LEAVE(*(keys.leases, keys.members, keys.takeovers, keys.inbox(node), keys.reports), str(node))
        )

    async def take_over(self, lapsed: NodeRef, *, by: NodeRef, within: float) -> LapsedLease | None:
        """See ``NodeDirectory.take_over``."""
        keys = self._keys
        won = await self._batcher.call(
            scripts.NODE_TAKE_OVER(
                *(keys.leases, keys.members, keys.takeovers), str(lapsed), str(by), _milliseconds(within)
            )
        )
        if not won:
            return None
        term, length, ago = won
        self._leases.lapsed[lapsed] = term
        return LapsedLease(length / 1000, ago / 1000)

    async def finish_takeover(self, lapsed: NodeRef, *, by: NodeRef) -> None:
        """See ``NodeDirectory.finish_takeover``."""
        keys = self._keys
        await self._batcher.call(
            scripts.NODE_FINISH(
                *(keys.leases, keys.members, keys.takeovers, keys.inbox(lapsed), keys.reports), str(lapsed), str(by)
            )
        )
        self._leases.lapsed.pop(lapsed, None)

    async def report(self, node: NodeRef, report: NodeReport) -> None:
        """See ``NodeDirectory.report``."""
        keys = self._keys
        await self._batcher.call(
            scripts.NODE_REPORT(keys.members, keys.reports, str(node), orjson.dumps(dataclasses.asdict(report)))
        )

    async def entries(self) -> list[NodeEntry]:
        """See ``NodeDirectory.entries``."""
        keys = self._keys
        alive, lapsed, told = await self._batcher.call(scripts.NODE_LIST(keys.leases, keys.reports))
        reports = dict(zip(told[::2], told[1::2], strict=True))
        return sorted(
            [
                NodeEntry(NodeRef.parse(name.decode()), names is alive, _report(reports.get(name)))
                for names in (alive, lapsed)
                for name in names
            ],
            key=lambda entry: entry.node,
        )

    async def tell_claimed(self, to: NodeRef, *rights: Ownership) -> None:
        """See ``NodeDirectory.tell_claimed``."""
        await self._batcher.call(
            scripts.NODE_TELL(
                *(self._keys.leases, self._keys.inbox(to)),
                *(str(to), INBOX_MESSAGES),
                *(f"{each.session} {each.epoch} {each.owner}" for each in rights),
            )
        )

    def claimed_elsewhere(self, node: NodeRef) -> AsyncIterator[Ownership]:
        """See ``NodeDirectory.claimed_elsewhere``."""
        return self._tail.inbox(self._keys.inbox(node))


def _report(stored: bytes | None) -> NodeReport | None:
    """Read a report; nodes of other versions may tell more, or too little to make one."""
    if stored is None:
        return None
    told: dict[str, Any] = orjson.loads(stored)
    try:
        report = NodeReport(**{name: told[name] for name in _REPORTED if name in told})
    except TypeError:
        return None
    return dataclasses.replace(report, reasons=tuple(report.reasons))


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _nodes(names: list[bytes]) -> tuple[NodeRef, ...]:
    return tuple(sorted(NodeRef.parse(each.decode()) for each in names))
