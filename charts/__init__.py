"""How the project's pictures look: one palette, one style, and SVG that is the same to the byte for the same numbers.

Loading this loads matplotlib, which takes a second; whoever draws only sometimes imports it only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

BLUE: Final = "#0072b2"
VERMILION: Final = "#d55e00"
GREEN: Final = "#009e73"
PURPLE: Final = "#cc79a7"
ORANGE: Final = "#e69f00"
SKY: Final = "#56b4e9"
COLOURS: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Okabe and Ito's, told apart by people who do not see all colours; in the order in which lines take them."""

GREY: Final = "#999999"
"""For lines that are not measured: bounds and ideals."""

WIDTH: Final = 7.2
"""Inches; fits the column of a rendered document."""
HEIGHT: Final = 4.2
"""Inches, of a picture with one pair of axes."""

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
"""Text stays text, and ids in the file follow from what is drawn."""


@contextmanager
def drawing(file: Path, *, height: float = HEIGHT) -> Iterator[Figure]:
    """Hand out an empty figure in the project's style; when the block is left in order, write it.

    Args:
        file: SVG to write; its folder is made if it is not there.
        height: inches.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure
        file.parent.mkdir(parents=True, exist_ok=True)
        # A date, or the version of matplotlib, would make the same picture another file.
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
