"""The generated pages are committed, complete, and name only what exists."""

import re
from pathlib import Path

import pytest

from gateway.catalogue.log_events import LOG_EVENTS
from gateway.catalogue.metrics import METRICS
from gateway.core.wire.codes import CLOSE_CODES, ERRORS
from gateway.settings import SETTINGS
from scripts.reference.markdown import table
from scripts.reference.pages import PAGES, WATCH, write_pages

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CLIENT = Path(__file__).parents[2] / "clients" / "javascript" / "src"

_MEMBER = re.compile(r"^  (?:async |get )?([a-z]\w*)\(.*\{$", re.MULTILINE)
_OF_THE_LANGUAGE = {"constructor", "addEventListener", "removeEventListener"}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_is_committed(name: str) -> None:
    committed = (REFERENCE / name).read_text("utf-8")

    assert committed == PAGES[name](), "run: python -m scripts.reference docs/reference"


def test_pages_are_complete() -> None:
    expected = {
        "configuration.md": list(SETTINGS),
        "metrics.md": [metric.name for metric in METRICS],
        "logs.md": [event.name for event in LOG_EVENTS],
        "close-codes.md": [*(close.name for close in CLOSE_CODES), *(code.value for code in ERRORS)],
    }
    for page, names in expected.items():
        text = PAGES[page]()
        assert [name for name in names if f"`{name}`" not in text] == []


def test_the_page_of_the_javascript_client_has_every_member() -> None:
    """Of the classes that have none but for applications."""
    text = (REFERENCE / "javascript-client.md").read_text("utf-8")
    missing = []
    for name, file in (("Session", "session.js"), ("DurableStream", "durablestream.js")):
        source = (CLIENT / file).read_text("utf-8")
        body = source[source.index(f"export class {name} ") :].partition("\n}")[0]
        members = set(_MEMBER.findall(body)) - _OF_THE_LANGUAGE
        assert members, name
        missing += [f"{name}.{each}" for each in sorted(members) if not re.search(rf"`[^`]*\b{each}\b", text)]
    assert missing == []


def test_expressions_use_metrics_that_exist() -> None:
    names = {metric.name for metric in METRICS} | {f"{metric.name}_bucket" for metric in METRICS}

    for _, expression in WATCH:
        used = set(re.findall(r"gateway_\w+", expression))
        assert used
        assert used <= names


def test_pages_are_written_into_a_folder(tmp_path: Path) -> None:
    write_pages(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(PAGES)


def test_cells_cannot_break_their_table() -> None:
    assert table(["a"], [["x|y\nz"]]) == "| a |\n| --- |\n| x\\|y z |"
