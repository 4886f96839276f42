from __future__ import annotations

import pytest

from gateway.core.pacing.backoff import DEFAULT_BACKOFF, LEAST_BOUND, ReconnectBackoff
from gateway.core.wire.codes import Reconnect
from gateway.core.wire.errors import LocalProtocolError
from gateway.core.wire.packets import Backoff

ADVICE = Backoff(initial=1.0, maximum=10.0, stable_after=5.0)
ALMOST_ONE = 0.999_999


def bounds(state: ReconnectBackoff, count: int) -> list[float]:
    """The next *count* bounds, told by the longest delays."""
    found = []
    for _ in range(count):
        delay, state = state.delay(ALMOST_ONE)
        found.append(round(delay, 3))
        state = state.disconnected(0.0)
    return found


def test_the_bound_doubles_up_to_the_maximum() -> None:
    assert bounds(ReconnectBackoff(ADVICE).disconnected(0.0), 6) == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_very_first_retry_is_jittered_too() -> None:
    state = ReconnectBackoff(ADVICE).connected(0.0, ADVICE).disconnected(100.0)
    assert [state.delay(random)[0] for random in (0.0, 0.25, 0.5)] == [0.0, 0.25, 0.5]


def test_a_connection_that_did_not_last_changes_nothing() -> None:
    _, state = ReconnectBackoff(ADVICE).disconnected(0.0).delay(0.5)
    _, state = state.delay(0.5)
    assert bounds(state.connected(10.0, ADVICE).disconnected(14.9), 2) == [4.0, 8.0]


def test_a_connection_that_lasted_makes_the_bound_the_first_one_again() -> None:
    _, state = ReconnectBackoff(ADVICE).disconnected(0.0).delay(0.5)
    assert bounds(state.connected(10.0, ADVICE).disconnected(15.0), 2) == [1.0, 2.0]


def test_an_attempt_that_failed_to_connect_does_not_count_as_a_connection() -> None:
    _, state = ReconnectBackoff(ADVICE).connected(0.0, ADVICE).disconnected(100.0).delay(0.5)
    assert bounds(state.disconnected(1000.0), 1) == [2.0]


def test_the_advice_of_the_server_is_followed() -> None:
    patient = Backoff(initial=3.0, maximum=6.0, stable_after=60.0)
    state = ReconnectBackoff().connected(0.0, patient).disconnected(59.0)
    assert bounds(state, 3) == [3.0, 6.0, 6.0]
    assert ReconnectBackoff().advice == DEFAULT_BACKOFF


def test_later_starts_at_the_maximum_and_stays_there() -> None:
    state = ReconnectBackoff(ADVICE).connected(0.0, ADVICE).disconnected(100.0, Reconnect.LATER)
    assert bounds(state, 3) == [10.0, 10.0, 10.0]


def test_a_time_given_by_the_server_takes_the_place_of_the_longest_bound() -> None:
    state = ReconnectBackoff(ADVICE).disconnected(0.0, Reconnect.LATER, retry_after=3.0)
    assert state.delay(0.0)[0] == 3.0
    assert state.delay(0.5)[0] == 3.5
    _, state = state.delay(0.5)
    assert state.disconnected(4.0).delay(0.0)[0] == 0.0, "the time given was for one attempt"


def test_a_new_connection_makes_a_given_time_void() -> None:
    state = ReconnectBackoff(ADVICE).disconnected(0.0, retry_after=3.0).connected(1.0, ADVICE)
    assert state.disconnected(2.0).delay(0.0)[0] == 0.0


def test_no_advice_makes_a_client_spin() -> None:
    zero = Backoff(initial=0.0, maximum=0.0, stable_after=0.0)
    state = ReconnectBackoff().connected(0.0, zero).disconnected(0.0)
    assert bounds(state, 3) == [LEAST_BOUND] * 3


def test_a_maximum_below_the_first_bound_is_raised_to_it() -> None:
    odd = Backoff(initial=4.0, maximum=1.0, stable_after=5.0)
    assert bounds(ReconnectBackoff(odd).disconnected(0.0), 3) == [4.0, 4.0, 4.0]


def test_a_session_that_may_not_come_back_has_no_backoff() -> None:
    with pytest.raises(LocalProtocolError):
        ReconnectBackoff().disconnected(0.0, Reconnect.NEVER)


def test_steps_return_new_values() -> None:
    state = ReconnectBackoff(ADVICE)
    state.connected(1.0, ADVICE)
    state.disconnected(1.0, Reconnect.LATER)
    state.delay(0.5)
    assert state == ReconnectBackoff(ADVICE)
