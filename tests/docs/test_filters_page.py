"""The page about filters: all that it shows can be read, and the mistake that it shows is told just so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from gateway.app.administration.sessions import SERVER_PROPERTIES
from gateway.core.policy.filters import InvalidFilter, parse

TEXT: Final = (Path(__file__).resolve().parents[2] / "docs/reference/filters.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
EXAMPLES: Final = [
    *re.findall(r"^\| `([^`]+)` \|", TEXT.partition("## Properties")[0], re.MULTILINE),
    *(block.strip() for block in BLOCKS if "column" not in block),
    *re.findall(r"(?<!`)`([^`\n]* (?:is|like) '[^`\n]*)`(?!`)", TEXT),
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_read(example: str) -> None:
    parse(example)


def test_there_are_examples_of_all_that_can_be_asked() -> None:
    assert len(EXAMPLES) > 10
    for word in ("is not", "in (", "not in (", "like", "not like", "has", "and", "or", "not "):
        assert any(word in example for example in EXAMPLES)


def test_the_mistake_is_told_as_the_page_shows() -> None:
    (shown,) = [block for block in BLOCKS if "column" in block]

    with pytest.raises(InvalidFilter) as raised:
        parse("team is fx")

    assert str(raised.value) == shown.rstrip("\n")


def test_the_properties_are_those_that_can_be_asked() -> None:

    told = set(re.findall(r"^\| `(\$\w+)` \|", TEXT, re.MULTILINE))

    assert told == {*SERVER_PROPERTIES, "$client"}
