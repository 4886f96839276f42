"""The stages of a takeover: what is taken over from a failed node.

The work of a node is taken over in ``at_once``; what its clients may still come back to, and is of no use without them,
is cleaned up in ``transient``, after a while. To take over something more, write a ``Stage`` and put it into one of the
two, in ``gateway.app.node``: that is all.

How far a takeover has come is kept in the grid by the name of its stage, so that the next node goes on there if the one
that takes over dies. So names stay, and whatever a step does may be done twice: by a node that died before it was kept,
and by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from gateway.app.context import Context
from gateway.app.journal.node_events import Expiry
from gateway.app.journal.session_events import SessionOrphaned
from gateway.app.operations.reports import Reports
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.types import NodeRef, SessionId

ORPHAN_BATCH: Final = 500
"""Sessions that are put on the clock together: a few milliseconds of the grid's time."""


@dataclass(slots=True)
class FailedNode:
    """A node that is taken over.

    Attributes:
        node: which.
        expiry: between which times it died; None in the transient stages, when nobody needs to know any more.
        unsaved: whether its sessions may have left later than the grid knows.
        sessions: that were put on the clock, by whoever did it.
        prolonged: sessions whose windows this node has begun anew.
        left: sessions of the step that is under way that are not known to be on the clock; None before they are listed.
    """

    node: NodeRef
    expiry: Expiry | None = None
    unsaved: bool = False
    sessions: int = 0
    left: list[SessionId] | None = None
    prolonged: int = 0


class Stage(Protocol):
    """A part of a takeover."""

    @property
    def name(self) -> str:
        """By which the grid remembers it: letters, digits and dashes, and never another one."""

    @property
    def steps(self) -> int:
        """Into how many steps it is divided, at least one; the same on all nodes."""

    async def take(self, failed: FailedNode, step: int) -> None:
        """Do a step; asked again, also by another node, it does what is left of it.

        Raises:
            GridUnavailable: it is asked again, by this node or the next one.
        """


@dataclass(frozen=True, slots=True)
class TakeoverStages:
    """All that is taken over.

    Attributes:
        at_once: in order; when all are done, the node is listed as expired no more.
        transient: in order, after the wait.
    """

    at_once: tuple[Stage, ...]
    transient: tuple[Stage, ...] = ()


class SessionStage:
    """Puts the sessions that the node still owns on the clock, one partition a step.

    The windows of those that were on the clock already begin anew, if the node may have known more of them than the
    grid: it has not told that all is saved since the grid was unreachable (P7).

    What belongs to a session goes with it, and so do its subscriptions, what it consumes from queues and the messages
    that it holds there: all of it waits for the session's client, at any node, until its window is over.

    Args:
        context: of the node.
    """

    name = "sessions"
    steps = SESSION_PARTITIONS

    def __init__(self, context: Context) -> None:
        self._grid = context.grid
        self._announce = context.announce

    async def take(self, failed: FailedNode, step: int) -> None:
        """See ``Stage``. Each session is told of once, also if an answer of the grid is lost."""
        if failed.left is None:
            failed.left = list(await self._grid.sessions.owned(failed.node, step))
        while batch := failed.left[:ORPHAN_BATCH]:
            epochs = await self._grid.sessions.orphan(failed.node, batch)
            del failed.left[: len(batch)]
            for session, epoch in zip(batch, epochs, strict=True):
                if epoch is not None and failed.expiry is not None:
                    failed.sessions += 1
                    self._announce(SessionOrphaned(session, epoch, failed.expiry))
        if failed.unsaved:
            await self._prolong(failed, step)
        failed.left = None

    async def _prolong(self, failed: FailedNode, partition: int) -> None:
        after: SessionId | None = None
        while True:
            longer, after = await self._grid.sessions.prolong(failed.node, partition, after=after, limit=ORPHAN_BATCH)
            failed.prolonged += longer
            if after is None:
                return


class ReportStage:
    """Removes what the node told of itself to those who watch the system's topics.

    Args:
        reports: of this node.
    """

    name = "reports"
    steps = 1

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def take(self, failed: FailedNode, step: int) -> None:  # noqa: ARG002 - there is one
        """See ``Stage``."""
        await self._reports.forget(failed.node)
