"""Which of two values is the newer one, where one of them has no stamp yet."""

from __future__ import annotations

from gateway.core.types import Version
from gateway.core.zones.routes import ClusterId
from gateway.core.zones.stamps import Mark, Origin, Stamp, StreamPlace, stamp_of, stamped, takes_value

HERE, THERE = ClusterId("here"), ClusterId("there")
MARK = Mark(StreamPlace(1, 5), Stamp(100, THERE), Origin(THERE, Version(1)))


def test_a_topic_without_a_value_has_no_stamp() -> None:
    assert stamp_of(None, None, cluster=HERE, time=7) is None
    assert takes_value(None, Stamp(1, THERE))
    assert not takes_value(None, None)


def test_a_value_that_came_from_elsewhere_has_the_stamp_it_came_with() -> None:
    assert stamp_of(MARK, MARK.place, cluster=HERE, time=7) == MARK.stamp


def test_a_value_without_a_stamp_counts_with_the_one_that_it_will_get() -> None:
    place = StreamPlace(1, 6)
    for mark, time in ((None, 7), (MARK, 7), (MARK, 700)):
        held = stamp_of(mark, place, cluster=HERE, time=time)
        made = stamped(mark, place, Version(2), cluster=HERE, time=time)
        assert made is not None
        assert held == made.stamp == Stamp(time if mark is None else max(time, 101), HERE)
        assert made.origin == Origin(HERE, Version(2))


def test_of_the_same_time_the_name_of_the_cluster_decides() -> None:
    held = stamp_of(None, StreamPlace(1, 6), cluster=HERE, time=7)
    assert takes_value(held, Stamp(7, THERE))
    assert not takes_value(Stamp(7, THERE), held)
    assert not takes_value(held, Stamp(7, HERE))
