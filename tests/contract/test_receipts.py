"""The contract of what is remembered of requests: each is executed once, whatever happened meanwhile (P5)."""

from __future__ import annotations

import pytest

from gateway.core.types import RequestNumber, SessionId, TopicPath, Version
from gateway.ports import (
    AnswerCommand,
    AnswerStep,
    AskCommand,
    AskedAll,
    AskState,
    Fenced,
    Grid,
    HeldQuestion,
    NotDeclared,
    Published,
    QuestionStep,
    QueueBounds,
    QueueFull,
    Removal,
    SendResult,
    Sent,
    Settlement,
    SettleResult,
)
from tests.contract.examples import DEPTH, ownership, publish, session, topic_of
from tests.contract.harness import Harness
from tests.contract.queue_users import FREE, JOBS, PARTITION, User

pytestmark = pytest.mark.promise("P5")

TOPIC = TopicPath("jobs/status")
NO_REQUEST = RequestNumber(0)


def test_the_topic_and_the_queue_share_a_partition() -> None:
    assert DEPTH == 1
    assert topic_of(TOPIC) == PARTITION


async def test_a_settlement_is_remembered_when_its_consumer_has_left(harness: Harness) -> None:
    """Found: both were asked again after a failover, and the client was told that it had not held the messages."""
    grid = await harness.grid()
    user = User(grid)
    a, b, other = await user.send("a", "b", "c")
    await user.attach()
    assert (await user.settle(Settlement.ACCEPT, a, b, request=7)).complete
    assert not (await user.settle(Settlement.ACCEPT, b, request=8)).complete
    await user.leave()
    user.epoch = 2

    assert await user.settle(Settlement.ACCEPT, a, b, request=7) == SettleResult((), duplicate=True, complete=True)
    assert await user.settle(Settlement.ACCEPT, b, request=8) == SettleResult((), duplicate=True, complete=False)
    never = SettleResult((other,), duplicate=False, complete=False)
    assert await user.settle(Settlement.ACCEPT, other, request=9) == never, "it holds nothing now"
    assert await user.settle(Settlement.ACCEPT, other, request=0) == never
    assert await user.settle(Settlement.ACCEPT, other, request=4) == never, "nothing is known of that"


async def test_a_send_is_remembered_when_its_queue_is_gone(harness: Harness) -> None:
    """It was executed; whoever took the message may have worked on it."""
    grid = await harness.grid()
    user = User(grid)
    queue, tight = TopicPath("$of/a-test"), QueueBounds(messages=1)

    async def send(request: int) -> SendResult:
        (result,) = await grid.queues.send([user.command("x", request, queue=queue, bounds=tight)])
        return result

    await grid.queues.declare(queue, tight, source="of a test")
    sent, full = await send(1), await send(2)
    assert isinstance(sent, Sent)
    assert full == QueueFull(duplicate=False)
    assert await grid.queues.remove(queue, force=True) is Removal.DONE
    assert await send(1) == sent._replace(duplicate=True)
    assert await send(2) == QueueFull(duplicate=True)
    assert await send(3) == NotDeclared(queue)


async def _published(grid: Grid, user: User, request: int) -> object:
    (result,) = await grid.topics.publish([publish(ownership(user.record, epoch=user.epoch), request, TOPIC)])
    return result


async def test_a_number_that_was_another_kinds_tells_nothing(harness: Harness) -> None:
    """Found: a publish by the number of a send was told the id of the message as its version, and no event at all."""
    grid = await harness.grid()
    user = User(grid)
    forgotten = Published(Version(0), "", duplicate=True)  # type: ignore[arg-type]
    (first,) = await user.send("1")
    await user.attach()
    await grid.queues.send([user.command("x" * 99, 2, bounds=FREE._replace(size=1))])
    await user.settle(Settlement.ACCEPT, first, request=3)
    for request in (1, 2, 3):
        assert await _published(grid, user, request) == forgotten, request
    assert isinstance(await _published(grid, user, 4), Published)
    assert await grid.queues.send([user.command("x", 4)]) == [Sent(0, duplicate=True)]  # type: ignore[arg-type]
    for request in (1, 2, 4):
        assert await user.settle(Settlement.ACCEPT, request=request) == SettleResult((), duplicate=True, complete=True)
    question = QuestionStep(RequestNumber(4), ("x",), b"t", 60.0)
    mine = ownership(user.record)
    asked = await grid.exchanges.ask(AskCommand(mine, NO_REQUEST, PARTITION, "", (question,), 0, 0))
    assert isinstance(asked, AskedAll)
    assert asked.results == ((AskState.FORGOTTEN, True),)
    answer = AnswerStep(RequestNumber(1), HeldQuestion(1, SessionId("a"), RequestNumber(1)), b"1", failed=False)
    (answered,) = await grid.exchanges.answer(AnswerCommand(mine, NO_REQUEST, PARTITION, (answer,), 0))
    assert answered == (True, True)


@pytest.mark.promise("P3")
async def test_what_is_asked_again_keeps_no_owner_out(harness: Harness) -> None:
    """A newer owner that executes something does, as it always did; one that only hears an answer again has not."""
    grid = await harness.grid()
    user = User(grid, session())
    await user.send("1")
    await _published(grid, user, 2)
    user.epoch = 2
    assert await grid.queues.send([user.command("1", 1)]) != [], "asked again"
    await _published(grid, user, 2)
    user.epoch = 1
    assert isinstance(await _published(grid, user, 3), Published)
    user.epoch = 2
    assert isinstance(await _published(grid, user, 4), Published)
    user.epoch = 1
    assert isinstance(await _published(grid, user, 5), Fenced)
    assert (await grid.queues.look(JOBS)) is not None
