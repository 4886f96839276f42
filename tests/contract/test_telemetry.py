"""The contracts of ``Metrics`` and ``EventLog``: nothing that is told can hurt who tells it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from gateway.adapters.logging.event_log import StructuredEventLog
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.metrics import PrometheusMetrics
from gateway.catalogue.log_events import LOG_EVENTS, NODE_STARTED, SESSION_ENDED
from gateway.catalogue.metric import Kind, Metric
from gateway.catalogue.metrics import CLAIM_SECONDS, METRICS, PUBLISHES, SESSIONS
from gateway.ports import EventLog, Metrics


@pytest.fixture(params=[MemoryMetrics, PrometheusMetrics])
def metrics(request: pytest.FixtureRequest) -> Metrics:
    """An implementation."""
    made: Metrics = request.param()
    return made


LOGS: list[Callable[[], EventLog]] = [
    MemoryEventLog,
    lambda: StructuredEventLog(node="n1", format="json", stream=io.StringIO()),
    lambda: StructuredEventLog(node="n1", format="console", stream=io.StringIO()),
]


@pytest.fixture(params=LOGS, ids=["memory", "json", "console"])
def log(request: pytest.FixtureRequest) -> EventLog:
    """An implementation."""
    made: EventLog = request.param()
    return made


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_metric_of_the_catalogue_raises(metrics: Metrics, metric: Metric) -> None:
    """All methods return at once and never raise on a metric of the catalogue."""
    for label in metric.values or ("unheard-of",) if metric.label else ("",):
        if metric.kind is Kind.COUNTER:
            metrics.add(metric, label=label)
            metrics.add(metric, 0.5, label=label)
        elif metric.kind is Kind.GAUGE:
            metrics.watch(metric, lambda: 1.0, label=label)
            metrics.watch(metric, lambda: 2.0, label=label)
        else:
            metrics.observe(metric, 0.001)
            metrics.observe(metric, 1e9)


def test_memory_tells_what_it_was_told() -> None:
    """For tests: counters by label, histograms by observation, gauges read when asked."""
    metrics = MemoryMetrics()
    metrics.add(PUBLISHES, label="published")
    metrics.add(PUBLISHES, 2, label="published")
    metrics.add(PUBLISHES, label="refused")
    assert metrics.count(PUBLISHES, label="published") == 3
    assert metrics.count(PUBLISHES, label="duplicate") == 0
    assert metrics.counts(PUBLISHES) == {"published": 3, "refused": 1}
    metrics.observe(CLAIM_SECONDS, 0.5)
    assert metrics.observations(CLAIM_SECONDS) == [0.5]
    assert metrics.observations(Metric("other", Kind.HISTOGRAM, "")) == []
    size = [1.0]
    metrics.watch(SESSIONS, lambda: size[0], label="connected")
    size[0] = 7
    assert metrics.gauge(SESSIONS, label="connected") == 7


class Unprintable:
    """A value whose text cannot be made."""

    def __repr__(self) -> str:
        raise ValueError("no text for this")


def odd_values() -> list[object]:
    """Make values that no log likes."""
    return [None, b"\xff\x00", 10**400, float("nan"), "\ud800", "a\nb\x1b[2J", {"deep": [object()]}, ValueError("x")]


@pytest.mark.parametrize("event", LOG_EVENTS, ids=lambda event: event.name)
def test_no_event_of_the_catalogue_raises(log: EventLog, event: object) -> None:
    """Log *event* with its fields; never raises and never blocks."""
    for each in LOG_EVENTS:
        if each is event:
            for value in (*odd_values(), Unprintable()):
                log.emit(each, **dict.fromkeys(each.fields, value))


def test_memory_keeps_what_was_logged_and_says_what_was_not_declared() -> None:
    """For tests: each event with its fields, and those that broke the catalogue."""
    log = MemoryEventLog()
    log.emit(SESSION_ENDED, session="s", reason="closed")
    assert log.of(SESSION_ENDED) == [{"session": "s", "reason": "closed"}]
    assert log.of(NODE_STARTED) == []
    assert not log.undeclared
    log.emit(SESSION_ENDED, session="s")
    assert len(log.undeclared) == 1
    assert "session_ended" in log.undeclared[0]
