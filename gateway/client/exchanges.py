"""Requests and their handlers as an application gets them: a part of ``Session``, ``Handling`` and ``Request``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from gateway.client.arguments import text_of
from gateway.client.calls import Requests
from gateway.client.options import time_limit
from gateway.core.client.errors import (
    HandlerFailed,
    InvalidSelector,
    InvalidTopic,
    InvalidValue,
    RequestRefused,
    ValueTooLarge,
)
from gateway.core.client.exchanges import TOO_LARGE
from gateway.core.client.request_table import UNNUMBERED, encode_within
from gateway.core.topics.selectors import ANY, ONE, Selector, matches, parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.types import TopicPath
from gateway.core.wire.codec import json_text
from gateway.core.wire.exchange_packets import Answer, Answered, Ask, Handle, Question, Unhandle
from gateway.core.wire.packets import Reply, Welcome

log = logging.getLogger("gateway.client")

DEFAULT_CONCURRENCY: Final = 32
"""Requests that a handler has at a time: enough that none is waited for on the way, and few that others could do."""

MOST_CONCURRENCY: Final = 1_000
"""What a node grants at most."""

DEFAULT_TIMEOUT: Final = 5.0
"""Seconds for an answer: what a person waits for."""

LONGEST_TIMEOUT: Final = 600.0
"""Seconds that a node grants at most."""

GRACE: Final = 1.0
"""Seconds that are waited longer than the grid waits for an answer: then it says itself what has become of it."""

FAILURE_BYTES: Final = 1024
"""Of a sentence that says why there is no answer (protocol 18.4)."""

FAILED: Final = "the handler failed"
"""What is told of errors that are not meant for who asks; they stay in the log of who handles."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler is asked.

    Attributes:
        path: what it is about.
        value: the question, as JSON reads into Python.
        principal: who asks, as the server has authenticated them.
        session_id: whose session it is that asks.
        timeout: seconds that were left for an answer when it arrived here.
        redelivered: whether this session may have been asked it before, on another connection.
    """

    path: str
    value: Any
    principal: str
    session_id: str
    timeout: float
    redelivered: bool


RequestHandler: TypeAlias = Callable[[Request], Awaitable[object]]
"""Answers requests: what it returns, anything that orjson encodes, is the answer."""


class Questions(Requests, Protocol):
    """What is asked of a session."""

    @property
    def welcome(self) -> Welcome:
        """The welcome of the present connection, or the last one."""

    async def ask(self, ask: Ask, seconds: float) -> Answered:
        """Ask a question and wait for the answer."""

    def answer(self, ask: Answer) -> None:
        """Answer a question, without waiting."""

    def check_questions(self) -> None:
        """Make sure that the node of the moment knows questions."""

    @property
    def handlers(self) -> Handlers:
        """What the session handles."""


class Handling:
    """What ``Session.handle`` returns: cancel it when there shall be no more requests.

    It outlives connections, nodes and deploys as its session does, and needs not be registered again.

    Attributes:
        selector: of the paths that are handled.
    """

    def __init__(self, supervisor: Questions, selector: Selector, handler: RequestHandler) -> None:
        self.selector = selector.text
        self._supervisor = supervisor
        self._selector = selector
        self._handler = handler
        self._cancelling: asyncio.Future[Reply] | None = None

    def __repr__(self) -> str:
        return f"<Handling of {self.selector}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cancel()

    async def cancel(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Handle no more requests; those that are being handled are finished. Cancelling twice does no harm.

        Cancelling the call, or its time limit, ends the waiting and nothing else.

        Args:
            timeout: seconds; None for the session's default.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``.
        """
        limit = self._supervisor.limit(timeout)
        self.end()
        if self._cancelling is not None:
            await self._supervisor.wait(self._cancelling, limit=limit)

    def end(self) -> None:
        """Handle no more requests, without waiting until the node knows."""
        if self._supervisor.handlers.remove(self):
            self._cancelling = self._supervisor.begin(Unhandle(UNNUMBERED, self.selector))

    @property
    def particularity(self) -> tuple[int, int]:
        """How particular it is: by its literal segments, and then by how few ``**`` it has."""
        segments = self._selector.segments
        return sum(each not in {ONE, ANY} for each in segments), -segments.count(ANY)

    def matches(self, path: str) -> bool:
        """Tell whether it handles requests of a path."""
        return matches(self._selector, TopicPath(path))

    async def answer(self, question: Question) -> Answer:
        """Have the application answer, within the time there is."""
        request = Request(
            question.path,
            question.value,
            question.principal,
            question.session,
            question.timeout,
            question.redelivered,
        )
        limit = asyncio.timeout(question.timeout)
        try:
            async with limit:
                value = json_text(await self._handler(request))
        except HandlerFailed as failed:
            return Answer(UNNUMBERED, question.question, None, _sentence(str(failed)))
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                log.warning("a request of %s was not handled within its %s s", question.path, question.timeout)
                return Answer(UNNUMBERED, question.question, None, "it took too long")
            # Whoever asks is not told what went wrong here: it may be a secret.
            log.exception("the handler of %s failed", question.path)
            return Answer(UNNUMBERED, question.question, None, FAILED)
        return Answer(UNNUMBERED, question.question, value)


class Handlers:
    """What a session handles.

    Args:
        supervisor: of the session.
    """

    def __init__(self, supervisor: Questions) -> None:
        self._supervisor = supervisor
        self._by_selector: dict[str, Handling] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    def add(self, handling: Handling) -> None:
        """Pass requests on to a handler.

        Raises:
            ValueError: there is one for this selector.
        """
        if handling.selector in self._by_selector:
            raise ValueError(f"the session handles {handling.selector} already; cancel that first")
        self._by_selector[handling.selector] = handling

    def remove(self, handling: Handling) -> bool:
        """Pass no more on to it; tells whether it was there."""
        if self._by_selector.get(handling.selector) is not handling:
            return False
        del self._by_selector[handling.selector]
        return True

    def given(self, question: Question) -> None:
        """A request came: have it handled by the most particular of those that match."""
        found = [each for each in self._by_selector.values() if each.matches(question.path)]
        if not found:
            # The session handles it since before this process was started, or it was cancelled a moment ago.
            self._supervisor.answer(Answer(UNNUMBERED, question.question, None, "it is handled here no more"))
            return
        handling = max(found, key=lambda each: each.particularity)
        task = asyncio.get_running_loop().create_task(self._handle(handling, question), name="gateway-client-handler")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, handling: Handling, question: Question) -> None:
        try:
            answer = await handling.answer(question)
        except asyncio.CancelledError:
            if self._over:
                raise
            # It came out of something that the handler waited for: whoever asks shall not wait for all their time.
            log.warning("the handler of %s was cancelled", question.path)
            answer = Answer(UNNUMBERED, question.question, None, FAILED)
        limits = self._supervisor.welcome.limits
        if len(answer.value or b"") > limits.value_bytes:
            log.error("the answer to %s has more bytes than the node accepts", question.path)
            answer = Answer(UNNUMBERED, question.question, None, TOO_LARGE)
        self._supervisor.answer(answer)

    def end(self) -> None:
        """The session is over."""
        self._over = True
        self._by_selector.clear()
        for task in self._tasks:
            task.cancel()


def _sentence(text: str) -> str:
    """Make what can be sent of what a handler has said, whatever it is."""
    return text.encode(errors="replace")[:FAILURE_BYTES].decode(errors="ignore")


class ExchangeCalls:
    """The methods of a session that are about requests and their handlers."""

    _supervisor: Questions

    async def handle(
        self,
        selector: str,
        handler: RequestHandler,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> Handling:
        """Answer requests of other sessions; of several sessions that handle a path, the least busy one is asked.

        The registration is part of the session: it goes along to any other connection and node.

        Args:
            selector: of the paths, such as ``quotes/**``; its first segment is no wildcard.
            handler: an async function that is given a ``Request`` and returns the answer. It may raise
                ``HandlerFailed`` to have who asks told why there is none; what else it raises is logged here. It is
                cancelled when the time for an answer is over.
            concurrency: requests that this session has at a time; 1,000 at most. Of selectors with the same first
                segment, the largest counts for all.
            timeout: seconds; None for the session's default.

        Returns:
            What cancels it.

        Raises:
            ValueError: *concurrency* makes no sense, or the session handles this selector already.
            InvalidSelector, RequestRefused, RequestTimedOut, SessionEnded: as for ``subscribe``.
        """
        if type(concurrency) is not int or not 1 <= concurrency <= MOST_CONCURRENCY:
            raise ValueError(f"concurrency is a number of requests from 1 to {MOST_CONCURRENCY}, not {concurrency!r}")
        supervisor = self._supervisor
        supervisor.check_questions()
        supervisor.limit(timeout)  # tells at once what makes no sense
        handling = Handling(supervisor, parse_selector(text_of("selector", selector, InvalidSelector)), handler)
        # It listens before it asks, so that no request can come too early for it.
        supervisor.handlers.add(handling)
        try:
            await supervisor.request(Handle(UNNUMBERED, handling.selector, concurrency), timeout)
        except RequestRefused:
            supervisor.handlers.remove(handling)
            raise
        except BaseException:
            # It may be executed, and then nothing of it shall stay.
            handling.end()
            raise
        return handling

    async def request(
        self,
        path: str,
        value: object = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - public
        principal: str | None = None,
        session_id: str | None = None,
    ) -> Any:
        """Ask one of those who handle a path, and wait for the answer; nobody is asked twice (P5).

        Args:
            path: what it is about, such as ``quotes/ACME``.
            value: the question: anything that orjson encodes, as for ``publish``.
            timeout: seconds within which it has to be answered; 600 at most.
            principal: whose sessions alone may be asked.
            session_id: which session alone may be asked.

        Returns:
            The answer, as JSON reads into Python.

        Raises:
            NoHandler: nobody who is there handles it. It was not executed.
            HandlersBusy: all who do have as many requests as they take. It was not executed.
            HandlerFailed: whoever was asked says that there is no answer.
            HandlerLost, AnswerLost: there will be no answer; ``may_have_been_executed`` says whether somebody may have
                acted upon it.
            RequestTimedOut: there was no answer in time; its ``sent`` says whether somebody may have acted upon it.
            InvalidTopic, ValueTooLarge, InvalidValue, RequestRefused, SessionEnded: as for ``publish``.
        """
        topic = parse_topic(text_of("path", path, InvalidTopic))
        seconds = time_limit("timeout", timeout)
        if seconds is None or seconds > LONGEST_TIMEOUT:
            raise ValueError(f"timeout is a number of seconds up to {LONGEST_TIMEOUT:g}, not {timeout!r}")
        for name, given in (("principal", principal), ("session_id", session_id)):
            if given is not None:
                text_of(name, given, InvalidValue)
        ask = Ask(UNNUMBERED, topic, json_text(value), seconds, principal, session_id)
        supervisor = self._supervisor
        limits = supervisor.welcome.limits
        if len(ask.value) > limits.value_bytes:
            raise ValueTooLarge(f"the value has {len(ask.value)} bytes of JSON; the node accepts {limits.value_bytes}")
        encode_within(ask, limits.message_bytes)
        supervisor.check_questions()
        return (await supervisor.ask(ask, seconds + GRACE)).value
