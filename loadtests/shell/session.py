"""A session at a gateway, under gevent: it outlives its connections, and tells its observer everything it sees.

```text
open ──► connected ──lost──► recovering ──welcome──► connected ──► …
             │                   │
             └────── close ──────┴── window over, refused ──► ended
```

This is ``gateway.client.supervisor`` with greenlets in place of asyncio: the same plan of reconnecting, the same
request table, the same session machine. In place of streams and futures it has an ``Observer``, because a load test
wants to see every packet and not to be spared any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from gateway.client.options import LEAVE_TIMEOUT, SUPPORTS, Options
from gateway.client.transport import AttemptFailed
from gateway.core.client.blame import Blame
from gateway.core.client.endings import Ending
from gateway.core.client.errors import GatewayError, SessionClosed, SessionEnded, SessionFailed
from gateway.core.client.promises import Promises
from gateway.core.client.reconnect_plan import ReconnectPlan
from gateway.core.client.request_table import Answer, ClientAsk, RequestTable, encode_within
from gateway.core.client.types import Recovery
from gateway.core.stream.frozen import SessionPolicy
from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.stream.runs import Outgoing
from gateway.core.stream.transitions import Role
from gateway.core.types import Attempt, PacketId
from gateway.core.wire import packets
from gateway.core.wire.codec import MAX_NUMBER
from gateway.core.wire.codes import GOING_AWAY, NORMAL, PROTOCOL_ERROR, Numbering
from gateway.core.wire.errors import InvalidSelector, RemoteProtocolError, RequestRefused
from gateway.core.wire.packets import Ack, Bye, Error, GoAway, Hello, Ping, Reply, Resume, Update, Welcome
from loadtests.greenlets import Flag, Greenlet, later, sleep, spawn
from loadtests.greenlets import Outcome as Awaited
from loadtests.shell.connection import Connection, part, shake_hands
from loadtests.shell.transport import Dialer, Transport, open_websocket

CLIENT_NAME: Final = "locust"
"""How load introduces itself; the fixed property ``$client``, so that operators can tell it from users."""

ACK_PACKETS: Final = 256
"""Packets received after which an acknowledgement is sent alone (protocol 5.3.2)."""

ACK_SHARE: Final = 4
"""... and at the latest after this part of the node's resend buffer, so that the node never waits for it."""

ACK_DELAY: Final = 0.45
"""Seconds after which an acknowledgement is sent alone; protocol 5.3.2 asks for 0.5 s at most."""

LEAST_ATTEMPT: Final = 0.25
"""Seconds that an attempt has even if it begins at the very end of the window: less is no attempt on a real network."""


class Observer(Protocol):
    """Who is told what happens to a session. Calls come from different greenlets, in order; they must not wait."""

    def opened(self, welcome: Welcome, seconds: float) -> None:
        """A node has opened the session, *seconds* after the first attempt began."""

    def recovered(self, recovery: Recovery) -> None:
        """The session has a connection again, and this is what came of it."""

    def updated(self, update: Update, now: float) -> None:
        """An update came, at *now* of the session's clock."""

    def noticed(self, notice: packets.Notice) -> None:
        """The server declared something."""

    def violated(self, message: str) -> None:
        """The other side broke the protocol or a promise."""

    def attempt_failed(self, ending: Ending) -> None:
        """An attempt to connect ended without a welcome; there will be another one, or ``ended``."""

    def ended(self, error: SessionEnded, gap_seconds: float) -> None:
        """The session is over though nobody closed it, *gap_seconds* after it was connected for the last time."""


class GatewaySession:
    """One session; made with ``open``.

    Args:
        options: where to connect and as whom.
        observer: is told everything.
        random: for jitter.
        clock: seconds of a monotonic clock.
        dial: makes connections.

    Attributes:
        ended: why the session is over, or None.
        recovering: whether it has no connection now.
    """

    def __init__(
        self,
        options: Options,
        observer: Observer,
        *,
        random: Random,
        clock: Callable[[], float] = time.monotonic,
        dial: Dialer = open_websocket,
    ) -> None:
        self._options = options
        self._observer = observer
        self._random = random
        self._clock = clock
        self._dial = dial
        self._plan = ReconnectPlan(
            options.urls, connect_timeout=options.connect_timeout, window=options.window, now=clock()
        )
        self._welcome: Welcome | None = None
        self._machine: SessionMachine | None = None
        self._promises = Promises({})
        self._table = RequestTable(limit=1)
        self._blame = Blame(self._table)
        self._numbering_unknown = False
        self._connection: Connection | None = None
        self._token = ""
        self._attempt = 0
        self._resent = 0
        self._lost_at = 0.0
        self._cause = ""
        self._closing = False
        self._retry: Greenlet | None = None
        self._idle = Flag()
        self._over = Flag()
        self._life: Greenlet | None = None
        self.ended: SessionEnded | None = None
        self.recovering = False

    @property
    def node(self) -> str:
        """The node that serves it, or served it last; not secret."""
        return "" if self._welcome is None else self._welcome.node

    def open(self) -> None:
        """Open the session; waits until a node has.

        Raises:
            ConnectFailed: it could not be opened.
        """
        began = self._clock()
        transport, welcome, early = self._reach()
        self._observer.opened(welcome, self._clock() - began)
        self._life = spawn(self._run, self._attach(transport, welcome, early))

    def ask(self, ask: ClientAsk, answer: Answer) -> None:
        """Ask something; *answer* gets the reply, however many connections that takes.

        Args:
            ask: with any number; it gets its own.
            answer: fails with ``SessionEnded`` if the session is over before.
        """
        if self.ended is not None or self._closing:
            answer.set_exception(self.ended or SessionClosed("the session is being closed"))
            return
        self._table.add(ask, answer)
        self._pump()

    def request(self, ask: ClientAsk, seconds: float) -> Reply:
        """Ask something and wait for the reply.

        Raises:
            TimeoutError: there was none in time.
            RequestRefused: the answer is no.
            SessionEnded: the session ended before there was one.
        """
        answer: Awaited[Reply] = Awaited()
        self.ask(ask, answer)
        return answer.get(seconds)

    def cut(self) -> bool:
        """Lose the connection as a failing network does; False if there is none now."""
        if self._connection is None:
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
        if self._life is None:
            return False
        if self.ended is None and not self._closing:
            self._closing = True
            if self._connection is not None:
                self._say_bye()
        confirmed = self._over.wait(seconds)
        self._life.kill()
        return confirmed

    # --- Life -------------------------------------------------------------------------------------------------------

    def _run(self, connection: Connection) -> None:
        try:
            while True:
                self._serve(connection)
                connection = self._recover()
        except SessionEnded as ended:
            self._end(ended)
        except Exception as bug:
            self._end(SessionFailed(f"a bug of the load generator: {bug!r}"))
            raise

    def _attach(self, transport: Transport, welcome: Welcome, early: list[packets.Packet]) -> Connection:
        machine = self._attached
        self._plan.connected(node=welcome.node, window=welcome.window, backoff=welcome.backoff, now=self._clock())
        connection = self._connection = Connection(transport, machine, self._handle, self._clock, early)
        # Whatever comes first proves to the node that the client holds the new token (protocol 11.3).
        machine.send_link(Ack(machine.received))
        if self._closing:
            self._say_bye()
        else:
            restarted = welcome.numbering is Numbering.RESTARTED
            self._table.resume(limit=welcome.limits.requests, restarted=restarted, now=self._clock())
            self._pump()
        return connection

    def _serve(self, connection: Connection) -> None:
        ending = connection.serve()
        self._lost_at = self._clock()
        self._connection = None
        self.recovering = True
        self._attached.detach()
        self._table.freeze()
        culprit, ending = self._blame.find(ending)
        if culprit is not None:
            self._observer.violated(f"request {culprit.request} ended a connection: {culprit.error}")
            self._table.drop(*culprit)
            self._attached.forget_kept()
        self._plan.lost(ending, self._lost_at)
        self._cause = ending.message
        broken = ending.message if ending.violation or ending.code == PROTOCOL_ERROR.code else connection.violation
        if broken is not None:
            self._observer.violated(f"a connection ended because the protocol was broken: {broken}")

    def _recover(self) -> Connection:
        transport, welcome, early = self._reach()
        self.recovering = False
        self._observer.recovered(
            Recovery(
                outcome=welcome.outcome,
                numbering=welcome.numbering or Numbering.RESTARTED,
                reason=welcome.reason,
                node=welcome.node,
                gap_seconds=self._clock() - self._lost_at,
                resent=welcome.resent + self._resent,
                lost=welcome.lost,
                conflated=welcome.conflated,
                attempts=self._plan.attempts,
                cause=self._cause,
            )
        )
        return self._attach(transport, welcome, early)

    def _end(self, error: SessionEnded) -> None:
        self.ended = error
        self._connection = None
        self._table.fail(error)
        if self._retry is not None:
            self._retry.kill()
        if not self._closing:
            self._observer.ended(error, self._clock() - self._lost_at)
        self._over.set()

    def _say_bye(self) -> None:
        self._attached.send_link(Bye("the load test is over"))
        self._wake()

    def _wake(self) -> None:
        if self._connection is not None:
            self._connection.wake()

    @property
    def _attached(self) -> SessionMachine:
        if self._machine is None:
            raise AssertionError("the session was never opened")
        return self._machine

    # --- Reaching a node ----------------------------------------------------------------------------------------------

    def _reach(self) -> tuple[Transport, Welcome, list[packets.Packet]]:
        """Try until a node welcomes the session.

        Raises:
            ConnectFailed: it could not be opened.
            SessionEnded: it cannot be resumed.
        """
        while True:
            following = self._plan.next(self._clock(), self._random.random())
            if isinstance(following, GatewayError):
                raise following
            if following.delay:
                sleep(following.delay)
                if self._plan.remaining(self._clock()) == 0:
                    continue
            try:
                return self._try(following.url)
            except AttemptFailed as failure:
                self._observer.attempt_failed(failure.ending)
                self._plan.failed(failure.ending, self._clock())

    def _try(self, url: str) -> tuple[Transport, Welcome, list[packets.Packet]]:
        transport = self._dial(url, seconds=self._within(self._options.attempt_timeout))
        try:
            first = self._first_packet()
            welcome, early = shake_hands(transport, first, seconds=self._within(self._options.welcome_timeout))
            try:
                self._accept(welcome)
            except RemoteProtocolError as error:
                message = f"the welcome does not fit: {error}"
                raise AttemptFailed(Ending(message=message, code=PROTOCOL_ERROR.code, violation=True)) from None
        except BaseException as error:
            if self._machine is not None:
                self._machine.detach()
            ending = error.ending if isinstance(error, AttemptFailed) else Ending(message="the load generator stops")
            spawn(_let_go, transport, ending)
            raise
        return transport, welcome, early

    def _within(self, seconds: float) -> float:
        remaining = self._plan.remaining(self._clock())
        return seconds if remaining is None else min(seconds, max(LEAST_ATTEMPT, remaining))

    def _first_packet(self) -> Hello | Resume:
        if self._machine is None:
            options = self._options
            return Hello(
                principal=options.principal,
                secret=options.secret,
                properties=dict(options.properties),
                client=CLIENT_NAME,
                window=options.window,
                supports=SUPPORTS,
            )
        self._attempt += 1
        machine = self._machine
        machine.resume()
        return Resume(
            token=self._token,
            attempt=Attempt(self._attempt),
            received=PacketId(0) if self._numbering_unknown else machine.received,
            oldest=PacketId(MAX_NUMBER) if self._numbering_unknown else machine.oldest,
            supports=SUPPORTS,
        )

    def _accept(self, welcome: Welcome) -> None:
        """Take a welcome on, before any packet that follows it.

        Raises:
            RemoteProtocolError: it is no answer to what was sent; nothing was changed.
        """
        machine = self._machine
        if machine is None or self._welcome is None:
            if welcome.numbering is Numbering.KEPT:
                raise RemoteProtocolError(f"a new session was asked for, and the outcome is {welcome.outcome}")
            self._machine = SessionMachine(Role.CLIENT, _policy(welcome))
            self._machine.open(self._clock())
            self._promises = Promises(welcome.properties)
        else:
            if welcome.session != self._welcome.session:
                raise RemoteProtocolError("it is for another session")
            match welcome.numbering:
                case Numbering.KEPT if self._numbering_unknown:
                    raise RemoteProtocolError("it goes on with a numbering that this client has given up")
                case Numbering.KEPT:
                    self._resent = machine.reattach(received=welcome.received, now=self._clock())
                case Numbering.RESTARTED:
                    missing = self._missing(welcome)
                    self._resent = self._table.unanswered
                    machine.restart(self._clock())
                    self._restore(missing)
                case None:
                    # Nobody can tell whose numbers count (protocol 4.3.1).
                    self._numbering_unknown = True
                    self._token = welcome.token
                    message = f"the node does not say whether numbers go on after {welcome.outcome!r}"
                    raise AttemptFailed(Ending(message=message, code=GOING_AWAY.code))
            self._numbering_unknown = False
            machine.adopt(_policy(welcome))
        self._welcome = welcome
        self._token = welcome.token

    def _missing(self, welcome: Welcome) -> list[ClientAsk]:
        try:
            return self._promises.missing(
                selections=welcome.selections,
                properties=welcome.properties,
                unanswered=self._table.unanswered_asks(),
            )
        except InvalidSelector as error:
            raise RemoteProtocolError(f"its selections are not valid: {error}") from None

    def _restore(self, missing: list[ClientAsk]) -> None:
        if missing:
            self._observer.violated("after a failover the session lacked selections or properties that were confirmed")
            self._table.add_repairs([(ask, Awaited[Reply]()) for ask in missing])

    # --- Requests -----------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Hand what may be sent now to the machine, and come again when more may."""
        now = self._clock()
        while asks := self._table.ready(now):
            for ask in asks:
                try:
                    self._attached.submit(Outgoing(None, encode_within(ask, self._attached.policy.message_bytes)))
                except RequestRefused as refused:
                    self._table.drop(ask.request, refused)
            self._idle.clear()
            self._wake()
        if self._retry is not None:
            self._retry.kill()
            self._retry = None
        deadline = self._table.next_deadline()
        if deadline is not None and deadline > now:
            self._retry = later(deadline - now, self._pump_again)

    def _pump_again(self) -> None:
        # This very greenlet is the retry: it must not call itself off.
        self._retry = None
        self._pump()

    def _answered(self, reply: Reply) -> None:
        executed = self._table.answer(reply, now=self._clock(), random=self._random.random())
        if executed is not None and not executed.repairs:
            self._promises.executed(executed.ask)
        if not self._table.unanswered:
            self._idle.set()
        self._pump()

    # --- What comes in ------------------------------------------------------------------------------------------------

    def _handle(self, received: Received, now: float) -> None:
        match received:
            case Update():
                self._observer.updated(received, now)
            case Reply():
                self._answered(received)
            case packets.Notice():
                self._observer.noticed(received)
            case Ping(token):
                self._token = token or self._token
            case GoAway() if self._connection is not None:
                spawn(self._leave, self._connection, received)
            case Error():
                self._blame.told(received)
                self._observer.violated(f"a node reports an error: {received.code.value}: {received.message}")
            case Bye(reason) if self._connection is not None:
                message = f"the node ended the session: {reason or 'no reason given'}"
                self._connection.end(Ending(message=message, code=NORMAL.code))
            case _:
                # The codec reads nothing else from a server.
                raise AssertionError(f"a {type(received).__name__} came from a server")

    def _leave(self, connection: Connection, go_away: GoAway) -> None:
        """Leave a node on request: within the time it gives, at a random moment, with nothing under way."""
        sleep(self._random.random() * go_away.delay)
        if self._connection is not connection:
            return
        self._table.freeze()
        if self._table.unanswered:
            self._idle.clear()
            self._idle.wait(LEAVE_TIMEOUT)
        if self._connection is connection:
            self._attached.send_link(Ack(self._attached.received))
            message = f"node {self.node} asked to go away: {go_away.reason}"
            connection.end(Ending(message=message, code=GOING_AWAY.code, planned=True))


def _let_go(transport: Transport, ending: Ending) -> None:
    """Drop a connection that never got a welcome."""
    reader = spawn(_drain, transport)
    part(transport, [], ending)
    reader.join()


def _drain(transport: Transport) -> None:
    while not isinstance(transport.receive(), Ending):
        pass


def _policy(welcome: Welcome) -> SessionPolicy:
    limits = welcome.limits
    return SessionPolicy(
        resend_packets=limits.resend_packets,
        resend_bytes=limits.resend_bytes,
        message_bytes=limits.message_bytes,
        ack_packets=max(1, min(ACK_PACKETS, limits.resend_packets // ACK_SHARE)),
        ack_delay=ACK_DELAY,
        ping_interval=welcome.ping_interval,
        ping_timeout=welcome.ping_timeout,
    )
