"""Pictures of what the model says, with what was measured in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.model import predict, tick
from benchmarks.model.costs import Calibration
from benchmarks.model.plan import Impossible, plan
from benchmarks.model.workloads import SCENARIOS
from charts import BLUE, COLOURS, GREEN, GREY, VERMILION, drawing

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
    for name, draw in (
        ("scaling-joining.svg", _joining),
        ("scaling-check.svg", _check),
        ("scaling-nodes.svg", _nodes),
    ):
        with drawing(folder / name) as figure:
            draw(figure, calibration)


def _axes(figure: Figure, title: str, size: str, value: str) -> Axes:
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(size)
    axes.set_ylabel(value)
    axes.set_xscale("log")
    axes.set_yscale("log")
    return axes


def _joining(figure: Figure, calibration: Calibration) -> None:
    """CPU and latency of an update by how many come."""
    deliver = calibration.costs.deliver
    full = tick.saturation(deliver, _SUBSCRIBERS, joined=1)
    runs = [
        (full * load, tick.simulate(deliver, tick.Stream(full * load, _SUBSCRIBERS, paced=False))) for load in _LOADS
    ]
    runs = [(rate, turns) for rate, turns in runs if not turns.saturated]
    axes = _axes(
        figure,
        f"A busy node joins updates, and each gets cheaper (model, {_SUBSCRIBERS:,} subscribers)",
        "updates per second",
        "µs of CPU per delivery; ms of waiting",
    )
    rates = [rate for rate, _ in runs]
    axes.plot(rates, [turns.cpu / _SUBSCRIBERS for _, turns in runs], "-o", color=BLUE, label="CPU per delivery, µs")
    axes.plot(rates, [turns.p99 for _, turns in runs], "-s", color=VERMILION, label="wait on the node, p99, ms")
    axes.plot(rates, [turns.joined for _, turns in runs], "-D", color=GREEN, label="updates in a write")
    axes.axvline(full, color=GREY, linestyle="--", linewidth=1)
    axes.legend(frameon=False)


def _check(figure: Figure, calibration: Calibration) -> None:
    """Model against measurement, one dot each."""
    axes = _axes(figure, "Model and measurement", "measured", "model")
    comparisons = predict.compare(calibration)
    for fitted, marker, colour, label in (
        (True, "o", BLUE, "used to calibrate"),
        (False, "D", VERMILION, "held out"),
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
    axes.plot(ends, ends, "-", color=GREY, linewidth=1, label="exact")
    axes.legend(frameon=False)


def _nodes(figure: Figure, calibration: Calibration) -> None:
    """Nodes by sessions, for each workload scaled down with its sessions."""
    axes = _axes(figure, "Nodes that are needed (model)", "sessions", "nodes")
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
