"""Whether what comes in keeps the promises: versions, sequences, contents, and every loss declared (P2, P5, P6).

Pure: times are arguments and violations are handed to whoever wants them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.core.codes import Numbering
from gateway.core.packets import Update
from loadtests.payload import Sample, decode
from loadtests.tally import Tally

CLOCK_TOLERANCE: Final = 0.005
"""Seconds by which a value may be seen before it was due: two clocks set by NTP may differ by about that."""


@dataclass(slots=True)
class _Topic:
    version: int
    source: str
    sequence: int
    era: int


class SubscriptionWatch:
    """What one session sees, over all its connections.

    A sequence may only jump where that is declared: an update marked as a snapshot may skip others once after a
    failover or a notice (the *era* changes), and what was folded on a live connection is told by ``conflated`` of the
    next welcome.

    Args:
        tally: where to count.
        violated: is told of every broken promise.
        now: the time at which the session was subscribed, in seconds of the clock that is used throughout.
    """

    def __init__(self, tally: Tally, violated: Callable[[str], None], now: float) -> None:
        self._tally = tally
        self._violated = violated
        self._topics: dict[str, _Topic] = {}
        self._era = 0
        self._unexplained = 0
        self._since = now
        self._last = now
        self._finished = False

    def updated(self, update: Update, now: float, wall: float) -> float | None:
        """Judge an update.

        Args:
            update: as received.
            now: the time.
            wall: the time in seconds since 1970.

        Returns:
            Its latency in seconds, counted from when it was due; None if it tells nothing new, or nothing of ours.
        """
        if self._finished:
            return None
        tally = self._tally
        tally.updates += 1
        sample = decode(update.value)
        if sample is None:
            return None
        tally.longest_silence = max(tally.longest_silence, now - self._last)
        self._last = now
        if not sample.intact:
            self._violated(f"the content of an update of {update.topic} is damaged")
        last = self._topics.get(update.topic)
        self._topics[update.topic] = _Topic(update.version, sample.source, sample.sequence, self._era)
        if last is None:
            return None if update.snapshot else self._fresh(sample, wall)
        if update.version < last.version or (update.version == last.version and not update.snapshot):
            self._violated(f"a version of {update.topic} went from {last.version} to {update.version}")
            return None
        if sample.source != last.source:
            # Another run of the publisher: what it began with says nothing about what the one before did.
            return None if update.snapshot else self._fresh(sample, wall)
        return self._next(update, sample, last, wall)

    def _next(self, update: Update, sample: Sample, last: _Topic, wall: float) -> float | None:
        step = sample.sequence - last.sequence
        if update.version == last.version:
            if step:
                self._violated(f"a version of {update.topic} came with two contents")
            return None
        if step <= 0:
            self._violated(f"{update.topic} got a new version with an old value: it was published twice")
            return None
        skipped = step - 1
        self._tally.owed += skipped
        if skipped and update.snapshot and last.era != self._era:
            self._tally.replaced += skipped
        else:
            self._unexplained += skipped
        return self._fresh(sample, wall)

    def _fresh(self, sample: Sample, wall: float) -> float:
        self._tally.owed += 1
        self._tally.fresh += 1
        latency = wall - sample.due
        if latency < -CLOCK_TOLERANCE:
            self._violated("a value came before it was due: the clocks of the generating machines differ")
        return max(0.0, latency)

    def recovered(self, numbering: Numbering, conflated: int | None) -> None:
        """Note a welcome: what it declares explains what was missed."""
        declared = self._unexplained if conflated is None else min(conflated, self._unexplained)
        self._unexplained -= declared
        self._tally.replaced += declared
        self._settle("and the next welcome did not declare it")
        if numbering is not Numbering.KEPT:
            self._era += 1

    def noticed(self) -> None:
        """Note a notice: values may be re-read, or writes be lost."""
        self._era += 1

    def finish(self, now: float) -> None:
        """End the watch; what is unexplained now stays so. No effect the second time."""
        if self._finished:
            return
        self.accrue(now)
        self._finished = True
        self._settle("and nothing declared it: it was lost, or folded because this generator reads too slowly")

    def accrue(self, now: float) -> None:
        """Count the time up to now, so that figures can be looked at meanwhile."""
        if self._finished:
            return
        tally = self._tally
        tally.longest_silence = max(tally.longest_silence, now - self._last)
        tally.subscribed_seconds += now - self._since
        self._since = now

    def _settle(self, why: str) -> None:
        if self._unexplained:
            self._tally.undeclared += self._unexplained
            self._violated(f"a subscriber missed {self._unexplained} updates, {why}")
            self._unexplained = 0


class PublicationWatch:
    """What one publisher is told about its topic, which nobody else publishes to.

    Args:
        violated: is told of every broken promise.
    """

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._offset: int | None = None

    def confirmed(self, sequence: int, version: int | None) -> None:
        """Judge a receipt: each publish makes exactly one version (P5).

        Args:
            sequence: of the value.
            version: that it made; None if the receipt was no longer kept.
        """
        if version is None:
            return
        offset = version - sequence
        if self._offset is not None and offset > self._offset:
            self._violated("the topic has more versions than it got publishes: one was executed twice")
        if self._offset is not None and offset < self._offset:
            self._violated("the topic has fewer versions than it got publishes: one was confirmed and not executed")
        self._offset = offset

    def disturbed(self) -> None:
        """Begin anew after something that may make versions jump: a refused publish, or a notice of lost writes."""
        self._offset = None
