"""What came of each case, beside what is known to come of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).with_name("outcomes.json")
"""Of the latest run that was looked at: by case, how the server behaved and how it closed."""

Outcomes = dict[str, str]
"""By number of the case: OK, NON-STRICT, INFORMATIONAL, FAILED or others of the suite; with the outcome of the closing
behind a stroke where that is another one."""


def read_report(index: Path) -> Outcomes:
    """Read what the suite writes.

    Args:
        index: its ``index.json``, for one server.
    """
    (cases,) = json.loads(index.read_text()).values()
    found = {
        number: case["behavior"]
        if case["behaviorClose"] == case["behavior"] or case["behaviorClose"] == "OK"
        else f"{case['behavior']}/{case['behaviorClose']}"
        for number, case in cases.items()
    }
    return dict(sorted(found.items(), key=lambda each: _place(each[0])))


def differences(found: Mapping[str, str], recorded: Mapping[str, str]) -> list[str]:
    """Say in which cases a run came out otherwise than the recorded one; a case that is missing is such a case."""
    numbers = sorted({*found, *recorded}, key=_place)
    return [
        f"{number}: {found.get(number, 'not run')}, recorded is {recorded.get(number, 'nothing')}"
        for number in numbers
        if found.get(number) != recorded.get(number)
    ]


def by_section(outcomes: Mapping[str, str]) -> dict[str, Counter[str]]:
    """Count outcomes by the first part of the cases' numbers."""
    sections: dict[str, Counter[str]] = {}
    for number, outcome in outcomes.items():
        sections.setdefault(number.partition(".")[0], Counter())[outcome] += 1
    return sections


def _place(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split(".")))
