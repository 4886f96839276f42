"""Former sessions of this node: other nodes have claimed them, and may come for what they were here (rung 2).

When a node learns that a session is another node's, it stops serving it at once. But that other node knows only what
is in the grid: what was sent and not acknowledged, what is unanswered, and how far the session had come is here. So it
is kept as it was at that moment, until the new owner says that it has it, or for some seconds: whoever comes for it
comes at once. It is a copy, and gives no right (P3).

What is kept is bounded (P20): beyond, the oldest goes, and its session fails over with a declared loss.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.disconnected import PACKET_BYTES, own_bytes
from gateway.app.session.cuts import Cuts
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.timers import Deadlines
from gateway.core.session.export import export
from gateway.core.session.handoff import GONE, PASSABLE, ClaimRank, Given, GiveStatus, may_give
from gateway.core.stream.transitions import State
from gateway.core.types import Attempt, SessionId
from gateway.core.wire.codes import Outcome
from gateway.core.wire.support import understands
from gateway.ports import Ownership

KEPT_SECONDS: Final = 10.0
"""Seconds for which a former session is kept: the new owner asks at once, and whoever claims from it, should it die
before its client has said a word there, does so within some seconds."""

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all of them, about: most sessions take some kibibytes, and few are between two nodes at the same time."""


class FormerSession:
    """What a session was here.

    Attributes:
        session: as it was; nothing is done with it any more.
        cuts: how far it had come.
        claim: the latest one to which it was given; None before.
        rank: of that.
        size: bytes, about.
    """

    __slots__ = ("claim", "cuts", "rank", "session", "size")

    def __init__(self, session: Session, cuts: Cuts) -> None:
        self.session = session
        self.cuts = cuts
        self.claim: Ownership | None = None
        self.rank: ClaimRank | None = None
        machine = session.machine
        packets = machine.unacknowledged + machine.waiting
        buffered = machine.resend_bytes + machine.waiting_bytes + PACKET_BYTES * packets
        self.size = own_bytes(session) + buffered + session.pending.bytes

    def give(self, claim: Ownership, attempt: Attempt, now: float) -> Given:
        """Answer who has claimed it.

        Args:
            claim: as the grid has confirmed it.
            attempt: of the client, for which it was claimed.
            now: by the monotonic clock.
        """
        asked = ClaimRank(attempt, claim.epoch)
        if not may_give(self.session.claim_rank, self.rank, asked):
            return GONE
        self.claim, self.rank = claim, asked
        places, unfinished = self.cuts
        return Given(GiveStatus.GIVEN, export(self.session, now), places, unfinished)


class FormerSessions:
    """All of them.

    Args:
        context: of the node.

    Attributes:
        wanted: whether there is anybody who could come for them; else nothing is kept.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._kept: dict[SessionId, FormerSession] = {}
        """In the order in which they were given up."""
        self._deadlines: Deadlines[SessionId] = Deadlines()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.wanted = False
        context.metrics.watch(catalogue.FORMER_SESSIONS, lambda: len(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Bytes of all, about."""
        return self._bytes

    @property
    def given(self) -> int:
        """How many of them were given to their new owners, who have not said yet that they serve them."""
        return sum(former.claim is not None for former in self._kept.values())

    def wants(self, session: Session) -> bool:
        """Tell whether a session that another node has claimed is to be kept."""
        return (
            self.wanted
            and not session.ending
            and understands(session.supports, Outcome.HANDED_OVER)
            # Without a connection in another state, it is just being recovered: if it came from another node, that may
            # have gone, and what it was there is here alone.
            and (
                session.connection is not None
                or session.machine.state in PASSABLE
                or (session.arriving is not None and session.machine.state is State.RESUMING)
            )
        )

    def keep(self, former: FormerSession) -> None:
        """Keep one, in the place of an older one of the same session."""
        session = former.session.id
        self.forget(session)
        self._kept[session] = former
        self._bytes += former.size
        self._deadlines.schedule(session, self._clock.monotonic() + KEPT_SECONDS)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))
        self._sweep_later()

    def __contains__(self, session: object) -> bool:
        return session in self._kept

    def give(self, claim: Ownership, attempt: Attempt) -> Given:
        """Answer who has claimed a session; see ``FormerSession.give``."""
        former = self._kept.get(claim.session)
        return GONE if former is None else former.give(claim, attempt, self._clock.monotonic())

    def taken(self, by: Ownership) -> None:
        """The client of a session was heard elsewhere: it need not be kept; no effect if it was given to another one.

        Args:
            by: the node where, and the epoch by which the session is served there now.
        """
        former = self._kept.get(by.session)
        claim = None if former is None else former.claim
        if claim is not None and claim.owner == by.owner and claim.epoch <= by.epoch:
            self.forget(by.session)

    def forget(self, session: SessionId) -> None:
        """Keep nothing of a session."""
        former = self._kept.pop(session, None)
        if former is not None:
            self._bytes -= former.size
            self._deadlines.cancel(session)

    def close(self) -> None:
        """Forget all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for session in list(self._kept):
            self.forget(session)

    def _sweep_later(self) -> None:
        if self._timer is None and (nearest := self._deadlines.next()) is not None:
            delay = max(0.0, nearest - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _sweep(self) -> None:
        """Forget those that nobody came for in time."""
        self._timer = None
        for session in self._deadlines.due(self._clock.monotonic()):
            self.forget(session)
        self._sweep_later()
