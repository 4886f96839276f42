"""The requests of a session, from the application's call to the session machine, and from the reply to the answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from gateway.core.client.blame import Blame, Culprit
from gateway.core.client.effects import Effect, Noticed, Rejected, RepairRefused, Resolved
from gateway.core.client.errors import Forbidden, GatewayError, RequestRefused, SessionEnded, ValueTooLarge
from gateway.core.client.exchanges import TOO_LARGE, Exchanges, why_unanswered
from gateway.core.client.positions import Positions
from gateway.core.client.promises import Promises, changed
from gateway.core.client.request_table import UNNUMBERED, ClientAsk, PendingRequest, RequestTable, encode_within
from gateway.core.client.types import Notice, SelectionsWithdrawn
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing
from gateway.core.topics.selections import Selections
from gateway.core.types import RequestNumber
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.durable_packets import DURABLES, AdvanceDurable, OpenDurable, ReleaseDurable, RemoveDurable
from gateway.core.wire.errors import InvalidSelector, RemoteProtocolError
from gateway.core.wire.exchange_packets import QUESTIONS, Answer, Answered, Ask, Await, Handle, Unhandle
from gateway.core.wire.packets import (
    HISTORY,
    KEEP,
    Authenticate,
    NoticeCode,
    Publish,
    ReadHistory,
    Reply,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from gateway.core.wire.publish_packet import TTL
from gateway.core.wire.queue_packets import (
    TEMPORARY,
    Consume,
    Declare,
)
from gateway.core.wire.transaction_packets import Stage
from gateway.core.wire.value_packets import VALUES, ReadValues
from gateway.core.wire.will_packets import WILLS, SetWills

EVERYWHERE: Final = ""
"""The word for what every node knows."""

NOT_KNOWN: Final = "the node is of an older release, which cannot be asked for this"

PROMISES_RESTORED: Final = "promises_restored"
"""Code of the notice with which this client itself declares that a grid had forgotten what it had promised."""


Settle: TypeAlias = Callable[[Reply | GatewayError], None]
"""What becomes of a call when it is answered: what the request table knows it by."""


def _nobody_waits(_: Reply | GatewayError) -> None:
    """Take the answer of what the client asks beside the application."""


class RequestSender:
    """Sends requests when they may be sent, and does what their replies mean.

    Args:
        welcome: of the new session.
        stream: the session's machine of packets.
        positions: how far the session has come in the streams of topics.
        emit: takes effects.
        random: uniform in [0, 1); spreads the retries of many clients.

    Attributes:
        positions: as given.
        blame: finds the requests that end connections.
        properties: all properties of the session, as of the last welcome and the changes since.
        exchanges: the questions that it asks and is asked.
    """

    def __init__(
        self,
        welcome: Welcome,
        stream: SessionMachine,
        positions: Positions,
        emit: Callable[[Effect], None],
        random: Callable[[], float],
    ) -> None:
        self._stream = stream
        self.positions = positions
        self._emit = emit
        self._random = random
        self._table = RequestTable(welcome.limits.requests)
        self._message_bytes = welcome.limits.message_bytes
        self._keeps = KEEP in welcome.supports
        self._supports = welcome.supports | {EVERYWHERE}
        self._promises = Promises(welcome.properties)
        self._now = 0.0
        """Time of the input at work."""
        self._calls: dict[Hashable, PendingRequest] = {}
        self.blame = Blame(self._table)
        self.properties = dict(welcome.properties)
        self.exchanges = Exchanges()

    @property
    def unanswered(self) -> int:
        """Requests sent and not answered."""
        return self._table.unanswered

    def is_unanswered(self, number: RequestNumber) -> bool:
        """Tell whether a request was sent and has no answer yet."""
        return self._table.is_unanswered(number)

    def unanswered_subscribes(self) -> dict[RequestNumber, str]:
        """Return the selectors of subscribes sent and not answered, by request."""
        return {ask.request: ask.selector for ask in self._table.unanswered_asks() if isinstance(ask, Subscribe)}

    # --- The application ----------------------------------------------------------------------------------------------

    def request(self, call: Hashable, ask: ClientAsk, now: float) -> None:
        """Ask something, however many connections it takes; ``Resolved`` or ``Rejected`` comes of it.

        Args:
            call: what the application calls it; of its own until it is answered.
            ask: with any number; it gets its own.
            now: the time.
        """
        self._calls[call] = self._begin(ask, lambda outcome: self._settle(call, ask, outcome))
        self.pump(now)

    def withdraw(self, call: Hashable) -> bool:
        """Say that nobody waits for the answer any more: what was sent stays until it is, what was not is never sent.

        Returns:
            Whether it was ever sent, so that it may have been executed.
        """
        pending = self._calls.pop(call, None)
        if pending is None:
            self.exchanges.withdraw(call)
            return True
        pending.withdrawn = True
        return pending.sent

    def authenticate(
        self, ask: Authenticate, answered: Callable[[Reply | GatewayError, float], None], now: float
    ) -> None:
        """Show fresh credentials, which the client does by itself; *answered* is told what comes of it, and when."""
        self._begin(ask, lambda outcome: answered(outcome, self._now))
        self.pump(now)

    def _begin(self, ask: ClientAsk, settle: Settle) -> PendingRequest:
        keep: tuple[str, ...] = ()
        if isinstance(ask, Unsubscribe) and not self._keeps:
            # The node of the moment does not know what stays (protocol 6.3): it is asked for anew.
            keep, ask = ask.keep, replace(ask, keep=())
        pending = self._table.add(ask, settle)
        self._select(keep)
        return pending

    def _select(self, selectors: Iterable[str]) -> None:
        for selector in selectors:
            self._table.add(Subscribe(UNNUMBERED, selector), _nobody_waits)

    def _settle(self, call: Hashable, ask: ClientAsk, outcome: Reply | GatewayError) -> None:
        del self._calls[call]
        if isinstance(ask, Ask) and isinstance(outcome, Reply):
            early = self.exchanges.put(outcome.request, call, ask.path)
            if early is not None:
                self._tell_answer(call, early)
            return  # otherwise the answer follows
        self._emit(Resolved(call, outcome) if isinstance(outcome, Reply) else Rejected(call, outcome))

    def question_over(self, answered: Answered) -> None:
        """Tell the application what became of a question, if it waits for it."""
        call = self.exchanges.answered(answered)
        if call is not None:
            self._tell_answer(call, answered)
        elif self._table.is_unanswered(answered.ask):
            self.exchanges.keep(answered)

    def _tell_answer(self, call: Hashable, answered: Answered) -> None:
        error = None if answered.error is None else why_unanswered(answered)
        self._emit(Resolved(call, answered) if error is None else Rejected(call, error))

    def answer(self, ask: Answer, now: float) -> None:
        """Answer a question, for which nobody waits; until there is a reply, it is nothing new.

        What the node of the moment cannot take for an answer is one all the same: that there is none.
        """
        self._begin(ask, partial(self._replied, ask))
        self.pump(now)

    def _replied(self, ask: Answer, outcome: Reply | GatewayError) -> None:
        if isinstance(outcome, ValueTooLarge) and ask.failed != TOO_LARGE:
            instead = Answer(UNNUMBERED, ask.question, None, TOO_LARGE)
            self._begin(instead, partial(self._replied, instead))
        else:
            self.exchanges.done(ask.question)

    def await_again(self, now: float) -> None:
        """Ask for the answers that are waited for, where the session goes on."""
        for ask in self.exchanges.recovered():
            self._begin(ask, _nobody_waits)
        self.pump(now)

    def consume_again(
        self, asks: Iterable[Consume], refused: Callable[[str, RequestRefused], None], now: float
    ) -> None:
        """Ask for what the session holds of queues, where it goes on.

        Args:
            asks: a request for each queue.
            refused: told of each that is refused.
            now: the time.
        """
        for ask in asks:
            self._begin(ask, partial(_consumed, ask.queue, refused))
        self.pump(now)

    # --- The network and the timer ------------------------------------------------------------------------------------

    def answered(self, reply: Reply, now: float) -> None:
        """Do what a reply means, before anything that follows it is looked at."""
        self._now = now
        answered = self._table.answer(reply, now=now, random=self._random())
        if answered is not None:
            ask = answered.pending.ask
            if answered.error is None and isinstance(ask, Subscribe):
                self.positions.subscribed(ask.request, ask.selector)
            _tell(answered.pending, answered.error or reply)
            if answered.error is None and not answered.pending.repairs:
                self._executed(answered.pending.ask)
        self.pump(now)

    def _executed(self, ask: ClientAsk) -> None:
        if isinstance(ask, Unsubscribe) and ask.keep and not self._keeps:
            # It was meant for another node, and asked again at an older one, which has deselected everything.
            self._select(ask.keep)
            ask = replace(ask, keep=())
        self._promises.executed(ask)
        if isinstance(ask, SetProperties):
            self.properties = changed(self.properties, ask.changes)

    def next_deadline(self) -> float | None:
        """Tell when ``pump`` will have something although nothing else happens; None for never."""
        return self._table.next_deadline()

    def pump(self, now: float) -> None:
        """Hand what may be sent now to the session machine."""
        self._now = now
        while asks := self._table.ready(now):
            for ask in asks:
                if _word_for(ask) not in self._supports:
                    # A node of an older release would not know what this is, and close the connection for it.
                    _tell(self._table.drop(ask.request), RequestRefused(NOT_KNOWN, code=ErrorCode.BAD_REQUEST))
                    continue
                try:
                    self._stream.submit(Outgoing(None, encode_within(ask, self._message_bytes)))
                except RequestRefused as refused:
                    # The node of the moment accepts less than the one before (protocol 4.8.3).
                    _tell(self._table.drop(ask.request), refused)

    # --- The connection -----------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Send nothing until ``resume``."""
        self._table.freeze()

    def give_up(self, culprit: Culprit, now: float) -> None:
        """Reject the request for which a node has closed the connection, and do not send it again."""
        self._now = now
        _tell(self._table.drop(culprit.request), culprit.error)
        # The others are asked again in a numbering of their own, as this one's packet is missing from now on.
        self._stream.forget_kept()

    def resume(self, welcome: Welcome, *, restarted: bool, now: float) -> None:
        """Go on over a new connection; see ``RequestTable.resume``."""
        self.properties = dict(welcome.properties)
        self._message_bytes = welcome.limits.message_bytes
        self._keeps = KEEP in welcome.supports
        self._supports = welcome.supports | {EVERYWHERE}
        self._table.resume(limit=welcome.limits.requests, restarted=restarted, now=now)
        self.pump(now)

    def fail(self, error: SessionEnded) -> None:
        """The session is over: every caller gets the error."""
        for pending in self._table.clear():
            _tell(pending, error.again())
        for call in self.exchanges.end():
            self._emit(Rejected(call, error.again()))

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

    def restore(self, missing: list[ClientAsk], selections: tuple[str, ...]) -> None:
        """Ask again for what is missing, after what is unanswered and before all that waits, and declare it.

        Args:
            missing: as ``missing`` told.
            selections: those of the welcome.
        """
        message = f"the grid had forgotten what it had promised to this session; {len(missing)} requests restore it"
        self._emit(Noticed(Notice(PROMISES_RESTORED, message), own=True))
        self._table.add_repairs([(ask, self._repaired(ask, selections)) for ask in missing])

    def _repaired(self, ask: ClientAsk, selections: tuple[str, ...]) -> Settle:
        def settle(outcome: Reply | GatewayError) -> None:
            if isinstance(ask, Subscribe) and isinstance(outcome, Forbidden):
                self._promises.forbidden(ask.selector, Selections.from_wire(selections))
                code, message = NoticeCode.PERMISSIONS_WITHDRAWN, str(outcome)
                self._emit(Noticed(SelectionsWithdrawn(code, message, (ask.selector,), selections), own=True))
            elif isinstance(outcome, GatewayError) and not isinstance(outcome, SessionEnded):
                self._emit(RepairRefused(outcome))

        return settle


def _word_for(ask: ClientAsk) -> str:
    """Tell by which word a node says that it understands a request."""
    if isinstance(ask, ReadHistory):
        return HISTORY
    if isinstance(ask, ReadValues):
        return VALUES
    if isinstance(ask, OpenDurable | AdvanceDurable | ReleaseDurable | RemoveDurable):
        return DURABLES
    if isinstance(ask, Handle | Unhandle | Ask | Await | Answer):
        return QUESTIONS
    if isinstance(ask, SetWills):
        return WILLS
    asked = ask.operation if isinstance(ask, Stage) else ask
    if isinstance(asked, Publish) and asked.ttl is not None:
        # A node of an older release would keep the value for ever.
        return TTL
    return TEMPORARY if isinstance(ask, Declare) else EVERYWHERE


def _consumed(queue: str, refused: Callable[[str, RequestRefused], None], outcome: Reply | GatewayError) -> None:
    if isinstance(outcome, RequestRefused):
        refused(queue, outcome)


def _tell(pending: PendingRequest, outcome: Reply | GatewayError) -> None:
    """Hand an answer to who waits for it, if there still is somebody."""
    if not pending.withdrawn:
        settle: Settle = pending.call
        settle(outcome)
