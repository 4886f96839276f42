"""Bounds what the connected sessions of a principal, and of all, keep for their clients (P20).

Each session is bounded by itself: what it may have unacknowledged, and what may wait for it. But an account with a
thousand clients that read slowly, each with values of its own, would take a thousand times that. Above a bound the
connections of those sessions that keep most are closed as those of slow consumers (4001). The sessions stay, wait for
their clients as disconnected ones, and are bounded as those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.shared_runs import DistinctRuns, LookedThrough
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue

PAUSE: Final = 1.0
"""Seconds between two looks at least."""

LONGEST_PAUSE: Final = 5.0
"""Seconds after which the next look follows at the latest, however little is kept: its metric shall be of now."""

GROWTH: Final = 64 * 1024**2
"""Bytes a second by which what is kept can grow at most: a node cannot read, encode and write more of what is not
shared. Far below a bound nobody needs to look as often; ten thousand idle sessions cost half a percent of a core at one
look a second."""

SHARE: Final = 50
"""Times as long as a look takes that follows it without one: of many sessions a look takes some tens of milliseconds,
and the loop shall spend a fiftieth of its time on it at most."""

SESSIONS_SLICE: Final = 500
"""Sessions that are looked at before others get their turn: a fraction of a millisecond."""

RUNS_SLICE: Final = 2_000
"""Runs of packets that are counted before others get their turn: about a millisecond."""

CLOSED_SLICE: Final = 20
"""Sessions that are closed before others get their turn: about a millisecond."""

KEPT: Final = 0.75
"""Share of a bound down to which sessions are closed, so that it is not met again at once."""


def kept_bytes(session: Session) -> int:
    """Tell what a session keeps for its client, unacknowledged or waiting; shared bodies count as if they were not."""
    machine = session.machine
    return machine.resend_bytes + machine.waiting_bytes


class ConnectedBuffers:
    """Looks now and then at what connected sessions keep.

    Args:
        context: of the node.
        sessions: lists those that the node holds.
        too_slow: closes the connection of a session as that of a slow consumer.
    """

    def __init__(
        self, context: Context, sessions: Callable[[], Iterable[Session]], too_slow: Callable[[Session], None]
    ) -> None:
        usage = context.parameters.usage
        self._most = usage.node.buffer_bytes
        self._most_of_one = usage.principal.buffer_bytes
        self._clock = context.clock
        self._limits = context.limits
        self._sessions = sessions
        self._too_slow = too_slow
        self._found: dict[str | None, LookedThrough] = {}
        """By principal; None for all."""
        self._bytes = 0
        self._room = inf
        """Bytes by which what is kept may grow before a bound can be exceeded."""
        context.metrics.watch(catalogue.CONNECTED_BUFFER_BYTES, lambda: self._bytes)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            began = self._clock.monotonic()
            await self.look()
            await asyncio.sleep(max(self.pause(), SHARE * (self._clock.monotonic() - began)))

    def pause(self) -> float:
        """Tell for how many seconds no bound can be exceeded, as the last look has found it; within limits."""
        return min(max(PAUSE, self._room / GROWTH), LONGEST_PAUSE)

    async def look(self) -> None:
        """Close those that keep most of what is above a bound."""
        everybody: list[Session] = []
        of: dict[str, list[Session]] = {}
        sums: dict[str, int] = {}
        async for some in portions(list(self._sessions()), SESSIONS_SLICE):
            for session in some:
                if session.connection is not None and (size := kept_bytes(session)):
                    everybody.append(session)
                    sums[session.principal] = sums.get(session.principal, 0) + size
                    of.setdefault(session.principal, []).append(session)
        total = self._bytes = sum(sums.values())
        self._room = min(
            self._most - total if self._most else inf,
            self._most_of_one - max(sums.values(), default=0) if self._most_of_one else inf,
        )
        self._found = {who: found for who, found in self._found.items() if who is None or who in sums}
        # Principals first: who exceeds its own bound must not cost others theirs.
        for principal, counted in sums.items():
            if 0 < self._most_of_one < counted:
                name = "limit_principal_buffer_bytes"
                total -= await self._relieve(principal, of[principal], counted, self._most_of_one, name)
        if 0 < self._most < total:
            await self._relieve(None, everybody, total, self._most, "limit_buffer_bytes")

    async def _relieve(self, who: str | None, sessions: list[Session], counted: int, most: int, limit: str) -> int:
        """Close those of *sessions* that keep most, if all keep too much; returns the bytes that these kept."""
        now = self._clock.monotonic()
        found = self._found.get(who)
        if found is not None and not found.may_exceed(counted, most, now):
            return 0
        taken, chosen = await self._look_through(sessions, round(KEPT * most))
        if taken <= most:
            self._found[who] = LookedThrough(now, counted, taken)
            return 0
        self._found.pop(who, None)
        freed = 0
        async for some in portions(chosen, CLOSED_SLICE):
            for session in some:
                freed += kept_bytes(session)
                self._too_slow(session)
        self._limits.exceeded(limit, chosen[-1].principal if who is None else who)
        return freed

    async def _look_through(self, sessions: list[Session], left: int) -> tuple[int, list[Session]]:
        """Count what several share once, with the one that keeps least.

        Returns:
            What all of them keep, and those beyond *left* bytes, which keep most.
        """
        runs = DistinctRuns()
        taken = 0
        chosen: list[Session] = []
        for session in sorted(sessions, key=kept_bytes):
            if session.connection is not None:
                taken += runs.add(session.machine.kept())
            if taken > left:
                chosen.append(session)
            if runs.looked_at >= RUNS_SLICE:
                runs.looked_at = 0
                await asyncio.sleep(0)
        return taken, chosen
