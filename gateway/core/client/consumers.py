"""What a client knows of the queues that it consumes from: which messages it has, and which it asks for again (P15).

A session holds its messages wherever it goes on, and whoever goes on with it sends all of them again that are not
settled (protocol 13.5). Where packet numbers go on the client has them already, and passes none on twice. Where they
begin anew, what the application has not settled comes again, marked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from gateway.core.client.request_table import UNNUMBERED
from gateway.core.topics.topics import is_reserved
from gateway.core.types import DeliveryTag
from gateway.core.wire.queue_packets import (
    AckMode,
    Consume,
    Message,
)

REMEMBERED: Final = 4_096
"""Deliveries of a queue that are remembered though they are settled: four times what a session may hold."""


class Consumer:
    """One queue that a session consumes from.

    Args:
        queue: which.
        credit: messages that may be held without being settled.
        mode: how they are settled.
    """

    __slots__ = ("_again", "_done", "_held", "_newest", "_settling", "credit", "mode", "owed", "queue")

    def __init__(self, queue: str, credit: int, mode: AckMode) -> None:
        self.queue = queue
        self.credit = credit
        self.mode = mode
        self.owed = 0
        """Messages received since the last acknowledgement that settles them."""
        self._newest = DeliveryTag(0)
        self._held: set[DeliveryTag] = set()
        self._again: set[DeliveryTag] = set()
        """Held ones that may come again, as packet numbers have begun anew."""
        self._settling: set[DeliveryTag] = set()
        """Those of which the application has said what becomes of them, and whose settlement has no answer yet."""
        self._done: OrderedDict[DeliveryTag, None] = OrderedDict()

    def received(self, message: Message) -> Message | None:
        """Take in a message; returns it as the application gets it, or None if it has it."""
        tag = message.delivery
        is_known = tag <= self._newest
        self._newest = max(self._newest, tag)
        if self.mode is not AckMode.EACH:
            if tag in self._done:
                return None
            self._remember(tag)
            self.owed += self.mode is AckMode.AUTO
        elif tag in self._settling:
            return None  # the settlement was asked for, and is asked for again as long as it takes
        elif tag in self._held:
            if tag not in self._again:
                return None
            self._again.discard(tag)
        else:
            self._held.add(tag)
        return replace(message, redelivered=True) if is_known and not message.redelivered else message

    def settle(self, tags: Collection[DeliveryTag]) -> None:
        """The application has said what becomes of messages; until there is an answer, they are nothing new."""
        self._held.difference_update(tags)
        self._again.difference_update(tags)
        self._settling.update(tags)

    def settled(self, tags: Iterable[DeliveryTag]) -> None:
        """There is an answer, or nobody waits for one; should the messages come all the same, it is given them."""
        self._settling.difference_update(tags)

    def keep(self, tags: Iterable[DeliveryTag]) -> None:
        """What the application has said does not hold any more: it has them still, and may settle them otherwise."""
        self._held.update(tags)

    def recovered(self, *, restarted: bool) -> Consume:
        """The session goes on at another place: tell how to ask for what it holds."""
        if restarted:
            self._again = set(self._held)
        return Consume(UNNUMBERED, self.queue, self.credit, self.mode)

    def _remember(self, tag: DeliveryTag) -> None:
        self._done[tag] = None
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)


class Consumers:
    """All queues that a session consumes from."""

    def __init__(self) -> None:
        self._by_queue: dict[str, Consumer] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._by_queue

    def begin(self, queue: str, credit: int, mode: AckMode) -> None:
        """Expect messages of a queue."""
        self._by_queue[queue] = Consumer(queue, credit, mode)

    def allow(self, queue: str, credit: int) -> None:
        """Note another credit, for when it has to be asked for again."""
        self._by_queue[queue].credit = credit

    def end(self, queue: str) -> None:
        """Expect none any more."""
        self._by_queue.pop(queue, None)

    def received(self, message: Message) -> Message | None:
        """Take in a message; None if it is nothing new, or nobody wants it any more."""
        consumer = self._by_queue.get(message.queue)
        return None if consumer is None else consumer.received(message)

    def settle(self, queue: str, tags: Collection[DeliveryTag]) -> None:
        """See ``Consumer.settle``."""
        if (consumer := self._by_queue.get(queue)) is not None:
            consumer.settle(tags)

    def keep(self, queue: str, tags: Iterable[DeliveryTag]) -> None:
        """See ``Consumer.keep``."""
        if (consumer := self._by_queue.get(queue)) is not None:
            consumer.keep(tags)

    def settled(self, queue: str, tags: Iterable[DeliveryTag]) -> None:
        """See ``Consumer.settled``."""
        if (consumer := self._by_queue.get(queue)) is not None:
            consumer.settled(tags)

    def recovered(self, *, restarted: bool) -> list[Consume]:
        """Tell what to ask where the session goes on with what the grid holds; see ``Consumer.recovered``."""
        return [each.recovered(restarted=restarted) for each in self._by_queue.values()]

    def doubtful(self) -> list[Consume]:
        """Tell what to ask where the grid has lost writes: queues that nobody describes may be lost themselves."""
        return [each.recovered(restarted=False) for queue, each in self._by_queue.items() if is_reserved(queue)]

    def must_acknowledge(self) -> bool:
        """Tell whether an acknowledgement is due before its time: half of what a consumer may hold waits for it."""
        due = any(each.owed and 2 * each.owed >= each.credit for each in self._by_queue.values())
        if due:
            for each in self._by_queue.values():
                each.owed = 0
        return due
