"""Whether requests keep their promises under load: each is handled once and has one end. Pure; see ``integrity``."""

from __future__ import annotations

from typing import Final

from gateway.core.client.errors import AnswerLost, HandlerLost, HandlersBusy, NoHandler, RequestTimedOut
from gateway.core.types import JsonValue
from gateway.core.wire.exchange_packets import Question
from loadtests.payload import Sample, decode
from loadtests.queue_integrity import REMEMBERED, Violated
from loadtests.tally import Tally

GRACE: Final = 10.0
"""Seconds by which a request may have its end later than its time is over: as long as a session needs to recover."""

Key = tuple[str, int]
"""Source and sequence of a request."""


class RequestWatch:
    """What one process sees of requests: all that its handlers are given, and all that its own users ask.

    Args:
        tally: where to count.
        violated: is told of every broken promise.
    """

    def __init__(self, tally: Tally, violated: Violated) -> None:
        self._tally = tally
        self._violated = violated
        self._handled: dict[Key, None] = {}
        self._open: dict[Key, float] = {}
        """By request that is not over: when it has to be at the latest, in monotonic seconds."""

    # --- Handled ------------------------------------------------------------------------------------------------------

    def given(self, question: Question) -> None:
        """Judge what a handler is given. The client passes on no question twice."""
        sample = decode(question.value)
        if sample is None:
            return
        self._tally.handled += 1
        key = sample.source, sample.sequence
        if not sample.intact:
            self._violated(f"the content of request {key} is damaged")
        if key in self._handled:
            self._violated(f"request {key} was given to a handler twice")
        self._handled[key] = None
        if len(self._handled) > REMEMBERED:
            del self._handled[next(iter(self._handled))]

    # --- Asked --------------------------------------------------------------------------------------------------------

    def asked(self, sample: Sample, now: float, timeout: float) -> None:
        """Note what is asked.

        Args:
            sample: what is in it.
            now: monotonic seconds.
            timeout: seconds that there are for an answer.
        """
        self._tally.asked += 1
        self._open[sample.source, sample.sequence] = now + timeout + GRACE

    def answered(self, sample: Sample, answer: JsonValue) -> None:
        """Judge an answer: what was asked comes back."""
        self._tally.answered += 1
        told = decode(answer)
        if told is None or not told.intact or (told.source, told.sequence) != (sample.source, sample.sequence):
            self._violated(f"request {sample.source}, {sample.sequence} has the answer to another one")
        self._over(sample)

    def failed(self, sample: Sample, error: Exception) -> None:
        """Judge the end of a request that has no answer."""
        match error:
            case HandlerLost() | AnswerLost():
                certain = not error.may_have_been_executed
            case RequestTimedOut():
                certain = not error.sent
            case _:
                certain = isinstance(error, NoHandler | HandlersBusy)
        if certain and (sample.source, sample.sequence) in self._handled:
            self._violated(
                f"request {sample.source}, {sample.sequence} was handled, and {error!r} says that it was not"
            )
        self._over(sample)

    def look(self, now: float) -> None:
        """Find the requests that have no end though their time is over; now in monotonic seconds."""
        for key in [each for each, latest in self._open.items() if latest < now]:
            self._violated(f"request {key} has no end")
            del self._open[key]

    def forget(self, source: str) -> None:
        """The session of a source is over, and what it asks with it."""
        for key in [each for each in self._open if each[0] == source]:
            del self._open[key]

    def _over(self, sample: Sample) -> None:
        self._open.pop((sample.source, sample.sequence), None)
