"""The simulation of failure detection shows what the intervals trade (004-16)."""

from __future__ import annotations

import random

import pytest

from benchmarks.detection import Intervals, World, death, false_alarms, measure, table

WORLD = World(pause_every=60.0)
"""With many pauses, so that an hour shows some."""


def test_shorter_intervals_detect_sooner_and_suspect_more() -> None:
    patient, hasty = (measure(Intervals(suspect_after=n), nodes=3, hours=5, deaths=20, world=WORLD) for n in (6, 2))
    assert hasty.suspected < patient.suspected
    assert hasty.false_suspicions > patient.false_suspicions > 0


def test_longer_leases_fail_later_and_end_more_seldom_by_mistake() -> None:
    short, long = (
        measure(Intervals(lease=lease, lease_renew=lease / 3), nodes=3, hours=30, deaths=20, world=WORLD)
        for lease in (3.0, 12.0)
    )
    assert short.detected < long.detected
    assert short.false_failures > long.false_failures


@pytest.mark.parametrize("nodes", [3, 10])
def test_a_failure_is_detected_within_the_lease_and_confirm(nodes: int) -> None:
    """E5, and never later than without suspicion."""
    intervals, chance = Intervals(), random.Random(1)
    for _ in range(30):
        found = death(intervals, WORLD, nodes=nodes, chance=chance)
        assert found.failed <= min(intervals.lease + intervals.confirm, found.without)
        assert found.suspected <= (intervals.suspect_after + 1) * intervals.heartbeat


def test_the_same_seed_shows_the_same() -> None:
    assert false_alarms(Intervals(), WORLD, hours=2) == false_alarms(Intervals(), WORLD, hours=2)
    row = measure(Intervals(), nodes=3, hours=1, deaths=3, world=WORLD)
    assert "| 3 | 0.5 s | 3 | 6 s |" in table([row])
