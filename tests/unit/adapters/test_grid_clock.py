"""What a node takes for the time of the grid, in virtual time."""

from __future__ import annotations

import pytest

from gateway.adapters.redis.clock import TOLERANCE_MS, GridClock
from tests.support.clock import VirtualClock

NOON = 1_700_000_000_000
"""What the clock of Redis says at first, in milliseconds since 1970."""


class Bench:
    """A node's clock, and that of a Redis, which is ``ahead`` of what it should say."""

    def __init__(self) -> None:
        self.local = VirtualClock(1000.0)
        self.clock = GridClock(self.local)
        self.ahead = 0

    @property
    def said(self) -> int:
        return NOON + round((self.local() - 1000.0) * 1000) + self.ahead

    def read(self, shift: int = 0, *, trip: float = 0.002) -> int:
        asked = self.clock.local()
        self.local.advance(trip / 2)
        said = self.said
        self.local.advance(trip / 2)
        return self.clock.read(said, shift, asked=asked, answered=self.clock.local())


def test_before_the_first_reading_nothing_is_known() -> None:
    bench = Bench()
    assert bench.clock.estimate() is None
    assert bench.clock.argument() == f"0 - {TOLERANCE_MS} 1"


def test_a_clock_that_nobody_sets_is_followed_also_if_it_drifts() -> None:
    bench = Bench()
    for _ in range(1000):
        assert bench.read() == 0
        bench.ahead += 2  # per renewal: some hundred times what clocks differ by
        bench.local.advance(3.0)
    estimate = bench.clock.estimate()
    assert estimate is not None
    assert abs(estimate - bench.said) < 10


@pytest.mark.parametrize("step", [90_000, -90_000, TOLERANCE_MS + 100, -TOLERANCE_MS - 100])
def test_a_clock_that_was_set_is_found_out_and_the_time_goes_on_evenly(step: int) -> None:
    bench = Bench()
    bench.read()
    bench.local.advance(3.0)
    before = bench.clock.estimate()
    bench.ahead = step
    found = bench.read()
    assert abs(found - step) <= 2
    after = bench.clock.estimate()
    assert before is not None
    assert after is not None
    assert abs(after - before) < 10, "what was read is not believed"
    assert bench.read(found) == 0, "with the shift recorded it fits"
    assert bench.clock.shift == found


def test_what_a_slow_answer_can_explain_is_no_setting() -> None:
    bench = Bench()
    bench.read()
    assert bench.read(trip=30.0) == 0
    bench.ahead = TOLERANCE_MS - 100
    assert bench.read() == 0
    assert bench.clock.last == bench.said - 1


def test_a_node_whose_own_clock_stood_still_begins_to_follow_anew() -> None:
    bench = Bench()
    bench.read()
    bench.ahead = 60_000  # as seen from a node that was stopped for a minute and does not know it
    assert bench.read() > 0
    asked = bench.clock.local()
    bench.clock.follow(bench.said, 0, asked=asked, answered=asked)
    assert bench.read() == 0
    assert bench.clock.shift == 0
