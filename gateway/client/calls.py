"""How a session asks for something and waits for the answer, in one of two ways.

* ``request``: when the wait ends before the answer, what was not sent is never sent. So it is with what an application
  may want or not, such as a publish.
* ``begin`` and ``wait``: it is done in any case, over however many connections, and only the wait can end. So it is
  with what ends something, or says what becomes of it: without it the node would go on with what nobody here wants.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

from gateway.client.options import time_limit
from gateway.core.client.effects import Effect
from gateway.core.client.errors import RequestTimedOut, SessionEnded
from gateway.core.client.machine import ClientMachine
from gateway.core.client.request_table import ClientAsk
from gateway.core.wire.exchange_packets import Answered, Ask
from gateway.core.wire.packets import Reply

T = TypeVar("T")


class Requests(Protocol):
    """What the parts of a session ask of it; see ``Calls``."""

    async def request(self, ask: ClientAsk, seconds: float | None) -> Reply:
        """Ask something and wait for the answer."""

    def limit(self, seconds: float | None) -> float | None:
        """Return how long a call may take whose caller says *seconds*."""

    def begin(self, ask: ClientAsk) -> asyncio.Future[Reply]:
        """Ask for something that is done in any case."""

    async def wait(self, *answers: asyncio.Future[Reply], limit: float | None) -> None:
        """Wait for the answers to what has begun."""


class Calls(ABC):
    """What is asked of a session.

    Args:
        machine: of the session.
        request_timeout: seconds that a call may take whose caller does not say; None for no limit.
    """

    def __init__(self, machine: ClientMachine, request_timeout: float | None) -> None:
        self._machine = machine
        self._request_timeout = request_timeout
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time

    @abstractmethod
    def _perform(self, outcome: list[Effect]) -> None:
        """Do what the machine says."""

    def limit(self, seconds: float | None) -> float | None:
        """Return how long a call may take whose caller says *seconds*; None for as long as the session lives.

        Raises:
            ValueError: it is no number of seconds.
        """
        return self._request_timeout if seconds is None else time_limit("timeout", seconds)

    async def request(self, ask: ClientAsk, seconds: float | None) -> Reply:
        """Ask something and wait for the answer, however many connections it takes.

        Args:
            ask: with any number; it gets its own.
            seconds: how long it may take; None for the session's default.

        Raises:
            RequestRefused: the answer is no.
            RequestTimedOut: there was none in time.
            SessionEnded: the session is over, being closed, or ended before there was one.
        """
        answer: asyncio.Future[Reply] = self._loop.create_future()
        return await self._answer(answer, ask, self.limit(seconds))

    async def ask(self, ask: Ask, seconds: float) -> Answered:
        """Ask a question, and wait for the answer; raises as ``Session.request`` says."""
        answer: asyncio.Future[Answered] = self._loop.create_future()
        return await self._answer(answer, ask, seconds)

    async def _answer(self, answer: asyncio.Future[T], ask: ClientAsk, limit: float | None) -> T:
        self._perform(self._machine.request(answer, ask, self._clock()))
        try:
            async with asyncio.timeout(limit):
                return await answer
        except RequestTimedOut:
            raise  # it is the answer to a question, and says itself whether somebody may have acted upon it
        except TimeoutError:
            sent = self._machine.withdraw(answer)
            fate = "it may have been executed" if sent else "it was not sent"
            raise RequestTimedOut(f"no answer within {limit} s; {fate}", sent=sent) from None
        except asyncio.CancelledError:
            self._machine.withdraw(answer)
            raise
        finally:
            _read(answer)

    def begin(self, ask: ClientAsk) -> asyncio.Future[Reply]:
        """Ask for something that is done in any case, as long as the session lives; nobody has to wait for it."""
        answer: asyncio.Future[Reply] = self._loop.create_future()
        answer.add_done_callback(_read)
        try:
            self._perform(self._machine.request(answer, ask, self._clock()))
        except SessionEnded as ended:
            answer.set_exception(ended)
        return answer

    async def wait(self, *answers: asyncio.Future[Reply], limit: float | None) -> None:
        """Wait for the answers to what has begun; the wait may end before them, and nothing else does.

        Args:
            answers: which; all are waited for.
            limit: seconds; None for as long as it takes.

        Raises:
            RequestRefused, SessionEnded: one of them; the first of several.
            RequestTimedOut: there were not all in time.
        """
        if not answers:
            return
        _, missing = await asyncio.wait(answers, timeout=limit)
        for answer in answers:
            if answer.done():
                answer.result()
        if missing:
            raise RequestTimedOut(f"no answer within {limit} s; it is done later", sent=True)


def _read(answer: asyncio.Future[T]) -> None:
    """Read an answer's error, lest asyncio complains about one that nobody waits for, or not any more."""
    if answer.done() and not answer.cancelled():
        answer.exception()
