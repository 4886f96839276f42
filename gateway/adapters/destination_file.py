"""The file of destinations: TOML that says what paths are.

```toml
[[destination]]
selector = "log/**"
kind = "history"
count = 10_000
age = "7d"
bytes = "16MiB"
```

It is read strictly: a limit that is misspelt would silently be the default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gateway.core.destinations.destination import MAX_DESTINATIONS, Destination, Origin, read_destination
from gateway.core.destinations.limits import DECLARABLE, LIMITS, InvalidDestination, Limit, Unit, read_kind
from gateway.core.visible import visible
from gateway.core.wire.errors import GatewayError
from gateway.settings.errors import Problem, Unfit
from gateway.settings.quantities import Bytes, Seconds

LARGEST_FILE: Final = 4 * 1024**2
"""Bytes: as many destinations as there may be, with the longest selectors and every limit, take less than half."""

_TABLE: Final = "destination"

_HEADER: Final = re.compile(r"\s*\[\[\s*destination\s*\]\]")

_PLACE: Final = ("selector", "path", "kind")


class DestinationFileError(GatewayError):
    """The file cannot be used. All that is wrong is told at once.

    Attributes:
        problems: at least one.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


def read_destinations(file: Path) -> Sequence[Destination]:
    """Read what a file says of paths; blocks while it reads.

    Returns:
        Destinations of the origin ``FILE``, each selector once.

    Raises:
        DestinationFileError: the file cannot be read, or something in it is wrong.
    """
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise DestinationFileError(
                [Problem(str(file), f"the file is larger than {LARGEST_FILE // 1024**2} MiB", "describe fewer paths")]
            )
        text = file.read_text("utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        complaint = f"the destinations cannot be read ({error.strerror or error})"
        raise DestinationFileError([Problem(str(file), complaint, "name a file that this user may read")]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DestinationFileError([Problem(str(file), f"the file is not TOML ({error})", "correct it")]) from None
    reader = _Reader(file, text)
    found = list(reader.read(content))
    if reader.problems:
        raise DestinationFileError(reader.problems)
    return found


class _Reader:
    """Turns what a file says into destinations, and collects what is wrong."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._lines = [number for number, line in enumerate(text.split("\n"), start=1) if _HEADER.match(line)]
        self.problems: list[Problem] = []

    def read(self, content: Mapping[str, object]) -> Iterator[Destination]:
        for key in content:
            if key != _TABLE:
                self._complain(None, visible(key), "there is no such key", f"write [[{_TABLE}]] above each destination")
        tables = content.get(_TABLE, [])
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            self._complain(None, _TABLE, "this is no list of tables", f"write [[{_TABLE}]] above each destination")
            return
        if len(tables) > MAX_DESTINATIONS:
            self._complain(
                None,
                _TABLE,
                f"there are {len(tables):,} destinations, and a cluster holds at most {MAX_DESTINATIONS:,}",
                "describe several by one selector",
            )
            return
        first: dict[str, int] = {}
        for number, table in enumerate(tables):
            try:
                destination = read_destination(dict(self._in_numbers(table)), origin=Origin.FILE, kinds=DECLARABLE)
            except InvalidDestination as error:
                self._complain(number, error.field, f"it {error.wrong}", error.allowed or "correct it")
                continue
            known = first.setdefault(destination.selector.text, number)
            if known != number:
                place = f"line {self._lines[known]}" if known < len(self._lines) else "another one"
                text = visible(destination.selector.text)
                self._complain(number, "selector", f"{text} is described at {place} already", "keep one of them")
                continue
            yield destination

    def _in_numbers(self, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
        """Turn durations and sizes with units into seconds and bytes.

        Raises:
            InvalidDestination: a key or a value does not fit.
        """
        kind = read_kind(table.get("kind"), DECLARABLE)
        known = {each.name: each for each in LIMITS[kind]}
        for name, value in table.items():
            limit = known.get(name)
            if limit is None and name not in _PLACE:
                close = get_close_matches(name, known, n=1)
                meant = f"did you mean {close[0]!r}? " if close else ""
                there = ", ".join(known) if known else "none"
                raise InvalidDestination(visible(name), f"is no limit of a {kind.value}", f"{meant}(there are {there})")
            if limit is not None and isinstance(value, str) and limit.unit in {Unit.SECONDS, Unit.BYTES}:
                measure = _measure(limit)
                try:
                    yield name, measure.read(value)
                except Unfit as unfit:
                    raise InvalidDestination(name, str(unfit), measure.accepts) from None
            else:
                yield name, value

    def _complain(self, number: int | None, key: str, complaint: str, remedy: str) -> None:
        line = f":{self._lines[number]}" if number is not None and number < len(self._lines) else ""
        self.problems.append(Problem(f"{self._file}{line}: {key}", complaint, visible(remedy)))


def _measure(limit: Limit) -> Seconds | Bytes:
    """Return what reads a limit of seconds or bytes that is written with a unit."""
    if limit.unit is Unit.SECONDS:
        return Seconds(limit.low, limit.high)
    return Bytes(int(limit.low), int(limit.high))
