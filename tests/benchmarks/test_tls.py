"""What TLS costs is measured where it ends: small, so nothing is measured here, but everything is run."""

from __future__ import annotations

import pytest

from benchmarks import tls
from benchmarks.placement import Placement

pytestmark = pytest.mark.thorough


@pytest.mark.cluster
@pytest.mark.redis
@pytest.mark.haproxy
@pytest.mark.parametrize("place", ["haproxy", "node"])
def test_sessions_and_updates_come_through_wherever_tls_ends(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "SUBSCRIBERS", 10)
    monkeypatch.setattr(tls, "WARM_UP", 0.2)
    monkeypatch.setattr(tls, "QUIET_SECONDS", 0.1)
    found = tls.measure(place, Placement.of_this_machine(), sessions=20, seconds=0.3)
    assert sorted(found) == sorted(tls.FIGURES)
    # Those of deliveries are read in ticks of the kernel, of which so few updates may take none.
    assert found[tls.NODE_OPENING] > 0
    assert found[tls.BALANCER_OPENING] > 0


def test_the_table_tells_medians_and_how_far_apart_runs_are() -> None:
    runs = {
        "nowhere": [dict.fromkeys(tls.FIGURES, value) for value in (3.0, 1.0, 2.04)],
        "node": [dict.fromkeys(tls.FIGURES, 5.0)],
    }
    head, rule, *lines = tls.table(runs).splitlines()
    assert head == "| | no TLS | TLS at the node |"
    assert rule == "| --- | ---: | ---: |"
    assert lines == [f"| {figure} | 2.0 (1.0 … 3.0) | 5.0 |" for figure in tls.FIGURES]
