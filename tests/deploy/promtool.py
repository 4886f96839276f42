"""Runs Prometheus's own checker, and reads its language as far as names go."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from gateway.local.processes import ProgramMissing, find_program
from tests.support.times import scaled

ROOT: Final = Path(__file__).resolve().parents[2]
PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "how-to" / "runbooks"


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run it; skips the test where it is missing, but fails under CI."""
    try:
        program = find_program("promtool")
    except ProgramMissing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{missing}; CI must not skip tests", pytrace=False)
        pytest.skip(str(missing))
    return subprocess.run(
        [program, *arguments], input=given, capture_output=True, text=True, timeout=scaled(60), check=False
    )


class Selector(NamedTuple):
    """A metric that an expression names, with its matchers as (label, operator, value)."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_SELECTOR: Final = re.compile(r"(?<![\w.:])([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?(?!\s*\(|[a-zA-Z0-9_:])")
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset"})


def selectors(expression: str) -> Iterator[Selector]:
    """Yield every metric that a PromQL expression names."""
    text = re.sub(r"#.*", "", expression)
    text = re.sub(r"\[[^\]]*\]", "", _GROUPING.sub(" ", text))
    # Functions take texts as arguments; those of matchers stay.
    matchers = {f"{{{number}}}": found for number, found in enumerate(re.findall(r"\{[^}]*\}", text))}
    for key, found in matchers.items():
        text = text.replace(found, key, 1)
    text = _STRING.sub(" ", text)
    for name, key in _SELECTOR.findall(text):
        if name not in _WORDS:
            yield Selector(name, tuple(_MATCHER.findall(matchers.get(key, ""))))
