"""What a metric is; all there are stand in ``gateway/catalogue/metrics.py``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
