"""What a client knows of the messages that it has: none comes twice where nothing was lost (P15, protocol 13.5.3)."""

from __future__ import annotations

import pytest

from gateway.core.client.consumers import Consumers
from gateway.core.types import DeliveryTag, MessageId, TopicPath
from gateway.core.wire.queue_packets import AckMode, Message

pytestmark = pytest.mark.promise("P15")

QUEUE = TopicPath("jobs/render")


def consuming() -> Consumers:
    consumers = Consumers()
    consumers.begin(QUEUE, 8, AckMode.EACH)
    return consumers


def message(tag: int) -> Message:
    return Message(queue=QUEUE, message=MessageId(100 + tag), delivery=DeliveryTag(tag), sent=5, value=1)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_being_settled_is_nothing_new_until_there_is_an_answer(*, restarted: bool) -> None:
    """A node may read what the session holds before it comes to the settlement, which it is asked for again."""
    consumers = consuming()
    assert consumers.received(message(1)) is not None
    consumers.settle(QUEUE, [DeliveryTag(1)])
    consumers.recovered(restarted=restarted)
    assert consumers.received(message(1)) is None
    consumers.settled(QUEUE, [DeliveryTag(1)])
    again = consumers.received(message(1))
    assert again is not None
    assert again.redelivered, "the grid has lost the settlement"


def test_what_is_held_comes_again_only_where_numbers_begin_anew() -> None:
    consumers = consuming()
    assert consumers.received(message(1)) is not None
    consumers.recovered(restarted=False)
    assert consumers.received(message(1)) is None
    consumers.recovered(restarted=True)
    again = consumers.received(message(1))
    assert again is not None
    assert again.redelivered
    assert consumers.received(message(1)) is None


def test_where_the_grid_has_lost_writes_queues_that_nobody_describes_are_asked_for_again() -> None:
    consumers = consuming()
    shared = TopicPath("$shared-0a/0b")
    consumers.begin(shared, 4, AckMode.AUTO)
    (ask,) = consumers.doubtful()
    assert (ask.queue, ask.credit, ask.mode) == (shared, 4, AckMode.AUTO)
