"""Sending to queues by calls: once for each idempotency key, whichever nodes are asked how often (P5, P15)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, TypeAlias
from zlib import crc32

from gateway.app.calls.callers import Caller, Callers, unavailable
from gateway.app.calls.idempotency_keys import KEYED_PACKETS, REPEAT, IdempotencyKeys
from gateway.app.calls.problems import refused
from gateway.app.context import Context
from gateway.app.requests.messages import CheckedMessage, MessageRules, no_queue
from gateway.app.runtime.publisher_numbers import PublisherNumbers
from gateway.app.security.authorisation import Authorisation
from gateway.catalogue import queue_metrics as catalogue
from gateway.core.topics.topics import shown
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire.codec.sends import SendOutcome, read_sends, write_send_outcomes
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.queue_packets import Send
from gateway.ports import (
    CallAnswer,
    GridRefused,
    GridUnavailable,
    NotDeclared,
    Ownership,
    QueueFull,
    SendCommand,
    SendResult,
    Sent,
)

NODE_NAME: Final = "$sends-"
"""Begins the names under which a node sends for calls without a key."""

NAMES: Final = 16
"""Names under which a node sends for calls without a key. The requests of one name must come to the grid in order, so
calls of one name wait for each other; principals are spread over the names."""

_Item: TypeAlias = tuple[Send, CheckedMessage]


class _Name:
    """A name under which this node sends.

    Attributes:
        numbers: of its requests.
        turn: held by the call that sends under it.
    """

    __slots__ = ("numbers", "turn")

    def __init__(self, context: Context, number: int) -> None:
        self.numbers = PublisherNumbers(f"{NODE_NAME}{number}-{context.me}", context.me)
        self.turn = asyncio.Lock()


class CallSending:
    """Sends what calls ask for.

    Args:
        context: of the node.
        callers: charges them.
        keys: of those that have one.
        authorisation: judges them.
    """

    def __init__(self, context: Context, callers: Callers, keys: IdempotencyKeys, authorisation: Authorisation) -> None:
        self._metrics = context.metrics
        self._traffic = context.journal.queues
        self._queues = context.grid.queues
        self._callers = callers
        self._keys = keys
        self._rules = MessageRules(context, authorisation)
        self._names = [_Name(context, number) for number in range(NAMES)]

    async def execute(self, caller: Caller, body: bytes, key: str) -> CallAnswer:
        """Send.

        Args:
            caller: who asks.
            body: what is to be sent.
            key: a call that was executed is not executed again with the same key of the same principal; empty for none.

        Raises:
            CallRefused: nothing was sent, or nobody knows what was.
        """
        try:
            sends, as_list = read_sends(body)
            items = [self._judge(caller, each, place if as_list else None) for place, each in enumerate(sends)]
        except RequestRefused as error:
            self._metrics.add(catalogue.QUEUE_SENDS, label="refused")
            raise refused(error) from None
        size = sum(len(each.value) for each, _ in items)
        self._callers.charge(caller, len(items) * (KEYED_PACKETS if key else 1), read=len(body), published=size)
        try:
            if key:
                ownership = await self._keys.bind(caller, key, body)
                results = await self._queues.send(_commands(ownership, RequestNumber(0), 1, items))
            else:
                results = await self._send_in_turn(caller, items)
        except GridUnavailable:
            raise unavailable(f"the grid is unreachable; some may have been sent: {REPEAT[bool(key)]}") from None
        return self._answer(items, results, as_list=as_list)

    async def _send_in_turn(self, caller: Caller, items: Sequence[_Item]) -> list[SendResult]:
        name = self._names[crc32(caller.principal.encode()) % NAMES]
        async with name.turn:
            with name.numbers.take(len(items)) as (numbers, settled):
                return await self._queues.send(_commands(name.numbers.ownership, settled, numbers.start, items))

    def _judge(self, caller: Caller, send: Send, place: int | None) -> _Item:
        where = "" if place is None else f"send[{place}]: "
        try:
            return send, self._rules.check(caller, send)
        except RequestRefused as error:
            raise RequestRefused(f"{where}{error}", code=error.code) from None

    def _answer(self, items: Sequence[_Item], results: Sequence[SendResult], *, as_list: bool) -> CallAnswer:
        outcomes = [self._outcome(each.queue, result) for (_, each), result in zip(items, results, strict=True)]
        failed = [each for each in outcomes if each.code is not None]
        if failed and not as_list:
            raise refused(RequestRefused(failed[0].reason, code=failed[0].code))
        status = HTTPStatus.MULTI_STATUS if failed else HTTPStatus.OK
        return CallAnswer(status, write_send_outcomes(outcomes, as_list=as_list))

    def _outcome(self, queue: TopicPath, result: SendResult) -> SendOutcome:
        match result:
            case Sent(message, duplicate) if message:
                self._metrics.add(catalogue.QUEUE_SENDS, label="duplicate" if duplicate else "sent")
                if self._traffic is not None and not duplicate:
                    self._traffic.sent(queue)
                return SendOutcome(queue, message, repeated=duplicate)
            case Sent() | NotDeclared():
                # There is no receipt under a key where an earlier call found no queue: nothing is remembered then.
                self._metrics.add(catalogue.QUEUE_SENDS, label="refused")
                return _failed(queue, no_queue(queue))
            case QueueFull():
                self._metrics.add(catalogue.QUEUE_SENDS, label="full")
                why = f"the queue {shown(queue)} is full; the message was not sent"
                return _failed(queue, RequestRefused(why, code=ErrorCode.QUEUE_FULL))
            case GridRefused():
                return _failed(queue, RequestRefused(str(result), code=ErrorCode.GRID_UNAVAILABLE))
            case _:
                raise AssertionError(f"a sender that is no session was fenced off from {shown(queue)}")


def _commands(ownership: Ownership, settled: RequestNumber, first: int, items: Sequence[_Item]) -> list[SendCommand]:
    return [
        SendCommand(
            ownership=ownership,
            request=RequestNumber(number),
            settled=settled,
            queue=checked.queue,
            value=send.value,
            headers=checked.headers,
            bounds=checked.bounds,
            delay=send.delay,
            expires=checked.expires,
            stored=False,
        )
        for number, (send, checked) in enumerate(items, first)
    ]


def _failed(queue: TopicPath, error: RequestRefused) -> SendOutcome:
    return SendOutcome(queue, code=error.code, reason=str(error))
