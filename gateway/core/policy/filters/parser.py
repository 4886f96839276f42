"""Reads filters, and tells where one cannot be read and what was expected there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from gateway.core.policy.filters.expressions import KEYWORDS, All, Any, Expression, Has, Is, Like, Not, OneOf, unquote
from gateway.core.wire.errors import GatewayError

MAX_CHARACTERS: Final = 2000
"""Longest filter: a hundred comparisons, and a line of a URL that every server takes."""

MAX_DEPTH: Final = 32
"""Most levels of nesting; people lose count far earlier, and nothing here or in a caller recurses deeply."""

_REMEMBERED: Final = 64
"""Filters kept read: the pages of one list ask for the same one again and again."""

_SHOWN_BEFORE: Final = 40
_SHOWN_AFTER: Final = 30
"""Characters of a long filter shown on either side of the place where it cannot be read."""


class InvalidFilter(GatewayError):
    """A filter cannot be read; the text shows where, and says what was expected.

    Attributes:
        column: the place, in characters from 1; one past the end if something is missing there.
        reason: what was wrong, without the picture.
    """

    def __init__(self, text: str, column: int, reason: str) -> None:
        super().__init__(f"column {column}: {reason}\n{_picture(text, column)}")
        self.column = column
        self.reason = reason


class _TooDeep(Exception):
    """There are more levels than allowed."""


_WORDS: Final = {
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "IS": "is",
    "IN": "in",
    "LIKE": "like",
    "HAS": "has",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "NAME": "a property",
    "QUOTED_NAME": "a property",
    "TEXT": "a text in single quotes",
    "$END": "the end",
}
"""What each token is called for people, and in which order they are named."""


@v_args(inline=True)
class _Builder(Transformer[Token, Expression]):
    """Makes expressions as they are read; there is no tree in between, so that nothing recurses."""

    def name(self, token: Token) -> str:
        return unquote(token) if token.type == "QUOTED_NAME" else str(token)

    def text(self, token: Token) -> str:
        return unquote(token)

    def texts(self, *texts: str) -> tuple[str, ...]:
        return texts

    def is_text(self, name: str, text: str) -> Expression:
        return Is(name, text)

    def is_not_text(self, name: str, text: str) -> Expression:
        return Not(Is(name, text))

    def is_one_of(self, name: str, texts: tuple[str, ...]) -> Expression:
        return OneOf(name, texts)

    def is_none_of(self, name: str, texts: tuple[str, ...]) -> Expression:
        return Not(OneOf(name, texts))

    def is_like(self, name: str, pattern: str) -> Expression:
        return Like(name, pattern)

    def is_not_like(self, name: str, pattern: str) -> Expression:
        return Not(Like(name, pattern))

    def has_name(self, name: str) -> Expression:
        return Has(name)

    def negated(self, inner: Expression) -> Expression:
        return _bounded(Not(inner))

    def all_of(self, *parts: Expression) -> Expression:
        flat = tuple(inner for part in parts for inner in (part.parts if isinstance(part, All) else (part,)))
        return _bounded(All(flat))

    def any_of(self, *parts: Expression) -> Expression:
        flat = tuple(inner for part in parts for inner in (part.parts if isinstance(part, Any) else (part,)))
        return _bounded(Any(flat))


def _bounded(expression: Expression) -> Expression:
    if expression.depth > MAX_DEPTH:
        raise _TooDeep
    return expression


@cache
def _parser() -> Lark:
    """Make the parser when it is first needed: it takes a twentieth of a node's start, and few policies filter."""
    return Lark(
        resources.files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8"),
        parser="lalr",
        # A keyword is one everywhere, and not a property where no keyword is expected.
        lexer="basic",
        transformer=_Builder(),
    )


@lru_cache(_REMEMBERED)
def parse(text: str) -> Expression:
    """Read a filter.

    Raises:
        InvalidFilter: it is too long, nested too deeply, or not of the language.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidFilter(text, MAX_CHARACTERS + 1, f"a filter has at most {MAX_CHARACTERS} characters")
    try:
        expression = _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(text, error) from None
    except VisitError as error:
        raise InvalidFilter(text, 1, f"more than {MAX_DEPTH} levels of nesting") from error
    except _TooDeep:
        raise InvalidFilter(text, 1, f"more than {MAX_DEPTH} levels of nesting") from None
    assert isinstance(expression, Expression)  # noqa: S101 - the builder makes nothing else
    return expression


def _explained(text: str, error: UnexpectedInput) -> InvalidFilter:
    # lark has no place for what is missing at the end.
    place: int | None = getattr(error, "pos_in_stream", None)
    column = (len(text) if place is None or place < 0 else place) + 1
    match error:
        case UnexpectedToken() if error.token.type == "$END":
            return InvalidFilter(text, len(text) + 1, f"the filter ends where {_expected(error.accepts)} is expected")
        case UnexpectedToken():
            found = f"{error.token.value!s:.40}"
            hint = _hint(error)
            return InvalidFilter(text, column, f"{found} stands where {_expected(error.accepts)} is expected{hint}")
        case UnexpectedCharacters():
            return InvalidFilter(text, column, _about_character(text[column - 1 : column], error))
        case UnexpectedEOF():
            return InvalidFilter(text, len(text) + 1, "the filter ends too early")
    return InvalidFilter(text, column, "this is no filter")


def _about_character(character: str, error: UnexpectedCharacters) -> str:
    if character in {"'", '"'}:
        return f"the quote {character} is not closed"
    if character in {"=", "!", "<", ">", "~"}:
        return f"{character} is not an operator; there are is, is not, in, not in, like, not like, has"
    return f"{character!a} stands where {_expected(error.allowed)} is expected"


def _hint(error: UnexpectedToken) -> str:
    if error.token.type == "NAME" and "TEXT" in (error.accepts or ()):
        return f"; write '{error.token.value}'"
    if error.token.value in KEYWORDS and "NAME" in (error.accepts or ()):
        return f'; a property of that name is written "{error.token.value}"'
    return ""


def _expected(tokens: Iterable[str] | None) -> str:
    known = set(tokens or ())
    words = list(dict.fromkeys(word for token, word in _WORDS.items() if token in known))
    if not words:
        return "something else"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _picture(text: str, column: int) -> str:
    """Show the place with a caret below it, in one line of bounded width."""
    start = max(0, column - 1 - _SHOWN_BEFORE)
    # Control characters would move the caret, or more than that.
    shown = "".join(each if each.isprintable() else "\N{MIDDLE DOT}" for each in text[start : column + _SHOWN_AFTER])
    dots = "…" if start else ""
    return f"  {dots}{shown}\n  {' ' * (len(dots) + column - 1 - start)}^"
