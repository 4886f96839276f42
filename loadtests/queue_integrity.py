"""Whether queues and histories keep their promises under load (P14, P15). Pure; see ``integrity`` for topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.client.types import Update as Event
from gateway.core.wire.queue_packets import Message
from loadtests.payload import Sample, decode
from loadtests.tally import Tally

REMEMBERED: Final = 100_000
"""Messages that a process remembers: those of ten minutes at what locust can load."""

Violated = Callable[[str], None]


class QueueWatch:
    """What one process sees of a queue: all messages that its consumers are given.

    Args:
        tally: where to count.
        violated: is told of every broken promise.
    """

    def __init__(self, tally: Tally, violated: Violated) -> None:
        self._tally = tally
        self._violated = violated
        self._given: dict[int, None] = {}
        self._accepted: dict[int, None] = {}

    def received(self, message: Message, wall: float) -> float | None:
        """Judge a message.

        Args:
            message: as received.
            wall: the time in seconds since 1970.

        Returns:
            Seconds from when it was due; None if it came before, or is nothing of ours.
        """
        tally = self._tally
        tally.messages += 1
        tally.redelivered += message.redelivered
        sample = decode(message.value)
        if sample is None:
            return None
        if not sample.intact:
            self._violated(f"the content of message {message.message} is damaged")
        if message.message in self._accepted:
            self._violated(f"message {message.message} came after it was accepted")
        if message.message in self._given:
            if not message.redelivered:
                self._violated(f"message {message.message} came again and was not marked")
            return None
        _remember(self._given, message.message)
        return max(0.0, wall - sample.due)

    def accepted(self, message: int) -> None:
        """Judge the answer to an acceptance: of each message there is one."""
        self._tally.accepted += 1
        if message in self._accepted:
            self._violated(f"message {message} was accepted twice")
        _remember(self._accepted, message)

    def forget(self) -> None:
        """Begin anew after a notice of lost writes: what was accepted may come again."""
        self._given.clear()
        self._accepted.clear()


class HistoryWatch:
    """What one reader of a history sees, session after session: each event once and in order.

    Args:
        tally: where to count.
        violated: is told of every broken promise.
    """

    def __init__(self, tally: Tally, violated: Violated) -> None:
        self._tally = tally
        self._violated = violated
        self._last: dict[str, Sample] = {}
        self._excused = False

    def read(self, event: Event) -> None:
        """Judge an event."""
        sample = decode(event.value)
        if sample is None:
            return
        self._tally.events += 1
        last = self._last.get(event.topic)
        self._last[event.topic] = sample
        if not sample.intact:
            self._violated(f"the content of an event of {event.topic} is damaged")
        if event.snapshot or event.folded:
            self._violated(f"an event of {event.topic} is no event: it took the place of others")
        if event.gap and not self._excused:
            self._violated(f"a gap is told before {event.event_id} of {event.topic}, and its history was not cut")
        if last is None or last.source != sample.source or event.gap:
            return
        missed = sample.sequence - last.sequence - 1
        if missed < 0:
            self._violated(f"an event of {event.topic} came again, or in another order")
        elif missed and not self._excused:
            self._violated(f"a reader of history missed {missed} events of {event.topic}, and no gap was told")

    def forget(self) -> None:
        """A notice of lost writes: what was lost with the grid is not missed."""
        self._excused = True


def _remember(known: dict[int, None], message: int) -> None:
    known[message] = None
    if len(known) > REMEMBERED:
        del known[next(iter(known))]
