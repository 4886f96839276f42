"""Publishing by calls: once for each idempotency key, whichever nodes are asked how often."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from gateway.app.calls.callers import Caller, Callers, unavailable
from gateway.app.calls.idempotency_keys import KEYED_PACKETS, REPEAT, IdempotencyKeys
from gateway.app.calls.problems import refused
from gateway.app.context import Context
from gateway.app.requests.publish import time_to_live, too_large, topic_to_publish
from gateway.app.runtime.publisher_numbers import PublisherNumbers
from gateway.app.security.authorisation import Authorisation
from gateway.catalogue import metrics as catalogue
from gateway.core.topics.topics import shown
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire.codec.calls import Outcome, read_publishes, write_outcomes
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Publish
from gateway.ports import (
    CallAnswer,
    GridRefused,
    GridUnavailable,
    NotCreated,
    NotStored,
    Ownership,
    PublishCommand,
    Published,
    PublishResult,
)

NODE_NAME: Final = "$calls-"
"""Begins the name under which a node publishes for calls without a key."""

_Value: TypeAlias = tuple[TopicPath, bytes, float]
"""A topic, the value that it gets, and after how many seconds that ends."""


class CallPublishing:
    """Publishes what calls ask for.

    Args:
        context: of the node.
        callers: charges them.
        keys: of those that have one.
        authorisation: judges them.
    """

    def __init__(self, context: Context, callers: Callers, keys: IdempotencyKeys, authorisation: Authorisation) -> None:
        self._me = context.me
        self._parameters = context.parameters
        self._limits = context.limits
        self._metrics = context.metrics
        self._journal = context.journal
        self._destinations = context.destinations
        self._grid = context.grid
        self._callers = callers
        self._keys = keys
        self._authorisation = authorisation
        self._numbers = PublisherNumbers(f"{NODE_NAME}{context.me}", context.me)

    async def execute(self, caller: Caller, body: bytes, key: str) -> CallAnswer:
        """Publish.

        Args:
            caller: who asks.
            body: what is to be published.
            key: a call that was executed is not executed again with the same key of the same principal; empty for none.

        Raises:
            CallRefused: nothing was published, or nobody knows what was.
        """
        try:
            publishes, as_list = read_publishes(body)
            values = [self._judge(caller, each, place if as_list else None) for place, each in enumerate(publishes)]
        except RequestRefused as error:
            self._metrics.add(catalogue.PUBLISHES, label="refused")
            raise refused(error) from None
        size = sum(len(value) for _, value, _ in values)
        self._callers.charge(caller, len(values) * (KEYED_PACKETS if key else 1), read=len(body), published=size)
        try:
            if key:
                ownership = await self._keys.bind(caller, key, body)
                results = await self._grid.topics.publish(
                    self._commands(caller, ownership, RequestNumber(0), 1, values)
                )
            else:
                with self._numbers.take(len(values)) as (numbers, settled):
                    commands = self._commands(caller, self._numbers.ownership, settled, numbers.start, values)
                    results = await self._grid.topics.publish(commands)
        except GridUnavailable:
            raise unavailable(f"the grid is unreachable; some may have been published: {REPEAT[bool(key)]}") from None
        return self._answer(caller, values, results, as_list=as_list)

    def _judge(self, caller: Caller, publish: Publish, place: int | None) -> _Value:
        where = "" if place is None else f"publish[{place}]: "
        try:
            largest = self._parameters.limits.value_bytes
            if len(publish.value) > largest:
                raise too_large(publish, largest)
            topic = topic_to_publish(publish.topic)
            if not caller.permissions.publishes_all:
                self._authorisation.check_publish(caller, topic)
        except RequestRefused as error:
            raise RequestRefused(f"{where}{error}", code=error.code) from None
        return topic, publish.value, time_to_live(publish, topic, self._destinations)

    def _commands(
        self, caller: Caller, ownership: Ownership, settled: RequestNumber, first: int, values: Sequence[_Value]
    ) -> list[PublishCommand]:
        most, most_bytes = self._limits.most_topics(caller), self._parameters.partition_bytes
        has_history, history = self._destinations.has_history, self._destinations.history
        return [
            PublishCommand(
                ownership,
                RequestNumber(number),
                settled,
                topic,
                value,
                stored=False,
                most_topics=most,
                most_bytes=most_bytes,
                history=history(topic) if has_history else None,
                ttl=ttl,
            )
            for number, (topic, value, ttl) in enumerate(values, first)
        ]

    def _answer(
        self, caller: Caller, values: Sequence[_Value], results: Sequence[PublishResult], *, as_list: bool
    ) -> CallAnswer:
        outcomes = [self._outcome(caller, topic, each) for (topic, *_), each in zip(values, results, strict=True)]
        repeated = sum(each.repeated for each in outcomes)
        failed = sum(each.code is not None for each in outcomes)
        for label, count in (
            ("duplicate", repeated),
            ("refused", failed),
            ("published", len(outcomes) - repeated - failed),
        ):
            if count:
                self._metrics.add(catalogue.PUBLISHES, count, label=label)
        created = sum(isinstance(each, Published) and each.created for each in results)
        if created:
            self._limits.created(caller, created)
        if failed and not as_list:
            outcome = outcomes[0]
            raise refused(RequestRefused(outcome.message, code=outcome.code))
        status = HTTPStatus.MULTI_STATUS if failed else HTTPStatus.OK
        return CallAnswer(status, write_outcomes(outcomes, as_list=as_list))

    def _outcome(self, caller: Caller, topic: TopicPath, result: PublishResult) -> Outcome:
        match result:
            case Published():
                return Outcome(topic, result.version, result.event, result.duplicate)
            case NotCreated():
                error: Exception = self._limits.too_many_topics(caller)
                code = ErrorCode.TOO_MANY_TOPICS
            case NotStored():
                error, code = self._limits.too_many_bytes(caller), ErrorCode.TOO_MANY_BYTES
            case GridRefused():
                error, code = result, ErrorCode.GRID_UNAVAILABLE
            case _:
                raise AssertionError(f"a publisher that is no session was fenced off from {shown(topic)}")
        return Outcome(topic, code=code, message=str(error))
