"""When a client tries again after it lost its connection (protocol section 8.3).

A node that dies cuts all its clients off in the same instant. If they all came back at once, they would take the next
node down; so each delay is drawn at random between 0 and a bound (*full jitter*), the very first one too. The bound
doubles with every failure up to a maximum, and falls back only after a connection has lasted, so that a node which
accepts clients and dies at once is not stormed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gateway.core.wire.codes import Reconnect
from gateway.core.wire.errors import LocalProtocolError
from gateway.core.wire.packets import Backoff

GROWTH: Final = 2.0
"""By what the bound grows with every failure."""

LEAST_BOUND: Final = 0.05
"""Seconds; the smallest bound, whatever a server advises. An advice of 0 would make all its clients spin."""

DEFAULT_BACKOFF: Final = Backoff(initial=0.25, maximum=10.0, stable_after=10.0)
"""Seconds; what a client goes by until a server has given its own advice."""


@dataclass(frozen=True, slots=True)
class ReconnectBackoff:
    """The state of a client's reconnecting, as a value: each step returns the next one.

    ```text
    connected(now) ──► … ──► disconnected(now, …) ──► delay(random) ──► sleep, try ──► connected, or delay again
    ```

    Attributes:
        advice: the server's, or the default.
        bound: the next delay is drawn from below it, in seconds; None means the advice's first one.
        connected_at: when the present connection was welcomed, or None.
        earliest: seconds that the next delay has at least.
    """

    advice: Backoff = DEFAULT_BACKOFF
    bound: float | None = None
    connected_at: float | None = None
    earliest: float = 0.0

    def connected(self, now: float, advice: Backoff) -> ReconnectBackoff:
        """A server has welcomed the session.

        Args:
            now: seconds.
            advice: from the welcome; it takes the place of the earlier one. A bound that has grown stays.
        """
        return replace(self, advice=advice, connected_at=now, earliest=0.0)

    def advised(self, advice: Backoff) -> ReconnectBackoff:
        """A server gives new advice while the connection is open; it takes the place of the earlier one."""
        return replace(self, advice=advice)

    def disconnected(
        self,
        now: float,
        reconnect: Reconnect = Reconnect.AT_ONCE,
        *,
        retry_after: float | None = None,
    ) -> ReconnectBackoff:
        """The connection ended, or an attempt at one was refused.

        Args:
            now: seconds.
            reconnect: what the close code's range asks for. LATER makes the bound the longest, unless the server gave
                a time itself.
            retry_after: seconds of an error packet before which trying again is useless: the next delay's least.

        Raises:
            LocalProtocolError: *reconnect* is NEVER, so there is nothing to compute.
        """
        if reconnect is Reconnect.NEVER:
            raise LocalProtocolError("a session that may not come back has no backoff")
        was_stable = self.connected_at is not None and now - self.connected_at >= self.advice.stable_after
        bound = None if was_stable else self.bound
        if reconnect is Reconnect.LATER and retry_after is None:
            bound = self.advice.maximum
        return replace(self, bound=bound, connected_at=None, earliest=retry_after or 0.0)

    def delay(self, random: float) -> tuple[float, ReconnectBackoff]:
        """Draw the next delay.

        Args:
            random: uniform in [0, 1).

        Returns:
            Seconds to wait before the next attempt, and the state after it, with its bound doubled.
        """
        bound = max(LEAST_BOUND, self.advice.initial if self.bound is None else self.bound)
        maximum = max(LEAST_BOUND, self.advice.initial, self.advice.maximum)
        following = replace(self, bound=min(maximum, bound * GROWTH), earliest=0.0)
        return self.earliest + random * bound, following
