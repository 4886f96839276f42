"""Every storm end to end, small: nothing is measured here, everything is judged."""

from __future__ import annotations

import pytest

from benchmarks.placement import Placement
from benchmarks.storm import values
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import crowd_on
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.replay import fail_over
from benchmarks.storm.scenarios import HOME, LINKED, SCENARIOS, settle_in
from benchmarks.systems.base import Role

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.thorough]

SESSIONS = 40


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_small_storm_leaves_nobody_behind(name: str) -> None:
    placement = Placement.of_this_machine()
    with running(placement, links=name in LINKED) as cluster, crowd_on(placement.others) as crowd:
        storm = SCENARIOS[name](cluster, crowd, SESSIONS)
    assert storm.failure == ""
    assert storm.recovered == storm.sessions == len(storm.waits) == SESSIONS
    assert all(storm.cpu[role] > 0 for role in (Role.SERVER, Role.STORE, Role.BALANCER))


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("missed", [1, 5])
def test_a_small_failover_is_replayed_or_not(missed: int, *, replay: bool) -> None:
    placement = Placement.of_this_machine()
    with running(placement) as cluster, crowd_on(placement.others) as crowd:
        storm, received = fail_over(cluster, crowd, SESSIONS, missed=missed, replay=replay)
    assert storm.failure == ""
    assert storm.recovered == storm.sessions == len(storm.waits) == SESSIONS
    assert received > SESSIONS * values.VALUE_BYTES * (2 * missed if replay else 3)


def test_a_lost_session_is_noticed() -> None:
    placement = Placement.of_this_machine()
    with running(placement) as cluster, crowd_on(placement.others) as crowd:
        settle_in(cluster, crowd, SESSIONS)
        crowd.cut()
        cluster.wait_connected(HOME, 0)
        cluster.grid.delete(next(iter(cluster.grid.scan_iter(match="*:session:*"))))
        cluster.kill(HOME)
        with pytest.raises(StormFailed, match="session_unknown"):
            crowd.arrive(cluster.entry, expected="failed_over")
        assert crowd.phase.outcomes["failed_over"] < SESSIONS


def test_an_empty_snapshot_is_not_taken_for_a_value() -> None:
    placement = Placement.of_this_machine()
    with running(placement) as cluster, crowd_on(placement.others) as crowd:
        settle_in(cluster, crowd, SESSIONS)
        # A value that was never published: nobody can become current.
        crowd.goals["market/0"] += 1
        phase = crowd.expect(crowd.members[:1], ["market/0"])
        with pytest.raises(StormFailed, match="not done within"):
            crowd.loop.run(lambda: phase.current >= phase.wanted, seconds=1.0)
