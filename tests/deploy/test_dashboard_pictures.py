"""The pictures of dashboards: drawn as PNG files that are sharp and small, without a Prometheus."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Final

import pytest

from scripts.dashboards import draw as drawing
from scripts.dashboards.draw import COLOURS, Series
from scripts.dashboards.fleet import FLEET

PNG: Final = b"\x89PNG\r\n\x1a\n"
RED: Final = (255, 0, 0)

CLOSE: Final = 32
"""Of 255: how far a channel of a colour may be off. Where colours are chosen by how many dots have them, it is 54."""

LABELS: Final = {
    label
    for section in FLEET.sections
    for panel in section.panels
    for query in panel.queries
    for label in re.findall(r"\{\{(\w+)\}\}", query.legend or "")
}
"""Those that the legends of the dashboard show."""

FIGURES: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "figures"
LARGEST: Final = 200_000
"""Bytes of a picture of a whole dashboard."""


def test_a_dashboard_is_drawn_as_a_small_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image  # noqa: PLC0415 - slow to import, and only needed here

    def answer(_prometheus: str, _expression: str, *, over: float) -> list[Series]:
        end = time.time()
        return [Series(dict.fromkeys(LABELS, name), [(end - over, 0.0), (end, 1.0)]) for name in ("n1", "n2", "n3")]

    monkeypatch.setattr(drawing, "ask", answer)
    file = tmp_path / "fleet.png"
    drawing.draw(FLEET, "http://127.0.0.1:1", 60.0, file)

    assert file.read_bytes().startswith(PNG)
    assert file.stat().st_size < LARGEST
    with Image.open(file) as picture:
        colours = picture.getcolors()
        assert colours is not None
        assert 2 < len(colours) <= COLOURS


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
