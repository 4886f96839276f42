"""Whether what comes in keeps the promises: versions, sequences, contents, and every loss declared (P2, P5, P6).

Pure: times are arguments and violations are handed to whoever wants them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.core.wire.codes import Numbering
from gateway.core.wire.packets import Update
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
    failover that was not replayed, or a notice (the *era* changes), and any other may skip as many as it says that it
    took the place of (``folded``, protocol 6.4).

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
        tally.declared_folded += update.folded
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
        declared = skipped if update.snapshot and last.era != self._era else min(skipped, update.folded)
        self._tally.replaced += declared
        if missed := skipped - declared:
            self._tally.undeclared += missed
            self._violated(
                f"a subscriber missed {missed} updates of {update.topic}, and nothing declared it: it got version "
                f"{update.version} after {last.version}, which took the place of {update.folded}"
            )
        return self._fresh(sample, wall)

    def _fresh(self, sample: Sample, wall: float) -> float:
        self._tally.owed += 1
        self._tally.fresh += 1
        latency = wall - sample.due
        if latency < -CLOCK_TOLERANCE:
            self._violated("a value came before it was due: the clocks of the generating machines differ")
        return max(0.0, latency)

    def recovered(self, numbering: Numbering, *, replayed: bool) -> None:
        """Note a welcome.

        Args:
            numbering: where it begins again, values follow in the place of what was missed,
            replayed: unless the client was told that all of that follows (P13): then no hole is excused.
        """
        if numbering is not Numbering.KEPT and not replayed:
            self._era += 1

    def noticed(self) -> None:
        """Note a notice: values may be re-read, or writes be lost."""
        self._era += 1

    def finish(self, now: float) -> None:
        """End the watch. No effect the second time."""
        self.accrue(now)
        self._finished = True

    def accrue(self, now: float) -> None:
        """Count the time up to now, so that figures can be looked at meanwhile."""
        if self._finished:
            return
        tally = self._tally
        tally.longest_silence = max(tally.longest_silence, now - self._last)
        tally.subscribed_seconds += now - self._since
        self._since = now


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
