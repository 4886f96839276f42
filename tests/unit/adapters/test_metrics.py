from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway import __version__
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.metrics import MOST_LABEL_VALUES, CountedEventLog, PrometheusMetrics
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.log_events import NODE_STOPPED, RESUME_REFUSED
from gateway.catalogue.metric import Kind, Metric
from gateway.catalogue.metrics import EVENTS, METRICS


def samples(metrics: PrometheusMetrics) -> Mapping[tuple[str, str], float]:
    """Values by name and the value of the one label."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[sample.name, ",".join(sample.labels.values())] = sample.value
    return found


def test_every_metric_of_the_catalogue_is_there_from_the_start() -> None:
    names = {name for name, _ in samples(PrometheusMetrics())}

    for metric in METRICS:
        assert metric.name in names or f"{metric.name}_count" in names or (metric.label and not metric.values)


def test_counters_count_and_known_labels_start_at_zero() -> None:
    metrics = PrometheusMetrics()
    metrics.add(catalogue.SESSIONS_OPENED)
    metrics.add(catalogue.SESSIONS_OPENED, 2)
    metrics.add(catalogue.SESSIONS_ENDED, label="expired")

    found = samples(metrics)

    assert found["gateway_sessions_opened_total", ""] == 3
    assert found["gateway_sessions_ended_total", "expired"] == 1
    assert found["gateway_sessions_ended_total", "closed"] == 0


def test_histograms_have_the_buckets_of_the_catalogue() -> None:
    metrics = PrometheusMetrics()
    metrics.observe(catalogue.GRID_BATCH_COMMANDS, 7)

    found = samples(metrics)

    assert found["gateway_grid_batch_commands_bucket", "5.0"] == 0
    assert found["gateway_grid_batch_commands_bucket", "10.0"] == 1
    assert found["gateway_grid_batch_commands_sum", ""] == 7


def test_gauges_are_read_when_asked_for() -> None:
    metrics, value = PrometheusMetrics(), 1
    metrics.watch(catalogue.CONNECTIONS, lambda: value)
    metrics.watch(catalogue.SESSIONS, lambda: 5, label="connected")

    value = 2

    assert samples(metrics)["gateway_connections", ""] == 2
    assert samples(metrics)["gateway_sessions", "connected"] == 5
    assert samples(metrics)["gateway_sessions", "disconnected"] == 0


def test_a_gauge_that_fails_hides_no_other() -> None:
    metrics = PrometheusMetrics()
    metrics.watch(catalogue.CONNECTIONS, lambda: 1 / 0)
    metrics.watch(catalogue.DRAINING, lambda: True)

    assert math.isnan(samples(metrics)["gateway_connections", ""])
    assert samples(metrics)["gateway_draining", ""] == 1


def test_a_label_that_a_closed_set_does_not_know_counts_as_other() -> None:
    metrics = PrometheusMetrics()
    metrics.add(catalogue.PUBLISHES, label="surprising")

    found = samples(metrics)

    assert found["gateway_publishes_total", "other"] == 1
    assert ("gateway_publishes_total", "surprising") not in found


def test_an_open_set_takes_new_values_up_to_a_bound() -> None:
    metrics = PrometheusMetrics()
    closed = len(metrics._amounts)
    for number in range(10 * MOST_LABEL_VALUES):
        metrics.add(catalogue.CLOSES, label=f"x{number}")

    found = {label: value for (name, label), value in samples(metrics).items() if name == "gateway_closes_total"}

    assert found["x0"] == 1
    assert len(found) == MOST_LABEL_VALUES + 1
    assert sum(found.values()) == 10 * MOST_LABEL_VALUES
    assert len(metrics._amounts) <= closed + MOST_LABEL_VALUES + 1


def test_two_nodes_in_one_process_do_not_share_numbers() -> None:
    one, other = PrometheusMetrics(), PrometheusMetrics()
    one.add(catalogue.DELIVERIES)

    assert samples(one)["gateway_deliveries_total", ""] == 1
    assert samples(other)["gateway_deliveries_total", ""] == 0


def test_process_interpreter_and_version_are_included() -> None:
    found = samples(PrometheusMetrics())

    assert found["gateway_build_info", __version__] == 1
    assert found["process_cpu_seconds_total", ""] >= 0
    assert any(name == "python_gc_collections_total" for name, _ in found)


def test_creation_times_are_left_out() -> None:
    """Each counter and histogram would have a second series, which nobody reads."""
    assert not re.search(rb"^\w+_created[ {]", PrometheusMetrics().render(), re.MULTILINE)


def test_histograms_by_label_have_their_known_labels_from_the_start() -> None:
    metrics = PrometheusMetrics()
    metrics.observe(catalogue.RESUME_SECONDS, 0.2, label="failed_over")
    metrics.observe(catalogue.RESUME_SECONDS, 0.2, label="surprising")

    found = samples(metrics)

    counts = {label: value for (name, label), value in found.items() if name == "gateway_resume_seconds_count"}
    assert counts == {"reattached": 0, "handed_over": 0, "mirrored": 0, "failed_over": 1, "refused": 0, "other": 1}
    assert found["gateway_resume_seconds_bucket", "0.1,failed_over"] == 0
    assert found["gateway_resume_seconds_bucket", "0.25,failed_over"] == 1


def test_a_counter_that_somebody_else_counts_up_is_read() -> None:
    metrics, count = PrometheusMetrics(), 5.0
    metrics.watch(catalogue.GRID_COMMANDS, lambda: count, label="10.0.0.9:6379")

    assert samples(metrics)["gateway_grid_commands_total", "10.0.0.9:6379"] == 5
    count = 8
    assert samples(metrics)["gateway_grid_commands_total", "10.0.0.9:6379"] == 8


def test_what_is_not_a_number_is_not_shown() -> None:
    metrics = PrometheusMetrics()
    metrics.watch(catalogue.GRID_MEMORY_BYTES, lambda: math.nan, label="10.0.0.9:6379")
    metrics.watch(catalogue.GRID_MEMORY_BYTES, lambda: 7, label="10.0.0.10:6379")

    found = samples(metrics)

    assert ("gateway_grid_memory_bytes", "10.0.0.9:6379") not in found
    assert found["gateway_grid_memory_bytes", "10.0.0.10:6379"] == 7


def test_no_other_metrics_are_needed_to_use_a_few() -> None:
    mine = Metric("gateway_mine_total", Kind.COUNTER, "Mine.")
    metrics = PrometheusMetrics([mine])
    metrics.add(mine)

    assert samples(metrics)["gateway_mine_total", ""] == 1


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_catalogue_follows_the_conventions(metric: Metric) -> None:
    assert metric.name.startswith("gateway_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.meaning.endswith(".")
    assert metric.label is not None or not (metric.values or metric.open)
    assert metric.label is None or metric.values or metric.open


def test_events_are_counted_by_name_and_handed_on() -> None:
    log, metrics = MemoryEventLog(), MemoryMetrics()
    counted = CountedEventLog(log, metrics)

    counted.emit(NODE_STOPPED, node="n1")
    for _ in range(3):
        counted.emit(RESUME_REFUSED, reason="stale_attempt", address="192.0.2.1")

    assert metrics.counts(EVENTS) == {"node_stopped": 1, "resume_refused": 3}
    assert len(log.events) == 4
    assert not log.undeclared
