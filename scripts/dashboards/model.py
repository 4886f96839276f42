"""What a dashboard is made of, and the JSON that Grafana reads (schema version 39, Grafana 10 and newer)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

WIDTH: Final = 24
"""Columns of Grafana's grid."""

SCHEMA_VERSION: Final = 39
"""Of Grafana 10; newer ones migrate it when they load it."""

ROW_HEIGHT: Final = 1
"""Grid rows that the heading of a section takes."""

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Unit(StrEnum):
    """How values are written, by Grafana's names."""

    NUMBER = "short"
    PER_SECOND = "cps"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    RATIO = "percentunit"


class Look(StrEnum):
    """Kinds of panels, by Grafana's names."""

    CURVES = "timeseries"
    FIGURE = "stat"


@dataclass(frozen=True, slots=True)
class Query:
    """One question to Prometheus.

    Attributes:
        expression: in PromQL, with Grafana's variables.
        legend: what a series is called; ``{{label}}`` is replaced.
    """

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        title: a few words.
        meaning: what it shows and what to make of it; shown when somebody points at it.
        queries: what it asks.
        unit: of all of its values.
        look: curves over time, or the newest value as a figure.
        warn: value from which on it is shown as a warning; None for never.
        alarm: value from which on it is shown in red; None for never.
        stacked: curves are put on top of one another.
        low: values below ``warn`` and ``alarm`` are bad, not those above.
        empty: why it may have nothing to show in a healthy cluster; empty text if it always has.
        width: columns.
        height: rows.
    """

    title: str
    meaning: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.NUMBER
    look: Look = Look.CURVES
    warn: float | None = None
    alarm: float | None = None
    stacked: bool = False
    low: bool = False
    empty: str = ""
    width: int = 8
    height: int = 8


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under one heading.

    Attributes:
        title: the heading.
        panels: from left to right, line by line.
    """

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        name: of the file, and in its address.
        title: for people.
        meaning: one sentence.
        sections: from top to bottom.
        by_node: people choose which nodes to see.
    """

    name: str
    title: str
    meaning: str
    sections: tuple[Section, ...]
    by_node: bool = False
    tags: tuple[str, ...] = field(default=("session-gateway",))

    def panels(self) -> Iterator[Panel]:
        """Yield all panels."""
        for section in self.sections:
            yield from section.panels


def render(dashboard: Dashboard) -> dict[str, Any]:
    """Make what Grafana reads."""
    return {
        "uid": f"gateway-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.meaning,
        "tags": list(dashboard.tags),
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables(dashboard))},
        "annotations": {"list": [_alerts()]},
        "links": [
            {
                "title": "Gateway",
                "type": "dashboards",
                "tags": list(dashboard.tags),
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": list(_panels(dashboard)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    yield _choice("cluster", "Cluster", "label_values(up, cluster)")
    if dashboard.by_node:
        yield _choice("node", "Node", 'label_values(up{job="gateway", cluster=~"$cluster"}, node)')


def _choice(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 7,
        "multi": True,
        "includeAll": True,
        # Also what has no such label, as in a Prometheus that knows one cluster only.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": _DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing", alertname=~"Gateway.+"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{node}} {{master}}",
        "step": "15s",
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for section in dashboard.sections:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": section.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": ROW_HEIGHT},
            "panels": [],
        }
        top += ROW_HEIGHT
        left = height = 0
        for panel in section.panels:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel) -> dict[str, Any]:
    curves = panel.look is Look.CURVES
    steps = _steps(panel)
    shown: dict[str, Any] = {
        "unit": panel.unit.value,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "palette-classic" if curves else "thresholds"},
    }
    if curves:
        shown["min"] = 0
        shown["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 10,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"},
        }
    return {
        "type": panel.look.value,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "range": curves,
                "instant": not curves,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": shown, "overrides": []},
        "options": _CURVES if curves else _FIGURE,
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    """Colours by value, in ascending order; the first has no lower bound."""
    marks = [("orange", panel.warn), ("red", panel.alarm)]
    marked = [(colour, value) for colour, value in marks if value is not None]
    if not panel.low:
        return [{"color": "green", "value": None}, *({"color": colour, "value": value} for colour, value in marked)]
    marked.sort(key=lambda each: each[1])
    bounds: list[float | None] = [None, *(value for _, value in marked)]
    colours = [*(colour for colour, _ in marked), "green"]
    return [{"color": colour, "value": bound} for colour, bound in zip(colours, bounds, strict=True)]


_CURVES: Final = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_FIGURE: Final = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "colorMode": "value",
    "graphMode": "area",
    "justifyMode": "auto",
    "textMode": "auto",
}
