"""Every part of the model's own measurement end to end, small: nothing is measured, but all that is needed is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.model import sweep
from benchmarks.placement import Placement

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.thorough]

SMALL = {
    "DELIVERIES": {20: (50.0,)},
    "OWN_TOPIC": {20: (100.0,)},
    "STORMS": (40,),
    "FOREIGN": 400,
    "TOPICS": 200,
    "FORWARDED": 20,
    "SELECTING": 20,
    "REST": 0.1,
    "WARM_UP": 0.2,
    "MEASURE": 0.5,
}

FIGURES = {
    "deliver: 20 subscribers, 50 updates/s": {"server_cpu", "updates_per_write", "p50", "server_busy", "topics"},
    "own topic: 20 subscribers, 100 updates/s": {"server_cpu", "server_busy", "topics"},
    "failover: 40 sessions": {"server_cpu", "redis_cpu", "haproxy_cpu", "client_cpu", "seconds"},
    "foreign updates: 2 nodes follow": {"reader_cpu", "redis_cpu", "followers"},
    "values: 200 topics": {"resident", "grid"},
    "forward: 20 connections": {"haproxy_cpu", "haproxy_memory"},
    "selections: 53 each": {"server_cpu", "resident", "grid"},
}


class _Quiet:
    def say(self, text: str) -> None:
        """Say nothing."""


@pytest.mark.usefixtures("generator")
def test_every_part_gives_its_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(sweep, name, value)
    parts = sweep.Sweep(Placement.of_this_machine(), tmp_path, _Quiet()).parts()
    rows = {row.variant: row for part in parts.values() for row in part()}
    assert [row.failures for row in rows.values() if row.failures] == []
    for variant, figures in FIGURES.items():
        assert figures <= set(rows[variant].values), variant
    # Nobody read what nobody followed, and who followed read.
    reading = [rows[f"foreign updates: {number} nodes follow"].values["reader_cpu"] for number in range(3)]
    assert reading[0] < reading[1]
    assert rows["deliver: 20 subscribers, 50 updates/s"].values["updates_per_write"] == pytest.approx(1.0, abs=0.2)
