"""The file of destinations: read as it is meant, and refused with all that is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gateway.adapters import destination_file
from gateway.adapters.destination_file import DestinationFileError, read_destinations
from gateway.core.destinations.destination import MAX_DESTINATIONS, Origin
from gateway.core.destinations.limits import HistoryLimits, ValueLimits


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "destinations.toml"


def complaints(file: Path, text: str) -> list[str]:
    file.write_text(text)
    with pytest.raises(DestinationFileError) as refused:
        read_destinations(file)
    return [str(each).removeprefix(str(file)) for each in refused.value.problems]


def test_a_file_says_what_paths_are(file: Path) -> None:
    file.write_text(
        """
        [[destination]]
        selector = "log/**"
        kind = "history"
        count = 10_000
        age = "7d"
        bytes = "16MiB"

        [[destination]]
        selector = "log/debug/**"
        kind = "value"
        ttl = "30s"

        [[destination]]
        selector = "orders/*"
        kind = "history"
        age = 90.5
        """
    )
    log, debug, orders = read_destinations(file)
    assert (log.selector.text, log.origin) == ("log/**", Origin.FILE)
    assert log.limits == HistoryLimits(count=10_000, age=7 * 86_400, bytes=16 * 1024**2)
    assert (debug.selector.text, debug.limits) == ("log/debug/**", ValueLimits(ttl=30.0))
    assert orders.limits == HistoryLimits(age=90.5)


def test_an_empty_file_says_nothing(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert list(read_destinations(file)) == []


def test_the_example_of_the_module_can_be_read(file: Path) -> None:
    assert destination_file.__doc__ is not None
    example = destination_file.__doc__.split("```toml")[1].split("```")[0]
    assert tomllib.loads(example)
    file.write_text(example)
    assert len(read_destinations(file)) == 1


def test_everything_that_is_wrong_is_told_with_its_line(file: Path) -> None:
    text = """destinations = 1

[[destination]]
selector = "log/**"
kind = "history"
cuont = 5

[[destination]]
selector = "log//x"
kind = "history"

[[destination]]
selector = "a/*/**"
kind = "history"
age = "long"

[[destination]]
selector = "a/**/*"
kind = "value"

[[destination]]
selector = "a/*/**"
kind = "value"

[[destination]]
selector = "b"
kind = "history"
bytes = "1TiB"

[[destination]]
selector = "c"
kind = "history"
count = 0

[[destination]]
selector = "d"
"""
    limits = "count, age, bytes, ttl, presence, presence_members, presence_properties"
    duration = 'seconds between 1 and 31,622,400, or a text such as "250ms", "90s", "5m" or "24h"'
    size = 'bytes between 4,096 and 1,073,741,824, or a text such as "64KiB" or "1MiB"'
    empty = "a selector does not begin or end with '/' and has nothing empty between two, but segment 2 of 'log//x' is"
    assert complaints(file, text) == [
        ": destinations: there is no such key; write [[destination]] above each destination",
        f":3: cuont: it is no limit of a history; did you mean 'count'? (there are {limits})",
        f':8: selector: it is none: {empty} empty; a selector such as "log/**"',
        f":12: age: it is not a duration; {duration}",
        ":21: selector: a/*/** is described at line 17 already; keep one of them",
        f":25: bytes: it is not an amount of bytes; {size}",
        ":30: count: it is too small; a whole number between 1 and 1,000,000",
        ':35: kind: it is missing; "value" or "history" or "queue"',
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("destination = 1", "this is no list of tables"),
        ("destination = [1]", "this is no list of tables"),
        ("[[destination]]\nkind = 5", "it is none that is known"),
        ("[[destination]]\nkind = 'history'\nselector = ['a']", "it is not a text"),
        ("[[destination]]\nkind = 'history'\nselector = 'a'\ncount = '5'", "it is not a number"),
        ("[[destination]]\nkind = 'value'\nselector = 'a'\ncount = 5", "it is no limit of a value"),
        ("[[destination]]\nkind = 'history'\npath = 'a'", "it does not belong to a history"),
        ("[[destination", "the file is not TOML"),
    ],
)
def test_what_is_no_destination_is_refused(file: Path, text: str, complaint: str) -> None:
    [said] = complaints(file, text)
    assert complaint in said


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    with pytest.raises(DestinationFileError, match="cannot be read"):
        read_destinations(file)
    file.write_bytes(b"\xff")
    with pytest.raises(DestinationFileError, match="not TOML"):
        read_destinations(file)


@pytest.mark.promise("P20")
def test_a_file_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = '[[destination]]\nselector = "t/{}"\nkind = "value"\n'
    file.write_text("".join(one.format(number) for number in range(MAX_DESTINATIONS)))
    assert len(read_destinations(file)) == MAX_DESTINATIONS
    [said] = complaints(file, "".join(one.format(number) for number in range(MAX_DESTINATIONS + 1)))
    assert "a cluster holds at most 1,000" in said
    monkeypatch.setattr(destination_file, "LARGEST_FILE", 10)
    [said] = complaints(file, "# a long comment")
    assert "larger than" in said
