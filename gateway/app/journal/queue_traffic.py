"""What passed through queues at this node: counted where it is done, and told about once a minute.

A message costs some additions. What another node did with it that node counts: so the sum of all nodes is what
happened, but for what a node that died had yet to tell. Queues that are not declared, such as those of shared and of
temporary destinations, are left out: their names say nothing to people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.app.journal.traffic import add_up
from gateway.core.topics.topics import SYSTEM_SIGN
from gateway.core.types import TopicPath
from gateway.core.wire.queue_packets import Settlement

QUEUES_TOLD: Final = 50
"""Queues with a record of their own, the busiest ones; see ``traffic.ROOTS_TOLD``."""

QUEUES_COUNTED: Final = 4_096
"""Queues that are counted apart: as many as there may be destinations, and more."""

THE_REST: Final = "*"
"""Stands for all queues without a record of their own."""

LONGEST_MS: Final = 366 * 86_400 * 1000
"""Milliseconds that a message may have taken at most, a year: a clock that was set makes no other number of it."""


@dataclass(slots=True)
class QueueTally:
    """What was counted for one queue.

    Attributes:
        sent: messages that the grid took in.
        given: messages that were sent to consumers.
        redelivered: of these, the ones that somebody may have received before.
        accepted: messages that were done.
        rejected: messages that consumers made dead letters.
        released: messages that consumers gave back.
        settle_ms: milliseconds from when a message was sent to when it was accepted, all added up.
        settle_max_ms: the most of one of them.
    """

    sent: int = 0
    given: int = 0
    redelivered: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    settle_ms: int = 0
    settle_max_ms: int = 0

    @property
    def work(self) -> int:
        """How much was done, to tell the busiest ones."""
        return self.sent + self.given + self.accepted + self.rejected + self.released

    def add(self, other: QueueTally) -> None:
        """Add what another one has counted."""
        add_up(self, other, most="settle_max_ms")


class QueueTraffic:
    """Counts what passes through queues until it is taken out."""

    def __init__(self) -> None:
        self._queues: dict[TopicPath, QueueTally] = {}
        self._rest = QueueTally()
        self._own = QueueTally()

    def sent(self, queue: TopicPath) -> None:
        """Count a message that the grid took in."""
        self._of(queue).sent += 1

    def given(self, queue: TopicPath, *, redelivered: bool) -> None:
        """Count a message that was sent to a consumer."""
        tally = self._of(queue)
        tally.given += 1
        tally.redelivered += redelivered

    def settled(self, queue: TopicPath, outcome: Settlement, ages: Iterable[int | None]) -> None:
        """Count messages that were settled.

        Args:
            queue: which.
            outcome: how.
            ages: of each message, milliseconds since it was sent; None if nobody here knows.
        """
        tally = self._of(queue)
        for age in ages:
            match outcome:
                case Settlement.REJECT:
                    tally.rejected += 1
                case Settlement.RELEASE:
                    tally.released += 1
                case _:
                    tally.accepted += 1
                    took = min(max(age or 0, 0), LONGEST_MS)
                    tally.settle_ms += took
                    tally.settle_max_ms = max(tally.settle_max_ms, took)

    def take(self) -> dict[str, QueueTally]:
        """Take out what was counted since the last time: of the busiest queues, and of the rest under ``*``."""
        busiest = sorted(self._queues.items(), key=lambda each: each[1].work, reverse=True)
        rest = self._rest
        for _, tally in busiest[QUEUES_TOLD:]:
            rest.add(tally)
        told: dict[str, QueueTally] = dict(busiest[:QUEUES_TOLD])
        if rest.work:
            told[THE_REST] = rest
        self._queues, self._rest, self._own = {}, QueueTally(), QueueTally()
        return told

    def _of(self, queue: TopicPath) -> QueueTally:
        tally = self._queues.get(queue)
        if tally is None:
            if queue.startswith(SYSTEM_SIGN):
                return self._own
            if len(self._queues) >= QUEUES_COUNTED:
                return self._rest
            tally = self._queues[queue] = QueueTally()
        return tally
