"""The pictures of dashboards: drawn as PNG files that are sharp and small, without a Prometheus."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.dashboards import draw as drawing
from scripts.dashboards.draw import COLOURS, Series
from scripts.dashboards.fleet import FLEET
from scripts.dashboards.model import Dashboard
from scripts.dashboards.node import NODE_DASHBOARD

PNG: Final = b"\x89PNG\r\n\x1a\n"
RED: Final = (255, 0, 0)
END: Final = 1.7e9
"""Some time, in seconds since 1970."""

CLOSE: Final = 32
"""Of 255: how far a channel of a colour may be off. Where colours are chosen by how many dots have them, it is 54."""

LABELS: Final = {
    label
    for dashboard in (FLEET, NODE_DASHBOARD)
    for panel in dashboard.panels()
    for query in panel.queries
    for label in re.findall(r"\{\{(\w+)\}\}", query.legend or "")
}
"""Those that the legends of the dashboards show."""

FIGURES: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "figures"
LARGEST: Final = 200_000
"""Bytes of a picture of a whole dashboard."""


def answer(_prometheus: str, _expression: str, *, over: float, end: float) -> list[Series]:
    """Answer every question with three curves, which are as high at their left ends as anywhere."""
    return [Series(dict.fromkeys(LABELS, name), [(end - over, 1.0), (end, 0.5)]) for name in ("n1", "n2", "n3")]


def test_a_dashboard_is_drawn_as_a_small_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image  # noqa: PLC0415 - slow to import, and only needed here

    monkeypatch.setattr(drawing, "ask", answer)
    file = tmp_path / "fleet.png"
    drawing.draw(FLEET, "http://127.0.0.1:1", 60.0, file, end=END)

    assert file.read_bytes().startswith(PNG)
    assert file.stat().st_size < LARGEST
    with Image.open(file) as picture:
        colours = picture.getcolors()
        assert colours is not None
        assert 2 < len(colours) <= COLOURS


@pytest.mark.thorough
@pytest.mark.parametrize("dashboard", [FLEET, NODE_DASHBOARD], ids=lambda each: each.name)
def test_no_legend_covers_a_curve(dashboard: Dashboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - slow to import, and only needed here

    bottoms: dict[str, float] = {}

    def look(sheet: Any) -> None:
        for axes in sheet.axes:
            if legend := axes.get_legend():
                box = legend.get_window_extent().transformed(axes.transData.inverted())
                highest = 3.0 if axes.collections else 1.0
                bottoms[axes.get_title("left")] = box.y0 / highest

    monkeypatch.setattr(drawing, "ask", answer)
    monkeypatch.setattr(plt, "close", look)
    drawing.draw(dashboard, "http://127.0.0.1:1", 60.0, tmp_path / "picture.png", end=END)
    monkeypatch.undo()
    plt.close("all")

    assert len(bottoms) > 5
    assert {title: bottom for title, bottom in bottoms.items() if bottom < 1} == {}


def test_a_colour_of_few_dots_is_kept(tmp_path: Path) -> None:
    from PIL import Image  # noqa: PLC0415 - see above

    picture = Image.new("RGB", (256, 256))
    picture.putdata([(down, across, down * across // 7 % 256) for down in range(256) for across in range(256)])
    picture.putpixel((3, 3), RED)
    full = io.BytesIO()
    picture.save(full, "PNG")

    drawing.write_small(full.getvalue(), tmp_path / "few.png")

    with Image.open(tmp_path / "few.png") as few:
        seen = few.convert("RGB").getpixel((3, 3))
    assert isinstance(seen, tuple)
    assert max(abs(one - other) for one, other in zip(seen, RED, strict=True)) < CLOSE


def test_the_pictures_of_the_documentation_are_small() -> None:
    pictures = sorted(FIGURES.glob("dashboard-*"))

    assert [each.suffix for each in pictures] == [".png"] * 5
    assert [each.name for each in pictures if each.stat().st_size > LARGEST] == []
