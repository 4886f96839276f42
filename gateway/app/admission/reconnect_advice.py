"""ReconnectAdvice: how many clients would come back together, and what they are told about it beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.app.runtime.clock import Clock
from gateway.app.runtime.parameters import NodeParameters
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.reconnect_spread import advise, capacity
from gateway.core.wire.packets import Backoff
from gateway.ports import Metrics

NEARLY: Final = 0.01
"""By what share the number of sessions may differ for the same advice to be given again. Each welcome brings advice,
and in a storm each is of another number; to reckon it anew each time is a hundredth of what a returning session costs.
Below a hundred sessions it is exact. With more, the window may be a hundredth too short, which is nothing beside the
chance by which clients draw their delays."""


class ReconnectAdvice:
    """Knows how many would come back together, and advises them.

    Args:
        parameters: of the node.
        sessions: tells how many sessions the node holds.
        nodes: tells how many nodes live.
        clock: time.
        metrics: where numbers go.
    """

    def __init__(
        self,
        parameters: NodeParameters,
        *,
        sessions: Callable[[], int],
        nodes: Callable[[], int],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._parameters = parameters
        self._sessions = sessions
        self._nodes = nodes
        self._clock = clock
        self._awaited = 0
        self._awaited_until = 0.0
        # What was advised last, and for how many nodes and sessions.
        self._advised: Backoff | None = None
        self._advised_nodes = 0
        self._advised_sessions = 0
        metrics.watch(catalogue.BACKOFF_ADVISED_SECONDS, lambda: self.advice().initial)

    @property
    def capacity(self) -> float:
        """Clients per second that the other nodes take on."""
        storms = self._parameters.storms
        return capacity(survivors=self._nodes() - 1, admission_rate=storms.admission_rate, claim_rate=storms.claim_rate)

    def advice(self) -> Backoff:
        """Advise clients how to come back if this node died now."""
        nodes, sessions = self._nodes(), self._sessions() + self._still_awaited()
        advised = self._advised
        if (
            advised is None
            or nodes != self._advised_nodes
            or abs(sessions - self._advised_sessions) >= NEARLY * self._advised_sessions
        ):
            advised = self._advised = advise(
                self._parameters.backoff, sessions=sessions, capacity=self.capacity, window=self._parameters.window
            )
            self._advised_nodes, self._advised_sessions = nodes, sessions
        return advised

    def orphaned(self, sessions: int) -> None:
        """Another node has died, and so many of its sessions were put on the clock: they are still to come back."""
        now = self._clock.monotonic()
        self._awaited = (self._awaited if now < self._awaited_until else 0) + sessions
        self._awaited_until = now + self._parameters.window

    def returned(self) -> None:
        """A session of another node has come back here."""
        if self._awaited:
            self._awaited -= 1

    def _still_awaited(self) -> int:
        return self._awaited if self._awaited and self._clock.monotonic() < self._awaited_until else 0
