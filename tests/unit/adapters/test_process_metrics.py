"""Metrics of the process: those of Prometheus's own collector, and no list of descriptors."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from gateway.adapters.process_metrics import LISTED_EVERY, ProcessMetrics
from tests.support.clock import VirtualClock


def shown(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if not line.startswith("#")}


def test_they_are_those_of_the_usual_collector() -> None:
    usual, own = CollectorRegistry(), CollectorRegistry()
    ProcessCollector(registry=usual)
    own.register(ProcessMetrics())
    expected, found = shown(usual), shown(own)
    assert found.keys() == expected.keys()
    # A list of descriptors holds the one over which it is read.
    assert found["process_open_fds"] == expected["process_open_fds"] - 1
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert found[name] == pytest.approx(expected[name])
    for name in ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_cpu_seconds_total"):
        assert found[name] == pytest.approx(expected[name], rel=0.5)


@pytest.mark.skipif(not Path("/proc/self/fd").stat().st_size, reason="a kernel before 6.2 does not tell")
def test_descriptors_are_counted_without_a_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """P20: with 10,000 sessions the list took more of the event loop's time than all other metrics."""
    lists: list[Path] = []
    listed = os.listdir

    def counted(folder: Path) -> list[str]:
        lists.append(folder)
        return listed(folder)

    monkeypatch.setattr(os, "listdir", counted)
    clock = VirtualClock(100.0)
    metrics = ProcessMetrics(clock=clock)
    before = metrics.open_descriptors()
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Path(os.devnull).open())
        assert metrics.open_descriptors() == before + 20
    assert not lists


def test_an_older_kernel_makes_a_list_of_them_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells 0 for the size of the folder."""
    (tmp_path / "self").mkdir()
    count = [5]
    lists: list[object] = []

    def listed(folder: object) -> list[str]:
        lists.append(folder)
        return ["x"] * count[0]

    clock = VirtualClock(100.0)
    metrics = ProcessMetrics(proc=tmp_path, clock=clock)
    monkeypatch.setattr(os, "listdir", listed)
    # An empty file, as no file system but that of the kernel has folders of size 0 everywhere.
    (tmp_path / "self" / "fd").touch()
    assert metrics.open_descriptors() == 5
    count[0] = 7
    clock.advance(LISTED_EVERY - 1)
    assert metrics.open_descriptors() == 5
    clock.advance(1.5)
    assert metrics.open_descriptors() == 7
    assert len(lists) == 2


def test_where_there_is_no_proc_there_are_none(tmp_path: Path) -> None:
    assert list(ProcessMetrics(proc=tmp_path).collect()) == []
