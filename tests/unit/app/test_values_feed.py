"""Current values are read where they stand, when there is room, and no update comes before its topic's value (P6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.app.delivery import partition as partition_module
from gateway.app.delivery.feeds.feed import PORTION_BYTES, PORTION_PACKETS
from gateway.app.session.session import Session
from gateway.core.stream.transitions import State
from gateway.core.wire.packets import Update
from tests.support.delivery import PARAMETERS, DeliveryBench, Reader
from tests.support.machines import PLENTY

pytestmark = pytest.mark.promise("P6")

TOPICS = 2_000
PATHS = [f"a/{number}" for number in range(TOPICS)]


@pytest.fixture
async def bench() -> AsyncIterator[DeliveryBench]:
    made = DeliveryBench()
    made.grid.publish(PATHS)
    yield made
    await made.close()
    assert not made.failures


async def reading(bench: DeliveryBench, selector: str = "a/*") -> tuple[Session, Reader]:
    reader = Reader()
    session = bench.session(reader)
    await bench.subscribe(session, selector)
    return session, reader


async def stuck(bench: DeliveryBench, selector: str = "a/*") -> tuple[Session, Reader]:
    """A session whose client takes nothing."""
    reader = Reader()
    reader.room = False
    session = bench.session(reader)
    await bench.subscribe(session, selector)
    await bench.turns(5)
    return session, reader


def came(reader: Reader) -> list[Update]:
    return [update for _, update in reader.updates]


def topics(reader: Reader) -> list[str]:
    return [update.topic for update in came(reader)]


async def test_all_values_come_once_in_the_order_of_their_places(bench: DeliveryBench) -> None:
    session, reader = await reading(bench)
    await bench.all_sent(session, reader)
    assert topics(reader) == PATHS
    assert all(update.snapshot for update in came(reader))


@pytest.mark.promise("P9")
async def test_a_slow_reader_of_many_topics_has_one_portion_in_memory(bench: DeliveryBench) -> None:
    session, reader = await stuck(bench)
    await bench.turns(50)
    assert session.machine.waiting == PORTION_PACKETS
    assert session.machine.unacknowledged == 0
    assert session in bench.flusher.feeds
    await bench.all_sent(session, reader)
    assert topics(reader) == PATHS


async def test_a_portion_ends_with_its_bytes(bench: DeliveryBench) -> None:
    for path in PATHS[:100]:
        bench.grid.publish([path], b'"%b"' % (b"x" * 10_000))
    session, _ = await stuck(bench)
    assert PORTION_BYTES <= session.machine.waiting_bytes < PORTION_BYTES + 10_200


@pytest.mark.promise("P9")
async def test_a_reader_that_acknowledges_nothing_is_not_sent_more_than_is_kept() -> None:
    bench = DeliveryBench(parameters=replace(PARAMETERS, resend_packets=100))
    bench.grid.publish(PATHS)
    session, reader = await reading(bench)
    await bench.turns(50)
    assert len(reader.updates) == 50
    assert session.machine.waiting == 0
    await bench.all_sent(session, reader)
    assert topics(reader) == PATHS
    await bench.close()


async def test_an_update_of_a_topic_whose_turn_has_not_come_is_left_to_the_feed(bench: DeliveryBench) -> None:
    session, reader = await stuck(bench)
    waiting = session.machine.waiting
    for _ in range(3):
        bench.publish(PATHS[-1])
    assert session.machine.waiting == waiting
    await bench.all_sent(session, reader)
    (update,) = [each for each in came(reader) if each.topic == PATHS[-1]]
    assert (update.version, update.snapshot, update.folded) == (4, True, 0)
    assert topics(reader) == PATHS


async def test_an_update_of_a_topic_that_was_handed_out_follows_its_value(bench: DeliveryBench) -> None:
    session, reader = await stuck(bench)
    bench.publish(PATHS[0])
    bench.publish(PATHS[1])
    await bench.all_sent(session, reader)
    first = [each for each in came(reader) if each.topic == PATHS[0]]
    assert [(each.version, each.snapshot, each.folded) for each in first] == [(2, True, 1)]
    bench.publish(PATHS[0])
    await bench.all_sent(session, reader)
    assert (came(reader)[-1].version, came(reader)[-1].snapshot) == (3, False)


async def test_a_topic_that_is_new_meanwhile_is_an_update_like_any_other(bench: DeliveryBench) -> None:
    """Else a feed would never end whose reader is slower than new topics come."""
    session, reader = await stuck(bench)
    bench.publish("a/new")
    await bench.all_sent(session, reader)
    (update,) = [each for each in came(reader) if each.topic == "a/new"]
    assert (update.version, update.snapshot) == (1, False)
    assert len(reader.updates) == TOPICS + 1


async def test_others_are_sent_the_same_runs_while_somebody_reads_a_snapshot(bench: DeliveryBench) -> None:
    quick = [Reader() for _ in range(3)]
    sessions = [bench.session(each) for each in quick]
    for session, reader in zip(sessions, quick, strict=True):
        await bench.subscribe(session, "a/*")
        await bench.all_sent(session, reader)
    _, slow = await stuck(bench)
    for reader in quick:
        reader.room = False  # so that what they are sent waits and can be looked at
    bench.publish(*PATHS[:3], *PATHS[-3:], PATHS[0])
    held = [list(session.machine.kept()) for session in sessions]
    assert all(runs[0] is held[0][0] for runs in held)
    assert [run.count for run in held[0]] == [7], "one run for all, though the feed of one owes some of its topics"
    assert not slow.updates


async def test_what_was_withdrawn_is_handed_out_no_more(bench: DeliveryBench) -> None:
    session, reader = await stuck(bench)
    await bench.unsubscribe(session, "a/*")
    session.machine.withhold(lambda _: True)
    await bench.all_sent(session, reader)
    assert not reader.updates


async def test_a_partition_that_was_given_up_and_is_needed_again_is_read_by_the_later_feed(
    bench: DeliveryBench,
) -> None:
    session, reader = await stuck(bench)
    old = bench.partition("a")
    await bench.unsubscribe(session, "a/*")
    bench.grid.publish([PATHS[-1]])
    await bench.subscribe(session, "a/*")
    assert bench.partition("a") is not old
    await bench.all_sent(session, reader)
    last = {each.topic: each.version for each in came(reader)}
    assert last == dict.fromkeys(PATHS[:-1], 1) | {PATHS[-1]: 2}
    assert [each.version for each in came(reader) if each.topic == PATHS[-1]] == [2]


async def test_a_subscribe_brings_no_removals_and_a_failover_does(bench: DeliveryBench) -> None:
    bench.grid.publish([PATHS[3]], b"")
    session, reader = await reading(bench)
    await bench.all_sent(session, reader)
    assert PATHS[3] not in topics(reader)
    bench.delivery.feed(session)
    await bench.all_sent(session, reader)
    assert [each.removed for each in came(reader) if each.topic == PATHS[3]] == [True]


async def test_a_topic_that_is_removed_while_it_waits_for_its_turn(bench: DeliveryBench) -> None:
    session, reader = await stuck(bench)
    bench.publish(PATHS[-1], text=b"")
    await bench.all_sent(session, reader)
    assert topics(reader) == PATHS[:-1]


async def test_what_was_selected_before_goes_on_being_updated(bench: DeliveryBench) -> None:
    session, reader = await reading(bench)
    await bench.all_sent(session, reader)
    reader.updates.clear()
    reader.room = False
    await bench.subscribe(session, "a/**")
    await bench.turns(5)
    bench.publish(PATHS[-1])
    reader.room = True
    await bench.all_sent(session, reader)
    assert [(each.version, each.snapshot) for each in came(reader) if each.topic == PATHS[-1]] == [
        (2, False),
        (2, True),
    ]
    assert set(topics(reader)) == set(PATHS)


async def test_single_topics_are_looked_up_in_the_order_of_the_selections(bench: DeliveryBench) -> None:
    reader = Reader()
    session = bench.session(reader)
    for path in ("a/7", "a/3", "a/none"):
        assert await bench.subscribe(session, path) == (path != "a/none")
    await bench.all_sent(session, reader)
    assert topics(reader) == ["a/7", "a/3"]
    assert bench.delivery.feed(session) == 2
    await bench.all_sent(session, reader)
    assert topics(reader)[2:] == ["a/7", "a/3"]


# --- Connections ------------------------------------------------------------------------------------------------------


async def test_a_feed_stands_still_while_the_client_is_away_and_goes_on_with_the_same_numbering(
    bench: DeliveryBench,
) -> None:
    session, reader = await stuck(bench)
    session.connection = None
    bench.flusher.forget(session)
    session.machine.detach()
    kept = session.machine.unacknowledged
    assert kept == PORTION_PACKETS, "the portion that waited, and no more"
    bench.publish(PATHS[-1])
    bench.publish(PATHS[0])
    await bench.turns(20)
    assert session.machine.unacknowledged == kept + 1
    assert session.machine.state is State.DETACHED

    session.machine.resume()
    session.machine.reattach(received=reader.last, now=0.0)
    session.connection = reader  # type: ignore[assignment]
    bench.flusher.flush(session)
    await bench.all_sent(session, reader)
    assert {each.topic: each.version for each in came(reader)} == dict.fromkeys(PATHS, 1) | {PATHS[0]: 2, PATHS[-1]: 2}
    assert [number for number, _ in reader.updates] == list(range(1, TOPICS + 2))


async def test_after_a_restart_all_values_come_anew_and_none_of_the_old_feed(bench: DeliveryBench) -> None:
    """Given up while it was away, the session begins to number anew (rung 4)."""
    session, reader = await stuck(bench)
    session.connection = None
    session.machine.detach()
    session.machine.give_up()
    assert session.machine.state is State.GAP
    bench.publish(PATHS[0])
    session.machine.resume()
    session.machine.restart(0.0)
    bench.delivery.mute(session)
    assert session not in bench.flusher.feeds
    session.connection = reader  # type: ignore[assignment]
    reader.updates.clear()
    bench.flusher.flush(session)
    bench.delivery.select(session, session.selections)
    bench.delivery.feed(session)
    await bench.all_sent(session, reader)
    assert topics(reader) == PATHS
    assert came(reader)[0].version == 2


async def test_who_is_told_to_go_is_sent_no_more_values(bench: DeliveryBench) -> None:
    session, reader = await stuck(bench)
    bench.delivery.mute(session)
    await bench.all_sent(session, reader)
    assert session.machine.is_settled
    assert len(reader.updates) == PORTION_PACKETS


async def test_a_session_that_is_gone_leaves_no_feed(bench: DeliveryBench) -> None:
    session, _ = await stuck(bench)
    bench.delivery.forget(session)
    assert not len(bench.flusher.feeds)


async def test_restored_values_leave_in_the_write_of_the_welcome(bench: DeliveryBench) -> None:
    keeper, _ = await reading(bench, "a/1")
    reader = Reader()
    session = bench.session(reader)
    session.selections = keeper.selections
    assert bench.delivery.restore(session)
    bench.flusher.flush(session)
    assert topics(reader) == ["a/1"]


async def test_restored_values_wait_for_the_next_turn_if_this_one_has_had_its_share(bench: DeliveryBench) -> None:
    keeper, _ = await reading(bench, "a/1")
    bench.flusher.feeds._spent = 1.0
    reader = Reader()
    session = bench.session(reader)
    session.selections = keeper.selections
    assert bench.delivery.restore(session)
    bench.flusher.flush(session)
    assert not reader.updates
    await bench.all_sent(session, reader)
    assert topics(reader) == ["a/1"]


# --- Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P9")
async def test_nobody_is_slow_for_a_snapshot_that_waits() -> None:
    """P9: the portion is larger than what may wait, and does not count."""
    bench = DeliveryBench(outbox_packets=100)
    bench.grid.publish(PATHS)
    session, _ = await stuck(bench)
    for path in PATHS[:PORTION_PACKETS]:
        bench.publish(path)
    bench.flusher.mark(session)
    await bench.turns(5)
    assert not bench.too_slow
    for number in range(100):
        bench.publish(f"a/new{number}")
    bench.flusher.mark(session)
    await bench.turns(5)
    assert not bench.too_slow
    bench.publish("a/one-too-many")
    bench.flusher.mark(session)
    await bench.turns(5)
    assert bench.too_slow[:1] == [session]
    await bench.close()


@pytest.mark.promise("P20")
async def test_encoded_snapshots_are_shared_and_bounded(bench: DeliveryBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "SNAPSHOT_BYTES", 50_000)
    session, reader = await reading(bench)
    await bench.all_sent(session, reader)
    snapshots = bench.partition("a").snapshots
    assert 0 < snapshots.bytes <= 50_000
    assert len(snapshots) < TOPICS / 10
    value = bench.partition("a").values.get(PATHS[0])  # type: ignore[arg-type]
    assert value is not None
    assert snapshots.of(value) is snapshots.of(value)
    bench.publish(*PATHS)
    assert (len(snapshots), snapshots.bytes) == (0, 0)


async def test_readers_that_begin_together_share_what_is_encoded(bench: DeliveryBench) -> None:
    readers = [Reader() for _ in range(2)]
    sessions = [bench.session(each) for each in readers]
    for session in sessions:
        await bench.subscribe(session, "a/*")
    bench.flusher._flush_dirty()
    first, second = (list(session.machine.kept()) for session in sessions)
    assert len(first) == len(second) == PORTION_PACKETS
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_the_bench_has_more_than_fits() -> None:
    assert TOPICS > 4 * PORTION_PACKETS
    assert PLENTY > PORTION_BYTES
