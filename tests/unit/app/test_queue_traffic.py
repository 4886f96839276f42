"""What nodes count of queues for the journal."""

from __future__ import annotations

from gateway.app.journal.queue_traffic import (
    LONGEST_MS,
    QUEUES_COUNTED,
    QUEUES_TOLD,
    THE_REST,
    QueueTally,
    QueueTraffic,
)
from gateway.core.types import TopicPath
from gateway.core.wire.queue_packets import Settlement

WORK = TopicPath("jobs/work")


def test_messages_are_counted_by_what_became_of_them() -> None:
    traffic = QueueTraffic()
    for _ in range(5):
        traffic.sent(WORK)
        traffic.given(WORK, redelivered=False)
    traffic.given(WORK, redelivered=True)
    traffic.settled(WORK, Settlement.ACCEPT, [100, 300])
    traffic.settled(WORK, Settlement.REJECT, [5])
    traffic.settled(WORK, Settlement.RELEASE, [5])
    assert traffic.take() == {
        WORK: QueueTally(
            sent=5,
            given=6,
            redelivered=1,
            accepted=2,
            rejected=1,
            released=1,
            settle_ms=400,
            settle_max_ms=300,
        )
    }
    assert traffic.take() == {}


def test_a_time_that_cannot_be_counts_as_one_that_can() -> None:
    traffic = QueueTraffic()
    traffic.settled(WORK, Settlement.ACCEPT, [None, -50, 10 * LONGEST_MS])
    (tally,) = traffic.take().values()
    assert (tally.accepted, tally.settle_ms, tally.settle_max_ms) == (3, LONGEST_MS, LONGEST_MS)


def test_queues_that_nobody_declared_are_left_out() -> None:
    traffic = QueueTraffic()
    traffic.given(TopicPath("$shared/af31/9c02"), redelivered=False)
    assert traffic.take() == {}


def test_the_busiest_have_records_of_their_own_and_nothing_is_left_out() -> None:
    traffic = QueueTraffic()
    for number in range(QUEUES_COUNTED + 10):
        queue = TopicPath(f"q/{number}")
        traffic.sent(queue)
        traffic.settled(queue, Settlement.ACCEPT, [number])
    traffic.sent(TopicPath("q/7"))
    told = traffic.take()
    assert len(told) == QUEUES_TOLD + 1
    assert next(iter(told)) == "q/7"
    assert sum(each.sent for each in told.values()) == QUEUES_COUNTED + 11
    assert sum(each.accepted for each in told.values()) == QUEUES_COUNTED + 10
    assert told[TopicPath(THE_REST)].settle_max_ms == QUEUES_COUNTED + 9
