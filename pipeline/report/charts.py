"""Charts of the report, as SVG that is part of the page: it follows the page's colours, light and dark."""

from __future__ import annotations

import functools
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, ParamSpec

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from pipeline.gold.words import RUNGS
from pipeline.report.findings import Comebacks, Micros, Row
from pipeline.report.objective import BurnDown
from pipeline.report.text import count, duration, shown

_COLOURS: Final = {
    "text": "#010203",
    "line": "#010204",
    "reattached": "#010301",
    "failed_over": "#010302",
    "refused": "#010303",
    "other": "#010304",
    "accent": "#010305",
    "bad": "#010306",
    "handed_over": "#010307",
    "mirrored": "#010308",
}
"""Colours that stand for those of the page, which a chart cannot know: they are replaced by its variables."""

_SERIES: Final = ("#2f7d57", "#3f6fd1", "#b06f00", "#8b4fb8", "#c2363d", "#0f8a9d", "#7a7f88", "#a3557c")
"""For nodes and roots of topics, of which there can be any number; legible on light and dark."""

_RUNGS: Final = (*RUNGS, "refused", "other")
"""In the order of the ladder; only those that were met are drawn."""

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _COLOURS["text"],
    "axes.edgecolor": _COLOURS["line"],
    "axes.labelcolor": _COLOURS["text"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _COLOURS["line"],
    "grid.linewidth": 0.5,
    "xtick.color": _COLOURS["line"],
    "ytick.color": _COLOURS["line"],
    "xtick.labelcolor": _COLOURS["text"],
    "ytick.labelcolor": _COLOURS["text"],
    "legend.frameon": False,
    # A dollar in the name of a topic is a dollar, and no formula.
    "text.parse_math": False,
}

_WIDTHS_S: Final = (10, 60, 300, 900, 3600, 6 * 3600, 86400)
"""Widths of bars over time, in seconds: the narrowest is taken that needs no more than ``_MOST_BARS``."""

_MOST_BARS: Final = 90

_LEAST_BARS: Final = 12
"""There is room for so many, however few they are."""

_LEAST_DAYS: Final = 3 / 24
"""What an axis of hours shows, however short the time was."""

_SECOND: Final = 1_000_000
"""Microseconds."""

_TICKS_S: Final = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)
"""Times away, in seconds, that people know how long they are."""

_BINS_PER_DECADE: Final = 8
"""Of the distribution of times away: bars that differ by a third."""


_Drawing = ParamSpec("_Drawing")


def _styled(draw: Callable[_Drawing, str | None]) -> Callable[_Drawing, str | None]:
    """Draw in the style of the report: matplotlib asks for it whenever a part is made."""

    @functools.wraps(draw)
    def styled(*args: _Drawing.args, **kwargs: _Drawing.kwargs) -> str | None:
        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return styled


@_styled
def distribution(comebacks: Comebacks) -> str | None:
    """Draw how long clients were away, by rung; None if there is nothing to draw."""
    known = comebacks.away_ms >= 0
    if not known.any():
        return None
    away = np.maximum(comebacks.away_ms[known], 1) / 1000
    rungs = comebacks.rung[known]
    lowest, highest = np.floor(np.log10(away.min())), np.ceil(np.log10(away.max()) + 1e-9)
    edges = np.logspace(
        lowest, max(highest, lowest + 1), int((max(highest, lowest + 1) - lowest) * _BINS_PER_DECADE) + 1
    )
    figure, axes = _axes(7.2, 2.6)
    bottom = np.zeros(len(edges) - 1)
    for name, chosen in _by_rung(rungs):
        counts, _ = np.histogram(away[chosen], edges)
        axes.bar(edges[:-1], counts, np.diff(edges), bottom, align="edge", color=_COLOURS[name], label=name)
        bottom += counts
    axes.set_xscale("log")
    axes.set_xticks([each for each in _TICKS_S if edges[0] <= each <= edges[-1]])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(1000 * seconds)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    for share in (50, 95, 99):
        value = float(np.percentile(away, share, method="inverted_cdf"))
        axes.axvline(value, color=_COLOURS["text"], linewidth=0.8, linestyle=":")
        axes.annotate(
            f"p{share} {duration(1000 * value)}",
            (value, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -8 - 11 * (50, 95, 99).index(share)),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xlabel("time away")
    axes.set_ylabel("comebacks")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.18), ncols=len(_RUNGS))
    return _svg(figure, "distribution")


@_styled
def rungs_over_time(comebacks: Comebacks) -> str | None:
    """Draw by which rung clients came back, over time; None if nobody did."""
    if not len(comebacks):
        return None
    edges = _bars(comebacks.at)
    figure, axes = _axes(7.2, 2.4)
    bottom = np.zeros(len(edges) - 1)
    places = _places([_instant(each) for each in edges])
    for name, chosen in _by_rung(comebacks.rung):
        counts, _ = np.histogram(comebacks.at[chosen], edges)
        axes.bar(places[:-1], counts, np.diff(places), bottom, align="edge", color=_COLOURS[name], label=name)
        bottom += counts
    _time_axis(axes, _LEAST_BARS * float(places[1] - places[0]))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylabel(f"comebacks in {duration(float(edges[1] - edges[0]) / 1000)}")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=len(_RUNGS))
    return _svg(figure, "rungs")


@_styled
def burn_down(judged: BurnDown) -> str | None:
    """Draw how much of the error budget was left; None if nobody came back."""
    left = judged.left()
    if not left:
        return None
    figure, axes = _axes(7.2, 2.2)
    hours = [left[0][0], *(hour for hour, _ in left)]
    shares = [100.0, *(100 * share for _, share in left)]
    places = _places(hours)
    places[1:] += 1 / 24  # the share is that at the end of the hour
    axes.plot(places, shares, color=_COLOURS["accent"], linewidth=1.8)
    axes.axhline(0, color=_COLOURS["bad"], linewidth=1)
    lowest = min(0.0, *shares)
    axes.set_ylim(lowest - 5, 105)
    axes.fill_between(
        places, 0, shares, where=[each < 0 for each in shares], interpolate=True, color=_COLOURS["bad"], alpha=0.25
    )
    _time_axis(axes)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: count(round(share))))
    axes.set_ylabel("budget left, %")
    return _svg(figure, "budget")


@_styled
def came_back(incident: Row, touched: Sequence[Row], name: str) -> str | None:
    """Draw how soon the sessions of an incident were back; None if none came back."""
    begins: datetime = incident["begins"]
    back = sorted((row["back_at"] - begins).total_seconds() for row in touched if row["back_at"] is not None)
    if not back:
        return None
    figure, axes = _axes(3.5, 2.2)
    shares = 100 * np.arange(1, len(back) + 1) / len(touched)
    axes.step([min(0.0, back[0]), *back], [0, *shares], where="post", color=_COLOURS["accent"], linewidth=1.8)
    axes.set_ylim(0, 103)
    axes.set_xlabel("seconds after it began")
    axes.set_ylabel("sessions back, %")
    return _svg(figure, name)


@_styled
def traffic(rows: Sequence[Row]) -> str | None:
    """Draw the deliveries of each root of topics, over time; None if there were none."""
    busiest = _largest(rows, "root", "deliveries")
    if not busiest:
        return None
    figure, axes = _axes(7.2, 2.4)
    hours = sorted({row["hour"] for row in rows})
    bottom = np.zeros(len(hours))
    for number, root in enumerate(busiest):
        counts = _per_hour(rows, hours, "root", root, "deliveries")
        axes.bar(
            _places(hours),
            counts,
            1 / 24,
            bottom,
            align="edge",
            color=_SERIES[number % len(_SERIES)],
            label=_label(root),
        )
        bottom += counts
    _time_axis(axes)
    axes.set_ylabel("deliveries in an hour")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: _short(number)))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1.05))
    return _svg(figure, "traffic")


@_styled
def capacity(rows: Sequence[Row], column: str, label: str) -> str | None:
    """Draw one column of ``capacity`` for each node, over time; None if there is nothing to draw."""
    busiest = sorted(_largest(rows, "node", column))
    if not busiest:
        return None
    figure, axes = _axes(3.5, 2.2)
    for number, node in enumerate(busiest):
        mine = sorted((row["hour"], row[column]) for row in rows if row["node"] == node and row[column] is not None)
        colour = _SERIES[number % len(_SERIES)]
        hours, values = _places([hour for hour, _ in mine]), [value for _, value in mine]
        axes.plot(hours, values, color=colour, label=_label(node), marker=".", linewidth=1.5)
    _time_axis(axes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: _short(number)))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.22), ncols=4, fontsize=8)
    return _svg(figure, f"capacity-{column}")


# --- What they share --------------------------------------------------------------------------------------------------


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a chart; its size in inches of 100 pixels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Figure, name: str) -> str:
    """Draw; the result can stand in a page beside others."""
    out = io.StringIO()
    # Which characters a font has is for the browser to know, which has many.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # What holds for all of a drawing must not hold for all of the page.
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    for variable, colour in _COLOURS.items():
        text = text.replace(colour, f"var(--{variable.replace('_', '-')})")
    # Ids are of the whole page.
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    # It takes the width that there is.
    head, rest = text.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", head) + ' stroke-linejoin="round">' + rest


def _by_rung(rungs: npt.NDArray[np.str_]) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    known = [(name, rungs == name) for name in _RUNGS[:-1]]
    other = ~np.isin(rungs, _RUNGS[:-1])
    return [(name, chosen) for name, chosen in (*known, ("other", other)) if chosen.any()]


def _bars(at: Micros) -> Micros:
    """Choose bars for instants: of a width that people think in, and not too many."""
    first, last = int(at.min()), int(at.max())
    width = (
        next((each for each in _WIDTHS_S if (last - first) / (each * _SECOND) < _MOST_BARS), _WIDTHS_S[-1]) * _SECOND
    )
    return np.arange(first // width * width, last + width + 1, width, dtype=np.int64)


def _instant(micros: int) -> datetime:
    return datetime.fromtimestamp(int(micros) / _SECOND, UTC)


def _places(instants: Sequence[datetime]) -> npt.NDArray[np.float64]:
    """Tell where instants stand on an axis of time."""
    return np.asarray(date2num(instants), np.float64)  # type: ignore[no-untyped-call]


def _time_axis(axes: Axes, least: float = _LEAST_DAYS) -> None:
    """Put times on it, of *least* days or more: one bar must not fill all of it, nor one dot stand among years."""
    first, last = axes.dataLim.intervalx
    if (lacking := least - (last - first)) > 0:
        axes.set_xlim(first - lacking / 2, last + lacking / 2)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _largest(rows: Sequence[Row], by: str, column: str) -> list[str]:
    """Name the values of a column with most of another, as many as have a colour of their own."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row[by]] = sums.get(row[by], 0) + (row[column] or 0)
    return [name for name in sorted(sums, key=lambda name: (-sums[name], name)) if sums[name]][: len(_SERIES)]


def _per_hour(
    rows: Sequence[Row], hours: Sequence[datetime], by: str, name: str, column: str
) -> npt.NDArray[np.float64]:
    found: Mapping[datetime, float] = {row["hour"]: row[column] for row in rows if row[by] == name}
    return np.array([found.get(hour, 0) for hour in hours], dtype=float)


def _label(text: str) -> str:
    """Make the name of a series: one that begins with an underscore would be taken for none."""
    label = shown(text)
    return f"\N{WORD JOINER}{label}" if label.startswith("_") else label


def _short(number: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.3g}"
