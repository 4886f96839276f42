"""Metrics for Prometheus."""

from gateway.adapters.metrics.counted_log import CountedEventLog
from gateway.adapters.metrics.prometheus import PrometheusMetrics

__all__ = ["CountedEventLog", "PrometheusMetrics"]
