from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.pacing.rates import CLOCK_ROUNDING, TokenBucket


def test_a_burst_is_granted_and_then_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    assert [bucket.take(100.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(100.0) == pytest.approx(0.1)
    assert bucket.take(100.05) == pytest.approx(0.05)
    assert bucket.take(100.1) == 0
    assert bucket.take(100.1) == pytest.approx(0.1)


def test_an_idle_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    assert bucket.take(0.0, 2) == 0
    assert bucket.take(1000.0, 2) == 0
    assert bucket.take(1000.0) == pytest.approx(0.1)


def test_a_refusal_takes_nothing() -> None:
    bucket = TokenBucket(rate=1, burst=10)
    assert bucket.take(0.0, 6) == 0
    assert bucket.take(0.0, 6) == pytest.approx(2)
    assert bucket.take(0.0, 4) == 0


def test_more_than_the_burst_is_granted_from_a_full_bucket_which_then_owes_it() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    assert bucket.take(0.0, 1) == 0
    assert bucket.take(0.0, 20) == pytest.approx(0.1)
    assert bucket.take(0.1, 20) == 0
    assert bucket.take(0.1, 1) == pytest.approx(1.6)
    assert bucket.take(0.1, 20) == pytest.approx(2.0)


def test_what_came_to_nothing_is_given_back() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    assert [bucket.charge(0.0) for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    assert bucket.owed(0.0) == pytest.approx(0.2)
    bucket.give_back(2)
    assert bucket.owed(0.0) == 0
    assert bucket.take(0.0) == pytest.approx(0.1)
    bucket.give_back(2)
    assert [bucket.take(0.0) for _ in range(2)] == [0, 0]
    assert bucket.owed(1000.0) == 0


def test_a_clock_that_goes_back_grants_nothing_extra() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    assert bucket.take(100.0) == 0
    assert bucket.take(50.0) == pytest.approx(51.0)


def test_an_endless_rate_never_makes_anybody_wait() -> None:
    bucket = TokenBucket(rate=math.inf, burst=1)
    assert [bucket.take(0.0, 1000) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (1, 0), (-1, 1), (1, -1), (math.nan, 1), (1, math.nan)])
def test_a_bucket_without_rate_or_burst_makes_no_sense(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        TokenBucket(rate, burst)


steps = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 30)), min_size=1, max_size=40)


@settings(deadline=None)
@given(st.floats(0.1, 1000), st.floats(1, 10), steps, st.floats(0, 1e9))
def test_whoever_waits_as_told_is_granted(
    rate: float, burst: float, steps: list[tuple[float, float]], now: float
) -> None:
    bucket = TokenBucket(rate, burst)
    for pause, amount in steps:
        now += pause
        if wait := bucket.take(now, amount):
            assert wait > 0
            now += wait
            assert bucket.take(now, amount) == 0


@settings(deadline=None)
@given(st.floats(0.1, 1000), st.floats(1, 10), steps)
def test_no_span_of_time_grants_more_than_it_may(rate: float, burst: float, steps: list[tuple[float, float]]) -> None:
    bucket = TokenBucket(rate, burst)
    now, granted = 0.0, []
    for pause, amount in steps:
        now += pause
        if bucket.take(now, amount) == 0:
            granted.append((now, amount))
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            span = granted[last][0] - granted[first][0]
            amounts = [amount for _, amount in granted[first : last + 1]]
            allowed = max(burst, *amounts) + rate * (span + CLOCK_ROUNDING * 2)
            assert sum(amounts) <= allowed * (1 + 1e-9)


def test_a_charge_is_made_whether_there_is_enough_or_not() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    assert bucket.charge(0.0, 5) == 0
    assert bucket.charge(0.0, 10) == pytest.approx(1.0)
    assert bucket.charge(0.5, 0) == pytest.approx(0.5), "nothing more is owed for looking"
    assert bucket.charge(1.0, 0) == 0
    assert not bucket.is_full(1.4)
    assert bucket.is_full(1.5)


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50), st.floats(0.5, 20), st.floats(1, 20))
def test_who_waits_out_each_charge_keeps_to_the_rate(amounts: list[float], rate: float, burst: float) -> None:
    bucket = TokenBucket(rate, burst)
    now = total = 0.0
    for amount in amounts:
        total += amount
        now += bucket.charge(now, amount)
        # A debt that is shorter than clocks are exact is not waited out.
        assert total <= burst + rate * (now + CLOCK_ROUNDING) + 1e-6 * (1 + total)


def test_looking_how_long_to_wait_takes_nothing() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    assert bucket.wait(0.0) == 0
    assert bucket.take(0.0) == 0
    assert bucket.wait(0.0) == pytest.approx(1)
