from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.backoff import ReconnectBackoff
from gateway.core.pacing.reconnect_spread import OUTGROWN, advise, capacity, is_outgrown
from gateway.core.wire.packets import Backoff

BASE = Backoff(initial=0.25, maximum=10.0, stable_after=10.0)


def test_what_the_survivors_take_on() -> None:
    assert capacity(survivors=2, admission_rate=1000, claim_rate=10_000) == 2000
    assert capacity(survivors=20, admission_rate=1000, claim_rate=10_000) == 10_000
    assert capacity(survivors=0, admission_rate=1000, claim_rate=0) == 1000, "the same node comes back"
    assert capacity(survivors=2, admission_rate=0, claim_rate=0) == float("inf")


def test_few_clients_come_back_as_ever() -> None:
    assert advise(BASE, sessions=100, capacity=2000, window=60) == BASE
    assert advise(BASE, sessions=10_000, capacity=float("inf"), window=60) == BASE


def test_the_window_grows_with_the_clients_and_shrinks_with_the_survivors() -> None:
    one = advise(BASE, sessions=4000, capacity=1000, window=60).initial
    assert one == pytest.approx(OUTGROWN * 4)
    assert advise(BASE, sessions=8000, capacity=1000, window=60).initial == pytest.approx(2 * one)
    assert advise(BASE, sessions=4000, capacity=2000, window=60).initial == pytest.approx(one / 2)


def test_nobody_is_asked_to_wait_for_most_of_its_window() -> None:
    advice = advise(BASE, sessions=10**6, capacity=1000, window=60)
    assert advice.initial == 15
    assert advice.maximum == 15


def test_advice_is_outgrown_when_half_as_many_again_would_come() -> None:
    told = advise(BASE, sessions=4000, capacity=1000, window=60)
    assert not is_outgrown(told, advise(BASE, sessions=5900, capacity=1000, window=60))
    assert is_outgrown(told, advise(BASE, sessions=6100, capacity=1000, window=60))


@given(st.integers(500, 20_000), st.floats(500, 10_000), st.floats(1, OUTGROWN))
def test_no_more_arrive_in_a_second_than_are_served(sessions: int, served: float, outgrown: float) -> None:
    """Also if all were advised when there were fewer, as long as that was not yet outgrown."""
    told = advise(BASE, sessions=sessions / outgrown, capacity=served, window=3600)
    expected = sessions / told.initial
    assert expected <= served * (1 + 1e-9) or told.initial == BASE.initial


def test_clients_draw_from_the_window() -> None:
    chance = Random(7)
    advice = advise(BASE, sessions=3000, capacity=1000, window=60)
    backoff = ReconnectBackoff().connected(0.0, BASE).advised(advice).disconnected(1.0)
    delays = [backoff.delay(chance.random())[0] for _ in range(3000)]
    seconds = [sum(second <= delay < second + 1 for delay in delays) for second in range(4)]
    assert max(seconds) < 1000
