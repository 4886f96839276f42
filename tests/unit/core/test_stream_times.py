"""When events of a stream were published, by notes of how far it had come."""

from __future__ import annotations

import pytest

from gateway.core.zones.stamps import StreamPlace
from gateway.core.zones.stream_times import MOST_TIMES, StreamTimes

SECOND = 1000


def place(sequence: int, generation: int = 1) -> StreamPlace:
    return StreamPlace(generation, sequence)


def test_an_event_was_published_by_the_first_note_that_is_not_before_it() -> None:
    times = StreamTimes()
    times.note(place(5), 10)
    times.note(place(8), 20)
    assert [times.time_of(place(each), 99) for each in (1, 5, 6, 8, 9)] == [10, 10, 20, 20, 99]


def test_without_notes_it_was_now() -> None:
    assert StreamTimes().time_of(place(1), 7) == 7


def test_a_stream_that_has_not_gone_on_is_noted_once() -> None:
    times = StreamTimes()
    times.note(place(5), 10)
    times.note(place(5), 20)
    assert times.time_of(place(5), 99) == 10


def test_a_clock_that_is_set_back_makes_no_time_fall() -> None:
    times = StreamTimes()
    times.note(place(5), 100)
    times.note(place(6), 50)
    assert [times.time_of(place(each), 120) for each in (5, 6)] == [100, 100]


def test_a_later_generation_is_later() -> None:
    times = StreamTimes()
    times.note(place(500), 10)
    times.note(place(3, generation=2), 20)
    assert [times.time_of(each, 99) for each in (place(500), place(501), place(1, 2), place(4, 2))] == [10, 20, 20, 99]


@pytest.mark.parametrize("second", [1, 60, 3600])
def test_times_are_too_late_by_a_small_part_of_the_age(second: int) -> None:
    """Notes come every *second* seconds."""
    times, last = StreamTimes(), 3000
    for number in range(1, last):
        times.note(place(number), number * second * SECOND)
    now = last * second * SECOND
    for number in range(1, last, 7):
        published = number * second * SECOND
        late = times.time_of(place(number), now) - published
        assert 0 <= late <= 0.15 * (now - published) + 2 * second * SECOND
    assert len(times._notes) == MOST_TIMES
    assert times._notes[0] == (place(1), second * SECOND), "what was before the first note has its time for good"


def test_times_rise_and_never_beyond_now() -> None:
    times, known = StreamTimes(), {}
    for second in range(1, 600):
        known[second] = second * SECOND
        times.note(place(second), second * SECOND)
        if second % 97 == 0:
            for published, before in known.items():
                time = times.time_of(place(published), second * SECOND)
                assert before <= time <= second * SECOND
                known[published] = time
