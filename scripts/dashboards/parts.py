"""Expressions that many panels have in common."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Look, Panel, Query, Unit

CLUSTER: Final = 'cluster=~"$cluster"'
"""Matches what people chose to see."""

NODE: Final = 'cluster=~"$cluster", node=~"$node"'
"""Matches it on dashboards where nodes are chosen."""


def rate(metric: str, matchers: str = CLUSTER, *, by: str = "node") -> str:
    """Ask how fast a counter grows, added up over all but the labels *by*."""
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, matchers: str = CLUSTER, *, by: str = "") -> str:
    """Ask below which value a *share* of what a histogram saw lies."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', matchers, by=labels)})"


def spread(histogram: str, matchers: str = CLUSTER) -> tuple[Query, ...]:
    """Ask for p50 and p99 of a histogram."""
    return (
        Query(quantile(0.5, histogram, matchers), "p50"),
        Query(quantile(0.99, histogram, matchers), "p99"),
    )


def figure(
    title: str,
    meaning: str,
    expression: str,
    *,
    unit: Unit = Unit.NUMBER,
    warn: float | None = None,
    alarm: float | None = None,
    low: bool = False,
    empty: str = "",
) -> Panel:
    """Make a small panel with one figure."""
    return Panel(
        title=title,
        meaning=meaning,
        queries=(Query(expression, title),),
        unit=unit,
        look=Look.FIGURE,
        warn=warn,
        alarm=alarm,
        low=low,
        empty=empty,
        width=4,
        height=4,
    )
