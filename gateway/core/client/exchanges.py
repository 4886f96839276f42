"""What a client knows of the questions that it asks and is asked: whose answers it waits for, and which it works on.

The grid holds questions and answers. Where a session goes on, its client says which answers it waits for, and is sent
again what it has been asked and has not answered (protocol 18.6): it has these already, and passes none on twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from gateway.core.client.errors import AnswerLost, GatewayError, HandlerFailed, HandlerLost, RequestTimedOut
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.types import RequestNumber
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.exchange_packets import AWAIT_MOST, Answered, Await, Question

TOO_LARGE: Final = "the answer is too large"
"""What is told in the place of an answer that the node does not take."""

EARLY_MOST: Final = 128
"""Answers that are kept for requests without a reply: as many as a client is likely to have."""


class Exchanges:
    """The questions of one session."""

    def __init__(self) -> None:
        self._waiting: dict[RequestNumber, tuple[Hashable, str]] = {}
        """Questions that were put: what the application calls them, and their paths."""
        self._early: dict[RequestNumber, Answered] = {}
        """Answers that came before the replies to their requests, as some nodes send them; the oldest first."""
        self._busy: set[str] = set()
        """Questions that the application has and whose answers have no reply yet."""

    # --- Asked --------------------------------------------------------------------------------------------------------

    def put(self, number: RequestNumber, call: Hashable, path: str) -> Answered | None:
        """A question was put; its answer follows, or is returned if it came before the reply."""
        early = self._early.pop(number, None)
        if early is None:
            self._waiting[number] = (call, path)
        return early

    def answered(self, answered: Answered) -> Hashable | None:
        """Take in what became of a question; returns what the application calls it, None if nobody waits."""
        call, _ = self._waiting.pop(answered.ask, (None, ""))
        return call

    def keep(self, answered: Answered) -> None:
        """Keep an answer until there is a reply to its request."""
        self._early[answered.ask] = answered
        if len(self._early) > EARLY_MOST:
            del self._early[next(iter(self._early))]

    def withdraw(self, call: Hashable) -> bool:
        """Wait for an answer no more; tells whether the question was put."""
        for number, (waiting, _) in self._waiting.items():
            if waiting is call:
                del self._waiting[number]
                return True
        return False

    def end(self) -> list[Hashable]:
        """The session is over: tell who waits."""
        calls = [call for call, _ in self._waiting.values()]
        self._waiting.clear()
        self._early.clear()
        return calls

    def recovered(self) -> list[Await]:
        """Tell how to ask, where the session goes on, for the answers that are waited for."""
        asks = [(number, path) for number, (_, path) in self._waiting.items()]
        return [Await(UNNUMBERED, tuple(asks[start : start + AWAIT_MOST])) for start in range(0, len(asks), AWAIT_MOST)]

    # --- Handled ------------------------------------------------------------------------------------------------------

    def given(self, question: Question) -> bool:
        """Take in a question; tells whether it is new."""
        if question.question in self._busy:
            return False
        self._busy.add(question.question)
        return True

    def done(self, question: str) -> None:
        """Its answer has a reply, or nobody will give one."""
        self._busy.discard(question)


def why_unanswered(answered: Answered) -> GatewayError:
    """Make the error that a question without an answer raises."""
    if answered.error is ErrorCode.QUESTION_TIMEOUT:
        return RequestTimedOut(answered.message, sent=answered.uncertain)
    if answered.error is ErrorCode.HANDLER_LOST:
        return HandlerLost(answered.message, uncertain=answered.uncertain)
    if answered.error is ErrorCode.HANDLER_FAILED:
        return HandlerFailed(answered.message)
    return AnswerLost(answered.message, uncertain=answered.uncertain)
