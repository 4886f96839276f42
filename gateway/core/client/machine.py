"""The client's machine: everything that a client decides about its session, without I/O, clock or chance.

It has three inputs: the application (``start``, ``request``, ``withdraw``, ``close``, ``abandon``, ``fetched`` and
``not_fetched``), the network (``connected``, ``receive``, ``disconnected``) and the timer (``tick``). Each returns what
is to be done now, as values (``effects``), and afterwards the shell does two things more, in any order:

* while ``has_output``, it writes what ``flush`` hands out, no more of it than the transport takes;
* it has ``tick`` called at ``next_deadline``, which any input may have moved.

```text
 application ──▶ ┌─────────────────────────────────────┐ ──▶ effects
 network ──────▶ │ transitions · plan of reconnecting  │ ──▶ flush
 timer ────────▶ │ handshake · requests · credentials  │ ──▶ next_deadline
                 └── core.stream's session machine ────┘
```

A shell answers each ``Connect`` with ``connected`` or ``disconnected``, and each ``FetchCredentials`` with ``fetched``
or ``not_fetched``, within the time that the effect names. After ``Disconnect`` nothing more of that connection goes in.
The effects of one input are a list, and performing one may be an input itself: the machine is whole between any two.

Times are seconds of any monotonic clock. States and transitions are those of ``transitions``; promises are cited by
their numbers: P2, P5, P7, P8, P12.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from gateway.core.client.attempts import DEFAULT_CLOSE_CODE, Attempts, close_code, refused_by, there
from gateway.core.client.consumers import Consumers
from gateway.core.client.credentials import EXPIRING
from gateway.core.client.effects import (
    ConsumerLost,
    Disconnect,
    Effect,
    Ended,
    Lost,
    Noticed,
    Opened,
    Reported,
    RequestGivenUp,
)
from gateway.core.client.endings import Ending
from gateway.core.client.errors import GatewayError, RequestRefused, SessionClosed, SessionEnded, refusal
from gateway.core.client.handshake import ResumeRole
from gateway.core.client.options import LEAVE_TIMEOUT, ClientOptions
from gateway.core.client.positions import Positions
from gateway.core.client.request_sender import RequestSender
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.client.stream_parameters import parameters_of
from gateway.core.client.transitions import ATTACHED_STATES, Event, State, step
from gateway.core.client.types import Notice, SelectionsWithdrawn, SessionState, ValuesReread
from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.types import RequestNumber
from gateway.core.wire import packets
from gateway.core.wire.codec import decode_from_server
from gateway.core.wire.codes import (
    CREDENTIALS_EXPIRED,
    GOING_AWAY,
    NORMAL,
    PING_TIMEOUT,
    ErrorCode,
    Numbering,
    Outcome,
    Reconnect,
)
from gateway.core.wire.errors import LocalProtocolError, RemoteProtocolError
from gateway.core.wire.exchange_packets import QUESTIONS, Answer, Answered, Question
from gateway.core.wire.packets import (
    Ack,
    Authenticate,
    Backoff,
    Bye,
    Error,
    GoAway,
    Ping,
    Reply,
    Update,
    Welcome,
)
from gateway.core.wire.queue_packets import (
    QUEUES,
    Message,
)
from gateway.core.wire.topology_packets import Topology

FINISHING: Final = State.FINISHING
"""For what is done for every message: Python 3.11 finds a member of an enumeration by a function call, in 70 ns."""

WRITE_ROOM: Final = 256 * 1024
"""Bytes numbered and handed to the transport at a time; it takes them before more is numbered."""


class ClientMachine(Attempts):
    """The client's half of one session.

    Args:
        options: where to connect, as whom.
        random: uniform in [0, 1); for jitter.

    Attributes:
        state: where it stands; see ``transitions``.
        welcome: of the present connection, or the last one; None until the session is opened.
        credentials: what the session was opened with, and goes on with.
        consumers: the queues that the session consumes from; the shell says which.
        closing: whether this client is ending the session on purpose.
        ended: why the session is over, or could not be opened; None while it is not.
    """

    def __init__(self, options: ClientOptions, *, random: Callable[[], float]) -> None:
        super().__init__(options, random=random)
        self._stream: SessionMachine | None = None
        self._sender: RequestSender | None = None
        self._go_away: GoAway | None = None
        self._positions = Positions()
        self.consumers = Consumers()
        self._stream_due: float | None = None
        """When the session machine has something to do, or a little earlier: computed once per message."""
        self.closing = False

    def __repr__(self) -> str:
        who = "" if self.welcome is None else f" of session {self.welcome.session} at {self.welcome.node}"
        return f"<ClientMachine{who} {self.state.value}>"

    # --- What it knows ------------------------------------------------------------------------------------------------

    @property
    def welcome(self) -> Welcome | None:
        """See the class."""
        return None if self._resume is None else self._resume.welcome

    @property
    def session_state(self) -> SessionState:
        """Where the session stands, for the application."""
        if self.state is State.ENDED:
            return SessionState.CLOSED
        return SessionState.CONNECTED if self.state in ATTACHED_STATES else SessionState.RECOVERING

    @property
    def properties(self) -> dict[str, str]:
        """All properties of the session, as of the last welcome and the changes since."""
        return {} if self._sender is None else self._sender.properties

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it connects: as the user said, and as the cluster lists its nodes."""
        return self._options.urls if self._plan is None else self._plan.urls

    @property
    def unanswered(self) -> int:
        """Requests sent and not answered."""
        return 0 if self._sender is None else self._sender.unanswered

    def is_unanswered(self, number: int) -> bool:
        """Tell whether a request was sent under this number and has no answer yet."""
        return self._sender is not None and self._sender.is_unanswered(RequestNumber(number))

    # --- The application ----------------------------------------------------------------------------------------------

    def request(self, call: Hashable, ask: ClientAsk, now: float) -> list[Effect]:
        """Ask something; ``Resolved`` or ``Rejected`` comes of it, however many connections it takes.

        Args:
            call: what the application calls it; of its own until it is answered.
            ask: with any number; it gets its own.
            now: the time.

        Raises:
            SessionEnded: the session is over, or being closed.
            LocalProtocolError: it was never opened.
        """
        self.check_open()
        self._opened_sender.request(call, ask, now)
        return self._take()

    def answer(self, ask: Answer, now: float) -> list[Effect]:
        """Answer a question, for which nobody waits; no effect if the session is over."""
        if self.ended is None and not self.closing:
            self._opened_sender.answer(ask, now)
        return self._take()

    def check_open(self) -> None:
        """Make sure that something can be asked.

        Raises:
            SessionEnded: the session is over, or being closed.
        """
        if isinstance(self.ended, SessionEnded):
            raise self.ended.again()
        if self.closing:
            raise SessionClosed("the session is being closed")

    def withdraw(self, call: Hashable) -> bool:
        """Say that nobody waits for the answer to a request any more; no effect if it has one.

        Returns:
            Whether it was ever sent, so that it may have been executed; what was not sent never will be.
        """
        return self._opened_sender.withdraw(call)

    def close(self, now: float) -> list[Effect]:
        """End the session on purpose (P7): say good-bye now, or when there is a connection; ``Ended`` comes of it."""
        if not self.closing and self.ended is None:
            self.closing = True
            self._refresher.stop()
            self._opened_sender.fail(SessionClosed("the session was closed before this request was answered"))
            if self.state in ATTACHED_STATES:
                self._say_bye()
                self._finish_if_idle(now)
        return self._take()

    def abandon(self, error: SessionEnded) -> list[Effect]:
        """Give the session up at once, whatever a node thinks of it; no effect if it is over.

        Args:
            error: what everybody is told who waits; unless the session is being closed.
        """
        if self.ended is None:
            self._end(error)
        return self._take()

    # --- The network --------------------------------------------------------------------------------------------------

    def disconnected(self, ending: Ending, now: float) -> list[Effect]:
        """The connection could not be made, or has ended.

        Args:
            ending: how.
            now: the time.
        """
        if self.state in ATTACHED_STATES:
            self._lost(ending, now)
        elif self.state is not State.ENDED:
            self._failed(ending if self._refusal is None else refused_by(self._refusal, ending.code), now)
        return self._take()

    def receive(self, message: str | bytes, now: float) -> list[Effect]:
        """Take a message in, whatever it holds.

        This is the hot path: 25,000 updates a second and more. An update becomes an effect as it is, and what else a
        message may hold is told apart after it.

        Raises:
            LocalProtocolError: there is no connection that it could have come on.
        """
        if self.state in ATTACHED_STATES:
            try:
                received = decode_from_server(message)
            except RemoteProtocolError as violation:
                self._violated(violation, now)
            else:
                self._take_in(received, now)
        elif self.state is State.HANDSHAKE:
            self._shake_hands(message, now)
        elif self.state is not State.ENDED:
            raise LocalProtocolError(f"a message came in state {self.state.value}")
        return self._take()

    # --- Writing ------------------------------------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        """Whether ``flush`` may have something to write."""
        return self._first is not None or (self._stream is not None and self._stream.has_output)

    def flush(self, room: int = WRITE_ROOM) -> list[bytes]:
        """Hand out what is to be written now.

        Args:
            room: bytes that the transport would like to take.

        Returns:
            Messages; none if there is no connection.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return [first]
        return self._stream.flush(room) if self._stream is not None and self.state in ATTACHED_STATES else []

    # --- The timer ----------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Tell when ``tick`` has something to do although nothing else happens; None for never."""
        deadline = self._due
        if self._sender is not None:
            for other in (self._stream_due, self._sender.next_deadline(), self._refresher.due):
                if other is not None and (deadline is None or other < deadline):
                    deadline = other
        return deadline

    def tick(self, now: float) -> list[Effect]:
        """Do what is due; harmless if nothing is."""
        if self._due is not None and now >= self._due:
            self._state_over(now)
        if self.ended is None:
            self._refresher.tick(now)
            if self._sender is not None:
                self._sender.pump(now)
            self._watch(now)
        return self._take()

    def _state_over(self, now: float) -> None:
        """The present state has lasted for as long as it may."""
        self._due = None
        match self.state:
            case State.WAITING if self._planned.remaining(now) == 0:
                self._wait(now)
            case State.WAITING:
                self._attempt(now)
            case State.HANDSHAKE if self._refusal is not None:
                self._failed(refused_by(self._refusal, None), now)
            case State.HANDSHAKE:
                self._failed(Ending(message=f"no welcome came within {self._patience:g} s", hung=True), now)
            case State.LEAVING:
                self.state = step(self.state, Event.FINISH)
                self._opened_sender.freeze()
                self._due = now + LEAVE_TIMEOUT
                self._finish_if_idle(now)
            case State.FINISHING:
                self._leave(now)
            case _:
                raise AssertionError(f"{self.state.value} does not end by itself")

    def _watch(self, now: float) -> None:
        """Acknowledge what is due, and notice a node that is silent."""
        if self._stream is None or self.state not in ATTACHED_STATES:
            self._stream_due = None
            return
        deadline = self._stream.next_deadline()
        while deadline is not None and deadline <= now:
            if self._stream.tick(now):
                silence = self._stream.parameters.ping_timeout
                message = f"the node was silent for {silence:g} s"
                self._hang_up(Ending(message=message, code=PING_TIMEOUT.code, hung=True), now)
                return
            deadline = self._stream.next_deadline()
        self._stream_due = deadline

    # --- The open connection ------------------------------------------------------------------------------------------

    def _open(self, welcome: Welcome, now: float) -> None:
        self._stream = SessionMachine(Role.CLIENT, parameters_of(welcome, self._options.ack_packets))
        self._stream.open(now)
        self._sender = RequestSender(welcome, self._stream, self._positions, self._emit, self._random)
        self._role = self._resume = ResumeRole(
            welcome,
            self._stream,
            self._sender,
            self.credentials,
            self._emit,
            options=self._options,
        )
        self._emit(Opened(welcome))

    def _attach(self, welcome: Welcome, early: list[packets.Packet], now: float) -> None:
        stream = self._opened_stream
        self._planned.connected(
            node=welcome.node,
            backup=welcome.backup,
            cluster=welcome.cluster,
            window=welcome.window,
            backoff=welcome.backoff,
            now=now,
        )
        # Whatever comes first proves to the node that the client holds the new token (P8).
        stream.send_link(Ack(stream.received))
        if self.closing:
            self._say_bye()
        else:
            restarted = welcome.numbering is Numbering.RESTARTED
            self._opened_sender.resume(welcome, restarted=restarted, now=now)
            if welcome.outcome != Outcome.REATTACHED and QUEUES in welcome.supports:
                asks = self.consumers.recovered(restarted=restarted)
                self._opened_sender.consume_again(asks, self._consumer_lost, now)
            if welcome.outcome != Outcome.REATTACHED and QUESTIONS in welcome.supports:
                self._opened_sender.await_again(now)
        self._take_in(early, now)

    @property
    def positions(self) -> Positions:
        """How far the session has come in the streams of topics."""
        return self._positions

    def _take_in(self, received: list[packets.Packet], now: float) -> None:
        latest = self._positions.latest
        for each in self._opened_stream.receive(received, now):
            if isinstance(each, Update):
                self._effects.append(each)
                if not (each.snapshot or each.folded):
                    event = each.event
                    latest[event.partition("-")[0]] = event
                continue
            if isinstance(each, RemoteProtocolError):
                self._violated(each, now)
                return
            try:
                self._handle(each, now)
            except RemoteProtocolError as violation:
                self._violated(violation, now)
                return
            if self.state not in ATTACHED_STATES:
                return
        if self.state is FINISHING:
            # Not before all of it is handled: the session machine counts it as received.
            self._finish_if_idle(now)
        if self.consumers.must_acknowledge():
            # What is settled by acknowledgements makes room for more, and does not wait for their usual time.
            self._opened_stream.send_link(Ack(self._opened_stream.received))
        self._watch(now)

    def _consumer_lost(self, queue: str, error: RequestRefused) -> None:
        self.consumers.end(queue)
        self._emit(ConsumerLost(queue, error))

    def _handle(self, received: Received, now: float) -> None:  # noqa: C901, PLR0912 - one place for all of them
        match received:
            case Reply():
                self._opened_sender.answered(received, now)
            case packets.Notice():
                self._noticed(received, now)
            case Message():
                news = self.consumers.received(received)
                if news is not None:
                    self._effects.append(news)
            case Question():
                if self._opened_sender.exchanges.given(received):
                    self._effects.append(received)
            case Answered():
                self._opened_sender.question_over(received)
            case Ping(token, backoff):
                if token:
                    self._opened_resume.renewed(token)
                self._heed(backoff)
            case GoAway():
                self._called_away(received, now)
            case Topology(cluster):
                self._planned.listed(cluster)
            case Error():
                self._opened_sender.blame.told(received)
                self._emit(Reported(received))
            case Bye(reason):
                message = f"the node ended the session: {reason or 'no reason given'}"
                self._hang_up(Ending(message=message, code=NORMAL.code), now)
            case _:
                # The codec reads nothing else from a server.
                raise AssertionError(f"a {type(received).__name__} came from a server")

    def _noticed(self, notice: packets.Notice, now: float) -> None:
        if notice.code == packets.NoticeCode.WITHHELD:
            return  # many of them may come, and what they are about is declared by the notice that follows
        if notice.code == packets.NoticeCode.SNAPSHOTS_COMPLETE:
            self._positions.completed(notice)
            return  # nothing has happened that an application would have to know of
        if notice.code == EXPIRING and self.credentials.renewable and not self.closing:
            self._refresher.begin()
        if notice.code == packets.NoticeCode.GRID_LOST_WRITES and not self.closing:
            self._opened_sender.consume_again(self.consumers.doubtful(), self._consumer_lost, now)
        declared = Notice(notice.code, notice.message)
        if notice.code == packets.NoticeCode.PERMISSIONS_WITHDRAWN:
            withdrawn, selections = notice.withdrawn or (), notice.selections or ()
            self._opened_sender.withdrawn(selections)
            if withdrawn or not notice.queues:
                declared = SelectionsWithdrawn(notice.code, notice.message, withdrawn, selections)
            for queue in notice.queues or ():
                self._consumer_lost(queue, refusal(ErrorCode.FORBIDDEN, notice.message))
        elif notice.code == packets.NoticeCode.VALUES_REREAD:
            self._positions.reread(notice.partitions)
            declared = ValuesReread(notice.code, notice.message, notice.partitions or ())
        self._emit(Noticed(declared))

    def _heed(self, backoff: Backoff | None) -> None:
        if backoff is not None:
            self._planned.advised(backoff)

    def _authenticate(self, secret: str, now: float) -> None:
        def answered(outcome: Reply | GatewayError, now: float) -> None:
            if not isinstance(outcome, SessionEnded):
                self._refresher.answered(None if isinstance(outcome, Reply) else str(outcome), now)

        self._opened_sender.authenticate(Authenticate(UNNUMBERED, secret, self.credentials.principal), answered, now)

    def _say_bye(self) -> None:
        self._opened_stream.send_link(Bye("the client closed the session"))

    # --- Its end ------------------------------------------------------------------------------------------------------

    def _called_away(self, go_away: GoAway, now: float) -> None:
        """Leave the node within the time it gives, at a random moment, with nothing under way (P12)."""
        self._heed(go_away.backoff)
        self.state = step(self.state, Event.GO_AWAY)
        if self.state is State.LEAVING:
            moment = now + self._random() * go_away.delay
            self._go_away = go_away
            self._due = moment if self._due is None else min(self._due, moment)

    def _finish_if_idle(self, now: float) -> None:
        if self.state is State.FINISHING and not self._opened_sender.unanswered:
            self._leave(now)

    def _leave(self, now: float) -> None:
        if self._go_away is None:
            raise AssertionError("nobody asked to go away")
        self._opened_stream.send_link(Ack(self._opened_stream.received))
        message = f"node {self._opened_resume.welcome.node} asked to go away: {self._go_away.reason}"
        ending = Ending(message=message, code=GOING_AWAY.code, planned=True, node=self._go_away.node)
        self._hang_up(ending, now)

    def _violated(self, violation: RemoteProtocolError, now: float) -> None:
        self._opened_stream.send_link(Error(violation.code, str(violation)))
        # What resuming mends is no violation that counts: a skipped packet is asked for again.
        counts = violation.close.reconnect is Reconnect.NEVER
        self._hang_up(Ending(message=str(violation), code=violation.close.code, violation=counts), now)

    def _hang_up(self, ending: Ending, now: float) -> None:
        """End the connection from this side, after what waits to be written."""
        self._lost(ending, now, tuple(self._opened_stream.flush(WRITE_ROOM)))

    def _lost(self, ending: Ending, now: float, last_messages: tuple[bytes, ...] = ()) -> None:
        """The connection has ended; find out why, and get the session back."""
        resume, sender = self._opened_resume, self._opened_sender
        self._emit(Disconnect(close_code(ending), ending.message, last_messages))
        resume.lost_at = now
        self._opened_stream.detach()
        sender.freeze()
        culprit, ending = sender.blame.find(ending)
        if culprit is not None:
            self._emit(RequestGivenUp(*culprit))
            sender.give_up(culprit, now)
        self._planned.lost(ending, now)
        if ending.code == CREDENTIALS_EXPIRED.code:
            self.credentials.stale = True
        self._cause = ending.message
        self._go_away = self._due = self._stream_due = None
        self.state = step(self.state, Event.LOST)
        self._emit(Lost(ending))
        self._wait(now)

    def _end(self, error: GatewayError) -> None:
        if self.state in ATTACHED_STATES or self.state is State.HANDSHAKE:
            self._emit(Disconnect(DEFAULT_CLOSE_CODE, "the client stops"))
        if self._stream is not None:
            self._stream.close()
        if self.closing:
            error = SessionClosed("the session was closed by this client")
        self.ended = error
        self.state = step(self.state, Event.END)
        self._first = self._due = self._stream_due = self._secret = None
        self._refresher.stop()
        if self._sender is not None and isinstance(error, SessionEnded):
            self._sender.fail(error)
        self._emit(Ended(error, on_purpose=self.closing))

    # --- Inside ---------------------------------------------------------------------------------------------------

    @property
    def _opened_stream(self) -> SessionMachine:
        return there(self._stream)

    @property
    def _opened_sender(self) -> RequestSender:
        return there(self._sender)

    @property
    def _opened_resume(self) -> ResumeRole:
        return there(self._resume)
