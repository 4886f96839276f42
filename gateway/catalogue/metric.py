"""What a metric is; ``gateway/catalogue/metrics.py`` lists all there are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LATENCY_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: from below one Redis round trip on a loopback to beyond every time limit of the gateway."""


class Kind(StrEnum):
    """Kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; compared and hashed by identity, because each is declared exactly once.

    Attributes:
        name: in Prometheus.
        kind: counter, gauge or histogram.
        meaning: one sentence for operators.
        label: the name of its one label, or None.
        values: the label's values that are known beforehand; they are shown from the start, as zero.
        open: True if further values may appear; else one that is not in ``values`` counts as ``other``.
        buckets: upper bounds of a histogram's buckets, in the unit of its name.
    """

    name: str
    kind: Kind
    meaning: str
    label: str | None = None
    values: tuple[str, ...] = ()
    open: bool = False
    buckets: tuple[float, ...] = ()
