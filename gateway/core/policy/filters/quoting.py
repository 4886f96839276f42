"""Names and texts of a filter: how they are written so that they are read as they were."""

from __future__ import annotations

import re
from typing import Final

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
