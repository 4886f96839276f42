"""What a stream brought last is kept without a hole, bounded by count and bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.app.delivery import recent_entries
from gateway.app.delivery.recent_entries import RECENT_BYTES, RECENT_ENTRIES, RecentEntries
from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.ports import ENTRY_BYTES, StreamPosition, TailBatch, TopicValue

PARTITION = 7


def place(sequence: int, generation: int = 1) -> StreamPosition:
    return StreamPosition(GridGeneration(generation), sequence)


def entry(sequence: int, *, generation: int = 1, size: int = 1) -> TopicValue:
    event = EventId(f"{PARTITION}-{generation}-{sequence}")
    return TopicValue(TopicPath("a"), Version(sequence), event, b"x" * size)


def batch(first: int, last: int, *, size: int = 1) -> TailBatch:
    return TailBatch(PARTITION, tuple(entry(each, size=size) for each in range(first, last + 1)), place(last))


def sequences(values: list[TopicValue] | None) -> list[int]:
    assert values is not None
    return [each.version for each in values]


def test_it_knows_what_came_after_a_place_also_within_a_batch() -> None:
    recent = RecentEntries(place(10))
    recent.add(batch(11, 13))
    recent.add(batch(14, 20))

    assert recent.position == place(20)
    assert sequences(recent.after(place(10))) == list(range(11, 21))
    assert sequences(recent.after(place(13))) == list(range(14, 21))
    assert sequences(recent.after(place(16))) == list(range(17, 21))
    assert sequences(recent.after(place(20))) == []


def test_it_says_what_it_does_not_know() -> None:
    recent = RecentEntries(place(10))
    recent.add(batch(11, 20))

    assert recent.after(place(9)) is None, "before it was followed"
    assert recent.after(place(21)) is None, "ahead of this node"
    assert recent.after(place(15, generation=0)) is None
    assert recent.after(place(15, generation=2)) is None


def test_it_keeps_the_objects_that_came() -> None:
    recent = RecentEntries(place(0))
    came = batch(1, 3)
    recent.add(came)

    kept = recent.after(place(0))
    assert kept is not None
    assert all(one is other for one, other in zip(kept, came.values, strict=True))


def test_the_first_generation_begins_with_a_marker() -> None:
    """The stream was empty: the marker has number 0 and is not among the values."""
    recent = RecentEntries(place(0, generation=0))
    recent.add(batch(1, 3))

    assert sequences(recent.after(place(0, generation=0))) == [1, 2, 3]
    assert sequences(recent.after(place(2))) == [3]


def test_an_entry_that_was_skipped_as_foreign_shifts_nothing() -> None:
    recent = RecentEntries(place(10))
    recent.add(TailBatch(PARTITION, (entry(11), entry(13), entry(14)), place(14)))

    assert sequences(recent.after(place(11))) == [13, 14]
    assert sequences(recent.after(place(12))) == [13, 14]
    assert sequences(recent.after(place(13))) == [14]


def test_a_batch_without_values_moves_the_place_and_costs_nothing() -> None:
    """All of its entries were of another program, which may append as many as it likes."""
    recent = RecentEntries(place(10))
    recent.add(batch(11, 12))
    for sequence in range(13, 10_000):
        recent.add(TailBatch(PARTITION, (), place(sequence)))
    recent.add(batch(10_000, 10_001))

    assert recent.position == place(10_001)
    assert sequences(recent.after(place(11))) == [12, 10_000, 10_001]
    assert sequences(recent.after(place(5_000))) == [10_000, 10_001]
    assert sequences(recent.after(place(10_000))) == [10_001]
    assert (recent.count, len(recent._kept)) == (4, 2)


def test_a_restored_value_has_the_event_of_an_earlier_publish_and_its_own_place() -> None:
    recent = RecentEntries(place(10))
    restored = entry(3)._replace(version=Version(12))
    recent.add(TailBatch(PARTITION, (entry(11), restored, entry(13)), place(13)))

    assert sequences(recent.after(place(11))) == [12, 13]
    assert sequences(recent.after(place(12))) == [13]


def test_it_is_bounded_by_count() -> None:
    recent = RecentEntries(place(0))
    for start in range(1, 3 * RECENT_ENTRIES, 100):
        recent.add(batch(start, start + 99))

    assert recent.count == RECENT_ENTRIES
    assert recent.since == place(2 * RECENT_ENTRIES)
    assert len(recent.after(recent.since) or ()) == RECENT_ENTRIES


def test_it_is_bounded_by_bytes_and_counts_what_it_keeps() -> None:
    recent = RecentEntries(place(0))
    for start in range(1, 1_000, 10):
        recent.add(batch(start, start + 9, size=10_000))

    each = ENTRY_BYTES + len("a") + 10_000
    assert recent.bytes == recent.count * each
    assert RECENT_BYTES - 10 * each < recent.bytes <= RECENT_BYTES


def test_of_a_batch_that_is_too_large_the_last_entries_stay() -> None:
    recent = RecentEntries(place(0))
    recent.add(batch(1, 1_000, size=10_000))

    assert 0 < recent.count < 1_000
    assert recent.bytes <= RECENT_BYTES
    assert sequences(recent.after(recent.since)) == list(range(1_001 - recent.count, 1_001))
    assert recent.position == place(1_000)


def test_one_entry_that_is_too_large_is_not_kept() -> None:
    recent = RecentEntries(place(0))
    recent.add(batch(1, 1, size=RECENT_BYTES))

    assert (recent.count, recent.bytes, recent.since) == (0, 0, place(1))
    assert sequences(recent.after(place(1))) == []
    recent.add(batch(2, 2))
    assert sequences(recent.after(place(1))) == [2]


@given(st.lists(st.tuples(st.integers(1, 8), st.sampled_from([1, 40, 400])), max_size=30), st.integers(0, 250))
def test_whatever_comes_the_answer_is_all_of_it_or_none(batches: list[tuple[int, int]], asked: int) -> None:
    bounds = recent_entries.RECENT_ENTRIES, recent_entries.RECENT_BYTES
    vars(recent_entries).update(RECENT_ENTRIES=20, RECENT_BYTES=2_000)
    try:
        recent = RecentEntries(place(0))
        end = 0
        for count, size in batches:
            recent.add(batch(end + 1, end + count, size=size))
            end += count
            assert recent.count <= 20
            assert recent.bytes <= 2_000
        found = recent.after(place(asked))
        if found is None:
            assert asked < recent.since.sequence or asked > end
        else:
            assert sequences(found) == list(range(asked + 1, end + 1))
    finally:
        vars(recent_entries).update(RECENT_ENTRIES=bounds[0], RECENT_BYTES=bounds[1])
