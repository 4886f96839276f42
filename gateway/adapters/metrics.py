"""Metrics for Prometheus, and the event log that counts what it hands on."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.adapters.process_metrics import ProcessMetrics
from gateway.catalogue.log_event import LogEvent
from gateway.catalogue.metric import Kind, Metric
from gateway.catalogue.metrics import BUILD_INFO, EVENTS, METRICS
from gateway.ports import EventLog, Metrics

OTHER: Final = "other"
"""The label value that stands for those the catalogue does not allow."""

MOST_LABEL_VALUES: Final = 100
"""Values of an open label that get a series of their own: more than all codes of the protocol; the rest is OTHER."""


class _Histogram:
    """One histogram.

    Attributes:
        bounds: upper ends of its buckets, each included.
        counts: values in each of them alone, and above all of them.
        sum: of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(map(float, bounds))
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0


class PrometheusMetrics(Collector):
    """Counts for Prometheus; implements ``gateway.ports.Metrics``.

    Adding and observing is one lookup by the metric's identity and one addition, so that it can stand on the hot path.
    Metrics of the process, the interpreter and its garbage collector are included. Not thread-safe.
    """

    def __init__(self, metrics: Iterable[Metric] = METRICS) -> None:
        """Register *metrics*; all known series exist from now on, as zero, so that rates see the first increment."""
        self._registry = CollectorRegistry()
        self._metrics = tuple(metrics)
        self._amounts: dict[tuple[Metric, str], float] = {}
        self._histograms: dict[tuple[Metric, str], _Histogram] = {}
        self._reads: dict[tuple[Metric, str], Callable[[], float]] = {}
        self._values: dict[Metric, set[str]] = {}
        for metric in self._metrics:
            for value in metric.values if metric.label else ("",):
                series = (metric, self._known(metric, value))
                if metric.kind is Kind.HISTOGRAM:
                    self._histograms[series] = _Histogram(metric.buckets)
                else:
                    self._amounts[series] = 0.0
        self._registry.register(self)
        self._registry.register(ProcessMetrics())
        for collector in (PlatformCollector, GCCollector):
            collector(registry=self._registry)
        if BUILD_INFO in self._metrics:
            self.watch(BUILD_INFO, lambda: 1, label=__version__)

    def add(self, metric: Metric, amount: float = 1, *, label: str = "") -> None:
        """Count up a counter.

        Args:
            metric: a counter of the catalogue.
            amount: not negative.
            label: the value of its one label; one that the catalogue does not allow counts as ``other``.
        """
        series = (metric, label)
        amounts = self._amounts
        if series not in amounts:
            # A refused label is not remembered: else unauthenticated clients could fill the memory with them.
            series = (metric, self._known(metric, label))
            amounts.setdefault(series, 0.0)
        amounts[series] += amount

    def observe(self, metric: Metric, value: float, *, label: str = "") -> None:
        """Put a value into a histogram; a label that the catalogue does not allow counts as ``other``."""
        histogram = self._histograms.get((metric, label))
        if histogram is None:
            series = (metric, self._known(metric, label))
            histogram = self._histograms.setdefault(series, _Histogram(metric.buckets))
        histogram.counts[bisect_left(histogram.bounds, value)] += 1
        histogram.sum += value

    def watch(self, metric: Metric, read: Callable[[], float], *, label: str = "") -> None:
        """Have a gauge or counter read by *read*; one that raises is shown as not-a-number, to be seen as broken."""
        self._reads[metric, self._known(metric, label)] = read

    def render(self) -> bytes:
        """Write everything in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Hand everything to the library."""
        # Each kind is walked once, whatever the number of metrics.
        samples: dict[Metric, dict[str, float]] = {}
        for (metric, label), amount in self._amounts.items():
            samples.setdefault(metric, {})[label] = amount
        for (metric, label), read in self._reads.items():
            shown = samples.setdefault(metric, {})
            try:
                amount = float(read())
            except Exception:  # noqa: BLE001 - one broken gauge must not hide all others from the operator
                shown[label] = math.nan
            else:
                shown.pop(label, None)
                if not math.isnan(amount):
                    shown[label] = amount
        histograms: dict[Metric, dict[str, _Histogram]] = {}
        for (metric, label), histogram in self._histograms.items():
            histograms.setdefault(metric, {})[label] = histogram
        for metric in self._metrics:
            labels = (metric.label,) if metric.label else ()
            if metric.kind is Kind.HISTOGRAM:
                yield _histogram_family(metric, labels, histograms.get(metric, {}))
                continue
            make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = make(metric.name, metric.meaning, labels=labels)
            for value, amount in samples.get(metric, {}).items():
                family.add_metric((value,) if metric.label else (), amount)
            yield family

    def _known(self, metric: Metric, label: str) -> str:
        """Return the label under which is counted."""
        if not metric.label:
            return ""
        values = self._values.setdefault(metric, set())
        if label in metric.values or label == OTHER or (metric.open and len(values) < MOST_LABEL_VALUES):
            values.add(label)
        return label if label in values else OTHER


def _histogram_family(metric: Metric, labels: tuple[str, ...], histograms: dict[str, _Histogram]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=labels)
    for label, histogram in histograms.items():
        ends = [*map(str, histogram.bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(histogram.counts), strict=True))
        family.add_metric((label,) if labels else (), buckets, histogram.sum)
    return family


class CountedEventLog:
    """An ``EventLog`` that counts each event by name and hands it on.

    The names are those of the catalogue, so the number of series is known beforehand, and nothing that a client says
    can become a label.

    Args:
        log: where events go.
        metrics: where they are counted.
    """

    def __init__(self, log: EventLog, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """See ``EventLog``."""
        self._metrics.add(EVENTS, label=event.name)
        self._log.emit(event, **fields)
