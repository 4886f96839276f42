"""Bounds what sessions take in the grid, for each principal and for all, over all nodes (P20).

A session stays in the grid until its window ends, whether or not this node holds it still, or lives; so it counts for
as long.
What would store more is refused: a new session, a selection, a property, the first publish to a partition of the grid.
What is there already stays: sessions come back, and none ends before its window (P7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from gateway.app.admission.refusals import HandshakeRefused
from gateway.app.runtime.parameters import NodeParameters
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.shared_bytes import Exceeded, HeldBytes, SharedBytes
from gateway.core.session.stored_size import stored_bytes
from gateway.core.wire.codes import LIMIT_EXCEEDED, TRY_LATER, ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.ports import Metrics

RETRY: Final = 5.0
"""Seconds after which somebody may ask again for a new session: others have to end first, which takes a while."""

_LIMITS: Final = {
    Exceeded.ONE: "limit_principal_session_bytes",
    Exceeded.SHARE: "limit_session_bytes",
    Exceeded.ALL: "limit_session_bytes",
}


class StoredSessions:
    """Counts what the sessions of a node take in the grid.

    Args:
        parameters: with the limits.
        metrics: where the sum is shown.
        exceeded: told of a limit that was met, and by whom.

    Attributes:
        counts: whether there is anything to count, as there is a bound.
    """

    def __init__(self, parameters: NodeParameters, metrics: Metrics, exceeded: Callable[[str, str], None]) -> None:
        usage = parameters.usage
        self._most = {Exceeded.ONE: usage.principal.stored_bytes}
        self._most[Exceeded.ALL] = self._most[Exceeded.SHARE] = usage.node.stored_bytes
        self._bytes = SharedBytes(usage.node.stored_bytes, usage.principal.stored_bytes)
        self._left: dict[int, Mapping[str, int]] = {}
        self._exceeded = exceeded
        self.counts = parameters.replicated and self._bytes.bounded
        metrics.watch(catalogue.STORED_SESSION_BYTES, lambda: self._bytes.total)

    # --- What is held -------------------------------------------------------------------------------------------------

    def recount(self, session: Session) -> None:
        """A session that the node holds may have changed, in the node or in the grid."""
        if self.counts and not session.dropped:
            self._count(session, stored_bytes(session) - session.stored)

    def leave(self, session: Session) -> None:
        """The session is not this node's any more, or has ended."""
        if session.stored:
            self._count(session, -session.stored)

    def keep(self, principal: str, size: int) -> None:
        """A session stays in the grid though this node does not hold it; to be called again with less than 0."""
        if size:
            self._bytes.add(principal, size)

    def left(self, partition: int, sizes: Mapping[str, int]) -> None:
        """Take in what sessions of nodes that are gone take, in one session partition that this node looks after.

        Args:
            partition: which; what was found there before counts no more.
            sizes: bytes by principal; nothing if another node looks after it.
        """
        before = self._left.pop(partition, {})
        if sizes:
            self._left[partition] = sizes
        for principal in {*before, *sizes}:
            if change := sizes.get(principal, 0) - before.get(principal, 0):
                self._bytes.add(principal, change)

    def _count(self, session: Session, change: int) -> None:
        if change:
            session.stored += change
            self._bytes.add(session.principal, change)

    # --- What would be more -------------------------------------------------------------------------------------------

    @contextmanager
    def opening(self, session: Session, *, at_admin_port: bool) -> Iterator[None]:
        """Count a new session while it is written; whoever takes it in counts it from then on.

        Raises:
            HandshakeRefused: its principal may not have it, or nobody.
        """
        if not self.counts:
            yield
            return
        size = stored_bytes(session)
        exceeded = None if at_admin_port else self._bytes.exceeded(session.principal, size)
        if exceeded is not None:
            limit = _LIMITS[exceeded]
            self._exceeded(limit, session.principal)
            why = f"{limit}: {self._why(exceeded, session.principal)}; try again"
            if exceeded is Exceeded.ALL:
                raise HandshakeRefused(ErrorCode.TRY_LATER, why, TRY_LATER, RETRY)
            raise HandshakeRefused(ErrorCode.TOO_MANY_SESSIONS, why, LIMIT_EXCEEDED, RETRY)
        self._bytes.add(session.principal, size)
        try:
            yield
        finally:
            self._bytes.add(session.principal, -size)

    def check(self, session: Session, change: int, code: ErrorCode, advice: str) -> None:
        """Check whether a session may take more than it does, and count that already; less is always allowed.

        What became of it in the end is counted by ``recount``, which the caller calls in any case.

        Args:
            session: which.
            change: bytes by which it would take more or less than it does.
            code: by which it is refused.
            advice: what its client can do, a sentence.

        Raises:
            RequestRefused: its principal may not have more, or nobody.
        """
        if not self.counts or change <= 0 or session.dropped:
            return
        # As a whole: it may have been counted by an earlier try of the same request.
        size = stored_bytes(session) + change - session.stored
        exceeded = self._bytes.exceeded(session.principal, size)
        if exceeded is not None:
            limit = _LIMITS[exceeded]
            self._exceeded(limit, session.principal)
            raise RequestRefused(f"{limit}: {self._why(exceeded, session.principal)}. {advice}", code=code)
        self._count(session, size)

    def _why(self, exceeded: Exceeded, principal: str) -> str:
        most = self._most[exceeded]
        held = f"the sessions of your principal take {self._bytes.held_by(principal)} bytes of the grid"
        if exceeded is Exceeded.ONE:
            return f"{held}, and may take {most}"
        if exceeded is Exceeded.SHARE:
            return f"{held}, and may not take more than what is left of {most} for all others"
        return f"the sessions of all principals take nearly {most} bytes of the grid, as many as they may"

    # --- Other nodes --------------------------------------------------------------------------------------------------

    def report(self) -> HeldBytes:
        """Tell what the other nodes have to know."""
        return self._bytes.report()

    def told(self, others: Sequence[HeldBytes]) -> None:
        """Take in what the other nodes have told."""
        self._bytes.told(others)
