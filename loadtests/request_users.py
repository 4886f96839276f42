"""Who asks requests of other sessions, and who handles them."""

from __future__ import annotations

import time
from typing import Final

from gateway.core.client.errors import HandlersBusy, NoHandler, SessionEnded
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.types import JsonValue
from gateway.core.wire.codec import json_text
from gateway.core.wire.exchange_packets import Answer, Answered, Ask, Handle, Question
from loadtests.figures import ASK
from loadtests.greenlets import later
from loadtests.payload import Sample, encode, wall_clock
from loadtests.recorder import Recorder, Watching
from loadtests.shell.session import GatewaySession
from loadtests.users import GatewayUser

HANDLED: Final = "load-requests/**"
ASKED: Final = "load-requests/echo"

HANDLE_SECONDS: Final = 30.0
"""How long it may take to begin to handle: as for a subscription."""

CONCURRENCY: Final = 32
"""Requests that a handler has at a time; they are answered at once."""

ANSWER_SECONDS: Final = 10.0
"""Seconds for an answer: longer than a handler needs to come to another node."""

AGAIN_SECONDS: Final = 0.2
"""Pause before a request is asked again that nobody was there to handle, or that all handlers were too busy for."""


class HandlerUser(GatewayUser):
    """Answers each request with what it asks, at once."""

    fixed_count = 1

    @property
    def purpose(self) -> str:
        """See ``GatewayUser``."""
        return ASK

    def use(self, session: GatewaySession, watching: Watching) -> None:
        """Handle until the session is lost; what is handled is part of it, wherever it goes on."""

        def work(question: Question) -> None:
            self.recorder.requests.given(question)
            session.answer(Answer(UNNUMBERED, question.question, json_text(question.value)))

        watching.handles(work)
        session.request(Handle(UNNUMBERED, HANDLED, CONCURRENCY), HANDLE_SECONDS)
        session.wait_ended()


class AskerUser(GatewayUser):
    """Asks on an absolute schedule, and does not wait for answers before it goes on."""

    fixed_count = 1
    rate = 2.0
    """Requests per second; as ``--publish-rate``."""
    value_bytes = 100
    """Size of a value; as ``--value-bytes``."""

    @property
    def purpose(self) -> str:
        """See ``GatewayUser``."""
        return ASK

    def use(self, session: GatewaySession, watching: Watching) -> None:  # noqa: ARG002 - nothing to watch
        """Ask what is due, also while the session recovers: it is asked as soon as it can be."""
        source, requests = self.new_source(), self.recorder.requests
        try:
            for samples in self.due(session, source, self.rate):
                requests.look(time.monotonic())
                for each in samples:
                    _Asking(self.recorder, session, each, self.value_bytes).ask()
        finally:
            requests.forget(source)


class _Asking:
    """Asks one request until somebody has been asked; an ``Asked`` of the shell."""

    __slots__ = ("_recorder", "_sample", "_session", "_value_bytes")

    def __init__(self, recorder: Recorder, session: GatewaySession, sample: Sample, value_bytes: int) -> None:
        self._recorder = recorder
        self._session = session
        self._sample = sample
        self._value_bytes = value_bytes

    def ask(self) -> None:
        """Ask, unless nobody waits for it any more."""
        if self._recorder.stopping or self._session.ended is not None:
            return
        self._recorder.requests.asked(self._sample, time.monotonic(), ANSWER_SECONDS)
        value = encode(self._sample, size=self._value_bytes)
        self._session.put(Ask(UNNUMBERED, ASKED, value, ANSWER_SECONDS), self)

    def answered(self, answered: Answered) -> None:
        """See ``Asked``."""
        if self._recorder.stopping:
            return
        value: JsonValue = answered.value
        self._recorder.requests.answered(self._sample, value)
        self._recorder.request(ASK, wall_clock() - self._sample.due)

    def failed(self, error: Exception) -> None:
        """See ``Asked``."""
        if self._recorder.stopping:
            return
        self._recorder.requests.failed(self._sample, error)
        if isinstance(error, NoHandler | HandlersBusy):
            # Nobody was asked, so it does no harm to ask again; what is late counts from when it was due.
            later(AGAIN_SECONDS, self.ask)
        elif not isinstance(error, SessionEnded):
            self._recorder.request(ASK, wall_clock() - self._sample.due, error)
