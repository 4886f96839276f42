"""Sessions that come back as the protocol says (8.3): they wait when they are told to, and try again until served."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from benchmarks.storm.crowd import Crowd, Phase
from benchmarks.storm.loop import Connection
from benchmarks.storm.member import Member
from gateway.core.pacing.backoff import ReconnectBackoff
from gateway.core.wire.codes import reconnect_for
from gateway.core.wire.packets import Backoff

_RECOVERED: Final = frozenset({"failed_over", "handed_over", "reattached"})
"""Reattached is who was served before, and did not hear of it."""


class Returner(Member):
    """A session that knows how to wait.

    Attributes:
        backoff: when it tries again.
        told: code and retry_after of the error packet that came last on this connection.
    """

    __slots__ = ("_crowd", "backoff", "told")

    def __init__(self, crowd: ReturningCrowd, member: Member) -> None:
        """Take the place of *member* before it has connected."""
        super().__init__(crowd.loop, crowd, member.name, member.interest)
        self._crowd = crowd
        self.backoff = ReconnectBackoff()
        self.told: tuple[str, float | None] | None = None

    def lost(self, connection: Connection, reason: str) -> None:
        """Come again when it is time."""
        if connection is not self._connection:
            return
        if not self._crowd.is_returning:
            super().lost(connection, reason)
            return
        self._connection = None
        code = None
        retry_after = None
        if connection.refused is not None:
            retry_after = connection.refused.retry_after
            why = f"HTTP {connection.refused.status}"
        elif self.told is not None:
            why, retry_after = self.told
            code = int(reason.split()[2]) if reason.startswith("closed with") else None
        else:
            why = "lost"
        self._crowd.refusals[why] += 1
        self.told = None
        self.backoff = self.backoff.disconnected(time.monotonic(), reconnect_for(code), retry_after=retry_after)
        delay, self.backoff = self.backoff.delay(self._crowd.chance.random())
        self._crowd.come_later(self, delay)

    def _take(self, packet: dict[str, Any]) -> None:
        kind = packet.get("type")
        if kind == "error":
            self.told = (packet["code"], packet.get("retry_after"))
            return
        if kind == "welcome" and packet["outcome"] in _RECOVERED:
            self._expected = packet["outcome"]
        super()._take(packet)
        if kind in {"welcome", "ping"} and packet.get("backoff"):
            advice = Backoff(**packet["backoff"])
            now = time.monotonic()
            self.backoff = self.backoff.connected(now, advice) if kind == "welcome" else self.backoff.advised(advice)


class ReturningCrowd(Crowd):
    """Many of them.

    Attributes:
        is_returning: whether losing a connection is no failure.
        refusals: how often somebody had to come again, by the reason.
        chance: of delays.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        super().__init__()
        self.is_returning = False
        self.refusals: Counter[str] = Counter()
        self.chance = Random(1)
        self._later: list[tuple[float, int, Returner]] = []
        self._number = 0
        self._address = ("", 0)

    def add(self, sessions: int, *, prefix: str = "member") -> list[Member]:
        """Describe members that come back by themselves; see ``Crowd.add``."""
        added = super().add(sessions, prefix=prefix)
        returners: list[Member] = [Returner(self, each) for each in added]
        self.members[-len(added) :] = returners
        return returners

    def come_later(self, member: Returner, delay: float) -> None:
        """Let a member try after *delay* seconds."""
        self._number += 1
        heapq.heappush(self._later, (time.monotonic() + delay, self._number, member))

    def let_due_come(self) -> None:
        """Let those try whose time has come."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2].arrive(self._address, expected="failed_over")

    def return_all(self, address: tuple[str, int], *, advised: bool, members: Sequence[Member]) -> Phase:
        """Begin a phase in which all come back; ``tick`` and the loop do the rest.

        Args:
            address: host and port.
            advised: whether each waits as it was advised before it comes; if not, all come in the same moment.
            members: who.
        """
        self._address = address
        self.is_returning = True
        now = time.monotonic()
        for member in members:
            member.expect(member.topics)
            if not isinstance(member, Returner):
                continue
            member.backoff = member.backoff.disconnected(now)
            delay = 0.0
            if advised:
                delay, member.backoff = member.backoff.delay(self.chance.random())
            self.come_later(member, delay)
        self.phase = Phase(len(members))
        return self.phase

    def tick(self) -> None:
        """Do what is due."""
        self.let_due_come()
        self.acknowledge_due()
