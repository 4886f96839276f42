"""The page of promises is what the marks of the tests say, and no promise that is kept is without a test."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from scripts.promises import ARCHITECTURE, PAGE, ROOT, State, make_page, read_promises, read_test_file, read_tests

PROMISES: Final = read_promises()


def marked() -> set[str]:
    return {number for file in read_tests(ROOT) for _, numbers in file.tests for number in numbers}


def test_the_page_is_what_the_marks_say() -> None:
    assert (ROOT / PAGE).read_text("utf-8") == make_page(), "run: python -m scripts.promises"


def test_the_architecture_has_every_promise_once_in_order() -> None:
    assert [each.number for each in PROMISES] == [f"P{number}" for number in range(1, 21)]
    assert (ROOT / ARCHITECTURE).read_text("utf-8").count("\n### P") == len(PROMISES), "one of them was not read"


def test_what_is_kept_has_tests_and_what_is_planned_has_none() -> None:
    tried = marked()

    assert [each.number for each in PROMISES if each.state is not State.PLANNED and each.number not in tried] == []
    assert [each.number for each in PROMISES if each.state is State.PLANNED and each.number in tried] == []
    assert [each.number for each in PROMISES if each.state is not State.KEPT and not each.remark] == []


def test_every_mark_names_a_promise() -> None:
    assert marked() - {each.number for each in PROMISES} == set()


def test_marks_of_modules_and_of_tests_add_up(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(
        '''
"""What is tried here (P1, P2)."""
import pytest
pytestmark = [pytest.mark.redis, pytest.mark.promise("P1", "P2")]
def test_this(): ...
@pytest.mark.promise("P7")
@pytest.mark.parametrize("x", [1])
async def test_that(x): ...
def helper(): ...
'''
    )

    found = read_test_file(file, tmp_path)

    assert found.summary == "What is tried here"
    assert {name: sorted(numbers) for name, numbers in found.tests} == {
        "test_this": ["P1", "P2"],
        "test_that": ["P1", "P2", "P7"],
    }
    assert (found.about("P1"), found.about("P7")) == (["test_this", "test_that"], ["test_that"])


@pytest.mark.parametrize("arguments", ["", "NUMBER", 'number="P1"'])
def test_a_mark_that_cannot_be_read_is_an_error(arguments: str, tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(f"@pytest.mark.promise({arguments})\ndef test_this(): ...\n")

    with pytest.raises(ValueError, match=r"test_some\.py:1: .*P3"):
        read_test_file(file, tmp_path)
