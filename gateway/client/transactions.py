"""Transactions as an application gets them: what is asked for within one is done as a whole, or not at all (P16)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from gateway.client.arguments import ages_of, seconds_of, ttl_of
from gateway.client.consumers import Message, MessageConsumer
from gateway.core.client.errors import GatewayError, InvalidTopic, NoSuchTransaction, RequestRefused, ValueTooLarge
from gateway.core.client.request_table import UNNUMBERED, ClientAsk, encode_within
from gateway.core.topics.topics import parse_topic
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire.codec import json_text
from gateway.core.wire.packets import Publish, Reply, Welcome
from gateway.core.wire.queue_packets import Send, Settle, Settlement
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage


class Requests(Protocol):
    """What a transaction asks of its session."""

    @property
    def welcome(self) -> Welcome:
        """What the node of the moment has said of itself."""

    def check_transactions(self) -> None:
        """Make sure that the node of the moment knows transactions."""

    async def request(self, ask: ClientAsk, seconds: float | None) -> Reply:
        """Ask something and wait for the answer."""


class Transaction:
    """What ``Session.transaction`` returns, to be entered with ``async with``.

    What is asked for is in the grid when the call returns, and done when the block ends: all of it, once, or nothing.
    An exception in the block rolls it back. It goes on over connections, nodes and deploys as its session does, but not
    for ever: a minute without a call, or ten in all, and it is rolled back. So it is if the grid may have lost a part
    of it.
    """

    def __init__(self, requests: Requests, seconds: float | None) -> None:
        self._requests = requests
        self._seconds = seconds
        self._number: RequestNumber | None = None
        self._is_over = False
        self._settled: list[tuple[MessageConsumer, Settle]] = []

    async def __aenter__(self) -> Self:
        """Begin.

        Raises:
            RuntimeError: it was begun before.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``.
        """
        if self._number is not None or self._is_over:
            raise RuntimeError("a transaction is begun once; ask the session for another one")
        self._requests.check_transactions()
        self._number = (await self._requests.request(Begin(UNNUMBERED), self._seconds)).request
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or roll back if the block has failed. A transaction that is over already is left alone."""
        if self._is_over:
            return
        if kind is None:
            await self.commit()
            return
        # What has failed is told by the block's own exception. A transaction that cannot be rolled back now will be.
        with suppress(GatewayError):
            await self.roll_back()

    async def publish(self, topic: str, value: object, *, ttl: float | None = None) -> None:
        """Publish a value to a topic, with the transaction; *ttl* is as of ``Session.publish``, from the commit on.

        Raises:
            ValueError: *ttl* is no such time.
            NoSuchTransaction: it was rolled back, as nobody had gone on with it.
            InvalidTopic, ValueTooLarge, InvalidValue, Forbidden, RequestRefused, RequestTimedOut, SessionEnded: as for
                ``Session.publish``.
        """
        await self._stage(Publish(UNNUMBERED, _path("topic", topic), self._text(value), ttl=ttl_of(ttl)))

    async def send(
        self,
        queue: str,
        value: object,
        *,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        expires: float | None = None,
    ) -> None:
        """Put a message into a queue, with the transaction; *delay* and *expires* begin with the commit.

        Raises:
            NoSuchTransaction: as for ``publish``.
            NoSuchQueue, InvalidTopic, ValueTooLarge, InvalidValue, RequestRefused, RequestTimedOut, SessionEnded: as
                for ``Session.send``.
        """
        path, text, ages = _path("queue", queue), self._text(value), ages_of(delay, expires)
        await self._stage(Send(UNNUMBERED, path, text, dict(headers or {}), *ages))

    async def accept(self, message: Message) -> None:
        """Say that a message is done, with the transaction. Until then the session holds it.

        Raises:
            ValueError: its consumer settles by itself; use ``ack="each"`` or ``"client"``.
            NotHeld: the session does not hold it any more.
            NoSuchTransaction, RequestRefused, RequestTimedOut, SessionEnded: as for ``publish``.
        """
        await self._settle(message, Settlement.ACCEPT)

    async def reject(self, message: Message) -> None:
        """Make a message a dead letter, with the transaction; see ``accept``."""
        await self._settle(message, Settlement.REJECT)

    async def release(self, message: Message, *, delay: float = 0.0) -> None:
        """Give a message back, with the transaction; see ``accept``."""
        await self._settle(message, Settlement.RELEASE, seconds_of("delay", delay))

    async def commit(self) -> None:
        """Have all of it done, once; the end of the block does this.

        Raises:
            NotHeld: the session does not hold a message any more; nothing was done.
            QueueFull: a queue has no room; nothing was done.
            NoSuchQueue: a queue has ended since; nothing was done.
            NoSuchTransaction: it was rolled back before.
            RequestTimedOut: nobody knows yet; it is done as a whole or not at all.
            RequestRefused, SessionEnded: as for ``Session.publish``.
        """
        try:
            await self._end(Commit(UNNUMBERED, self._open()))
        except BaseException:
            self._give_back()
            raise
        for consumer, settle in self._settled:
            consumer.unstage(settle, done=True)

    async def roll_back(self) -> None:
        """Forget all of it; the messages that it was to settle can be settled otherwise.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``; it is rolled back later then.
        """
        number = self._open()
        self._give_back()
        await self._end(Rollback(UNNUMBERED, number))

    def _text(self, value: object) -> bytes:
        text, most = json_text(value), self._requests.welcome.limits.value_bytes
        if len(text) > most:
            raise ValueTooLarge(f"the value has {len(text)} bytes of JSON; the node accepts {most}")
        return text

    def _open(self) -> RequestNumber:
        if self._number is None or self._is_over:
            raise NoSuchTransaction("the transaction is over, or was not begun")
        return self._number

    async def _end(self, ask: Commit | Rollback) -> None:
        self._is_over = True
        await self._requests.request(ask, self._seconds)

    async def _stage(self, operation: Publish | Send | Settle) -> None:
        ask = Stage(UNNUMBERED, self._open(), operation)
        encode_within(ask, self._requests.welcome.limits.message_bytes)
        await self._requests.request(ask, self._seconds)

    async def _settle(self, message: Message, outcome: Settlement, delay: float = 0.0) -> None:
        number = self._open()
        staged = message.stage(outcome, delay)
        self._settled += staged
        for place, (_, settle) in enumerate(staged):
            try:
                await self._requests.request(Stage(UNNUMBERED, number, settle), self._seconds)
            except RequestRefused:
                # What was refused is no part of it, nor is what was not asked for.
                for consumer, left in staged[place:]:
                    self._settled.remove((consumer, left))
                    consumer.unstage(left, done=False)
                raise

    def _give_back(self) -> None:
        for consumer, settle in self._settled:
            consumer.unstage(settle, done=False)
        self._settled.clear()


def _path(name: str, given: object) -> TopicPath:
    if not isinstance(given, str):
        raise InvalidTopic(f"the {name} is a string, and not {type(given).__name__}")
    return parse_topic(given)
