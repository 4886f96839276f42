"""The page of sources has every row, and every test that a row names exists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from scripts.promises import ROOT, read_test_file

PAGE: Final = Path("docs", "reference", "sources.md")
TEXT: Final = (ROOT / PAGE).read_text("utf-8")

ROWS: Final = {"000": 31, "001": 34, "002": 24, "003": 32, "004": 24}
"""How many things each source asks for. None of them ever goes away: what is not wanted here differs on purpose."""

ROW: Final = re.compile(r"^\| (\d{3}-\d{2}) \|(.*)\|$", re.MULTILINE)
SUM: Final = re.compile(r"^\| \[.+?\]\(.+?\) \| (\d{3})-01 to \1-(\d{2}) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
NAMED_TEST: Final = re.compile(r"\[`([^`]+)`\]\(([^()\s]+)\)")
NAMED_TESTS: Final = re.compile(rf"{NAMED_TEST.pattern}(?:, {NAMED_TEST.pattern})*")
REASON: Final = re.compile(r"\]\(\.\./adr/\d{4}-[\w-]+\.md\)")
"""Where it says why something is done in another way."""
JAVASCRIPT_TEST: Final = re.compile(r'^test\("((?:[^"\\]|\\.)+)"', re.MULTILINE)


class State(Enum):
    """How far it is done what a source asks for."""

    DONE = "done"
    DIFFERS = "differs on purpose"
    PLANNED = "planned"


class Row(NamedTuple):
    """What a source asks for.

    Attributes:
        number: ``000-01`` and so on.
        asked: what it is.
        here: how it is done here.
        state: as the page says it.
        tests: the last cell, which names them.
    """

    number: str
    asked: str
    here: str
    state: str
    tests: str


def rows_of(text: str) -> list[Row]:
    """Read the rows, in the order of the page.

    Raises:
        TypeError: a row has more or fewer cells than there are.
    """
    return [Row(number, *(cell.strip() for cell in cells.split("|"))) for number, cells in ROW.findall(text)]


@cache
def existing_tests(file: Path) -> frozenset[str]:
    """List the tests of a module by name, or of a file of the JavaScript client by title; none if there is no file."""
    if not file.is_file():
        return frozenset()
    if file.suffix == ".mjs":
        return frozenset(JAVASCRIPT_TEST.findall(file.read_text("utf-8")))
    return frozenset(name for name, _ in read_test_file(file).tests)


def wrong_with(text: str) -> Iterator[str]:
    """Say what is wrong with a page of sources."""
    rows = rows_of(text)
    numbers = [row.number for row in rows]
    if numbers != [f"{source}-{number:02}" for source, last in ROWS.items() for number in range(1, last + 1)]:
        yield "the rows are not numbered through"
    known = set(numbers)
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row.number[:3], row.state] += 1
        yield from (f"{row.number}: {each}" for each in wrong_with_row(row))
        for other in re.findall(r"\b\d{3}-\d{2}\b", row.here):
            if other not in known:
                yield f"{row.number}: there is no row {other}"
    told = {source: (int(last), *map(int, states)) for source, last, *states in SUM.findall(text)}
    if told != {source: (last, *(counts[source, state.value] for state in State)) for source, last in ROWS.items()}:
        yield "the sums are not those of the rows"


def wrong_with_row(row: Row) -> Iterator[str]:
    """Say what is wrong with a row."""
    if not row.asked or not row.here:
        yield "it says nothing"
    if row.state not in {state.value for state in State}:
        yield f"there is no state {row.state!r}"
    if row.state == State.DIFFERS.value and not REASON.search(row.here):
        yield "it does not link the decision to differ"
    if row.state == State.PLANNED.value:
        if row.tests:
            yield "what is planned has no test"
        return
    if not NAMED_TESTS.fullmatch(row.tests):
        yield "it names no tests, as in [`test_name`](../../tests/file.py)"
    for name, target in NAMED_TEST.findall(row.tests):
        file = (ROOT / PAGE.parent / target).resolve()
        if name not in existing_tests(file):
            yield f"{target} has no test {name!r}"


def test_every_row_is_there_and_names_tests_that_exist() -> None:
    assert list(wrong_with(TEXT)) == []


DONE_WITH_TEST: Final = "| done | [`test_urls_are_completed`](../../tests/unit/core/client/test_reconnect_plan.py)"
"""How the row 000-01 ends, at first."""


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("| 000-05 |", "| 000-06 |", "the rows are not numbered through"),
        ("\n| 002-01 |", "\n\n002-01", "the rows are not numbered through"),
        ("| 004-24 |", "| 004-25 |", "the rows are not numbered through"),
        (DONE_WITH_TEST, DONE_WITH_TEST.replace("done", "planned"), "000-01: what is planned has no test"),
        (DONE_WITH_TEST, DONE_WITH_TEST.replace("done", "in part"), "000-01: there is no state 'in part'"),
        (DONE_WITH_TEST, DONE_WITH_TEST.replace("done", "differs on purpose"), "the sums are not those of the rows"),
        (DONE_WITH_TEST, "| done | `test_urls_are_completed`", "000-01: it names no tests"),
        ("`test_urls_are_completed`", "`test_urls_are_made_up`", "has no test 'test_urls_are_made_up'"),
        ("tests/cluster/test_several_urls.py", "tests/cluster/test_no_urls.py", "test_no_urls.py has no test"),
        ("`an outcome of the future is taken", "`an outcome of old is taken", "has no test 'an outcome of old"),
        ("](../adr/0004-", "](../explanation/0004-", "001-04: it does not link the decision to differ"),
        ("As 004-23.", "As 000-51.", "004-24: there is no row 000-51"),
        ("(001-05)", "(001-50)", "there is no row 001-50"),
    ],
)
def test_a_mistake_is_found(right: str, wrong: str, found: str) -> None:
    assert right in TEXT
    told = list(wrong_with(TEXT.replace(right, wrong, 1)))
    assert any(found in each for each in told), told


def test_a_row_without_one_of_its_cells_is_an_error() -> None:
    with pytest.raises(TypeError):
        rows_of("| 000-01 | asked | here | done |\n")
