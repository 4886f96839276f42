"""What links between clusters cost is measured on events that are taken, and interest on selectors that are told."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks import zones
from gateway.core.zones.compaction import MOST_SELECTORS


@pytest.mark.parametrize("selectors", [MOST_SELECTORS + 200, pytest.param(5_000, marks=pytest.mark.thorough)])
def test_interest_of_many_is_told_in_few_selectors_that_match_all_of_it(selectors: int) -> None:
    found = list(zones.measure_interest(selectors))
    assert len(found) == len(zones.SHAPES)
    for each in found:
        assert 1 <= each.told <= MOST_SELECTORS
        assert each.bytes < each.whole
        assert each.kept > 0
    told = {each.shown: each.change for each in found}
    # Whoever takes everything already has nothing more to be told.
    assert told["**"] == 0
    assert told["users/**"] > 0


@pytest.mark.thorough
@pytest.mark.redis
@pytest.mark.cluster
def test_all_events_cross_and_are_taken() -> None:
    shown = CliRunner().invoke(zones.main, ["--events", "1000", "--selectors", "0"])
    assert shown.exit_code == 0, shown.output
    rows = [line.split("|")[1].strip() for line in shown.output.splitlines()[2:]]
    assert rows == ["100", "1,000"]
