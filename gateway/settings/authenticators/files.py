"""Files of authenticators: the kinds of values that they hold, and how one is read, with all that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from gateway.core.loopback import is_loopback
from gateway.settings.declaration import declared_in
from gateway.settings.errors import ConfigurationError, Problem, Unfit
from gateway.settings.kinds import Kind, text_of
from gateway.settings.layers import read_toml

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


T = TypeVar("T")


def read_file(file: Path, group: type[T]) -> T:
    """Read a TOML file whose keys are the settings of a class.

    Args:
        file: to read; relative paths in it are relative to where it is.
        group: the class.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    content = read_toml(file, "auth:")
    known = {each.name: each for each in declared_in(group, "")}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, raw in content.items():
        if key not in known:
            problems.append(
                Problem(
                    f"{file}: {key}", "there is no such key", f"the keys of this file are {', '.join(sorted(known))}"
                )
            )
            continue
        kind = known[key].declared.kind
        try:
            values[key] = kind.anchor(kind.read(raw), file.parent)
        except Unfit as unfit:
            problems.append(Problem(f"{file}: {key}", f"its value {unfit}", f"give {kind.accepts}"))
    if problems:
        raise ConfigurationError(problems)
    return group(**values)


def check_address(file: Path, key: str, url: str | None, *, dev: bool) -> Iterator[Problem]:
    """Tell if secrets would cross a network where everybody can read them.

    Args:
        file: that holds the URL.
        key: of the URL.
        url: that will be asked; None if there is none.
        dev: allow http to any host.
    """
    if url is None or dev:
        return
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        yield Problem(
            f"{file}: {key}", "it is http, which everybody on the network path can read and change", "give an https URL"
        )
