"""Who administrators are, and what they may do: the file of their tokens, the actions, and the built-in roles.

The file has one ``name:roles:hash`` a line, as ``gateway admin token create`` makes them. Empty
lines and lines that begin with # are skipped; roles are separated by commas.

Every line is compared in constant time, so that nothing is told by how long a refusal takes.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from gateway.core.wire.errors import GatewayError
from gateway.settings.admin_tokens import NAME, ROLE, digest_of

LONGEST_TOKEN: Final = 256
"""Characters above which a text is no token, whatever it is."""

FINGERPRINT_DIGITS: Final = 8
"""Hexadecimal digits of a token's hash that are its fingerprint: enough to tell a token from the one before it."""

_HASH: Final = re.compile(r"sha256\$([0-9a-f]{64})")


class TokensFileError(GatewayError):
    """The file of administrators cannot be used; the text names file and line, and says what to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        name: of the token; stands in the audit log.
        roles: what decides about what it may do.
        fingerprint: tells the token from another one of the same name, and is no secret.
    """

    name: str
    roles: frozenset[str]
    fingerprint: str = ""


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
        digest = digest_of(token)
        found: Caller | None = None
        for line in self._lines:
            if hmac.compare_digest(line.digest, digest):
                found = line.caller
        return found

    def named(self, name: str) -> Caller | None:
        """Tell of the token of a name; None if there is none, or not any more."""
        return next((line.caller for line in self._lines if line.caller.name == name), None)

    def undefined_roles(self, defined: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """Find roles that mean nothing, most likely misspelt: neither built in nor *defined*, which the policy does.

        Returns:
            The names of the tokens that have it, by role.
        """
        roles = sorted(frozenset[str]().union(*(line.caller.roles for line in self._lines)))
        return {
            role: tuple(line.caller.name for line in self._lines if role in line.caller.roles)
            for role in roles
            if role not in ROLES and role not in defined
        }


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
            if NAME.fullmatch(name) and found and all(ROLE.fullmatch(role) for role in several):
                return _Line(Caller(name, frozenset(several), found[1][:FINGERPRINT_DIGITS]), bytes.fromhex(found[1]))
    return None


class Action(StrEnum):
    """What a request to the admin API does; a policy grants these names, or ``sessions:*``, or ``*``."""

    NODES_READ = "nodes:read"
    NODES_DRAIN = "nodes:drain"
    SESSIONS_READ = "sessions:read"
    SESSIONS_CLOSE = "sessions:close"
    SESSIONS_MOVE = "sessions:move"
    SESSIONS_NOTIFY = "sessions:notify"
    TOPICS_READ = "topics:read"
    TOPICS_WRITE = "topics:write"
    DESTINATIONS_READ = "destinations:read"
    DESTINATIONS_DECLARE = "destinations:declare"
    QUEUES_READ = "queues:read"
    QUEUES_WRITE = "queues:write"
    HOOKS_READ = "hooks:read"
    HOOKS_RETRY = "hooks:retry"
    ZONES_READ = "zones:read"
    ZONES_CHANGE = "zones:change"
    REVOCATIONS_READ = "revocations:read"
    REVOCATIONS_WRITE = "revocations:write"
    CONFIGURATION_READ = "configuration:read"


EVERYTHING: Final = "*"
"""Stands for every action; after a colon for every action on that kind of thing."""

_READ: Final = frozenset(each for each in Action if each.endswith(":read"))

ROLES: Final[dict[str, frozenset[str]]] = {
    "viewer": _READ,
    "operator": _READ
    | {
        Action.NODES_DRAIN,
        Action.SESSIONS_CLOSE,
        Action.SESSIONS_MOVE,
        Action.SESSIONS_NOTIFY,
        Action.QUEUES_WRITE,
        Action.HOOKS_RETRY,
        Action.REVOCATIONS_WRITE,
    },
    "administrator": frozenset({EVERYTHING}),
}
"""The built-in roles: who looks, who is on call, and who may also write topics and say what they are."""

GrantedTo: TypeAlias = Callable[[frozenset[str]], frozenset[str]]
"""Tells which actions some roles are granted; names of actions, or patterns of them."""


def built_in(roles: frozenset[str]) -> frozenset[str]:
    """Tell what the built-in roles among *roles* may do; a ``GrantedTo``."""
    return frozenset[str]().union(*(ROLES.get(role, frozenset()) for role in roles))


def allows(granted: frozenset[str], action: Action) -> bool:
    """Tell whether what was granted includes *action*."""
    kind, _, _ = action.partition(":")
    return not granted.isdisjoint((action, f"{kind}:{EVERYTHING}", EVERYTHING))
