"""Takes over from nodes whose lease has expired, stage by stage, and cleans up after them later (P17).

```text
              wins                keeps stage and step           finishes            the wait is over
expired ───────────▶ under way ─────────────────────▶ … ─────────────────▶ waiting ───────────────────▶ cleaned up
   ▲                     │                                                    │
   └─ its winner dies ───┘                   the node joins: nothing is left ─┘
```

The grid alone says that a node has failed: its lease has expired there. What is done, how far it has come and who does
it are in the grid, too, so that a winner that dies is followed by the next one, who goes on where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.app.cluster.takeover.stages import FailedNode, Stage, TakeoverStages
from gateway.app.context import Context
from gateway.app.journal.node_events import (
    CleanupFinished,
    Expiry,
    NodeExpired,
    TakeoverContinued,
    TakeoverFinished,
)
from gateway.catalogue.takeover_log_events import WINDOWS_PROLONGED
from gateway.catalogue.takeover_metrics import TAKEOVERS_UNDER_WAY
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import GridUnavailable, LeaseTable, TakeoverProgress

TAKEOVER_LEASES: Final = 5
"""Leases for which the right to a takeover lasts without a word of its winner, whose own lease holds: it hangs."""

KEEP_SECONDS: Final = 1.0
"""Between two times that the progress of a takeover is kept, at most; besides, it is kept when there is something new
for the next winner: a stage is done, or sessions were put on the clock."""

DONE: Final = "done"
"""In the place of a stage, when all are done: what is left is to strike the node off the list."""


@dataclass(slots=True)
class _UnderWay:
    """A takeover that this node does: should the grid become unreachable in the middle, it goes on from there.

    Attributes:
        failed: who is taken over.
        generation: of the grid in which it began; another one may know nothing of what was done.
        stage: the number of the first stage that is not done.
        step: the first step of it that is not.
        kept: when that was kept in the grid; minus infinity if it was not yet.
        told: whether it was told that all stages are done.
        name: of the stage that is under way.
    """

    failed: FailedNode
    generation: GridGeneration
    stage: int = 0
    step: int = 0
    kept: float = float("-inf")
    told: bool = False
    name: str = ""


class Takeovers:
    """Does what falls to this node when others have failed.

    Args:
        context: of the node.
        stages: all that is taken over.
        on_finished: awaited with each node that this one has taken over.
    """

    def __init__(
        self, context: Context, stages: TakeoverStages, on_finished: Callable[[NodeRef], Awaitable[None]]
    ) -> None:
        self._me = context.me
        self._grid = context.grid
        self._nodes = context.grid.nodes
        self._clock = context.clock
        self._announce = context.announce
        self._log = context.log
        self._reconnect_advice = context.reconnect_advice
        self._within = TAKEOVER_LEASES * context.parameters.lease
        self._wait = context.parameters.takeover.transient_wait
        self._stages = stages
        self._on_finished = on_finished
        self._table = LeaseTable((), ())
        self._seen = LeaseTable((), ())
        self._listed_in: GridGeneration | None = None
        self._due: dict[NodeRef, float] = {}
        """When what is transient of nodes may be cleaned up, as far as is known here."""
        self._under_way: dict[NodeRef, _UnderWay] = {}
        self._look_now = asyncio.Event()
        context.metrics.watch(TAKEOVERS_UNDER_WAY, lambda: float(len(self._under_way)))

    def look(self, table: LeaseTable) -> None:
        """This node has looked who is there."""
        self._table = table
        self._look_now.set()

    def found_expired(self, *nodes: NodeRef) -> None:
        """The grid has just said that the leases of *nodes* have expired."""
        alive = tuple(each for each in self._table.alive if each not in nodes)
        self.look(LeaseTable(alive, tuple(sorted({*self._table.expired, *nodes})), watched=self._table.watched))

    def told(self) -> list[dict[str, object]]:
        """Tell what this node does at the moment, for those who watch the system's topics."""
        return [
            {
                "node": each.failed.node.node,
                "incarnation": each.failed.node.incarnation,
                "stage": each.name,
                "step": each.step,
                "sessions": each.failed.sessions,
            }
            for each in self._under_way.values()
        ]

    async def run(self) -> None:
        """Take over from whoever has failed, for ever; it is tried again whenever this node has looked who is there."""
        while True:
            await self._look_now.wait()
            self._look_now.clear()
            try:
                await self._work()
            except GridUnavailable:
                continue

    async def _work(self) -> None:
        expired = self._table.expired
        for node in expired:
            await self._take_over(node)
        await self._list_waiting()
        now = self._clock.monotonic()
        for node in [node for node, due in self._due.items() if due <= now]:
            await self._clean_up(node)
        # Of those that are not listed any more, another survivor has finished, or they are back.
        self._under_way = {node: each for node, each in self._under_way.items() if node in {*expired, *self._due}}

    async def _take_over(self, expired: NodeRef) -> None:
        lease = await self._nodes.take_over(expired, by=self._me, within=self._within)
        if lease is None:
            self._under_way.pop(expired, None)
            return
        known = expired in self._under_way
        takeover = self._goes_on(expired, lease.progress, self._stages.at_once)
        takeover.failed.unsaved = lease.unsaved
        takeover.failed.expiry = expiry = Expiry.of(expired, lease, now=self._clock.wall())
        if not known and lease.progress.stage:
            self._announce(TakeoverContinued(expired, lease.progress.stage))
        elif not known:
            self._announce(NodeExpired(expiry))
        if not await self._take_stages(takeover, self._stages.at_once):
            return
        if not takeover.told:
            # Before the node is struck off the list: were the answer to that lost, nobody would come back to it.
            takeover.told = True
            self._reconnect_advice.orphaned(takeover.failed.sessions)
            self._announce(TakeoverFinished(expired, takeover.failed.sessions))
            if takeover.failed.prolonged:
                self._log.emit(WINDOWS_PROLONGED, expired=str(expired), sessions=takeover.failed.prolonged)
        clean_after = self._wait if self._stages.transient else 0.0
        await self._nodes.finish_takeover(expired, by=self._me, clean_after=clean_after)
        del self._under_way[expired]
        self._listed_in = None
        await self._on_finished(expired)

    async def _list_waiting(self) -> None:
        """Learn what is to be cleaned up: the grid is asked only if nodes that were there are gone."""
        generation = self._grid.generation
        before, self._seen = self._seen, self._table
        if self._listed_in == generation and {*before.alive, *before.expired} <= {*self._table.alive}:
            return
        self._listed_in = None
        now, alive = self._clock.monotonic(), self._table.alive
        waiting = [each for each in await self._nodes.takeovers() if each.expired not in self._table.expired]
        # Whoever began and is gone is followed at once.
        self._due = {
            each.expired: now + max(0.0, each.left) if each.by is None or each.by in alive else now for each in waiting
        }
        self._listed_in = generation

    async def _clean_up(self, node: NodeRef) -> None:
        progress = await self._nodes.clean(node, by=self._me, within=self._within)
        if progress is None:
            # Another one does it, or the node is back: the list tells which.
            self._listed_in = None
            del self._due[node]
            return
        if not await self._take_stages(self._goes_on(node, progress, self._stages.transient), self._stages.transient):
            return
        self._announce(CleanupFinished(node))
        await self._nodes.finish_takeover(node, by=self._me)
        del self._under_way[node], self._due[node]

    def _goes_on(self, node: NodeRef, progress: TakeoverProgress, stages: Sequence[Stage]) -> _UnderWay:
        """Tell where to go on: where this node stopped itself, or the one before it; else at the beginning."""
        generation = self._grid.generation
        known = self._under_way.get(node)
        if known is not None and known.generation == generation:
            return known
        takeover = self._under_way[node] = _UnderWay(FailedNode(node), generation)
        names = [stage.name for stage in stages] + [DONE]
        if progress.generation == generation and progress.stage in names:
            takeover.stage, takeover.step = names.index(progress.stage), progress.step
            takeover.failed.sessions = progress.sessions
        return takeover

    async def _take_stages(self, takeover: _UnderWay, stages: Sequence[Stage]) -> bool:
        """Do what is left of *stages*; tell whether all are done, and not another node's by now."""
        failed = takeover.failed
        if takeover.stage < len(stages) and not await self._keep(takeover, stages):
            return False
        while takeover.stage < len(stages):
            stage, sessions = stages[takeover.stage], failed.sessions
            if takeover.step < stage.steps:
                await stage.take(failed, takeover.step)
            takeover.step += 1
            is_done = takeover.step >= stage.steps
            if is_done:
                takeover.stage, takeover.step = takeover.stage + 1, 0
            is_late = self._clock.monotonic() - takeover.kept >= KEEP_SECONDS
            if (is_done or is_late or failed.sessions != sessions) and not await self._keep(takeover, stages):
                return False
        return True

    async def _keep(self, takeover: _UnderWay, stages: Sequence[Stage]) -> bool:
        """Keep in the grid how far it has come; tell whether it is this node's still."""
        failed = takeover.failed
        takeover.name = stages[takeover.stage].name if takeover.stage < len(stages) else DONE
        progress = TakeoverProgress(
            stage=takeover.name,
            step=takeover.step,
            sessions=failed.sessions,
            generation=takeover.generation,
        )
        kept = await self._nodes.keep_takeover(failed.node, by=self._me, within=self._within, progress=progress)
        takeover.kept = self._clock.monotonic()
        if not kept:
            self._under_way.pop(failed.node, None)
        return kept
