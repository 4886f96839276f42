"""The second line of defence against secrets in logs (P8).

The first is that no event declares a field for one. This one catches what slips through all the same: inside the text
of an exception, in a URL, in a field that somebody adds in a hurry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Final

REDACTED: Final = "[redacted]"

_SECRET_NAME: Final = re.compile(
    r"(?:.*[_-])?(?:tokens?|secrets?|passwords?|passwd|credentials?|authorization|api[_-]?keys?|token[_-]keys?)",
    re.IGNORECASE,
)
"""Names of fields that hold secrets, also with something before them: ``new_token``."""

_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{24,}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")
"""A session token: payload, dot, HMAC-SHA256 in base64. No host, path or session id of ours looks like that."""

_HASH: Final = re.compile(r"scrypt\$[^\s'\"]+")
"""A hashed secret of the file of static users."""

_ADMIN_TOKEN: Final = re.compile(r"gwadm_[A-Za-z0-9_-]{43}")
"""A token of an administrator."""

_URL_PASSWORD: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,20}://[^\s:/@]*):[^\s@/]+@", re.IGNORECASE)
"""Credentials in a URL, such as the grid's. Bounded, so that no text of a client makes the search slow."""

_SHORTEST_TOKEN: Final = 24 + 1 + 43
"""Characters below which no text can hold a token."""

_KNOWN_NAMES: Final = 1024
"""Names of fields of which is remembered whether they hold secrets: all of the catalogue."""

DEEPEST: Final = 6
"""Levels of nested values that are looked into; what lies deeper is not logged at all."""


LONGEST_TEXT: Final = 2000
"""Characters of one value: clients choose some of them, and may not fill the disk; tracebacks are not cut."""


@lru_cache(_KNOWN_NAMES)
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def redact(text: str) -> str:
    """Mask everything in *text* that looks like a token, a hashed secret or a password in a URL."""
    # Cheap tests first: nearly no text has any of these.
    if len(text) >= _SHORTEST_TOKEN and "." in text:
        text = _TOKEN.sub(REDACTED, text)
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<scheme>:{REDACTED}@", text)
    if "gwadm_" in text:
        text = _ADMIN_TOKEN.sub(REDACTED, text)
    if "scrypt$" in text:
        text = _HASH.sub(REDACTED, text)
    return text


def _is_harmless(value: object) -> bool:
    """Tell whether *value* can be seen to need no masking and no cutting: nearly all can."""
    return value is None or (type(value) is str and len(value) < _SHORTEST_TOKEN and not ("$" in value or "/" in value))


def redact_value(value: object, depth: int = 0) -> object:
    """Make *value* fit for a log: plain JSON values, with secrets masked."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _cut(redact(value))
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {
            str(key): REDACTED if _is_secret(str(key)) else redact_value(item, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_value(item, depth + 1) for item in value]
    if isinstance(value, bytes):
        return _cut(redact(value.decode("utf-8", "backslashreplace")))
    # Values of our own (enums, paths, node references) say what they are with str(), and so do exceptions.
    return _cut(redact(str(value)))


def _cut(text: str) -> str:
    # After masking: what is cut first might no longer look like the secret that it begins.
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"


def redact_fields(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask secrets in all fields of an event; a structlog processor."""
    for name, value in fields.items():
        if _is_secret(name):
            fields[name] = REDACTED
        elif not _is_harmless(value):
            fields[name] = redact(value) if name == "exception" and isinstance(value, str) else redact_value(value)
    return fields
