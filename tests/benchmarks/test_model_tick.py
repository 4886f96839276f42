"""A node under a stream of updates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.model.tick import Stream, Turns, saturation, simulate

from .model_data import COSTS

DELIVER = COSTS.deliver
SESSIONS = 500.0
ALONE = saturation(DELIVER, SESSIONS, joined=1)
"""Updates per second that fill the core if none are joined."""


def at(load: float, *, paced: bool = True, seed: int = 1) -> Turns:
    return simulate(DELIVER, Stream(ALONE * load, SESSIONS, paced=paced), seed=seed)


def test_updates_that_come_one_by_one_cost_what_one_costs() -> None:
    turns = at(0.3)
    assert turns.joined == 1
    assert turns.cpu == pytest.approx(DELIVER.tick(1, SESSIONS))
    assert turns.busy == pytest.approx(0.3, rel=0.02)
    # The median session waits for half of the others.
    assert turns.p50 == pytest.approx(DELIVER.tick(1, SESSIONS) / 2_000)


def test_a_busy_node_joins_and_each_update_gets_cheaper() -> None:
    loads = [at(load) for load in (0.5, 1.5, 2.5, 3.5)]
    assert [each.saturated for each in loads] == [False] * 4
    assert sorted(each.joined for each in loads) == [each.joined for each in loads]
    assert sorted((each.cpu for each in loads), reverse=True) == [each.cpu for each in loads]
    assert loads[-1].joined > 3


def test_what_is_joined_is_just_enough_to_keep_up() -> None:
    # A core that never rests sends as many as come: the turn takes as long as the updates that it brings took to come.
    turns = at(2.5)
    assert turns.busy == pytest.approx(1.0, abs=0.02)
    assert saturation(DELIVER, SESSIONS, joined=turns.joined) == pytest.approx(ALONE * 2.5, rel=0.05)


def test_above_what_joining_can_save_it_is_saturated() -> None:
    most = saturation(DELIVER, SESSIONS, joined=1e9)
    assert not simulate(DELIVER, Stream(0.9 * most, SESSIONS)).saturated
    assert simulate(DELIVER, Stream(1.2 * most, SESSIONS)).saturated


def test_latency_grows_near_saturation() -> None:
    waits = [at(load, paced=False).p50 for load in (0.2, 0.9, 2.0, 3.5)]
    assert sorted(waits) == waits
    assert waits[-1] > 2 * waits[0]


def test_other_work_makes_it_slower_and_busier() -> None:
    stream = Stream(ALONE * 0.3, SESSIONS)
    plain, loaded = simulate(DELIVER, stream), simulate(DELIVER, replace(stream, background=0.5))
    assert loaded.p50 == pytest.approx(2 * plain.p50)
    assert loaded.busy == pytest.approx(plain.busy + 0.5, rel=0.05)
    assert loaded.cpu == pytest.approx(plain.cpu)


def test_updates_that_nobody_wants_take_their_share() -> None:
    stream = Stream(ALONE * 0.3, SESSIONS, elsewhere=50_000)
    assert simulate(DELIVER, stream).busy == pytest.approx(0.3 + 50_000 * DELIVER.take * 1e-6, rel=0.05)
    assert simulate(DELIVER, replace(stream, elsewhere=1e6 / DELIVER.take)).saturated


def test_updates_for_one_session_each_are_not_joined() -> None:
    turns = simulate(DELIVER, Stream(10_000, 1, sessions=5_000))
    assert turns.joined == pytest.approx(1, abs=0.01)
    each = DELIVER.take + DELIVER.encode + DELIVER.packet + DELIVER.write_at(5_000)
    assert each < turns.cpu < each + DELIVER.wake


def test_an_update_that_is_published_here_takes_the_way_through_the_grid() -> None:
    here = simulate(DELIVER, Stream(ALONE * 0.1, SESSIONS, publish=20.0, path=5.0))
    assert here.p50 == pytest.approx(0.02 + 5.0 + DELIVER.tick(1, SESSIONS) / 2_000)
    assert here.cpu == pytest.approx(20.0 + DELIVER.tick(1, SESSIONS))


def test_more_sessions_are_less_in_the_caches() -> None:
    assert DELIVER.write_at(50) == DELIVER.write_at(100) == DELIVER.write
    assert DELIVER.write_at(10_000) == pytest.approx(DELIVER.write + 2 * DELIVER.cold)


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    assert at(0.8, paced=False) == at(0.8, paced=False)
    assert at(0.8, paced=False) != at(0.8, paced=False, seed=2)


@pytest.mark.parametrize("stream", [Stream(0, 10), Stream(10, 10, background=1.0)])
def test_nonsense_is_refused(stream: Stream) -> None:
    with pytest.raises(ValueError, match="rate above 0"):
        simulate(DELIVER, stream)
