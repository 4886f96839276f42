"""The nodes of the cluster, as an administrator sees and steers them; implements ``NodeAdministration``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from gateway.app.cluster.presence import Presence
from gateway.app.context import Context
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports import (
    Backup,
    GridUnavailable,
    LinkState,
    LostNode,
    NodeDirectory,
    NodeEntry,
    NodeReport,
    Takeover,
)
from gateway.ports.administration import HeldElsewhere, NodeState, NodeView, NotThere, TakeoverView


class ClusterNodes:
    """Nodes, from what they tell of themselves in the grid; this one from itself.

    Args:
        context: of the node.
        presence: what this node tells of itself.
        begin_drain: begins to move its clients.
        undrain: takes new sessions again.
        link_state: tells how the link to a node is; None without links.
    """

    def __init__(
        self,
        context: Context,
        *,
        presence: Presence,
        begin_drain: Callable[[], None],
        undrain: Callable[[], Awaitable[None]],
        link_state: Callable[[NodeRef], LinkState] | None = None,
    ) -> None:
        self._me = context.me
        self._nodes = context.grid.nodes
        self._presence = presence
        self._begin_drain = begin_drain
        self._undrain = undrain
        self._cluster = context.cluster
        self._link_state = link_state

    async def list(self) -> Sequence[NodeView]:
        """See ``NodeAdministration.list``."""
        entries, lost, backups = await asyncio.gather(self._nodes.entries(), self._nodes.lost(), self._nodes.backups())
        suspected = self._suspected(entries)
        views = [replace(self._view(entry), suspected_by=suspected.get(str(entry.node), ())) for entry in entries]
        if not any(view.here for view in views):
            # Its lease has expired, or the grid is new: it answers all the same, so it is there.
            views.append(self._own())
        there = {view.node for view in views}
        views += [_lost(run) for run in _last_runs(lost) if run.node.node not in there]
        views = [self._with_role(_backed_up(view, backups.get(_run_of(view)))) for view in views]
        return sorted(views, key=lambda view: (view.node, view.incarnation))

    async def takeovers(self) -> Sequence[TakeoverView]:
        """See ``NodeAdministration.takeovers``."""
        return [_taken_over(each) for each in await self._nodes.takeovers()]

    async def find(self, node: str) -> NodeView:
        """See ``NodeAdministration.find``."""
        if node == self._me.node:
            return await self._with_backup(self._own())
        found = await self._entry_or_lost(NodeId(node))
        if isinstance(found, LostNode):
            return await self._with_backup(_lost(found))
        if found.alive:
            raise HeldElsewhere(found.node, None if found.report is None else found.report.admin)
        return await self._with_backup(self._view(found))

    async def as_reported(self, node: str) -> NodeView:
        """See ``NodeAdministration.as_reported``."""
        found = await self._entry_or_lost(NodeId(node))
        return await self._with_backup(_lost(found) if isinstance(found, LostNode) else self._view(found))

    async def drain(self, node: str) -> NodeView:
        """See ``NodeAdministration.drain``."""
        await self._must_be_here(node)
        self._begin_drain()
        return self._own()

    async def undrain(self, node: str) -> NodeView:
        """See ``NodeAdministration.undrain``."""
        await self._must_be_here(node)
        await self._undrain()
        return self._own()

    async def _entry_or_lost(self, node: NodeId) -> NodeEntry | LostNode:
        entries, lost = await asyncio.gather(self._nodes.entries(), self._nodes.lost())
        try:
            return newest(entries, node)
        except NotThere:
            for run in _last_runs(lost):
                if run.node.node == node:
                    return run
            raise

    async def _with_backup(self, view: NodeView) -> NodeView:
        run, view = _run_of(view), self._with_role(view)
        try:
            return _backed_up(view, (await self._nodes.backups(run)).get(run))
        except GridUnavailable:
            # Of itself a node tells at all times.
            return view

    def _with_role(self, view: NodeView) -> NodeView:
        master = self._cluster.master
        return replace(view, master=True) if master is not None and master.node == _run_of(view) else view

    async def _must_be_here(self, node: str) -> None:
        if node != self._me.node:
            entry = newest(await self._nodes.entries(), NodeId(node))
            admin = entry.report.admin if entry.alive and entry.report is not None else None
            raise HeldElsewhere(entry.node, admin)

    def _suspected(self, entries: Sequence[NodeEntry]) -> dict[str, tuple[str, ...]]:
        """Tell who is suspected by whom, as the nodes tell; this one as it knows."""
        found: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            report = self._presence.report() if entry.node == self._me else entry.report
            for suspect in () if report is None or not entry.alive else report.suspects:
                found[suspect] = (*found.get(suspect, ()), entry.node.node)
        return found

    def _own(self) -> NodeView:
        return _shown(self._me, self._presence.report(), here=True)

    def _view(self, entry: NodeEntry) -> NodeView:
        if entry.node == self._me:
            return self._own()
        view = _shown(entry.node, entry.report, alive=entry.alive)
        if view.link is None or self._link_state is None or not entry.alive:
            return view
        state = self._link_state(entry.node)
        return replace(view, linked=state.up, heard=state.silence if state.up else None)


def _taken_over(takeover: Takeover) -> TakeoverView:
    progress = takeover.progress
    return TakeoverView(
        node=takeover.expired.node,
        incarnation=takeover.expired.incarnation,
        by=None if takeover.by is None else takeover.by.node,
        stage=progress.stage or None,
        step=progress.step,
        sessions=progress.sessions,
        left=max(0.0, takeover.left),
    )


def newest(entries: Sequence[NodeEntry], node: NodeId) -> NodeEntry:
    """Find a node by its name: the run of it that lives, else one that expired.

    Raises:
        NotThere: there is none.
    """
    runs = [entry for entry in entries if entry.node.node == node]
    if not runs:
        raise NotThere("node", "no node of that name holds a lease; `gateway admin nodes` lists those that are there")
    return max(runs, key=lambda entry: (entry.alive, 0.0 if entry.report is None else entry.report.started))


async def admin_of(nodes: NodeDirectory, owner: NodeRef) -> str | None:
    """Find out where a node's admin port is; None if it has no lease any more, or has not told."""
    for entry in await nodes.entries():
        if entry.node == owner and entry.alive and entry.report is not None:
            return entry.report.admin
    return None


def _last_runs(lost: Iterable[LostNode]) -> list[LostNode]:
    """Leave out all runs of a node but the one that was lost last: one that dies again and again is one node."""
    by_name: dict[NodeId, LostNode] = {}
    for run in lost:
        known = by_name.get(run.node.node)
        if known is None or run.ago < known.ago:
            by_name[run.node.node] = run
    return list(by_name.values())


def _run_of(view: NodeView) -> NodeRef:
    return NodeRef(NodeId(view.node), Incarnation(view.incarnation))


def _backed_up(view: NodeView, backup: Backup | None) -> NodeView:
    """Show which node backs it, and how whole the copies are; of a lost node, which one backed it."""
    if backup is None:
        return view
    return replace(view, backup=backup.node.node, mirror=backup.mode, copied=backup.whole, to_copy=backup.of)


def _lost(run: LostNode) -> NodeView:
    """Show a lost node: what it was, and not what it had, which others have taken over."""
    view = _shown(run.node, run.report, alive=False)
    return replace(
        view,
        state=NodeState.LOST,
        lost=max(0.0, run.ago),
        reasons=("it died, and others have taken over from it",),
        connected=None,
        disconnected=None,
        lag=None,
    )


def _shown(node: NodeRef, report: NodeReport | None, *, alive: bool = True, here: bool = False) -> NodeView:
    if report is None:
        state = NodeState.UNKNOWN if alive else NodeState.EXPIRED
        return NodeView(node=node.node, incarnation=node.incarnation, state=state, here=here)
    if not alive:
        state = NodeState.EXPIRED
    elif report.draining:
        state = NodeState.DRAINING
    else:
        state = NodeState.NOT_READY if report.reasons else NodeState.READY
    return NodeView(
        node=node.node,
        incarnation=node.incarnation,
        state=state,
        reasons=report.reasons,
        listen=report.listen,
        admin=report.admin,
        version=report.version,
        started=report.started,
        connected=report.connected,
        disconnected=report.disconnected,
        lag=report.lag,
        link=report.link or None,
        here=here,
    )
