"""Metrics for Prometheus."""

from gateway.adapters.metrics.prometheus import PrometheusMetrics

__all__ = ["PrometheusMetrics"]
