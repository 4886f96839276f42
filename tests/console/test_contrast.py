"""Text can be read in both themes: the contrasts of WCAG 2.1, level AA, computed from the style sheet."""

from __future__ import annotations

import re
from itertools import product
from typing import Final

import pytest

from gateway.adapters.admin.console import PAGE

TEXT: Final = 4.5
"""Least contrast of text (success criterion 1.4.3)."""
SIGNS: Final = 3.0
"""Least contrast of what is not text but has to be seen: borders of fields, the focus, columns (1.4.11)."""

GROUNDS: Final = ("page", "card", "sunken")
RUNGS: Final = tuple(
    f"rung-{each}" for each in ("reattached", "handed-over", "mirrored", "failed-over", "refused", "unknown")
)
"""Columns of the chart, by outcome."""
PAIRS: Final = (
    *((text, ground, TEXT) for text, ground in product(("text", "quiet", "accent"), GROUNDS)),
    *((text, f"{text}-soft", TEXT) for text in ("accent", "good", "warn", "bad")),
    *((text, "card", TEXT) for text in ("good", "warn", "bad")),
    *((text, "accent-soft", TEXT) for text in ("text", "quiet")),
    ("text", "good-soft", TEXT),
    ("on-accent", "accent", TEXT),
    ("page", "text", TEXT),
    ("card", "bad", TEXT),
    *(("line-strong", ground, SIGNS) for ground in ("page", "card")),
    *(("focus", ground, SIGNS) for ground in GROUNDS),
    *((rung, "card", SIGNS) for rung in RUNGS),
)


def themes() -> dict[str, dict[str, str]]:
    """Read the colours of the style sheet, each of which is said for both themes at once."""
    text = (PAGE / "console.css").read_text(encoding="utf-8")
    said = re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", text)
    return {"light": {name: light for name, light, _ in said}, "dark": {name: dark for name, _, dark in said}}


def luminance(colour: str) -> float:
    """Tell the relative luminance, as WCAG defines it."""

    def linear(part: str) -> float:
        value = int(part, 16) / 255
        return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(colour[at : at + 2]) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_formula_knows_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", list(themes()))
def test_everything_can_be_read(theme: str) -> None:
    colours = themes()[theme]
    poor = {
        f"{front} on {ground}": round(found, 2)
        for front, ground, least in PAIRS
        if (found := contrast(colours[front], colours[ground])) < least
    }
    assert poor == {}
