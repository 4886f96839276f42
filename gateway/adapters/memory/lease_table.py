"""The leases that an in-memory grid holds: a table with one method per atomic step.

```text
           join                 time                  take_over              finish_takeover
absent ──────────▶ alive ──────────────▶ expired ──────────────▶ being taken over ──────────▶ absent
   ▲                │ ▲                     │ ▲ └──────within is over──────┘ │
   └──────leave─────┘ └───────join──────────┴────────────────────────────────┘
```

What is transient of a node is cleaned up later: that is kept apart (``_Cleaning``), until it is done or the node joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gateway.core.types import NodeRef
from gateway.ports import (
    GONE_BACKUPS,
    LOST_NODES,
    LOST_SECONDS,
    NO_PROGRESS,
    Backup,
    ExpiredLease,
    LeaseLost,
    LeaseTable,
    LostNode,
    Master,
    MasterWish,
    NodeEntry,
    NodeReport,
    SavedUntil,
    Takeover,
    TakeoverProgress,
)


@dataclass(slots=True)
class _Lease:
    """The lease of one run of one node.

    Attributes:
        length: seconds it was taken for.
        until: when it expires.
        taker: who won the right to take over; None while nobody did.
        taken_until: when the next one may win that right.
        report: what the node tells of itself.
        term: grows with each lease that is taken.
        progress: of who takes over.
        saved: up to when the node has told that all that happened to its sessions is in the grid; None if it tells not.
    """

    length: float
    until: float
    term: int
    taker: NodeRef | None = None
    taken_until: float = 0.0
    report: NodeReport | None = None
    progress: TakeoverProgress = NO_PROGRESS
    saved: float | None = None


@dataclass(slots=True)
class _Cleaning:
    """What is transient of a node that was taken over is there still.

    Attributes:
        progress: of cleaning up.
        taker: who has the right to do it; None before the time.
        until: when the time comes, or when the next one may win the right.
    """

    progress: TakeoverProgress
    taker: NodeRef | None
    until: float


@dataclass(slots=True)
class _BackedUp:
    """What a node has told of its backup.

    Attributes:
        backup: as it told.
        keep: seconds for which that is remembered when the node is gone.
        until: when it is forgotten; None while the node has a lease.
    """

    backup: Backup
    keep: float
    until: float | None = None


class Leases:
    """All leases of the grid. Every method is one atomic step; *now* is the grid's clock in seconds.

    Attributes:
        outage_over: when the grid was last reachable again, as far as it knows.
    """

    def __init__(self) -> None:
        self.outage_over = -inf
        self._leases: dict[NodeRef, _Lease] = {}
        self._lost: dict[NodeRef, _Lease] = {}
        self._cleanings: dict[NodeRef, _Cleaning] = {}
        self._backed_up: dict[NodeRef, _BackedUp] = {}
        self._term = 0
        self._watched_until = 0.0
        self._master: Master | None = None
        self._master_term = 0

    def __contains__(self, node: NodeRef) -> bool:
        """Tell whether a node has a lease, or one that has ended and that nobody has taken over yet."""
        return node in self._leases

    def join(self, node: NodeRef, length: float, now: float, saved: float | None = None) -> None:
        """See ``NodeDirectory.join``; a takeover under way loses its ground. *saved* is by the grid's clock."""
        known = self._leases.get(node)
        self._lost.pop(node, None)
        self._cleanings.pop(node, None)
        report = None if known is None else known.report
        before = None if known is None else known.saved
        self._leases[node] = _Lease(length, now + length, self._next_term(), report=report, saved=_later(before, saved))

    def renew(
        self,
        node: NodeRef,
        length: float,
        now: float,
        watch: float = 0.0,
        wish: MasterWish = MasterWish.KEEP,
        *,
        saved: float | None = None,
    ) -> LeaseTable:
        """See ``NodeDirectory.renew``; *saved* is by the grid's clock."""
        lease = self._leases.get(node)
        if lease is None or lease.until <= now:
            raise LeaseLost(f"the lease of {node} has expired or is unknown")
        lease.saved = _later(lease.saved, saved)
        lease.length = length
        lease.until = now + length
        if watch:
            self._watched_until = max(self._watched_until, now + watch)
        alive = sorted(each for each, held in self._leases.items() if held.until > now)
        expired = sorted(each for each, held in self._leases.items() if held.until <= now)
        master = self._choose_master(node, now, wish)
        return LeaseTable(
            tuple(alive),
            tuple(expired),
            watched=self._watched_until > now,
            master=master,
            saved=SavedUntil(
                {each: held.saved for each, held in self._leases.items() if held.saved is not None}, self.outage_over
            ),
        )

    def _choose_master(self, node: NodeRef, now: float, wish: MasterWish) -> Master | None:
        master = self._master
        if master is not None and (
            not self.holds(master.node, now) or (master.node == node and wish is MasterWish.YIELD)
        ):
            master = None
        if master is None and wish is MasterWish.TAKE:
            self._master_term += 1
            master = Master(node, self._master_term)
        self._master = master
        return master

    def leave(self, node: NodeRef, now: float) -> None:
        """See ``NodeDirectory.leave``."""
        self._leases.pop(node, None)
        self._tidy_backups(now)

    def take_over(self, expired: NodeRef, by: NodeRef, within: float, now: float) -> ExpiredLease | None:
        """See ``NodeDirectory.take_over``; the winner who asks again has won again."""
        lease = self._leases.get(expired)
        if lease is None or lease.until > now:
            return None
        if lease.taker not in {None, by} and self._is_right(lease.taker, lease.taken_until, now):
            return None
        lease.taker = by
        lease.taken_until = now + within
        unsaved = lease.saved is not None and lease.saved < self.outage_over
        return ExpiredLease(lease.length, now - lease.until, lease.progress, unsaved=unsaved)

    def _is_right(self, taker: NodeRef | None, until: float, now: float) -> bool:
        """Tell whether somebody's right to a takeover holds still."""
        return until > now and (taker is None or self.holds(taker, now))

    def keep_takeover(
        self, expired: NodeRef, by: NodeRef, within: float, progress: TakeoverProgress, now: float
    ) -> bool:
        """See ``NodeDirectory.keep_takeover``."""
        lease, cleaning = self._leases.get(expired), self._cleanings.get(expired)
        if lease is not None and lease.taker == by:
            lease.taken_until, lease.progress = now + within, progress
        elif cleaning is not None and cleaning.taker == by:
            cleaning.until, cleaning.progress = now + within, progress
        else:
            return False
        return True

    def clean(self, expired: NodeRef, by: NodeRef, within: float, now: float) -> TakeoverProgress | None:
        """See ``NodeDirectory.clean``."""
        cleaning = self._cleanings.get(expired)
        if cleaning is None or expired in self._leases:
            return None
        if cleaning.taker != by and self._is_right(cleaning.taker, cleaning.until, now):
            return None
        cleaning.taker, cleaning.until = by, now + within
        return cleaning.progress

    def takeovers(self, now: float) -> list[Takeover]:
        """See ``NodeDirectory.takeovers``."""
        taken = {
            node: Takeover(node, lease.taker, lease.taken_until - now, lease.progress)
            for node, lease in self._leases.items()
            if lease.taker is not None
        }
        taken |= {
            node: Takeover(node, each.taker, each.until - now, each.progress) for node, each in self._cleanings.items()
        }
        return [taken[node] for node in sorted(taken)]

    def look(self, nodes: Sequence[NodeRef], now: float) -> list[float | None]:
        """See ``NodeDirectory.look``."""
        return [self._leases[node].until - now if node in self._leases else None for node in nodes]

    def finish_takeover(self, expired: NodeRef, by: NodeRef, now: float, clean_after: float = 0.0) -> None:
        """See ``NodeDirectory.finish_takeover``; no effect if another one has the right by now, or the node is back."""
        lease, cleaning = self._leases.get(expired), self._cleanings.get(expired)
        if lease is None and cleaning is not None and cleaning.taker == by:
            del self._cleanings[expired]
        if lease is None or lease.taker != by:
            return
        del self._leases[expired]
        if clean_after:
            self._cleanings[expired] = _Cleaning(NO_PROGRESS, None, now + clean_after)
        self._lost[expired] = lease
        known = sorted(self._lost, key=lambda each: self._lost[each].until, reverse=True)
        self._lost = {each: self._lost[each] for each in known[:LOST_NODES] if self._is_remembered(each, now)}
        self._tidy_backups(now)

    def lost(self, now: float) -> list[LostNode]:
        """See ``NodeDirectory.lost``."""
        return [
            LostNode(node, now - self._lost[node].until, self._lost[node].report)
            for node in sorted(self._lost)
            if self._is_remembered(node, now) and node not in self._leases
        ]

    def _is_remembered(self, lost: NodeRef, now: float) -> bool:
        return now - self._lost[lost].until < LOST_SECONDS

    def grant(self, nodes: Sequence[NodeRef], length: float, now: float) -> list[NodeRef]:
        """See ``NodeDirectory.grant``."""
        granted = [each for each in nodes if each not in self._leases]
        self._leases |= {each: _Lease(length, now + length, self._next_term(), saved=-inf) for each in granted}
        return granted

    def report(self, node: NodeRef, report: NodeReport) -> None:
        """See ``NodeDirectory.report``."""
        lease = self._leases.get(node)
        if lease is not None:
            lease.report = report

    def entries(self, now: float) -> list[NodeEntry]:
        """See ``NodeDirectory.entries``."""
        return [
            NodeEntry(node, held.until > now, held.report, joined=held.term)
            for node, held in sorted(self._leases.items(), key=lambda item: item[0])
        ]

    def tell_backup(self, node: NodeRef, backup: Backup | None, keep: float, now: float) -> bool:
        """See ``NodeDirectory.tell_backup``."""
        self._tidy_backups(now)
        if not self.holds(node, now):
            return False
        if backup is None:
            self._backed_up.pop(node, None)
        else:
            self._backed_up[node] = _BackedUp(backup, keep)
        return True

    def backups(self, nodes: Sequence[NodeRef], now: float) -> Mapping[NodeRef, Backup]:
        """See ``NodeDirectory.backups``."""
        return {
            node: told.backup
            for node, told in self._backed_up.items()
            if (not nodes or node in nodes) and (told.until is None or told.until > now)
        }

    def _tidy_backups(self, now: float) -> None:
        """Forget what is known of backups of nodes that are gone for long enough, or that too many others followed."""
        gone = {node: told for node, told in self._backed_up.items() if node not in self._leases}
        for told in gone.values():
            told.until = now + told.keep if told.until is None else told.until
        ends = {node: told.until for node, told in gone.items() if told.until is not None and told.until > now}
        kept = sorted(ends, key=lambda node: ends[node], reverse=True)[:GONE_BACKUPS]
        for node in gone.keys() - kept:
            del self._backed_up[node]

    def _next_term(self) -> int:
        self._term += 1
        return self._term

    def extend(self, since: float, now: float) -> None:
        """Give the leases that held at *since* their full length again: nobody could renew one in the outage.

        A node that is being taken over stays expired, because some of its sessions are on the clock already.
        """
        self.outage_over = now
        for lease in self._leases.values():
            if lease.until > since and lease.taker is None:
                lease.until = now + lease.length

    def holds(self, node: NodeRef, now: float) -> bool:
        """Tell whether a node's lease holds."""
        lease = self._leases.get(node)
        return lease is not None and lease.until > now

    def inventory(self) -> set[str]:
        """Name everything that is kept, but for what outlives nodes, which is forgotten by themselves."""
        cleanings = {f"transient things of {node}" for node in self._cleanings}
        return {f"lease of {node}" for node in self._leases} | cleanings


def _later(before: float | None, saved: float | None) -> float | None:
    """Take in a node's word of what it has saved, which never goes back."""
    return before if saved is None else saved if before is None else max(before, saved)
