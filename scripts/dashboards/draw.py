"""Draws what a dashboard shows, by asking Prometheus what its panels ask. Not Grafana, but the same figures."""

from __future__ import annotations

import io
import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.dashboards.model import ROW_HEIGHT, WIDTH, Dashboard, Look, Panel, Query, Unit

POINTS: Final = 150
"""Points of a curve: about one for two pixels of a panel."""

RATE_INTERVAL: Final = "30s"
"""What stands for Grafana's ``$__rate_interval``: several scrapes of a local stack."""

TIMEOUT: Final = 10.0
"""Seconds for one answer."""

DOTS_PER_INCH: Final = 144
"""Two dots for each point of the page, so that small print stays sharp on good screens."""

COLOURS: Final = 256
"""Of a picture: as many as one byte a dot can tell apart."""

_COLUMN_INCHES: Final = 0.55
_ROW_INCHES: Final = 0.32
_TITLE_INCHES: Final = 0.45
_LEFT_INCHES, _BELOW_INCHES, _ABOVE_INCHES, _RIGHT_INCHES = 0.65, 0.25, 0.3, 0.15
"""Around each panel, for what is written at its axes."""
_MOST_LEGENDS: Final = 6
"""Curves that are named in one column; twice as many are named at all, because more names would leave no room."""
_LEGEND_ROW: Final = 0.065
"""Height of a row of the legend, as a share of the usual panel's: 6 points of print in 145."""
_LEGEND_FRAME: Final = 0.06
"""Height of what is round the rows."""
_TICKS: Final = 5
"""Marks at the axis of bytes, at most."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve.

    Attributes:
        labels: of the series.
        points: seconds since 1970, and values.
    """

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


def filled_in(expression: str) -> str:
    """Replace Grafana's variables as it does when everything is chosen."""
    return expression.replace("$__rate_interval", RATE_INTERVAL).replace("$cluster", ".*").replace("$node", ".*")


def ask(prometheus: str, expression: str, *, over: float, end: float) -> list[Series]:
    """Ask Prometheus for the *over* seconds before *end*.

    Args:
        prometheus: its URL, without a path.
        expression: without variables.
        over: seconds.
        end: seconds since 1970.

    Raises:
        OSError: it cannot be reached, or it does not accept the expression.
    """
    step = max(1.0, over / POINTS)
    form = urllib.parse.urlencode({"query": expression, "start": end - over, "end": end, "step": step})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range", form.encode(), timeout=TIMEOUT) as answer:  # noqa: S310 - an operator's own Prometheus
        data: dict[str, Any] = json.load(answer)["data"]
    return [
        Series(each["metric"], [(float(at), float(value)) for at, value in each["values"]]) for each in data["result"]
    ]


def draw(dashboard: Dashboard, prometheus: str, over: float, file: Path, *, end: float) -> None:
    """Draw what a dashboard shows of the *over* seconds before *end* into a PNG file.

    Args:
        dashboard: which one.
        prometheus: its URL, without a path.
        over: seconds.
        file: where it is written.
        end: seconds since 1970; pictures with the same end show the same time.

    Raises:
        OSError: Prometheus cannot be reached, or the file cannot be written.
    """
    import matplotlib as mpl  # noqa: PLC0415 - a second to import, and only needed here

    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    mpl.rcParams.update({"font.size": 7, "axes.titlesize": 8})
    headings, panels = _places(dashboard)
    width = WIDTH * _COLUMN_INCHES
    height = max(top + panel.height for panel, _, top in panels) * _ROW_INCHES + _TITLE_INCHES
    sheet = plt.figure(figsize=(width, height))
    sheet.text(0.01, 1 - 0.3 / height, dashboard.title, fontsize=11)
    for heading, top in headings:
        at = height - _TITLE_INCHES - (top + ROW_HEIGHT / 2) * _ROW_INCHES
        sheet.text(0.01, at / height, heading, fontsize=9, va="center", color="dimgrey")
    for panel, left, top in panels:
        bottom = height - _TITLE_INCHES - (top + panel.height) * _ROW_INCHES + _BELOW_INCHES
        axes = sheet.add_axes(
            (
                (left * _COLUMN_INCHES + _LEFT_INCHES) / width,
                bottom / height,
                (panel.width * _COLUMN_INCHES - _LEFT_INCHES - _RIGHT_INCHES) / width,
                (panel.height * _ROW_INCHES - _BELOW_INCHES - _ABOVE_INCHES) / height,
            )
        )
        answers = [(query, ask(prometheus, filled_in(query.expression), over=over, end=end)) for query in panel.queries]
        if panel.look is Look.FIGURE:
            _draw_figure(axes, panel, answers)
        else:
            _draw_curves(axes, panel, answers, over, end)
    drawn = io.BytesIO()
    sheet.savefig(drawn, format="png", dpi=DOTS_PER_INCH)
    plt.close(sheet)
    write_small(drawn.getvalue(), file)


def write_small(picture: bytes, file: Path) -> None:
    """Write a picture as a PNG file of few colours: less than half of the bytes, and no difference to be seen.

    The colours are chosen so that each of the picture has one close to it, however few dots have it: a thin curve keeps
    its colour beside much white.

    Args:
        picture: in any format that Pillow reads.
        file: where it is written.
    """
    from PIL import Image  # noqa: PLC0415 - comes with matplotlib, and is only needed here

    with Image.open(io.BytesIO(picture)) as full:
        few = full.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(file, "PNG", optimize=True)


def _places(dashboard: Dashboard) -> tuple[list[tuple[str, int]], list[tuple[Panel, int, int]]]:
    """Place the sections' headings (rows from the top) and the panels (columns from the left, rows from the top)."""
    headings: list[tuple[str, int]] = []
    places: list[tuple[Panel, int, int]] = []
    top = 0
    for section in dashboard.sections:
        headings.append((section.title, top))
        top += ROW_HEIGHT
        left = height = 0
        for panel in section.panels:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            places.append((panel, left, top))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return headings, places


def _draw_figure(axes: Any, panel: Panel, answers: list[tuple[Query, list[Series]]]) -> None:
    newest = [series.points[-1][1] for _, found in answers for series in found if series.points]
    axes.set_title(panel.title, loc="left")
    axes.axis("off")
    # Growth over a time is extrapolated, and so no whole number, though what grew has been counted.
    whole = panel.unit is Unit.NUMBER and bool(newest) and not math.isnan(newest[0])
    text = write(round(newest[0]) if whole else newest[0], panel.unit) if newest else "no data"
    axes.text(0.5, 0.4, text, ha="center", va="center", fontsize=16, color=_colour(panel, newest))


def _colour(panel: Panel, newest: list[float]) -> str:
    if not newest or math.isnan(newest[0]):
        return "grey"
    for bound, colour in ((panel.alarm, "tab:red"), (panel.warn, "tab:orange")):
        if bound is not None and (newest[0] < bound if panel.low else newest[0] >= bound):
            return colour
    return "tab:green"


def _draw_curves(axes: Any, panel: Panel, answers: list[tuple[Query, list[Series]]], over: float, end: float) -> None:
    curves = [(_legend(query, series), series) for query, found in answers for series in found]
    curves.sort(key=lambda each: each[0])
    if len(curves) > _MOST_LEGENDS:
        curves = [each for each in curves if any(value > 0 for _, value in each[1].points)] or curves[:1]
    if panel.stacked and curves:
        moments = sorted({at for _, series in curves for at, _ in series.points})
        values = [[dict(series.points).get(at, 0.0) for at in moments] for _, series in curves]
        axes.stackplot([at - end for at in moments], values, labels=[name for name, _ in curves], alpha=0.6)
    else:
        for name, series in curves:
            axes.plot([at - end for at, _ in series.points], [value for _, value in series.points], lw=1, label=name)
    axes.set_title(panel.title, loc="left")
    axes.set_xlim(-over, 0)
    named = len(curves) if len(curves) <= 2 * _MOST_LEGENDS else 0
    columns = 1 + named // _MOST_LEGENDS
    highest = _highest([series for _, series in curves], stacked=panel.stacked)
    top = highest / (1 - _LEGEND_FRAME - math.ceil(named / columns) * _LEGEND_ROW)
    axes.set_ylim(0, top)
    if panel.unit in (Unit.BYTES, Unit.BYTES_PER_SECOND):
        step = 2.0 ** math.ceil(math.log2(top / _TICKS))
        axes.set_yticks([step * mark for mark in range(_TICKS + 1) if step * mark <= top])
    axes.grid(alpha=0.3)
    axes.set_xticks([-over + over * part / 4 for part in range(5)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} s" if value else "now")
    axes.yaxis.set_major_formatter(lambda value, _: write(value, panel.unit))
    if named:
        axes.legend(loc="upper left", fontsize=6, ncols=columns, labelspacing=0.3, framealpha=0.6)
    elif not curves:
        axes.text(0.5, 0.5, panel.empty or "no data", ha="center", transform=axes.transAxes, color="grey")


def _highest(curves: Sequence[Series], *, stacked: bool) -> float:
    """Tell the highest value that is drawn; 1 if there is none above zero."""
    sums: dict[float, float] = {}
    for series in curves:
        for at, value in series.points:
            if not math.isnan(value):
                sums[at] = sums.get(at, 0.0) + value if stacked else max(sums.get(at, 0.0), value)
    return max(sums.values(), default=0.0) or 1.0


def _legend(query: Query, series: Series) -> str:
    if not query.legend:
        return ", ".join(f"{name}={value}" for name, value in series.labels.items())
    return re.sub(r"\{\{(\w+)\}\}", lambda match: series.labels.get(match[1], ""), query.legend)


def write(value: float, unit: Unit) -> str:
    """Write a value for people."""
    if math.isnan(value):
        return "none"
    match unit:
        case Unit.RATIO:
            return f"{value * 100:.3g} %"
        case Unit.SECONDS:
            if value and value < 1:
                return f"{value * 1000:.3g} ms"
            return f"{value:.3g} s"
        case Unit.BYTES | Unit.BYTES_PER_SECOND:
            size, names = value, ["B", "KiB", "MiB", "GiB"]
            while size >= 1024 and len(names) > 1:  # noqa: PLR2004 - what the prefixes mean
                size, names = size / 1024, names[1:]
            return f"{size:.3g} {names[0]}" + ("/s" if unit is Unit.BYTES_PER_SECOND else "")
        case Unit.PER_SECOND:
            return f"{_short(value)}/s"
        case Unit.NUMBER:
            return _short(value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 - as people do
