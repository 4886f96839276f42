"""Sessions that come back at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.model.costs import Step
from benchmarks.model.storm import Comeback, NeverEnds, simulate
from gateway.core.pacing.backoff import DEFAULT_BACKOFF
from gateway.core.wire.packets import Backoff

STEP = Step(server=300.0, redis=20.0, haproxy=160.0)
AT_ONCE = Comeback(2_000, STEP)
JITTER = replace(AT_ONCE, backoff=DEFAULT_BACKOFF)


def test_it_lasts_as_long_as_its_slowest_station_works() -> None:
    went = simulate(AT_ONCE)
    assert went.last == pytest.approx(2_000 * 300e-6, rel=0.01)
    assert went.typical == pytest.approx(went.last / 2, rel=0.01)
    assert went.bottleneck == "node"
    assert went.attempts == 1


@pytest.mark.parametrize(("change", "bottleneck"), [({"redis": 0.01}, "Redis"), ({"haproxy": 0.1}, "HAProxy")])
def test_what_is_scarce_decides(change: dict[str, float], bottleneck: str) -> None:
    assert simulate(replace(AT_ONCE, **change)).bottleneck == bottleneck  # type: ignore[arg-type]


def test_few_sessions_last_as_long_as_their_random_delays() -> None:
    went = simulate(replace(JITTER, sessions=100))
    assert went.bottleneck == "clients"
    assert 0.2 < went.last < 0.3
    assert went.typical == pytest.approx(0.125, rel=0.3)


def test_a_node_with_other_work_takes_longer() -> None:
    assert simulate(replace(AT_ONCE, busy=0.5)).last == pytest.approx(2 * simulate(AT_ONCE).last, rel=0.01)


def test_nothing_begins_before_it_is_noticed() -> None:
    assert simulate(replace(AT_ONCE, detection=45.0)).last == pytest.approx(45.0 + simulate(AT_ONCE).last)


def test_on_one_core_everything_beside_the_node_adds_up() -> None:
    shared = simulate(replace(AT_ONCE, shared=True, client=200.0))
    assert shared.last == pytest.approx(2_000 * (160 + 20 + 200) * 1e-6, rel=0.01)


def test_clients_that_lose_patience_come_again_and_all_are_served() -> None:
    went = simulate(replace(JITTER, sessions=40_000))
    assert went.attempts > 1
    # Their delays leave the node idle now and then, but not for long.
    assert 40_000 * 300e-6 <= went.last < 2 * 40_000 * 300e-6 + DEFAULT_BACKOFF.maximum


def test_a_storm_that_feeds_itself_is_told() -> None:
    impatient = replace(
        AT_ONCE, sessions=5_000, patience=0.001, backoff=Backoff(initial=0.05, maximum=0.05, stable_after=1.0)
    )
    with pytest.raises(NeverEnds):
        simulate(impatient)


def test_the_same_seed_gives_the_same() -> None:
    assert simulate(JITTER, seed=3) == simulate(JITTER, seed=3)
    assert simulate(JITTER, seed=3) != simulate(JITTER, seed=4)


@pytest.mark.parametrize("change", [{"sessions": 0}, {"redis": 0.0}, {"busy": 1.0}])
def test_nonsense_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a storm needs"):
        simulate(replace(AT_ONCE, **change))  # type: ignore[arg-type]
