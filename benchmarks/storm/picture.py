"""The picture of a storm: what those who never left noticed of it, and how the others came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from benchmarks.storm.control import Outcome

_INCHES: Final = (7.2, 6.6)
_COLOURS: Final = ("#d55e00", "#e69f00", "#0072b2")
"""Of Okabe and Ito's, told apart by people who do not see all colours: from bad to good."""
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
"""As the other pictures: text stays text, and the same numbers give the same file."""
_LEFT: Final = -2.0
_SHOWN_AFTER: Final = 1.0


def draw_storms(outcomes: Sequence[Outcome], names: Mapping[str, str], most_times: float, file: Path) -> None:
    """Draw storms over each other.

    Args:
        outcomes: to draw.
        names: what each variant is called.
        most_times: by what the 99th percentile may rise.
        file: SVG to write.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for outcome, colour in zip(outcomes, _COLOURS, strict=False):
            times, latencies = zip(*outcome.latencies, strict=True)
            above.plot(times, latencies, color=colour, label=names[outcome.variant])
            times, returned = zip(*outcome.returns, strict=True)
            below.plot(times, returned, color=colour)
        quiet = max(each.before["p99"] for each in outcomes)
        above.axhline(quiet * most_times, color="#999999", linestyle="--", linewidth=1)
        above.annotate(f"{most_times:g} times before", (_LEFT, quiet * most_times), va="bottom", color="#666666")
        above.set_yscale("log")
        above.set_ylabel("99th percentile, ms")
        above.set_title("What an update takes to those who never left", loc="left", fontweight="bold")
        above.legend(frameon=False, loc="upper right")
        below.set_ylabel("sessions back")
        below.set_xlabel("seconds since their node was killed")
        below.set_xlim(_LEFT, max(each.seconds for each in outcomes) + _SHOWN_AFTER)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
