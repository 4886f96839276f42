"""The picture of a storm: what those who never left noticed of it, and how the others came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.storm.outcome import Outcome
from charts import BLUE, GREEN, GREY, ORANGE, VERMILION, drawing

_HEIGHT: Final = 6.6
"""Inches, for two pairs of axes."""
_FROM_BAD_TO_GOOD: Final = (VERMILION, ORANGE, GREEN, BLUE)
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
    with drawing(file, height=_HEIGHT) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for outcome, colour in zip(outcomes, _FROM_BAD_TO_GOOD, strict=False):
            times, latencies = zip(*outcome.latencies, strict=True)
            above.plot(times, latencies, color=colour, label=names[outcome.variant])
            times, returned = zip(*outcome.returns, strict=True)
            below.plot(times, returned, color=colour)
        quiet = min(each.before["p99"] for each in outcomes)  # the strictest of them
        above.axhline(quiet * most_times, color=GREY, linestyle="--", linewidth=1)
        above.annotate(f"{most_times:g} times before", (_LEFT, quiet * most_times), va="bottom", color="#666666")
        above.set_yscale("log")
        above.set_ylabel("99th percentile, ms")
        above.set_title("What an update takes to those who never left", loc="left", fontweight="bold")
        above.legend(frameon=False, loc="upper right")
        below.set_ylabel("sessions back")
        below.set_xlabel("seconds since their node was killed")
        below.set_xlim(_LEFT, max(each.seconds for each in outcomes) + _SHOWN_AFTER)
