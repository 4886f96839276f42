"""Queues from the outside: the client at real nodes over one grid, through cuts, other nodes and deaths (P15)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import (
    Message,
    MessageConsumer,
    NoSuchQueue,
    NotHeld,
    QueueFull,
    RequestRefused,
    RequestTimedOut,
    Session,
    SessionState,
    connect,
)
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P15")

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(5.0),
    "lease_renew": scaled(0.2),
}
JOBS = "jobs/render"
PATIENCE = 20.0


class Cluster:
    """Nodes over one grid, which know one queue, and a proxy in front of the first."""

    def __init__(
        self, memory: MemoryGridServer, nodes: list[TestNode], proxy: CuttingProxy, stack: AsyncExitStack
    ) -> None:
        self.memory = memory
        self.nodes = nodes
        self.proxy = proxy
        self._stack = stack

    async def client(self, **arguments: Any) -> Session:
        return await self._stack.enter_async_context(connect(self.proxy.url, "alice", **arguments))

    async def elsewhere(self, node: int = 1) -> Session:
        return await self._stack.enter_async_context(connect(self.nodes[node].url, "bob"))

    async def declare(self, **limits: Any) -> None:
        await self.nodes[0].gateway.node.destinations.set(
            Destination(selector=parse_selector(JOBS), limits=QueueLimits(**limits), origin=Origin.ADMINISTRATOR)
        )
        await eventually(lambda: all(each.gateway.node.destinations.table.has_queues for each in self.nodes))

    async def state(self) -> Any:
        return await self.nodes[0].gateway.node._context.grid.queues.look(TopicPath(JOBS))

    async def until(self, **wanted: int) -> None:
        """Wait until the queue is as wanted."""
        async with time_limit(PATIENCE):
            while True:
                state = await self.state()
                if state is not None and all(getattr(state, name) == count for name, count in wanted.items()):
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def cluster(nothing_left_over: None) -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2", "n3")
        ]
        proxy = await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port))
        cluster = Cluster(memory, nodes, proxy, stack)
        await cluster.declare()
        yield cluster


async def take(consumer: MessageConsumer, count: int) -> list[Message]:
    async with time_limit(PATIENCE):
        return [await anext(consumer) for _ in range(count)]


async def test_what_is_sent_is_received_in_order_with_all_that_belongs_to_it(cluster: Cluster) -> None:
    sender, worker = await cluster.elsewhere(), await cluster.client()
    first = await sender.send(JOBS, {"frame": 1}, headers={"kind": "draft"})
    consumer = await worker.consume(JOBS, ack="each")
    second = await sender.send(JOBS, [2])
    one, two = await take(consumer, 2)
    assert (one.id, one.value, dict(one.headers)) == (first.message_id, {"frame": 1}, {"kind": "draft"})
    assert (two.id, two.value, dict(two.headers)) == (second.message_id, [2], {})
    assert not one.redelivered
    assert one.deliveries == 0
    assert abs(one.sent - two.sent) < PATIENCE
    await one.accept()
    await two.accept()
    await cluster.until(held=0, ready=0, dead=0)
    with pytest.raises(NotHeld):
        await one.accept()


async def test_by_itself_what_was_received_is_accepted(cluster: Cluster) -> None:
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, credit=4)
    for number in range(40):
        await sender.send(JOBS, number)
    assert [each.value for each in await take(consumer, 40)] == list(range(40))
    await cluster.until(held=0, ready=0)


async def test_at_most_once_is_settled_before_it_is_sent(cluster: Cluster) -> None:
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, ack="none")
    await sender.send(JOBS, 1)
    await take(consumer, 1)
    assert (await cluster.state())._replace(oldest=None) == (0, 0, 0, 0, 0, 1, None, 1)


async def test_a_slow_reader_is_given_no_more_than_it_takes(cluster: Cluster) -> None:
    """Neither this process nor the node grows: the rest stays in the queue for others."""
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, credit=2)
    await asyncio.gather(*(sender.send(JOBS, number) for number in range(60)))
    assert (await cluster.state()).ready > 40
    assert sorted(each.value for each in await take(consumer, 60)) == list(range(60))


async def test_acceptance_of_one_accepts_all_before_it(cluster: Cluster) -> None:
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, ack="client")
    for number in range(5):
        await sender.send(JOBS, number)
    messages = await take(consumer, 5)
    await messages[3].accept()
    await cluster.until(held=1)


async def test_released_and_rejected_messages_go_where_they_belong(cluster: Cluster) -> None:
    await cluster.declare(deliveries=2)
    worker = await cluster.client()
    consumer = await worker.consume(JOBS, ack="each", credit=1)
    await worker.send(JOBS, "a")
    await worker.send(JOBS, "b")
    (first,) = await take(consumer, 1)
    await first.release()
    (again,) = await take(consumer, 1)
    assert (again.id, again.deliveries, again.redelivered) == (first.id, 1, True)
    await again.release()
    (other,) = await take(consumer, 1)
    assert other.value == "b"
    await other.reject()
    await cluster.until(dead=2, held=0, ready=0)


async def test_consumers_share_the_work_and_what_one_leaves_goes_to_another(cluster: Cluster) -> None:
    sender, one, two = await cluster.elsewhere(), await cluster.client(), await cluster.elsewhere(2)
    mine = await one.consume(JOBS, ack="each", credit=2)
    others = await two.consume(JOBS, ack="each", credit=10)
    for number in range(6):
        await sender.send(JOBS, number)
    held = await take(mine, 2)
    got = await take(others, 4)
    assert {each.value for each in held + got} == set(range(6))
    await mine.cancel()
    back = await take(others, 2)
    assert [each.id for each in back] == [each.id for each in held]
    assert all(each.redelivered for each in back)
    with pytest.raises(StopAsyncIteration):
        await anext(mine)


async def test_what_cannot_be_done_is_refused_with_its_reason(cluster: Cluster) -> None:
    session = await cluster.client()
    with pytest.raises(NoSuchQueue, match="there is no queue"):
        await session.send("jobs/unknown", 1)
    with pytest.raises(NoSuchQueue):
        await session.consume("jobs/unknown")
    with pytest.raises(ValueError, match="credit"):
        await session.consume(JOBS, credit=0)
    with pytest.raises(RequestRefused, match="headers"):
        await session.send(JOBS, 1, headers={"x": "y" * 5000})
    await cluster.declare(count=1)
    await session.send(JOBS, 1)
    with pytest.raises(QueueFull):
        await session.send(JOBS, 2)
    consumer = await session.consume(JOBS)
    with pytest.raises(ValueError, match="already"):
        await session.consume(JOBS)
    await consumer.cancel()


async def test_a_cut_redelivers_nothing(cluster: Cluster) -> None:
    """Rung 1: the buffers have it, and what is held stays held."""
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, ack="each", credit=100)
    messages: list[Message] = []
    for number in range(10):
        await sender.send(JOBS, number)
        messages += await take(consumer, 1)
        cluster.proxy.cut()
        if number % 2:
            await messages[number].accept()
    assert [each.value for each in messages] == list(range(10))
    assert not any(each.redelivered for each in messages)
    for each in messages[::2]:
        await each.accept()
    await cluster.until(held=0, ready=0)


async def test_after_a_failover_what_was_not_settled_comes_again_marked(cluster: Cluster) -> None:
    """Rung 4: the session holds it still; what was settled does not come back."""
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, ack="each")
    for number in range(4):
        await sender.send(JOBS, number)
    messages = await take(consumer, 4)
    await messages[0].accept()
    await messages[2].accept()
    await cluster.nodes[0].gateway.close()
    cluster.proxy.target = cluster.nodes[1].gateway.port
    cluster.proxy.cut()
    again = await take(consumer, 2)
    assert [(each.id, each.redelivered) for each in again] == [(messages[1].id, True), (messages[3].id, True)]
    await again[0].accept()
    await messages[3].accept()
    late = await sender.send(JOBS, "late")
    (last,) = await take(consumer, 1)
    assert (last.id, last.redelivered) == (late.message_id, False)


async def test_messages_survive_cuts_moves_and_senders_that_come_again(cluster: Cluster) -> None:
    """Each is sent once, settled once, and given again only marked, whatever happens to connections."""
    random = Random(7)
    count = 300
    sender = await cluster.client()
    workers = [await cluster.client() for _ in range(3)]
    consumers = [await each.consume(JOBS, ack="each", credit=10) for each in workers]
    settled: Counter[int] = Counter()
    unmarked: Counter[int] = Counter()

    async def work(consumer: MessageConsumer) -> None:
        async for message in consumer:
            unmarked[message.value] += not message.redelivered
            try:
                await message.accept()
            except NotHeld:
                continue
            settled[message.value] += 1

    async def disturb() -> None:
        while True:
            await asyncio.sleep(random.uniform(0.01, 0.08))
            cluster.proxy.target = random.choice(cluster.nodes).gateway.port
            cluster.proxy.cut()

    tasks = [asyncio.create_task(work(each)) for each in consumers]
    disturbing = asyncio.create_task(disturb())
    try:
        for number in range(count):
            await sender.send(JOBS, number)
        disturbing.cancel()
        await cluster.until(ready=0, held=0, delayed=0)
        await eventually(lambda: len(settled) == count)
    finally:
        for each in (disturbing, *tasks):
            each.cancel()
        await asyncio.gather(disturbing, *tasks, return_exceptions=True)
    assert settled == Counter(range(count)), "each is settled once"
    assert max(unmarked.values()) == 1, "what comes again is marked"
    assert (await cluster.state()).dead == 0


@pytest.mark.promise("P7")
@pytest.mark.promise("P10")
@pytest.mark.parametrize("ack", ["each", "auto"])
async def test_after_the_grid_has_gone_back_every_message_comes(cluster: Cluster, ack: str) -> None:
    """What is sent then is another message, whatever the client has had of what is lost."""
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, ack=ack)
    await cluster.until(consumers=1)
    snapshot = cluster.memory.snapshot()
    for number in range(3):
        await sender.send(JOBS, number)
    for each in await take(consumer, 3):
        await each.accept()
    cluster.memory.go_away()
    cluster.memory.come_back(restarted=True, snapshot=snapshot)
    for number in range(3, 6):
        await sender.send(JOBS, number)

    found = await take(consumer, 3)

    assert [each.value for each in found] == [3, 4, 5]
    for each in found:
        await each.accept()
    await cluster.until(held=0, ready=0)


async def test_nothing_is_left_of_sessions_that_consumed(cluster: Cluster) -> None:
    worker = await cluster.client()
    await worker.consume(JOBS, ack="each")
    await worker.send(JOBS, 1)
    await cluster.until(held=1)
    await worker.close()
    await cluster.until(held=0, ready=1, consumers=0)


async def test_delayed_messages_come_in_time(cluster: Cluster) -> None:
    worker = await cluster.client()
    consumer = await worker.consume(JOBS)
    await worker.send(JOBS, "later", delay=0.5)
    await worker.send(JOBS, "now")
    assert [each.value for each in await take(consumer, 2)] == ["now", "later"]


@pytest.mark.promise("P7")
async def test_a_temporary_queue_is_its_sessions_and_ends_with_it(cluster: Cluster) -> None:
    asker = await connect(cluster.proxy.url, "alice")
    worker, stranger = await cluster.elsewhere(1), await cluster.elsewhere(2)
    answers = await asker.declare(temporary=True)
    assert answers != await asker.declare(temporary=True)
    consumer = await asker.consume(answers, ack="each")
    await worker.send(answers, 1)
    with pytest.raises(RequestRefused, match="another one's"):
        await stranger.consume(answers)
    (first,) = await take(consumer, 1)
    await first.accept()
    # It goes along to another node.
    cluster.proxy.target = cluster.nodes[2].gateway.port
    cluster.proxy.cut()
    await worker.send(answers, 2)
    (second,) = await take(consumer, 1)
    assert [each.value for each in (first, second)] == [1, 2]
    await asker.close()
    for gone in (answers, answers + "0", "$tmp-x/1"):
        with pytest.raises(NoSuchQueue):
            await worker.send(gone, 3)
    with pytest.raises(ValueError, match="temporary"):
        await worker.declare(temporary=False)


@pytest.mark.promise("P7")
@pytest.mark.promise("P10")
@pytest.mark.parametrize("consumes", [True, False])
async def test_a_temporary_queue_is_there_again_after_the_grid_was_emptied(cluster: Cluster, consumes: bool) -> None:
    asker, worker = await cluster.client(), await cluster.elsewhere(1)
    answers = await asker.declare(temporary=True)
    consumer = await asker.consume(answers) if consumes else None
    cluster.memory.go_away()
    cluster.memory.come_back(emptied=True)
    consumer = consumer or await asker.consume(answers)

    async def send() -> None:
        """Send to it by its name, as before, as soon as it is there."""
        while True:
            try:
                await worker.send(answers, "here")
            except NoSuchQueue:
                await asyncio.sleep(0.01)
            else:
                return

    async with time_limit(PATIENCE):
        await send()
    assert [each.value for each in await take(consumer, 1)] == ["here"]


async def test_a_cancel_that_is_given_up_while_the_session_recovers_leaves_messages_to_others(cluster: Cluster) -> None:
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS)
    cluster.proxy.cut()
    await eventually(lambda: worker.state is SessionState.RECOVERING)
    with pytest.raises(RequestTimedOut):
        await consumer.cancel(timeout=0)
    await worker.set_properties({"is": "back"})  # what was asked before is done by then
    for number in range(5):
        await sender.send(JOBS, number)
    other = await (await cluster.elsewhere(2)).consume(JOBS)
    assert [each.value for each in await take(other, 5)] == list(range(5))


async def test_a_settlement_that_is_given_up_while_the_session_recovers_is_done(cluster: Cluster) -> None:
    sender, worker = await cluster.elsewhere(), await cluster.client()
    consumer = await worker.consume(JOBS, ack="each", credit=1)
    for number in range(2):
        await sender.send(JOBS, number)
    (held,) = await take(consumer, 1)
    cluster.proxy.cut()
    await eventually(lambda: worker.state is SessionState.RECOVERING)
    with pytest.raises(RequestTimedOut):
        await held.accept(timeout=0)
    (following,) = await take(consumer, 1)  # there is credit for it again
    await held.accept()
    await following.accept()
    await cluster.until(held=0, ready=0, dead=0)
