"""The metrics of the catalogue behind prometheus-client, in a registry of their own: two nodes fit into one process.

Counters and histograms are counted here and handed to the library when somebody looks. Its own have a lock, bounds and
exemplars for each addition, at 1 to 2 µs; a storm adds some ten numbers per session, all in one thread.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.catalogue.metrics import BUILD_INFO, METRICS, Kind, Metric

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
        self._counters: list[Metric] = []
        self._gauges: dict[Metric, Gauge] = {}
        self._histograms: dict[Metric, _Histogram] = {}
        self._amounts: dict[tuple[Metric, str], float] = {}
        self._values: dict[Metric, set[str]] = {}
        for metric in metrics:
            self._register(metric)
        self._registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        if BUILD_INFO in self._gauges:
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
            # A refused label is not remembered: else strangers could fill the memory with them.
            series = (metric, self._known(metric, label))
            amounts.setdefault(series, 0.0)
        amounts[series] += amount

    def observe(self, metric: Metric, value: float) -> None:
        """Put a value into a histogram."""
        histogram = self._histograms[metric]
        histogram.counts[bisect_left(histogram.bounds, value)] += 1
        histogram.sum += value

    def watch(self, metric: Metric, read: Callable[[], float], *, label: str = "") -> None:
        """Have a gauge read by *read* whenever it is asked for; a *read* that raises shows as not-a-number."""

        def safely() -> float:
            try:
                return float(read())
            except Exception:  # noqa: BLE001 - one broken gauge must not hide all others from the operator
                return math.nan

        self._child(metric, label).set_function(safely)

    def render(self) -> bytes:
        """Write everything in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Hand counters and histograms to the library."""
        for metric in self._counters:
            counter = CounterMetricFamily(metric.name, metric.meaning, labels=(metric.label,) if metric.label else ())
            for (of, label), amount in self._amounts.items():
                if of is metric:
                    counter.add_metric((label,) if metric.label else (), amount)
            yield counter
        for metric, histogram in self._histograms.items():
            family = HistogramMetricFamily(metric.name, metric.meaning)
            ends = [*map(str, histogram.bounds), "+Inf"]
            family.add_metric((), list(zip(ends, accumulate(histogram.counts), strict=True)), histogram.sum)
            yield family

    def _register(self, metric: Metric) -> None:
        match metric.kind:
            case Kind.COUNTER:
                self._counters.append(metric)
                for value in metric.values if metric.label else ("",):
                    self._amounts[metric, self._known(metric, value)] = 0.0
            case Kind.GAUGE:
                labels = (metric.label,) if metric.label else ()
                self._gauges[metric] = Gauge(metric.name, metric.meaning, labels, registry=self._registry)
                for value in metric.values:
                    self._child(metric, value)
            case Kind.HISTOGRAM:
                self._histograms[metric] = _Histogram(metric.buckets)

    def _child(self, metric: Metric, label: str) -> Gauge:
        gauge = self._gauges[metric]
        return gauge.labels(self._known(metric, label)) if metric.label else gauge

    def _known(self, metric: Metric, label: str) -> str:
        """Return the label under which is counted."""
        if not metric.label:
            return ""
        values = self._values.setdefault(metric, set())
        if label in metric.values or label == OTHER or (metric.open and len(values) < MOST_LABEL_VALUES):
            values.add(label)
        return label if label in values else OTHER
