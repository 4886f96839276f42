"""The metrics of the catalogue behind prometheus-client, in a registry of their own: two nodes fit into one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.catalogue.metrics import BUILD_INFO, METRICS, Kind, Metric

OTHER: Final = "other"
"""The label value that stands for those the catalogue does not allow."""

MOST_LABEL_VALUES: Final = 100
"""Values of an open label that get a series of their own: more than all codes of the protocol; the rest is OTHER."""

Add = Callable[[float], None]
CollectorT = TypeVar("CollectorT", Counter, Gauge)


class PrometheusMetrics:
    """Counts for Prometheus; implements ``gateway.ports.Metrics``.

    Adding and observing is one lookup by the metric's identity and one addition, so that it can stand on the hot path.
    Metrics of the process, the interpreter and its garbage collector are included.
    """

    def __init__(self, metrics: Iterable[Metric] = METRICS) -> None:
        """Register *metrics*; all known series exist from now on, as zero, so that rates see the first increment."""
        self._registry = CollectorRegistry()
        self._counters: dict[Metric, Counter] = {}
        self._gauges: dict[Metric, Gauge] = {}
        self._observers: dict[Metric, Callable[[float], None]] = {}
        self._adders: dict[tuple[Metric, str], Add] = {}
        self._values: dict[Metric, set[str]] = {}
        for metric in metrics:
            self._register(metric)
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
        adder = self._adders.get((metric, label))
        if adder is None:
            adder = self._adder(metric, label)
        adder(amount)

    def observe(self, metric: Metric, value: float) -> None:
        """Put a value into a histogram."""
        self._observers[metric](value)

    def watch(self, metric: Metric, read: Callable[[], float], *, label: str = "") -> None:
        """Have a gauge read by *read* whenever it is asked for; a *read* that raises shows as not-a-number."""

        def safely() -> float:
            try:
                return float(read())
            except Exception:  # noqa: BLE001 - one broken gauge must not hide all others from the operator
                return math.nan

        self._child(self._gauges[metric], metric, label).set_function(safely)

    def render(self) -> bytes:
        """Write everything in the text format of Prometheus."""
        return generate_latest(_WithoutCreationTimes(self._registry))

    def _register(self, metric: Metric) -> None:
        labels = (metric.label,) if metric.label else ()
        match metric.kind:
            case Kind.COUNTER:
                counter = Counter(metric.name, metric.meaning, labels, registry=self._registry)
                self._counters[metric] = counter
                for value in metric.values if metric.label else ("",):
                    self._adder(metric, value)
            case Kind.GAUGE:
                gauge = Gauge(metric.name, metric.meaning, labels, registry=self._registry)
                self._gauges[metric] = gauge
                for value in metric.values:
                    self._child(gauge, metric, value)
            case Kind.HISTOGRAM:
                histogram = Histogram(metric.name, metric.meaning, registry=self._registry, buckets=metric.buckets)
                self._observers[metric] = histogram.observe

    def _adder(self, metric: Metric, label: str) -> Add:
        child = self._child(self._counters[metric], metric, label)

        def adder(amount: float) -> None:
            child.inc(amount)

        # A refused label is not remembered: else strangers could fill the memory with them.
        if not metric.label or label in self._values[metric]:
            self._adders[metric, label] = adder
        return adder

    def _child(self, parent: CollectorT, metric: Metric, label: str) -> CollectorT:
        if not metric.label:
            return parent
        values = self._values.setdefault(metric, set())
        if label in metric.values or label == OTHER or (metric.open and len(values) < MOST_LABEL_VALUES):
            values.add(label)
        return parent.labels(label if label in values else OTHER)


class _WithoutCreationTimes(Collector):
    """Leaves out the ``_created`` series, which triple the size of the page and which no dashboard asks for.

    The library can do so itself, but only for all registries of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
