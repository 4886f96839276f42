"""What a replay costs, and what is left of it where something goes wrong (P13, P20)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.app.delivery.recent_entries import RECENT_ENTRIES
from gateway.app.delivery.replay import gathering, replays, stretches
from gateway.app.delivery.replay.replay import Replay
from gateway.app.session.session import Session
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import topic_partition
from gateway.core.types import EventId, TopicPath
from gateway.core.wire import codec
from gateway.core.wire.codes import NotReplayed
from gateway.ports import TopicValue
from tests.support.delivery import GENERATION, DeliveryBench, Reader

A = topic_partition(TopicPath("a/x"), 1)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER", 0.0)
    monkeypatch.setattr(gathering, "LONGEST_REST", 0.0)


def updates(*topics: str) -> list[Run]:
    return [
        Run.of(Outgoing(topic, codec.encode_update(topic, number, f"{A}-1-{number}", b"0", snapshot=False)))  # type: ignore[arg-type]
        for number, topic in enumerate(topics, 1)
    ]


async def following(bench: DeliveryBench, count: int) -> None:
    """Have the node follow a stream, and bring so many updates by it."""
    await bench.subscribe(bench.session(), "a/**")
    for _ in range(count):
        bench.publish("a/x")


def returning(bench: DeliveryBench) -> Session:
    session = bench.session()
    session.selections = Selections([]).select(parse_selector("a/**"))
    return session


async def collected(bench: DeliveryBench, session: Session, place: int) -> Replay:
    return await bench.delivery.replays.collect(session, {A: EventId(f"{A}-{GENERATION}-{place}")})


@pytest.mark.promise("P9")
async def test_who_takes_nothing_of_a_replay_is_folded_before_it_is_called_slow() -> None:
    bench = DeliveryBench(outbox_packets=10)
    reader = Reader()
    reader.room = False
    session = bench.session(reader)
    session.machine.submit_replay(updates(*["a/x", "a/y"] * 6))

    bench.flusher.mark(session)
    await bench.turns(5)
    assert not bench.too_slow
    assert (session.machine.waiting, session.machine.conflated) == (2, 10)

    for run in updates(*(f"a/{number}" for number in range(11))):
        session.machine.submit_run(run)
    bench.flusher.mark(session)
    await bench.turns(5)
    assert bench.too_slow[:1] == [session]
    await bench.close()


async def test_a_replay_within_the_bound_waits_unfolded() -> None:
    bench = DeliveryBench(outbox_packets=100)
    reader = Reader()
    reader.room = False
    session = bench.session(reader)
    session.machine.submit_replay(updates(*["a/x"] * 12))

    bench.flusher.mark(session)
    await bench.turns(5)

    assert (session.machine.waiting, session.machine.conflated) == (12, 0)
    await bench.close()


@pytest.mark.promise("P20")
async def test_a_place_ahead_of_the_stream_costs_one_look_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may name what they like, and their sessions must not be worked on for long for it."""
    monkeypatch.setattr(replays, "PATIENCE", 3600.0)
    bench = DeliveryBench()
    await following(bench, 3)
    asked = bench.delivery.barrier.asked

    replay = await asyncio.wait_for(collected(bench, returning(bench), 1_000_000), 5.0)

    assert replay.refused == {A: NotReplayed.BEHIND}
    assert bench.delivery.barrier.asked == asked + 1
    await bench.close()


@pytest.mark.promise("P13", "P20")
async def test_who_comes_while_others_are_served_is_served_with_all_who_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm must not look at the same updates once for each session."""
    bench = DeliveryBench()
    await following(bench, 20)
    crowd = bench.delivery.replays.gathering
    find_all = crowd._find_all
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(replays: Sequence[Replay]) -> None:
        began.set()
        await go_on.wait()
        await find_all(replays)

    monkeypatch.setattr(crowd, "_find_all", slow)
    first = asyncio.create_task(collected(bench, returning(bench), 5))
    await began.wait()
    others = [asyncio.create_task(collected(bench, returning(bench), 5)) for _ in range(50)]
    await bench.turns(20)
    go_on.set()

    assert all(each.is_whole for each in await asyncio.gather(first, *others))
    assert crowd.finds == 2
    assert crowd.matched == 2 * 15
    await bench.close()


async def test_a_bug_in_one_finding_costs_those_alone_who_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = DeliveryBench()
    await following(bench, 20)
    crowd = bench.delivery.replays.gathering
    find_all = crowd._find_all
    later: list[asyncio.Task[Replay]] = []

    async def broken(replays: Sequence[Replay]) -> None:
        monkeypatch.setattr(crowd, "_find_all", find_all)
        later.append(asyncio.create_task(collected(bench, returning(bench), 5)))
        await bench.turns(5)
        raise RuntimeError("a bug")

    monkeypatch.setattr(crowd, "_find_all", broken)

    assert (await collected(bench, returning(bench), 5)).refused == {A: NotReplayed.GAP}
    assert (await later[0]).is_whole
    await bench.close()


async def test_what_the_tail_brings_meanwhile_is_read_again_if_it_is_not_at_hand_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = DeliveryBench()
    await following(bench, 20)
    crowd = bench.delivery.replays.gathering
    find_all = crowd._find_all

    async def overtaken(replays: Sequence[Replay]) -> None:
        await find_all(replays)
        for _ in range(3_000):  # more than a partition keeps of what came last
            bench.publish("a/x")

    monkeypatch.setattr(crowd, "_find_all", overtaken)
    session = returning(bench)
    replay = await collected(bench, session, 5)
    bench.delivery.replays.settle(replay)

    assert replay.is_whole
    assert sum(run.count for run in replay.packets()) == 3_015
    assert bench.grid.reads == 1
    await bench.close()


async def test_a_stream_that_grows_while_it_is_read_again_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of what is at hand goes with each update that comes: it is kept for what is being read before it."""
    bench = DeliveryBench()
    await following(bench, RECENT_ENTRIES + 20)
    between = bench.grid.between

    async def slow(*where: Any) -> list[TopicValue] | None:
        found = await between(*where)
        for _ in range(50):
            bench.publish("a/x")
        return found

    monkeypatch.setattr(bench.grid, "between", slow)
    replay = await collected(bench, returning(bench), 5)
    bench.delivery.replays.settle(replay)

    assert replay.is_whole
    assert sum(run.count for run in replay.packets()) == RECENT_ENTRIES + 65
    assert bench.grid.reads == 1
    await bench.close()


async def test_what_was_read_again_once_is_not_read_again_while_the_stream_grows() -> None:
    """A storm takes seconds, in which streams go on: those who come last find what those had read who came first."""
    bench = DeliveryBench()
    await following(bench, RECENT_ENTRIES + 20)
    for number in range(20):
        replay = await collected(bench, returning(bench), 5 + number % 2)
        for _ in range(100):
            bench.publish("a/x")
        bench.delivery.replays.settle(replay)

        assert replay.is_whole
        assert sum(run.count for run in replay.packets()) == RECENT_ENTRIES + 15 - number % 2 + 100 * (number + 1)
    assert bench.grid.reads == 1
    await bench.close()


async def test_a_stretch_that_is_asked_for_all_the_time_does_not_grow_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = DeliveryBench()
    await following(bench, RECENT_ENTRIES + 20)
    held = bench.delivery.replays.stretches
    assert (await collected(bench, returning(bench), 5)).is_whole
    whole = held.kept_bytes
    monkeypatch.setattr(stretches, "STRETCH_BYTES", whole // 2)
    held._forget_unused()
    assert 0 < held.kept_bytes <= whole // 2 + 1000
    assert (await collected(bench, returning(bench), 5)).is_whole, "it is read again"
    await bench.close()
