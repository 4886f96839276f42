"""A session at a gateway, under gevent: the shell of ``gateway.core.client.machine`` with greenlets.

In the place of streams and futures it has an ``Observer``, because a load test wants to see every packet and not to be
spared any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from gateway.core.client import effects
from gateway.core.client.effects import Effect
from gateway.core.client.endings import CannotConnect, Ending
from gateway.core.client.errors import SessionClosed, SessionEnded, SessionFailed
from gateway.core.client.machine import ClientMachine
from gateway.core.client.options import ClientOptions
from gateway.core.client.request_sender import PROMISES_RESTORED
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.client.types import Notice, Recovery, SessionState
from gateway.core.wire.codes import OUT_OF_ORDER, PROTOCOL_ERROR
from gateway.core.wire.exchange_packets import Answer as AnswerToQuestion
from gateway.core.wire.exchange_packets import Answered, Ask, Question
from gateway.core.wire.packets import Reply, Update, Welcome
from gateway.core.wire.queue_packets import AckMode, Consume, Message, Settle
from loadtests.greenlets import Flag, Greenlet, later, spawn
from loadtests.greenlets import Outcome as Awaited
from loadtests.shell.connection import Connection
from loadtests.shell.transport import Dialer, open_websocket

CLIENT_NAME: Final = "locust"
"""How load introduces itself; the fixed property ``$client``, so that operators can tell it from users."""

BROKEN_PROTOCOL: Final = frozenset({PROTOCOL_ERROR.code, OUT_OF_ORDER.code})
"""Close codes, of either side, that say that the other one did what the protocol does not allow."""


class Observer(Protocol):
    """Who is told what happens to a session. Calls come from different greenlets, in order; they must not wait."""

    def opened(self, welcome: Welcome, seconds: float) -> None:
        """A node has opened the session, *seconds* after the first attempt began."""

    def recovered(self, recovery: Recovery) -> None:
        """The session has a connection again, and this is what came of it."""

    def updated(self, update: Update, now: float) -> None:
        """An update came, at *now* of the session's clock."""

    def received(self, message: Message) -> None:
        """A message of a queue came."""

    def given(self, question: Question) -> None:
        """A request came, to be handled."""

    def noticed(self, notice: Notice) -> None:
        """The server declared something."""

    def violated(self, message: str) -> None:
        """The other side broke the protocol or a promise."""

    def attempt_failed(self, ending: Ending) -> None:
        """An attempt to connect ended without a welcome; there will be another one, or ``ended``."""

    def ended(self, error: SessionEnded, gap_seconds: float) -> None:
        """The session is over though nobody closed it, *gap_seconds* after it was connected for the last time."""


class Answer(Protocol):
    """Where a reply goes; ``Outcome`` of ``loadtests.greenlets`` is one."""

    def set_result(self, reply: Reply, /) -> None:
        """Take the reply of a request that was executed."""

    def set_exception(self, error: Exception, /) -> None:
        """Take the reason why there is no such reply."""


class Asked(Protocol):
    """Who asks a request of another session."""

    def answered(self, answered: Answered, /) -> None:
        """Take the answer."""

    def failed(self, error: Exception, /) -> None:
        """Take the reason why there is none."""


class _Put:
    """One request of another session."""

    __slots__ = ("asked",)

    def __init__(self, asked: Asked) -> None:
        self.asked = asked


class _Call:
    """One call: an answer may take the replies of several."""

    __slots__ = ("answer",)

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class _Settling:
    """The answer to a settlement, which is told to whoever asked once the machine knows that there is one."""

    __slots__ = ("_answer", "_done")

    def __init__(self, answer: Answer, done: Callable[[], None]) -> None:
        self._answer = answer
        self._done = done

    def set_result(self, reply: Reply, /) -> None:
        self._done()
        self._answer.set_result(reply)

    def set_exception(self, error: Exception, /) -> None:
        self._done()
        self._answer.set_exception(error)


class GatewaySession:
    """One session; made with ``open``.

    Args:
        options: where to connect and as whom.
        observer: is told everything.
        random: for jitter.
        clock: seconds of a monotonic clock.
        dial: makes connections.
    """

    def __init__(
        self,
        options: ClientOptions,
        observer: Observer,
        *,
        random: Random,
        clock: Callable[[], float] = time.monotonic,
        dial: Dialer = open_websocket,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._dial = dial
        self._machine = ClientMachine(options, random=random.random)
        self._connection: Connection | None = None
        self._timer: Greenlet | None = None
        self._timer_at = 0.0
        self._now = self._began = self._lost_at = clock()
        self._opened: Awaited[None] = Awaited()
        self._over = Flag()

    @property
    def ended(self) -> SessionEnded | None:
        """Why the session is over, or None."""
        return self._machine.ended if isinstance(self._machine.ended, SessionEnded) else None

    @property
    def recovering(self) -> bool:
        """Whether it has lost its connection."""
        return self._machine.welcome is not None and self._machine.session_state is SessionState.RECOVERING

    @property
    def node(self) -> str:
        """The node that serves it, or served it last; not secret."""
        return "" if self._machine.welcome is None else self._machine.welcome.node

    # --- What users do with it ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the session; waits until a node has.

        Raises:
            ConnectFailed: it could not be opened.
        """
        self._began = self._clock()
        self._input(self._machine.start)
        try:
            self._opened.get()
        except BaseException:
            # It could not be opened, or whoever waits here was killed.
            self._perform(self._machine.abandon(SessionClosed("the load generator stops")))
            raise

    def ask(self, ask: ClientAsk, answer: Answer) -> None:
        """Ask something; *answer* gets the reply, however many connections that takes.

        Args:
            ask: with any number; it gets its own.
            answer: fails with ``SessionEnded`` if the session is over before.
        """
        self._ask(ask, _Call(answer))

    def _ask(self, ask: ClientAsk, call: _Call) -> None:
        try:
            self._perform(self._machine.request(call, ask, self._clock()))
        except SessionEnded as ended:
            call.answer.set_exception(ended)

    def request(self, ask: ClientAsk, seconds: float) -> Reply:
        """Ask something and wait for the reply.

        Raises:
            TimeoutError: there was none in time.
            RequestRefused: the answer is no.
            SessionEnded: the session ended before there was one.
        """
        answer: Awaited[Reply] = Awaited()
        call = _Call(answer)
        self._ask(ask, call)
        try:
            return answer.get(seconds)
        except TimeoutError:
            self._machine.withdraw(call)
            raise

    def consume(self, queue: str, credit: int, mode: AckMode, seconds: float) -> None:
        """Be given messages of a queue from now on; the observer gets them.

        Raises:
            TimeoutError, RequestRefused, SessionEnded: as for ``request``.
        """
        self._machine.consumers.begin(queue, credit, mode)
        try:
            self.request(Consume(UNNUMBERED, queue, credit, mode), seconds)
        except BaseException:
            self._machine.consumers.end(queue)
            raise

    def settle(self, ask: Settle, answer: Answer) -> None:
        """Say what becomes of messages; *answer* gets the reply, as for ``ask``."""
        consumers, tags = self._machine.consumers, [tag for _, tag in ask.messages]
        consumers.settle(ask.queue, tags)
        self.ask(ask, _Settling(answer, lambda: consumers.settled(ask.queue, tags)))

    def put(self, ask: Ask, asked: Asked) -> None:
        """Ask something of another session; *asked* gets the answer, however many connections that takes."""
        try:
            self._perform(self._machine.request(_Put(asked), ask, self._clock()))
        except SessionEnded as ended:
            asked.failed(ended)

    def answer(self, answer: AnswerToQuestion) -> None:
        """Answer what somebody has asked."""
        self._perform(self._machine.answer(answer, self._clock()))

    def cut(self) -> bool:
        """Lose the connection as a failing network does; False if there is none now."""
        if self._connection is None or self._machine.session_state is not SessionState.CONNECTED:
            return False
        self._connection.cut()
        return True

    def wait_ended(self, seconds: float | None = None) -> bool:
        """Wait until the session is over; False if the time is over before."""
        return self._over.wait(seconds)

    def close(self, seconds: float) -> bool:
        """End the session on purpose.

        Returns:
            Whether a node confirmed it in time; if not, the session ends with its window.
        """
        if self._machine.welcome is None:
            return False
        self._input(self._machine.close)
        confirmed = self._over.wait(seconds)
        connection = self._connection
        self._perform(self._machine.abandon(SessionClosed("no node confirmed it")))
        if connection is not None and not confirmed:
            connection.cut()
        return confirmed

    # --- Inputs -------------------------------------------------------------------------------------------------------

    def _input(self, take: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Hand in what happened, and do what comes of it; a bug ends the session, not only the greenlet it is in."""
        self._now = self._clock()
        try:
            self._perform(take(*arguments, self._now))
        except Exception as bug:
            self._perform(self._machine.abandon(SessionFailed(f"a bug of the load generator: {bug!r}")))
            raise

    def _connect(self, where: effects.Connect) -> None:
        try:
            transport = self._dial(where.url, seconds=where.seconds)
        except CannotConnect as failure:
            self._lost(failure.ending)
            return
        if self._machine.ended is not None:
            transport.cut()
            return
        self._connection = Connection(transport, receive=self._received, lost=self._lost, flush=self._machine.flush)
        self._input(self._machine.connected)

    def _received(self, message: bytes) -> None:
        self._input(self._machine.receive, message)

    def _lost(self, ending: Ending) -> None:
        self._input(self._machine.disconnected, ending)

    def _timer_fired(self) -> None:
        # This very greenlet is the timer: it must not call itself off.
        self._timer = None
        self._input(self._machine.tick)

    # --- Effects ------------------------------------------------------------------------------------------------------

    def _perform(self, outcome: list[Effect]) -> None:
        for effect in outcome:
            if isinstance(effect, Update):
                self._observer.updated(effect, self._now)
            elif isinstance(effect, Message):
                self._observer.received(effect)
            elif isinstance(effect, Question):
                self._observer.given(effect)
            else:
                self._do(effect)
        if self._connection is not None and self._machine.has_output:
            self._connection.wake()
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._machine.next_deadline()
        if self._timer is not None:
            # Deadlines mostly move into the future; a timer that fires early is cheaper than a new one per message.
            if deadline is not None and self._timer_at <= deadline:
                return
            self._timer.kill()
            self._timer = None
        if deadline is not None:
            self._timer_at = deadline
            self._timer = later(deadline - self._clock(), self._timer_fired)

    def _do(self, effect: Effect) -> None:
        match effect:
            case effects.Resolved(_Call() as call, Reply() as reply):
                call.answer.set_result(reply)
            case effects.Rejected(_Call() as call, error):
                call.answer.set_exception(error)
            case effects.Resolved(_Put() as put, Answered() as answered):
                put.asked.answered(answered)
            case effects.Rejected(_Put() as put, error):
                put.asked.failed(error)
            case effects.Connect() if self._machine.ended is None:
                spawn(self._connect, effect)
            case effects.Disconnect() if self._connection is not None:
                connection, self._connection = self._connection, None
                connection.close(effect)
            case effects.Ended(error):
                self._ended(error, on_purpose=effect.on_purpose)
            case effects.ConsumerLost(queue, error):
                self._observer.violated(f"a session may not consume from {queue} any more: {error}")
            case _:
                self._tell(effect)

    def _ended(self, error: Exception, *, on_purpose: bool) -> None:
        self._opened.set_exception(error)
        if isinstance(error, SessionEnded) and self._machine.welcome is not None and not on_purpose:
            self._observer.ended(error, self._clock() - self._lost_at)
        self._over.set()

    def _tell(self, effect: Effect) -> None:
        """Tell the observer."""
        observer = self._observer
        match effect:
            case effects.Opened(welcome):
                observer.opened(welcome, self._clock() - self._began)
                self._opened.set_result(None)
            case effects.Recovered(recovery):
                observer.recovered(recovery)
            case effects.Noticed(notice) if notice.code == PROMISES_RESTORED:
                observer.violated("after a failover the session lacked selections or properties that were confirmed")
            case effects.Noticed(notice):
                observer.noticed(notice)
            case effects.AttemptFailed(ending=ending):
                observer.attempt_failed(ending)
            case effects.Reported(error):
                observer.violated(f"a node reports an error: {error.code.value}: {error.message}")
            case effects.RequestGivenUp(request, error):
                observer.violated(f"request {request} ended a connection: {error}")
            case effects.Lost(ending):
                self._lost_at = self._clock()
                if ending.violation or ending.code in BROKEN_PROTOCOL:
                    observer.violated(f"a connection ended because the protocol was broken: {ending.message}")
