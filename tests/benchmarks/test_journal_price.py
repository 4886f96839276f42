"""The journal's price is measured: small, so nothing is measured here, but everything is run."""

from __future__ import annotations

from typing import Final

import pytest

from benchmarks import journal
from benchmarks.generator.driver import Load
from benchmarks.placement import Placement

pytestmark = pytest.mark.thorough

TURNS: Final = 1


@pytest.mark.cluster
@pytest.mark.redis
def test_sessions_and_updates_come_through_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "WRITTEN", 0.1)
    placement = Placement.of_this_machine()
    load = Load(10, rate=50.0, warm_up=0.1, measure=0.3)
    found = {"a delivery": journal.deliveries(placement, load, TURNS), **journal.comebacks(placement, 20, TURNS)}
    assert found.keys() == {"a delivery", journal.REATTACH, journal.FAILOVER}
    for values in found.values():
        assert values.keys() == {journal.OFF, journal.ON}
        assert all(len(each) == TURNS and min(each) > 0 for each in values.values())


@pytest.mark.parametrize(
    ("dearer", "judged"),
    [
        ([1.0, 1.01, 1.02], "≤ 3%: met"),
        ([1.0, 1.01, 1.5], "≤ 3%: met by the median"),
        ([1.0, 1.2, 1.5], "≤ 3%: in doubt"),
        ([1.1, 1.2, 1.5], "≤ 3%: not met"),
    ],
)
def test_a_row_judges_by_the_interval(dearer: list[float], judged: str) -> None:
    values = {journal.OFF: [10.0] * 3, journal.ON: [10.0 * each for each in dearer]}
    assert journal.row("a delivery", values).endswith(f"| {judged} |")
