"""The form in which sessions are exported: parts of bytes, fields with names, and a seal around it all.

```text
seal:    "GWSX" │ version u16 │ payload │ CRC-32 of all before it, u32
parts:   count u32 │ length u32 of each │ the parts, one after the other
record:  parts, of which the first is a JSON object of named fields, and the others bodies that it refers to by place
```

All numbers in front are unsigned and big-endian. What stays bytes (bodies, values) is not copied through JSON; what has
a name stays readable, and whoever reads knows what is wrong where. Reading ends with a value or with ``InvalidExport``,
whatever the bytes are: they come from another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from math import isfinite
from struct import Struct, pack, unpack_from
from typing import Final, NoReturn, TypeVar
from zlib import crc32

import orjson

from gateway.core.types import JsonValue
from gateway.core.wire.codec import MAX_NUMBER
from gateway.core.wire.errors import InvalidExport, UnknownExportVersion

VERSION: Final = 5
"""Of all that is exported. It grows with every change of what is written, were it one more field: who does not know the
version refuses, and the session fails over with a declared loss, instead of going on with a part of itself missing."""

MAGIC: Final = b"GWSX"
"""What an export begins with: anything else is told apart from one that is damaged."""

_BEGINNING: Final = Struct(">4sH")
_LENGTH: Final = Struct(">I")

E = TypeVar("E", bound=Enum)
"""An enumeration."""


def seal(payload: bytes) -> bytes:
    """Put around what is exported what tells its version and whether it has arrived as it was sent."""
    sealed = _BEGINNING.pack(MAGIC, VERSION) + payload
    return sealed + _LENGTH.pack(crc32(sealed))


def unseal(data: bytes) -> bytes:
    """Take out what ``seal`` was given.

    Raises:
        UnknownExportVersion: another release has written it, in a form that this one does not know.
        InvalidExport: it is no export, or it is truncated or altered.
    """
    if len(data) < _BEGINNING.size + _LENGTH.size:
        raise InvalidExport(f"an export of a session has more than {len(data)} bytes")
    magic, version = _BEGINNING.unpack_from(data)
    if magic != MAGIC:
        raise InvalidExport(f"an export of a session begins with {MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        # Before the checksum: of another version, nothing else is known.
        raise UnknownExportVersion(
            f"the export of a session has version {version}; this release reads version {VERSION} only. "
            "Let the session fail over, and bring the nodes to one release"
        )
    sealed = data[: -_LENGTH.size]
    if _LENGTH.unpack_from(data, len(sealed))[0] != crc32(sealed):
        raise InvalidExport("the export of a session is truncated or altered: its checksum is another one")
    return sealed[_BEGINNING.size :]


def join(parts: Sequence[bytes]) -> bytes:
    """Write parts one after the other, so that ``part`` finds where each begins."""
    return pack(f">{len(parts) + 1}I", len(parts), *map(len, parts)) + b"".join(parts)


def part(data: bytes) -> list[bytes]:
    """Take apart what ``join`` wrote.

    Raises:
        InvalidExport: it is not of that form.
    """
    if len(data) < _LENGTH.size:
        raise InvalidExport("a list of parts has no count")
    (count,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size * (1 + count)
    if start > len(data):
        raise InvalidExport(f"a list of {count} parts has only {len(data)} bytes")
    parts: list[bytes] = []
    for length in unpack_from(f">{count}I", data, _LENGTH.size):
        parts.append(data[start : start + length])
        start += length
    if start != len(data):
        raise InvalidExport(f"parts of {start} bytes are said to be there, and {len(data)} bytes are")
    return parts


class Bodies:
    """What a record refers to while it is written.

    Attributes:
        list: the bodies, in the order of their places.
    """

    __slots__ = ("list",)

    def __init__(self) -> None:
        self.list: list[bytes] = []

    def put(self, body: bytes) -> int:
        """Add one; returns its place."""
        self.list.append(body)
        return len(self.list) - 1


def write_record(fields: dict[str, JsonValue], bodies: Bodies) -> bytes:
    """Write a record; see ``Record``."""
    return join([orjson.dumps(fields), *bodies.list])


class Record:
    """Fields that have been read, each to be asked for by its name and with what it has to be.

    Args:
        data: as ``write_record`` wrote it.
        what: what it is of, for errors.
        names: all the fields that there have to be.

    Raises:
        InvalidExport: by this and by every method: it is not of that form.
    """

    __slots__ = ("_bodies", "_fields", "_what")

    def __init__(self, data: bytes, what: str, names: Iterable[str]) -> None:
        self._what = what
        parts = part(data)
        try:
            fields = orjson.loads(parts[0]) if parts else None
        except orjson.JSONDecodeError as error:
            raise InvalidExport(f"the fields of the {what} are not JSON: {error}") from None
        expected = set(names)
        if not isinstance(fields, dict) or fields.keys() != expected:
            there = sorted(fields) if isinstance(fields, dict) else fields
            raise InvalidExport(f"the {what} has the fields {sorted(expected)}, and not {str(there)[:500]}")
        self._fields: dict[str, JsonValue] = fields
        self._bodies = parts[1:]

    def fail(self, name: str, expected: str) -> NoReturn:
        """Say what a field should have been."""
        raise InvalidExport(f"{name} of the {self._what} is {str(self._fields[name])[:100]!r}, and not {expected}")

    def value(self, name: str) -> JsonValue:
        """Return whatever it is."""
        return self._fields[name]

    def integer(self, name: str, least: int = 0, most: int = MAX_NUMBER) -> int:
        """Return a whole number from *least* to *most*."""
        value = self._fields[name]
        if type(value) is not int or not least <= value <= most:
            self.fail(name, f"a whole number from {least} to {most}")
        return value

    def optional_integer(self, name: str) -> int | None:
        """Likewise, from 0, or None."""
        return None if self._fields[name] is None else self.integer(name)

    def boolean(self, name: str) -> bool:
        """Return true or false."""
        value = self._fields[name]
        return value if isinstance(value, bool) else self.fail(name, "true or false")

    def number(self, name: str) -> float:
        """Return a number; a whole one stays one, so that it is written again as it was."""
        value = self._fields[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            self.fail(name, "a number")
        return value

    def optional_number(self, name: str) -> float | None:
        """Return a number, or None."""
        return None if self._fields[name] is None else self.number(name)

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._fields[name]
        return value if isinstance(value, str) else self.fail(name, "a text")

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None."""
        return None if self._fields[name] is None else self.text(name)

    def member(self, name: str, of: type[E]) -> E:
        """Return a member of an enumeration, which is written by its value."""
        try:
            return of(self._fields[name])
        except ValueError:
            self.fail(name, f"one of {[each.value for each in of]}")

    def rows(self, name: str) -> list[JsonValue]:
        """Return a list of anything."""
        value = self._fields[name]
        return value if isinstance(value, list) else self.fail(name, "a list")

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        texts = [each for each in self.rows(name) if isinstance(each, str)]
        return texts if len(texts) == len(self.rows(name)) else self.fail(name, "a list of texts")

    def integers(self, name: str, count: int | None = None) -> list[int]:
        """Return a list of whole numbers from 0; *count* of them, if that is given."""
        numbers = [each for each in self.rows(name) if type(each) is int and 0 <= each <= MAX_NUMBER]
        if len(numbers) != len(self.rows(name)) or (count is not None and count != len(numbers)):
            self.fail(name, "a list of whole numbers" if count is None else f"a list of {count} whole numbers")
        return numbers

    def numbers(self, name: str, count: int) -> list[float]:
        """Return a list of *count* numbers; see ``number``."""
        rows = self.rows(name)
        numbers = [each for each in rows if isinstance(each, int | float) and isfinite(each)]
        if not count == len(numbers) == len(rows):
            self.fail(name, f"a list of {count} numbers")
        return numbers

    def properties(self, name: str) -> dict[str, str]:
        """Return texts by name."""
        value = self._fields[name]
        if not isinstance(value, dict):
            self.fail(name, "an object")
        texts = {key: text for key, text in value.items() if isinstance(text, str)}
        return texts if len(texts) == len(value) else self.fail(name, "an object of texts")

    def body(self, name: str, place: object) -> bytes:
        """Return the body at a place that a field names."""
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(self._bodies):
            self.fail(name, f"the place of one of {len(self._bodies)} bodies")
        return self._bodies[place]
