"""Pictures of what the model says, with what was measured in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.model import predict, tick
from benchmarks.model.costs import Calibration
from benchmarks.model.plan import Impossible, plan
from benchmarks.model.workloads import SCENARIOS

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, told apart by people who do not see all colours."""

_INCHES: Final = (7.2, 4.2)
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "session-gateway",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
}
"""As the benchmark's own pictures: text stays text, and the same numbers give the same file."""
_SUBSCRIBERS: Final = 1_000
_LOADS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Updates per second, in multiples of what would fill the core if none were joined."""
SESSIONS: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def draw_all(folder: Path, calibration: Calibration) -> None:
    """Draw all pictures of the page on scaling.

    Args:
        folder: for the SVG files; made if it is not there.
        calibration: what is drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        _joining(folder / "scaling-joining.svg", calibration)
        _check(folder / "scaling-check.svg", calibration)
        _nodes(folder / "scaling-nodes.svg", calibration)


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


def _axes(title: str, size: str, value: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(size)
    axes.set_ylabel(value)
    axes.set_xscale("log")
    axes.set_yscale("log")
    return figure, axes


def _joining(file: Path, calibration: Calibration) -> None:
    """CPU and latency of an update by how many come."""
    deliver = calibration.costs.deliver
    full = tick.saturation(deliver, _SUBSCRIBERS, joined=1)
    runs = [
        (full * load, tick.simulate(deliver, tick.Stream(full * load, _SUBSCRIBERS, paced=False))) for load in _LOADS
    ]
    runs = [(rate, turns) for rate, turns in runs if not turns.saturated]
    figure, axes = _axes(
        f"A busy node joins updates, and each gets cheaper (model, {_SUBSCRIBERS:,} subscribers)",
        "updates per second",
        "µs of CPU per delivery; ms of waiting",
    )
    rates = [rate for rate, _ in runs]
    axes.plot(
        rates, [turns.cpu / _SUBSCRIBERS for _, turns in runs], "-o", color=COLOURS[0], label="CPU per delivery, µs"
    )
    axes.plot(rates, [turns.p99 for _, turns in runs], "-s", color=COLOURS[1], label="wait on the node, p99, ms")
    axes.plot(rates, [turns.joined for _, turns in runs], "-D", color=COLOURS[2], label="updates in a write")
    axes.axvline(full, color="#999999", linestyle="--", linewidth=1)
    axes.legend(frameon=False)
    _save(figure, file)


def _check(file: Path, calibration: Calibration) -> None:
    """Model against measurement, one dot each."""
    figure, axes = _axes("Model and measurement", "measured", "model")
    comparisons = predict.compare(calibration)
    for fitted, marker, colour, label in (
        (True, "o", COLOURS[0], "used to calibrate"),
        (False, "D", COLOURS[1], "held out"),
    ):
        chosen = [each for each in comparisons if each.point.fitted == fitted]
        axes.plot(
            [each.point.measured for each in chosen],
            [each.predicted for each in chosen],
            marker,
            color=colour,
            label=label,
        )
    ends = [min(each.point.measured for each in comparisons), max(each.point.measured for each in comparisons)]
    axes.plot(ends, ends, "-", color="#999999", linewidth=1, label="exact")
    axes.legend(frameon=False)
    _save(figure, file)


def _nodes(file: Path, calibration: Calibration) -> None:
    """Nodes by sessions, for each workload scaled down with its sessions."""
    figure, axes = _axes("Nodes that are needed (model)", "sessions", "nodes")
    for scenario, colour in zip(SCENARIOS, COLOURS, strict=False):
        line = []
        for sessions in SESSIONS:
            whole = scenario.workload
            share = sessions / whole.sessions
            shared = whole.audience >= whole.sessions
            workload = replace(
                whole,
                sessions=sessions,
                churn=whole.churn * share,
                # What all receive stays the same; what each has for itself grows with the sessions.
                updates=whole.updates if shared else whole.updates * share,
                audience=sessions if shared else whole.audience,
                topics=whole.topics if whole.topics < whole.sessions else sessions,
            )
            try:
                line.append((sessions, plan(calibration.costs, workload, scenario.rules).nodes))
            except Impossible:
                break
        if line:
            axes.plot(*zip(*line, strict=True), "-o", color=colour, label=scenario.title)
    axes.legend(frameon=False)
    _save(figure, file)
