"""Ten thousand clients come back at once, and each stretch of a stream that they missed is read once (P13, P20)."""

from __future__ import annotations

import pytest

from benchmarks.storm.comebacks import SESSIONS, storm_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.promise("P13", "P20"),
    pytest.mark.thorough,
    pytest.mark.timeout(600),
]


ON_THEIR_WAY = 500
"""Sessions that come back together: so many are served in time on a machine that is busy with other tests."""


@pytest.mark.parametrize(
    ("followed", "grows"), [(True, True), (False, False)], ids=["streams go on growing", "nobody follows the streams"]
)
def test_ten_thousand_comebacks_read_each_missed_stretch_of_a_stream_once(*, followed: bool, grows: bool) -> None:
    """Redis counts, by its own statistics; each of the sessions checks that it missed and doubled nothing."""
    with storm_of(SESSIONS, followed=followed, grows=grows, at_once=ON_THEIR_WAY) as found:
        assert found.storm.failure == ""
        assert found.storm.recovered == SESSIONS == 10_000
        assert found.calls["xrange"] == found.by_metric == found.streams
        assert (found.grown > 0) == grows
