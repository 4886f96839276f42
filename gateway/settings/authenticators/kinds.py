"""Kinds of values that files of authenticators hold, besides those of all settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final
from urllib.parse import urlsplit

from gateway.settings.errors import Unfit
from gateway.settings.kinds import Kind, text_of

_PROPERTY_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,47}"
_LONGEST_TEXT: Final = 512
"""Characters of an issuer, an audience, or the path of a claim; URLs mostly."""


class TokenAlgorithm(StrEnum):
    """What may sign the tokens of an identity provider."""

    HS256 = "HS256"
    RS256 = "RS256"
    ES256 = "ES256"
    EDDSA = "EdDSA"


@dataclass(frozen=True, slots=True)
class Text(Kind[str]):
    """A text without characters that cannot be seen.

    Attributes:
        meant: what it is, after "give".
    """

    meant: str

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return self.meant

    def read(self, raw: object) -> str:
        """See ``Kind``."""
        text = text_of(raw)
        if not 0 < len(text) <= _LONGEST_TEXT or not text.isprintable():
            raise Unfit("is empty, too long or not printable")
        return text


@dataclass(frozen=True, slots=True)
class Algorithm(Kind[TokenAlgorithm]):
    """One of the algorithms, written as in a token."""

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return "HS256, RS256, ES256 or EdDSA"

    def read(self, raw: object) -> TokenAlgorithm:
        """See ``Kind``."""
        try:
            return TokenAlgorithm(text_of(raw))
        except ValueError:
            raise Unfit("is no algorithm that is accepted") from None


@dataclass(frozen=True, slots=True)
class Address(Kind[str]):
    """A URL that the node asks; without user and password, which logs would show."""

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return "a URL such as https://id.example.com/keys (http only for a loopback address, or in development mode)"

    def read(self, raw: object) -> str:
        """See ``Kind``."""
        text = text_of(raw)
        try:
            parts = urlsplit(text)
            port_is_good = parts.port is None or parts.port > 0
        except ValueError:
            raise Unfit("is no URL") from None
        if parts.scheme not in {"https", "http"} or not parts.hostname or not port_is_good or not text.isprintable():
            raise Unfit("is no URL that begins with https:// or http://")
        if "@" in parts.netloc or parts.fragment:
            raise Unfit("has a user, a password or a fragment in it")
        return text


@dataclass(frozen=True, slots=True)
class Names(Kind[tuple[tuple[str, str], ...]]):
    """A table of texts."""

    metavar: ClassVar[str] = "TABLE"

    @property
    def accepts(self) -> str:
        """See ``Kind``."""
        return 'a table of texts, such as { team = "team", desk = "org.desk" }'

    def read(self, raw: object) -> tuple[tuple[str, str], ...]:
        """See ``Kind``."""
        if not isinstance(raw, dict) or not all(isinstance(each, str) and each for each in raw.values()):
            raise Unfit("is not a table of texts")
        for name in raw:
            if re.fullmatch(_PROPERTY_NAME, name) is None:
                raise Unfit("has a name with other characters than 48 letters, digits and any of _ . -")
        return tuple(raw.items())
