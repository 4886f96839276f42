"""The contract of queues: each message is in one place, and is settled once, by whoever holds it (P15)."""

from __future__ import annotations

import pytest

from gateway.core.types import TopicPath
from gateway.ports import (
    AttachRefused,
    DeliveriesLost,
    Fenced,
    MessageId,
    Overflow,
    QueueFull,
    QueueState,
    Sent,
    Settlement,
    SettleResult,
    message_bytes,
)
from tests.contract.examples import expire_all, ownership, session
from tests.contract.harness import Harness, node
from tests.contract.queue_users import FREE, JOBS, PARTITION, Listener, User, state
from tests.support.clock import eventually

pytestmark = pytest.mark.promise("P15")


async def test_what_is_sent_before_somebody_consumes_waits_in_order(harness: Harness) -> None:
    """Ready messages are given oldest first; nobody has had them before."""
    grid = await harness.grid()
    sender, worker = User(grid), User(grid)
    sent = await sender.send("1", "2", "3", headers=b'{"a":"b"}')
    assert sent == sorted(sent)
    assert await state(grid) == QueueState(ready=3)

    attached = await worker.attach(credit=2)

    assert [each.message for each in attached.held] == sent[:2]
    assert all(each.tag > attached.newest and not each.redelivered for each in attached.held)
    assert await state(grid) == QueueState(ready=1, held=2, consumers=1)
    first, _, gone = await grid.queues.read(JOBS, [sent[0], sent[1], MessageId(2**40)])
    assert first is not None
    assert (first.id, first.headers, first.value, gone) == (sent[0], b'{"a":"b"}', b"1", None)


async def test_consumers_compete_each_in_its_turn(harness: Harness) -> None:
    """Whoever was served least recently is next; nobody holds more than its credit."""
    grid = await harness.grid()
    sender, one, two = User(grid), User(grid), User(grid)
    listener = Listener(grid, await one.attach(credit=3))
    await two.attach(credit=1)
    a, b, c, d, e = await sender.send("a", "b", "c", "d", "e")

    await listener.has(one, [a, c, d])
    await listener.has(two, [b])
    assert await state(grid) == QueueState(ready=1, held=4, consumers=2)

    assert (await two.settle(Settlement.ACCEPT, b)).complete
    await listener.has(two, [b, e])
    await listener.close()


async def test_a_send_is_executed_once(harness: Harness) -> None:
    """A command with this request has the same answer."""
    grid = await harness.grid()
    sender = User(grid)
    command = sender.command("1", 1)
    (again,) = await harness.asked_again(grid, lambda: grid.queues.send([command]))
    assert isinstance(again, Sent)
    assert again.duplicate
    assert await state(grid) == QueueState(ready=1)
    (other,) = await grid.queues.send([sender.command("2", 2)])
    assert isinstance(other, Sent)
    assert other.message > again.message


async def test_many_are_sent_in_order_across_steps(harness: Harness) -> None:
    """Commands of one session come in the order of their request numbers."""
    grid = await harness.grid()
    sender = User(grid)
    sent = await sender.send(*map(str, range(250)))
    assert sent == sorted(sent)
    attached = await User(grid).attach(credit=250)
    assert [each.message for each in attached.held] == sent


@pytest.mark.promise("P3")
async def test_a_former_owner_neither_sends_nor_settles(harness: Harness) -> None:
    """An epoch older than one that was here is refused."""
    grid = await harness.grid()
    user = User(grid)
    (sent,) = await user.send("1")
    await user.attach()
    old = User(grid, user.record)
    old.held = dict(user.held)
    user.epoch = 2
    attached = await user.attach()
    assert [each.message for each in attached.held] == [sent]
    assert attached.held[0].tag <= attached.newest, "it was not assigned anew"

    with pytest.raises(Fenced):
        await old.settle(Settlement.ACCEPT, sent)
    with pytest.raises(Fenced):
        await old.attach()
    with pytest.raises(Fenced):
        await old.leave()
    await user.send("2")
    (result,) = await grid.queues.send([old.command("3", 9)])
    assert isinstance(result, Fenced)
    assert (await user.settle(Settlement.ACCEPT, sent)).complete


async def test_nobody_settles_what_another_holds_or_twice(harness: Harness) -> None:
    """A message is settled by whoever holds it, by that assignment, and once."""
    grid = await harness.grid()
    one, two = User(grid), User(grid)
    await one.attach()
    (sent,) = await one.send("1")
    attached = await one.attach()
    await two.attach()
    two.held = dict(one.held)

    assert await two.settle(Settlement.ACCEPT, sent) == SettleResult((sent,), duplicate=False, complete=False)
    assert await one.settle(Settlement.ACCEPT, sent) == SettleResult((), duplicate=False, complete=True)
    assert await one.settle(Settlement.ACCEPT, sent) == SettleResult((sent,), duplicate=False, complete=False)
    assert attached.held[0].message == sent
    assert await state(grid) == QueueState(consumers=2)


async def test_a_settlement_that_was_asked_for_is_remembered(harness: Harness) -> None:
    """Asked again, its answer is the same; and no number is used for two things."""
    grid = await harness.grid()
    user = User(grid)
    (sent,) = await user.send("1")
    await user.attach()
    again = await harness.asked_again(grid, lambda: user.settle(Settlement.ACCEPT, sent, request=2))
    assert again == SettleResult((), duplicate=True, complete=True)


async def test_what_is_released_is_first_again_and_counts(harness: Harness) -> None:
    """Released messages go back to their place, and are marked."""
    grid = await harness.grid()
    one, two = User(grid), User(grid)
    a, b, c = await one.send("a", "b", "c")
    await one.attach(credit=2)
    await one.attach(credit=0)
    await one.settle(Settlement.RELEASE, b, a)

    attached = await two.attach(credit=2)

    assert [(each.message, each.deliveries, each.redelivered) for each in attached.held] == [(a, 1, True), (b, 1, True)]
    assert await state(grid) == QueueState(ready=1, held=2, consumers=2)
    del c


async def test_the_third_failure_is_the_last(harness: Harness) -> None:
    """After so many failed deliveries a message is a dead letter, in the same step."""
    grid = await harness.grid()
    bounds = FREE._replace(deliveries=3)
    user = User(grid)
    (sent,) = await user.send("1", bounds=bounds)
    for failed in range(3):
        attached = await user.attach(bounds=bounds)
        assert [each.deliveries for each in attached.held] == [failed]
        await user.attach(credit=0, bounds=bounds)
        await user.settle(Settlement.RELEASE, sent)
    assert await state(grid) == QueueState(dead=1, consumers=1)
    (letter,) = await grid.queues.dead(JOBS, count=10)
    assert (letter.message.id, letter.message.value, letter.reason, letter.deliveries) == (sent, b"1", "deliveries", 3)


async def test_what_is_rejected_is_a_dead_letter_and_can_be_revived(harness: Harness) -> None:
    """They become dead letters, and are put back as if they had never failed, or dropped."""
    grid = await harness.grid()
    user = User(grid)
    a, b = await user.send("a", "b")
    await user.attach()
    await user.settle(Settlement.REJECT, a, b)
    assert await state(grid) == QueueState(dead=2, consumers=1)
    assert {each.reason for each in await grid.queues.dead(JOBS, count=10)} == {"rejected"}

    assert await grid.queues.revive(JOBS, [b], drop=True) == 1
    assert await grid.queues.revive(JOBS, [a, b]) == 1

    assert await state(grid) == QueueState(held=1, consumers=1)
    assert [each.deliveries for each in (await user.attach()).held] == [0]


async def test_dead_letters_are_read_in_parts(harness: Harness) -> None:
    grid = await harness.grid()
    user = User(grid)
    sent = await user.send(*map(str, range(5)))
    await user.attach()
    for each in sent:
        await user.settle(Settlement.REJECT, each)
    read = [await grid.queues.dead(JOBS, count=2, skip=skip) for skip in (0, 2, 4, 6)]
    assert [[each.message.id for each in part] for part in read] == [sent[:2], sent[2:4], sent[4:], []]


async def test_what_was_sent_to_a_queue_is_counted(harness: Harness) -> None:
    """Once each, whether its request comes again, and whatever becomes of it."""
    grid = await harness.grid()
    user = User(grid)
    commands = [user.command(text, number) for number, text in enumerate("abc", start=1)]
    await grid.queues.send(commands)
    await grid.queues.send(commands)
    (first, *_) = (each.message for each in (await user.attach()).held)
    await user.settle(Settlement.ACCEPT, first)
    found = await grid.queues.look(JOBS)
    assert found is not None
    assert (found.sent, found.held) == (3, 2)


async def test_bytes_of_a_queue_are_counted_alike(harness: Harness) -> None:
    """By ``message_bytes``, to the byte: found that the in-memory grid counted less, and so took in more."""
    grid = await harness.grid()
    user = User(grid)
    plain = message_bytes(b"", b"1", expires=False)
    with_headers = message_bytes(b'{"a":"b"}', b"22", expires=True)
    await user.send("1")
    await user.send("22", headers=b'{"a":"b"}', expires=3600.0)
    found = await grid.queues.look(JOBS)
    assert found is not None
    assert found.size == plain + with_headers
    tight = FREE._replace(size=2 * plain + with_headers)
    (refused,) = await grid.queues.send([user.command("33", user.asked + 1, bounds=tight)])
    assert refused == QueueFull(duplicate=False)
    user.asked += 1
    await user.send("3", bounds=tight)
    await user.attach(credit=2)
    await user.settle(Settlement.REJECT, *user.held)
    await user.leave()
    left = await grid.queues.look(JOBS)
    assert left is not None
    assert (left.size, left.dead) == (plain, 2), "dead letters aside"
    assert await grid.queues.revive(JOBS, [each.message.id for each in await grid.queues.dead(JOBS, count=2)]) == 2
    again = await grid.queues.look(JOBS)
    assert again is not None
    assert again.size == 2 * plain + with_headers, "also what expires no more has the bytes that it had"


async def test_times_are_those_of_everybody(harness: Harness) -> None:
    """When the oldest was sent that is ready, and since when a letter is dead, in milliseconds since 1970."""
    grid = await harness.grid()
    user = User(grid)
    begun = 1_000_000_000_000
    a, b = await user.send("a", "b")
    await user.attach(credit=1)
    oldest, held = await grid.queues.read(JOBS, [b, a])
    found = await grid.queues.look(JOBS)
    assert found is not None
    assert oldest is not None
    assert held is not None
    assert found.oldest == oldest.sent >= held.sent > begun
    await harness.advance(harness.short)
    await user.attach(credit=0)
    await user.settle(Settlement.REJECT, a)
    (letter,) = await grid.queues.dead(JOBS, count=1)
    assert letter.message.sent == held.sent
    assert letter.since >= held.sent + round(harness.short * 1000)


async def test_queues_are_named_in_parts(harness: Harness) -> None:
    grid = await harness.grid()
    user = User(grid)
    names = [TopicPath(f"jobs/{name}") for name in ("ä", "a", "b/c", "b")]
    assert await grid.queues.names(PARTITION, after=None, count=9) == []
    for name in names:
        await user.send("1", queue=name)
    ordered = sorted(names)
    assert await grid.queues.names(PARTITION, after=None, count=9) == ordered
    assert await grid.queues.names(PARTITION, after=None, count=2) == ordered[:2]
    assert await grid.queues.names(PARTITION, after=ordered[1], count=9) == ordered[2:]
    assert await grid.queues.names(PARTITION, after=ordered[3], count=9) == []
    assert await grid.queues.names((PARTITION + 1) % 64, after=None, count=9) == []


@pytest.mark.promise("P7")
async def test_what_a_session_held_goes_back_when_it_leaves(harness: Harness) -> None:
    """What its client received counts, the rest does not; nothing of it is left."""
    grid = await harness.grid()
    one, two = User(grid), User(grid)
    a, b, c = await two.send("a", "b", "c")
    attached = await one.attach(credit=2)
    await one.leave(seen=attached.held[0].tag)
    await one.leave()

    held = (await two.attach()).held

    assert [(each.message, each.deliveries, each.redelivered) for each in held] == [
        (a, 1, True),
        (b, 0, True),
        (c, 0, False),
    ]


@pytest.mark.promise("P7")
async def test_a_session_that_ends_leaves_its_queues(harness: Harness) -> None:
    """When it ends, nothing of it is left, and what it held is given to others."""
    grid = await harness.grid()
    record = session(window=harness.short, connected=False, partitions=frozenset({PARTITION}))
    await grid.sessions.create(record)
    one, two = User(grid, record), User(grid)
    listener = Listener(grid, await two.attach())
    await two.attach(credit=0)
    (sent,) = await two.send("1")
    await one.attach()
    await two.attach(credit=5)

    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]

    await listener.has(two, [sent])
    left = {each for each in await harness.inventory() if record.id in each}
    assert not {each for each in left if "tombstone" not in each}
    with pytest.raises(Fenced):
        await one.attach()
    (late,) = await grid.queues.send([one.command("2", 99)])
    assert isinstance(late, Fenced)
    await listener.close()


async def test_a_consumer_whose_session_is_nowhere_can_be_dismissed(harness: Harness) -> None:
    """Found: a part of a Redis Cluster went back behind the end of a session, and its messages were held for ever."""
    grid = await harness.grid("n1")
    left, other = User(grid), User(grid)
    (message,) = await left.send("a")
    await left.attach()
    assert list(left.held) == [message]
    await other.attach()
    assert set(await grid.queues.consumers(JOBS)) == {left.record.id, other.record.id}

    assert await grid.queues.dismiss(JOBS, left.record.id)

    assert await grid.queues.consumers(JOBS) == [other.record.id]
    assert [each.message for each in (await other.attach()).held] == [message]
    assert not await grid.queues.dismiss(JOBS, left.record.id), "repeating it does nothing"
    await other.leave()
    assert await grid.queues.consumers(TopicPath("jobs/none")) == []


async def test_a_queue_without_room_refuses_for_good(harness: Harness) -> None:
    """It is refused; asked again, the answer is the same, also if there is room by then."""
    grid = await harness.grid()
    bounds = FREE._replace(messages=2)
    user = User(grid)
    a, _ = await user.send("a", "b", bounds=bounds)
    full = user.command("c", 3, bounds=bounds)
    assert await grid.queues.send([full]) == [QueueFull(duplicate=False)]
    await user.attach(credit=1, bounds=bounds)
    await user.settle(Settlement.ACCEPT, a)
    assert await grid.queues.send([full]) == [QueueFull(duplicate=True)]
    large = user.command("x" * 2000, 4, bounds=bounds._replace(size=2500))
    assert await grid.queues.send([large]) == [QueueFull(duplicate=False)]


async def test_the_oldest_makes_room_where_that_is_wanted(harness: Harness) -> None:
    """The oldest that is ready becomes a dead letter; the dead letters are bounded, too."""
    grid = await harness.grid()
    bounds = FREE._replace(messages=2, overflow=Overflow.DROP_OLDEST, dead=2)
    user = User(grid)
    sent = await user.send(*"abcdef", bounds=bounds)
    assert await state(grid) == QueueState(ready=2, dead=2)
    assert [each.message.id for each in await grid.queues.dead(JOBS, count=10)] == sent[2:4]
    assert {each.reason for each in await grid.queues.dead(JOBS, count=10)} == {"overflow"}
    assert [each.message for each in (await user.attach()).held] == sent[4:]


async def test_a_message_may_be_delayed(harness: Harness) -> None:
    """Seconds until it may be delivered, also again."""
    grid = await harness.grid()
    user = User(grid)
    listener = Listener(grid, await user.attach())
    (sent,) = await user.send("1", delay=harness.short)
    assert await state(grid) == QueueState(delayed=1, consumers=1)
    assert await grid.queues.fire(PARTITION) == 0
    await harness.advance(harness.short)
    assert await grid.queues.fire(PARTITION) == 1
    await listener.has(user, [sent])

    await user.settle(Settlement.RELEASE, sent, delay=harness.short)
    assert await state(grid) == QueueState(delayed=1, consumers=1)
    await harness.advance(harness.short)
    await grid.queues.fire(PARTITION)
    await listener.has(user, [sent, sent])
    assert await grid.queues.fire(PARTITION) == 0
    await listener.close()


async def test_a_message_may_expire(harness: Harness) -> None:
    """It is not delivered any more; one that is held expires when it comes back."""
    grid = await harness.grid()
    user = User(grid)
    a, b = await user.send("a", "b", expires=harness.short)
    await user.attach(credit=1)
    await harness.advance(harness.short)
    await grid.queues.fire(PARTITION)
    assert await state(grid) == QueueState(held=1, dead=1, consumers=1)
    await user.settle(Settlement.RELEASE, a)
    assert await state(grid) == QueueState(dead=2, consumers=1)
    assert {each.reason for each in await grid.queues.dead(JOBS, count=10)} == {"expired"}

    assert await grid.queues.revive(JOBS, [a, b]) == 2
    await user.attach(credit=2)
    await user.settle(Settlement.RELEASE, a)
    assert (await state(grid)).dead == 0, "what was put back does not expire any more"


async def test_what_is_held_too_long_is_taken_back(harness: Harness) -> None:
    """After ack_within; the assignment of before settles nothing any more."""
    grid = await harness.grid()
    bounds = FREE._replace(ack_within=harness.short)
    one, two = User(grid), User(grid)
    (sent,) = await one.send("1", bounds=bounds)
    attached = await one.attach(bounds=bounds)
    await one.settle(Settlement.ACCEPT, seen=attached.held[0].tag)
    await one.attach(credit=0, bounds=bounds)
    await harness.advance(harness.short)

    held = (await two.attach(bounds=bounds)).held

    assert [(each.message, each.deliveries) for each in held] == [(sent, 1)]
    one.held[sent] = attached.held[0].tag
    assert (await one.settle(Settlement.ACCEPT, sent)).not_held == (sent,)
    assert (await two.settle(Settlement.ACCEPT, sent)).complete


async def test_an_exclusive_queue_serves_one_after_the_other(harness: Harness) -> None:
    """One consumer at a time is given messages, the next one when it leaves."""
    grid = await harness.grid()
    bounds = FREE._replace(exclusive=True)
    one, two, three = User(grid), User(grid), User(grid)
    listener = Listener(grid, await one.attach(bounds=bounds, credit=1))
    await two.attach(bounds=bounds)
    await three.attach(bounds=bounds)
    a, b = await one.send("a", "b", bounds=bounds)
    await listener.has(one, [a])
    assert await state(grid) == QueueState(ready=1, held=1, consumers=3)

    await one.leave()

    await listener.has(two, [a, b])
    assert not listener.given(three)
    await listener.close()


async def test_consumers_are_bounded(harness: Harness) -> None:
    """A further consumer is refused; who consumes already is not."""
    grid = await harness.grid()
    one, two = User(grid), User(grid)
    await one.attach(most_consumers=1)
    refused = await grid.queues.attach(ownership(two.record), JOBS, credit=1, bounds=FREE, most_consumers=1)
    assert refused is AttachRefused.CONSUMERS
    await one.attach(most_consumers=1)


@pytest.mark.promise("P7")
async def test_nothing_is_left_of_a_queue_that_is_empty(harness: Harness) -> None:
    """None if it is empty and nobody consumes; ids go on."""
    grid = await harness.grid()
    user = User(grid)
    (first,) = await user.send("1")
    await user.attach()
    await user.settle(Settlement.ACCEPT, first)
    await user.leave()
    assert await grid.queues.look(JOBS) is None
    assert await grid.queues.fire(PARTITION) == 0
    (second,) = await user.send("2")
    assert second > first


async def test_other_nodes_hear_what_is_assigned(harness: Harness) -> None:
    """It tells of consumers of all nodes, each once and in order."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    sender, worker = User(n1), User(n2, session(owner=node("n2")))
    listener = Listener(n2, await worker.attach(credit=100))
    sent = [message for _ in range(10) for message in await sender.send("x")]
    await listener.has(worker, sent)
    await listener.close()


@pytest.mark.promise("P10")
async def test_a_grid_that_has_gone_back_gives_no_tag_again(fragile: Harness) -> None:
    """A node and its client tell messages by tags: another message with one that they know is not passed on."""
    grid = await fragile.grid()
    user = User(grid)
    await user.attach()
    (kept,) = await user.send("kept")
    snapshot = await fragile.snapshot()
    await user.send("lost", "lost")
    known = {each.tag for each in (await user.attach()).held}
    await fragile.restart(grid, snapshot=snapshot)
    await fragile.up(grid)

    other = User(grid)
    sent = await other.send("other", "other")
    held = {each.message: each.tag for each in (await user.attach()).held}

    assert held.keys() == {kept, *sent}
    assert held[kept] in known
    assert min(held[each] for each in sent) > max(known)


@pytest.mark.promise("P10")
async def test_a_restarted_grid_has_consumers_attach_again(fragile: Harness) -> None:
    """The deliveries of before do not go on; who attaches again is told what it holds."""
    grid = await fragile.grid()
    user = User(grid)
    listener = Listener(grid, await user.attach(credit=1))
    a, b = await user.send("a", "b")
    await listener.has(user, [a])
    await fragile.restart(grid)
    await fragile.up(grid)
    await eventually(lambda: DeliveriesLost(PARTITION) in listener.items, message="the deliveries are lost")

    attached = await user.attach(credit=1)

    assert [each.message for each in attached.held] == [a]
    grid.queues.follow(PARTITION, attached.position)
    assert (await user.settle(Settlement.ACCEPT, a)).complete
    await listener.has(user, [a, b])
    await listener.close()
