"""What a filter says, as values: each tells whether it holds, and writes itself in canonical form.

A property that a session does not have is different from every text: ``team is 'fx'`` does not hold then, and
``team is not 'fx'`` does.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

KEYWORDS: Final = frozenset({"and", "or", "not", "is", "in", "like", "has"})
"""Words that no property can be called without quotes."""

_PLAIN_NAME: Final = re.compile(r"\$?[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_SPECIAL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that would steer a terminal, or cannot be sent at all; written as escapes."""

_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_ESCAPED: Final = {character: f"\\{letter}" for letter, character in _ESCAPES.items()}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


def quote_text(text: str) -> str:
    """Write a text in single quotes."""
    return f"'{_escape(text, quote=chr(39))}'"


def quote_name(name: str) -> str:
    """Write the name of a property, in double quotes if it must be."""
    if _PLAIN_NAME.fullmatch(name) and name not in KEYWORDS:
        return name
    return f'"{_escape(name, quote=chr(34))}"'


def unquote(quoted: str) -> str:
    """Read what stands between quotes, which are at both ends of *quoted*."""
    return _ESCAPE.sub(_unescape, quoted[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _ESCAPES.get(character, character)


def _escape(text: str, *, quote: str) -> str:
    doubled = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return _SPECIAL.sub(lambda match: _ESCAPED.get(match[0], f"\\u{ord(match[0]):04x}"), doubled)


_ANY: Final = 0
_ALL: Final = 1
_NOT: Final = 2
_SINGLE: Final = 3
"""Binding strengths: what binds less strongly is put into parentheses."""


@dataclass(frozen=True, slots=True)
class Expression(ABC):
    """A condition on the properties of a session."""

    strength: ClassVar[int] = _SINGLE

    @abstractmethod
    def holds(self, properties: Mapping[str, str]) -> bool:
        """Tell whether it holds for a session with these *properties*."""

    @property
    def depth(self) -> int:
        """Levels of nesting, from 1."""
        return 1

    def _inside(self, inner: Expression) -> str:
        return f"({inner})" if inner.strength <= self.strength and not isinstance(inner, Not) else str(inner)


@dataclass(frozen=True, slots=True)
class Is(Expression):
    """``name is 'text'``: the property is exactly this text."""

    name: str
    text: str

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        return properties.get(self.name) == self.text

    def __str__(self) -> str:
        return f"{quote_name(self.name)} is {quote_text(self.text)}"


@dataclass(frozen=True, slots=True)
class OneOf(Expression):
    """``name in ('a', 'b')``: the property is one of these texts."""

    name: str
    texts: tuple[str, ...]

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        return properties.get(self.name) in self.texts

    def __str__(self) -> str:
        return f"{quote_name(self.name)} in ({', '.join(map(quote_text, self.texts))})"


@dataclass(frozen=True, slots=True)
class Like(Expression):
    r"""``name like 'web-*'``: the property matches a pattern.

    ``*`` is any text, ``?`` any character, and ``\`` takes the next character as it is.
    """

    name: str
    pattern: str

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        text = properties.get(self.name)
        return text is not None and _matches(_pieces(self.pattern), text)

    def __str__(self) -> str:
        return f"{quote_name(self.name)} like {quote_text(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Has(Expression):
    """``has name``: the session has the property, whatever it is."""

    name: str

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        return self.name in properties

    def __str__(self) -> str:
        return f"has {quote_name(self.name)}"


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """``not …``: the other does not hold."""

    inner: Expression
    strength: ClassVar[int] = _NOT

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        return not self.inner.holds(properties)

    @property
    def depth(self) -> int:
        """See the base class."""
        return 1 + self.inner.depth

    def __str__(self) -> str:
        return f"not {self._inside(self.inner)}"


@dataclass(frozen=True, slots=True)
class All(Expression):
    """``… and …``: each holds; at least two, and none is an ``All`` itself."""

    parts: tuple[Expression, ...]
    strength: ClassVar[int] = _ALL

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        return all(part.holds(properties) for part in self.parts)

    @property
    def depth(self) -> int:
        """See the base class."""
        return 1 + max(part.depth for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(self._inside(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Any(Expression):
    """``… or …``: one of them holds; at least two, and none is an ``Any`` itself."""

    parts: tuple[Expression, ...]
    strength: ClassVar[int] = _ANY

    def holds(self, properties: Mapping[str, str]) -> bool:
        """See the base class."""
        return any(part.holds(properties) for part in self.parts)

    @property
    def depth(self) -> int:
        """See the base class."""
        return 1 + max(part.depth for part in self.parts)

    def __str__(self) -> str:
        return " or ".join(self._inside(part) for part in self.parts)


_ANYTHING: Final = None
"""The piece of a pattern that ``*`` is."""


def _pieces(pattern: str) -> list[tuple[bool, str] | None]:
    """Split a pattern into characters: whether each is any character, and which; None for any text."""
    pieces: list[tuple[bool, str] | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            pieces.append((False, next(characters, "\\")))
        elif character == "*":
            if not pieces or pieces[-1] is not _ANYTHING:
                pieces.append(_ANYTHING)
        else:
            pieces.append((character == "?", character))
    return pieces


def _matches(pieces: list[tuple[bool, str] | None], text: str) -> bool:
    """Match a pattern; goes back to the last ``*`` alone, so that the work is at most pieces times characters."""
    at = place = 0
    star, resume = -1, 0
    while at < len(text):
        piece = pieces[place] if place < len(pieces) else (False, "")
        if piece is _ANYTHING:
            star, resume = place, at
            place += 1
        elif piece[0] or piece[1] == text[at]:
            at += 1
            place += 1
        elif star >= 0:
            resume += 1
            at, place = resume, star + 1
        else:
            return False
    return all(piece is _ANYTHING for piece in pieces[place:])
