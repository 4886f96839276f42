"""The handshake limiter: how many clients that come together are answered at once, and how fast.

Two bounds hold behind the connection limiter (``gateway.app.admission.connection_limiter``), for those whose first
packet has come:

* **at once**: so many handshakes are worked on together. Each asks the grid, and what many ask together comes back
  together; the bound is what the loop does for returning clients in one turn at most. Whoever is verified holds no
  place meanwhile, as that may take long (P20).
* **per second**: all nodes of a cluster together ask the grid for so many sessions a second; each takes its share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

from gateway.app.admission.limits import Limits
from gateway.app.admission.refusals import HandshakeRefused
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.parameters import StormParameters
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.precedence import Precedence
from gateway.core.pacing.rates import TokenBucket
from gateway.core.wire.codes import TRY_LATER, ErrorCode
from gateway.ports import Metrics

HANDSHAKE_WAIT: Final = 2.0
"""Seconds that a first packet waits at most for its turn: less than a client waits for a welcome. Then the client is
told when to come again, which costs less than letting it lose patience."""

CLAIM_BURST: Final = 0.02
"""Seconds' worth of a node's share that may be claimed together: some milliseconds of the grid's time."""


class _Bound(StrEnum):
    """What holds the line at the handshake limiter, by the name of the setting."""

    AT_ONCE = "claims_at_once"
    RATE = "claim_rate"


_Waiting: TypeAlias = tuple["asyncio.Future[_Bound | None]", float]
"""Somebody who waits: told that it was let through, or what held it for too long; and until when it waits. One timer
serves all, because a timeout for each costs as much as a tenth of what a claim does."""


class HandshakePlace:
    """A place among those who ask the grid, to be taken by ``async with``, and again if it is needed again.

    What needs no grid is done outside of it, however long it takes: a place is held for milliseconds (P20). Nor is
    anything waited for in it that another client may keep.

    Args:
        handshake_limiter: gives places; None for those who need none.
        returning: whether it is somebody's who comes back, and so goes first.

    Attributes:
        waited: seconds that were waited for it, all together.
    """

    __slots__ = ("_handshake_limiter", "_is_taken", "_returning", "waited")

    def __init__(self, handshake_limiter: HandshakeLimiter | None, *, returning: bool) -> None:
        self._handshake_limiter = handshake_limiter
        self._returning = returning
        self._is_taken = False
        self.waited = 0.0

    async def take(self) -> None:
        """Wait for a place; it must not be taken.

        Raises:
            HandshakeRefused: it took too long.
        """
        limiter = self._handshake_limiter
        if limiter is not None and not limiter.enter_at_once():
            self.waited += await limiter.enter(returning=self._returning)
        self._is_taken = True

    __aenter__ = take

    async def __aexit__(self, *_: object) -> None:
        """Give it back."""
        self.leave()

    def leave(self) -> None:
        """Give it back before the end: the rest takes time, and needs nothing of the grid that is short."""
        if self._is_taken and self._handshake_limiter is not None:
            self._handshake_limiter.leave()
        self._is_taken = False


class HandshakeLimiter:
    """Lets first packets through, resumes first, but for one in eight.

    Args:
        parameters: how many at once, and how many a second in the whole cluster.
        nodes: tells how many nodes share the grid.
        limits: told of those who waited for too long.
        clock: time.
        metrics: where numbers go.
    """

    def __init__(
        self, parameters: StormParameters, *, nodes: Callable[[], int], limits: Limits, clock: Clock, metrics: Metrics
    ) -> None:
        self._parameters = parameters
        self._nodes = nodes
        self._limits = limits
        self._clock = clock
        self._inside = 0
        self._returning: deque[_Waiting] = deque()
        self._new: deque[_Waiting] = deque()
        self._precedence = Precedence()
        self._pace: TokenBucket | None = None
        self._paced_for = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        metrics.watch(
            catalogue.HANDSHAKES_WAITING, lambda: sum(not turn.done() for turn, _ in (*self._returning, *self._new))
        )

    def enter_at_once(self) -> bool:
        """Take a place, to be left by ``leave``, if there is one and nobody waits; a coroutine less than ``enter``.

        Returns:
            Whether there was one.
        """
        if self._returning or self._new or self._wait() > 0:
            return False
        self._inside += 1
        return True

    async def enter(self, *, returning: bool) -> float:
        """Wait for one's turn; whoever enters has to ``leave``.

        Returns:
            Seconds that it took.

        Raises:
            HandshakeRefused: it took too long; the message names what held the line when patience ended.
        """
        is_first = not self._returning and not self._new
        wait = self._wait() if is_first else 0.0
        if is_first and wait == 0:
            self._inside += 1
            return 0.0
        came = self._clock.monotonic()
        turn: asyncio.Future[_Bound | None] = asyncio.get_running_loop().create_future()
        queue = self._returning if returning else self._new
        queue.append((turn, came + HANDSHAKE_WAIT))
        if is_first:
            self._arm(wait)
        try:
            held_by = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result() is None:
                self.leave()  # it was let through in the same moment
            raise
        if held_by is not None:
            raise self._refused(held_by)
        return self._clock.monotonic() - came

    def leave(self) -> None:
        """The handshake is done, whatever came of it."""
        self._inside -= 1
        self._next()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refused(self, bound: _Bound) -> HandshakeRefused:
        self._limits.exceeded(bound.value)
        why = (
            f"this node answers {self._parameters.claims_at_once} first packets at a time, and those before yours took "
            "longer than you may wait"
            if bound is _Bound.AT_ONCE
            else f"more clients come than the {self._parameters.claim_rate:g} a second that the cluster takes on"
        )
        return HandshakeRefused(ErrorCode.TRY_LATER, f"{bound}: {why}; try again", TRY_LATER, HANDSHAKE_WAIT)

    def _is_full(self) -> bool:
        most = self._parameters.claims_at_once
        return bool(most) and self._inside >= most

    def _wait(self) -> float:
        """Take a place if there is one; else tell after how many seconds to look again, infinity for a departure."""
        if self._is_full():
            return float("inf")
        rate = self._parameters.claim_rate
        if not rate:
            return 0.0
        nodes = max(1, self._nodes())
        if self._pace is None or nodes != self._paced_for:
            share = rate / nodes
            self._pace, self._paced_for = TokenBucket(share, max(1.0, share * CLAIM_BURST)), nodes
        return self._pace.take(self._clock.monotonic())

    def _next(self) -> None:
        while self._returning or self._new:
            is_new = self._precedence.is_for_new(returning=bool(self._returning), new=bool(self._new))
            queue = self._new if is_new else self._returning
            turn, _ = queue[0]
            if turn.done():
                queue.popleft()  # cancelled
                continue
            wait = self._wait()
            if wait > 0:
                self._arm(wait)
                return
            self._precedence.served(new=is_new, waits=bool(self._new))
            queue.popleft()
            self._inside += 1
            turn.set_result(None)

    def _arm(self, wait: float) -> None:
        """Look again after *wait* seconds, or when somebody has waited for too long; a departure looks anyway.

        Whoever asks a second time how long to wait may hear that it is time now, and then nobody would ever look.
        """
        now = self._clock.monotonic()
        at = min(now + wait, *[queue[0][1] for queue in (self._returning, self._new) if queue])
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        # Every departure lets somebody in at once unless the pace forbids it; so with a place left, it is the pace.
        held_by = _Bound.AT_ONCE if self._is_full() else _Bound.RATE
        for queue in (self._returning, self._new):
            while queue and queue[0][1] <= now:
                turn, _ = queue.popleft()
                if not turn.done():
                    turn.set_result(held_by)
        self._next()
