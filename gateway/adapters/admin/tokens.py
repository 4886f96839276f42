"""The file of administrators: one ``name:roles:hash`` a line, as ``gateway admin token create`` makes them.

Empty lines and lines that begin with # are skipped; roles are separated by commas.

A token is 256 random bits, so its hash need not be slow: nobody can try out what is not guessable. SHA-256 it is, and
every line is compared in constant time, so that nothing is told by how long a refusal takes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.core.errors import GatewayError

PREFIX: Final = "gwadm_"
"""Begins every token, so that scanners for leaked secrets, and redaction, can tell what it is."""

TOKEN_BYTES: Final = 32
"""Random bytes of a token."""

LONGEST_TOKEN: Final = 256
"""Characters above which a text is no token, whatever it is."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}", re.ASCII)
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_HASH: Final = re.compile(r"sha256\$([0-9a-f]{64})")


class TokensFileError(GatewayError):
    """The file of administrators cannot be used; the text names file and line, and says what to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        name: of the token; stands in the audit log.
        roles: what decides about what it may do.
    """

    name: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Line:
    caller: Caller
    digest: bytes = field(repr=False)


class AdminTokens:
    """The administrators of a file.

    Args:
        file: lines that ``gateway admin token create`` makes.

    Raises:
        TokensFileError: the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines = _read(file)

    def __len__(self) -> int:
        return len(self._lines)

    def reload(self) -> int:
        """Read the file again, for SIGHUP; blocks while it reads.

        Returns:
            The number of tokens.

        Raises:
            TokensFileError: the file cannot be used; the tokens that were read before stay in force.
        """
        self._lines = _read(self._file)
        return len(self._lines)

    def find(self, token: str) -> Caller | None:
        """Tell whose token it is; None if it is nobody's. Takes the same time whichever line it is."""
        if len(token) > LONGEST_TOKEN:
            return None
        digest = _digest(token)
        found: Caller | None = None
        for line in self._lines:
            if hmac.compare_digest(line.digest, digest):
                found = line.caller
        return found


def new_token() -> str:
    """Make a token; a secret that is shown once."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def tokens_line(name: str, roles: frozenset[str], token: str) -> str:
    """Make the line of a token for the file.

    Raises:
        ValueError: the name or a role cannot be used.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError("a name has up to 64 letters, digits and _ . @ -, and begins with a letter or digit")
    if not roles:
        raise ValueError("a token without a role may do nothing; name at least one")
    for role in roles:
        if _ROLE.fullmatch(role) is None:
            raise ValueError("a role has up to 64 letters, digits and _ . -, and begins with a letter or digit")
    return f"{name}:{','.join(sorted(roles))}:sha256${_digest(token).hex()}"


def _digest(token: str) -> bytes:
    # A lone surrogate in a token is nobody's token, but must not raise either.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _read(file: Path) -> tuple[_Line, ...]:
    remedy = "make lines with `gateway admin token create`"
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TokensFileError(f"{file}: is not UTF-8 text; {remedy}") from None
    except OSError as error:
        raise TokensFileError(f"{file}: cannot be read ({error.strerror or error}); {remedy}") from None
    lines: dict[str, _Line] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        content = raw.strip()
        if not content or content.startswith("#"):
            continue
        line = _parse(content)
        if line is None:
            raise TokensFileError(f"{file}, line {number}: is not of the form name:roles:sha256$…; {remedy}")
        if line.caller.name in lines:
            raise TokensFileError(f"{file}, line {number}: {line.caller.name} stands in an earlier line; {remedy}")
        lines[line.caller.name] = line
    if not lines:
        raise TokensFileError(f"{file}: holds no token; {remedy}")
    return tuple(lines.values())


def _parse(content: str) -> _Line | None:
    match content.split(":"):
        case [name, roles, hashed]:
            found = _HASH.fullmatch(hashed)
            several = roles.split(",")
            if _NAME.fullmatch(name) and found and all(_ROLE.fullmatch(role) for role in several):
                return _Line(Caller(name, frozenset(several)), bytes.fromhex(found[1]))
    return None
