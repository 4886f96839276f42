"""The requests of a session, from the caller to the session machine and from the reply back to the caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random

from gateway.client.options import time_limit
from gateway.core.client.blame import Blame, Culprit
from gateway.core.client.errors import Forbidden, RequestRefused, RequestTimedOut, SessionEnded
from gateway.core.client.promises import Promises, changed
from gateway.core.client.request_table import UNNUMBERED, ClientAsk, RequestTable, encode_within
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing
from gateway.core.topics.selections import Selections
from gateway.core.wire.errors import InvalidSelector, RemoteProtocolError
from gateway.core.wire.packets import KEEP, Reply, SetProperties, Subscribe, Unsubscribe, Welcome

log = logging.getLogger("gateway.client")


class Asking:
    """Sends requests when they may be sent, and does what their replies mean.

    Args:
        welcome: of the new session.
        machine: the session's.
        wake: called when the machine has something to write.
        default_timeout: seconds a request may take if its caller does not say, or None for no limit.
        random: spreads the retries of many clients.

    Attributes:
        blame: finds the requests that end connections.
        properties: all properties of the session, as of the last welcome and the changes since.
    """

    def __init__(
        self,
        welcome: Welcome,
        machine: SessionMachine,
        wake: Callable[[], None],
        *,
        default_timeout: float | None,
        random: Random,
    ) -> None:
        self._machine = machine
        self._wake = wake
        self._default_timeout = default_timeout
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._table = RequestTable(welcome.limits.requests)
        self._message_bytes = welcome.limits.message_bytes
        self.blame = Blame(self._table)
        self._promises = Promises(welcome.properties)
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._keeps = KEEP in welcome.supports
        self.properties = dict(welcome.properties)

    @property
    def unanswered(self) -> int:
        """Requests sent and not answered."""
        return self._table.unanswered

    async def request(self, ask: ClientAsk, seconds: float | None) -> Reply:
        """Ask something and wait for the answer, however many connections it takes.

        Args:
            ask: with any number; it gets its own.
            seconds: how long it may take; None for the session's default.

        Raises:
            RequestRefused: the answer is no.
            RequestTimedOut: there was none in time.
            SessionEnded: the session ended before there was one.
        """
        limit = self.limit(seconds)
        answer: asyncio.Future[Reply] = self._loop.create_future()
        pending = self._table.add(ask, answer)
        self._pump()
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            fate = "it may have been executed" if pending.sent else "it was not sent"
            raise RequestTimedOut(f"no answer within {limit} s; {fate}", sent=pending.sent) from None
        finally:
            if answer.done() and not answer.cancelled():
                # Read it, lest asyncio complains about an error that came together with a cancellation.
                answer.exception()

    def limit(self, seconds: float | None) -> float | None:
        """Return how long a call may take whose caller says *seconds*; None for as long as the session lives.

        Raises:
            ValueError: it is no number of seconds.
        """
        return self._default_timeout if seconds is None else time_limit("timeout", seconds)

    def begin(self, ask: ClientAsk, refused: Callable[[RequestRefused], None] | None = None) -> asyncio.Future[Reply]:
        """Ask something that is done in any case, whoever waits for it or not.

        Args:
            ask: with any number; it gets its own.
            refused: called if the answer is no.

        Returns:
            The answer to come; whoever waits for it shields it.
        """
        answer: asyncio.Future[Reply] = self._loop.create_future()

        def done(answer: asyncio.Future[Reply]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if refused is not None and isinstance(error, RequestRefused):
                refused(error)

        answer.add_done_callback(done)
        self._table.add(ask, answer)
        self._pump()
        return answer

    def deselect(self, ask: Unsubscribe, refused: Callable[[RequestRefused], None]) -> asyncio.Future[Reply]:
        """Deselect but for what stays, as the node of the moment understands it (protocol 6.3); see ``begin``."""
        if self._keeps or not ask.keep:
            return self.begin(ask, refused)
        answer = self.begin(replace(ask, keep=()), refused)
        for selector in ask.keep:
            self.begin(Subscribe(UNNUMBERED, selector))
        return answer

    def answered(self, reply: Reply) -> None:
        """Do what a reply means, before anything that follows it is looked at."""
        executed = self._table.answer(reply, now=self._loop.time(), random=self._random.random())
        if executed is not None and not executed.repairs:
            self._executed(executed.ask)
        if not self._table.unanswered:
            self._idle.set()
        self._pump()

    def _executed(self, ask: ClientAsk) -> None:
        if isinstance(ask, Unsubscribe) and ask.keep and not self._keeps:
            # It was meant for another node, and asked again at an older one, which has deselected everything.
            for selector in ask.keep:
                self.begin(Subscribe(UNNUMBERED, selector))
            ask = replace(ask, keep=())
        self._promises.executed(ask)
        if isinstance(ask, SetProperties):
            self.properties = changed(self.properties, ask.changes)

    def _pump(self) -> None:
        """Hand what may be sent now to the machine, and come again when more may."""
        while asks := self._table.ready(self._loop.time()):
            for ask in asks:
                try:
                    self._machine.submit(Outgoing(None, encode_within(ask, self._message_bytes)))
                except RequestRefused as refused:
                    # The node of the moment accepts less than the one before (protocol 4.8.3).
                    self._table.drop(ask.request, refused)
            self._wake()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        deadline = self._table.next_deadline()
        if deadline is not None and deadline > self._loop.time():
            self._retry = self._loop.call_at(deadline, self._pump)

    # --- The connection -----------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Send nothing until ``resume``."""
        self._table.freeze()

    def give_up(self, culprit: Culprit) -> None:
        """Reject the request for which a node has closed the connection, and do not send it again."""
        self._table.drop(culprit.request, culprit.error)
        # The others are asked again in a numbering of their own, as this one's packet is missing from now on.
        self._machine.forget_kept()
        if not self._table.unanswered:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until every request that was sent is answered."""
        while self._table.unanswered:
            self._idle.clear()
            await self._idle.wait()

    def resume(self, welcome: Welcome, *, restarted: bool) -> None:
        """Go on over a new connection; see ``RequestTable.resume``."""
        self.properties = dict(welcome.properties)
        self._message_bytes = welcome.limits.message_bytes
        self._keeps = KEEP in welcome.supports
        self._table.resume(limit=welcome.limits.requests, restarted=restarted, now=self._loop.time())
        self._pump()

    def fail(self, error: SessionEnded) -> None:
        """The session is over: every caller gets the error."""
        self._table.fail(error)
        self._idle.set()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # --- Promises -----------------------------------------------------------------------------------------------------

    def withdrawn(self, selections: Iterable[str]) -> None:
        """Expect no more than the selections that the server has left to the session.

        Raises:
            RemoteProtocolError: they are not valid.
        """
        try:
            self._promises.withdrawn(selections)
        except InvalidSelector as error:
            raise RemoteProtocolError(f"its selections are not valid: {error}") from None

    def missing(self, welcome: Welcome) -> list[ClientAsk]:
        """Tell what a failover's welcome lacks of what the session was promised; see ``promises``.

        Raises:
            RemoteProtocolError: its selections are not valid.
        """
        try:
            return self._promises.missing(
                selections=welcome.selections,
                properties=welcome.properties,
                unanswered=self._table.unanswered_asks(),
            )
        except InvalidSelector as error:
            raise RemoteProtocolError(f"its selections are not valid: {error}") from None

    def restore(self, asks: list[ClientAsk], selections: Iterable[str], forbidden: Callable[[str, str], None]) -> None:
        """Ask again for what is missing, after what is unanswered and before all that waits.

        Args:
            asks: as ``missing`` told.
            selections: those of the welcome.
            forbidden: called with a selector, and what the node says, if the session has no right to it any more.
        """
        actual = Selections.from_wire(selections)

        def report(ask: ClientAsk, answer: asyncio.Future[Reply]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if isinstance(ask, Subscribe) and isinstance(error, Forbidden):
                self._promises.forbidden(ask.selector, actual)
                forbidden(ask.selector, str(error))
            elif error is not None and not isinstance(error, SessionEnded):
                log.error("a promise that the grid had forgotten could not be restored: %s", error)

        answers: list[asyncio.Future[Reply]] = [self._loop.create_future() for _ in asks]
        for ask, answer in zip(asks, answers, strict=True):
            answer.add_done_callback(partial(report, ask))
        self._table.add_repairs(list(zip(asks, answers, strict=True)))
