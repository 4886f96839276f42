"""Keeps one session alive over any number of connections: the asyncio shell of ``core.client.machine``.

```text
application ─┐                      ┌─▶ connector, connection ─▶ aiohttp
network ─────┼─▶ ClientMachine ─────┼─▶ futures of calls, streams, histories
timer ───────┘   (decides all)      └─▶ log
```

The machine decides; this module hands in what happens, and performs what comes out of it in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import SystemRandom
from typing import Any

from gateway.client.calls import Calls
from gateway.client.connection import Connection
from gateway.client.connector import Connector
from gateway.client.consumers import Ack, MessageConsumer
from gateway.client.credential_source import NoCredentials, fetch
from gateway.client.exchanges import Handlers
from gateway.client.history import History
from gateway.client.options import Options, time_limit
from gateway.client.subscriptions import Streams
from gateway.client.transport import Transport, make_http
from gateway.core.client import effects
from gateway.core.client.consumers import Consumers
from gateway.core.client.credentials import EXPIRING
from gateway.core.client.effects import Effect
from gateway.core.client.endings import Ending
from gateway.core.client.errors import (
    GatewayError,
    RequestRefused,
    SessionClosed,
    SessionEnded,
    SessionFailed,
)
from gateway.core.client.machine import ClientMachine
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.types import Notice, Recovery, SessionState, Update
from gateway.core.client.urls import describe_url
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.wire import packets
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.durable_packets import DURABLES, DurableRequest
from gateway.core.wire.exchange_packets import QUESTIONS, Answer, Answered, Question
from gateway.core.wire.packets import HistoryPart, ReadHistory, Reply, Unsubscribe, Welcome
from gateway.core.wire.queue_packets import QUEUES, TEMPORARY, Cancel, Consume, Declare, Message
from gateway.core.wire.transaction_packets import TRANSACTIONS

log = logging.getLogger("gateway.client")
log.addHandler(logging.NullHandler())


class Supervisor(Calls):
    """One session; ``session.Session`` is its public face. ``open`` comes first.

    Args:
        options: of ``connect``.

    Attributes:
        streams: of updates.
        recoveries: what happened to the connection.
        notices: what the server declared.
        handlers: of requests.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(ClientMachine(options, random=SystemRandom().random), options.request_timeout)
        self._options = options
        self._connector = Connector(options, make_http())
        self._connection: Connection | None = None
        self._fetches: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._interruptions = self._settlements = 0
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._over = asyncio.Event()
        self.streams = Streams(self._deselect)
        self.recoveries: History[Recovery] = History()
        self.notices: History[Notice] = History()
        self._consumers: dict[str, MessageConsumer] = {}
        self.handlers = Handlers(self)
        self._life = self._loop.create_task(self._live(), name="gateway-client-session")

    # --- What it is ---------------------------------------------------------------------------------------------------

    @property
    def welcome(self) -> Welcome:
        """The welcome of the present connection, or the last one."""
        welcome = self._machine.welcome
        if welcome is None:
            raise AssertionError("the session was never opened")
        return welcome

    @property
    def state(self) -> SessionState:
        """Where the session stands."""
        return self._machine.session_state

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it connects."""
        return self._machine.urls

    @property
    def properties(self) -> dict[str, str]:
        """All properties, as of the last welcome and the changes since."""
        return self._machine.properties

    @property
    def ended(self) -> SessionEnded | None:
        """Why the session is over; None while it is not."""
        return self._machine.ended if isinstance(self._machine.ended, SessionEnded) else None

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the session.

        Raises:
            ConnectFailed: it could not be opened; nothing of it is left.
        """
        self._input(self._machine.start)
        try:
            await self._opened
        except asyncio.CancelledError:
            self._abandon(SessionClosed("connecting was cancelled"))
            await self.wait_closed()
            raise
        if self._machine.welcome is None and self._machine.ended is not None:
            await self.wait_closed()
            raise self._machine.ended

    async def _live(self) -> None:
        """Last as long as the session, and release what belonged to it."""
        try:
            await self._over.wait()
        except asyncio.CancelledError:
            self._abandon(SessionClosed("the session was abandoned before a node confirmed its end"))
            raise
        finally:
            if self._fetches:
                await asyncio.wait(self._fetches)
            await self._connector.release()

    async def wait_closed(self) -> None:
        """Wait until the session is over and everything that belonged to it is released."""
        await asyncio.wait([self._life])

    async def close(self, seconds: float | None) -> None:
        """End the session on purpose; see ``Session.close``."""
        seconds = time_limit("timeout", seconds)
        self._input(self._machine.close)
        done, _ = await asyncio.wait([self._life], timeout=seconds)
        if not done:
            log.warning(
                "no node confirmed within %s s that session %s is closed; it ends when its window does",
                seconds,
                self.welcome.session,
            )
            # The node has had its time: what is still under way to it is dropped.
            self._connector.hurry()
            self._abandon(SessionClosed("the session was abandoned before a node confirmed its end"))
            await asyncio.wait([self._life])

    def _abandon(self, error: SessionEnded) -> None:
        self._perform(self._machine.abandon(error))

    # --- What the application does with it ----------------------------------------------------------------------------

    async def read_history(self, ask: ReadHistory, seconds: float | None = None) -> HistoryPart:
        """See ``history_streams.Source``."""
        reply = await self.request(ask, seconds)
        return HistoryPart() if reply.history is None else reply.history

    @property
    def interruptions(self) -> int:
        """See ``history_streams.Source``."""
        return self._machine.positions.interruptions

    def settled(self) -> frozenset[int]:
        """See ``history_streams.Source``."""
        return self._machine.positions.settled()

    async def unsubscribe(self, selector: Selector, seconds: float | None) -> None:
        """End streams and deselect, in any case; see ``Session.unsubscribe``. Only the wait ends before the answer.

        Raises:
            RequestTimedOut: there was no answer in time.
            SessionEnded: the session is over, or being closed.
        """
        self._machine.check_open()
        limit = self.limit(seconds)
        answers = list(map(self._deselect, self.streams.unsubscribe(selector)))
        await self.wait(*answers, limit=limit)

    # --- Durable subscriptions ----------------------------------------------------------------------------------------

    async def request_durable(self, ask: DurableRequest, seconds: float | None) -> Reply:
        """Ask something about a durable subscription; see ``request``.

        Raises:
            RequestRefused: likewise; or the node of the moment is of an older release, which would not understand it.
            RequestTimedOut, SessionEnded: as for ``request``.
        """
        self._check_supports(DURABLES, "durable subscriptions")
        return await self.request(ask, seconds)

    def _check_supports(self, word: str, what: str) -> None:
        if word not in self.welcome.supports:
            message = f"node {self.welcome.node} is of a release without {what}"
            raise RequestRefused(message, code=ErrorCode.UNKNOWN_PACKET_TYPE)

    # --- Questions ----------------------------------------------------------------------------------------------------

    def check_questions(self) -> None:
        """Make sure that the node of the moment knows questions; see ``check_queues``."""
        self._check_supports(QUESTIONS, "requests of applications")

    def answer(self, ask: Answer) -> None:
        """Answer a question, without waiting."""
        self._perform(self._machine.answer(ask, self._clock()))

    # --- Queues -------------------------------------------------------------------------------------------------------

    def check_queues(self) -> None:
        """Make sure that the node of the moment knows queues.

        Raises:
            RequestRefused: it is of an older release, and would not understand what is asked.
        """
        self._check_supports(QUEUES, "queues")

    async def declare(self, seconds: float | None) -> str:
        """Make a temporary queue; see ``Session.declare``.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``request``.
        """
        self._check_supports(TEMPORARY, "temporary queues")
        return (await self.request(Declare(UNNUMBERED), seconds)).queue or ""

    @property
    def consumers(self) -> Consumers:
        """What the client knows of messages."""
        return self._machine.consumers

    def check_transactions(self) -> None:
        """Make sure that the node of the moment knows transactions.

        Raises:
            RequestRefused: it is of an older release, and would not understand what is asked.
        """
        self._check_supports(TRANSACTIONS, "transactions")

    async def consume(self, queue: str, credit: int, ack: Ack, seconds: float | None) -> MessageConsumer:
        """Consume from a queue; see ``Session.consume``.

        Raises:
            ValueError: the session does so already.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``request``.
        """
        if queue in self._consumers:
            raise ValueError(f"the session consumes from {queue} already; cancel that consumer first")
        self.check_queues()
        self.limit(seconds)  # tells at once what makes no sense
        consumer = MessageConsumer(self, queue, credit, ack, self._forget_consumer)
        # It listens before it asks, so that no message can come too early for it.
        self._consumers[queue] = consumer
        self._machine.consumers.begin(queue, credit, consumer.mode)
        try:
            await self.request(Consume(UNNUMBERED, queue, credit, consumer.mode), seconds)
        except RequestRefused:
            self._end_consumer(queue, None)
            raise
        except BaseException:
            # It may be executed, and then nothing of it shall stay.
            self._end_consumer(queue, None)
            self.begin(Cancel(UNNUMBERED, queue))
            raise
        return consumer

    def allow(self, ask: Consume) -> None:
        """Ask for another credit, without waiting; a session that is over, or being closed, needs none."""
        if ask.queue in self._machine.consumers:
            self._machine.consumers.allow(ask.queue, ask.credit)
            self.begin(ask)

    def _forget_consumer(self, queue: str) -> None:
        self._machine.consumers.end(queue)
        self._consumers.pop(queue, None)

    def _end_consumer(self, queue: str, error: GatewayError | None) -> None:
        self._machine.consumers.end(queue)
        if (consumer := self._consumers.pop(queue, None)) is not None:
            consumer.end(error)

    def _deselect(self, ask: Unsubscribe) -> asyncio.Future[Reply]:
        """Ask for what a stream leaves behind; nobody has to wait for it."""

        def done(answer: asyncio.Future[Reply]) -> None:
            error = answer.exception()
            if isinstance(error, RequestRefused):
                log.warning("session %s: %s stays selected: %s", self.welcome.session, ask.selector, error)
                self.streams.lingers(parse_selector(ask.selector))

        answer = self.begin(ask)
        answer.add_done_callback(done)
        return answer

    # --- Inputs -------------------------------------------------------------------------------------------------------

    def _input(self, take: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Hand in what happened, and do what comes of it; a bug ends the session and is not lost in the event loop."""
        try:
            outcome = take(*arguments, self._clock())
        except Exception as bug:  # noqa: BLE001 - whatever it is
            self._failed(bug)
        else:
            self._perform(outcome)

    def _received(self, message: str | bytes) -> None:
        # As ``_input`` does, with a call less: this is done for every message.
        try:
            outcome = self._machine.receive(message, self._clock())
        except Exception as bug:  # noqa: BLE001 - whatever it is
            self._failed(bug)
        else:
            self._perform(outcome)

    def _lost(self, ending: Ending) -> None:
        self._input(self._machine.disconnected, ending)

    def _failed(self, bug: BaseException) -> None:
        if self._machine.ended is None:
            log.error("session %s failed by a bug of this client", self._name, exc_info=bug)
            self._abandon(SessionFailed(f"a bug of this client: {bug!r}"))

    def _timer_fired(self) -> None:
        self._timer = None
        self._input(self._machine.tick)

    @property
    def _name(self) -> str:
        welcome = self._machine.welcome
        return "(not opened)" if welcome is None else welcome.session

    # --- Effects ------------------------------------------------------------------------------------------------------

    def _perform(self, outcome: list[Effect]) -> None:
        for effect in outcome:
            try:
                # The hot path: most of what a client gets to do is to hand updates on.
                if isinstance(effect, packets.Update):
                    self.streams.dispatch(
                        Update(
                            effect.topic,
                            effect.value,
                            effect.version,
                            effect.event,
                            effect.snapshot,
                            effect.removed,
                            effect.folded,
                        )
                    )
                else:
                    self._do(effect)
            except Exception as bug:  # noqa: BLE001 - the others have to be done all the same
                self._failed(bug)
        positions = self._machine.positions
        if positions.interruptions != self._interruptions:
            self._interruptions = positions.interruptions
            self.streams.interrupted()
        if positions.settlements != self._settlements:
            self._settlements = positions.settlements
            self.streams.settled()
        if self._connection is not None and self._machine.has_output:
            self._connection.wake()
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            # Deadlines mostly move into the future; a timer that fires early is cheaper than a new one per message.
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._timer_fired)

    def _do(self, effect: Effect) -> None:  # noqa: C901, PLR0912 - one place for all of them
        match effect:
            case effects.Resolved(call, reply):
                _settle(call, reply)
            case effects.Rejected(call, error):
                _settle(call, error)
            case effects.Connect():
                if self._machine.ended is None:
                    self._connector.open(effect, self._connected, self._lost)
            case effects.Disconnect():
                self._disconnect(effect)
            case effects.FetchCredentials(purpose, seconds):
                task = self._loop.create_task(self._fetch(purpose, seconds), name="gateway-client-fetch")
                self._fetches.add(task)
                task.add_done_callback(self._fetches.discard)
            case Message():
                if (consumer := self._consumers.get(effect.queue)) is not None:
                    consumer.received(effect)
            case Question():
                self.handlers.given(effect)
            case effects.ConsumerLost(queue, error):
                log.warning("session %s: its consumer of %s ends: %s", self._name, queue, error)
                self._end_consumer(queue, error)
            case effects.FailedOver():
                self.streams.failed_over()
            case effects.Noticed():
                self._noticed(effect)
            case effects.Opened(welcome):
                log.info("session %s opened at node %s", welcome.session, welcome.node)
                self._settle_opened()
            case effects.Recovered(recovery):
                node, gap = recovery.node, recovery.gap_seconds
                log.info("session %s %s at node %s after %.3f s", self._name, recovery.outcome, node, gap)
                self.recoveries.append(recovery)
            case effects.Ended():
                self._ended(effect)
            case _:
                self._log(effect)

    def _log(self, effect: Effect) -> None:
        match effect:
            case effects.AttemptFailed(number, url, ending):
                log.info("attempt %d, at %s, failed: %s", number, describe_url(url), ending.message)
            case effects.Lost(ending):
                if ending.planned and self._machine.unanswered:
                    log.info("session %s moves with requests unanswered; they are asked again", self._name)
                level = logging.INFO if ending.planned or self._machine.closing else logging.WARNING
                log.log(level, "session %s left node %s: %s", self._name, self.welcome.node, ending.message)
            case effects.RequestGivenUp(request, error):
                log.error("session %s: request %d ended the connection: %s", self._name, request, error)
            case effects.Reported(error):
                log.warning("session %s: the node reports: %s", self._name, error.message)
            case effects.RefreshFailed(reason):
                log.warning("session %s: its credentials could not be refreshed: %s", self._name, reason)
            case effects.RepairRefused(error):
                log.error("a promise that the grid had forgotten could not be restored: %s", error)

    def _connected(self, transport: Transport) -> None:
        self._connection = Connection(
            transport, receive=self._received, lost=self._lost, flush=self._machine.flush, failed=self._failed
        )
        self._input(self._machine.connected)

    def _disconnect(self, how: effects.Disconnect) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.leave(how)
            self._connector.part(connection.close())

    async def _fetch(self, purpose: effects.Purpose, seconds: float) -> None:
        try:
            secret = await fetch(self._options.credentials, seconds)
        except NoCredentials as error:
            self._input(self._machine.not_fetched, purpose, str(error))
        else:
            self._input(self._machine.fetched, purpose, secret)

    def _noticed(self, effect: effects.Noticed) -> None:
        notice = effect.notice
        refreshing = notice.code == EXPIRING and self._machine.credentials.renewable
        level = logging.INFO if refreshing else logging.WARNING
        declares = "this client" if effect.own else "the server"
        log.log(level, "session %s: %s declares: %s", self._name, declares, notice.message)
        self.notices.append(notice)

    def _ended(self, effect: effects.Ended) -> None:
        self._settle_opened()
        error = effect.error
        if isinstance(error, SessionEnded):
            told = None if effect.on_purpose else error
            self.streams.end(told)
            for queue in list(self._consumers):
                self._end_consumer(queue, None if told is None else told.again())
            self.handlers.end()
            self.recoveries.end(told)
            self.notices.end(told)
            level = logging.INFO if isinstance(error, SessionClosed) else logging.ERROR
            log.log(level, "session %s ended: %s", self._name, error)
        self._connector.stop()
        for task in self._fetches:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._over.set()

    def _settle_opened(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)


def _settle(call: object, outcome: Reply | Answered | GatewayError) -> None:
    """Hand an answer to who waits for it, if there still is somebody."""
    if not isinstance(call, asyncio.Future) or call.done():  # else nobody waits
        return
    if isinstance(outcome, GatewayError):
        call.set_exception(outcome)
    else:
        call.set_result(outcome)
