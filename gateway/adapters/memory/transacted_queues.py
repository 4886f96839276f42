"""What transactions do in the queues of an in-memory grid."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.memory.queue_records import StoredQueue
from gateway.adapters.memory.queue_table import MOST_QUEUES, NOTHING_SEEN, Queues, oldest_over
from gateway.core.types import GridGeneration, MessageId, RequestNumber, SessionId, TopicPath
from gateway.ports import (
    Overflow,
    Settlement,
    SettleStep,
    StagedSend,
    StagedSettle,
    TransactionRefused,
    message_bytes,
)


class TransactedQueues(Queues):
    """Queues in which transactions are looked at first, and then executed as a whole."""

    def refuses(  # noqa: C901 - what is settled, and then what is sent
        self, session: SessionId, name: TopicPath, operations: Sequence[StagedSend | StagedSettle], now: float
    ) -> TransactionRefused | None:
        """Tell why a transaction cannot settle and send in a queue; what is due there is done first."""
        partition = self._partitions[self.partition(name)]
        queue = partition.queues.get(name)
        consumer = None if queue is None else queue.consumers.get(session)
        taken: set[tuple[int, MessageId]] = set()
        spare: list[int] = []
        for each in operations:
            if isinstance(each, StagedSettle):
                for tag, message in each.messages:
                    held = consumer is not None and consumer.held.get(tag, (None,))[0] == message
                    if queue is None or not held or (tag, message) in taken:
                        return TransactionRefused.NOT_HELD
                    taken.add((tag, message))
                    if each.outcome is Settlement.ACCEPT:
                        spare.append(queue.messages[message].size)
        sends = [each for each in operations if isinstance(each, StagedSend)]
        if not sends:
            return None
        if self.is_undeclared(name):
            return TransactionRefused.ABSENT
        if queue is None and len(partition.queues) >= MOST_QUEUES:
            return TransactionRefused.QUEUE_FULL
        bounds = sends[-1].bounds
        if queue is not None:
            self._fire(queue, now, taken)
        living = [] if queue is None else queue.living()
        count, size = len(living) - len(spare), sum(each.size for each in living) - sum(spare)
        for send in sends:
            more = message_bytes(send.headers, send.value, expires=bool(send.expires))
            count, size = count + 1, size + more
            over, over_bytes = count - bounds.messages, size - bounds.size
            if over <= 0 and over_bytes <= 0:
                continue
            drops = bounds.overflow is Overflow.DROP_OLDEST and more <= bounds.size
            if queue is None or not drops or oldest_over(queue, over, over_bytes) is None:
                return TransactionRefused.QUEUE_FULL
        return None

    def execute(
        self,
        session: SessionId,
        name: TopicPath,
        operations: Sequence[StagedSend | StagedSettle],
        generation: GridGeneration,
        now: float,
    ) -> None:
        """Execute what a transaction does in a queue."""
        partition = self._partitions[self.partition(name)]
        sent: list[MessageId] = []
        for each in operations:
            if isinstance(each, StagedSend):
                queue = partition.queues.setdefault(name, StoredQueue(each.bounds))
                queue.bounds = each.bounds
                sent.append(self._add(partition, queue, each, generation, now))
            else:
                step = SettleStep(RequestNumber(0), each.outcome, each.messages, each.delay)
                self.settle(session, name, step, now)
                self.see(session, name, max((tag for tag, _ in each.messages), default=NOTHING_SEEN))
        queue = partition.queues[name]
        self._fire(queue, now)
        self._assign(partition, name, generation, now, None)
        bounds = queue.bounds
        while sent and queue.ready and bounds.overflow is Overflow.DROP_OLDEST:
            living, oldest = queue.living(), min(queue.ready)
            fits = len(living) <= bounds.messages and sum(each.size for each in living) <= bounds.size
            if fits or oldest >= sent[0]:
                break
            self._bury(queue, oldest, "overflow", now)
        self._close(partition, name, generation, now)
