"""What concerns many sessions or topics of a node is done in portions, between which others have a turn (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from gateway.app.delivery import delivery, flusher, replicas
from gateway.app.delivery.flusher import Numbered
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.topics import selection_index
from gateway.core.topics.versions import is_later
from gateway.core.types import EventId, TopicPath
from gateway.core.wire.packets import Notice
from gateway.ports import TopicValue
from tests.support.clock import eventually
from tests.support.delivery import DeliveryBench, Reader

MANY = 25
"""Sessions or topics, and portions of a few of them."""


async def test_what_a_change_of_selections_makes_outdated_is_given_up_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One subscriber more of everything makes the answer for each topic wrong that has a subscriber of its own."""
    monkeypatch.setattr(selection_index, "TIDIED_AT_ONCE", 5)
    bench = DeliveryBench()
    index = bench.delivery._index
    await bench.subscribe(bench.session(Reader()), "a/**")
    for number in range(MANY):
        await bench.subscribe(bench.session(Reader()), f"a/{number}")
    bench.publish(*(f"a/{number}" for number in range(MANY)))
    await eventually(lambda: len(index._made) == MANY)
    await bench.subscribe(bench.session(Reader()), "a/**")
    left = [index.outdated]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(index.outdated)
    assert left[0] == MANY - 5
    assert all(before - after <= 5 for before, after in pairwise(left))
    assert not index._made
    await bench.close()


async def test_of_those_who_do_not_read_some_are_looked_at_each_time_and_all_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crowd that takes nothing must not be what the node spends its time on; who reads again is served soon."""
    monkeypatch.setattr(flusher, "LOOKED_AT_ONCE", 5)
    monkeypatch.setattr(flusher, "POLL_BLOCKED", 0.0)
    bench = DeliveryBench()
    readers = [Reader() for _ in range(MANY)]
    sessions = [bench.session(reader) for reader in readers]
    for session, reader in zip(sessions, readers, strict=True):
        await bench.subscribe(session, "a/**")
        reader.room = False
    bench.publish("a/1")
    await eventually(lambda: bench.flusher.blocked == MANY)
    looks: list[list[Session]] = [[]]  # by the timer that is set already
    blocked: list[int] = []  # after each of the others
    look, number = bench.flusher._poll_blocked, bench.flusher._number

    def counted_look() -> None:
        looks.append([])
        look()
        blocked.append(bench.flusher.blocked)

    def counted_number(session: Session) -> Numbered | None:
        looks[-1].append(session)
        return number(session)

    monkeypatch.setattr(bench.flusher, "_poll_blocked", counted_look)
    monkeypatch.setattr(bench.flusher, "_number", counted_number)
    await eventually(lambda: len(looks) > 2 * MANY)
    assert all(len(each) == 5 for each in looks)
    assert set(blocked) == {MANY}
    rounds = looks[1 : 1 + MANY // 5]
    assert {session for each in rounds for session in each} == set(sessions)
    monkeypatch.undo()
    readers[3].room = True
    await eventually(lambda: len(readers[3].updates) == 1)
    assert bench.flusher.blocked == MANY - 1
    assert not bench.too_slow
    assert not bench.failures
    await bench.close()


async def test_a_loss_is_told_to_some_at_a_time_and_to_who_comes_meanwhile_before_values_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P2: everybody who has seen what went before is told; P20: ten thousand are not told in one turn of the loop."""
    monkeypatch.setattr(delivery, "TOLD_AT_ONCE", 5)
    bench = DeliveryBench()
    sessions = [bench.session(Reader()) for _ in range(MANY)]
    for session in sessions:
        await bench.subscribe(session, "a/**")
    left, late = sessions[-1], bench.session(Reader())
    told: list[list[Session]] = []
    followed = len(bench.grid.follows)
    notify = bench.delivery.notify

    def counted(some: Iterable[Session], notice: Notice) -> None:
        told.append(list(some))
        assert len(bench.grid.follows) == followed, "values come behind the notice"
        notify(told[-1], notice)

    monkeypatch.setattr(bench.delivery, "notify", counted)
    telling = asyncio.create_task(bench.delivery._positions_lost({bench.partition("a/1").number: None}))
    later = asyncio.create_task(bench.delivery.declare_loss_to_all(sessions))
    turns = 0
    while not telling.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 2:
            bench.delivery.forget(left)
            await bench.subscribe(late, "a/**")
    assert max(map(len, told)) == 5
    assert sorted(each.id for some in told for each in some) == sorted(each.id for each in [*sessions[:-1], late])
    assert turns >= MANY // 5
    monkeypatch.undo()
    await later
    await eventually(lambda: len(bench.grid.follows) == followed + 1)
    await bench.close()


async def test_that_the_grid_lost_writes_is_told_to_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TOLD_AT_ONCE", 5)
    bench = DeliveryBench()
    sessions = [bench.session(Reader()) for _ in range(MANY)]
    telling = asyncio.create_task(bench.delivery.declare_loss_to_all(each for each in sessions if not each.dropped))
    sessions[-1].dropped = True
    counts = [0]
    while not telling.done():
        await asyncio.sleep(0)
        counts.append(int(bench.metrics.counts(catalogue.LOSSES_DECLARED).get("grid", 0)))
    assert all(after - before <= 5 for before, after in pairwise(counts))
    assert counts[-1] == MANY - 1
    await bench.close()


async def test_values_that_are_read_again_are_compared_with_those_that_differ_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand that are what they were cost 170 ms in one go when all of them were compared at the end."""
    compared: list[tuple[EventId, EventId]] = []

    def counted(event: EventId, other: EventId) -> bool:
        compared.append((event, other))
        return is_later(event, other)

    monkeypatch.setattr(replicas, "is_later", counted)
    bench = DeliveryBench()
    await bench.subscribe(bench.session(Reader()), "a/**")
    bench.publish(*(f"a/{number}" for number in range(MANY)))
    bench.grid.publish(["a/3"])  # which the stream did not bring
    partition = bench.partition("a/1")
    bench.delivery.replicas.read_again(partition.number)
    await partition.complete.wait()
    assert {event for event, _ in compared} | {other for _, other in compared} == {
        EventId(f"{partition.number}-1-4"),
        EventId(f"{partition.number}-1-{MANY + 1}"),
    }
    await bench.close()


async def test_what_the_grid_has_lost_is_looked_for_at_some_places_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PLACES_AT_ONCE", 5)
    bench = DeliveryBench()
    session = bench.session(Reader())
    await bench.subscribe(session, "a/**")
    bench.publish(*(f"a/{number}" for number in range(MANY)))
    partition = bench.partition("a/1")
    gone, kept = TopicPath("a/2"), TopicPath("a/7")
    partition.values.remove(gone)
    held = bench.grid.values_of[partition.number]
    for topic in [each for each in held if each != kept]:
        del held[topic]
    restored: list[list[TopicPath]] = []
    restore = bench.grid.restore

    async def counted(values: Sequence[TopicValue]) -> int:
        restored.append([each.topic for each in values])
        return await restore(values)

    monkeypatch.setattr(bench.grid, "restore", counted)
    bench.delivery.replicas.read_again(partition.number)
    await partition.complete.wait()
    assert max(map(len, restored)) <= 5
    assert sorted(topic for some in restored for topic in some) == sorted(partition.values.places.keys() - {kept})
    assert held.keys() == partition.values.places.keys()
    assert bench.delivery.replicas.restored == MANY - 2
    await bench.close()
