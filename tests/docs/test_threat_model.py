"""The threat model names tests that exist, and looks at every interface with all six letters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "explanation" / "threat-model.md").read_text("utf-8")
SECTIONS: Final = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
LETTERS: Final = frozenset("STRIDE")
NOTHING_TO_GAIN: Final[dict[str, set[str]]] = {}
"""Letters that an interface may leave out."""

EXISTING: Final = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
}


def rows(section: str) -> list[list[str]]:
    table = [line for line in SECTIONS[section].splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1:]]


INTERFACES: Final = [name for name, text in SECTIONS.items() if "| threat |" in text]


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE)

    assert len(named) > 80
    assert sorted(set(named) - EXISTING) == []


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_threat_has_an_answer(interface: str) -> None:
    table = rows(interface)

    for letter, threat, answer, shown in table:
        assert letter in LETTERS
        assert threat
        assert answer
        # What no test can show is either for the operator, or nothing that would matter.
        assert "`test_" in shown or "*for the operator*" in answer or letter in "RI", threat
    assert LETTERS - NOTHING_TO_GAIN.get(interface, set()) <= {letter for letter, *_ in table}


def test_the_interfaces_are_those_of_the_gateway() -> None:
    assert INTERFACES == [
        "Client port",
        "Admin port",
        "Agent port",
        "Port of links",
        "HAProxy",
        "Grid",
        "Files and environment",
        "Logs and metrics",
        "Session journal",
        "Event hooks",
        "Console",
    ]
