"""One write per session and loop tick, and what happens when a transport pushes back (design section 9, P9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.app.context import Context
from gateway.app.session import Session
from gateway.catalogue import metrics as catalogue

POLL_BLOCKED: Final = 0.01
"""Seconds between two looks at transports that push back: short against a person's patience, and one look costs less
than a microsecond, so even a thousand blocked sessions cost a tenth of a core."""


class Flusher:
    """Collects the sessions that have something to send and writes for each of them once per loop tick.

    Args:
        context: of the node.
        too_slow: called with a session whose outbox is above its bounds.
        failed: called with a session for which writing met a bug; the others must get theirs all the same.
    """

    def __init__(
        self,
        context: Context,
        too_slow: Callable[[Session], None],
        failed: Callable[[Session, Exception], None],
    ) -> None:
        self._policy = context.policy
        self._clock = context.clock
        self._metrics = context.metrics
        self._too_slow = too_slow
        self._failed = failed
        self._dirty: dict[Session, None] = {}
        self._blocked: dict[Session, None] = {}
        self._scheduled = False
        self._poll: asyncio.TimerHandle | None = None
        self._update_arrived: float | None = None

    @property
    def blocked(self) -> int:
        """How many sessions wait for their transport or for acknowledgements."""
        return len(self._blocked)

    def mark(self, session: Session) -> None:
        """Have *session* written at the end of this loop tick."""
        self._dirty[session] = None
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_dirty)

    def mark_update(self, arrived: float) -> None:
        """Note when the oldest update of this tick arrived, for the delivery latency, if it is to be written at all."""
        if self._update_arrived is None and self._dirty:
            self._update_arrived = arrived

    def flush(self, session: Session) -> None:
        """Write for *session* now."""
        self._dirty.pop(session, None)
        link = session.link
        if link is None:
            self._blocked.pop(session, None)
            return
        machine = session.machine
        messages = machine.flush(self._policy.high_water - link.backlog())
        for message in messages:
            link.write(message)
        if messages:
            self._metrics.add(catalogue.WRITES, len(messages))
        self._count_conflated(session)
        if not machine.has_output:
            self._blocked.pop(session, None)
            return
        exceeds = machine.exceeds(packets=self._policy.outbox_packets, size=self._policy.outbox_bytes)
        if messages:
            # Much came at once, and so far the transport has taken it: no reason to call the client slow. The rest
            # follows in the next tick, when everybody else has had a turn; memory stays bounded also until then.
            self._blocked.pop(session, None)
            if exceeds:
                machine.conflate()
            self.mark(session)
        elif exceeds:
            self._blocked.pop(session, None)
            self._too_slow(session)
        else:
            self._blocked[session] = None
            if self._poll is None:
                self._poll = asyncio.get_running_loop().call_later(POLL_BLOCKED, self._poll_blocked)

    def _count_conflated(self, session: Session) -> None:
        conflated = session.machine.conflated
        if conflated != session.conflated:
            self._metrics.add(catalogue.CONFLATED, max(0, conflated - session.conflated))
            session.conflated = conflated

    def forget(self, session: Session) -> None:
        """The session has no connection any more."""
        if session in self._blocked:
            self._count_conflated(session)
        self._dirty.pop(session, None)
        self._blocked.pop(session, None)

    def close(self) -> None:
        """Stop the timer."""
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _flush_dirty(self) -> None:
        self._scheduled = False
        dirty, self._dirty = self._dirty, {}
        for session in dirty:
            self._flush_safely(session)
        if self._update_arrived is not None:
            self._metrics.observe(catalogue.DELIVERY_SECONDS, self._clock.monotonic() - self._update_arrived)
            self._update_arrived = None

    def _flush_safely(self, session: Session) -> None:
        try:
            self.flush(session)
        except Exception as bug:  # noqa: BLE001 - one session must not keep the others from theirs
            self._failed(session, bug)

    def _poll_blocked(self) -> None:
        self._poll = None
        for session in list(self._blocked):
            self._flush_safely(session)
        if self._blocked and self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_BLOCKED, self._poll_blocked)
