"""Zones and joins of real clusters: node processes, a Redis for each cluster, and faults in all of them (P18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.crowds import Figures
from tests.cluster.zone_kills import Trial, run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P18")]


def _figures(trial: Trial, events: int) -> str:
    faults = ", ".join(f"{count} {what}" for what, count in sorted(trial.faults.items()))
    published, came = trial.seconds
    return f"{events} events in {published:.0f} s, all there after {came:.0f} s; {faults}; {trial.crossed[1]} repeated"


async def test_each_event_comes_once_to_all_clusters_of_a_ring_while_it_breaks(
    tmp_path: Path, figures: Figures
) -> None:
    """Acceptance of zones and joins: Z1 to Z4."""
    trial = await run(tmp_path, events=1_500, faults=5, seed=5)
    assert trial.wrong == []
    figures(_figures(trial, 1_500))


@pytest.mark.thorough
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_event_comes_once_to_all_clusters_of_a_ring_at_length(
    tmp_path: Path, figures: Figures, seed: int
) -> None:
    trial = await run(tmp_path, events=10_000, faults=30, seed=seed)
    assert trial.wrong == []
    figures(_figures(trial, 10_000))
