"""Kinds of settings: how a value is read from TOML or text, checked, and shown.

A kind's ``read`` takes what TOML gives (numbers, booleans, lists, texts) or the text of an environment variable or a
flag, so that one spelling works in all three places. It raises ``Unfit`` with a complaint that does not repeat the
value: whether a value may be repeated is known to the caller, who knows whether it is secret.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from gateway.settings.errors import Unfit

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=StrEnum)

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Kind(ABC, Generic[T]):
    """How values of a setting are read, checked and shown."""

    metavar: ClassVar[str] = "VALUE"
    """What stands for the value in ``--help``."""

    @property
    def unit(self) -> str:
        """The unit of the value, for the reference; empty if it has none."""
        return ""

    @property
    def domain(self) -> str:
        """What values there are, in a few words, for tables."""
        return self.accepts

    @property
    @abstractmethod
    def accepts(self) -> str:
        """What may be given, as the end of a sentence that begins with "give"."""

    @abstractmethod
    def read(self, raw: object) -> T:
        """Turn *raw* into a value.

        Args:
            raw: from TOML, or the text of a variable or flag.

        Raises:
            Unfit: it is none; the message does not repeat *raw*.
        """

    def anchor(self, value: T, folder: Path) -> T:  # noqa: ARG002 - most kinds have nothing to anchor
        """Make relative paths in *value* start from *folder*, the one of the file in which it was found."""
        return value

    def show(self, value: T) -> str:
        """Write a value for people, secrets masked; ``read`` accepts it again if there are none."""
        return str(value)


def text_of(raw: object) -> str:
    """Take a text without blanks around it.

    Raises:
        Unfit: *raw* is none.
    """
    if not isinstance(raw, str):
        raise Unfit("is not a text")
    return raw.strip()


@dataclass(frozen=True, slots=True)
class Switch(Kind[bool]):
    """On or off."""

    metavar: ClassVar[str] = ""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "true or false"

    def read(self, raw: object) -> bool:
        """See the base class."""
        if isinstance(raw, bool):
            return raw
        word = text_of(raw).lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise Unfit("is neither true nor false")

    def show(self, value: bool) -> str:
        """See the base class."""
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class OneOf(Kind[EnumT]):
    """One of a few words.

    Attributes:
        words: the enumeration of them.
    """

    words: type[EnumT]
    metavar: ClassVar[str] = "WORD"

    @property
    def accepts(self) -> str:
        """See the base class."""
        *most, last = [word.value for word in self.words]
        return f"{', '.join(most)} or {last}"

    def read(self, raw: object) -> EnumT:
        """See the base class."""
        try:
            return self.words(text_of(raw).lower())
        except ValueError:
            raise Unfit("is not one of the known words") from None


@dataclass(frozen=True, slots=True)
class Word(Kind[str]):
    """A short text made of few characters.

    Attributes:
        pattern: what it must match as a whole.
        explained: the pattern in words, after "give".
    """

    pattern: str
    explained: str
    metavar: ClassVar[str] = "NAME"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return self.explained

    def read(self, raw: object) -> str:
        """See the base class."""
        text = text_of(raw)
        if re.fullmatch(self.pattern, text) is None:
            raise Unfit("is empty" if not text else "has characters or a length that are not allowed here")
        return text


@dataclass(frozen=True, slots=True)
class Several(Kind[tuple[T, ...]]):
    """A list: an array in TOML, separated by commas in a variable or flag.

    Attributes:
        item: the kind of its entries.
        plural: what they are, after "give".
    """

    item: Kind[T]
    plural: str
    metavar: ClassVar[str] = "LIST"

    @property
    def domain(self) -> str:
        """See the base class."""
        return f"{self.plural}: {self.item.domain}"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return f"{self.plural} separated by commas (in TOML: an array), each {self.item.accepts}"

    def read(self, raw: object) -> tuple[T, ...]:
        """See the base class."""
        if isinstance(raw, str):
            entries: list[object] = [part for part in raw.split(",") if part.strip()]
        elif isinstance(raw, list):
            entries = raw
        else:
            raise Unfit("is not a list")
        values = tuple(self.item.read(entry) for entry in entries)
        if len(set(values)) != len(values):
            raise Unfit("has an entry twice")
        return values

    def show(self, value: tuple[T, ...]) -> str:
        """See the base class."""
        return ",".join(self.item.show(entry) for entry in value)
