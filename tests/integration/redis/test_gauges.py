"""What a node tells of its Redis, and of how long it has heard nothing of the streams."""

from __future__ import annotations

import math

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.redis import gauges, readers
from gateway.adapters.redis.gauges import ONLY_MASTER
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.metric import Metric
from tests.integration.redis.support import PARTITION, Bench
from tests.support.faults import eventually


def of_master(metrics: MemoryMetrics, metric: Metric) -> float:
    return metrics.gauge(metric, label=ONLY_MASTER)


def is_told(metrics: MemoryMetrics, metric: Metric) -> bool:
    try:
        return not math.isnan(of_master(metrics, metric))
    except KeyError:
        return False


async def test_a_node_tells_what_its_redis_says_of_itself(bench: Bench) -> None:
    metrics = MemoryMetrics()
    await bench.grid(metrics=metrics)
    await eventually(lambda: is_told(metrics, catalogue.GRID_MEMORY_BYTES), "Redis has answered")

    assert of_master(metrics, catalogue.GRID_MEMORY_BYTES) > 100_000
    assert of_master(metrics, catalogue.GRID_MEMORY_LIMIT_BYTES) == 0
    assert of_master(metrics, catalogue.GRID_CLIENTS) >= 1
    assert of_master(metrics, catalogue.GRID_REPLICAS) == 0
    assert of_master(metrics, catalogue.GRID_PERSISTENCE_OK) == 1
    assert of_master(metrics, catalogue.GRID_COMMANDS) > 1
    assert of_master(metrics, catalogue.GRID_CPU_SECONDS) > 0
    assert of_master(metrics, catalogue.GRID_EVICTED_KEYS) == 0


async def test_figures_are_kept_fresh(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "ASK_INTERVAL", 0.02)
    metrics = MemoryMetrics()
    await bench.grid(metrics=metrics)
    await eventually(lambda: is_told(metrics, catalogue.GRID_COMMANDS), "Redis has answered")
    before = of_master(metrics, catalogue.GRID_COMMANDS)
    await eventually(lambda: of_master(metrics, catalogue.GRID_COMMANDS) > before, "it is asked again")


async def test_nothing_is_told_of_a_redis_that_is_unreachable(forgetful: Bench) -> None:
    metrics = MemoryMetrics()
    await forgetful.grid(metrics=metrics)
    await eventually(lambda: is_told(metrics, catalogue.GRID_MEMORY_BYTES), "Redis has answered")
    forgetful.server.kill()
    await eventually(lambda: not is_told(metrics, catalogue.GRID_MEMORY_BYTES), "what it said is out of date")
    await forgetful.server.restart()
    await eventually(lambda: is_told(metrics, catalogue.GRID_MEMORY_BYTES), "it is asked again when it is back")


async def test_a_reader_that_hears_nothing_is_noticed(harmed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that finds nothing is a sign of life; one that never ends is not."""
    monkeypatch.setattr(readers, "BLOCK", 0.05)
    metrics = MemoryMetrics()
    grid = await harmed.grid(metrics=metrics, timeout=20)

    def silence() -> float:
        return metrics.gauge(catalogue.GRID_TAIL_SILENCE_SECONDS)

    assert silence() < 1, "its reader has just begun, if that"
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    await eventually(lambda: 0 < silence() < 1, "idle reads come to an end")
    harmed.server.suspend()
    await eventually(lambda: silence() > 1, "a read does not come to its end")
    harmed.server.resume()
    await eventually(lambda: silence() < 1, "it has come to its end")
