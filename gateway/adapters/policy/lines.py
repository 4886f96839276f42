"""In which line of a TOML file a key stands; the parser of the standard library does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_HEADER: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_KEY: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART: Final = re.compile(r"""([A-Za-z0-9_-]+)|"([^"]*)"|'([^']*)'""")


class Lines:
    """Finds keys in a text that is valid TOML. What is written in an unusual way is not found, which does no harm.

    Args:
        text: the file.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._keys: list[tuple[tuple[str, ...], int]] = list(self._read())

    def _read(self) -> Iterator[tuple[tuple[str, ...], int]]:
        table: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, start=1):
            if header := _HEADER.match(line):
                table = _parts(header[1])
                yield table, number
            elif key := _KEY.match(line):
                yield (*table, *_parts(key[1])), number

    def find(self, key: tuple[str, ...], entry: str | None = None) -> int | None:
        """Tell the line of a key.

        Args:
            key: its name with those of the tables around it.
            entry: of the list that is its value; then the line of that.

        Returns:
            The line, from 1; of the innermost table around it that is found, else None.
        """
        for known, number in self._keys:
            if known[: len(key)] == key:
                return number if entry is None else self._line_of(entry, number)
        return self.find(key[:-1]) if len(key) > 1 else None

    def _line_of(self, entry: str, first: int) -> int:
        following = min((number for _, number in self._keys if number > first), default=len(self._lines) + 1)
        quoted = (f'"{entry}"', f"'{entry}'")
        for number in range(first, following):
            if any(each in self._lines[number - 1] for each in quoted):
                return number
        return first


def _parts(key: str) -> tuple[str, ...]:
    return tuple(found[1] or found[2] or found[3] or "" for found in _PART.finditer(key))
