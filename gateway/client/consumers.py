"""Messages of queues as an application gets them: ``MessageConsumer`` and ``Message``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, Protocol, Self

from gateway.client.arguments import seconds_of
from gateway.client.calls import Requests
from gateway.core.client.consumers import Consumers
from gateway.core.client.errors import GatewayError, NotHeld, RequestRefused, RequestTimedOut
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.types import DeliveryTag, MessageId
from gateway.core.wire.packets import (
    Reply,
)
from gateway.core.wire.queue_packets import (
    AckMode,
    Cancel,
    Consume,
    Settle,
    Settlement,
)
from gateway.core.wire.queue_packets import (
    Message as MessagePacket,
)

DEFAULT_CREDIT: Final = 32
"""Messages that a consumer may hold: enough that none is waited for on the way, and few that others could have had."""

MOST_CREDIT: Final = 1_000
"""What a node grants at most."""

PAUSED_AT: Final = 2
"""Times its credit that a consumer keeps for a reader that is slow, before it asks for no more."""

_SECOND: Final = 1000
"""Milliseconds in a second; messages say in these when they were sent."""


class Ack(StrEnum):
    """How messages are settled."""

    AUTO = "auto"
    """By themselves, when they have been received here."""
    EACH = "each"
    """By ``Message.accept``, ``reject`` or ``release`` of each."""
    CLIENT = "client"
    """Likewise, and ``accept`` of one accepts all that came before it, too."""
    NONE = "none"
    """Before they are sent: at most once."""


class Consuming(Requests, Protocol):
    """What a consumer asks of its session."""

    @property
    def consumers(self) -> Consumers:
        """What the client knows of messages."""

    def allow(self, ask: Consume) -> None:
        """Ask for another credit, without waiting."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message of a queue.

    Attributes:
        queue: which.
        id: identifies it in its queue, and rises.
        value: the value, as JSON reads into Python.
        headers: texts by name, as its sender gave them.
        sent: when it was sent, in seconds since 1970.
        deliveries: how often it was delivered before, and failed for certain.
        redelivered: whether somebody may have received it before.
    """

    queue: str
    id: int
    value: Any
    headers: Mapping[str, str]
    sent: float
    deliveries: int
    redelivered: bool
    _consumer: MessageConsumer = field(repr=False)
    _tag: DeliveryTag = field(repr=False)
    _untold: dict[Settlement, list[asyncio.Future[Reply]]] = field(default_factory=dict, repr=False)
    """Settlements that were asked for, and whose answers nobody was told yet."""

    async def accept(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Say that it is done; returns once the grid has forgotten it. Nothing to be done with ``auto`` and ``none``.

        Cancelling the call, or its time limit, ends the waiting and nothing else; the same call again waits on.

        Args:
            timeout: seconds; None for the session's default.

        Raises:
            NotHeld: the session does not hold it any more, and another consumer may have it.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``.
        """
        await self._settle(Settlement.ACCEPT, timeout)

    async def reject(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Make it a dead letter, which nobody is given. What ends the waiting ends nothing else, as for ``accept``.

        Args:
            timeout: seconds; None for the session's default.

        Raises:
            ValueError: the consumer settles by itself.
            NotHeld, RequestRefused, RequestTimedOut, SessionEnded: as for ``accept``.
        """
        await self._settle(Settlement.REJECT, timeout)

    async def release(self, *, delay: float = 0.0, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Give it back: it goes to its place in the queue, as a delivery that failed.

        What ends the waiting ends nothing else, as for ``accept``.

        Args:
            delay: seconds until somebody may be given it again.
            timeout: seconds; None for the session's default.

        Raises:
            ValueError: the consumer settles by itself.
            NotHeld, RequestRefused, RequestTimedOut, SessionEnded: as for ``accept``.
        """
        await self._settle(Settlement.RELEASE, timeout, seconds_of("delay", delay))

    async def _settle(self, outcome: Settlement, timeout: float | None, delay: float = 0.0) -> None:  # noqa: ASYNC109
        limit = self._consumer.limit(timeout)
        if not self._untold.get(outcome):
            self._untold[outcome] = self._consumer.settle(self._tag, outcome, delay)
        try:
            await self._consumer.wait(*self._untold[outcome], limit=limit)
        except RequestTimedOut:
            raise
        except GatewayError:
            self._untold.pop(outcome, None)
            raise
        self._untold.pop(outcome, None)

    def stage(self, outcome: Settlement, delay: float) -> list[tuple[MessageConsumer, Settle]]:
        """Take it, to settle it within a transaction; for ``gateway.client.transactions``."""
        return [(self._consumer, each) for each in self._consumer.stage(self._tag, outcome, delay)]


class MessageConsumer:
    """What ``Session.consume`` returns: iterate over it for messages, and cancel it when there shall be no more.

    It outlives connections, nodes and deploys as its session does. What the session holds is given to others when it is
    settled, released, cancelled, or the session ends.

    Attributes:
        queue: which.
    """

    def __init__(self, supervisor: Consuming, queue: str, credit: int, ack: Ack, over: Callable[[str], None]) -> None:
        self.queue = queue
        self._supervisor = supervisor
        self._credit = credit
        self._ack = ack
        self._over = over
        self._messages: deque[Message] = deque()
        self._unsettled: dict[DeliveryTag, MessageId] = {}
        self._news = asyncio.Event()
        self._cancelling: asyncio.Future[Reply] | None = None
        self._ended = False
        self._error: GatewayError | None = None
        self._paused = False

    def __repr__(self) -> str:
        return f"<MessageConsumer of {self.queue}: {len(self._messages)} wait>"

    @property
    def mode(self) -> AckMode:
        """How messages are settled, in the protocol's words."""
        return AckMode.EACH if self._ack in {Ack.EACH, Ack.CLIENT} else AckMode(self._ack.value)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Wait for the next message.

        Raises:
            StopAsyncIteration: the consumer was cancelled, or the session closed.
            GatewayError: the session died of something, or may not consume any more.
        """
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        if self._paused and len(self._messages) <= self._credit // 2:
            self._allow(self._credit)
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._ended:
            await self.cancel()

    async def cancel(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Consume no more; what is held goes back, and what the application was given already it can not settle.

        Cancelling the call, or its time limit, ends the waiting and nothing else. Cancelling twice does no harm.

        Args:
            timeout: seconds; None for the session's default.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``.
        """
        limit = self._supervisor.limit(timeout)
        if not self._ended:
            self.end(None)
            self._messages.clear()
            self._cancelling = self._supervisor.begin(Cancel(UNNUMBERED, self.queue))
        if self._cancelling is not None:
            await self._supervisor.wait(self._cancelling, limit=limit)

    # --- For its messages ---------------------------------------------------------------------------------------------

    def limit(self, seconds: float | None) -> float | None:
        """Return how long a call may take whose caller says *seconds*."""
        return self._supervisor.limit(seconds)

    async def wait(self, *answers: asyncio.Future[Reply], limit: float | None) -> None:
        """Wait for the answers to what ``settle`` has asked for."""
        await self._supervisor.wait(*answers, limit=limit)

    def settle(self, tag: DeliveryTag, outcome: Settlement, delay: float = 0.0) -> list[asyncio.Future[Reply]]:
        """Settle a message in any case; see ``Message``. Until there is an answer, it is nothing new."""
        if self.mode is not AckMode.EACH and outcome is Settlement.ACCEPT:
            return []
        answers: list[asyncio.Future[Reply]] = []
        for settle in self.take(tag, outcome, delay):
            self._supervisor.consumers.settle(self.queue, [each for _, each in settle.messages])
            answer = self._supervisor.begin(settle)
            answer.add_done_callback(partial(self._settled, settle))
            answers.append(answer)
        return answers

    def _settled(self, settle: Settle, answer: asyncio.Future[Reply]) -> None:
        # What was refused the application has still, unless it is for that that it has not.
        error = answer.exception()
        self.unstage(settle, done=not isinstance(error, RequestRefused) or isinstance(error, NotHeld))

    def take(self, tag: DeliveryTag, outcome: Settlement, delay: float) -> list[Settle]:
        """Take a message, or with ``client`` also those before it, out of what the application has to settle.

        Raises:
            ValueError: the consumer settles by itself.
            NotHeld: there is none.
        """
        if self.mode is not AckMode.EACH:
            raise ValueError(f"a consumer with ack={self._ack.value!r} settles by itself; use 'each' or 'client'")
        if tag not in self._unsettled:
            raise NotHeld("the message was settled already, or its consumer was cancelled")
        all_before = self._ack is Ack.CLIENT and outcome is Settlement.ACCEPT
        tags = [each for each in self._unsettled if each <= tag] if all_before else [tag]
        messages = tuple((self._unsettled.pop(each), each) for each in tags)
        parts = range(0, len(messages), MOST_CREDIT)
        return [Settle(UNNUMBERED, self.queue, messages[at : at + MOST_CREDIT], outcome, delay) for at in parts]

    def stage(self, tag: DeliveryTag, outcome: Settlement, delay: float) -> list[Settle]:
        """Take messages to settle them within a transaction: until that is over, they are nothing new; see ``take``."""
        taken = self.take(tag, outcome, delay)
        self._supervisor.consumers.settle(self.queue, [each for settle in taken for _, each in settle.messages])
        return taken

    def unstage(self, settle: Settle, *, done: bool) -> None:
        """What settles messages has its answer; if it was not done, they can be settled otherwise."""
        tags = [tag for _, tag in settle.messages]
        self._supervisor.consumers.settled(self.queue, tags)
        if not done and not self._ended:
            self._unsettled |= {tag: message for message, tag in settle.messages}
            self._supervisor.consumers.keep(self.queue, tags)

    def received(self, packet: MessagePacket) -> None:
        """Take in a message."""
        if self._ended:
            return
        if self.mode is AckMode.EACH:
            self._unsettled[packet.delivery] = packet.message
        self._messages.append(
            Message(
                packet.queue,
                packet.message,
                packet.value,
                MappingProxyType(dict(packet.headers)),
                packet.sent / _SECOND,
                packet.deliveries,
                packet.redelivered,
                self,
                packet.delivery,
            )
        )
        self._news.set()
        if self.mode is not AckMode.EACH and not self._paused and len(self._messages) >= PAUSED_AT * self._credit:
            self._allow(0)

    def end(self, error: GatewayError | None) -> None:
        """There will be no more messages than those that wait."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._unsettled.clear()
            self._over(self.queue)
            self._news.set()

    def _allow(self, credit: int) -> None:
        """Have more sent, or no more for now: a reader that is slow does not make this process grow."""
        self._paused = not credit
        self._supervisor.allow(Consume(UNNUMBERED, self.queue, credit, self.mode))
